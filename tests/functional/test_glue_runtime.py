"""Glue jobs whose answers get lost, whose lock is taken, whose client is refused: one run works and says its end."""

import gc
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from bulkexec import errors
from bulkexec.commands.delete import Delete
from bulkexec.control import ControlTable, TakenOver
from bulkexec.model import Counts, SegmentRecord
from bulkexec.plan import Options, Plan
from bulkexec.planning import make_plan
from bulkexec.report import Report
from bulkexec.runtimes.deployment import CONTROL_TABLE, JOB_NAME, OUTPUT_LOGS, find_deployment
from bulkexec.runtimes.glue import GlueRuntime, JobRun, open_job
from bulkexec.runtimes.heartbeat import RENEWAL_CONFIG, Background, LockKeeper, ProgressLog
from bulkexec.runtimes.live_tail import LogTail
from bulkexec.runtimes.spark import JobReference, run_job, walk_task
from bulkexec.s3 import Location, Objects
from bulkexec.sandbox.process import Sandbox, environment
from bulkexec.selection import Filter
from bulkexec.signals import DrainSignals

REGION = "us-east-1"
ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR")
DENIED = "User: arn:aws:sts::111122223333:assumed-role/bulkexec-job/x is not authorized to perform: {} on resource: {}"


@pytest.fixture
def session(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    """A session as the command line's; no fault outlives its test."""
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("bulkexec.runtimes.glue.START_PAUSE_SECONDS", 0.2)
    yield boto3.Session(region_name=REGION)
    sandbox.control.faults.clear()


@pytest.fixture
def control(session: boto3.Session) -> ControlTable:
    return ControlTable(session, REGION, CONTROL_TABLE)


@pytest.fixture
def runtime(session: boto3.Session, deployed: str) -> GlueRuntime:
    return GlueRuntime(session, find_deployment(session, REGION))


@pytest.fixture
def plan(session: boto3.Session, tables: Any, items: Any) -> Plan:
    """Deletes 100 of 300 items."""
    return plan_for(session, tables.make(items(300, 100)))


def plan_for(session: boto3.Session, table: str, **options: Any) -> Plan:
    return make_plan(session, Delete(), table, Filter(where="state = 'OLD'"), Options(**options), 4, 4).plan


@pytest.fixture
def job_id() -> str:
    return uuid.uuid4().hex[:8]


def runs_of(sandbox: Sandbox, job_id: str) -> list[dict[str, Any]]:
    runs = sandbox.client("glue").get_job_runs(JobName=JOB_NAME)["JobRuns"]
    return [run for run in runs if run["Arguments"]["--job_id"] == job_id]


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def stop(runtime: GlueRuntime, run: JobRun) -> None:
    runtime.stop(run)
    wait_for(lambda: not runtime.alive(run))


def follow(runtime: GlueRuntime, plan: Plan, run: JobRun) -> tuple[Report, list[str]]:
    said: list[str] = []
    report = runtime.follow(plan, run, DrainSignals(), lambda state, counts, done: None, said.append)
    return report, said


# Start


def test_a_lost_answer_starts_one_run(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox, control: ControlTable
) -> None:
    sandbox.control.faults.add("lost_answer", service="glue", operation="StartJobRun", count=1)
    run = runtime.submit(plan, job_id)
    time.sleep(0.5)
    assert [each["Id"] for each in runs_of(sandbox, job_id)] == [run.id]
    found = control.job(job_id)
    assert found is not None
    assert found.run_id == run.id
    stop(runtime, run)


@pytest.mark.parametrize(
    "fault", [{"kind": "error", "code": "ThrottlingException"}, {"kind": "reset"}, {"kind": "http500"}]
)
def test_a_start_that_had_no_effect_is_repeated(
    fault: dict[str, Any], runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox
) -> None:
    sandbox.control.faults.add(service="glue", operation="StartJobRun", count=2, **fault)
    run = runtime.submit(plan, job_id)
    assert [each["Id"] for each in runs_of(sandbox, job_id)] == [run.id]
    stop(runtime, run)


def test_two_glue_runs_of_one_number_do_the_work_once(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox, tables: Any
) -> None:
    first = runtime.submit(plan, job_id)
    (started,) = runs_of(sandbox, job_id)
    again = sandbox.client("glue").start_job_run(JobName=JOB_NAME, Arguments=started["Arguments"])["JobRunId"]
    # Followed by the id that did not win the job: the one that did is found.
    report, _ = follow(runtime, plan, replace(first, id=again))
    assert (report.status, report.counts.processed, report.counts.scanned) == ("finished", 100, 300)
    assert report.counts.skipped == 0
    assert len(tables.keys(plan.work.scope.table.name)) == 200
    wait_for(lambda: all(run["JobRunState"] in ENDED for run in runs_of(sandbox, job_id)))
    assert [run["JobRunState"] for run in runs_of(sandbox, job_id)] == ["SUCCEEDED"] * 2


def test_a_run_that_cannot_be_started_leaves_the_table_free(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox, control: ControlTable, session: boto3.Session
) -> None:
    message = DENIED.format("glue:StartJobRun", "arn:aws:glue:us-east-1:111122223333:job/bulkexec")
    sandbox.control.faults.add(
        "error", service="glue", operation="StartJobRun", code="AccessDeniedException", message=message
    )
    with pytest.raises(errors.AccessDenied, match="glue:StartJobRun"):
        runtime.submit(plan, job_id)
    control.lock(plan.work.scope.table.arn, "other", 1)
    _, _, run = open_job(session, job_id)
    assert run == JobRun("", job_id, 1)
    assert not runtime.alive(run)
    with pytest.raises(errors.UnknownJob) as caught:
        follow(runtime, plan, run)
    assert f"job {job_id} was never started" in caught.value.message
    assert caught.value.fix == f"bulkexec resume {job_id}"


def test_a_resume_that_cannot_be_started_leaves_the_job_as_it_was(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox, control: ControlTable
) -> None:
    stop(runtime, runtime.submit(plan, job_id))
    before = control.job(job_id)
    sandbox.control.faults.add("error", service="glue", operation="StartJobRun", code="AccessDeniedException")
    with pytest.raises(errors.AccessDenied):
        runtime.submit(plan, job_id)
    assert control.job(job_id) == before


def test_of_two_clients_that_resume_one_job_one_does(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox
) -> None:
    stop(runtime, runtime.submit(plan, job_id))
    # Both have read the record before either writes it.
    sandbox.control.faults.add(
        "delay", service="dynamodb", operation="PutItem", match={"TableName": CONTROL_TABLE}, delay_seconds=1, count=2
    )
    runs: list[JobRun] = []
    refused: list[errors.TableLocked] = []

    def resume() -> None:
        try:
            runs.append(runtime.submit(plan, job_id))
        except errors.TableLocked as error:
            refused.append(error)

    threads = [threading.Thread(target=resume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (run,), (error,) = runs, refused
    assert "another client has just" in error.message
    assert (error.fix, error.exit_code) == (f"bulkexec attach {job_id}", 2)
    assert len(runs_of(sandbox, job_id)) == 2
    with pytest.raises(errors.TableLocked):
        runtime.submit(plan, job_id + "x")  # the loser has not given the winner's table free
    stop(runtime, run)


# Follow


def test_errors_that_pass_do_not_end_the_client(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox
) -> None:
    run = runtime.submit(plan, job_id)
    faults = sandbox.control.faults
    faults.add("error", service="glue", operation="GetJobRun", code="ThrottlingException", count=7)
    faults.add("error", service="dynamodb", operation="Query", code="ThrottlingException", count=7)
    ending = threading.Timer(3, runtime.stop, [run])
    ending.start()
    report, _ = follow(runtime, plan, run)
    assert (report.status, report.job_id) == ("cancelled", job_id)
    assert report.folder is None, "nobody wrote a report"


def test_progress_that_may_not_be_read_is_said_once_and_ends_nothing(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox
) -> None:
    run = runtime.submit(plan, job_id)
    message = DENIED.format("dynamodb:Query", "arn:aws:dynamodb:us-east-1:111122223333:table/bulkexec-control")
    number = sandbox.control.faults.add(
        "error", service="dynamodb", operation="Query", code="AccessDeniedException", message=message, count=2
    )
    # Gone before the run ends: the report is summed from the records that the same Query reads.
    ending = threading.Timer(4, lambda: (sandbox.control.faults.remove(number), runtime.stop(run)))
    ending.start()
    report, said = follow(runtime, plan, run)
    assert report.job_id == job_id, "followed to the end; the driver, which needs the Query, may have failed"
    # The driver says it too, in its log; the client once.
    assert (
        len([line for line in said if line.startswith("progress cannot be read: ") and "dynamodb:Query" in line]) == 1
    )


def test_expired_credentials_end_the_client_and_it_says_that_the_job_goes_on(
    runtime: GlueRuntime, plan: Plan, job_id: str, sandbox: Sandbox
) -> None:
    # case C112
    run = runtime.submit(plan, job_id)
    sandbox.control.faults.add("expired_token", service="glue", operation="GetJobRun")
    with pytest.raises(errors.NoCredentials) as caught:
        follow(runtime, plan, run)
    text = "\n".join(caught.value.lines())
    assert "the job goes on" in text
    assert f"bulkexec attach {job_id}" in text
    sandbox.control.faults.clear()
    assert runtime.alive(run)
    stop(runtime, run)


@pytest.mark.parametrize("job", ["nobody12", "", "../../etc/passwd", "a" * 3000])
def test_an_unknown_job_is_one_sentence(job: str, deployed: str, session: boto3.Session) -> None:
    with pytest.raises(errors.UnknownJob) as caught:
        open_job(session, job)
    assert len(caught.value.lines()[0]) < 120


def test_a_job_looked_for_in_a_region_without_bulkexec(deployed: str, session: boto3.Session) -> None:
    with pytest.raises(errors.UnknownJob, match="eu-west-1") as caught:
        open_job(boto3.Session(region_name="eu-west-1"), "7f3a91c2")
    assert "--region" in caught.value.fix


@pytest.mark.parametrize("after_seconds", [0.3, 1.5, 2.2])
def test_leaving_a_live_tail_does_not_wait_for_its_next_update(
    after_seconds: float, runtime: GlueRuntime, session: boto3.Session, deployed: str
) -> None:
    arn = runtime.deployment.output_logs_arn
    tail = LogTail(session, REGION, OUTPUT_LOGS, arn, "jr_nobody", lambda line: None)
    with tail:
        time.sleep(after_seconds)
        begun = time.monotonic()
    assert time.monotonic() - begun < 0.5
    assert not [thread for thread in threading.enumerate() if thread.name == "live-tail"]
    del tail
    gc.collect()  # a socket or response that was left open would be a warning, and so an error


# The driver, without Spark


def reference(deployed: str, job_id: str, run_number: int = 1, run_id: str = "") -> JobReference:
    return JobReference(job_id, run_number, deployed, CONTROL_TABLE, REGION, run_id)


def test_a_glue_run_that_lost_its_job_touches_nothing(
    runtime: GlueRuntime,
    plan: Plan,
    job_id: str,
    deployed: str,
    session: boto3.Session,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = runtime.submit(plan, job_id)
    assert run_job(None, reference(deployed, job_id, run_id="jr_other"))
    assert "touched nothing" in capsys.readouterr().out
    assert Objects(session, REGION).get(Location(deployed, f"bulkexec/jobs/{job_id}/runs/1/report.json")) is None
    stop(runtime, run)


def test_a_table_made_again_since_the_plan_is_refused(
    runtime: GlueRuntime, plan: Plan, job_id: str, deployed: str, sandbox: Sandbox, tables: Any, control: ControlTable
) -> None:
    stop(runtime, runtime.submit(plan, job_id))
    table, client = plan.work.scope.table, sandbox.client("dynamodb")
    client.delete_table(TableName=table.name)
    client.create_table(
        TableName=table.name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
    )
    assert not run_job(None, reference(deployed, job_id))
    report, _ = follow(runtime, plan, JobRun(runs_of(sandbox, job_id)[0]["Id"], job_id, 1))
    assert report.status == "failed"
    assert "made again" in report.error[0]
    control.lock(table.arn, "other", 1)


# A worker, without Spark


@pytest.fixture
def begun(runtime: GlueRuntime, plan: Plan, job_id: str, deployed: str) -> JobReference:
    """A job whose Glue run was stopped before it did anything."""
    stop(runtime, runtime.submit(plan, job_id))
    return reference(deployed, job_id)


@pytest.mark.parametrize(
    ("service", "operation", "match"),
    [
        ("dynamodb", "PutItem", {"TableName": CONTROL_TABLE}),
        ("dynamodb", "GetItem", {"TableName": CONTROL_TABLE}),
        ("s3", "GetObject", {}),
    ],
)
def test_a_denial_in_a_task_is_one_sentence_and_not_a_trace(
    service: str, operation: str, match: dict[str, Any], begun: JobReference, sandbox: Sandbox
) -> None:
    # case C096
    message = DENIED.format(f"{service}:{operation}", "arn:aws:x:us-east-1:111122223333:y/z")
    sandbox.control.faults.add(
        "error", service=service, operation=operation, match=match, code="AccessDenied", status=403, message=message
    )
    _, error = walk_task(begun, 1, 0)
    assert f"lacks {service}:{operation} on arn:aws:x:us-east-1:111122223333:y/z" in error


def test_a_worker_of_an_earlier_run_stops_without_harm(
    begun: JobReference, runtime: GlueRuntime, plan: Plan, session: boto3.Session, control: ControlTable, tables: Any
) -> None:
    run = runtime.submit(plan, begun.job_id)
    assert walk_task(begun, 1, 0) == ([], "")
    assert len(tables.keys(plan.work.scope.table.name)) == 300
    assert control.cancelled(begun.job_id) == ""
    stop(runtime, run)


def test_a_checkpoint_that_a_later_run_has_written_ends_the_earlier_worker(
    begun: JobReference, session: boto3.Session, control: ControlTable, sandbox: Sandbox
) -> None:
    later = ControlTable(session, REGION, CONTROL_TABLE, run_number=2)
    records = [SegmentRecord(n, Counts(scanned=1)) for n in range(4)]
    for record in records:
        later.save_segment(begun.job_id, record)
    assert walk_task(begun, 1, 0) == ([], "")
    assert list(control.segments(begun.job_id)) == records
    assert control.cancelled(begun.job_id) == "", "the later run goes on"


# The lock of a run


@pytest.fixture
def quick_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOCK_RENEWAL_SECONDS", 0.2), ("RETRY_SECONDS", 0.2)):
        monkeypatch.setattr(f"bulkexec.runtimes.heartbeat.{name}", seconds)


class Holder:
    """A run that holds a table, and what becomes of it."""

    def __init__(self, session: boto3.Session) -> None:
        self.arn, self.lost, self.lines = f"arn:{uuid.uuid4().hex}", [], []  # type: str, list[Any], list[str]
        self.control = ControlTable(session, REGION, CONTROL_TABLE, config=RENEWAL_CONFIG)
        self.keeper = LockKeeper(self.control, self.arn, ("mine", 1), self.lost.append, self.lines.append)
        self.keeper.take()

    def held_until(self, sandbox: Sandbox) -> float:
        key = {"pk": {"S": f"table#{self.arn}"}, "sk": {"S": "lock"}}
        item = sandbox.client("dynamodb").get_item(TableName=CONTROL_TABLE, Key=key)["Item"]
        return float(item["held_until"]["N"])


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException", "InternalServerError"])
def test_a_renewal_that_fails_is_tried_again(
    code: str, deployed: str, session: boto3.Session, sandbox: Sandbox, quick_renewal: None
) -> None:
    holder = Holder(session)
    begun = holder.held_until(sandbox)
    sandbox.control.faults.add("error", service="dynamodb", operation="UpdateItem", code=code, count=3)
    with Background(holder.keeper.keep, holder.keeper.failed):
        wait_for(lambda: holder.held_until(sandbox) > begun + 0.5)
    assert holder.lost == []
    assert holder.lines


def test_a_run_whose_table_is_taken_is_told(
    deployed: str, session: boto3.Session, sandbox: Sandbox, quick_renewal: None
) -> None:
    holder = Holder(session)
    holder.control.unlock(holder.arn, "mine", 1)
    holder.control.lock(holder.arn, "other", 1)
    with Background(holder.keeper.keep, holder.keeper.failed):
        wait_for(lambda: bool(holder.lost))
    (error,) = holder.lost
    assert "job other" in error.message


def test_a_later_run_of_the_job_takes_the_lock_and_the_earlier_is_told(
    deployed: str, session: boto3.Session, quick_renewal: None
) -> None:
    holder = Holder(session)
    holder.control.lock(holder.arn, "mine", 2)
    with Background(holder.keeper.keep, holder.keeper.failed):
        wait_for(lambda: bool(holder.lost))
    assert isinstance(holder.lost[0], TakenOver)


def test_a_lock_that_cannot_be_renewed_in_time_is_lost(
    deployed: str, session: boto3.Session, sandbox: Sandbox, quick_renewal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bulkexec.control.LOCK_SECONDS", 11.0)
    holder = Holder(session)
    sandbox.control.faults.add("error", service="dynamodb", operation="UpdateItem", code="AccessDeniedException")
    with Background(holder.keeper.keep, holder.keeper.failed):
        wait_for(lambda: bool(holder.lost))
    assert holder.held_until(sandbox) > time.time(), "before anybody else can take it"
    assert "could not be renewed" in holder.lost[0].message


def test_a_thread_that_dies_of_something_else_is_a_lost_lock_too(deployed: str, session: boto3.Session) -> None:
    holder = Holder(session)

    def broken(ended: threading.Event) -> None:
        raise ZeroDivisionError("what nobody thought of")

    with Background(broken, holder.keeper.failed):
        wait_for(lambda: bool(holder.lost))
    assert "what nobody thought of" in holder.lost[0].why


def test_progress_is_logged_again_after_an_error(control: ControlTable, deployed: str, sandbox: Sandbox) -> None:
    lines: list[str] = []
    sandbox.control.faults.add("error", service="dynamodb", operation="Query", code="AccessDeniedException", count=2)
    log = ProgressLog(lambda: f"progress {control.progress('nobody')[1]}", lines.append, 0.1)
    with Background(log.keep, log.failed):
        wait_for(lambda: len(lines) >= 4)
    assert ["cannot be read" in line for line in lines[:3]] == [True, True, False]


def test_a_glue_run_whose_table_is_taken_stops_and_says_so(
    runtime: GlueRuntime, session: boto3.Session, job_id: str, control: ControlTable, tables: Any, items: Any
) -> None:
    table = tables.make(items(6000, 100))
    plan = plan_for(session, table, write_rate=20)
    run = runtime.submit(plan, job_id)
    wait_for(lambda: len(tables.keys(table)) < 6000)
    control.unlock(plan.work.scope.table.arn, job_id, 1)
    control.lock(plan.work.scope.table.arn, "thief", 1)
    report, _ = follow(runtime, plan, run)
    assert report.status == "failed"
    assert "job thief is changing this table" in report.error[0]
    assert report.counts.processed == 6000 - len(tables.keys(table))
    with pytest.raises(errors.TableLocked, match="thief"):
        control.lock(plan.work.scope.table.arn, "other", 1)
