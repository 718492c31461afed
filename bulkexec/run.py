"""What the segments of one process share while they are walked: the run, its cap, its hope, its preview."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from bulkexec import errors
from bulkexec.budgets import TableBudgets
from bulkexec.command import Command
from bulkexec.model import Counts, DataFile, Failure, SegmentRecord
from bulkexec.plan import Plan
from bulkexec.rate import Limiter
from bulkexec.reader import PageSource
from bulkexec.s3 import Spill
from bulkexec.writer import Writer

FAILURES_KEPT = 20
"""Failures and conflicts named in a segment's record; all of them are in the job's lists."""
PREVIEW_ROWS = 10
PREVIEW_BYTES = 32 * 1024
CAP_SHARES = 8
"""A page reserves at most an eighth of the cap, so that several workers can go on side by side."""
CAP_POLL_SECONDS = 0.1
HOPELESS_FAILURES = 100
"""So many failed writes in one process, and not one that succeeded, are not of single items (case C032)."""


class Lines(Protocol):
    """A growing list of JSON lines, kept in files."""

    def add(self, rows: Iterable[bytes]) -> None:
        """Append lines."""

    @property
    def full(self) -> bool:
        """Whether a file should be closed now."""

    def close_file(self) -> tuple[DataFile, ...]:
        """Keep what was added; a checkpoint counts it from now on."""


class Checkpoints(Protocol):
    """Where segment records live: the control table, a file, or memory."""

    def load(self, number: int) -> SegmentRecord | None:
        """The last record of a segment."""

    def save(self, record: SegmentRecord) -> None:
        """Keep a record. When this returns it survives the death of the process, where the store promises that."""


class Cap:
    """A soft cap on the items that the whole fleet handles in this run, and whether it is reached.

    A page is read only for what of the cap nobody else has reserved, so the threads of a process together go past it
    by no more than one page. `reserve(n)` and `add(n)` add to two counters that all share and give the new total.
    Without `reserve` (a worker of a fleet may die with what it has reserved) each of `workers` reads for its part of
    the cap, so together they go past it by no more than as much again.
    """

    def __init__(
        self,
        max_items: int | None,
        add: Callable[[int], int],
        reserve: Callable[[int], int] | None = None,
        workers: int = 1,
    ) -> None:
        self._max_items, self._add, self._reserve, self._workers = max_items, add, reserve, workers
        self.reached = False

    @property
    def limited(self) -> bool:
        """Whether there is a cap."""
        return self._max_items is not None

    def grant(self, stop: Callable[[], bool]) -> int | None:
        """Items that a page may handle; None is no cap. Waits while all that is left is reserved; 0 when stopped."""
        if self._max_items is None:
            return None
        if self._reserve is None:
            return max(1, self._max_items // self._workers)
        wanted = max(1, self._max_items // CAP_SHARES)
        while not (self.reached or stop()):
            over = max(0, self._reserve(wanted) - self._max_items)
            granted = max(0, wanted - over)
            if granted < wanted:
                self._reserve(granted - wanted)
            if granted:
                return granted
            time.sleep(CAP_POLL_SECONDS)
        return 0

    def settle(self, granted: int | None, handled: int) -> None:
        """Say what a page made of its grant."""
        if self._max_items is None or granted is None:
            return
        if self._reserve is not None:
            self._reserve(handled - granted)
        if handled:
            self.reached = self._add(handled) >= self._max_items or self.reached


class _Counter:
    """A number that threads add to."""

    def __init__(self) -> None:
        self._lock, self._total = threading.Lock(), 0

    def add(self, items: int) -> int:
        with self._lock:
            self._total += items
            return self._total


def local_cap(max_items: int | None) -> Cap:
    """The cap of a run that has one process."""
    return Cap(max_items, _Counter().add, _Counter().add)


@dataclass
class Spills:
    """The files a segment writes: rows of the result, and keys of items that were skipped or failed."""

    rows: Spill | None = None
    skipped: Lines | None = None
    failed: Lines | None = None
    conflicts: Lines | None = None

    @property
    def full(self) -> bool:
        """Whether a file should be closed now."""
        return any(spill is not None and spill.full for spill in (self.rows, *self.lists))

    @property
    def lists(self) -> tuple[Lines | None, ...]:
        """Those that are not the user's rows."""
        return self.skipped, self.failed, self.conflicts


class Hope:
    """Ends a run that is not worth going on with. Thread-safe; counts for this process.

    That is one in which every write fails, or in which more items have failed than `max_failures`. What a map rejects
    is no failure of a write: a sample has shown that before.
    """

    def __init__(self, max_failures: int | None = None) -> None:
        self._lock, self._max_failures = threading.Lock(), max_failures
        self._failed, self._refused, self._succeeded = 0, 0, False

    def count(self, counts: Counts, rejected: Sequence[Failure], refused: Sequence[Failure]) -> None:
        """Take in a page: what its map rejected, and what DynamoDB refused.

        Raises `errors.RequestRejected` without hope, and `errors.TooManyFailures` past the limit.
        """
        with self._lock:
            self._failed += counts.failed
            self._succeeded = self._succeeded or counts.processed + counts.skipped + counts.conflicts > 0
            self._refused += len(refused)
            failed, hopeless = self._failed, self._refused >= HOPELESS_FAILURES and not self._succeeded
        failures = (*refused, *rejected)
        if not failures:
            return
        if hopeless and refused:
            raise errors.RequestRejected(
                f"{failed} writes failed and none succeeded: {refused[0].reason}",
                why=refused[0].details,
                state="nothing written",
            )
        if self._max_failures is not None and failed > self._max_failures:
            raise too_many_failures(failed, self._max_failures, failures[0])


def too_many_failures(failed: int, allowed: int, example: Failure | None) -> errors.TooManyFailures:
    """What ends a run at `--max-failures`."""
    why = "" if example is None else f"{example.reason}: {example.details}".removesuffix(": ")
    return errors.TooManyFailures(
        f"{failed:,} items failed, more than --max-failures {allowed:,}",
        why=why,
        fix="mend the cause, then resume with a higher limit or start anew",
        state="everything up to the last page is kept",
    )


class Preview:
    """The first rows of a run, for the console. Thread-safe, bounded in rows and bytes."""

    def __init__(self) -> None:
        self._lock, self._bytes = threading.Lock(), 0
        self.rows: list[str] = []

    def offer(self, rows: Sequence[msgspec.Raw]) -> None:
        """Keep what there is room for."""
        if len(self.rows) >= PREVIEW_ROWS:
            return
        with self._lock:
            for row in rows[: PREVIEW_ROWS - len(self.rows)]:
                text = bytes(row).decode()
                self._bytes += len(text)
                if self._bytes <= PREVIEW_BYTES:
                    self.rows.append(text)


@dataclass
class Run:
    """Everything that the segments of one process share.

    Puts go to the `target`, which is the table that is read when there is no other.
    `lanes` are the threads that requests wait for their answers in; without them one request follows the other.
    """

    plan: Plan
    command: Command
    reader: PageSource
    writer: Writer
    read_budget: Limiter
    write_budget: TableBudgets
    checkpoints: Checkpoints
    cap: Cap
    stop: Callable[[], bool]
    spills: Callable[[SegmentRecord], Spills]
    threads: int
    target: tuple[Writer, TableBudgets] | None = None
    lanes: Executor | None = None
    preview: Preview = field(default_factory=Preview)
    hope: Hope = field(default_factory=Hope)
    failures_kept: int = FAILURES_KEPT
    progress: Callable[[Counts], None] = lambda counts: None
    clock: Callable[[], float] = time.monotonic

    @property
    def stopping(self) -> bool:
        """Whether workers should stop at their next page boundary."""
        return self.cap.reached or self.stop()
