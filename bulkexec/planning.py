"""From a command and its options to a plan: facts, filter, checks, segments, estimate. Touches nothing."""

from dataclasses import dataclass, field, replace

import boto3

from bulkexec import errors, where
from bulkexec.accounts import session_for, target_session
from bulkexec.ceilings import TABLE, Ceilings, Load, ResolvedRate, fetch_ceilings, resolve_rate
from bulkexec.command import Change, Command, arguments_of, restore
from bulkexec.cost import Terms, estimate
from bulkexec.describe import describe, recovery, require_recovery, user_errors
from bulkexec.dollars import GlueShape, Prices
from bulkexec.extrapolate import Sample
from bulkexec.keyed import KeyList, key_lines, page_source, segments_for, survey
from bulkexec.model import Page, Segment, Table, Work
from bulkexec.plan import Estimate, Options, Plan
from bulkexec.pricing import fetch_prices
from bulkexec.reader import PageSource, Reader
from bulkexec.s3 import Location, Objects
from bulkexec.sample import look_at, read_whole, take_sample
from bulkexec.segments import total_segments
from bulkexec.selection import Filter, Selected, narrowed, select
from bulkexec.subtree import below_condition, node_condition
from bulkexec.volume import Kind
from bulkexec.wire import HttpWire, Refusals, Retrying

ROOM_BYTES = 256
"""What a write's condition says besides the filter: that the item is there, and is what was read."""
KINDS: dict[str, Kind] = {
    "delete": "delete",
    "delete-under": "delete",
    "edit": "update",
    "copy": "put",
    "copy-under": "put",
    "move": "move",
}
"""What a command writes for an item; of any other the most is taken, a put and a delete."""

TRIAL_ITEMS = 10
TRIAL_READ = 100
"""Items evaluated for a sample of those that match."""


@dataclass(frozen=True)
class AskedRates:
    """`--read-rate` and `--write-rate` as they were given: units a second, or a share ("50%"); None: the default."""

    read: str | None = None
    write: str | None = None


@dataclass(frozen=True)
class Planned:
    """A plan, what its tables can take, and what people should read beside the plan.

    `remarks` are on the filter; `limits` say which rates were chosen, by what, and what to know of them.
    `trial` is what would become of a sample; `sample` is one to estimate from. `slots` is how many threads walk, `keys`
    how many keys a list has, `target_prices` are those of the table that puts go to.
    """

    plan: Plan
    prices: Prices
    remarks: tuple[str, ...] = ()
    asked: AskedRates = field(default_factory=AskedRates)
    ceilings: Ceilings = field(default_factory=Ceilings)
    limits: tuple[tuple[str, str], ...] = ()
    target_ceilings: Ceilings | None = None
    trial: tuple[Change, ...] = ()
    sample: Sample | None = None
    slots: int = 4
    keys: int | None = None
    target_prices: Prices | None = None


@dataclass(frozen=True)
class Outline:
    """A command ready to run, how it will read and write, and what it selects."""

    command: Command
    work: Work
    selected: Selected


def make_outline(
    session: boto3.Session, command: Command, table_name: str, chosen: Filter, options: Options
) -> Outline:
    """What a command will do to which tables. Raises `errors.Refused` of every kind; writes nothing."""
    table = describe(session, table_name)
    selected = select(table, chosen)
    command = command.prepare()
    work = narrowed(command.plan(selected.scope), selected, chosen)
    if command.writes_to:
        work = replace(work, target=_target(target_session(session, options), command.writes_to, table))
    command.check(work)
    _require_room(work)
    if any(phase.of_target for phase in work.phases):
        _require_source(session, work)
    if command.mutates:
        work = _recoverable(session, work, options)
    return Outline(command, work, selected)


def _require_source(session: boto3.Session, work: Work) -> None:
    """Raises `errors.BadArgument` where the image of nothing is to be made: all of the destination would be deleted."""
    table, subtree = work.scope.table, work.phases[0].subtree
    calls = _calls(session, table)
    for condition in (node_condition(table, subtree), below_condition(table, subtree)):
        part = replace(work.in_phase(0), scope=replace(work.scope, key_condition=condition))
        if Reader(calls, part).page(Segment(0, 1), None, 1, lambda reasons: None, lambda: False).items:
            return
    raise errors.BadArgument(
        f"there is nothing at {subtree.prefix!r} of {table.name} or below it",
        why="an image of it would be the deletion of all that is at the destination",
        fix="check --partition and --under; to delete the destination, use delete-under",
        state="nothing written",
    )


def _require_room(work: Work) -> None:
    """Raises `errors.BadFilter` for a filter that no longer fits as a condition, beside that the item is there."""
    guard = work.scope.guard if work.guarded else None
    if guard is not None and len(guard.text.encode()) > where.MAX_EXPRESSION_BYTES - ROOM_BYTES:
        raise errors.BadFilter(
            f"the filter makes a condition of {len(guard.text.encode()):,} bytes; beside what else has to be said, "
            f"{where.MAX_EXPRESSION_BYTES - ROOM_BYTES:,} are left for it",
            fix="use fewer conditions, or run several filters one after the other",
        )


def make_plan(
    session: boto3.Session,
    command: Command,
    table_name: str,
    chosen: Filter,
    options: Options,
    slots: int,
    requested_segments: int | None = None,
    asked: AskedRates = AskedRates(),
) -> Planned:
    """Everything about a run before it starts. Raises `errors.Refused` of every kind; writes nothing."""
    check_options(options)
    outline = make_outline(session, command, table_name, chosen, options)
    command, work, selected = outline.command, outline.work, outline.selected
    table = selected.scope.table
    listed = key_list(session, table, chosen.keys) if chosen.keys else None
    keys = listed.keys if listed is not None else None
    work = replace(work, keys_sha256=listed.sha256) if listed is not None else work
    change = trial(session, command, work)
    if options.results:
        Objects(session, table.region).require_writable(Location.parse(options.results))
    segments = _segments(table, work, slots, requested_segments, keys)
    prices = fetch_prices(session, table.region, table.table_class)
    plan = Plan(command.name, arguments_of(command), work, segments, command.mutates, options, where=chosen.text)
    ceilings = fetch_ceilings(session, table)
    there = None if work.target is None else fetch_ceilings(target_session(session, options), work.target)
    planned = Planned(plan, prices, selected.remarks, asked, ceilings, target_ceilings=there, trial=change)
    planned = replace(planned, slots=slots, keys=keys, target_prices=_target_prices(session, work, options))
    limited(planned, None)  # a rate that is none is refused before anything else is asked or shown
    return planned


def sampled(session: boto3.Session, planned: Planned) -> Planned:
    """The same with a sample to estimate what is written from, where anything is and a sample can say something."""
    plan = planned.plan
    if not plan.mutates or plan.options.dry_run or plan.work.phases:
        return planned
    return replace(planned, sample=_sample(session, restore(plan.command, plan.arguments), plan, planned.keys))


def _target_prices(session: boto3.Session, work: Work, options: Options) -> Prices | None:
    """Prices where the table that puts go to has others."""
    source, target = work.scope.table, work.target
    if target is None or (target.region, target.table_class) == (source.region, source.table_class):
        return None
    return fetch_prices(target_session(session, options), target.region, target.table_class)


def _sample(session: boto3.Session, command: Command, plan: Plan, keys: int | None) -> Sample:
    work, table = plan.work, plan.work.scope.table
    calls = _calls(session, table)
    there = calls if work.target is None else _calls(target_session(session, plan.options), work.target)
    return take_sample(
        _source(session, calls, read_whole(work)), work, command, plan.segments, look_at(there, work.writes_to), keys
    )


def _source(session: boto3.Session, calls: Retrying, work: Work) -> PageSource:
    """Where pages come from, one after the other."""
    return page_source(calls, work, lambda: Objects(session, work.scope.table.region))


def _calls(session: boto3.Session, table: Table) -> Retrying:
    return Retrying(HttpWire(session, table.region, 1), Refusals(table.name, table.region))


def _segments(table: Table, work: Work, slots: int, requested: int | None, keys: int | None) -> int:
    if work.phases:
        return len(work.phases)
    if keys is not None:
        return segments_for(keys, requested)
    return total_segments(table.size_bytes, slots, requested, pinned=work.scope.pinned)


def key_list(session: boto3.Session, table: Table, keys: str) -> KeyList:
    """A list of keys, gone through once. Raises `errors.BadArgument` for what is none."""
    try:
        with user_errors(f"read {keys}"):
            return survey(keys, key_lines(keys, lambda: Objects(session, table.region)), table.keys)
    except errors.RequestRejected as error:  # no such bucket
        raise errors.BadArgument(error.message, why=error.why, fix="check --keys-from") from error


def _target(session: boto3.Session, name: str, source: Table) -> Table | None:
    """The table that puts go to; None when it is the one that is read, whatever it is called, or a replica of it."""
    target = describe(session, name)
    namesakes = (target.name, target.account) == (source.name, source.account)
    replica = namesakes and (target.region in source.replicas or source.region in target.replicas)
    return None if target.arn == source.arn or replica else target


def _recoverable(session: boto3.Session, work: Work, options: Options) -> Work:
    """The work with what is known of recovery. Raises `errors.RecoveryOff` for any table that would be changed."""
    known = {}
    for table in work.changed:
        on, since = recovery(session_for(session, table, work, options), table)
        if not options.dry_run:
            require_recovery(table, on)
        known[table.arn] = replace(table, recovery=on, recovery_from=since)
    source, target = work.scope.table, work.target
    scope = replace(work.scope, table=known.get(source.arn, source))
    return replace(work, scope=scope, target=None if target is None else known[target.arn])


def price(planned: Planned, glue: GlueShape | None, timeout_seconds: float | None = None) -> Planned:
    """The plan with its rates and with the estimate for where it runs."""
    planned = limited(planned, timeout_seconds)
    return replace(planned, plan=replace(planned.plan, estimate=_estimate(planned, glue, timeout_seconds)))


def _estimate(planned: Planned, glue: GlueShape | None, timeout_seconds: float | None = None) -> Estimate:
    plan, terms = planned.plan, _terms(planned, timeout_seconds)
    table = plan.work.scope.table
    return estimate(table, plan.work, plan.mutates, planned.prices, plan.segments, glue, plan.options, terms)


def _terms(planned: Planned, timeout_seconds: float | None) -> Terms:
    return Terms(
        kind=_kind(planned.plan),
        slots=planned.slots,
        keys=planned.keys,
        sample=planned.sample,
        timeout_seconds=timeout_seconds,
        target_prices=planned.target_prices,
    )


def _kind(plan: Plan) -> Kind:
    if plan.command == "edit" and plan.arguments.get("allow_key_change"):
        return "move"
    return KINDS.get(plan.command, "move")


def limited(planned: Planned, timeout_seconds: float | None) -> Planned:
    """The plan with a rate for reads and one for writes, never unlimited. Raises `errors.BadArgument`."""
    plan, asked, facts = planned.plan, planned.asked, planned.ceilings
    table, units = plan.work.scope.table, _estimate(planned, None)
    known = units.reads is not None
    load = Load(units.read_units if known else None, timeout_seconds)
    read = resolve_rate(asked.read, "read", table, facts, load, _read_index(plan.work))
    options, limits = replace(plan.options, read_rate=read.units_per_second), _rows("Read rate", read)
    if plan.mutates and not plan.options.dry_run:
        load = Load(units.write_units[1] if known else None, timeout_seconds)
        if plan.work.scope.table in plan.work.changed:
            write = resolve_rate(asked.write, "write", table, facts, load)
            options = replace(options, write_rate=write.units_per_second, index_rates=dict(write.indexes))
            limits += [row for row in _rows("Write rate", write) if row not in limits]
        if plan.work.target is not None and planned.target_ceilings is not None:
            there = resolve_rate(asked.write, "write", plan.work.target, planned.target_ceilings, load)
            options = replace(options, target_write_rate=there.units_per_second, target_index_rates=dict(there.indexes))
            limits += [row for row in _rows("Target rate", there) if row not in limits]
    return replace(planned, plan=replace(plan, options=options), limits=tuple(limits))


def _read_index(work: Work) -> str:
    """The global index that is read; local ones, and look-ups of whole items, draw on the table's capacity."""
    kinds = {index.name: index.kind for index in work.scope.table.indexes}
    return work.index if kinds.get(work.index) == "GSI" and not work.lookup else TABLE


def _rows(name: str, rate: ResolvedRate) -> list[tuple[str, str]]:
    return [(name, rate.source), *(("", f"warning: {warning}") for warning in rate.warnings)]


def check_options(options: Options) -> None:
    """Raises `errors.BadArgument` for a cap that is none."""
    if options.max_items is not None and options.max_items < 1:
        raise errors.BadArgument(
            f"--max-items {options.max_items}: must be at least 1", fix="leave it out to work on all items"
        )


def trial(session: boto3.Session, command: Command, work: Work) -> tuple[Change, ...]:
    """Read a little the way the run will, and try the command on it. Writes nothing; half a unit or a few.

    DynamoDB itself judges the filter before anything is submitted. Raises `errors.BadFilter`, and `errors.BadArgument`
    when the command fails on every item of the sample.
    """
    source = _source(session, _calls(session, work.scope.table), work)
    wanted = TRIAL_ITEMS if work.keys else TRIAL_READ if type(command).trial is not Command.trial else 1
    try:
        page = source.page(Segment(0, 1), None, wanted, lambda reasons: None, lambda: False)
    except errors.RequestRejected as error:
        raise errors.BadFilter(error.message, why=error.why, state="nothing written") from error
    return _tried(command, page, work)


def _tried(command: Command, page: Page, work: Work) -> tuple[Change, ...]:
    changes = tuple(command.trial(page._replace(items=page.items[:TRIAL_ITEMS]), work))
    if changes and all(change.problem for change in changes):
        raise errors.BadArgument(
            f"{command.name} fails on all {len(changes)} items of a sample: {changes[0].problem}",
            fix="mend the map and try it with --dry-run",
            state="nothing written",
        )
    return changes
