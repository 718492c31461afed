"""The output layer: what people and programs read. The words and the calm of a run are here."""

import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import click
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bulkexec.command import Command
from bulkexec.cost import Prices
from bulkexec.model import Counts, Estimate, Plan, Report, Table

LINE_SECONDS = 30.0
BAR_CELLS = 30
WIDTH = 100


class Terminal:
    """Text for people. With `json_output` it goes to stderr, and stdout holds one JSON document."""

    def __init__(self, json_output: bool = False) -> None:
        self.json_output = json_output
        self._console = Console(stderr=json_output, highlight=False, soft_wrap=True)
        self._lock = threading.Lock()

    @property
    def interactive(self) -> bool:
        """Whether a person can answer and a line can be redrawn."""
        return self._console.is_terminal and sys.stdin.isatty()

    @property
    def console(self) -> Console:
        """For live displays."""
        return self._console

    def say(self, line: str = "") -> None:
        """One line of text, exactly as it is."""
        with self._lock:
            self._console.print(Text(line))

    def complain(self, line: str) -> None:
        """One line of an error, always on stderr."""
        click.echo(line, err=True)

    def document(self, data: bytes) -> None:
        """The JSON document of this run, alone on stdout."""
        click.echo(data.decode())


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


def folded(name: str, text: str, name_cells: int) -> list[str]:
    """A name and its text in lines of at most 100 columns; what has no blank to break at stays whole."""
    indent = " " * (name_cells + 3)
    whole = f"  {name:<{name_cells}} {text}"
    return textwrap.wrap(
        whole, WIDTH, subsequent_indent=indent, drop_whitespace=True, break_long_words=False, break_on_hyphens=False
    ) or [whole]


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
        ("Caller", caller),
        ("Where", plan.where or "every item"),
        *(("", f"note: {remark}") for remark in remarks),
        ("Size", _size(table)),
        ("Reads", _reads(plan, estimate)),
    ]
    if plan.mutates:
        rows.append(("Writes", _writes(plan, estimate)))
    rows += limits
    if plan.options.max_items is not None:
        rows.append(("Stops", f"at the first page boundary at or past {plan.options.max_items:,} items"))
    rows += [("Cost", f"{_dollars(estimate.usd)} (estimate)"), ("Left out", "; ".join(estimate.left_out))]
    rows += [("", note) for note in estimate.notes]
    rows.append(("Runs on", runs_on))
    if plan.options.results:
        rows.append(("Results", plan.options.results))
        rows += [("", "a second folder: what was found before the token stays in the first")] if after_token else []
    if after_token:
        rows.append(("Continues", "where the resume token points; counts will be of this call only"))
    if plan.mutates:
        rows.append(("Undo", _undo(plan)))
    return rows


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


def _reads(plan: Plan, estimate: Estimate) -> str:
    if plan.work.scope.pinned:
        return f"at most {estimate.read_units:,.1f} units    one item collection is read (Query)"
    known = "" if plan.work.scope.table.item_count else "at least "
    return f"{known}{estimate.read_units:,.1f} units    all of the table is read, whatever the filter"


def _writes(plan: Plan, estimate: Estimate) -> str:
    if plan.options.dry_run:
        return "none: --dry-run"
    low, high = estimate.write_units
    if not plan.work.scope.table.item_count:
        return "not known"
    if low == high:
        return f"{high:,.0f} units"
    return f"{low:,.0f} to {high:,.0f} units    how many items match is not known before they are read"


def _undo(plan: Plan) -> str:
    table = plan.work.scope.table
    if not table.recovery:
        return "none: PITR is off (a dry run writes nothing)"
    return f"PITR back to {table.recovery_from[:19]}Z (restores to a new table)"


def _dollars(span: tuple[float, float] | None) -> str:
    if span is None:
        return "unknown"
    low, high = span
    return money(high) if money(low) == money(high) else f"{money(low)} to {money(high)}"


def money(usd: float) -> str:
    """Dollars, with as many digits as small sums need."""
    if usd == 0:
        return "$0"
    if usd < 0.0001:
        return "under $0.0001"
    return f"${usd:,.4f}" if usd < 1 else f"${usd:,.2f}" if usd < 100 else f"${usd:,.0f}"


def duration(seconds: float) -> str:
    """ "6 h 58 min", "4 min 3 s", "12.3 s"."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


class Progress:
    """Shows how a run goes: redrawn in place on a terminal, else one line every 30 s and on each change of state."""

    def __init__(self, terminal: Terminal, plan: Plan, job_id: str, verb: str) -> None:
        self._terminal, self._plan, self._job, self._verb = terminal, plan, job_id, verb
        self._began, self._said_at = time.monotonic(), 0.0
        self._state, self._counts, self._done = "STARTING", Counts(), 0
        self._base: Counts | None = None
        self._live = (
            Live(self._panel(), console=terminal.console, refresh_per_second=4, transient=True)
            if terminal.interactive
            else None
        )

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, state: str, counts: Counts, segments_done: int) -> None:
        """What is known now."""
        changed, self._state = state != self._state, state
        self._base = counts if self._base is None else self._base
        self._counts, self._done = counts, segments_done
        if self._live is not None:
            self._live.update(self._panel())
        elif changed or time.monotonic() - self._said_at >= LINE_SECONDS:
            self._said_at = time.monotonic()
            self._terminal.say(self._line())

    @property
    def _share(self) -> float | None:
        """How much is done, by segments; by items where DescribeTable knows them. 1 only when all is done."""
        if self._done == self._plan.segments:
            return 1.0
        items = self._plan.work.scope.table.item_count
        by_items = self._counts.scanned / items if items and not self._plan.work.scope.pinned else 0.0
        return min(0.999, max(by_items, self._done / self._plan.segments))

    @property
    def _left(self) -> str:
        share, elapsed = self._share or 0.0, time.monotonic() - self._began
        base = self._base or Counts()
        gained = self._counts.scanned - base.scanned
        if share < 0.01 or gained <= 0 or share >= 1:
            return "unknown" if share < 1 else "0 s"
        whole = self._counts.scanned / share
        return duration((whole - self._counts.scanned) / (gained / max(elapsed, 0.1)))

    @property
    def _units_rate(self) -> float:
        base, elapsed = self._base or Counts(), max(0.5, time.monotonic() - self._began)
        kind = "write_units" if self._plan.mutates and not self._plan.options.dry_run else "read_units"
        return float(getattr(self._counts, kind) - getattr(base, kind)) / elapsed

    @property
    def _limit(self) -> str:
        options = self._plan.options
        rate = options.write_rate if self._plan.mutates and not options.dry_run else options.read_rate
        return "" if rate is None else f"/{rate:g}"

    def _line(self) -> str:
        counts, now = self._counts, datetime.now(UTC).strftime("%H:%M:%SZ")
        if self._plan.mutates:
            happened = f"processed={counts.processed} skipped={counts.skipped} failed={counts.failed}"
        else:
            happened = f"scanned={counts.scanned} matched={counts.matched}"
        return (
            f"{now} {self._state.lower()} {100 * (self._share or 0):.1f}% {happened} "
            f"units/s={self._units_rate:.0f}{self._limit} left={self._left.replace(' ', '')}"
        )

    def _panel(self) -> Text:
        counts, share = self._counts, self._share or 0.0
        filled = int(share * BAR_CELLS)
        table = self._plan.work.scope.table.name
        elapsed, bar = duration(time.monotonic() - self._began), "#" * filled + "-" * (BAR_CELLS - filled)
        lines = [
            f"{self._plan.command} {table}   job {self._job}   {self._state}   {elapsed}",
            f"[{bar}]  {100 * share:.1f} %   segments {self._done}/{self._plan.segments}",
            self._happened(counts),
            f"{self._units_rate:,.0f}{self._limit} units/s   about {self._left} left",
        ]
        return Text("\n".join(lines))

    def _happened(self, counts: Counts) -> str:
        if not self._plan.mutates:
            return f"scanned {counts.scanned:,}   {self._verb} {counts.matched:,}"
        return f"{self._verb} {counts.processed:,}   skipped {counts.skipped:,}   failed {counts.failed:,}"


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
        rows.append(("would be", f"{command.verb}: {counts.matched:,} items; nothing was written"))
    if counts.skipped:
        rows.append(("skipped", "changed after they were read, or let be by the command"))
        rows += [("", f"keys in {folder}/skipped/")] if folder else []
    for failure in report.failures[:5]:
        key = msgspec.json.encode(failure.key).decode()
        rows.append(("failed", f"{key} {failure.reason} {failure.details}"[: WIDTH - 13]))
    if counts.failed and folder:
        rows.append(("", f"all keys and reasons in {folder}/failed/"))
    return rows


def _spent(plan: Plan, report: Report, prices: Prices | None) -> list[tuple[str, str]]:
    counts, metered, source = report.counts, report.metered_cost_usd, ""
    expected = _dollars(plan.estimate.usd) if plan.estimate is not None else "none"
    if prices is not None:
        source = f" ({prices.source})"
    actual = "unknown" if metered is None else money(metered)
    rows = [
        ("units", f"read {counts.read_units:,.1f}   written {counts.write_units:,.1f}   as DynamoDB metered them"),
        ("estimate", f"{expected}   actual {actual} from consumed units, without Glue{source}"),
        *(("rate", note) for note in report.notes),
    ]
    return rows + ([("report", f"{report.folder}/report.json")] if report.folder else [])


def identity(plan: Plan, command: Command, counts: Counts) -> str:
    """An identity that always adds up: what was read is what happened to it."""
    rest = f"not matching {counts.scanned - counts.matched:,}"
    if not plan.mutates or plan.options.dry_run:
        return f"{counts.scanned:,} = matching {counts.matched:,} + {rest}"
    return (
        f"{counts.scanned:,} = {command.verb} {counts.processed:,} + {rest}"
        f" + skipped {counts.skipped:,} + failed {counts.failed:,}"
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


Ask = Callable[[str], str]


def confirm(terminal: Terminal, table: Table, ask: Ask) -> bool:
    """Whether the table's name was typed."""
    typed = ask("Nothing has been written. Type the table name to go on (Return cancels): ")
    if typed == table.name:
        return True
    terminal.say(f'Not confirmed: got "{typed}", expected "{table.name}". Nothing was written.')
    return False
