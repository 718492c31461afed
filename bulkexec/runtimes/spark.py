"""The pipeline inside a Glue job. The only module that knows pyspark.

A few long tasks each walk many segments: a task costs tens of milliseconds of CPU to start, and one process keeps its
connections. Items stay in Python; what comes back to the JVM is one row of counts a segment.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import boto3
import msgspec

from bulkexec import errors, layout
from bulkexec.accounts import session_for
from bulkexec.control import TAKEN_OVER, ControlTable, TakenOver
from bulkexec.cost_cap import CostCap
from bulkexec.cursor import Cursor
from bulkexec.describe import recovery, require_recovery, require_same_table, user_errors
from bulkexec.engine import run_segments
from bulkexec.model import DataFile, SegmentRecord
from bulkexec.plan import Plan
from bulkexec.report import Report, Status
from bulkexec.run import PREVIEW_ROWS, Cap, too_many_failures
from bulkexec.runtimes.assembly import (
    THREADS,
    Places,
    TableCheckpoints,
    assemble,
    error_lines,
    first_conflicts,
    first_failures,
    results_place,
    s3_lists,
    status_of,
    total,
)
from bulkexec.runtimes.heartbeat import RENEWAL_CONFIG, Background, LockKeeper, ProgressLog, StopPoll
from bulkexec.runtimes.patience import AWS_ERRORS
from bulkexec.runtimes.rates import fleet_budgets, open_fleet
from bulkexec.runtimes.versions import versions
from bulkexec.s3 import Location, Objects, first_rows, write_manifest
from bulkexec.segments import order_of_visit

LOG_SECONDS = 5.0
CAP_REACHED = "cap"
COLUMNS = "task long, segment long, scanned long, matched long, processed long, done boolean, error string"


@dataclass(frozen=True)
class JobReference:
    """All that a task needs to find its work; plain strings and numbers. `run_id` is Glue's, empty outside of Glue."""

    job_id: str
    run_number: int
    bucket: str
    control_table: str
    region: str
    run_id: str = ""

    @property
    def folder(self) -> Location:
        """Plan, report and lists of this job."""
        return Location(self.bucket, f"{layout.JOBS}/{self.job_id}")


def run_job(spark: Any, job: JobReference) -> bool:
    """Run the job's plan on Spark and write report.json. False when the run failed; the report says how.

    True, with nothing touched, when another Glue run was started for the same run of the job and came first.
    """
    try:
        return _run_job(spark, job)
    except errors.BulkexecError as error:
        # Without a report: Glue's error message and the log are all that is left of it.
        for line in error.lines():
            log(line)
        raise


def _run_job(spark: Any, job: JobReference) -> bool:
    session = boto3.Session(region_name=job.region)
    objects = Objects(session, job.region)
    control = ControlTable(session, job.region, job.control_table, job.run_number)
    if not _claimed(control, job):
        return True
    with user_errors(f"read the plan of job {job.job_id} from {job.folder}"):
        data = objects.get(job.folder / "plan.json")
    if data is None:
        raise errors.UnknownJob(f"there is no plan of job {job.job_id} in {job.bucket}")
    driver = _Driver(Plan.from_json(data), job, session, control, objects)
    report = driver.run(spark)
    with user_errors(f"write the report to {job.folder}"):
        objects.put(job.folder / f"runs/{job.run_number}/report.json", report.to_json())
        if not driver.taken_over:
            objects.put(job.folder / "report.json", report.to_json())
    return report.status != "failed"


def _claimed(control: ControlTable, job: JobReference) -> bool:
    """Whether this Glue run is the one that works on the job: after a lost answer there may be two."""
    if not job.run_id:
        return True
    try:
        with user_errors(f"claim job {job.job_id} in {job.control_table}"):
            control.set_run(job.job_id, job.run_number, job.run_id)
    except TakenOver as error:
        log(f"{error.message}; this one ({job.run_id}) ends and has touched nothing")
        return False
    return True


class _Driver:
    """One run of a job, seen from the driver."""

    def __init__(
        self, plan: Plan, job: JobReference, session: boto3.Session, control: ControlTable, objects: Objects
    ) -> None:
        self._plan, self._job, self._session = plan, job, session
        self._control, self._objects = control, objects
        self._started = time.time()
        self._lost: errors.BulkexecError | None = None
        self._spark: Any = None
        self._cost = CostCap(plan.options.cost_limit)
        self.taken_over = False
        with user_errors(f"read job {job.job_id} from {job.control_table}"):
            self._before_seconds = control.seconds(job.job_id)

    @property
    def _writes(self) -> bool:
        return self._plan.mutates and not self._plan.options.dry_run

    def run(self, spark: Any) -> Report:
        table = self._plan.work.scope.table
        log(f"{self._plan.command} {table.name}: job {self._job.job_id} run {self._job.run_number} begins")
        self._spark, failure = spark, None
        try:
            with user_errors(f"run job {self._job.job_id} with {self._job.control_table}"):
                self._work()
        except errors.BulkexecError as error:
            failure = error
            for line in error.lines():
                log(line)
        finally:
            left = self._leave()
        return self._report(failure or left)

    def _work(self) -> None:
        with ExitStack() as beside:
            require_same_table(self._session, self._plan.work.scope.table)
            for table in self._plan.work.changed if self._writes else ():
                session = session_for(self._session, table, self._plan.work, self._plan.options)
                require_recovery(require_same_table(session, table), recovery(session, table)[0])
                beside.enter_context(self._lock(table.arn))
            self._cost.set(self._control.progress(self._job.job_id)[0])
            progress = ProgressLog(self._progress, log, LOG_SECONDS)
            beside.enter_context(Background(progress.keep, progress.failed))
            self._walk()
        if self._lost is not None:
            raise self._lost

    def _lock(self, arn: str) -> Background:
        control = ControlTable(
            self._session, self._job.region, self._job.control_table, self._job.run_number, RENEWAL_CONFIG
        )
        keeper = LockKeeper(control, arn, (self._job.job_id, self._job.run_number), self._lose, log)
        keeper.take()
        return Background(keeper.keep, keeper.failed)

    def _lose(self, error: errors.BulkexecError) -> None:
        """The table is not ours any more, or too much has failed: every worker has to stop."""
        self._lost = error
        log(f"stopping: {error.message}")
        try:
            self._control.cancel(self._job.job_id, error.message, self._job.run_number)
        except AWS_ERRORS as unreachable:
            # Workers that do not see the mark must not go on; their last pages are done again by a resume.
            log(f"the workers cannot be told ({unreachable}); their tasks are ended")
            self._spark.sparkContext.cancelAllJobs()

    def _leave(self) -> errors.BulkexecError | None:
        """Keep the working time and give the table free; gives an error instead of raising it over another one."""
        job = self._job
        try:
            with user_errors(f"leave job {job.job_id} in {job.control_table}"):
                self._control.set_seconds(job.job_id, self._seconds, job.run_number)
                for table in self._plan.work.changed if self._writes else ():
                    self._control.unlock(table.arn, job.job_id, job.run_number)
        except errors.BulkexecError as error:
            log(error.message)
            return error
        return None

    @property
    def _seconds(self) -> float:
        return self._before_seconds + time.time() - self._started

    def _walk(self) -> None:
        done = {record.number for record in self._control.segments(self._job.job_id) if record.done}
        still_open = self._plan.segments - len(done)
        if not still_open:
            return
        tasks = max(1, min(self._spark.sparkContext.defaultParallelism, still_open))
        log(f"job {self._job.job_id} runs on {versions(self._spark.version)}")
        log(f"{still_open} of {self._plan.segments} segments to walk in {tasks} tasks of {THREADS} threads")
        open_fleet(self._session, self._plan, self._job.control_table, self._job.job_id)
        walk = _task(self._job, tasks)
        try:
            rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(walk, COLUMNS).collect()
        except Exception as error:
            if self._lost is not None:  # the tasks were ended for that
                raise self._lost from error
            raise
        failed = [row["error"] for row in rows if row["error"]]
        if failed and self._lost is None:
            raise _TaskFailed.from_json(failed[0])

    def _progress(self) -> str:
        counts, done = self._control.progress(self._job.job_id)
        allowed = self._plan.options.max_failures
        if allowed is not None and counts.failed > allowed and self._lost is None:
            self._lose(too_many_failures(counts.failed, allowed, None))
        if self._cost.set(counts):
            self._control.cancel(self._job.job_id, f"{CAP_REACHED} of {self._cost.words} reached", self._job.run_number)
        return (
            f"{done}/{self._plan.segments} segments, scanned {counts.scanned:,}, matched {counts.matched:,}, "
            f"processed {counts.processed:,}, skipped {counts.skipped:,}, failed {counts.failed:,}"
        )

    def _report(self, failure: errors.BulkexecError | None) -> Report:
        plan, job = self._plan, self._job
        with user_errors(f"read the checkpoints of job {job.job_id} from {job.control_table}"):
            records = list(self._control.segments(job.job_id))
            reason = self._control.stop_reason(job.job_id, job.run_number, job.run_id)
        self.taken_over = reason == TAKEN_OVER
        if self.taken_over:
            failure = failure or TakenOver(f"{TAKEN_OVER} job {job.job_id}", fix=f"bulkexec attach {job.job_id}")
        finished = len(records) == plan.segments and all(record.done for record in records)
        files = [file for record in records for file in record.files]
        if failure is None and finished:
            failure = self._finish_results(files)
        status: Status = "failed" if failure is not None else status_of(plan, finished, reason.startswith(CAP_REACHED))
        log(f"{plan.command} {plan.work.scope.table.name}: {status}")
        preview, notes = self._preview(files)
        return Report(
            job_id=job.job_id,
            command=plan.command,
            table=plan.work.scope.table.name,
            status=status,
            counts=total(records),
            duration_seconds=self._seconds,
            cursor=None if finished else Cursor(plan.fingerprint, plan.segments, job=job.job_id).encode(),
            results=plan.options.results or None,
            folder=str(job.folder),
            failures=first_failures(records),
            conflict_keys=first_conflicts(records),
            preview=preview,
            error=error_lines(failure) if failure is not None else (),
            notes=notes,
        )

    def _finish_results(self, files: list[DataFile]) -> errors.BulkexecError | None:
        """Write the manifest of the rows; gives the error if that cannot be."""
        if not self._plan.options.results:
            return None
        place = Location.parse(self._plan.options.results)
        try:
            with user_errors(f"write the manifest to {place}"):
                write_manifest(self._objects, place, self._plan.work.scope.table, files, self._started)
        except errors.BulkexecError as error:
            for line in error.lines():
                log(line)
            return error
        return None

    def _preview(self, files: list[DataFile]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(first rows, notes). Rows that cannot be read back are no reason to fail."""
        if not self._plan.options.results:
            return (), ()
        place = Location.parse(self._plan.options.results)
        try:
            with user_errors(f"read rows back from {place}"):
                return first_rows(self._objects, place.bucket, files, PREVIEW_ROWS), ()
        except errors.BulkexecError as error:
            return (), (f"no preview: {error.message}",)


class _TaskFailed(errors.BulkexecError):
    """An error of a task, carried to the driver as JSON with its own code and exit code."""

    @staticmethod
    def from_json(text: str) -> errors.BulkexecError:
        kind, message, why, fix, state = msgspec.json.decode(text, type=tuple[str, str, str, str, str])
        cls: type[errors.BulkexecError] = getattr(errors, kind)
        return cls(message, why=why, fix=fix, state=state)

    @staticmethod
    def to_json(error: errors.BulkexecError) -> str:
        kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
        parts = (kind.__name__, error.message, error.why, error.fix, error.state)
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
    control = ControlTable(session, job.region, job.control_table, job.run_number)
    try:
        return _walk_segments(session, control, job, tasks, number), ""
    except TakenOver as error:
        log(f"task {number}: {error.message}")
        return [], ""  # the driver finds out by itself
    except errors.BulkexecError as error:
        _stop_others(control, job, f"task {number} failed: {error.message}")
        return [], _TaskFailed.to_json(error)


def _walk_segments(
    session: boto3.Session, control: ControlTable, job: JobReference, tasks: int, number: int
) -> list[SegmentRecord]:
    with user_errors(f"read the plan of job {job.job_id} from {job.folder}"):
        data = Objects(session, job.region).get(job.folder / "plan.json")
    if data is None:
        raise errors.UnknownJob(f"there is no plan of job {job.job_id} in {job.bucket}")
    plan = Plan.from_json(data)
    poll = StopPoll(control, job.job_id, job.run_number, job.run_id)
    lists = s3_lists(Objects(session, job.region), job.folder, job.run_number)
    places = Places(results_place(plan), lists, job.run_number)
    workers = tasks * THREADS
    cap = Cap(plan.options.max_items, lambda items: _count_to_cap(control, job, plan, items), workers=workers)
    budgets = fleet_budgets(session, plan, job.control_table, job.job_id, tasks)
    run = assemble(plan, session, TableCheckpoints(control, job.job_id), cap, poll, budgets, places)
    mine = order_of_visit(plan.segments, tasks, seed=plan.segments)[number]
    with user_errors(f"keep checkpoints in {job.control_table} and files in S3"):
        records = run_segments(run, mine)
    if poll.error is not None:
        raise poll.error
    return records


def _stop_others(control: ControlTable, job: JobReference, reason: str) -> None:
    """No other task can get further than this one; they stop at their page boundary."""
    try:
        control.cancel(job.job_id, reason, job.run_number)
    except AWS_ERRORS as error:
        log(f"{reason}; other tasks cannot be told: {error}")


def _count_to_cap(control: ControlTable, job: JobReference, plan: Plan, items: int) -> int:
    handled = control.add_handled(job.job_id, job.run_number, items)
    if plan.options.max_items is not None and handled >= plan.options.max_items:
        control.cancel(job.job_id, f"{CAP_REACHED} of {plan.options.max_items} items reached", job.run_number)
    return handled


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
