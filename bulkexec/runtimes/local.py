"""The in-process runtime: threads, no control table, a cursor that carries everything.

A run started from the command line also keeps its checkpoints in a file, so that `bulkexec resume JOB` works after the
death of the process. As with the control table, at most one checkpoint interval of each open segment is done again.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import boto3
import msgspec

from bulkexec import errors
from bulkexec.cost_cap import CostCap
from bulkexec.cursor import Cursor
from bulkexec.describe import user_errors
from bulkexec.engine import run_segments
from bulkexec.model import Counts, DataFile, SegmentRecord
from bulkexec.plan import Plan
from bulkexec.report import Report, Status
from bulkexec.run import FAILURES_KEPT, Lines, Run, local_cap
from bulkexec.runtimes.assembly import (
    NOTHING_GIVEN,
    Given,
    MemoryCheckpoints,
    Places,
    assemble,
    error_lines,
    first_conflicts,
    first_failures,
    rate_notes,
    results_place,
    status_of,
    total,
)
from bulkexec.runtimes.file_lock import FileLock
from bulkexec.runtimes.live_rates import LiveRates
from bulkexec.runtimes.rates import local_budgets
from bulkexec.s3 import Location, Objects, write_manifest
from bulkexec.segments import order_of_visit

LIST_ROWS = 10_000
"""Keys of a list that wait in memory for the next checkpoint."""


@dataclass(frozen=True)
class JobFile:
    """What the file of a local job holds. `seconds` is the working time of earlier runs.

    `after_token` says that it began where a resume token pointed, so its counts leave out what ran before that.
    """

    id: str
    plan: Plan
    started: float
    seconds: float = 0.0
    records: tuple[SegmentRecord, ...] = ()
    after_token: bool = False


def state_directory() -> Path:
    """Where local jobs are kept: $BULKEXEC_STATE_DIR, else the XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(os.environ.get("BULKEXEC_STATE_DIR") or Path(base) / "bulkexec") / "jobs"


def lists_folder(job_id: str) -> Path:
    """Where a local job keeps its lists of skipped, failed and conflicting keys."""
    return state_directory() / f"{job_id}.lists"


class _FileLines:
    """One segment's part of a list, appended to a file of its own at each checkpoint. See `run.Lines`."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, list[bytes]()

    def add(self, rows: Iterable[bytes]) -> None:
        """See `run.Lines`."""
        self._rows += rows

    @property
    def full(self) -> bool:
        """See `run.Lines`."""
        return len(self._rows) >= LIST_ROWS

    def close_file(self) -> tuple[DataFile, ...]:
        """See `run.Lines`. These files are in no manifest."""
        if self._rows:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as stream:
                    stream.writelines(row + b"\n" for row in self._rows)
            except OSError as error:
                raise errors.StateUnwritable(
                    f"the list {self._path} cannot be written: {error.strerror}",
                    state="the job stopped; what came after its last checkpoint is done again by a resume",
                ) from error
            self._rows = []
        return ()


def keep_report(report: Report) -> None:
    """Put a report beside the lists it speaks of, where there are any."""
    folder = lists_folder(report.job_id)
    if folder.is_dir():
        (folder / "report.json").write_bytes(report.to_json())


def file_lists(job_id: str) -> Callable[[str, SegmentRecord], Lines]:
    """A local job's lists: a folder for each, a file for each segment that has something to list."""
    return lambda name, record: _FileLines(lists_folder(job_id) / name / f"{record.number:07d}.json")


def _no_lists(name: str, record: SegmentRecord) -> None:
    return None


def rates_file(job_id: str) -> Path:
    """Where `bulkexec rate` leaves new rates for a running local job."""
    return state_directory() / f"{job_id}.rates"


def read_job(job_id: str) -> JobFile | None:
    """A local job's file, None when there is none. Raises `errors.UnknownJob` when it cannot be read."""
    path = state_directory() / f"{job_id}.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobFile)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise errors.UnknownJob(
            f"the file of job {job_id} cannot be read: {error}", why=f"it is {path}", fix="start the command anew"
        ) from error


def require_state_directory() -> None:
    """Raises `errors.BadArgument` where jobs cannot be kept, before anything starts."""
    directory = state_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise errors.BadArgument(
            f"the state directory {directory} cannot be written: {error.strerror}",
            fix="set BULKEXEC_STATE_DIR to a directory that can",
            state="nothing written",
        ) from error


@contextmanager
def hold_job(job_id: str) -> Iterator[None]:
    """While entered, no other process of this machine runs the job. Raises `errors.JobRunning` when one does."""
    lock = FileLock(state_directory() / f"{job_id}.lock")
    holder = lock.acquire(str(os.getpid()))
    if holder is not None:
        raise errors.JobRunning(
            f"job {job_id} is running as process {holder or 'of unknown number'}", fix="wait for its end, or stop it"
        )
    try:
        for left_over in state_directory().glob(f"{job_id}.*.writing"):
            left_over.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def is_known(job_id: str) -> bool:
    """Whether it is, or was, a job of this machine."""
    return bool(job_id) and (state_directory() / f"{job_id}.json").is_file()


def is_running(job_id: str) -> bool:
    """Whether a process of this machine runs the job."""
    lock = FileLock(state_directory() / f"{job_id}.lock")
    if lock.acquire(str(os.getpid())) is not None:
        return True
    lock.release()
    return False


class FileCheckpoints(MemoryCheckpoints):
    """Records in memory, written to the job's file at most once an interval and at the end."""

    def __init__(self, job: JobFile) -> None:
        super().__init__(job.records)
        self._job = job
        self._path = state_directory() / f"{job.id}.json"
        self._lock = threading.RLock()
        self._began, self._written, self._write_seconds = time.monotonic(), 0.0, 0.0

    def save(self, record: SegmentRecord) -> None:
        """See `engine.Checkpoints`. Writing takes at most a tenth of the time, however many segments there are."""
        super().save(record)
        with self._lock:
            if time.monotonic() - self._written >= 10 * self._write_seconds:
                self.write(time.monotonic() - self._began)

    def write(self, seconds: float) -> None:
        """Put the file in place in one step; `seconds` is the working time of this run so far.

        Raises `errors.StateUnwritable`; the file is then as it was.
        """
        with self._lock:
            begin = time.monotonic()
            job = replace(self._job, records=tuple(self.all()), seconds=self._job.seconds + seconds)
            self._put(msgspec.json.encode(job))
            self._written = time.monotonic()
            self._write_seconds = self._written - begin

    def _put(self, data: bytes) -> None:
        scratch = self._path.with_suffix(f".{os.getpid()}.writing")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_bytes(data)
            scratch.replace(self._path)
        except OSError as error:
            raise errors.StateUnwritable(
                f"the file of job {self._job.id} cannot be written: {error.strerror}",
                why=f"it is {self._path}",
                state="the job stopped; what came after its last checkpoint is done again by a resume",
            ) from error


class Totals:
    """What this call acknowledged so far, for the progress line. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self.counts = threading.Lock(), Counts()
        self.paused: Callable[[], bool] = lambda: False

    def add(self, counts: Counts) -> None:
        """Add one page's counts."""
        with self._lock:
            self.counts += counts


class Watch:
    """While entered, tells `show` twice a second how the run goes."""

    def __init__(
        self, totals: Totals, checkpoints: MemoryCheckpoints, show: Callable[[str, Counts, int], None]
    ) -> None:
        self._totals, self._checkpoints, self._show = totals, checkpoints, show
        self._ended = threading.Event()
        self._before = total(checkpoints.all())
        self._thread = threading.Thread(target=self._loop, name="progress", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._ended.wait(0.5):
            self._tell()

    def _tell(self) -> None:
        done = sum(record.done for record in self._checkpoints.all())
        self._show("PAUSED" if self._totals.paused() else "RUNNING", self._before + self._totals.counts, done)


def run_local(
    plan: Plan,
    session: boto3.Session,
    job_id: str,
    checkpoints: MemoryCheckpoints,
    stop: Callable[[], bool],
    totals: Totals,
    broken: Callable[[], errors.BulkexecError | None] = lambda: None,
    given: Given = NOTHING_GIVEN,
) -> Report:
    """Run a plan in this process. The report is cumulative over the given checkpoints; errors are in it, not raised.

    `broken` gives the error for which `stop` said to stop, if it was one. An error that is neither one of ours nor
    botocore's is a bug and is raised.
    """
    report, failure = run_in_process(plan, session, job_id, checkpoints, stop, totals, broken, given)
    return replace(report, error=error_lines(failure) if failure is not None else ())


def run_in_process(
    plan: Plan,
    session: boto3.Session,
    job_id: str,
    checkpoints: MemoryCheckpoints,
    stop: Callable[[], bool],
    totals: Totals,
    broken: Callable[[], errors.BulkexecError | None] = lambda: None,
    given: Given = NOTHING_GIVEN,
) -> tuple[Report, errors.BulkexecError | None]:
    """As `run_local`, with the error that ended the run as it is. Without a job's id nothing is kept here."""
    started, wall = time.monotonic(), time.time()
    cap, cost = local_cap(plan.options.max_items), CostCap(plan.options.cost_limit)
    budgets = local_budgets(plan)
    places = Places(results_place(plan), file_lists(job_id) if job_id else _no_lists)
    stopped = stop if plan.options.cost_limit is None else lambda: stop() or cost.reached
    run = assemble(plan, session, checkpoints, cap, stopped, budgets.budgets, places, given)
    run.progress, totals.paused = _to_both(totals, cost), budgets.paused
    failure: errors.BulkexecError | None = None
    try:
        rates = LiveRates(rates_file(job_id), budgets) if job_id else nullcontext()
        with user_errors(plan.command), rates:
            _walk(run, plan, checkpoints, given.threads, started)
            if plan.options.results and _finished(plan, checkpoints):
                _manifest(plan, session, checkpoints, wall)
    except errors.BulkexecError as error:
        failure = error
    finished = _finished(plan, checkpoints)
    failure = failure or (None if finished else broken())
    status = "failed" if failure is not None else status_of(plan, finished, cap.reached or cost.reached)
    report = _report(plan, job_id, checkpoints, status, given.failures_kept)
    seconds = time.monotonic() - started
    return replace(report, preview=tuple(run.preview.rows), notes=rate_notes(run), duration_seconds=seconds), failure


def _to_both(totals: Totals, cost: CostCap) -> Callable[[Counts], None]:
    def add(counts: Counts) -> None:
        totals.add(counts)
        cost.add(counts)

    return add


def _walk(run: Run, plan: Plan, checkpoints: MemoryCheckpoints, threads: int, started: float) -> None:
    try:
        run_segments(run, _open_segments(plan, checkpoints, threads))
    finally:
        if isinstance(checkpoints, FileCheckpoints):
            checkpoints.write(time.monotonic() - started)


def _finished(plan: Plan, checkpoints: MemoryCheckpoints) -> bool:
    records = checkpoints.all()
    return len(records) == plan.segments and all(record.done for record in records)


def stopped_report(plan: Plan, job_id: str, checkpoints: MemoryCheckpoints) -> Report:
    """Of a run that was stopped without a drain: what was acknowledged and checkpointed."""
    return _report(plan, job_id, checkpoints, "cancelled")


def _open_segments(plan: Plan, checkpoints: MemoryCheckpoints, threads: int) -> list[int]:
    """Segments still to walk, begun ones first, so that few are open at any time."""
    known = {record.number: record for record in checkpoints.all()}
    if plan.work.phases:
        return [number for number in range(plan.segments) if number not in known or not known[number].done]
    visits = order_of_visit(plan.segments, min(threads, plan.segments), seed=plan.segments)
    rounds = [number for step in zip_longest(*visits) for number in step if number is not None]
    begun = [number for number in rounds if number in known and not known[number].done]
    return begun + [number for number in rounds if number not in known]


def _report(
    plan: Plan, job_id: str, checkpoints: MemoryCheckpoints, status: Status, failures_kept: int = FAILURES_KEPT
) -> Report:
    records = checkpoints.all()
    whole = status in ("finished", "dry-run")
    cursor = None if whole else Cursor.of(plan.fingerprint, plan.segments, records).encode()
    return Report(
        job_id=job_id,
        command=plan.command,
        table=plan.work.scope.table.name,
        status=status,
        counts=total(records),
        duration_seconds=0.0,
        cursor=cursor,
        results=plan.options.results or None,
        folder=str(lists_folder(job_id)) if job_id and lists_folder(job_id).is_dir() else None,
        failures=first_failures(records, failures_kept),
        conflict_keys=first_conflicts(records, failures_kept),
    )


def _manifest(plan: Plan, session: boto3.Session, checkpoints: MemoryCheckpoints, started: float) -> None:
    files = [file for record in checkpoints.all() for file in record.files]
    table = plan.work.scope.table
    write_manifest(Objects(session, table.region), Location.parse(plan.options.results), table, files, started)
