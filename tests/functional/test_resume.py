"""Going on with a job: what is checked again, what is refused, and that a job's id is known whatever happens."""

import json
import re
import signal
import subprocess
import time
from typing import Any

import boto3
import pytest

from bulkexec import errors
from bulkexec.commands.delete import Delete
from bulkexec.describe import describe
from bulkexec.plan import Options
from bulkexec.planning import make_plan
from bulkexec.runtimes.assembly import Given, MemoryCheckpoints
from bulkexec.runtimes.deployment import CONTROL_TABLE
from bulkexec.runtimes.local import Totals, run_local
from bulkexec.runtimes.table_lock import TableLock
from bulkexec.selection import Filter

ITEMS = 400


def delete(table: str, *more: str) -> tuple[str, ...]:
    return ("delete", "--table", table, "--where", "n >= 0", "--strategy", "sequential", "--segments", "1", *more)


def stopped_at(bulkexec: Any, table: str, *more: str, rate: str = "100") -> dict[str, Any]:
    """The report of a local delete that stopped at a cap."""
    outcome = bulkexec.json(*delete(table, "--yes", "--max-items", "20", "--write-rate", rate, *more))
    assert outcome.code == 4, outcome.stderr
    return dict(outcome.report)


def job_line(process: "subprocess.Popen[str]", stream: Any) -> str:
    """Waits for the line that gives the job's id."""
    for line in stream:
        if found := re.fullmatch(r"job ([0-9a-f]{8})\n", line):
            return found[1]
    raise AssertionError(f"no job id was said; exit {process.wait()}")


def slow_delete(bulkexec: Any, table: str, rate: str = "20") -> tuple["subprocess.Popen[str]", str]:
    process = bulkexec.start(*delete(table, "--yes", "--write-rate", rate, "--output", "json"))
    return process, job_line(process, process.stderr)


def stop(bulkexec: Any, process: "subprocess.Popen[str]") -> Any:
    process.send_signal(signal.SIGINT)
    return bulkexec.finish(process)


def refused(outcome: Any, code: str, *words: str) -> None:
    assert (outcome.code, outcome.report["status"], outcome.report["exit_code"]) == (2, "refused", 2), outcome.stderr
    first = outcome.report["error"][0]
    assert first.startswith(f"error {code}: "), first
    for word in words:
        assert word in " ".join(outcome.report["error"]), outcome.report


# One process a job


@pytest.mark.alone
def test_a_second_resume_of_a_running_job_is_refused_and_the_counts_are_right(
    bulkexec: Any, tables: Any, items: Any
) -> None:
    table = tables.make(items(ITEMS, 60))
    begun, job = slow_delete(bulkexec, table, rate="40")
    assert stop(bulkexec, begun).code == 130
    first = bulkexec.start("resume", job, "--output", "json")
    job_line(first, first.stderr)
    refused(bulkexec.json("resume", job), "BX114", f"job {job} is running as process {first.pid}")
    whole = bulkexec.finish(first)
    assert whole.code == 0, whole.stderr
    assert (whole.report["processed"], tables.read(table)) == (ITEMS, [])


# One mutating run a table


def lock_of(tables: Any, table: str) -> dict[str, Any]:
    key = {"pk": {"S": f"table#{arn(tables, table)}"}, "sk": {"S": "lock"}}
    return dict(tables.client.get_item(TableName=CONTROL_TABLE, Key=key, ConsistentRead=True).get("Item", {}))


def arn(tables: Any, table: str) -> str:
    return str(tables.client.describe_table(TableName=table)["Table"]["TableArn"])


def test_two_local_runs_on_one_table_refuse_each_other(
    bulkexec: Any, deployed: str, tables: Any, items: Any, tmp_path: Any
) -> None:
    table = tables.make(items(ITEMS, 60))
    first, job = slow_delete(bulkexec, table)
    try:
        time.sleep(0.5)
        refused(bulkexec.json(*delete(table, "--yes")), "BX108", job, "this machine")
        elsewhere = {"BULKEXEC_STATE_DIR": str(tmp_path / "elsewhere")}
        refused(bulkexec.json(*delete(table, "--yes"), env=elsewhere), "BX108", job)
        assert lock_of(tables, table)["job"]["S"] == job
        assert bulkexec.json(*delete(table, "--dry-run")).code == 0
    finally:
        assert stop(bulkexec, first).code == 130
    assert lock_of(tables, table) == {}
    assert bulkexec.json(*delete(table, "--yes")).code == 0
    assert tables.read(table) == []


def test_a_control_table_that_may_not_be_written_hinders_nothing(
    bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    table = tables.make(items(20, 60))
    denied = {"operation": "UpdateItem", "match": {"TableName": CONTROL_TABLE}, "code": "AccessDeniedException"}
    fault = sandbox.control.faults.add("error", **denied)
    try:
        outcome = bulkexec.json(*delete(table, "--yes"))
    finally:
        sandbox.control.faults.remove(fault)
    assert (outcome.code, tables.read(table)) == (0, [])
    assert "not kept off" in outcome.stderr


@pytest.fixture
def session(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    for name, value in sandbox.env().items():
        monkeypatch.setenv(name, value)
    return boto3.Session()


def test_a_lock_that_another_job_took_over_is_lost(
    session: boto3.Session, deployed: str, tables: Any, tmp_path: Any
) -> None:
    table = describe(session, tables.make())
    with TableLock(session, table, "0000000a", tmp_path, lambda line: None, renewal_seconds=0.1) as lock:
        time.sleep(0.3)
        assert lock.lost is None
        taken = lock_of(tables, table.name) | {"job": {"S": "0000000b"}}
        tables.client.put_item(TableName=CONTROL_TABLE, Item=taken)
        until = time.monotonic() + 5
        while lock.lost is None and time.monotonic() < until:
            time.sleep(0.05)
        assert isinstance(lock.lost, errors.TableLocked)
        assert "0000000b" in lock.lost.why
    assert lock_of(tables, table.name)["job"]["S"] == "0000000b", "the lock of the other job stays"


def test_a_run_that_lost_its_lock_stops_with_that_error_and_can_go_on(
    session: boto3.Session, tables: Any, items: Any
) -> None:
    planned = make_plan(session, Delete(all=True), tables.make(items(60, 60)), Filter(), Options(), 1, 4)
    lost, totals = errors.TableLocked("the lock was lost"), Totals()

    def stop() -> bool:
        return totals.counts.scanned > 0

    checkpoints = MemoryCheckpoints()
    report = run_local(
        planned.plan, session, "0000000a", checkpoints, stop, totals, lambda: lost if stop() else None, Given(threads=1)
    )
    assert (report.status, report.exit_code, report.error) == ("failed", 1, ("error BX108: the lock was lost",))
    assert report.cursor
    assert 0 < report.counts.processed < 60
    assert report.counts.processed == 60 - len(tables.read(report.table))


# The same table


def make_again(tables: Any, table: str, items: list[dict[str, Any]]) -> None:
    tables.client.delete_table(TableName=table)
    tables.client.get_waiter("table_not_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
    tables.client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    tables.client.update_continuous_backups(
        TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    tables.put(table, items)


def test_a_table_that_was_made_again_is_another_table(bulkexec: Any, tables: Any, items: Any) -> None:
    table = tables.make(items(60, 60))
    first = stopped_at(bulkexec, table)
    make_again(tables, table, items(60, 60))
    refused(bulkexec.json("resume", first["job_id"]), "BX113", table, "made again")
    refused(bulkexec.json(*delete(table, "--yes"), "--resume-token", first["cursor"]), "BX111")
    assert len(tables.read(table)) == 60
    tables.client.delete_table(TableName=table)
    refused(bulkexec.json("resume", first["job_id"]), "BX101", table)


# Tokens


def test_a_token_of_a_local_run_fits_one_command_only(bulkexec: Any, tables: Any, items: Any) -> None:
    table = tables.make(items(60, 60))
    token = ("--resume-token", stopped_at(bulkexec, table)["cursor"])
    left = len(tables.read(table))
    refused(bulkexec.json(*delete(table, *token, "--yes", "--dry-run")), "BX111")
    refused(bulkexec.json(*delete(table, *token, "--yes", "--runtime", "glue")), "BX100", "--runtime glue")
    refused(bulkexec.json(*delete(table, *token, "--yes", "--segments", "2")), "BX100", "segments")
    refused(bulkexec.json(*delete(table, *token)), "BX105")
    refused(bulkexec.json(*delete(table, "--resume-token", "", "--yes")), "BX111")
    assert len(tables.read(table)) == left
    rest = bulkexec(*delete(table, *token, "--yes"))
    assert (rest.code, tables.read(table)) == (0, [])
    assert re.search(r"Continues +where the resume token points", rest.stdout)
    assert re.search(r"counts +of this call only", rest.stdout)


def test_a_find_that_goes_on_by_token_says_that_its_folder_is_a_second_one(
    bulkexec: Any, deployed: str, tables: Any, items: Any
) -> None:
    find = ("find", "--table", tables.make(items(60, 60)), "--results", f"s3://{deployed}/found")
    first = bulkexec.json(*find, "--max-items", "5", "--segments", "4")
    assert first.code == 4
    second = bulkexec.json(*find, "--resume-token", first.report["cursor"])
    assert second.code == 0
    assert second.report["results"] != first.report["results"]
    assert second.report["matched"] + first.report["matched"] == 60
    assert "a second folder" in second.stderr
    assert "a second folder" not in first.stderr


def test_a_count_that_stopped_counts_so_far(bulkexec: Any, tables: Any, items: Any) -> None:
    capped = bulkexec("count", "--table", tables.make(items(60, 60)), "--max-items", "1", "--segments", "8")
    assert capped.code in (0, 4)
    assert (" so far\n" in capped.stdout) is (capped.code == 4)


def test_a_token_of_a_glue_job_is_gated_and_takes_the_options_given_now(
    bulkexec: Any, deployed: str, tables: Any, items: Any, sandbox: Any
) -> None:
    table = tables.make(items(300, 60))
    glue = ("--runtime", "glue")
    first = bulkexec.json(*delete(table, "--yes", "--max-items", "20", "--write-rate", "100", *glue))
    assert first.code == 4, first.stderr
    token, left = ("--resume-token", first.report["cursor"]), len(tables.read(table))
    starts = sandbox.control.requests("StartJobRun", "glue")
    unconfirmed = bulkexec.json(*delete(table, *token))
    refused(unconfirmed, "BX105", "--yes")
    assert "PLAN  delete" in unconfirmed.stderr
    refused(bulkexec.json(*delete(table, *token, "--yes", "--runtime", "local")), "BX100", "--runtime local")
    refused(bulkexec.json(*delete(table, *token, "--yes", "--dry-run")), "BX111")
    assert sandbox.control.requests("StartJobRun", "glue") == starts
    assert len(tables.read(table)) == left
    second = bulkexec.json(*delete(table, *token, "--yes", "--max-items", "7", "--write-rate", "90"))
    assert second.code == 4, second.stderr
    assert "90 write units/s" in second.stderr
    assert second.report["job_id"] == first.report["job_id"]
    gone = 300 - len(tables.read(table))
    assert second.report["processed"] == gone
    assert gone > 300 - left


# A job's id, whatever happens


def test_the_id_is_said_before_the_work_and_a_second_signal_leaves_a_document(
    bulkexec: Any, tables: Any, items: Any
) -> None:
    table = tables.make(items(ITEMS, 60))
    process, job = slow_delete(bulkexec, table)
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)  # both signals wait for it, however fast it drains
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    outcome = bulkexec.finish(process)
    assert outcome.code == 130, outcome.stderr
    assert f"Continue: bulkexec resume {job}" in outcome.stderr
    report = outcome.report
    assert (report["job_id"], report["status"], report["exit_code"]) == (job, "cancelled", 130)
    assert report["processed"] <= ITEMS - len(tables.read(table))
    whole = bulkexec.json("resume", job)
    assert (whole.code, tables.read(table)) == (0, [])


def test_denied_results_leave_a_report_with_counts_and_a_way_on(
    bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    find = ("find", "--table", tables.make(items(60, 60)), "--results", f"s3://{deployed}/denied", "--runtime", "local")
    denied = {"service": "s3", "operation": "PutObject", "code": "AccessDenied", "status": 403, "after": 2}
    fault = sandbox.control.faults.add("error", **denied)
    try:
        outcome = bulkexec.json(*find, "--segments", "4")
    finally:
        sandbox.control.faults.remove(fault)
    report = outcome.report
    assert (outcome.code, report["status"], report["exit_code"]) == (1, "failed", 1), outcome.stderr
    assert report["error"][0].startswith("error BX301: "), report["error"]
    assert report["cursor"]
    whole = bulkexec.json("resume", report["job_id"])
    assert (whole.code, whole.report["matched"]) == (0, 60), whole.stderr


def test_a_signal_while_the_job_is_submitted_cancels_it(
    bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    table = tables.make(items(ITEMS, 60))
    fault = sandbox.control.faults.add("delay", service="glue", operation="StartJobRun", delay_seconds=2, count=1)
    process = bulkexec.start(*delete(table, "--yes", "--runtime", "glue", "--write-rate", "20", "--output", "json"))
    try:
        job = job_line(process, process.stderr)
        time.sleep(0.7)
        outcome = stop(bulkexec, process)
    finally:
        sandbox.control.faults.remove(fault)
    assert (outcome.code, outcome.report["status"]) == (130, "cancelled"), outcome.stderr
    assert outcome.report["job_id"] == job
    assert len(tables.read(table)) == ITEMS - outcome.report["processed"] > 0


def test_a_client_that_cannot_follow_says_which_job_goes_on(
    bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    table = tables.make(items(30, 60))
    denied = {"service": "glue", "operation": "GetJobRun", "code": "AccessDeniedException"}
    fault = sandbox.control.faults.add("error", **denied)
    try:
        outcome = bulkexec.json("count", "--table", table, "--runtime", "glue")
    finally:
        sandbox.control.faults.remove(fault)
    document = outcome.report
    assert (outcome.code, document["status"], document["command"]) == (1, "failed", "count"), outcome.stderr
    assert document["error"][0].startswith("error BX306: ")
    whole = bulkexec.json("attach", document["job_id"])
    assert (whole.code, whole.report["matched"]) == (0, 30)


# What cannot be gone on with


@pytest.mark.parametrize("verb", ["resume", "attach"])
@pytest.mark.parametrize("job", ["a" * 300, "nosuch", "../../etc/passwd", "a/b", "", "7F3A91C2", "7f3a91c2\n"])
def test_what_is_no_id_of_a_job(verb: str, job: str, bulkexec: Any) -> None:
    refused(bulkexec.json(verb, job), "BX112", "8 hexadecimal digits")


@pytest.mark.parametrize("content", ["", "{", "[]", "\xff"])
def test_a_damaged_job_file_is_one_sentence(content: str, bulkexec: Any, tmp_path: Any) -> None:
    (tmp_path / "state" / "jobs").mkdir(parents=True)
    (tmp_path / "state" / "jobs" / "7f3a91c2.json").write_text(content, encoding="latin-1")
    refused(bulkexec.json("resume", "7f3a91c2"), "BX112", "7f3a91c2", "cannot be read")


def test_a_state_directory_that_cannot_be_written(bulkexec: Any, tables: Any, items: Any) -> None:
    table = tables.make(items(5, 60))
    outcome = bulkexec.json(*delete(table, "--yes"), env={"BULKEXEC_STATE_DIR": "/proc/nowhere"})
    refused(outcome, "BX100", "/proc/nowhere", "BULKEXEC_STATE_DIR")
    assert len(tables.read(table)) == 5


def test_a_job_of_another_region(bulkexec: Any, tables: Any, items: Any) -> None:
    job = stopped_at(bulkexec, tables.make(items(60, 60)))["job_id"]
    refused(bulkexec.json("resume", job, "--region", "eu-west-1"), "BX100", "us-east-1", "eu-west-1")
    refused(bulkexec.json("resume", "00000000", "--region", "ap-south-1"), "BX112", "00000000", "ap-south-1")
    refused(bulkexec.json("attach", job), "BX100", f"bulkexec resume {job}")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("count", "--table", "x", "--segments", "many"), "count"),
        (("delete",), "delete"),
        (("count", "--table", "x", "--no-such-option"), "count"),
        (("resume",), "resume"),
        (("no-such-command",), None),
    ],
)
def test_a_usage_error_has_a_document_too(arguments: tuple[str, ...], command: str | None, bulkexec: Any) -> None:
    outcome = bulkexec(*arguments, "--output", "json")
    document = json.loads(outcome.stdout)
    assert (outcome.code, document["status"], document["exit_code"]) == (2, "refused", 2)
    assert document.get("command") == command
    assert document["error"][0].startswith("error BX100: ")
    assert bulkexec(*arguments).stdout == ""
