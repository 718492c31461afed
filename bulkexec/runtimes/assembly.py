"""Puts a plan, a session and a store together into a `Run`, and a run's records into a `Report`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

import boto3

from bulkexec import errors
from bulkexec.accounts import target_session
from bulkexec.budgets import TableBudgets
from bulkexec.command import Command, restore
from bulkexec.control import ControlTable
from bulkexec.describe import user_errors
from bulkexec.engine import IN_FLIGHT
from bulkexec.keyed import page_source
from bulkexec.model import Counts, Failure, Scope, SegmentRecord, Table, Work
from bulkexec.phases import PhaseReader
from bulkexec.plan import Plan
from bulkexec.rate import Limiter
from bulkexec.reader import PageSource
from bulkexec.report import Status
from bulkexec.run import FAILURES_KEPT, Cap, Checkpoints, Hope, Lines, Run, Spills
from bulkexec.runtimes.rates import RunBudgets
from bulkexec.s3 import Location, Objects, Spill
from bulkexec.wire import HttpWire, Refusals, Retrying
from bulkexec.writer import Writer

THREADS = 4
"""Segments walked at the same time by one process: several to hide latency, few to keep memory to some pages."""


@dataclass(frozen=True)
class Places:
    """Where a run's files go: its rows, and by name ("skipped", "failed", "conflicts") its lists. None: nowhere.

    `run_number` keeps a stale worker's files apart from a later run's.
    """

    rows: Location | None = None
    lists: "Callable[[str, SegmentRecord], Lines | None]" = lambda name, record: None
    run_number: int = 1


@dataclass(frozen=True)
class Given:
    """What a caller in this process gives a run beside its plan.

    `command` stands for one that cannot be made of the plan's arguments, `source` gives pages from elsewhere, and of
    failures and conflicts the report has `failures_kept` each.
    """

    command: Command | None = None
    source: Callable[[Retrying], PageSource] | None = None
    failures_kept: int = FAILURES_KEPT
    threads: int = THREADS


NOTHING_GIVEN = Given()


def assemble(
    plan: Plan,
    session: boto3.Session,
    checkpoints: Checkpoints,
    cap: Cap,
    stop: Callable[[], bool],
    budgets: RunBudgets,
    places: Places = Places(),
    given: Given = NOTHING_GIVEN,
) -> Run:
    """A run ready to walk segments. Connections are opened on first use."""
    threads = given.threads
    work, sequential = plan.work, plan.options.strategy == "sequential"
    table, target = work.scope.table, work.target
    calls = _calls(session, table, threads)
    objects = Objects(session, table.region)
    writer, there, calls_there = Writer(calls, work, sequential=sequential), None, calls
    command = given.command or restore(plan.command, plan.arguments)
    if target is not None:
        calls_there = _calls(target_session(session, plan.options), target, threads)
        there = Writer(calls_there, Work(Scope(target)), sequential=sequential), budgets.target
    return Run(
        plan=plan,
        command=command,
        reader=given.source(calls) if given.source is not None else _reader(calls, calls_there, work, command, objects),
        writer=writer,
        read_budget=budgets.read,
        write_budget=budgets.write,
        target=there,
        hope=Hope(plan.options.max_failures),
        failures_kept=given.failures_kept,
        checkpoints=checkpoints,
        cap=cap,
        stop=stop,
        spills=lambda record: _spills(objects, places, record),
        threads=threads,
    )


def _calls(session: boto3.Session, table: Table, threads: int) -> Retrying:
    wire = HttpWire(session, table.region, threads + IN_FLIGHT)
    return Retrying(wire, Refusals(table.name, table.region))


def _reader(calls: Retrying, calls_there: Retrying, work: Work, command: Command, objects: Objects) -> PageSource:
    if work.phases:
        return PhaseReader(calls, calls_there, work, command.makes)
    return page_source(calls, work, lambda: objects)


def _spills(objects: Objects, places: Places, record: SegmentRecord) -> Spills:
    rows = places.rows
    return Spills(
        None if rows is None else Spill(objects, rows, record.number, len(record.files), places.run_number),
        places.lists("skipped", record),
        places.lists("failed", record),
        places.lists("conflicts", record),
    )


def s3_lists(objects: Objects, folder: Location, run_number: int) -> Callable[[str, SegmentRecord], Lines]:
    """Lists of keys below a job's folder in S3."""

    def lines(name: str, record: SegmentRecord) -> Lines:
        # Listed keys are not in the record, so a continued segment starts a new series.
        return Spill(objects, folder / name, record.number, record.counts.scanned, run_number)

    return lines


def results_place(plan: Plan) -> Location | None:
    """The folder of data files for the rows of this plan."""
    return Location.parse(plan.options.results) / "data" if plan.options.results else None


def total(records: Iterable[SegmentRecord]) -> Counts:
    """The sum over segment records."""
    counts = Counts()
    for record in records:
        counts += record.counts
    return counts


def first_failures(records: Iterable[SegmentRecord], limit: int = FAILURES_KEPT) -> tuple[Failure, ...]:
    """The first failures by segment; all of them are in the job's lists."""
    return tuple(islice((failure for record in records for failure in record.failures), limit))


def first_conflicts(records: Iterable[SegmentRecord], limit: int = FAILURES_KEPT) -> tuple[Failure, ...]:
    """The first conflicts by segment; all of them are in the job's lists."""
    return tuple(islice((conflict for record in records for conflict in record.conflicts), limit))


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
    options = run.plan.options
    limited: list[tuple[str, float | None, Limiter | TableBudgets]] = [
        ("read", options.read_rate, run.read_budget),
        ("write", options.write_rate, run.write_budget),
    ]
    if run.target is not None:
        limited.append(("write to the target", options.target_write_rate, run.target[1]))
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
