"""The fleet's rate limit in virtual time: the real `Spender` and `MemoryLeaseStore`, thousands of simulated requests.

    python benchmarks/fleet_simulation.py [CASE ...]

Columns: `over` is the highest 1 s window, less one request, against the rate; `bound` whether that is at most 5 %;
`used` the share of the rate that was used from the third second on; `settled` when the first full second at 95 % began;
`writes/s` and `reads/s` the load on the control item.
"""

import argparse
import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from math import isfinite
from typing import Any

from bulkexec.leases import MemoryLeaseStore
from bulkexec.spender import Go, Lease, Slow, Spender, Wait

UPTIME = 1_000_000.0
"""Hosts' clocks run from large numbers, so that rounding is as real."""


@dataclass(frozen=True)
class Case:
    """One simulated fleet. `active` workers want units, each with one request of `cost` units after another.

    A request takes about `latency_seconds`; hosts' clocks differ by up to `skew_seconds`, and workers join over
    `joining_seconds`, those with the slowest clocks first; `deaths` is the share of
    workers that die, spread over the run; `capacity` is what the table can do (None: enough), the rest is throttled.
    `changes` are (seconds, rate) from outside.
    """

    name: str
    workers: int
    rate: float
    cost: float = 1.0
    active: int | None = None
    threads: int = 4
    latency_seconds: float = 0.008
    round_trip_seconds: float = 0.005
    skew_seconds: float = 0.0
    joining_seconds: float = 0.0
    deaths: float = 0.0
    capacity: float | None = None
    estimate_error: float = 0.0
    pause_share: float = 0.0
    changes: tuple[tuple[float, float], ...] = ()
    seconds: float = 8.0
    seed: int = 1


@dataclass
class Outcome:
    """What was spent when, and the load on the store."""

    case: Case
    spent: list[tuple[float, float]] = field(default_factory=list)
    throttled: int = 0
    writes: int = 0
    reads: int = 0

    def units(self, start: float, end: float) -> float:
        """Units spent from `start` until `end`, in seconds of the run."""
        return sum(units for at, units in self.spent if start <= at < end)

    def over(self) -> float:
        """By what share of the rate the highest 1 s window, less one request, exceeds it."""
        highest = within = 0.0
        first = 0
        for at, units in self.spent:
            within += units
            while self.spent[first][0] < at - 1:
                within -= self.spent[first][1]
                first += 1
            highest = max(highest, within)
        return (highest - max(units for _, units in self.spent)) / self.case.rate - 1

    @property
    def within_bound(self) -> bool:
        """At most 105 % of the rate plus one request in any 1 s window, from the first second on."""
        return self.over() <= 0.05

    def used(self, start: float = 3.0) -> float:
        """Share that was used from `start` on, of the rate or of what the table could do if that is less.

        A request at the edge counts as far as its time lies within.
        """
        case = self.case
        possible = min(case.rate, case.capacity or case.rate) * (case.seconds - start)
        return min(self.units(start, case.seconds) + case.cost, possible) / possible

    def settled_seconds(self) -> float:
        """When the first second at 95 % of the rate, but for one request, began; infinite when there was none."""
        wanted = 0.95 * self.case.rate - self.case.cost
        tenths = (tenth / 10 for tenth in range(int(self.case.seconds * 10) - 10))
        return next((start for start in tenths if self.units(start, start + 1) >= wanted), float("inf"))


class Simulation:
    """Events in order of time. A process is a generator that yields how long it sleeps."""

    def __init__(self, case: Case) -> None:
        self.case, self.now = case, 0.0
        self.chance = random.Random(case.seed)
        self.store = MemoryLeaseStore(case.rate)
        self.outcome = Outcome(case)
        self._events: list[tuple[float, int, Iterator[float]]] = []
        self._numbers = count()
        self._in_second: tuple[int, float] = (0, 0.0)

    def run(self) -> Outcome:
        """Play it."""
        active = self.case.workers if self.case.active is None else self.case.active
        for number in range(active):
            self._worker(number)
        for at, rate in self.case.changes:
            self._start(self._change(at, rate), 0.0)
        while self._events:
            self.now, _, process = heapq.heappop(self._events)
            if self.now >= self.case.seconds:
                break
            self._step(process)
        return self.outcome

    def _start(self, process: Iterator[float], delay_seconds: float) -> None:
        heapq.heappush(self._events, (self.now + delay_seconds, next(self._numbers), process))

    def _step(self, process: Iterator[float]) -> None:
        delay_seconds = next(process, None)
        if delay_seconds is not None:
            self._start(process, delay_seconds)

    def _change(self, at: float, rate: float) -> Iterator[float]:
        yield at
        self.store.set_ceiling(rate)

    def _worker(self, number: int) -> None:
        case, place = self.case, number / max(1, self.case.workers - 1)
        skew = case.skew_seconds * (2 * place - 1 if case.joining_seconds else self.chance.uniform(-1, 1))
        share_dead = number / case.workers / case.deaths if case.deaths else 1.0
        dies_at = case.seconds * share_dead if share_dead < 1 else float("inf")
        joins_at = case.joining_seconds * place

        def local() -> float:
            return UPTIME + skew + self.now

        spender = Spender(case.workers, local() + joins_at, self.chance)
        for _ in range(case.threads):
            self._start(self._thread(spender, local, dies_at), joins_at + self.chance.uniform(0, 0.002))

    def _thread(self, spender: Spender, local: Callable[[], float], dies_at: float) -> Iterator[float]:
        case, chance = self.case, self.chance
        while True:
            ticket = object()
            spender.enter(ticket, case.cost)
            yield from self._acquire(spender, ticket, local)
            if self.now >= dies_at:
                return
            attempt = 0
            while (consumed := self._send(spender)) is None:  # the client tries again with backoff, as wire.Retry does
                yield chance.uniform(0, min(5.0, 0.05 * 2.0**attempt))
                attempt += 1
            yield chance.expovariate(1 / case.latency_seconds)
            spender.settle(case.cost, consumed, local())
            if case.pause_share and chance.random() < case.pause_share:
                yield chance.uniform(0, 1)

    def _acquire(self, spender: Spender, ticket: object, local: Callable[[], float]) -> Iterator[float]:
        half = 2 / self.case.round_trip_seconds
        while not isinstance(step := spender.next_step(ticket, local()), Go):
            if isinstance(step, Wait):
                yield max(0.0005, min(step.seconds, 0.1))
                continue
            yield self.chance.expovariate(half)
            answer = step.run(self.store)
            self.outcome.writes += isinstance(step, Lease | Slow)
            self.outcome.reads += not isinstance(step, Lease | Slow)
            yield self.chance.expovariate(half)
            spender.answered(step, answer, local())

    def _send(self, spender: Spender) -> float | None:
        """The table's side: units consumed, None when it throttles."""
        case = self.case
        second, units = self._in_second if self._in_second[0] == int(self.now) else (int(self.now), 0.0)
        if case.capacity is not None and units >= case.capacity:
            self.outcome.throttled += 1
            spender.throttled()
            return None
        consumed = case.cost * self.chance.uniform(1 - case.estimate_error, 1 + case.estimate_error)
        self._in_second = second, units + consumed
        self.outcome.spent.append((self.now, consumed))
        return consumed


def simulate(case: Case) -> Outcome:
    """Play one case."""
    return Simulation(case).run()


SIZES = ((1, 1.0), (1, 100.0), (1, 2_000.0), (8, 1.0), (8, 100.0), (8, 4_000.0), (64, 100.0), (64, 20_000.0))
LARGE = ((880, 1.0), (880, 50.0), (880, 1_000.0), (880, 20_000.0), (880, 100_000.0))


def cases() -> list[Case]:
    """Every fleet size and rate with even demand, and what can go wrong."""
    even = [
        Case(f"even {workers} x {rate:g}", workers, rate, cost=max(1.0, rate / workers / 4))
        for workers, rate in (*SIZES, *LARGE)
    ]
    pages = [
        replace(
            Case("pages", 1, 100, cost=25.0, seconds=30.0),
            name=f"pages {workers} x {rate:g}",
            workers=workers,
            rate=rate,
        )
        for workers, rate in ((1, 10.0), (8, 100.0), (64, 1_000.0), (880, 10_000.0), (880, 40_000.0))
    ]
    wrong = [
        Case("skewed 1 of 64", 64, 1_000, cost=5.0, active=1, latency_seconds=0.004),
        Case("skewed 10 of 880", 880, 1_000, active=10),
        Case("skewed 200 of 880", 880, 1_000, active=200),
        Case("deaths 64", 64, 1_000, deaths=0.2),
        Case("deaths 880", 880, 10_000, cost=5.0, deaths=0.2),
        Case("clocks 8", 8, 100, skew_seconds=2.0),
        Case("clocks 64", 64, 1_000, skew_seconds=2.0),
        Case("clocks 880", 880, 1_000, skew_seconds=2.0),
        Case("clocks 8 joining", 8, 100, cost=5.0, skew_seconds=2.0, joining_seconds=4.0),
        Case("clocks 64 joining", 64, 1_000, skew_seconds=2.0, joining_seconds=4.0),
        Case("clocks 880 joining", 880, 1_000, skew_seconds=2.0, joining_seconds=4.0),
        Case("clocks 880 pages", 880, 20_000, cost=25.0, skew_seconds=2.0),
        Case("throttle storm 64", 64, 1_000, capacity=500.0, seconds=30.0),
        Case("throttle storm 880", 880, 1_000, capacity=500.0, seconds=30.0),
        Case("estimates off 64", 64, 1_000, cost=5.0, estimate_error=0.5),
        Case("estimates off 880", 880, 10_000, cost=10.0, estimate_error=0.5),
        Case("pauses 64 x 4 threads", 64, 1_000, cost=5.0, threads=4, pause_share=0.2),
        Case("slow requests 880", 880, 20_000, cost=25.0, latency_seconds=0.1),
        Case("slow store 64", 64, 1_000, round_trip_seconds=0.04),
        Case("100 to 30 to 0 to 100", 8, 100, changes=((5.0, 30.0), (10.0, 0.0), (15.0, 100.0)), seconds=20.0),
    ]
    return even + pages + wrong


def row(outcome: Outcome) -> dict[str, Any]:
    """One entry of results.json."""
    case = outcome.case
    return {
        "name": "fleet",
        "variant": case.name,
        "workers": case.workers,
        "rate_units_per_second": case.rate,
        "over": outcome.over(),
        "bound": outcome.within_bound,
        "used": outcome.used(),
        "settled_seconds": settled if isfinite(settled := outcome.settled_seconds()) else None,
        "control_writes_per_second": outcome.writes / case.seconds,
        "control_reads_per_second": outcome.reads / case.seconds,
        "throttled": outcome.throttled,
    }


def results(names: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Rows of every case, or of those whose name contains one of `names`."""
    chosen = [case for case in cases() if not names or any(name in case.name for name in names)]
    return (row(simulate(case)) for case in chosen)


def line(case: dict[str, Any]) -> str:
    """One row of the table for people."""
    settled = "never" if case["settled_seconds"] is None else f"{case['settled_seconds']:.1f}s"
    return (
        f"{case['variant']:<26}{case['over']:>8.1%}{'yes' if case['bound'] else 'NO':>7}{case['used']:>8.1%}"
        f"{settled:>9}{case['control_writes_per_second']:>10.0f}{case['control_reads_per_second']:>9.0f}"
        f"{case['throttled']:>11}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help="part of a case's name")
    print(
        f"{'case':<26}{'over':>8}{'bound':>7}{'used':>8}{'settled':>9}{'writes/s':>10}{'reads/s':>9}{'throttled':>11}"
    )
    for case in results(tuple(parser.parse_args().case)):
        print(line(case), flush=True)


if __name__ == "__main__":
    main()
