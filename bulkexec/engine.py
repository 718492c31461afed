"""The page pipeline, the same in every runtime.

Per page, in this order: permit, Scan or Query, settle with ConsumedCapacity, `command.page` (pure), permit, write until
nothing is unprocessed, spill rows, checkpoint. Guarantee: at least once a page. A checkpoint is written only after all
that it counts was acknowledged, so a resumed run never misses an item and never loses an acknowledged count; after a
sudden death at most one checkpoint interval of each open segment is done again.
"""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from math import inf

import msgspec

from bulkexec import errors
from bulkexec.model import Counts, Failure, Page, PageResult, Segment, SegmentRecord
from bulkexec.ordered import Ordered
from bulkexec.outcome import Outcome
from bulkexec.run import PREVIEW_ROWS, Cap, Checkpoints, Run, Spills
from bulkexec.s3 import item_line
from bulkexec.sending import Sending
from bulkexec.subtree import Held
from bulkexec.wire import OnThrottle, Stopped

__all__ = [
    "IN_FLIGHT",
    "PREVIEW_ROWS",
    "Cap",
    "Checkpoints",
    "Run",
    "Spills",
    "run_segment",
    "run_segments",
]

VERSION_CONFLICT = "VersionConflict"
CHILD_REMAINS = "ChildRemains"
"""Why a node of a subtree is skipped: something below it was not removed."""
ROWS_CHECKPOINT_SECONDS = 60.0
"""A command with rows checkpoints when a file is closed; a shorter interval would make many small files."""
PAGE_SECONDS = 1.0
"""How much work at the limited rate one page should be, so that a drain and a change of rate act soon."""
PAGE_ITEMS_LIMIT = 100_000
IN_FLIGHT = 32
"""Requests of one process that wait for their answers: at 5 ms each about what fills a core with writes."""


class _PageSizer:
    """Chooses Limit so that a page is about a second of work at the limited rate; without a limit, full pages."""

    def __init__(self, run: Run) -> None:
        self._run = run
        table = run.plan.work.scope.table
        mean = table.size_bytes / table.item_count if table.item_count else 400.0
        self._read_units_per_item = max(mean, 64.0) / (4096 if run.plan.work.consistent else 8192)
        self._write_units_per_item = max(1.0, mean / 1024) if run.plan.mutates else 0.0
        self._growth = 1

    def limit(self, granted: int | None) -> int | None:
        """Limit for the next page. Under a cap: what is granted, doubled after each page without a match."""
        choices = [] if granted is None else [granted * self._growth]
        writes = [self._run.write_budget, *(budget for _, budget in filter(None, [self._run.target]))]
        for share, units in (
            (self._run.read_budget.share, self._read_units_per_item),
            *((budget.share, self._write_units_per_item) for budget in writes),
        ):
            if share < inf and units > 0:
                choices.append(max(1, int(share * PAGE_SECONDS / self._run.threads / units)))
        return min([*choices, PAGE_ITEMS_LIMIT]) if choices else None

    def expected_units(self, limit: int | None) -> float:
        return max(0.5, self._read_units_per_item * limit) if limit is not None else 0.5

    def learn(self, page: Page, table_units: float) -> None:
        self._growth = 1 if page.matched else min(2 * self._growth, PAGE_ITEMS_LIMIT)
        if page.scanned:
            self._read_units_per_item = _mix(self._read_units_per_item, page.read_units / page.scanned)
            if self._run.plan.mutates:
                self._write_units_per_item = _mix(self._write_units_per_item, table_units / page.scanned)


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
        self._throttles, self._lock = 0, threading.Lock()
        self._work = run.plan.work.in_phase(segment.number)
        phase = self._work.phase
        self._counted = phase is None or phase.counts
        self._sending = Sending(run, self._throttled, phase is not None and phase.of_target)
        self._ordered = None if phase is None else Ordered(self._sending, self._work)
        self._held = None if phase is None else Held(phase.subtree, self.record.held)
        self._ahead: Future[Page | None] | None = None

    def walk(self) -> SegmentRecord:
        """Page after page. Whatever ends it, all that was acknowledged is checkpointed."""
        if self._run.plan.options.dry_run and not self._counted:
            self.record = replace(self.record, done=True)  # there is nothing to see that a later phase does not show
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
        page, granted = self._next()
        if page is None:
            self._run.cap.settle(granted, 0)
            return
        result = self._run.command.page(page, self._work)
        if result.writes and page.last_evaluated_key and self._reads_ahead:
            assert self._run.lanes is not None
            self._ahead = self._run.lanes.submit(self._read, page.last_evaluated_key, None)
        outcome, error = self._write(page, result)
        if error is not None:
            self._run.cap.settle(granted, outcome.processed)
            self._count_unfinished(page, outcome)
            raise error
        self._finish(page, result, outcome, granted)

    @property
    def _reads_ahead(self) -> bool:
        """Not under a cap: a page that is read ahead would be read for nothing when the cap is reached."""
        run = self._run
        return run.lanes is not None and not run.cap.limited and not run.stopping

    def _finish(self, page: Page, result: PageResult, outcome: Outcome, granted: int | None) -> None:
        counts = self._counts(page, result, outcome)
        writes = self._run.plan.mutates and not self._run.plan.options.dry_run
        self._sizer.learn(page, outcome.consumed.table)
        if self._counted:
            self._keep(result, outcome)
            self._name(result, outcome)
        self._advance(page, counts if self._counted else counts.units_alone)
        self._run.cap.settle(granted, counts.handled if writes else counts.matched)
        if self._counted:
            self._run.hope.count(counts, result.failed, outcome.failed)

    def _name(self, result: PageResult, outcome: Outcome) -> None:
        """The first failures and conflicts, by name, in the record."""
        record, limit = self.record, self._run.failures_kept
        failures = (*record.failures, *result.failed, *outcome.failed)[:limit]
        conflicts = (*record.conflicts, *map(_conflict, outcome.conflicts))[:limit]
        self.record = replace(record, failures=failures, conflicts=conflicts)

    def _advance(self, page: Page, counts: Counts) -> None:
        last = page.last_evaluated_key
        held = self._ordered.reached(last, self._held) if self._ordered is not None and self._held is not None else ()
        self.record = replace(
            self.record,
            counts=self.record.counts + counts,
            last_evaluated_key=(last or b"").decode(),
            done=last is None,
            held=held,
        )
        self._run.progress(counts)

    def _count_unfinished(self, page: Page, outcome: Outcome) -> None:
        """An error ended the page: what was acknowledged counts, but the page is read again, for what is left of it."""
        done = outcome.processed
        counts = Counts(done, done, done, read_units=page.read_units, write_units=outcome.units)
        counts = counts if self._counted else counts.units_alone
        self.record = replace(self.record, counts=self.record.counts + counts)
        self._run.progress(counts)

    def _next(self) -> tuple[Page | None, int | None]:
        """The page that was read while the last one was written, or else one that is read now; and its grant."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            return ahead.result(), None
        granted = self._run.cap.grant(lambda: self._run.stopping)
        if granted == 0:
            return None, granted
        return self._read(self.record.last_evaluated_key.encode() or None, granted), granted

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

    def _read(self, start: bytes | None, granted: int | None) -> Page | None:
        budget, limit = self._run.read_budget, self._sizer.limit(granted)
        expected = self._sizer.expected_units(limit)
        if not budget.acquire(expected, lambda: self._run.stopping):
            return None
        throttled = self._throttled(budget.throttled)
        page = self._run.reader.page(self._segment, start, limit, throttled, lambda: self._run.stopping)
        budget.settle(expected, page.read_units)
        return page

    def _throttled(self, slow_down: OnThrottle) -> OnThrottle:
        def throttled(reasons: Sequence[str]) -> None:
            with self._lock:
                self._throttles += 1
            slow_down(reasons)

        return throttled

    def _write(self, page: Page, result: PageResult) -> tuple[Outcome, BaseException | None]:
        """See all writes of a page through; gives what was acknowledged, and the error that ended it, if one did."""
        if self._run.plan.options.dry_run:
            return Outcome(), None
        if self._ordered is not None and self._held is not None:
            return self._ordered.page(page, result, self._held)
        return self._sending.page(result.writes) if result.writes else (Outcome(), None)

    def _keep(self, result: PageResult, outcome: Outcome) -> None:
        if result.rows:
            self._run.preview.offer(result.rows)
            if self._spills.rows is not None:
                self._spills.rows.add(item_line(bytes(row)) for row in result.rows)
        if outcome.skipped and self._spills.skipped is not None:
            self._spills.skipped.add(b'{"Keys":' + bytes(key) + b"}" for key in outcome.skipped)
        if outcome.held and self._spills.skipped is not None:
            self._spills.skipped.add(_line(key, CHILD_REMAINS) for key in outcome.held)
        failed = [*result.failed, *outcome.failed]
        if failed and self._spills.failed is not None:
            self._spills.failed.add(_failure_line(failure) for failure in failed)
        if outcome.conflicts and self._spills.conflicts is not None:
            self._spills.conflicts.add(_line(key, VERSION_CONFLICT) for key in outcome.conflicts)

    def _counts(self, page: Page, result: PageResult, outcome: Outcome) -> Counts:
        throttled, self._throttles = self._throttles, 0
        return Counts(
            scanned=page.scanned,
            matched=page.matched,
            processed=outcome.processed,
            skipped=result.skipped + len(outcome.skipped) + len(outcome.held) + page.missing,
            failed=len(result.failed) + len(outcome.failed),
            conflicts=len(outcome.conflicts),
            read_units=page.read_units + outcome.read_units,
            write_units=outcome.units,
            throttled=throttled,
        )

    def _checkpoint(self) -> None:
        if self.record is self._saved:
            return
        files = self._spills.rows.close_file() if self._spills.rows is not None else ()
        for spill in self._spills.lists:
            if spill is not None:
                spill.close_file()
        self.record = replace(self.record, files=self.record.files + files)
        self._run.checkpoints.save(self.record)
        self._saved, self._saved_at = self.record, self._run.clock()


def _failure_line(failure: Failure) -> bytes:
    return msgspec.json.encode({"Keys": failure.key, "reason": failure.reason, "details": failure.details})


def _conflict(key: msgspec.Raw) -> Failure:
    return Failure(msgspec.json.decode(key), VERSION_CONFLICT)


def _line(key: msgspec.Raw, reason: str) -> bytes:
    return b'{"Keys":%b,"reason":"%b"}' % (key, reason.encode())


def run_segment(run: Run, segment: Segment) -> SegmentRecord:
    """Walk one segment; gives its record. See `SegmentRun`."""
    return SegmentRun(run, segment).walk()


def run_segments(run: Run, numbers: Iterable[int]) -> list[SegmentRecord]:
    """Walk many segments with `run.threads` threads, each taking the next one in the given order.

    Phases are walked by one thread, because the next one begins when all of the one before is acknowledged. The first
    error stops all threads at their page boundary and is raised when every checkpoint is written.
    """
    phases = run.plan.work.phases
    assert not phases or run.plan.segments == len(phases), "each phase is a segment"
    queue, records, failed = deque(numbers), [], []  # type: tuple[deque[int], list[SegmentRecord], list[BaseException]]
    failing = threading.Event()
    lanes = ThreadPoolExecutor(IN_FLIGHT, thread_name_prefix="request")
    threads = 1 if phases else run.threads
    inner = replace(run, stop=lambda: failing.is_set() or run.stop(), lanes=lanes, threads=threads)

    def work() -> None:
        while queue and not inner.stopping:
            try:
                number = queue.popleft()
            except IndexError:
                return
            try:
                records.append(run_segment(inner, Segment(number, run.plan.segments)))
                if phases and not records[-1].done:
                    return  # never what removes before all of what makes
            except BaseException as error:  # noqa: BLE001 - a thread's boundary: raised again in the caller's thread
                failed.append(error)
                failing.set()

    walking = threading.Semaphore(threads)

    def walk() -> None:
        with walking:
            work()

    workers = ThreadPoolExecutor(threads, thread_name_prefix="segment-worker")
    try:
        wait([workers.submit(walk) for _ in range(min(threads, len(queue)))])
    except BaseException:  # Ctrl-C in the caller's thread: nothing may be written after it has been told
        failing.set()
        # Not the pool's threads: it does not know one that was being started when the Ctrl-C came.
        for _ in range(threads):
            walking.acquire()
        walking.release(threads)
        raise
    finally:
        workers.shutdown()
        lanes.shutdown()
    if failed:
        raise failed[0]
    return records
