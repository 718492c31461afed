"""When one worker of a fleet asks for units and when a request may go: decisions only, with no clock and no I/O.

`fleet.FleetBudget` carries them out in threads; `benchmarks/fleet_simulation.py` carries them out in virtual time.
"""

import random
from dataclasses import dataclass
from math import ceil, floor, log2
from typing import Final

from bulkexec.leases import AHEAD_SECONDS, BEHIND_SECONDS, STALE_SECONDS, Leased, LeaseStore, Shared
from bulkexec.rate import BACK_OFF_SECONDS, POLL_SECONDS, slower

LATE_SECONDS: Final = 0.04
"""Leased units may be spent so long after their moment, that is 4 % of any second."""

ARRIVAL_SECONDS: Final = 0.25
"""A lease whose answer takes longer than this is not spent."""

SPAN_SECONDS: Final = (0.02, 0.05)
"""A lease of several requests covers two round trips to the store, within these bounds: at most 50 updates a second."""

ALONE_SPAN_SECONDS: Final = 0.1
"""What a lease covers while nobody else seems to want any."""

SOON_SECONDS: Final = 0.6 * AHEAD_SECONDS
"""A lease is asked for when it begins within this: with some room, or others would have taken it meanwhile."""

RECHECK_SECONDS: Final = 0.5
"""How often a worker that cannot lease looks again, since the rate may have changed."""

READS_PER_SECOND: Final = 200.0
"""How often all workers together look again while they wait."""

FRESH_SECONDS: Final = 0.06
"""With slices no longer than this the stamp is never old enough to matter."""
JOINING_READS: Final = 8
JOINING_READS_PER_SECOND: Final = 1000.0

FIRST_SPREAD_SECONDS: Final = 0.02
"""A worker that finds nothing to lease looks again within this, and twice that each further time."""

CREDIT_SECONDS: Final = 5.0
"""Units that were reserved and not consumed may be spent again so long."""

GROWTH: Final = (1.2, 1.1)
"""How fast leases grow while all of them is spent: until the first loss, and after one."""
GROWTH_PAUSE_LEASES: Final = 32
CALM_AFTER_LEASE: Final = 2
EPSILON_UNITS: Final = 1e-6


@dataclass(frozen=True)
class Go:
    """The request may be sent."""


@dataclass(frozen=True)
class Wait:
    """Ask again in so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Read:
    """Read what is shared."""

    def run(self, store: LeaseStore) -> Leased:
        """Ask the store."""
        return Leased(False, store.read())


@dataclass(frozen=True)
class Lease:
    """Lease a slice of the shared clock."""

    seconds: float
    now: float
    behind: bool

    def run(self, store: LeaseStore) -> Leased:
        """Ask the store."""
        return store.lease(self.seconds, self.now, self.behind)


@dataclass(frozen=True)
class Slow:
    """Lower everybody's rate."""

    rate: float
    now: float

    def run(self, store: LeaseStore) -> Leased:
        """Ask the store."""
        return Leased(False, store.slow(self.rate, self.now))


Ask = Read | Lease | Slow
Step = Go | Wait | Ask


@dataclass
class _Slice:
    """What is left of a lease: `units` may be spent evenly at `rate`, the next one at `at` or `late_seconds` after."""

    at: float = 0.0
    units: float = 0.0
    rate: float = 1.0
    late_seconds: float = LATE_SECONDS
    granted: float = 0.0
    lost: float = 0.0

    def expire(self, now: float) -> None:
        late = now - self.late_seconds - self.at
        if late > 0 and self.units > 0:
            lost = min(self.units, late * self.rate)
            self.units, self.at, self.lost = self.units - lost, self.at + late, self.lost + lost

    def take(self, units: float) -> None:
        self.units, self.at = max(0.0, self.units - units), self.at + units / self.rate


@dataclass
class _Appetite:
    """How many units this worker has lately been able to spend of one lease; leasing more would waste them."""

    units: float = 0.0
    pause: int = 0
    growth: float = GROWTH[0]

    def learn(self, spent: _Slice, now: float) -> None:
        """From a lease about to be replaced, at the time when more is needed."""
        used = spent.granted - spent.lost
        if spent.lost > 0.02 * spent.granted:
            self.units, self.pause, self.growth = 0.8 * used, GROWTH_PAUSE_LEASES, GROWTH[1]
        elif self.pause:
            self.pause -= 1
        elif now - spent.at <= LATE_SECONDS:  # a longer lease could have been spent as well
            self.units = max(self.units, used) * self.growth


class Spender:
    """Decides for one worker when to ask the store and when a request may go. It does neither itself and has no clock.

    `local` is any clock of this process that runs evenly; `now` is the fleet's. A step other than `Go` and `Wait` is to
    be carried out and followed by `answered` or `failed`; meanwhile no second one is given. Not thread-safe.
    """

    def __init__(self, workers: int, local: float, chance: random.Random) -> None:
        self._spread_seconds = 2 * workers / READS_PER_SECOND
        self._recheck_seconds = max(RECHECK_SECONDS, workers / READS_PER_SECOND)
        self._chance = chance
        self._queue: dict[object, float] = {}
        self._slice = _Slice()
        self._appetite = _Appetite()
        self._owed = 0.0
        self._credit_until = 0.0
        self._shared: Shared | None = None
        self._ahead_seconds = -local
        self._retry_at = local + chance.uniform(0, self._spread_seconds / 4 if workers > 1 else 0.0)
        self._doubt = True
        self._first_until = local
        self._joining_reads_seconds = workers / JOINING_READS_PER_SECOND
        self._joined_at_stamp: float | None = None
        self._joined = False
        self._asked_at: float | None = None
        self._round_trip_seconds = SPAN_SECONDS[0] / 2
        self._throttled = False
        # Where all of a large fleet begins at once, each begins as if it had been refused some times already.
        self._blocked = max(0, round(log2(self._spread_seconds / FIRST_SPREAD_SECONDS)) - 3)
        self._alone = True
        self._refused = False
        self._failures = 0
        self._down_since = 0.0

    # -- requests ------------------------------------------------------------------------------------------------

    def enter(self, ticket: object, units: float) -> None:
        """A request of so many units wants to go; first come, first served."""
        self._queue[ticket] = units

    def leave(self, ticket: object) -> None:
        """It no longer wants to, or has gone."""
        self._queue.pop(ticket, None)

    def settle(self, estimated: float, consumed: float, local: float) -> None:
        """Correct an estimate. Debt goes into the next lease; what was not consumed may be spent again for a moment."""
        self._owed = max(self._owed + consumed - estimated, min(self._owed, -estimated))
        self._credit_until = local + CREDIT_SECONDS

    def throttled(self) -> None:
        """A request was throttled: the next step that talks to the store lowers everybody's rate."""
        self._throttled = True

    def rate(self, local: float) -> float:
        """The fleet's rate as far as it is known here; 0 before the first answer."""
        return 0.0 if self._shared is None else self._shared.rate(local + self._ahead_seconds)

    def ceiling(self) -> float | None:
        """The rate that was asked for, None before the first answer."""
        return None if self._shared is None else self._shared.ceiling

    # -- decisions -----------------------------------------------------------------------------------------------

    def next_step(self, ticket: object, local: float) -> Step:
        """What the holder of this ticket does now."""
        self._slice.expire(local + self._ahead_seconds)
        if ticket is not next(iter(self._queue)):
            return Wait(max(0.0, self._first_until - local) + self._turn_seconds(ticket, local))
        step = self._first_step(ticket, local)
        self._first_until = local + step.seconds if isinstance(step, Wait) else local
        return step

    def _first_step(self, ticket: object, local: float) -> Step:
        now = local + self._ahead_seconds
        need = self._need(self._queue[ticket], local)
        if need <= self._slice.units + EPSILON_UNITS and self.rate(local) > 0:
            if need > 0 and self._slice.at > now:
                return Wait(self._slice.at - now)
            self._spend(ticket, need)
            return Go()
        self._bank(self._queue[ticket], local)
        return self._fetch(self._need(self._queue[ticket], local), local)

    def _bank(self, units: float, local: float) -> None:
        """What is left of a lease and does not cover the next request is kept for it if it is little, or else lost."""
        left, self._slice.units = self._slice.units, 0.0
        if 0 < left <= self._slice.rate * LATE_SECONDS:
            self._owed = max(self._owed - left, min(self._owed, -units))
            self._credit_until = local + CREDIT_SECONDS

    def _need(self, units: float, local: float) -> float:
        if self._owed < 0 and local > self._credit_until:
            self._owed = 0.0
        return max(0.0, units + self._owed)

    def _spend(self, ticket: object, need: float) -> None:
        self._owed = min(0.0, self._queue.pop(ticket) + self._owed)
        self._slice.take(need)

    def _turn_seconds(self, ticket: object, local: float) -> float:
        ahead_units = 0.0
        for other, units in self._queue.items():
            if other is ticket:
                break
            ahead_units += units
        return ahead_units / rate if (rate := self.rate(local)) > 0 else POLL_SECONDS

    def _fetch(self, need: float, local: float) -> Step:
        if self._asked_at is not None:
            return Wait(self._round_trip_seconds / 4)
        if local < self._retry_at:
            return Wait(self._retry_at - local)
        if self._shared is None or self._doubt:
            return self._ask(Read(), local)
        if self.rate(local) <= 0:
            return self._hold(self._recheck_seconds, local)
        if not self._joined and not self._joins(self._shared, local):
            return self._look_again(self._shared, local)
        return self._lease(self._shared, need, local)

    def _joins(self, shared: Shared, local: float) -> bool:
        """Whether this clock is the fleet's well enough for a first lease.

        The stamp first read may be as old as the last slice is long. It is not if it was seen to change, or if all
        slices that were handed out would be over by now.
        """
        first = self._joined_at_stamp = shared.stamp if self._joined_at_stamp is None else self._joined_at_stamp
        over = shared.tat - SOON_SECONDS <= local + self._ahead_seconds
        self._joined = shared.stamp != first or over or shared.tat - shared.stamp <= FRESH_SECONDS
        return self._joined

    def _look_again(self, shared: Shared, local: float) -> Wait:
        part_seconds = max((shared.tat - shared.stamp) / JOINING_READS, self._joining_reads_seconds)
        wait_seconds = min(part_seconds, self._recheck_seconds) * self._chance.uniform(0.5, 1)
        self._retry_at, self._doubt = local + wait_seconds, True
        return Wait(wait_seconds)

    def _lease(self, shared: Shared, need: float, local: float) -> Step:
        now = local + self._ahead_seconds
        rate = shared.rate(now)
        if self._throttled and now - shared.throttled_at >= BACK_OFF_SECONDS:
            return self._ask(Slow(slower(rate), now), local)
        if self._refused or shared.tat > now + SOON_SECONDS:
            return self._hold(max(0.0, shared.tat - SOON_SECONDS - now), local)
        seconds = ceil(self._lease_units(need, rate) / rate * 1e6) / 1e6
        return self._ask(Lease(seconds, now, self._behind(shared, now)), local)

    def _behind(self, shared: Shared, now: float) -> bool:
        """Whether time was left unused: as far as is known, and only if nobody else has leased since."""
        return shared.tat < now - (BEHIND_SECONDS if self._alone else STALE_SECONDS)

    def _ask(self, step: Ask, local: float) -> Ask:
        self._asked_at = local
        return step

    def _hold(self, seconds: float, local: float) -> Wait:
        """Nothing can be leased before so many seconds: look again then, not all workers at once."""
        spread_seconds = min(self._spread_seconds, FIRST_SPREAD_SECONDS * 2.0**self._blocked)
        self._blocked += 1
        wait_seconds = min(seconds, self._recheck_seconds) + self._chance.uniform(0, spread_seconds)
        self._retry_at, self._doubt, self._refused = local + wait_seconds, True, False
        return Wait(wait_seconds)

    def _lease_units(self, need: float, rate: float) -> float:
        """Whole requests: as many as wait or as could be spent lately, within the span; large debt is paid alone."""
        if self._owed > rate * AHEAD_SECONDS:
            return self._owed
        span_seconds = min(max(2 * self._round_trip_seconds, SPAN_SECONDS[0]), SPAN_SECONDS[1])
        span_seconds = ALONE_SPAN_SECONDS if self._alone else span_seconds
        wanted = min(max(self._appetite.units, sum(self._queue.values())), rate * span_seconds)
        each = max(next(iter(self._queue.values())), EPSILON_UNITS)
        return need + each * max(0, floor((wanted - need) / each))

    # -- answers -------------------------------------------------------------------------------------------------

    def answered(self, step: Ask, answer: Leased, local: float) -> None:
        """The store's answer to a step."""
        took_seconds = local - (local if self._asked_at is None else self._asked_at)
        self._round_trip_seconds = 0.8 * self._round_trip_seconds + 0.2 * took_seconds
        self._asked_at, self._failures, self._doubt = None, 0, False
        self._shared = answer.shared
        # The fleet's clock showed the stamp when it was written, so it shows at least that now.
        self._ahead_seconds = max(self._ahead_seconds, answer.shared.stamp - local)
        if local + self._ahead_seconds - answer.shared.throttled_at < BACK_OFF_SECONDS:
            self._throttled = False  # somebody has just said so
        if isinstance(step, Lease):
            self._leased(step, answer, local + self._ahead_seconds)

    def _leased(self, step: Lease, answer: Leased, now: float) -> None:
        start = answer.shared.tat - step.seconds
        too_old_seconds = max(0.0, step.now - BEHIND_SECONDS - start)
        if not answer.granted:
            self._refused = answer.shared.tat > step.now + AHEAD_SECONDS
            self._alone = False
            return
        self._blocked = max(0, self._blocked - CALM_AFTER_LEASE)
        self._doubt = self._blocked > 0  # others are waiting too: look before the next one, reading is cheaper
        self._alone = step.behind or too_old_seconds > 0 or (self._alone and start <= step.now)
        self._begin(start + too_old_seconds, max(0.0, step.seconds - too_old_seconds), now)

    def _begin(self, start: float, seconds: float, now: float) -> None:
        """A lease begins. Its rate is the one that came with it, and it pays what is owed first."""
        assert self._shared is not None
        old, rate, late = self._slice, self._shared.rate(now), now - start
        old.expire(now)
        self._appetite.learn(old, now)
        units = seconds * rate if late <= ARRIVAL_SECONDS else 0.0
        self._slice = _Slice(start, old.units + units, max(rate, EPSILON_UNITS), max(LATE_SECONDS, late), units)
        paid = min(max(0.0, self._owed), self._slice.units)
        self._owed -= paid
        self._slice.take(paid)

    def failed(self, local: float) -> float:
        """The store did not answer: nothing new is spent; try again after a while. Gives seconds since it last did."""
        self._down_since = local if not self._failures else self._down_since
        self._failures += 1
        wait_seconds = self._chance.uniform(0, min(5.0, 0.1 * 2.0**self._failures))
        self._asked_at, self._doubt, self._retry_at = None, True, local + wait_seconds
        return local - self._down_since
