"""`bulkexec count` as a process, in both runtimes."""

from typing import Any

import pytest

SAME = ("command", "table", "status", "scanned", "matched", "processed", "skipped", "failed", "conflicts", "cursor")


@pytest.fixture(scope="module")
def table(tables: Any, items: Any) -> str:
    return tables.make(items(3000, 200))


def test_both_runtimes_give_the_same_report(bulkexec: Any, deployed: str, table: str) -> None:
    arguments = ("count", "--table", table, "--where", "state = 'OLD'")
    reports = [bulkexec.json(*arguments, "--runtime", runtime).report for runtime in ("local", "glue")]
    assert {name: reports[0][name] for name in SAME} == {name: reports[1][name] for name in SAME}
    assert (reports[0]["scanned"], reports[0]["matched"]) == (3000, 1000)


def test_the_report_has_every_promised_field(bulkexec: Any, table: str) -> None:
    promised = (
        "job_id command status scanned matched processed skipped failed conflicts read_units write_units "
        "estimated_cost_usd duration_seconds cursor results"
    )
    report = bulkexec.json("count", "--table", table).report
    assert set(promised.split()) <= set(report)
    assert 3000 * 150 / 8192 <= report["read_units"] <= 3000 * 250 / 8192 + 16


def test_a_table_given_by_its_arn_is_found_in_the_arns_region(bulkexec: Any, tables: Any, table: str) -> None:
    # case C141
    arn = tables.client.describe_table(TableName=table)["Table"]["TableArn"]
    outcome = bulkexec.json("count", "--table", arn, "--region", "eu-west-1")
    assert outcome.report["matched"] == 3000


def test_tables_of_one_item_and_of_none_are_counted(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C011 C046
    assert bulkexec.json("count", "--table", tables.make()).report["matched"] == 0
    assert bulkexec.json("count", "--table", tables.make(items(1, 60))).report["matched"] == 1


def test_more_than_one_page_is_read(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C047: one segment holds more than 1 MB
    name = tables.make(items(60, 40_000))
    report = bulkexec.json("count", "--table", name, "--segments", "1").report
    assert report["scanned"] == 60


def test_a_pinned_partition_key_is_a_query(bulkexec: Any, tables: Any, sandbox: Any) -> None:
    # case C036
    rows = [{"pk": {"S": f"p{n % 5}"}, "sk": {"N": str(n)}, "state": {"S": "OLD"}} for n in range(500)]
    name = tables.make(rows, keys=(("pk", "S"), ("sk", "N")))
    report = bulkexec.json("count", "--table", name, "--where", "pk = 'p3' AND sk < 250 AND state = 'OLD'").report
    assert (report["scanned"], report["matched"]) == (50, 50)


def test_a_soft_cap_stops_with_a_cursor_that_goes_on(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C048
    name = tables.make(items(1000, 100))
    arguments = ("count", "--table", name, "--where", "state = 'NEW'")
    first = bulkexec.json(*arguments, "--max-items", "50")
    assert first.code == 4
    assert first.report["status"] == "capped"
    assert 50 <= first.report["matched"] < 666
    second = bulkexec.json(*arguments, "--resume-token", first.report["cursor"])
    assert second.code == 0
    assert first.report["matched"] + second.report["matched"] == 666
    assert first.report["scanned"] + second.report["scanned"] == 1000


def test_a_token_of_another_filter_or_table_is_refused(bulkexec: Any, tables: Any, items: Any) -> None:
    name, other = tables.make(items(300, 100)), tables.make(items(300, 100))
    token = bulkexec.json("count", "--table", name, "--max-items", "5").report["cursor"]
    for arguments in (("--table", name, "--where", "n > 5"), ("--table", other)):
        refused = bulkexec.json("count", *arguments, "--resume-token", token)
        assert refused.code == 2
        assert "BX111" in refused.report["error"][0]
    cut = bulkexec.json("count", "--table", name, "--resume-token", token[:-3])
    assert cut.code == 2


@pytest.mark.alone
def test_the_read_rate_holds(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C054 C062
    name = tables.make(items(400, 4000))
    outcome = bulkexec.json("count", "--table", name, "--read-rate", "60")
    report = outcome.report
    assert report["matched"] == 400
    assert report["read_units"] / report["duration_seconds"] <= 60 * 1.3
