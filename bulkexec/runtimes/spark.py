"""The pipeline inside a Glue job. The only module that knows pyspark.

A few long tasks each walk many segments: a task costs tens of milliseconds of CPU to start, and one process keeps its
connections. Items stay in Python; what comes back to the JVM is one row of counts a segment.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import msgspec

from bulkexec import errors
from bulkexec.control import LOCK_RENEWAL_SECONDS, ControlTable
from bulkexec.cursor import Cursor
from bulkexec.describe import recovery, require_recovery
from bulkexec.engine import PREVIEW_ROWS, Cap, run_segments
from bulkexec.model import Plan, Report, SegmentRecord, Status
from bulkexec.runtimes.assembly import (
    THREADS,
    Places,
    TableCheckpoints,
    assemble,
    error_lines,
    first_failures,
    results_place,
    status_of,
    total,
)
from bulkexec.s3 import Location, Objects, first_rows, write_manifest
from bulkexec.segments import order_of_visit

LOG_SECONDS = 5.0
CANCEL_POLL_SECONDS = 1.0
COLUMNS = "task long, segment long, scanned long, matched long, processed long, done boolean, error string"


@dataclass(frozen=True)
class JobReference:
    """All that a task needs to find its work; plain strings and numbers."""

    job_id: str
    run_number: int
    bucket: str
    control_table: str
    region: str

    @property
    def folder(self) -> Location:
        """Plan, report and lists of this job."""
        return Location(self.bucket, f"jobs/{self.job_id}")


def run_job(spark: Any, job: JobReference) -> bool:
    """Run the job's plan on Spark and write report.json. False when the run failed; the report says how."""
    session = boto3.Session(region_name=job.region)
    objects = Objects(session, job.region)
    control = ControlTable(session, job.region, job.control_table)
    data = objects.get(job.folder / "plan.json")
    if data is None:
        raise errors.UnknownJob(f"there is no plan of job {job.job_id} in {job.bucket}")
    driver = _Driver(Plan.from_json(data), job, session, control, objects)
    report = driver.run(spark)
    for name in (f"runs/{job.run_number}/report.json", "report.json"):
        objects.put(job.folder / name, report.to_json())
    return report.status != "failed"


class _Driver:
    """One run of a job, seen from the driver."""

    def __init__(
        self, plan: Plan, job: JobReference, session: boto3.Session, control: ControlTable, objects: Objects
    ) -> None:
        self._plan, self._job, self._session = plan, job, session
        self._control, self._objects = control, objects
        self._started = time.time()
        self._before_seconds = control.seconds(job.job_id)

    @property
    def _writes(self) -> bool:
        return self._plan.mutates and not self._plan.options.dry_run

    def run(self, spark: Any) -> Report:
        table = self._plan.work.scope.table
        log(f"{self._plan.command} {table.name}: job {self._job.job_id} run {self._job.run_number} begins")
        failure: errors.BulkexecError | None = None
        try:
            if self._writes:
                require_recovery(table, recovery(self._session, table)[0])
                self._control.lock(table.arn, self._job.job_id)
            with _Background(self._heartbeat):
                self._walk(spark)
        except errors.BulkexecError as error:
            failure = error
            for line in error.lines():
                log(line)
        finally:
            self._control.set_seconds(self._job.job_id, self._seconds)
            if self._writes:
                self._control.unlock(table.arn, self._job.job_id)
        return self._report(failure)

    @property
    def _seconds(self) -> float:
        return self._before_seconds + time.time() - self._started

    def _walk(self, spark: Any) -> None:
        done = {record.number for record in self._control.segments(self._job.job_id) if record.done}
        still_open = self._plan.segments - len(done)
        if not still_open:
            return
        tasks = max(1, min(spark.sparkContext.defaultParallelism, still_open))
        log(f"{still_open} of {self._plan.segments} segments to walk in {tasks} tasks of {THREADS} threads")
        walk = _task(self._job, tasks)
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(walk, COLUMNS).collect()
        failed = [row["error"] for row in rows if row["error"]]
        if failed:
            raise _TaskFailed.from_json(failed[0])

    def _heartbeat(self, ended: threading.Event) -> None:
        """Renew the lock, and say how it goes."""
        renewed = time.monotonic()
        while not ended.wait(LOG_SECONDS):
            counts, done = self._control.progress(self._job.job_id)
            log(
                f"{done}/{self._plan.segments} segments, scanned {counts.scanned:,}, matched {counts.matched:,}, "
                f"processed {counts.processed:,}, skipped {counts.skipped:,}, failed {counts.failed:,}"
            )
            if self._writes and time.monotonic() - renewed > LOCK_RENEWAL_SECONDS:
                self._control.lock(self._plan.work.scope.table.arn, self._job.job_id)
                renewed = time.monotonic()

    def _report(self, failure: errors.BulkexecError | None) -> Report:
        plan, records = self._plan, list(self._control.segments(self._job.job_id))
        finished = len(records) == plan.segments and all(record.done for record in records)
        reason = self._control.cancelled(self._job.job_id)
        status: Status = "failed" if failure is not None else status_of(plan, finished, reason.startswith(CAP_REACHED))
        files = [file for record in records for file in record.files]
        if plan.options.results and status == "finished":
            place = Location.parse(plan.options.results)
            write_manifest(self._objects, place, plan.work.scope.table, files, self._started)
        log(f"{plan.command} {plan.work.scope.table.name}: {status}")
        bucket = Location.parse(plan.options.results).bucket if plan.options.results else ""
        return Report(
            job_id=self._job.job_id,
            command=plan.command,
            table=plan.work.scope.table.name,
            status=status,
            counts=total(records),
            duration_seconds=self._seconds,
            cursor=None if finished else Cursor(plan.fingerprint, plan.segments, job=self._job.job_id).encode(),
            results=plan.options.results or None,
            folder=str(self._job.folder),
            failures=first_failures(records),
            preview=first_rows(self._objects, bucket, files, PREVIEW_ROWS),
            error=error_lines(failure) if failure is not None else (),
        )


CAP_REACHED = "cap"


class _Background:
    """While entered, a thread runs `work(ended)`."""

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=work, args=(self._ended,), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class _TaskFailed(errors.BulkexecError):
    """An error of a task, carried to the driver as JSON with its own code and exit code."""

    @staticmethod
    def from_json(text: str) -> errors.BulkexecError:
        kind, message, why, fix, state = msgspec.json.decode(text, type=tuple[str, str, str, str, str])
        cls: type[errors.BulkexecError] = getattr(errors, kind)
        return cls(message, why=why, fix=fix, state=state)

    @staticmethod
    def to_json(error: errors.BulkexecError) -> str:
        parts = (type(error).__name__, error.message, error.why, error.fix, error.state)
        return msgspec.json.encode(parts).decode()


def _task(job: JobReference, tasks: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark ships: walk the segments of each task number it is given."""

    def walk(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch["id"].to_pylist():
                yield _record_batch(number, *walk_task(job, tasks, number))

    return walk


def walk_task(job: JobReference, tasks: int, number: int) -> tuple[list[SegmentRecord], str]:
    """Walk every open segment of one task; gives their records and an error as JSON, or an empty string."""
    session = boto3.Session(region_name=job.region)
    control = ControlTable(session, job.region, job.control_table)
    data = Objects(session, job.region).get(job.folder / "plan.json")
    assert data is not None
    plan = Plan.from_json(data)
    checkpoints = TableCheckpoints(control, job.job_id)
    cancelled = _CancelPoll(control, job)
    places = Places(results_place(plan), job.folder / "skipped", job.folder / "failed")
    cap = Cap(plan.options.max_items, lambda items: _count_to_cap(control, job, plan, items))
    run = assemble(plan, session, checkpoints, cap, cancelled, places)
    mine = order_of_visit(plan.segments, tasks, seed=plan.segments)[number]
    try:
        return run_segments(run, mine), ""
    except errors.BulkexecError as error:
        # No other task can get further than this one; they stop at their page boundary.
        control.cancel(job.job_id, f"task {number} failed: {error.message}")
        return [], _TaskFailed.to_json(error)


def _count_to_cap(control: ControlTable, job: JobReference, plan: Plan, items: int) -> int:
    handled = control.add_handled(job.job_id, job.run_number, items)
    if plan.options.max_items is not None and handled >= plan.options.max_items:
        control.cancel(job.job_id, f"{CAP_REACHED} of {plan.options.max_items} items reached")
    return handled


class _CancelPoll:
    """Asks the control table at most once a second, from whichever thread comes first."""

    def __init__(self, control: ControlTable, job: JobReference) -> None:
        self._control, self._job = control, job
        self._lock, self._asked, self._reason = threading.Lock(), 0.0, ""

    def __call__(self) -> bool:
        with self._lock:
            if not self._reason and time.monotonic() - self._asked > CANCEL_POLL_SECONDS:
                self._reason = self._control.stop_reason(self._job.job_id, self._job.run_number)
                self._asked = time.monotonic()
            return bool(self._reason)


def _record_batch(task: int, records: list[SegmentRecord], error: str) -> Any:
    import pyarrow

    rows = [
        {
            "task": task,
            "segment": record.number,
            "scanned": record.counts.scanned,
            "matched": record.counts.matched,
            "processed": record.counts.processed,
            "done": record.done,
            "error": None,
        }
        for record in records
    ]
    if error:
        rows.append(
            dict.fromkeys(("segment", "scanned", "matched", "processed", "done")) | {"task": task, "error": error}
        )
    kinds = {"done": pyarrow.bool_(), "error": pyarrow.string()}
    names = ("task", "segment", "scanned", "matched", "processed", "done", "error")
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.int64())) for name in names])
    return pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def log(line: str) -> None:
    """One line of the job's own log, which people follow through Live Tail."""
    stamp = time.strftime("%H:%M:%SZ", time.gmtime())
    sys.stdout.write(f"{stamp} {line}\n")
    sys.stdout.flush()
