"""Stops a run when what it has metered costs as much as it may. Thread-safe; no I/O.

DynamoDB's part is exact, being made of consumed units; that of Glue is time. What a page that is under way still costs
comes on top: a page is about a second of work, and a fleet's counts are read every few seconds.
"""

import threading
import time
from collections.abc import Callable

from bulkexec import errors
from bulkexec.model import Counts
from bulkexec.plan import CostLimit, Estimate


def require_affordable(estimate: Estimate | None, limit: CostLimit | None, usd: float) -> CostLimit:
    """The limit of a run, before it starts.

    Raises `errors.TooExpensive` when even the low end of the estimate is above it, and when a price is not known, so
    that nobody could say when it is reached.
    """
    if limit is None:
        raise errors.TooExpensive(
            "--max-cost cannot be kept: a price is not known",
            fix="leave --max-cost out, or give --max-items",
            state="nothing written",
        )
    span = None if estimate is None else estimate.usd
    if span is not None and span[0] > usd:
        raise errors.TooExpensive(
            f"the run costs at least ${span[0]:,.6g}, more than --max-cost {usd:,.6g}",
            fix="narrow the filter, give --max-items, or a higher --max-cost",
            state="nothing written",
        )
    return limit


class CostCap:
    """Counts what one run has cost, and says when that is as much as it may. Without a limit never."""

    def __init__(self, limit: CostLimit | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock, self._began = limit, clock, clock()
        self._lock, self._counts = threading.Lock(), Counts()
        self._first: Counts | None = None

    def add(self, counts: Counts) -> None:
        """Take in what was metered since the last time."""
        with self._lock:
            self._counts += counts

    def set(self, counts: Counts) -> bool:
        """Take in what was metered, where somebody else adds it up; what it was the first time is of earlier runs.

        Gives whether the cap is reached.
        """
        with self._lock:
            first = self._first = self._first or counts
            units = counts.read_units - first.read_units, counts.write_units - first.write_units
            self._counts = Counts(read_units=units[0], write_units=units[1])
        return self.reached

    @property
    def spent_usd(self) -> float:
        """Dollars until now; 0 without a limit."""
        if self._limit is None:
            return 0.0
        with self._lock:
            return self._limit.spent(self._counts, self._clock() - self._began)

    @property
    def reached(self) -> bool:
        """Whether the run should stop at its next page boundary."""
        return self._limit is not None and self.spent_usd >= self._limit.usd

    @property
    def words(self) -> str:
        """What was reached, for the job's record."""
        return "" if self._limit is None else f"${self._limit.usd:,.6g}"
