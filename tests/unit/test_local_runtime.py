"""A local job's file is whole at every moment, however its process ends."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bulkexec import errors
from bulkexec.model import Counts, DataFile, Failure, KeyAttribute, Scope, SegmentRecord, Table, Work
from bulkexec.plan import Plan
from bulkexec.runtimes.file_lock import FileLock
from bulkexec.runtimes.local import (
    FileCheckpoints,
    JobFile,
    Totals,
    Watch,
    hold_job,
    read_job,
    require_state_directory,
    state_directory,
)

TABLE = Table("orders", "arn", "eu-west-1", "1", (KeyAttribute("pk", "S"),), "ACTIVE", 1, 1, "on-demand")
JOB = JobFile("7f3a91c2", Plan("count", {}, Work(Scope(TABLE)), 8, False), 1.7e9, 10.0)
RECORD = SegmentRecord(
    3,
    Counts(scanned=5, read_units=0.5),
    '{"pk":{"S":"ä"}}',
    files=(DataFile("data/0.gz", 1, "md5", "etag"),),
    failures=(Failure({"pk": {"B": "AP8="}}, "ValidationError"),),
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BULKEXEC_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "jobs"


def test_a_job_is_read_back_as_it_was_written() -> None:
    checkpoints = FileCheckpoints(JOB)
    checkpoints.save(RECORD)
    checkpoints.write(2.5)
    assert read_job(JOB.id) == JobFile(JOB.id, JOB.plan, JOB.started, 12.5, (RECORD,))


def test_a_continued_job_begins_with_its_records() -> None:
    first = FileCheckpoints(JOB)
    first.save(RECORD)
    first.write(1.0)
    job = read_job(JOB.id)
    assert job is not None
    again = FileCheckpoints(job)
    assert again.load(3) == RECORD
    assert again.load(0) is None
    again.save(SegmentRecord(0, done=True))
    again.write(1.0)
    kept = read_job(JOB.id)
    assert kept is not None
    assert kept.records == (SegmentRecord(0, done=True), RECORD)
    assert kept.seconds == 12.0


def test_an_unknown_job_is_none() -> None:
    assert read_job("nobody") is None


def test_writing_leaves_nothing_but_the_file(state: Path) -> None:
    FileCheckpoints(JOB).write(0.0)
    assert [path.name for path in state.iterdir()] == ["7f3a91c2.json"]


def test_a_write_that_fails_leaves_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = FileCheckpoints(JOB)
    checkpoints.write(0.0)

    def full(path: Path, data: bytes) -> int:
        path.open("wb").close()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(errors.StateUnwritable, match="No space"):
            checkpoints.write(1.0)
    assert read_job(JOB.id) == JOB


WRITER = """
import sys
from bulkexec.model import *
from bulkexec.plan import *
from bulkexec.runtimes.local import FileCheckpoints, JobFile
table = Table("orders", "arn", "eu-west-1", "1", (KeyAttribute("pk", "S"),), "ACTIVE", 1, 1, "on-demand")
checkpoints = FileCheckpoints(JobFile("killed", Plan("count", {}, Work(Scope(table)), 8, False), 0.0))
for number in range(500):
    checkpoints.save(SegmentRecord(number, last_evaluated_key="x" * 2000))
checkpoints.write(0.0)
print("writing", flush=True)
while True:
    checkpoints.write(1.0)
"""


@pytest.mark.parametrize("moment_seconds", [0.0, 0.003, 0.01, 0.02])
def test_a_process_killed_while_it_writes_leaves_a_whole_file(moment_seconds: float) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        time.sleep(moment_seconds)
        process.kill()
    job = read_job("killed")
    assert job is not None
    assert len(job.records) == 500


def test_the_last_write_and_a_checkpoint_at_the_same_time_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, replace = FileCheckpoints(JOB), Path.replace
    half_way, written, failures = threading.Event(), threading.Event(), []  # type: ignore[var-annotated]

    def slow_replace(path: Path, target: Path) -> Path:
        if threading.current_thread() is worker:
            half_way.set()
            written.wait(0.5)
        return replace(path, target)

    def work() -> None:
        try:
            checkpoints.save(RECORD)
        except OSError as error:
            failures.append(error)

    worker = threading.Thread(target=work)
    monkeypatch.setattr(Path, "replace", slow_replace)
    worker.start()
    assert half_way.wait(5)
    checkpoints.write(1.0)
    written.set()
    worker.join()
    assert failures == []


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"BULKEXEC_STATE_DIR": "/a"}, "/a/jobs"),
        ({"XDG_STATE_HOME": "/x", "BULKEXEC_STATE_DIR": ""}, "/x/bulkexec/jobs"),
        ({"XDG_STATE_HOME": "", "BULKEXEC_STATE_DIR": "", "HOME": "/h"}, "/h/.local/state/bulkexec/jobs"),
    ],
)
def test_where_jobs_are_kept(variables: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert state_directory() == Path(place)


def test_progress_is_what_was_before_and_what_this_call_did() -> None:
    checkpoints, totals = FileCheckpoints(JobFile(JOB.id, JOB.plan, 0.0, records=(RECORD,))), Totals()
    told: list[tuple[str, Counts, int]] = []
    heard = threading.Event()

    def show(state: str, counts: Counts, done: int) -> None:
        told.append((state, counts, done))
        heard.set()

    watch = Watch(totals, checkpoints, show)
    totals.add(Counts(scanned=2))
    checkpoints.save(SegmentRecord(4, Counts(scanned=2), done=True))
    with watch:
        assert heard.wait(5)
    assert told[0] == ("RUNNING", Counts(scanned=7, read_units=0.5), 1)


def test_totals_of_many_threads_lose_nothing() -> None:
    totals = Totals()
    threads = [threading.Thread(target=lambda: [totals.add(Counts(scanned=1)) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals.counts == Counts(scanned=4000)


# One process a job

HOLDER = """
import sys, time
from bulkexec.runtimes.local import hold_job
with hold_job("7f3a91c2"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_job_is_held_by_one_process_and_free_when_that_dies(state: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with (
            pytest.raises(errors.JobRunning, match=f"job 7f3a91c2 is running as process {process.pid}"),
            hold_job(JOB.id),
        ):
            pass
        process.kill()
    with hold_job(JOB.id):
        pass
    assert list(state.iterdir()) == []


def test_jobs_of_different_ids_do_not_meet() -> None:
    with hold_job("7f3a91c2"), hold_job("7f3a91c3"):
        pass


def test_what_a_killed_process_left_half_written_is_cleared_away(state: Path) -> None:
    state.mkdir(parents=True)
    for name in ("7f3a91c2.1.writing", "0000000a.1.writing"):
        (state / name).touch()
    with hold_job(JOB.id):
        assert sorted(path.name for path in state.iterdir()) == ["0000000a.1.writing", "7f3a91c2.lock"]


def test_of_many_that_want_a_lock_one_has_it_at_any_time(tmp_path: Path) -> None:
    inside, most, taken = [0], [0], [0]

    def work() -> None:
        for _ in range(200):
            lock = FileLock(tmp_path / "lock")
            if lock.acquire("x") is None:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                taken[0] += 1
                inside[0] -= 1
                lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert taken[0] >= 20


def test_a_state_directory_that_cannot_be_made_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BULKEXEC_STATE_DIR", "/proc/nowhere")
    with pytest.raises(errors.BadArgument, match="/proc/nowhere/jobs"):
        require_state_directory()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"id":"7f3a91c2"}'])
def test_a_damaged_file_is_one_sentence(content: bytes, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "7f3a91c2.json").write_bytes(content)
    with pytest.raises(errors.UnknownJob, match="cannot be read") as caught:
        read_job(JOB.id)
    assert "\n" not in caught.value.message
