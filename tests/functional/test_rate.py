"""Rates as seen from outside: what the table was charged, second by second. Acceptance 3 and 4 of the rate limit."""

import json
import threading
import time
from typing import Any

import pytest

from bulkexec.sandbox.process import Sandbox

pytestmark = pytest.mark.alone


def spent(sandbox: Sandbox, table: str, first: int, last: int) -> float:
    """Mean write units a second in [first, last)."""
    units = sandbox.control.units(table, "write")
    return sum(units.get(second, 0.0) for second in range(first, last)) / (last - first)


def wait_for_writes(sandbox: Sandbox, table: str, process: Any) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if sum(sandbox.control.units(table, "write").values()) > 20:
            return
        time.sleep(0.1)
    raise AssertionError("nothing was written")


def job_of(process: Any) -> str:
    """The id that a run says on stderr before it begins."""
    for line in process.stderr:
        if line.startswith("job "):
            return str(line.split()[1])
    raise AssertionError("no job id")


@pytest.mark.parametrize("runtime", ["local", "glue"])
def test_a_changed_rate_is_obeyed_within_three_seconds(
    runtime: str, bulkexec: Any, deployed: str, sandbox: Sandbox, tables: Any, items: Any
) -> None:
    # case C053
    table = tables.make(items(2500, 60))
    before = set(tables.keys(table))
    sandbox.control.reset_stats()
    process = bulkexec.start(
        *("delete", "--table", table, "--all", "--write-rate", "100", "--runtime", runtime, "--yes", "--output", "json")
    )
    job_id = job_of(process)
    drain = threading.Thread(target=process.stderr.read)
    drain.start()
    wait_for_writes(sandbox, table, process)
    for rate in (30, 0, 100):
        changed = bulkexec("rate", job_id, "--write-rate", str(rate))
        assert changed.code == 0, changed.stderr
        told = int(time.time())
        time.sleep(7.5)
        mean = spent(sandbox, table, told + 3, told + 7)
        assert rate * 0.75 - 1 <= mean <= rate * 1.05 + 8, (rate, mean, sandbox.control.units(table, "write"))
    # Paused or not, nothing is lost: a drain ends the run, and what was counted is what is gone.
    process.terminate()
    with process:
        report = json.loads(process.stdout.read())
        process.wait(60)
        drain.join()
    assert report["processed"] == len(before - set(tables.keys(table)))


def test_a_paused_job_can_be_drained(bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any) -> None:
    table = tables.make(items(800, 60))
    process = bulkexec.start("delete", "--table", table, "--all", "--write-rate", "60", "--yes", "--output", "json")
    job_id = job_of(process)
    wait_for_writes(sandbox, table, process)
    assert bulkexec("rate", job_id, "--write-rate", "0").code == 0
    time.sleep(1.5)
    process.terminate()
    outcome = bulkexec.finish(process)
    assert outcome.code == 130
    assert outcome.report["processed"] == 800 - len(tables.read(table))
    whole = bulkexec.json("resume", job_id)
    assert (whole.code, whole.report["processed"]) == (0, 800)


def test_the_rest_of_a_table_is_left_to_others(bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any) -> None:
    # case C061: 100 units provisioned, 50 for the job; somebody else writes 45 a second meanwhile
    capacity = {"ReadCapacityUnits": 500, "WriteCapacityUnits": 100}
    table = tables.make((), BillingMode="PROVISIONED", ProvisionedThroughput=capacity)
    for start in range(0, 700, 25):
        tables.put(table, items(700, 60)[start : start + 25])
        time.sleep(0.3)
    throttled_before = errors(sandbox)
    process = bulkexec.start("delete", "--table", table, "--all", "--write-rate", "50", "--yes", "--output", "json")
    wait_for_writes(sandbox, table, process)
    refused = production(sandbox, table, seconds=8)
    process.terminate()
    outcome = bulkexec.finish(process)
    assert refused == 0, errors(sandbox) - throttled_before
    assert outcome.report["failed"] == 0


def production(sandbox: Sandbox, table: str, seconds: float) -> int:
    """Another writer, 45 units a second without a retry; how many of its writes were throttled."""
    client = sandbox.client("dynamodb", retries={"total_max_attempts": 1})
    refused, began = 0, time.monotonic()
    for number in range(int(45 * seconds)):
        time.sleep(max(0.0, began + number / 45 - time.monotonic()))
        try:
            client.put_item(TableName=table, Item={"pk": {"S": f"production-{number}"}})
        except client.exceptions.ProvisionedThroughputExceededException:
            refused += 1
    return refused


def errors(sandbox: Sandbox) -> int:
    return sum(sandbox.control.stats()["errors"].values())


def test_a_share_of_what_the_table_has(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C054 C057 C058
    capacity = {"ReadCapacityUnits": 200, "WriteCapacityUnits": 40}
    name = tables.make(items(20, 60), BillingMode="PROVISIONED", ProvisionedThroughput=capacity)
    shown = bulkexec("delete", "--table", name, "--all", "--write-rate", "25%", "--dry-run").stdout
    assert "100 read units/s = 50 % of 200, provisioned; the default" in shown
    shown = bulkexec("delete", "--table", name, "--all", "--write-rate", "25%", "--yes").stdout
    assert "10 write units/s = 25 % of 40, provisioned" in shown
    above = bulkexec("count", "--table", name, "--read-rate", "900").stdout
    assert "warning: 900 read units/s is more than the table can serve" in above


def test_a_slower_index_is_named_and_kept(bulkexec: Any, tables: Any, sandbox: Sandbox) -> None:
    # case C059 C146
    index = {
        "IndexName": "by-state",
        "KeySchema": [{"AttributeName": "state", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
        "ProvisionedThroughput": {"ReadCapacityUnits": 5, "WriteCapacityUnits": 20},
    }
    name = f"indexed-{time.time_ns()}"
    tables.client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("pk", "state")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[index],
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 100, "WriteCapacityUnits": 200},
    )
    tables.client.update_continuous_backups(
        TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    for start in range(4):
        rows = [{"pk": {"S": f"{start}-{n}"}, "state": {"S": f"s{n}"}} for n in range(15)]
        tables.put(name, rows)
        time.sleep(0.8)
    outcome = bulkexec.json("delete", "--table", name, "--all", "--yes")
    assert "index by-state takes 10 write units/s" in outcome.stderr
    assert (outcome.report["processed"], outcome.report["failed"]) == (60, 0)
    by_second = sandbox.control.units(f"{name}/index/by-state", "write")
    assert max(by_second.values()) <= 10 * 1.05 + 25


def test_what_cannot_be_changed(bulkexec: Any, deployed: str, tables: Any, items: Any) -> None:
    done = bulkexec.json("count", "--table", tables.make(items(5, 60))).report["job_id"]
    for arguments in ((done, "--read-rate", "5"), (done,), (done, "--read-rate", "fast"), ("zz", "--read-rate", "5")):
        refused = bulkexec("rate", *arguments)
        assert refused.code == 2
        assert refused.stderr.startswith("error BX1")
        assert "Traceback" not in refused.stderr
