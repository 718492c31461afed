"""What came of a run, for people."""

import msgspec

from bulkexec.command import Command
from bulkexec.console import WIDTH, Terminal, dollars, duration, folded, money
from bulkexec.dollars import Prices
from bulkexec.estimate_text import between
from bulkexec.model import Counts
from bulkexec.plan import Plan
from bulkexec.report import Report

HEADS = {
    "finished": "DONE",
    "dry-run": "DRY RUN",
    "failed": "FAILED",
    "cancelled": "STOPPED",
    "capped": "STOPPED AT CAP",
}


def say_report(
    terminal: Terminal,
    plan: Plan,
    command: Command,
    report: Report,
    prices: Prices | None,
    *,
    after_token: bool = False,
) -> None:
    """The end of a run, for people; `after_token` when it began where a resume token of a local run pointed."""
    head = HEADS[report.status]
    terminal.say()
    terminal.say(f"{head}  {plan.command} {report.table}   job {report.job_id}   {duration(report.duration_seconds)}")
    _say_rows_of_report(terminal, _happened(plan, command, report))
    if after_token:
        _say_rows_of_report(
            terminal, [("counts", "of this call only; what came before the resume token is not in them")]
        )
    _say_rows(terminal, report, command)
    _say_rows_of_report(terminal, _spent(plan, report, prices))
    for line in report.error:
        terminal.say(line)
    if report.cursor is not None:
        terminal.say(f"Continue: bulkexec resume {report.job_id}")
    if report.status == "capped":
        terminal.say(f"      or: the same command with --resume-token {report.cursor}")


def _say_rows_of_report(terminal: Terminal, rows: list[tuple[str, str]]) -> None:
    for name, text in rows:
        for line in folded(name, text, 10):
            terminal.say(line)


def _happened(plan: Plan, command: Command, report: Report) -> list[tuple[str, str]]:
    counts, folder = report.counts, report.folder
    whole = report.status in ("finished", "dry-run")
    results = [line if whole else f"{line} so far" for line in command.report(report)]
    rows = [("read", identity(plan, command, counts)), *(("result", line) for line in results)]
    if plan.options.dry_run and plan.mutates:
        rows.append(("would be", _would_be(command, counts)))
    if counts.skipped:
        rows.append(("skipped", "changed after they were read, or let be by the command"))
        rows += [("", f"keys of those that changed in {folder}/skipped/")] if folder else []
    for failure in report.failures[:5]:
        key = msgspec.json.encode(failure.key).decode()
        rows.append(("failed", f"{key} {failure.reason} {failure.details}"[: WIDTH - 13]))
    if counts.failed and folder:
        rows.append(("", f"all keys and reasons in {folder}/failed/"))
    if counts.conflicts:
        rows.append(("conflicts", "changed by somebody else after they were read; nothing of theirs was overwritten"))
        rows += (
            [("", f"again: the same command with --keys-from {folder}/conflicts in the filter's place")]
            if folder
            else []
        )
    return rows


def _would_be(command: Command, counts: Counts) -> str:
    would_be = counts.matched - counts.skipped - counts.failed
    rest = [f"{name} {count:,}" for name, count in (("skipped", counts.skipped), ("failed", counts.failed)) if count]
    # Whether a key is taken is not looked at: that alone would cost what the puts do.
    most, why = ("at most ", " (which keys are taken is not looked at)") if command.puts_if else ("", "")
    return f"{command.verb}: {', '.join([f'{most}{would_be:,} items', *rest])}{why}; nothing was written"


def _spent(plan: Plan, report: Report, prices: Prices | None) -> list[tuple[str, str]]:
    counts, metered, source = report.counts, report.metered_cost_usd, ""
    expected = dollars(plan.estimate.usd) if plan.estimate is not None else "none"
    if prices is not None:
        source = f" ({prices.source})"
    actual = "unknown" if metered is None else money(metered)
    rows = [
        ("units", f"read {counts.read_units:,.1f}   written {counts.write_units:,.1f}   as DynamoDB metered them"),
        *_expected_units(plan),
        ("estimate", f"{expected}   actual {actual} from consumed units, without Glue{source}"),
        *(("rate", note) for note in report.notes),
    ]
    return rows + ([("report", f"{report.folder}/report.json")] if report.folder else [])


def _expected_units(plan: Plan) -> list[tuple[str, str]]:
    """What was expected of these units; nothing where the size of the table was not known."""
    estimate = plan.estimate
    if estimate is None or estimate.reads is None:
        return []
    written = f"   written {between(estimate.write_units)}" if plan.mutates and not plan.options.dry_run else ""
    return [("expected", f"read {between(estimate.reads)}{written}")]


def identity(plan: Plan, command: Command, counts: Counts) -> str:
    """An identity that always adds up: what was read is what happened to it."""
    rest = f"not matching {counts.scanned - counts.matched:,}"
    if not plan.mutates or plan.options.dry_run:
        return f"{counts.scanned:,} = matching {counts.matched:,} + {rest}"
    return (
        f"{counts.scanned:,} = {command.verb} {counts.processed:,} + {rest}"
        f" + skipped {counts.skipped:,} + failed {counts.failed:,}"
        + (f" + conflicts {counts.conflicts:,}" if counts.conflicts else "")
    )


def _say_rows(terminal: Terminal, report: Report, command: Command) -> None:
    if not command.keeps_rows:
        return
    for row in report.preview:
        terminal.say(f"  {row}" if len(row) <= WIDTH - 2 else f"  {row[: WIDTH - 4]} …")
    more = report.counts.matched - len(report.preview)
    if more > 0:
        where = f"all of them in {report.results}" if report.results else "give --results s3://… to keep them all"
        _say_rows_of_report(terminal, [(f"… {more:,} more", f"are not shown; {where}")])
    elif report.results:
        _say_rows_of_report(terminal, [("results", report.results)])
