"""The fleet's budget: the simulation of `benchmarks/`, and the threads of one process."""

import importlib.util
import random
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec import errors
from bulkexec.fleet import FleetBudget
from bulkexec.leases import AHEAD_SECONDS, BEHIND_SECONDS, LeaseStoreDown, MemoryLeaseStore, Shared
from bulkexec.spender import Go, Lease, Spender, Wait

SIMULATION = Path(__file__).parents[2] / "benchmarks" / "fleet_simulation.py"


def load_simulation():
    spec = importlib.util.spec_from_file_location("fleet_simulation", SIMULATION)
    module = importlib.util.module_from_spec(spec)
    sys.modules["fleet_simulation"] = module
    spec.loader.exec_module(module)
    return module


simulation = load_simulation()
Case = simulation.Case


def never():
    return False


@pytest.mark.parametrize(
    "case",
    [
        Case("one", 1, 1.0),
        Case("one", 1, 2_000.0, cost=5.0),
        Case("few", 8, 1.0),
        Case("few", 8, 100.0),
        Case("many", 64, 1_000.0, cost=4.0),
        Case("large", 880, 1.0, seconds=6.0),
        Case("large", 880, 1_000.0, seconds=6.0),
        Case("large", 880, 100_000.0, cost=28.0, seconds=5.0),
        Case("skewed", 64, 1_000.0, cost=5.0, active=1, latency_seconds=0.004),
        Case("skewed", 880, 1_000.0, active=10),
        Case("clocks", 64, 1_000.0, skew_seconds=2.0),
        Case("clocks", 880, 20_000.0, cost=25.0, skew_seconds=2.0, seconds=5.0),
        Case("slow store", 64, 1_000.0, round_trip_seconds=0.04),
        Case("estimates", 64, 1_000.0, cost=5.0, estimate_error=0.5),
    ],
    ids=lambda case: f"{case.name} {case.workers} x {case.rate:g}",
)
def test_holds_the_rate_from_the_first_second_and_uses_it(case):
    # case C053, case C054, case C061
    outcome = simulation.simulate(case)
    assert outcome.within_bound
    assert outcome.used() >= 0.95
    assert outcome.settled_seconds() <= 3


@pytest.mark.parametrize("joining_seconds", [0.0, 0.5, 4.0])
@pytest.mark.parametrize(("workers", "rate", "cost"), [(8, 1.0, 1.0), (8, 100.0, 25.0), (64, 1_000.0, 1.0)])
def test_clocks_apart_add_nothing_even_if_faster_ones_keep_joining(workers, rate, cost, joining_seconds):
    case = Case("", workers, rate, cost, skew_seconds=2.0, joining_seconds=joining_seconds, seconds=6.0)
    for seed in range(3):
        outcome = simulation.simulate(replace(case, seed=seed))
        assert outcome.within_bound
        assert outcome.used() >= 0.95


def test_a_dead_worker_costs_at_most_one_lease():
    case = Case("deaths", 64, 1_000.0, deaths=0.2)
    outcome = simulation.simulate(case)
    assert outcome.within_bound
    dead = int(case.workers * case.deaths)
    assert outcome.units(0, case.seconds) >= case.rate * (case.seconds - 0.3) - dead * 0.05 * case.rate


def test_throttling_slows_the_fleet_to_what_the_table_can_do_and_it_recovers():
    outcome = simulation.simulate(Case("storm", 64, 1_000.0, capacity=500.0, seconds=20.0))
    assert outcome.within_bound
    assert outcome.used(5.0) >= 0.75
    too_many = (outcome.case.rate - outcome.case.capacity) * outcome.case.seconds
    assert 0 < outcome.throttled <= 0.3 * too_many


def test_rate_changes_are_obeyed_within_3_seconds():
    changes = ((5.0, 30.0), (10.0, 0.0), (15.0, 100.0))
    outcome = simulation.simulate(Case("changes", 8, 100.0, changes=changes, seconds=20.0))
    assert outcome.units(8, 10) == pytest.approx(60, abs=4)
    assert outcome.units(13, 15) == 0
    assert outcome.units(18, 20) == pytest.approx(200, abs=8)


def test_long_debts_are_waited_out_at_a_new_rate():
    """A page of 128 units at 1 unit a second blocks for 2 minutes; at 100 it may not."""
    changes = ((5.0, 100.0),)
    outcome = simulation.simulate(Case("debt", 4, 1.0, cost=128.0, changes=changes, seconds=20.0))
    assert outcome.units(0, 5) == 128
    assert outcome.units(8, 20) == pytest.approx(1200, abs=130)


def test_control_items_see_few_updates():
    outcome = simulation.simulate(Case("writes", 880, 10_000.0, cost=25.0))
    assert outcome.writes / outcome.case.seconds <= 200


# -- what is shared --------------------------------------------------------------------------------------------------

NOW = 1_790_000_000.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(1e-6, 2), st.floats(-0.5, 0.5), st.booleans()), max_size=50))
def test_no_slice_of_time_is_handed_out_twice(leases):
    store, ends, now = MemoryLeaseStore(100.0), 0.0, NOW
    for seconds, offset, behind in leases:
        now += abs(offset) / 10
        granted, shared = store.lease(seconds, now + offset, behind)
        if granted:
            assert shared.tat - seconds >= ends - 1e-6
            assert shared.tat - seconds <= now + offset + AHEAD_SECONDS + 1e-6
            ends = shared.tat


def test_time_that_nobody_leased_is_given_up_and_only_then():
    store = MemoryLeaseStore(100.0)
    assert store.lease(1.0, NOW, True).shared.tat == NOW + 1
    assert not store.lease(1.0, NOW + 1 + BEHIND_SECONDS / 2, True).granted
    assert store.lease(1.0, NOW + 5, True).shared.tat == NOW + 6


def test_throttling_lowers_the_rate_once_a_second_for_all():
    store = MemoryLeaseStore(1000.0)
    assert store.slow(700.0, NOW).rate(NOW) == 700
    assert store.slow(490.0, NOW + 0.5).rate(NOW + 0.5) == 700
    assert store.slow(490.0, NOW + 1).rate(NOW + 1) == 490


def test_quiet_raises_the_rate_up_to_the_ceiling():
    shared = Shared(1000.0, slowed=700.0, throttled_at=NOW)
    assert shared.rate(NOW + 1) == 700
    assert shared.rate(NOW + 3) == 800
    assert shared.rate(NOW + 60) == 1000
    assert replace(shared, ceiling=0.0).rate(NOW + 60) == 0


def test_opening_again_forgets_throttling_but_not_what_is_owed():
    store = MemoryLeaseStore(100.0)
    store.lease(30.0, NOW, True)
    store.slow(10.0, NOW)
    store.open(50.0)
    assert store.read().rate(NOW) == 50
    assert store.read().tat == NOW + 30


# -- one worker ------------------------------------------------------------------------------------------------------


def test_a_lease_that_comes_too_late_is_not_spent():
    spender, store, local = Spender(1, NOW, random.Random(1)), MemoryLeaseStore(100.0), NOW
    ticket = object()
    spender.enter(ticket, 1.0)
    late = True
    while not isinstance(step := spender.next_step(ticket, local), Go):
        if isinstance(step, Wait):
            local += max(step.seconds, 1e-4)
            continue
        answer = step.run(store)
        if isinstance(step, Lease) and late:
            local, late = local + 10.0, False
        spender.answered(step, answer, local)
    assert NOW + 10 <= local <= NOW + 10.2
    assert store.read().tat >= 10  # the fleet's clock began at 0; the first lease, from 0 to 0.01, is gone


@pytest.mark.parametrize("local", [-1e6, 0.0, 5.0, NOW])
def test_a_worker_starts_from_the_fleets_clock_whatever_its_own_shows(local):
    store = MemoryLeaseStore(100.0)
    store.lease(0.01, NOW, True)
    spender, ticket = Spender(1, local, random.Random(1)), object()
    spender.enter(ticket, 1.0)
    read = spender.next_step(ticket, local)
    spender.answered(read, read.run(store), local + 0.01)
    lease = spender.next_step(ticket, local + 0.01)
    assert isinstance(lease, Lease)
    assert lease.now == pytest.approx(NOW, abs=0.001)


def test_a_worker_follows_a_clock_that_is_further():
    store, local = MemoryLeaseStore(100.0), 7.0
    spender, ticket = Spender(1, local, random.Random(1)), object()
    spender.enter(ticket, 1.0)
    read = spender.next_step(ticket, local)
    spender.answered(read, read.run(store), local)
    store.lease(0.01, 3.0, True)
    lease = spender.next_step(ticket, local)
    spender.answered(lease, lease.run(store), local)
    assert store.read().stamp == 3.0
    local += 1
    while not isinstance(step := spender.next_step(ticket, local), Go):
        if isinstance(step, Wait):
            local += max(step.seconds, 1e-4)
            continue
        spender.answered(step, step.run(store), local)
    assert store.read().stamp >= 4.0


# -- threads ---------------------------------------------------------------------------------------------------------


def test_threads_share_a_budget():
    budget = FleetBudget(MemoryLeaseStore(2000.0))
    done, end = [0] * 8, time.monotonic() + 2

    def work(number):
        while budget.acquire(5, lambda: time.monotonic() >= end):
            done[number] += 1
            budget.settle(5, 5)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2000 * 2 * 0.8 <= 5 * sum(done) <= 2000 * 2 * 1.06 + 5
    assert min(done) * 3 >= max(done)
    statistics = budget.statistics()
    assert statistics.total_units == 5 * sum(done)
    assert statistics.limit == 2000


def test_pause_and_go_on():
    budget = FleetBudget(MemoryLeaseStore(1000.0))
    assert budget.acquire(1, never)
    budget.set_rate(0)
    time.sleep(0.2)  # what was leased before may still be spent; it expires
    start = time.monotonic()
    assert not budget.acquire(1, lambda: time.monotonic() - start > 1)
    assert budget.rate == 0
    budget.set_rate(1000)
    start = time.monotonic()
    assert budget.acquire(1, never)
    assert time.monotonic() - start < 2


def test_stop_wakes_a_waiter_that_owes_a_day():
    budget = FleetBudget(MemoryLeaseStore(1.0))
    assert budget.acquire(1, never)
    budget.settle(1, 86_400)
    start = time.monotonic()
    assert not budget.acquire(1, lambda: time.monotonic() - start > 0.5)
    assert time.monotonic() - start < 1.5


def test_throttles_reach_the_store_with_the_next_question():
    store = MemoryLeaseStore(1000.0)
    budget = FleetBudget(store)
    budget.acquire(1, never)
    budget.throttled()
    for _ in range(200):
        budget.acquire(1, never)
    assert store.read().slowed == pytest.approx(700)
    assert budget.statistics().throttled == 1


def test_a_hot_partition_slows_only_itself():
    store = MemoryLeaseStore(1000.0)
    budget = FleetBudget(store)
    budget.throttled(["TableReadKeyRangeThroughputExceeded"])
    for _ in range(100):
        budget.acquire(1, never)
    assert store.read().rate(NOW * 2) == 1000


class Outage(MemoryLeaseStore):
    """A store that is away until told otherwise."""

    down = True

    def read(self):
        if self.down:
            raise LeaseStoreDown("away")
        return super().read()


def test_hands_nothing_out_while_the_store_is_down_and_goes_on_after():
    store = Outage(1000.0)
    budget = FleetBudget(store)
    start = time.monotonic()
    assert not budget.acquire(1, lambda: time.monotonic() - start > 0.5)
    store.down = False
    assert budget.acquire(1, never)


def test_a_store_that_stays_down_ends_the_run():
    now = [NOW]

    def sleep(seconds):
        now[0] += seconds

    budget = FleetBudget(Outage(1000.0), clock=lambda: now[0], sleep=sleep)
    with pytest.raises(errors.Exhausted, match="control table does not answer"):
        budget.acquire(1, never)
    assert NOW + 300 <= now[0] <= NOW + 310


def test_other_errors_of_the_store_reach_every_thread():
    class Refusing(MemoryLeaseStore):
        def read(self):
            raise errors.AccessDenied("role x lacks dynamodb:GetItem on control")

    budget = FleetBudget(Refusing(1.0))
    for _ in range(2):
        with pytest.raises(errors.AccessDenied):
            budget.acquire(1, never)


def test_share_is_the_rate_divided_by_the_workers():
    budget = FleetBudget(MemoryLeaseStore(100.0), workers=8)
    assert budget.rate == 100
    assert budget.share == 12.5
