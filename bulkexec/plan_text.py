"""A plan, as it is shown before anything happens."""

from bulkexec.console import Terminal, folded
from bulkexec.estimate_text import cost_rows, estimate_rows
from bulkexec.model import Table
from bulkexec.nodes import Subtree
from bulkexec.plan import Plan


def say_plan(terminal: Terminal, plan: Plan, rows: list[tuple[str, str]]) -> None:
    """The plan, as it is shown before anything happens."""
    table = plan.work.scope.table
    head = f"PLAN  {plan.command}  {table.name}"
    terminal.say(f"{head:<70} plan {plan.id}")
    terminal.say()
    for name, text in rows:
        for line in folded(name, text, 12):
            terminal.say(line)
    terminal.say()


def plan_rows(
    plan: Plan,
    caller: str,
    runs_on: str,
    remarks: tuple[str, ...],
    limits: tuple[tuple[str, str], ...] = (),
    after_token: bool = False,
) -> list[tuple[str, str]]:
    """Name and text of each line of a plan.

    `limits` are its rates and where they come from; `after_token` is set when it begins where a resume token points.
    """
    table, estimate = plan.work.scope.table, plan.estimate
    assert estimate is not None
    rows = [
        ("Table", f"{table.account} / {table.region} / {table.name}"),
        *_target(plan),
        ("Caller", caller),
        ("Where", plan.where or _subtree(plan) or "every item"),
        *(("", f"note: {remark}") for remark in remarks),
        ("Size", _size(table)),
        *estimate_rows(plan, estimate),
    ]
    rows += limits
    if plan.options.max_items is not None:
        rows.append(("Stops", f"at the first page boundary at or past {plan.options.max_items:,} items"))
    rows += cost_rows(plan, estimate)
    rows.append(("Runs on", runs_on))
    if plan.options.results:
        rows.append(("Results", plan.options.results))
        rows += [("", "a second folder: what was found before the token stays in the first")] if after_token else []
    if after_token:
        rows.append(("Continues", "where the resume token points; counts will be of this call only"))
    if plan.mutates:
        rows.append(("Undo", _undo(plan)))
    return rows


def _subtree(plan: Plan) -> str:
    """The subtree that is walked, and where it goes."""
    if not plan.work.phases:
        return ""
    phase = plan.work.phases[0]
    there = phase.other
    return _named(phase.subtree) + (f", to {_named(there)}" if there is not None else "")


def _named(subtree: Subtree) -> str:
    (partition,) = subtree.partition.values()
    return f"{subtree.prefix!r} and all that begins with {subtree.beginning!r}, partition {partition!r}"


def _target(plan: Plan) -> list[tuple[str, str]]:
    target = plan.work.target
    return [] if target is None else [("To", f"{target.account} / {target.region} / {target.name}")]


def _size(table: Table) -> str:
    if not table.item_count:
        return f"not known yet: DescribeTable says 0 items, {table.billing}"
    indexes = {0: "no index", 1: "1 index"}.get(len(table.indexes), f"{len(table.indexes)} indexes")
    return f"{table.item_count:,} items, {_bytes(table.size_bytes)}, {table.billing}, {indexes}   (up to 6 h old)"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def _undo(plan: Plan) -> str:
    table = plan.work.changed[0]
    if not table.recovery:
        return "none: PITR is off (a dry run writes nothing)"
    which = f" of {table.name}" if plan.work.target is not None else ""
    return f"PITR{which} back to {table.recovery_from[:19]}Z (restores to a new table)"
