"""One budget for all workers of a job: exact from the first second, with no coordinator and no feedback loop.

Guarantee: a slice of the shared clock (see `leases`) is handed out once and spent at its moment, or at most
`LATE_SECONDS` later; what is left of it then is lost. So in any second at most 105 % of the rate and one request is
spent, whatever the number of workers. A dead worker costs the one lease it holds.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bulkexec import errors
from bulkexec.leases import Leased, LeaseStore, LeaseStoreDown
from bulkexec.rate import MIN_SLEEP_SECONDS, POLL_SECONDS, Meter, RateStatistics, of_one_key_range
from bulkexec.spender import Ask, Go, Spender, Wait

DOWN_SECONDS: Final = 300.0
"""A store that is silent for longer ends the run."""


@dataclass
class FleetBudget:
    """A `rate.Limiter` whose units come from a lease store that all workers of a job share. Safe for threads.

    Make one in each process, and let its threads share it. `workers` is how many processes there are, roughly: it
    spreads their questions. Raises what the store raises except `LeaseStoreDown`: then no units are handed out until
    the store answers again, and `errors.Exhausted` after 5 minutes.
    """

    store: LeaseStore
    workers: int = 1
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._spender = Spender(self.workers, self.clock(), self.chance)
        self._meter = Meter()
        self._throttled = 0

    def acquire(self, units: float, stop: Callable[[], bool]) -> bool:
        """See `Limiter.acquire`."""
        ticket = object()
        with self._lock:
            self._spender.enter(ticket, units)
        try:
            while not stop():
                with self._lock:
                    step = self._spender.next_step(ticket, self.clock())
                    if isinstance(step, Go):
                        self._meter.add(units, self.clock())
                        return True
                self._carry_out(step)
            return False
        finally:
            with self._lock:
                self._spender.leave(ticket)

    def _carry_out(self, step: Wait | Ask) -> None:
        if isinstance(step, Wait):
            self.sleep(min(POLL_SECONDS, max(MIN_SLEEP_SECONDS, step.seconds)))
            return
        try:
            answer = step.run(self.store)
        except LeaseStoreDown as down:
            if self._failed() > DOWN_SECONDS:
                raise errors.Exhausted("the control table does not answer", why=str(down)) from down
        except BaseException:
            self._failed()  # or the other threads would wait for this answer
            raise
        else:
            self._answered(step, answer)

    def _failed(self) -> float:
        with self._lock:
            return self._spender.failed(self.clock())

    def _answered(self, step: Ask, answer: Leased) -> None:
        with self._lock:
            self._spender.answered(step, answer, self.clock())

    def settle(self, estimated: float, consumed: float) -> None:
        """See `Limiter.settle`."""
        with self._lock:
            now = self.clock()
            self._meter.add(consumed - estimated, now)
            self._spender.settle(estimated, consumed, now)

    def throttled(self, reasons: Sequence[str] = ()) -> None:
        """See `Limiter.throttled`. The whole fleet slows down, unless it is one hot partition."""
        with self._lock:
            self._throttled += 1
            if not of_one_key_range(reasons):
                self._spender.throttled()

    def set_rate(self, units_per_second: float) -> None:
        """A new rate for the whole fleet; 0 pauses. Raises `LeaseStoreDown`."""
        self.store.set_ceiling(units_per_second)

    @property
    def rate(self) -> float:
        """The fleet's units a second, read from the store if it is not known yet."""
        with self._lock:
            known = self._spender.ceiling() is not None
        if not known:
            shared = self.store.read()
            return shared.rate(shared.stamp)
        with self._lock:
            return self._spender.rate(self.clock())

    @property
    def share(self) -> float:
        """The fair part of one of the fleet's workers."""
        return self.rate / self.workers

    def statistics(self) -> RateStatistics:
        """What this process spent so far; the limit is the fleet's."""
        with self._lock:
            meter = self._meter
            limit = self._spender.ceiling()
            return RateStatistics(meter.total, meter.mean, meter.peak, limit, self._throttled)
