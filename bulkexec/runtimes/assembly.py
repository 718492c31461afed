"""Puts a plan, a session and a store together into a `Run`, and a run's records into a `Report`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import boto3

from bulkexec import errors
from bulkexec.command import restore
from bulkexec.control import ControlTable
from bulkexec.describe import user_errors
from bulkexec.engine import FAILURES_KEPT, IN_FLIGHT, Cap, Checkpoints, Run, Spills
from bulkexec.model import Counts, Failure, Plan, SegmentRecord, Status
from bulkexec.reader import Reader
from bulkexec.runtimes.rates import RunBudgets
from bulkexec.s3 import Location, Objects, Spill
from bulkexec.wire import HttpWire, Refusals, Retrying
from bulkexec.writer import Writer

THREADS = 4
"""Segments walked at the same time by one process: several to hide latency, few to keep memory to some pages."""


@dataclass(frozen=True)
class Places:
    """Where a run's files go. None: nowhere. `run_number` keeps a stale worker's files apart from a later run's."""

    rows: Location | None = None
    skipped: Location | None = None
    failed: Location | None = None
    run_number: int = 1


def assemble(
    plan: Plan,
    session: boto3.Session,
    checkpoints: Checkpoints,
    cap: Cap,
    stop: Callable[[], bool],
    budgets: RunBudgets,
    places: Places = Places(),
    threads: int = THREADS,
) -> Run:
    """A run ready to walk segments. Connections are opened on first use."""
    table = plan.work.scope.table
    calls = Retrying(HttpWire(session, table.region, threads + IN_FLIGHT), Refusals(table.name, table.region))
    objects = Objects(session, table.region)
    return Run(
        plan=plan,
        command=restore(plan.command, plan.arguments),
        reader=Reader(calls, plan.work),
        writer=Writer(calls, plan.work, sequential=plan.options.strategy == "sequential"),
        read_budget=budgets.read,
        write_budget=budgets.write,
        checkpoints=checkpoints,
        cap=cap,
        stop=stop,
        spills=lambda record: _spills(objects, places, record),
        threads=threads,
    )


def _spills(objects: Objects, places: Places, record: SegmentRecord) -> Spills:
    def spill(place: Location | None, next_file: int) -> Spill | None:
        return None if place is None else Spill(objects, place, record.number, next_file, places.run_number)

    # Keys of skipped and failed items are not listed in the record, so a continued segment starts a new series.
    series = record.counts.scanned
    return Spills(spill(places.rows, len(record.files)), spill(places.skipped, series), spill(places.failed, series))


def results_place(plan: Plan) -> Location | None:
    """The folder of data files for the rows of this plan."""
    return Location.parse(plan.options.results) / "data" if plan.options.results else None


def total(records: Iterable[SegmentRecord]) -> Counts:
    """The sum over segment records."""
    counts = Counts()
    for record in records:
        counts += record.counts
    return counts


def first_failures(records: Iterable[SegmentRecord]) -> tuple[Failure, ...]:
    """The first failures by segment; all of them are in S3."""
    kept: list[Failure] = []
    for record in records:
        kept += record.failures[: FAILURES_KEPT - len(kept)]
        if len(kept) >= FAILURES_KEPT:
            break
    return tuple(kept)


def status_of(plan: Plan, finished: bool, capped: bool) -> Status:
    """How a run without an error ended."""
    if finished:
        return "dry-run" if plan.options.dry_run else "finished"
    return "capped" if capped else "cancelled"


def error_lines(error: BaseException) -> tuple[str, ...]:
    """An error as lines for the report; only ours are for users."""
    return tuple(error.lines()) if isinstance(error, errors.BulkexecError) else ()


def rate_notes(run: Run) -> tuple[str, ...]:
    """What was spent under each limit of ours, as the report shows it."""
    limited = (
        ("read", run.plan.options.read_rate, run.read_budget),
        ("write", run.plan.options.write_rate, run.write_budget),
    )
    return tuple(f"{name}: {budget.statistics()}" for name, rate, budget in limited if rate is not None)


class MemoryCheckpoints:
    """Records in memory, for one call that carries everything in its cursor. Thread-safe."""

    def __init__(self, records: Iterable[SegmentRecord] = ()) -> None:
        self._records = {record.number: record for record in records}

    def load(self, number: int) -> SegmentRecord | None:
        """See `engine.Checkpoints`."""
        return self._records.get(number)

    def save(self, record: SegmentRecord) -> None:
        """See `engine.Checkpoints`."""
        self._records[record.number] = record

    def all(self) -> list[SegmentRecord]:
        """Every record, by segment."""
        return [record for _, record in sorted(self._records.items())]


class TableCheckpoints:
    """Records in the control table: they survive everything, and anyone can watch them."""

    def __init__(self, control: ControlTable, job_id: str) -> None:
        self._control, self._job_id = control, job_id

    def load(self, number: int) -> SegmentRecord | None:
        """See `engine.Checkpoints`."""
        with user_errors(f"read the checkpoint of segment {number}"):
            return self._control.segment(self._job_id, number)

    def save(self, record: SegmentRecord) -> None:
        """See `engine.Checkpoints`."""
        with user_errors(f"save the checkpoint of segment {record.number}"):
            self._control.save_segment(self._job_id, record)
