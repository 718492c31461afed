"""Rate limit in read or write units a second: reserve an estimate, settle with what was consumed.

`Limiter` is all that the engine knows: `Budget` limits one process, `bulkexec.fleet.FleetBudget` all processes of a job
together, and `bulkexec.budgets` holds those of a table and its indexes together.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final, Literal, Protocol

from bulkexec.errors import BadArgument

BURST_SECONDS: Final = 0.05
"""Credit that idle time may leave, in seconds of the rate: covers a late wake-up, stays within 5 % of any second."""

POLL_SECONDS: Final = 0.1
"""Longest sleep before a waiter looks again at `stop` and at the rate."""

MIN_SLEEP_SECONDS: Final = 0.001
BACK_OFF: Final = 0.7
BACK_OFF_SECONDS: Final = 1.0
RECOVERY_PER_SECOND: Final = 0.05
"""Additive recovery from throttling: this share of the full rate for each second, after one quiet second."""


KEY_RANGE: Final = "KeyRangeThroughputExceeded"
"""How the ThrottlingReasons of one hot partition end, after TableRead, TableWrite, IndexRead or IndexWrite."""

Kind = Literal["read", "write"]


class Limiter(Protocol):
    """Reserve an estimate, settle with what was consumed. Safe for threads."""

    def acquire(self, units: float, stop: Callable[[], bool]) -> bool:
        """Wait until `units` may be spent; False, with nothing spent, as soon as `stop()` is true."""

    def settle(self, estimated: float, consumed: float) -> None:
        """Correct an acquired estimate by what was consumed."""

    def throttled(self, reasons: Sequence[str] = ()) -> None:
        """The service throttled a request, for these ThrottlingReasons if it gave any."""

    @property
    def rate(self) -> float:
        """Units a second that may be spent now, by all that share the budget."""

    @property
    def share(self) -> float:
        """Units a second that this process can expect when all that share the budget want some."""

    def statistics(self) -> "RateStatistics":
        """What this process spent so far."""


def of_one_key_range(reasons: Sequence[str]) -> bool:
    """Whether a request was throttled for a hot partition alone, so that slowing others down would not help it."""
    return bool(reasons) and all(reason.endswith(KEY_RANGE) for reason in reasons)


@dataclass(frozen=True)
class RateStatistics:
    """Units a second of one budget. `limit` is None without a limit of ours; `throttled` counts throttled requests."""

    total_units: float
    mean: float
    peak: float
    limit: float | None
    throttled: int

    def __str__(self) -> str:
        limit = "none" if self.limit is None else f"{self.limit:,.4g}" if self.limit < 100 else f"{self.limit:,.0f}"
        return f"mean {self.mean:,.0f} units/s, highest second {self.peak:,.0f}, limit {limit}"


class Budget:
    """At most `rate` units a second; None is no limit of ours, 0 is paused.

    A request may go when nothing is owed, and then owes its own units. So in any second at most 105 % of the rate
    plus one request is spent, from the first second on, however small the rate and however large a request.
    Waiters go first come, first served. Throttling lowers the rate whatever the limit. Safe for threads.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._waiting: dict[object, float] = {}
        self._limit = _limit(rate)
        self._slowdown: _Slowdown | None = None
        self._throttled = 0
        self._balance = 0.0
        self._at = clock()
        self._meter = Meter()

    def acquire(self, units: float, stop: Callable[[], bool]) -> bool:
        """Wait until `units` may be spent; False, with nothing spent, as soon as `stop()` is true."""
        if stop():
            return False
        ticket = object()
        with self._lock:
            self._waiting[ticket] = units
            wait_seconds = self._try(ticket)
        if wait_seconds is None:
            return True
        try:
            return self._wait(ticket, wait_seconds, stop)
        finally:
            with self._lock:
                self._waiting.pop(ticket, None)

    def _wait(self, ticket: object, wait_seconds: float | None, stop: Callable[[], bool]) -> bool:
        while wait_seconds is not None:
            self._sleep(wait_seconds)
            if stop():
                return False
            with self._lock:
                wait_seconds = self._try(ticket)
        return True

    def settle(self, estimated: float, consumed: float) -> None:
        """Correct an acquired estimate by what was consumed (0 for a throttled request). Debt is waited out."""
        with self._lock:
            self._advance()
            self._spend(consumed - estimated)

    def throttled(self, reasons: Sequence[str] = ()) -> None:
        """The service throttled a request: slow down, at most once a second; but not for one hot partition."""
        with self._lock:
            self._advance()
            self._throttled += 1
            if of_one_key_range(reasons):
                return
            if self._slowdown is None:
                self._slowdown = _Slowdown.begin(self._limit, self._meter.recent, self._at)
            else:
                self._slowdown.again(self._at)
            self._balance = min(self._balance, self._burst)

    def set_rate(self, units_per_second: float | None) -> None:
        """A new limit, effective at once also for those who wait: None is no limit of ours, 0 pauses."""
        with self._lock:
            self._advance()
            self._limit = _limit(units_per_second)
            self._balance = min(self._balance, self._burst)

    @property
    def rate(self) -> float:
        """Units a second that may be spent now; infinite when neither a limit nor throttling holds it."""
        slowdown = inf if self._slowdown is None else self._slowdown.rate
        return min(inf if self._limit is None else self._limit, slowdown)

    @property
    def share(self) -> float:
        """All of it: nobody else shares this budget."""
        return self.rate

    def statistics(self) -> RateStatistics:
        """What was spent so far."""
        with self._lock:
            meter = self._meter
            return RateStatistics(meter.total, meter.mean, meter.peak, self._limit, self._throttled)

    @property
    def _burst(self) -> float:
        return self.rate * BURST_SECONDS

    def _try(self, ticket: object) -> float | None:
        """Spend the ticket's units and answer None, or answer how long to sleep before the next try."""
        self._advance()
        owed = self._ahead(ticket) - self._balance
        rate = self.rate
        if rate == inf or (owed <= 0 and rate > 0):
            self._spend(self._waiting.pop(ticket))
            return None
        return POLL_SECONDS if rate == 0 else min(POLL_SECONDS, max(MIN_SLEEP_SECONDS, owed / rate))

    def _ahead(self, ticket: object) -> float:
        """Units of those who came before; a dict keeps the order of arrival."""
        total = 0.0
        for other, units in self._waiting.items():
            if other is ticket:
                break
            total += units
        return total

    def _spend(self, units: float) -> None:
        self._meter.add(units, self._at)
        if self.rate != inf:
            self._balance = min(self._balance - units, self._burst)

    def _advance(self) -> None:
        """Credit the time since the last look, at the rate that held then; then let throttling wear off."""
        now = self._clock()
        elapsed, self._at = max(0.0, now - self._at), max(now, self._at)
        if self.rate == inf:
            self._balance = 0.0
            return
        self._balance = min(self._balance + self.rate * elapsed, self._burst)
        if self._slowdown is not None and self._slowdown.recover(elapsed, self._at):
            self._slowdown = None


class _Slowdown:
    """Additive increase, multiplicative decrease, from the first throttle until the full rate is reached again."""

    def __init__(self, rate: float, full_rate: float, at: float) -> None:
        self.rate, self._full_rate, self._throttled_at = rate, full_rate, at

    @staticmethod
    def begin(limit: float | None, recent: float, at: float) -> "_Slowdown":
        """Without a limit the rate is what was spent lately, and twice that counts as recovered."""
        rate = max(recent, 1.0) if limit is None else limit
        return _Slowdown(slower(rate), rate * 2 if limit is None else rate, at)

    def again(self, at: float) -> None:
        if at - self._throttled_at >= BACK_OFF_SECONDS:
            self.rate, self._throttled_at = slower(self.rate), at

    def recover(self, elapsed: float, at: float) -> bool:
        """Raise the rate after a quiet second; whether it is back to full."""
        quiet = at - self._throttled_at - BACK_OFF_SECONDS
        self.rate += max(0.0, min(quiet, elapsed)) * self._full_rate * RECOVERY_PER_SECOND
        return self.rate >= self._full_rate


class Meter:
    """Units by whole seconds since the first was spent."""

    def __init__(self) -> None:
        self.total = 0.0
        self._begin: float | None = None
        self._second = 0
        self._units = 0.0
        self._last_units = 0.0
        self._peak = 0.0
        self._end = 0.0

    def add(self, units: float, at: float) -> None:
        """Count units spent at a time; negative ones correct earlier ones."""
        begin = self._begin = at if self._begin is None else self._begin
        second = int(at - begin)
        if second != self._second:
            self._peak = self.peak
            self._last_units = self._units if second == self._second + 1 else 0.0
            self._second, self._units = second, 0.0
        self._units += units
        self.total += units
        self._end = at

    @property
    def peak(self) -> float:
        """Units in the highest whole second."""
        return max(self._peak, self._units)

    @property
    def recent(self) -> float:
        """The larger of this second, not over yet, and the one before."""
        return max(self._units, self._last_units)

    @property
    def mean(self) -> float:
        """Over the time between the first and the last unit, a second at least."""
        return self.total / max(1.0, self._end - (self._begin or 0.0)) if self.total else 0.0


@dataclass(frozen=True)
class Asked:
    """A rate as it was asked for: units a second, or a share (0.5 is 50 %) of what there is."""

    units_per_second: float | None = None
    share: float | None = None


def parse_asked(text: str, kind: Kind, *, pause: bool = False) -> Asked:
    """A rate from an option: "500", "1.5" or "50%"; with `pause` also "0". Raises BadArgument for anything else."""
    share = text.strip().endswith("%")
    number = _number(text.strip().removesuffix("%"), text, kind)
    if number < 0 or (number == 0 and not pause):
        raise BadArgument(f"--{kind}-rate {text}: must be more than 0; leave it out for the default")
    if share and number > 100:
        raise BadArgument(f"--{kind}-rate {text}: more than all of what there is; give units a second to go beyond")
    return Asked(share=number / 100) if share else Asked(units_per_second=number)


def parse_rate(text: str, kind: Kind) -> float:
    """Units a second from an option, e.g. "500" or "1.5". Raises BadArgument for anything but a number above 0."""
    asked = parse_asked(text, kind)
    if asked.units_per_second is None:
        raise BadArgument(f"--{kind}-rate {text}: a share cannot be given here; give units a second, e.g. 500")
    return asked.units_per_second


def _number(digits: str, text: str, kind: Kind) -> float:
    try:
        number = float(digits)
    except ValueError as error:
        raise BadArgument(
            f"--{kind}-rate {text}: neither units a second, such as 500, nor a share, such as 50%"
        ) from error
    if not isfinite(number):
        raise BadArgument(f"--{kind}-rate {text}: not a finite number")
    return number


def slower(rate: float) -> float:
    """The rate after a throttle: 70 %, but never below 1 unit a second because of throttling alone."""
    return max(rate * BACK_OFF, min(rate, 1.0))


def checked_rate(rate: float) -> float:
    """The rate itself. Raises ValueError for what is no rate."""
    if not (isfinite(rate) and rate >= 0):
        raise ValueError(f"a rate is None or a finite number of units a second from 0, not {rate}")
    return rate


def _limit(rate: float | None) -> float | None:
    return None if rate is None else checked_rate(rate)
