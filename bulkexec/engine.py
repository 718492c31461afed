"""The page pipeline, the same in every runtime.

Per page, in this order: permit, Scan or Query, settle with ConsumedCapacity, `command.page` (pure), permit, write until
nothing is unprocessed, spill rows, checkpoint. Guarantee: at least once a page. A checkpoint is written only after all
that it counts was acknowledged, so a resumed run never misses an item and never loses an acknowledged count; after a
sudden death at most one checkpoint interval of each open segment is done again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

import msgspec

from bulkexec import errors
from bulkexec.command import Command
from bulkexec.dynamodb import Outcome, Reader, Writer
from bulkexec.model import Counts, Failure, Page, PageResult, Plan, Segment, SegmentRecord, Write
from bulkexec.rate import Budget
from bulkexec.s3 import Spill, item_line
from bulkexec.wire import Stopped

FAILURES_KEPT = 20
"""Failures named in a segment's record; all of them are in S3."""
PREVIEW_ROWS = 10
PREVIEW_BYTES = 32 * 1024
ROWS_CHECKPOINT_SECONDS = 60.0
"""A command with rows checkpoints when a file is closed; a shorter interval would make many small files."""
PAGE_SECONDS = 1.0
"""How much work at the limited rate one page should be, so that a drain and a change of rate act soon."""
PAGE_ITEMS_LIMIT = 100_000
IN_FLIGHT = 32
"""Requests of one process that wait for their answers: at 5 ms each about what fills a core with writes."""


class Checkpoints(Protocol):
    """Where segment records live: the control table, a file, or memory."""

    def load(self, number: int) -> SegmentRecord | None:
        """The last record of a segment."""

    def save(self, record: SegmentRecord) -> None:
        """Keep a record. When this returns it survives the death of the process, where the store promises that."""


class Cap:
    """Counts what the whole fleet has handled in this run and says when that reaches the cap."""

    def __init__(self, max_items: int | None, add: Callable[[int], int]) -> None:
        self._max_items, self._add = max_items, add
        self.reached = False

    def count(self, items: int) -> None:
        """Add items handled by a page."""
        if self._max_items is not None and items:
            self.reached = self._add(items) >= self._max_items or self.reached

    @property
    def page_limit(self) -> int | None:
        """No page needs more evaluated items than the cap, or the overshoot would be a whole page."""
        return self._max_items


@dataclass
class Spills:
    """The files a segment writes: rows of the result, and keys of items that were skipped or failed."""

    rows: Spill | None = None
    skipped: Spill | None = None
    failed: Spill | None = None

    @property
    def full(self) -> bool:
        """Whether a file should be closed now."""
        return any(spill is not None and spill.full for spill in (self.rows, self.skipped, self.failed))


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

    `lanes` are the threads that requests wait for their answers in; without them one request follows the other.
    """

    plan: Plan
    command: Command
    reader: Reader
    writer: Writer
    read_budget: Budget
    write_budget: Budget
    checkpoints: Checkpoints
    cap: Cap
    stop: Callable[[], bool]
    spills: Callable[[SegmentRecord], Spills]
    threads: int
    lanes: Executor | None = None
    preview: Preview = field(default_factory=Preview)
    progress: Callable[[Counts], None] = lambda counts: None
    clock: Callable[[], float] = time.monotonic

    @property
    def stopping(self) -> bool:
        """Whether workers should stop at their next page boundary."""
        return self.cap.reached or self.stop()


class _PageSizer:
    """Chooses Limit so that a page is about a second of work at the limited rate; without a limit, full pages."""

    def __init__(self, run: Run) -> None:
        self._run = run
        table = run.plan.work.scope.table
        mean = table.size_bytes / table.item_count if table.item_count else 400.0
        self._read_units_per_item = max(mean, 64.0) / (4096 if run.plan.work.consistent else 8192)
        self._write_units_per_item = max(1.0, mean / 1024) if run.plan.mutates else 0.0

    def limit(self) -> int | None:
        choices = [self._run.cap.page_limit] if self._run.cap.page_limit is not None else []
        for budget, units in (
            (self._run.read_budget, self._read_units_per_item),
            (self._run.write_budget, self._write_units_per_item),
        ):
            if budget.rate < inf and units > 0:
                choices.append(max(1, int(budget.rate * PAGE_SECONDS / self._run.threads / units)))
        return min([*choices, PAGE_ITEMS_LIMIT]) if choices else None

    def expected_units(self, limit: int | None) -> float:
        return max(0.5, self._read_units_per_item * limit) if limit is not None else 0.5

    def learn(self, page: Page, write_units: float) -> None:
        if page.scanned:
            self._read_units_per_item = _mix(self._read_units_per_item, page.read_units / page.scanned)
            if self._run.plan.mutates:
                self._write_units_per_item = _mix(self._write_units_per_item, write_units / page.scanned)


def _mix(old: float, new: float) -> float:
    return 0.5 * old + 0.5 * new


class SegmentRun:
    """Walks one segment from its checkpoint to its end, to a stop or to an error."""

    def __init__(self, run: Run, segment: Segment) -> None:
        self._run, self._segment = run, segment
        self.record = run.checkpoints.load(segment.number) or SegmentRecord(segment.number)
        self._saved = self.record
        self._saved_at = run.clock()
        self._spills = run.spills(self.record)
        self._sizer = _PageSizer(run)
        self._interval = ROWS_CHECKPOINT_SECONDS if run.command.keeps_rows else run.plan.options.checkpoint_seconds
        self._unit_guess, self._throttles, self._lock = 1.0, 0, threading.Lock()
        self._ahead: Future[Page | None] | None = None

    def walk(self) -> SegmentRecord:
        """Page after page. Whatever ends it, all that was acknowledged is checkpointed."""
        try:
            while not self.record.done and not self._run.stopping:
                self._one_page()
                if self._spills.full or self._run.clock() - self._saved_at >= self._interval:
                    self._checkpoint()
        except Stopped:
            pass  # a read was given up while draining; nothing of that page was done
        finally:
            self._drop_ahead()
            self._checkpoint()
        return self.record

    def _one_page(self) -> None:
        page = self._next()
        if page is None:
            return
        result = self._run.command.page(page, self._run.plan.work)
        if result.writes and page.last_evaluated_key and self._run.lanes is not None and not self._run.stopping:
            self._ahead = self._run.lanes.submit(self._read, page.last_evaluated_key)
        outcome = self._write(result.writes)
        self._keep(result, outcome)
        counts = self._counts(page, result, outcome)
        self._sizer.learn(page, outcome.units)
        self.record = replace(
            self.record,
            counts=self.record.counts + counts,
            last_evaluated_key=(page.last_evaluated_key or b"").decode(),
            done=page.last_evaluated_key is None,
            failures=(*self.record.failures, *outcome.failed)[:FAILURES_KEPT],
        )
        self._run.progress(counts)
        self._run.cap.count(counts.handled if self._run.plan.mutates else counts.matched)

    def _next(self) -> Page | None:
        """The page that was read while the last one was written, or else one that is read now."""
        ahead, self._ahead = self._ahead, None
        return self._read(self.record.last_evaluated_key.encode() or None) if ahead is None else ahead.result()

    def _drop_ahead(self) -> None:
        """A page that was read ahead and is not used: its units were consumed and count, its items do not."""
        if self._ahead is None:
            return
        try:
            page = self._ahead.result()
        except (Stopped, errors.BulkexecError):
            return  # it is not needed any more, so neither is its error
        if page is not None:
            self.record = replace(self.record, counts=self.record.counts + Counts(read_units=page.read_units))

    def _read(self, start: bytes | None) -> Page | None:
        budget, limit = self._run.read_budget, self._sizer.limit()
        expected = self._sizer.expected_units(limit)
        if not budget.acquire(expected, lambda: self._run.stopping):
            return None
        throttled = self._on_throttle(budget)
        page = self._run.reader.page(self._segment, start, limit, throttled, lambda: self._run.stopping)
        budget.settle(expected, page.read_units)
        return page

    def _on_throttle(self, budget: Budget) -> Callable[[], None]:
        def throttled() -> None:
            with self._lock:
                self._throttles += 1
            budget.throttled()

        return throttled

    def _write(self, writes: Sequence[Write]) -> Outcome:
        """See all writes of a page through. A page is finished once it is begun, also while draining."""
        total, size, lanes = Outcome(), self._run.writer.batch_size, self._run.lanes
        if self._run.plan.options.dry_run:
            return total
        batches = [writes[start : start + size] for start in range(0, len(writes), size)]
        if lanes is None or len(batches) == 1:
            for batch in batches:
                total.add(self._send(batch, self._permit(batch)))
        else:
            pending = [lanes.submit(self._send, batch, self._permit(batch)) for batch in batches]
            wait(pending)  # also when one fails: what is in flight must not outlive the checkpoint
            for each in pending:
                total.add(each.result())
        if writes:
            self._unit_guess = max(1.0, _mix(self._unit_guess, total.units / len(writes)))
        return total

    def _permit(self, batch: Sequence[Write]) -> float:
        expected = self._unit_guess * len(batch)
        self._run.write_budget.acquire(expected, lambda: False)
        return expected

    def _send(self, batch: Sequence[Write], expected: float) -> Outcome:
        budget = self._run.write_budget
        outcome = self._run.writer.write(batch, self._on_throttle(budget))
        budget.settle(expected, outcome.units)
        return outcome

    def _keep(self, result: PageResult, outcome: Outcome) -> None:
        if result.rows:
            self._run.preview.offer(result.rows)
            if self._spills.rows is not None:
                self._spills.rows.add(item_line(bytes(row)) for row in result.rows)
        if outcome.skipped and self._spills.skipped is not None:
            self._spills.skipped.add(b'{"Keys":' + bytes(key) + b"}" for key in outcome.skipped)
        if outcome.failed and self._spills.failed is not None:
            self._spills.failed.add(_failure_line(failure) for failure in outcome.failed)

    def _counts(self, page: Page, result: PageResult, outcome: Outcome) -> Counts:
        throttled, self._throttles = self._throttles, 0
        return Counts(
            scanned=page.scanned,
            matched=page.matched,
            processed=outcome.processed,
            skipped=result.skipped + len(outcome.skipped),
            failed=len(outcome.failed),
            read_units=page.read_units,
            write_units=outcome.units,
            throttled=throttled,
        )

    def _checkpoint(self) -> None:
        if self.record is self._saved:
            return
        files = self._spills.rows.close_file() if self._spills.rows is not None else ()
        for spill in (self._spills.skipped, self._spills.failed):
            if spill is not None:
                spill.close_file()
        self.record = replace(self.record, files=self.record.files + files)
        self._run.checkpoints.save(self.record)
        self._saved, self._saved_at = self.record, self._run.clock()


def _failure_line(failure: Failure) -> bytes:
    return msgspec.json.encode({"Keys": failure.key, "reason": failure.reason, "details": failure.details})


def run_segment(run: Run, segment: Segment) -> SegmentRecord:
    """Walk one segment; gives its record. See `SegmentRun`."""
    return SegmentRun(run, segment).walk()


def run_segments(run: Run, numbers: Iterable[int]) -> list[SegmentRecord]:
    """Walk many segments with `run.threads` threads, each taking the next one in the given order.

    The first error stops all threads at their page boundary and is raised when every checkpoint is written.
    """
    queue, records, failed = deque(numbers), [], []  # type: tuple[deque[int], list[SegmentRecord], list[BaseException]]
    failing = threading.Event()
    lanes = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="request")
    inner = replace(run, stop=lambda: failing.is_set() or run.stop(), lanes=lanes)

    def work() -> None:
        while queue and not inner.stopping:
            try:
                number = queue.popleft()
            except IndexError:
                return
            try:
                records.append(run_segment(inner, Segment(number, run.plan.segments)))
            except BaseException as error:  # noqa: BLE001 - a thread's boundary: raised again in the caller's thread
                failed.append(error)
                failing.set()

    threads = [threading.Thread(target=work, name=f"segment-worker-{i}") for i in range(min(run.threads, len(queue)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lanes.shutdown()
    if failed:
        raise failed[0]
    return records
