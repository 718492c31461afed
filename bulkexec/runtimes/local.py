"""The in-process runtime: threads, no control table, a cursor that carries everything.

A run started from the command line also keeps its checkpoints in a file, so that `bulkexec resume JOB` works after the
death of the process. As with the control table, at most one checkpoint interval of each open segment is done again.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import boto3
import msgspec

from bulkexec import errors
from bulkexec.cursor import Cursor
from bulkexec.engine import Cap, Run, run_segments
from bulkexec.model import Counts, Plan, Report, SegmentRecord
from bulkexec.run import local_cap
from bulkexec.runtimes.assembly import (
    THREADS,
    MemoryCheckpoints,
    Places,
    assemble,
    error_lines,
    first_failures,
    rate_notes,
    results_place,
    status_of,
    total,
)
from bulkexec.s3 import Location, Objects, write_manifest
from bulkexec.segments import order_of_visit


@dataclass(frozen=True)
class JobFile:
    """What the file of a local job holds. `seconds` is the working time of earlier runs."""

    id: str
    plan: Plan
    started: float
    seconds: float = 0.0
    records: tuple[SegmentRecord, ...] = ()


def state_directory() -> Path:
    """Where local jobs are kept: $BULKEXEC_STATE_DIR, else the XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(os.environ.get("BULKEXEC_STATE_DIR") or Path(base) / "bulkexec") / "jobs"


def read_job(job_id: str) -> JobFile | None:
    """A local job's file, None when there is none."""
    path = state_directory() / f"{job_id}.json"
    if not path.is_file():
        return None
    return msgspec.json.decode(path.read_bytes(), type=JobFile)


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
        """Put the file in place in one step; `seconds` is the working time of this run so far."""
        with self._lock:
            begin = time.monotonic()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            job = replace(self._job, records=tuple(self.all()), seconds=self._job.seconds + seconds)
            scratch = self._path.with_suffix(".writing")
            scratch.write_bytes(msgspec.json.encode(job))
            scratch.replace(self._path)
            self._written = time.monotonic()
            self._write_seconds = self._written - begin


class Totals:
    """What this call acknowledged so far, for the progress line. Thread-safe."""

    def __init__(self) -> None:
        self._lock, self.counts = threading.Lock(), Counts()

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
        self._show("RUNNING", self._before + self._totals.counts, done)


def run_local(
    plan: Plan,
    session: boto3.Session,
    job_id: str,
    checkpoints: MemoryCheckpoints,
    stop: Callable[[], bool],
    totals: Totals,
    threads: int = THREADS,
) -> Report:
    """Run a plan in this process. The report is cumulative over the given checkpoints; errors are in it, not raised.

    An error that is not one of ours is a bug and is raised.
    """
    started, wall = time.monotonic(), time.time()
    cap = local_cap(plan.options.max_items)
    run = assemble(plan, session, checkpoints, cap, stop, Places(rows=results_place(plan)), threads)
    run.progress = totals.add
    failure: errors.BulkexecError | None = None
    try:
        run_segments(run, _open_segments(plan, checkpoints, threads))
    except errors.BulkexecError as error:
        failure = error
    finally:
        if isinstance(checkpoints, FileCheckpoints):
            checkpoints.write(time.monotonic() - started)
    report = _report(plan, job_id, checkpoints, cap, failure, run)
    if report.results and report.status == "finished":
        _manifest(plan, session, checkpoints, wall)
    return replace(report, duration_seconds=time.monotonic() - started)


def _open_segments(plan: Plan, checkpoints: MemoryCheckpoints, threads: int) -> list[int]:
    """Segments still to walk, begun ones first, so that few are open at any time."""
    known = {record.number: record for record in checkpoints.all()}
    visits = order_of_visit(plan.segments, min(threads, plan.segments), seed=plan.segments)
    rounds = [number for step in zip_longest(*visits) for number in step if number is not None]
    begun = [number for number in rounds if number in known and not known[number].done]
    return begun + [number for number in rounds if number not in known]


def _report(
    plan: Plan,
    job_id: str,
    checkpoints: MemoryCheckpoints,
    cap: Cap,
    failure: errors.BulkexecError | None,
    run: Run,
) -> Report:
    records = checkpoints.all()
    finished = len(records) == plan.segments and all(record.done for record in records)
    status = "failed" if failure is not None else status_of(plan, finished, cap.reached)
    cursor = None if finished else Cursor.of(plan.fingerprint, plan.segments, records).encode()
    return Report(
        job_id=job_id,
        command=plan.command,
        table=plan.work.scope.table.name,
        status=status,
        counts=total(records),
        duration_seconds=0.0,
        cursor=cursor,
        results=plan.options.results or None,
        failures=first_failures(records),
        preview=tuple(run.preview.rows),
        error=error_lines(failure) if failure is not None else (),
        notes=rate_notes(run),
    )


def _manifest(plan: Plan, session: boto3.Session, checkpoints: MemoryCheckpoints, started: float) -> None:
    files = [file for record in checkpoints.all() for file in record.files]
    table = plan.work.scope.table
    write_manifest(Objects(session, table.region), Location.parse(plan.options.results), table, files, started)
