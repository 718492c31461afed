"""From a command and its options to a plan: facts, filter, checks, segments, estimate. Touches nothing."""

from dataclasses import dataclass, field, replace

import boto3

from bulkexec import errors, where
from bulkexec.ceilings import Ceilings, Load, ResolvedRate, fetch_ceilings, resolve_rate
from bulkexec.command import Command, arguments_of
from bulkexec.cost import GlueShape, Prices, estimate
from bulkexec.describe import describe, recovery, require_recovery
from bulkexec.model import Estimate, Options, Plan, Scope, Segment, Table, Work
from bulkexec.pricing import fetch_prices
from bulkexec.reader import Reader
from bulkexec.s3 import Location, Objects
from bulkexec.segments import total_segments
from bulkexec.wire import HttpWire, Refusals, Retrying


@dataclass(frozen=True)
class Filter:
    """The filter as the user gave it: SQL, or a raw expression with its names and values as JSON objects."""

    where: str | None = None
    expression: str | None = None
    names: str | None = None
    values: str | None = None

    @property
    def text(self) -> str:
        """For people and for the plan's fingerprint."""
        if self.where is not None:
            return self.where
        return " ".join(part for part in (self.expression, self.names, self.values) if part)


@dataclass(frozen=True)
class AskedRates:
    """`--read-rate` and `--write-rate` as they were given: units a second, or a share ("50%"); None: the default."""

    read: str | None = None
    write: str | None = None


@dataclass(frozen=True)
class Planned:
    """A plan, what the table can take, and what people should read beside the plan.

    `remarks` are on the filter; `limits` say which rates were chosen, by what, and what to know of them.
    """

    plan: Plan
    prices: Prices
    remarks: tuple[str, ...] = ()
    asked: AskedRates = field(default_factory=AskedRates)
    ceilings: Ceilings = field(default_factory=Ceilings)
    limits: tuple[tuple[str, str], ...] = ()


def scope_of(table: Table, chosen: Filter) -> tuple[Scope, tuple[str, ...]]:
    """The items a filter is about, and remarks on it. Raises `errors.BadFilter` and `errors.BadArgument`."""
    if chosen.where is not None and chosen.expression is not None:
        raise errors.BadArgument("--where and --filter-expression exclude each other", fix="give one of them")
    if chosen.expression is not None:
        raw = where.from_raw(chosen.expression, chosen.names, chosen.values)
        return Scope(table, filter=raw, guard=raw), ()
    if chosen.names is not None or chosen.values is not None:
        raise errors.BadArgument("--expression-names and --expression-values go with --filter-expression")
    if chosen.where is None:
        return Scope(table), ()
    node = where.parse_where(chosen.where)
    pinned, rest = where.split_key(node, table.keys)
    guard = where.guard_of(node, table.keys)
    scope = Scope(
        table,
        filter=None if rest is None else where.compile_filter(rest, table.keys),
        key_condition=None if pinned is None else where.compile_key_condition(pinned),
        guard=None if guard is None else where.compile_filter(guard, table.keys),
        guard_statement=None if guard is None else where.compile_statement(guard, table.keys),
    )
    return scope, where.notes(node, table.keys)


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
    _check_options(options)
    table = describe(session, table_name)
    scope, remarks = scope_of(table, chosen)
    work = command.plan(scope)
    if command.mutates:
        on, since = recovery(session, table)
        if not options.dry_run:
            require_recovery(table, on)
        table = replace(table, recovery=on, recovery_from=since)
        work = replace(work, scope=replace(work.scope, table=table))
    probe(session, work)
    if options.results:
        Objects(session, table.region).require_writable(Location.parse(options.results))
    segments = total_segments(table.size_bytes, slots, requested_segments, pinned=work.scope.pinned)
    prices = fetch_prices(session, table.region, table.table_class)
    plan = Plan(command.name, arguments_of(command), work, segments, command.mutates, options, where=chosen.text)
    planned = Planned(plan, prices, remarks, asked, fetch_ceilings(session, table))
    limited(planned, None)  # a rate that is none is refused before anything else is asked or shown
    return planned


def price(planned: Planned, glue: GlueShape | None, timeout_seconds: float | None = None) -> Planned:
    """The plan with its rates and with the estimate for where it runs."""
    planned = limited(planned, timeout_seconds)
    return replace(planned, plan=replace(planned.plan, estimate=_estimate(planned, glue)))


def _estimate(planned: Planned, glue: GlueShape | None) -> Estimate:
    plan = planned.plan
    table = plan.work.scope.table
    return estimate(table, plan.work, plan.mutates, planned.prices, plan.segments, glue, plan.options)


def limited(planned: Planned, timeout_seconds: float | None) -> Planned:
    """The plan with a rate for reads and one for writes, never unlimited. Raises `errors.BadArgument`."""
    plan, asked, facts = planned.plan, planned.asked, planned.ceilings
    table, units = plan.work.scope.table, _estimate(planned, None)
    known = bool(table.item_count)
    load = Load(units.read_units if known else None, timeout_seconds)
    read = resolve_rate(asked.read, "read", table, facts, load)
    options, limits = replace(plan.options, read_rate=read.units_per_second), _rows("Read rate", read)
    if plan.mutates and not plan.options.dry_run:
        load = Load(units.write_units[1] if known else None, timeout_seconds)
        write = resolve_rate(asked.write, "write", table, facts, load)
        options = replace(options, write_rate=write.units_per_second, index_rates=dict(write.indexes))
        limits += [row for row in _rows("Write rate", write) if row not in limits]
    return replace(planned, plan=replace(plan, options=options), limits=tuple(limits))


def _rows(name: str, rate: ResolvedRate) -> list[tuple[str, str]]:
    return [(name, rate.source), *(("", f"warning: {warning}") for warning in rate.warnings)]


def _check_options(options: Options) -> None:
    if options.max_items is not None and options.max_items < 1:
        raise errors.BadArgument(
            f"--max-items {options.max_items}: must be at least 1", fix="leave it out to work on all items"
        )


def probe(session: boto3.Session, work: Work) -> None:
    """Read one item the way the run will. DynamoDB itself judges the filter before anything is submitted; 0.5 units."""
    table = work.scope.table
    calls = Retrying(HttpWire(session, table.region, 1), Refusals(table.name, table.region))
    try:
        Reader(calls, work).page(Segment(0, 1), None, 1, lambda reasons: None, lambda: False)
    except errors.RequestRejected as error:
        raise errors.BadFilter(error.message, why=error.why, state="nothing written") from error
