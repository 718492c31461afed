"""An estimate, as rows of a plan: what will be read and written, how long it takes, what it costs, and where else."""

from collections.abc import Iterator

from bulkexec.console import dollars, money
from bulkexec.duration import in_words
from bulkexec.plan import Alternative, Estimate, Plan

Row = tuple[str, str]


def estimate_rows(plan: Plan, estimate: Estimate) -> Iterator[Row]:
    """Name and text of each line, in the order in which they are shown."""
    yield "Reads", f"{_units(estimate.read_units, estimate.reads)}    {_what_is_read(plan)}"
    if plan.mutates:
        yield from _matching(plan, estimate)
        yield "Writes", _writes(plan, estimate)


def cost_rows(plan: Plan, estimate: Estimate) -> Iterator[Row]:
    """Time, cost, what the numbers rest on, and the same work elsewhere."""
    if estimate.seconds is not None:
        yield "Time", _range(in_words(estimate.seconds[0]), in_words(estimate.seconds[1]))
    yield "Cost", _cost(estimate)
    if plan.options.cost_limit is not None:
        yield "", f"stops when {money(plan.options.cost_limit.usd)} are spent (--max-cost); it can be resumed then"
    yield "Left out", "; ".join(estimate.left_out)
    if estimate.sampled:
        yield "Sample", estimate.sampled
    yield from (("", f"warning: {warning}") for warning in estimate.warnings)
    yield from (("", note) for note in estimate.notes)
    yield from _alternatives(estimate.alternatives)


def _what_is_read(plan: Plan) -> str:
    work = plan.work
    if work.scope.pinned:
        return "one item collection is read (Query)"
    if work.keys:
        return "the items of a list of keys are read, if at all"
    if work.index:
        fetched = ", and the items of its entries" if work.lookup else ""
        return f"all of the index {work.index} is read{fetched}, whatever the filter"
    return "all of the table is read, whatever the filter"


def _units(value: float, span: tuple[float, float] | None) -> str:
    if span is None:
        return f"at least {_number(value)} units"
    around = f"   ({between(span)})" if _number(span[0]) != _number(span[1]) else ""
    return f"{_number(value)} units{around}"


def between(span: tuple[float, float]) -> str:
    """A range of units; one number where it is one."""
    return _range(*map(_number, span))


def _number(units: float) -> str:
    return f"{units:,.1f}".removesuffix(".0") if units < 1000 else f"{units:,.0f}"


def _matching(plan: Plan, estimate: Estimate) -> Iterator[Row]:
    """How many items a filter finds, where a sample says so."""
    if estimate.matching is None or not estimate.sampled:
        return
    low, high = (f"{end:,.0f}" for end in estimate.matching)
    found = f"{low}" if low == high else f"at most {high}" if low == "0" else f"{low} to {high}"
    yield "Matching", f"{found} items"


def _writes(plan: Plan, estimate: Estimate) -> str:
    if plan.options.dry_run:
        return "none: --dry-run"
    low, high = estimate.write_units
    if estimate.reads is None:
        return "not known"
    if low == high:
        return f"{high:,.0f} units"
    if estimate.expected_writes is not None:
        return f"{estimate.expected_writes:,.0f} units   ({low:,.0f} to {high:,.0f})"
    return f"{low:,.0f} to {high:,.0f} units    how many items match is not known before they are read"


def _cost(estimate: Estimate) -> str:
    parts = ", ".join(f"{name} {dollars(span)}" for name, span in estimate.parts)
    return f"{dollars(estimate.usd)} (estimate)" + (f": {parts}" if parts else "")


def _alternatives(alternatives: tuple[Alternative, ...]) -> Iterator[Row]:
    """Side by side, the planned one marked."""
    for number, each in enumerate(alternatives):
        time = "unknown" if each.seconds is None else _range(*map(in_words, each.seconds))
        mark = "*" if each.chosen else " "
        yield "Elsewhere" if not number else "", f"{mark} {each.runtime}: {time}, {dollars(each.usd)}; {each.note}"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
