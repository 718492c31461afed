"""`bulkexec delete` as a process, in both runtimes."""

import json
import sys
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "bulkexec"]
SAME = (
    "command",
    "status",
    "scanned",
    "matched",
    "processed",
    "skipped",
    "failed",
    "conflicts",
    "cursor",
    "write_units",
)


def test_both_runtimes_delete_exactly_what_matches(bulkexec: Any, deployed: str, tables: Any, items: Any) -> None:
    reports = []
    for runtime in ("local", "glue"):
        name = tables.make(items(2000, 100))
        outcome = bulkexec.json("delete", "--table", name, "--where", "state = 'OLD'", "--runtime", runtime, "--yes")
        assert outcome.code == 0
        reports.append({field: outcome.report[field] for field in SAME})
        assert tables.keys(name) == {f"k{n:07d}" for n in range(2000) if n % 3}
    assert reports[0] == reports[1]
    assert reports[0]["processed"] == reports[0]["matched"] == 667


def test_dry_run_counts_exactly_and_writes_nothing(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C152
    name = tables.make(items(300, 60), recovery=False)
    report = bulkexec.json("delete", "--table", name, "--where", "state = 'OLD'", "--dry-run").report
    assert (report["status"], report["matched"], report["processed"], report["write_units"]) == ("dry-run", 100, 0, 0)
    assert len(tables.read(name)) == 300


def test_all_deletes_every_item(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(400, 60))
    report = bulkexec.json("delete", "--table", name, "--all", "--yes").report
    assert (report["processed"], len(tables.read(name))) == (400, 0)


@pytest.mark.parametrize("options", [(), ("--strategy", "sequential"), ("--unguarded",)])
def test_every_strategy_gives_the_same_buckets(
    options: tuple[str, ...], bulkexec: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(200, 60))
    where = "state = 'OLD' OR (n > 190 AND NOT n IN (195, 196))"
    report = bulkexec.json("delete", "--table", name, "--where", where, "--yes", *options).report
    gone = {f"k{n:07d}" for n in range(200) if n % 3 == 0 or (n > 190 and n not in (195, 196))}
    assert report["processed"] == len(gone)
    assert tables.keys(name) == {f"k{n:07d}" for n in range(200)} - gone


def test_a_raw_expression_guards_too(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(60, 60))
    report = bulkexec.json(
        *("delete", "--table", name, "--yes", "--filter-expression", "#s = :s"),
        *("--expression-names", '{"#s": "state"}', "--expression-values", '{":s": {"S": "OLD"}}'),
    ).report
    assert report["processed"] == 20


@pytest.mark.parametrize("strategy", ["native", "sequential"])
def test_an_item_that_changed_after_it_was_read_survives(
    strategy: str, bulkexec: Any, sandbox: Any, tables: Any, items: Any
) -> None:
    # case C077 C080: the change comes between the scan and the delete, which waits for it
    name = tables.make(items(9, 60))
    operation = "BatchExecuteStatement" if strategy == "native" else "DeleteItem"
    sandbox.control.faults.add(operation=operation, kind="delay", delay_seconds=3.0)
    try:
        process = bulkexec.start(
            *("delete", "--table", name, "--where", "state = 'OLD'", "--segments", "1", "--yes"),
            *("--strategy", strategy, "--output", "json"),
        )
        wait_for_request(sandbox, operation, process)
        tables.client.update_item(
            TableName=name,
            Key={"pk": {"S": "k0000003"}},
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "state"},
            ExpressionAttributeValues={":s": {"S": "NEW"}},
        )
    finally:
        outcome = bulkexec.finish(process)
        sandbox.control.faults.clear()
    assert (outcome.report["processed"], outcome.report["skipped"]) == (2, 1)
    assert tables.keys(name) == {f"k{n:07d}" for n in range(9)} - {"k0000000", "k0000006"}


def wait_for_request(sandbox: Any, operation: str, process: Any) -> None:
    import time

    before = sandbox.control.requests(operation)
    while process.poll() is None and sandbox.control.requests(operation) == before:
        time.sleep(0.05)


def test_unprocessed_and_throttled_deletes_are_sent_again(bulkexec: Any, sandbox: Any, tables: Any, items: Any) -> None:
    # case C065 C067 C069: a table with 20 write units a second takes 100 deletes, but not at once
    name = tables.make(
        items(100, 60),
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 100, "WriteCapacityUnits": 40},
    )
    report = bulkexec.json("delete", "--table", name, "--all", "--yes").report
    assert (report["processed"], report["failed"], len(tables.read(name))) == (100, 0, 0)


@pytest.mark.parametrize("kind", ["http500", "reset", "lost_answer"])
def test_lost_and_failed_answers_change_no_count(
    kind: str, bulkexec: Any, sandbox: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(300, 60))
    for operation in ("Scan", "BatchExecuteStatement"):
        sandbox.control.faults.add(operation=operation, kind=kind, probability=0.3, seed=7)
    try:
        outcome = bulkexec.json("delete", "--table", name, "--where", "state = 'OLD'", "--yes")
    finally:
        sandbox.control.faults.clear()
    assert (outcome.report["processed"], outcome.report["skipped"], outcome.report["failed"]) == (100, 0, 0)
    assert len(tables.read(name)) == 200


def test_the_identity_of_the_report_adds_up(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(300, 60))
    text = bulkexec("delete", "--table", name, "--where", "state = 'OLD'", "--yes").stdout
    assert "read       300 = deleted 100 + not matching 200 + skipped 0 + failed 0" in text


@pytest.mark.alone
def test_the_write_rate_holds(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C053 C054
    name = tables.make(items(120, 60))
    report = bulkexec.json("delete", "--table", name, "--all", "--write-rate", "30", "--yes").report
    assert report["processed"] == 120
    assert report["write_units"] / report["duration_seconds"] <= 30 * 1.3


def test_only_the_tables_name_confirms(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C151: a real terminal, answered by hand
    import pexpect  # type: ignore[import-untyped]

    name = tables.make(items(6, 60))
    for answer, left in (("yes", 6), ("", 6), (name, 4)):
        child = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], "delete", "--table", name, "--where", "state = 'OLD'"],
            env=bulkexec.environment,
            encoding="utf-8",
            timeout=60,
        )
        child.expect("Type the table name")
        child.sendline(answer)
        child.expect(pexpect.EOF)
        child.close()
        assert len(tables.read(name)) == left
        assert child.exitstatus == (0 if answer == name else 2)


def test_json_is_alone_on_stdout(bulkexec: Any, tables: Any, items: Any) -> None:
    outcome = bulkexec("delete", "--table", tables.make(items(6, 60)), "--all", "--yes", "--output", "json")
    assert json.loads(outcome.stdout)["processed"] == 6
    assert "PLAN  delete" in outcome.stderr
