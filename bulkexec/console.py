"""The output layer: what people and programs read. The words and the calm of a run are here."""

import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bulkexec.model import Counts, Table
from bulkexec.plan import Plan

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


def folded(name: str, text: str, name_cells: int) -> list[str]:
    """A name and its text in lines of at most 100 columns; what has no blank to break at stays whole."""
    indent = " " * (name_cells + 3)
    whole = f"  {name:<{name_cells}} {text}"
    return textwrap.wrap(
        whole, WIDTH, subsequent_indent=indent, drop_whitespace=True, break_long_words=False, break_on_hyphens=False
    ) or [whole]


def dollars(span: tuple[float, float] | None) -> str:
    """From the least to the most, or that it is not known."""
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
        by_items = self._counts.scanned / items if items and not self._few else 0.0
        return min(0.999, max(by_items, self._done / self._plan.segments))

    @property
    def _few(self) -> bool:
        """Whether the table's number of items says nothing of how much there is to do."""
        work = self._plan.work
        return work.scope.pinned or work.scope.listed or bool(work.index)

    @property
    def _left(self) -> str:
        share, elapsed = self._share or 0.0, time.monotonic() - self._began
        base = self._base or Counts()
        gained = self._counts.scanned - base.scanned
        if self._state == "PAUSED":
            return "paused"
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
        rate = options.read_rate
        if self._plan.mutates and not options.dry_run:
            rate = options.write_rate if options.target_write_rate is None else options.target_write_rate
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
        left = "paused" if self._state == "PAUSED" else f"about {self._left} left"
        lines = [
            f"{self._plan.command} {table}   job {self._job}   {self._state}   {elapsed}",
            f"[{bar}]  {100 * share:.1f} %   segments {self._done}/{self._plan.segments}",
            self._happened(counts),
            f"{self._units_rate:,.0f}{self._limit} units/s   {left}",
        ]
        return Text("\n".join(lines))

    def _happened(self, counts: Counts) -> str:
        if not self._plan.mutates:
            return f"scanned {counts.scanned:,}   {self._verb} {counts.matched:,}"
        return f"{self._verb} {counts.processed:,}   skipped {counts.skipped:,}   failed {counts.failed:,}"


Ask = Callable[[str], str]


def confirm(terminal: Terminal, table: Table, ask: Ask) -> bool:
    """Whether the table's name was typed."""
    typed = ask("Nothing has been written. Type the table name to go on (Return cancels): ")
    if typed == table.name:
        return True
    terminal.say(f'Not confirmed: got "{typed}", expected "{table.name}". Nothing was written.')
    return False
