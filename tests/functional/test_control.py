"""The control table on the sandbox: checkpoints that add up, cancellation, one mutating job a table."""

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from bulkexec import errors
from bulkexec.control import START_LOCK_SECONDS, ControlTable, Job, TakenOver, create_table
from bulkexec.model import Counts, DataFile, Failure, SegmentRecord
from bulkexec.sandbox.process import Sandbox, environment

NAME = "bulkexec-control-test"
ARN = "arn:aws:dynamodb:us-east-1:111122223333:table/"


@pytest.fixture(scope="module")
def session(sandbox: Sandbox) -> Iterator[boto3.Session]:
    """A session that talks to the sandbox, as the command line's does."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(sandbox.running).items():
            patch.setenv(name, value)
        yield boto3.Session(region_name="us-east-1")


@pytest.fixture(scope="module")
def control(session: boto3.Session, sandbox: Sandbox) -> ControlTable:
    create_table(sandbox.client("dynamodb"), NAME)
    return ControlTable(session, "us-east-1", NAME)


@pytest.fixture(scope="module")
def later(session: boto3.Session, control: ControlTable) -> ControlTable:
    """The control table as run 2 of a job sees it."""
    return ControlTable(session, "us-east-1", NAME, run_number=2)


@pytest.fixture
def job(control: ControlTable) -> Job:
    made = Job(uuid.uuid4().hex[:8], "s3://ops/plan.json", ARN + uuid.uuid4().hex, "delete", started=1.0, run_number=1)
    control.put_job(made)
    return made


# The table itself


def test_it_is_made_once_on_demand_and_with_expiry(control: ControlTable, sandbox: Sandbox) -> None:
    client = sandbox.client("dynamodb")
    create_table(client, NAME)
    assert client.describe_table(TableName=NAME)["Table"]["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    expiry = client.describe_time_to_live(TableName=NAME)["TimeToLiveDescription"]
    assert (expiry["TimeToLiveStatus"], expiry["AttributeName"]) == ("ENABLED", "expires_at")


def test_whether_it_is_there(control: ControlTable, session: boto3.Session) -> None:
    assert control.exists()
    assert not ControlTable(session, "us-east-1", "no-such-table").exists()


def test_every_record_expires(control: ControlTable, job: Job, sandbox: Sandbox) -> None:
    control.save_segment(job.id, SegmentRecord(0))
    control.add_handled(job.id, 1, 1)
    control.lock(job.table_arn, job.id)
    client = sandbox.client("dynamodb")
    pages = client.get_paginator("scan").paginate(TableName=NAME)
    mine = [item for page in pages for item in page["Items"] if job.id in str(item)]
    assert len(mine) == 4
    for item in mine:
        assert 29 < (int(item["expires_at"]["N"]) - time.time()) / 86_400 <= 30


# Job and cancellation


def test_a_jobs_record_is_read_back(control: ControlTable, job: Job) -> None:
    assert control.job(job.id) == job
    control.set_run(job.id, 1, "jr_1")
    control.set_seconds(job.id, 12.3456)
    assert control.job(job.id) == replace(job, run_id="jr_1", seconds=12.346)
    assert control.seconds(job.id) == 12.346


def test_an_unknown_job_is_none(control: ControlTable) -> None:
    assert control.job("nobody") is None
    assert control.cancelled("nobody") == ""
    assert control.seconds("nobody") == 0.0


def test_a_cancel_is_seen_by_every_worker_and_can_be_taken_back(control: ControlTable, job: Job) -> None:
    assert control.stop_reason(job.id, 1) == ""
    control.cancel(job.id, "the client was interrupted")
    assert control.stop_reason(job.id, 1) == control.cancelled(job.id) == "the client was interrupted"
    control.cancel(job.id, "")
    assert control.stop_reason(job.id, 1) == ""


def test_a_later_run_takes_over(control: ControlTable, job: Job) -> None:
    control.put_job(replace(job, run_number=2))
    assert "later run" in control.stop_reason(job.id, 1)
    assert control.stop_reason(job.id, 2) == ""
    with pytest.raises(TakenOver):
        control.set_run(job.id, 1, "jr_late")
    found = control.job(job.id)
    assert found is not None
    assert found.run_id == ""


def test_workers_of_a_job_without_a_record_stop(control: ControlTable) -> None:
    assert control.stop_reason("nobody", 1)


@pytest.mark.parametrize("touch", [lambda c, j: c.cancel(j, "why"), lambda c, j: c.set_seconds(j, 1.0)])
def test_a_record_that_is_gone_does_not_come_back_as_a_stub(control: ControlTable, touch: Any) -> None:
    # case C028, in our own table
    gone = uuid.uuid4().hex
    touch(control, gone)
    assert control.job(gone) is None


def test_two_glue_runs_of_one_number_cannot_both_work(control: ControlTable, job: Job) -> None:
    control.set_run(job.id, 1, "jr_1")
    control.set_run(job.id, 1, "jr_1")
    with pytest.raises(TakenOver):
        control.set_run(job.id, 1, "jr_2")
    assert control.stop_reason(job.id, 1, "jr_1") == ""
    assert "later run" in control.stop_reason(job.id, 1, "jr_2")


def test_one_of_two_clients_starts_the_next_run(control: ControlTable, job: Job) -> None:
    control.put_job(replace(job, run_number=2), after=1)
    with pytest.raises(TakenOver) as caught:
        control.put_job(replace(job, run_number=2), after=1)
    assert "another client has just" in caught.value.message
    assert f"bulkexec attach {job.id}" in caught.value.fix
    assert caught.value.exit_code == 2
    with pytest.raises(TakenOver):
        control.put_job(job, after=0)
    control.put_job(replace(job, id=job.id + "-new"), after=0)


def test_a_worker_of_an_earlier_run_cannot_cancel_a_later_one(control: ControlTable, job: Job) -> None:
    control.put_job(replace(job, run_number=2))
    control.cancel(job.id, "task 3 failed", run_number=1)
    assert control.cancelled(job.id) == ""
    control.cancel(job.id, "task 3 failed", run_number=2)
    assert control.cancelled(job.id) == "task 3 failed"


def test_handled_items_are_counted_over_all_workers_and_by_run(control: ControlTable, job: Job) -> None:
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(control.add_handled(job.id, 1, 3) for _ in range(10)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(3, 121, 3))
    assert control.add_handled(job.id, 2, 5) == 5


# Segments


def test_a_checkpoint_is_read_back_as_it_was_saved(control: ControlTable, job: Job) -> None:
    record = SegmentRecord(
        999_999,
        Counts(scanned=9, matched=3, read_units=0.5),
        '{"pk":{"B":"AP8="},"ä":{"N":"1E+2"}}',
        False,
        (DataFile("data/0.json.gz", 3, "md5", "etag"),),
        (Failure({"pk": {"S": "\u2028"}}, "ValidationError", "why"),),
    )
    assert control.segment(job.id, 999_999) is None
    control.save_segment(job.id, record)
    assert control.segment(job.id, 999_999) == record


def test_a_segment_saved_again_counts_once(control: ControlTable, job: Job) -> None:
    for scanned in (5, 9):
        control.save_segment(job.id, SegmentRecord(0, Counts(scanned=scanned), done=scanned == 9))
    control.save_segment(job.id, SegmentRecord(1, Counts(scanned=1)))
    assert control.progress(job.id) == (Counts(scanned=10), 1)


def test_a_worker_of_an_earlier_run_cannot_overwrite_a_checkpoint(
    control: ControlTable, later: ControlTable, job: Job
) -> None:
    control.save_segment(job.id, SegmentRecord(0, Counts(scanned=1)))
    later.save_segment(job.id, SegmentRecord(0, Counts(scanned=2), done=True))
    with pytest.raises(TakenOver):
        control.save_segment(job.id, SegmentRecord(0, Counts(scanned=1)))
    assert control.segment(job.id, 0) == SegmentRecord(0, Counts(scanned=2), done=True)
    later.save_segment(job.id, SegmentRecord(0, Counts(scanned=3), done=True))


def test_progress_adds_up_over_more_than_a_megabyte_of_records(control: ControlTable, job: Job) -> None:
    # case C047, in our own table
    failures = tuple(Failure({"pk": {"S": "k" * 2000}}, "ValidationError") for _ in range(20))
    records = [
        SegmentRecord(n, Counts(scanned=n, failed=20, write_units=0.5), done=n % 2 == 0, failures=failures)
        for n in range(60)
    ]
    for record in records:
        control.save_segment(job.id, record)
    assert control.progress(job.id) == (Counts(scanned=sum(range(60)), failed=1200, write_units=30.0), 30)
    assert list(control.segments(job.id)) == records, "by number"


def test_jobs_do_not_see_each_other(control: ControlTable, job: Job) -> None:
    control.save_segment(job.id + "0", SegmentRecord(0, Counts(scanned=5)))
    assert control.progress(job.id) == (Counts(), 0)


def data_files(count: int) -> tuple[DataFile, ...]:
    place = "results/orders/AWSDynamoDB/01700000000000-abcd1234/data"
    return tuple(
        DataFile(f"{place}/0000000-{number:04d}.json.gz", 1000, "1B2M2Y8AsgTpgAmY7PhCfg==", "d" * 32)
        for number in range(count)
    )


def test_a_segment_with_many_files_can_be_checkpointed(control: ControlTable, later: ControlTable, job: Job) -> None:
    many, few = SegmentRecord(0, files=data_files(2500)), SegmentRecord(1, files=data_files(2))
    for record in (many, few, SegmentRecord(2)):
        control.save_segment(job.id, record)
    assert control.segment(job.id, 0) == many
    assert list(later.segments(job.id)) == [many, few, SegmentRecord(2)], "as another process reads them"
    assert control.progress(job.id) == (Counts(), 0)


def test_each_file_is_written_once(control: ControlTable, later: ControlTable, job: Job, sandbox: Sandbox) -> None:
    files = data_files(30)
    control.save_segment(job.id, SegmentRecord(0, files=files[:29]))
    assert later.segment(job.id, 0) is not None
    for table in (control, later):
        before = sandbox.control.requests("PutItem")
        table.save_segment(job.id, SegmentRecord(0, files=files))
        assert sandbox.control.requests("PutItem") == before + 2
    assert control.segment(job.id, 0) == SegmentRecord(0, files=files)


def test_a_file_whose_checkpoint_was_not_written_is_not_listed(control: ControlTable, job: Job, sandbox: Any) -> None:
    files = data_files(3)
    control.save_segment(job.id, SegmentRecord(0, files=files[:2]))
    client, key = sandbox.client("dynamodb"), {"pk": {"S": f"job#{job.id}"}, "sk": {"S": "file#0000000#0000001"}}
    stray = client.get_item(TableName=NAME, Key=key)["Item"] | {"sk": {"S": "file#0000000#0000002"}}
    client.put_item(TableName=NAME, Item=stray)
    assert list(control.segments(job.id)) == [SegmentRecord(0, files=files[:2])]
    assert control.segment(job.id, 0) == SegmentRecord(0, files=files[:2])


# The lock


def test_a_table_is_one_jobs_until_it_is_given_free(control: ControlTable, job: Job) -> None:
    control.lock(job.table_arn, job.id)
    control.lock(job.table_arn, job.id)
    with pytest.raises(errors.TableLocked) as caught:
        control.lock(job.table_arn, "other")
    assert job.id in caught.value.message
    assert f"bulkexec attach {job.id}" in caught.value.fix
    control.lock(job.table_arn + "-another", "other")
    control.unlock(job.table_arn, job.id)
    control.lock(job.table_arn, "other")


def test_one_of_many_takes_the_lock(control: ControlTable, job: Job) -> None:
    outcomes: list[str] = []

    def take(name: str) -> None:
        try:
            control.lock(job.table_arn, name)
            outcomes.append(name)
        except errors.TableLocked:
            outcomes.append("")

    threads = [threading.Thread(target=take, args=(f"job{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 8
    assert len([name for name in outcomes if name]) == 1


def test_the_lock_of_a_dead_job_is_taken_over(control: ControlTable, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("bulkexec.control.LOCK_SECONDS", 0.3)
        control.lock(job.table_arn, job.id)
    with pytest.raises(errors.TableLocked):
        control.lock(job.table_arn, "heir")
    time.sleep(0.35)
    control.lock(job.table_arn, "heir")
    with pytest.raises(errors.TableLocked, match="heir"):
        control.lock(job.table_arn, job.id)


def test_a_renewed_lock_is_held_longer(control: ControlTable, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("bulkexec.control.LOCK_SECONDS", 0.3)
        control.lock(job.table_arn, job.id)
    control.lock(job.table_arn, job.id)
    time.sleep(0.35)
    with pytest.raises(errors.TableLocked):
        control.lock(job.table_arn, "other")


def test_only_the_holder_gives_a_lock_free(control: ControlTable, job: Job) -> None:
    control.lock(job.table_arn, job.id)
    control.unlock(job.table_arn, "other")
    with pytest.raises(errors.TableLocked):
        control.lock(job.table_arn, "other")
    control.unlock(job.table_arn, job.id)
    control.unlock(job.table_arn, job.id)


def test_a_later_run_takes_over_the_lock_of_its_job(control: ControlTable, job: Job) -> None:
    control.lock(job.table_arn, job.id, 1)
    control.lock(job.table_arn, job.id, 2)
    control.unlock(job.table_arn, job.id, 1)
    with pytest.raises(errors.TableLocked):
        control.lock(job.table_arn, "other", 1)
    with pytest.raises(TakenOver):
        control.lock(job.table_arn, job.id, 1)
    control.unlock(job.table_arn, job.id, 2)
    control.lock(job.table_arn, "other", 1)


def test_the_first_lease_outlasts_a_start(control: ControlTable, job: Job) -> None:
    assert 590 < control.lock(job.table_arn, job.id, 1, START_LOCK_SECONDS) - time.time() <= 600
    assert 50 < control.lock(job.table_arn, job.id, 1) - time.time() <= 60
