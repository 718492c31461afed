"""The in-process budget, mostly on a virtual clock."""

import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec.budgets import Consumed, TableBudgets, consumed
from bulkexec.errors import BadArgument
from bulkexec.rate import Asked, Budget, RateStatistics, parse_asked, parse_rate

EPSILON = 1e-6


class VirtualTime:
    """A clock that only sleeping moves, with things to happen at given times."""

    def __init__(self):
        self.now = 0.0
        self.events = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds
        due = [event for event in self.events if event[0] <= self.now]
        self.events = [event for event in self.events if event[0] > self.now]
        for _, act in due:
            act()

    def budget(self, rate):
        return Budget(rate, clock=self.clock, sleep=self.sleep)


def never():
    return False


def spend(budget, virtual, until, units=1.0, consumed=None):
    """Requests of `units` one after another; (time, consumed units) of each."""
    spent = []
    while virtual.now < until and budget.acquire(units, lambda: virtual.now >= until):
        spent.append((virtual.now, units if consumed is None else consumed))
        if consumed is not None:
            budget.settle(units, consumed)
    return spent


def total(spent, start=0.0, end=float("inf")):
    return sum(units for at, units in spent if start <= at < end)


def most_in_a_second(spent):
    most = units_within = first = 0
    for at, units in spent:
        units_within += units
        while spent[first][0] < at - 1:
            units_within -= spent[first][1]
            first += 1
        most = max(most, units_within)
    return most


@pytest.mark.parametrize("rate", [1, 2, 25, 50, 190, 2000])
def test_holds_the_rate_from_the_first_second(rate):
    # case C053: rates under about 200 used to be ignored
    virtual = VirtualTime()
    spent = spend(virtual.budget(rate), virtual, until=10)
    assert total(spent) == pytest.approx(10 * rate, rel=0.01, abs=1)
    assert total(spent, 0, 1) <= rate * 1.05 + 1
    assert most_in_a_second(spent) <= rate * 1.05 + 1


def test_one_unit_a_second_is_one_request_a_second():
    # case C053
    virtual = VirtualTime()
    times = [at for at, _ in spend(virtual.budget(1), virtual, until=20)]
    assert times[0] == 0
    assert all(0.95 <= after - before <= 1.05 for before, after in pairwise(times))


def test_a_rate_counts_units_not_requests():
    # case C062: 80 % of 10 units a second, requests of 2.5 units
    virtual = VirtualTime()
    spent = spend(virtual.budget(8), virtual, until=20, units=1, consumed=2.5)
    assert total(spent) == pytest.approx(160, abs=3)
    assert len(spent) == pytest.approx(64, abs=2)


def test_requests_larger_than_a_second_of_the_rate_still_go_and_are_paid_for():
    virtual = VirtualTime()
    times = [at for at, _ in spend(virtual.budget(10), virtual, until=60, units=128)]
    assert [round(at, 1) for at in times] == [0, 12.8, 25.6, 38.4, 51.2]


def test_debt_is_waited_out():
    virtual = VirtualTime()
    budget = virtual.budget(100)
    assert budget.acquire(1, never)
    budget.settle(1, 501)
    assert budget.acquire(1, never)
    assert virtual.now == pytest.approx(5.01)


def test_an_estimate_that_was_too_high_is_given_back():
    virtual = VirtualTime()
    budget = virtual.budget(100)
    assert budget.acquire(500, never)
    budget.settle(500, 10)
    assert budget.acquire(1, never)
    assert virtual.now == pytest.approx(0.1)


def test_giving_back_never_makes_more_credit_than_idling_does():
    virtual = VirtualTime()
    budget = virtual.budget(100)
    budget.settle(1000, 0)
    assert total(spend(budget, virtual, until=1)) <= 106


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(1, 5000),
    requests=st.lists(
        st.tuples(st.floats(0.001, 2), st.floats(0, 1), st.just(0.0) | st.floats(0, 1)), min_size=1, max_size=40
    ),
)
def test_no_second_ever_exceeds_the_rate(rate, requests):
    """Any mix of sizes, of estimates at or above what is consumed, and of idle time."""
    virtual = VirtualTime()
    budget = virtual.budget(rate)
    spent = []
    for seconds, share, idle in requests:
        estimate = seconds * rate
        virtual.now += idle
        budget.acquire(estimate, never)
        consumed = estimate * share
        budget.settle(estimate, consumed)
        spent.append((virtual.now, consumed))
    for at, _ in spent:
        window = [units for when, units in spent if at <= when <= at + 1]
        assert sum(window) - window[-1] <= rate * 1.05 + EPSILON * (1 + rate)


def test_idle_time_leaves_at_most_50_ms_of_credit():
    virtual = VirtualTime()
    budget = virtual.budget(1000)
    virtual.now = 3600
    spent = spend(budget, virtual, until=3601)
    assert total(spent, 3600, 3600.0005) <= 52
    assert total(spent) <= 1051


def test_stop_wakes_a_waiter_that_owes_a_day():
    virtual = VirtualTime()
    budget = virtual.budget(1)
    budget.settle(0, 86_400)
    assert not budget.acquire(1, lambda: virtual.now > 2)
    assert virtual.now < 2.2
    assert budget.statistics().total_units == 86_400


def test_nothing_is_spent_once_stopped():
    budget = VirtualTime().budget(None)
    assert not budget.acquire(5, lambda: True)
    assert budget.statistics().total_units == 0


def test_none_is_no_limit_of_ours():
    virtual = VirtualTime()
    budget = virtual.budget(None)
    for _ in range(10_000):
        assert budget.acquire(128, never)
    assert virtual.now == 0
    assert budget.statistics().limit is None


def test_zero_is_paused_until_a_rate_is_set():
    virtual = VirtualTime()
    budget = virtual.budget(0)
    virtual.events = [(30.0, lambda: budget.set_rate(10))]
    assert budget.acquire(1, never)
    assert 30 <= virtual.now < 30.2


def test_set_rate_acts_on_those_who_wait():
    virtual = VirtualTime()
    budget = virtual.budget(1)
    budget.settle(0, 1000)
    virtual.events = [(2.0, lambda: budget.set_rate(1000))]
    assert budget.acquire(1, never)
    assert virtual.now < 3.2


def test_pausing_stops_a_busy_budget_and_leaves_no_credit():
    virtual = VirtualTime()
    budget = virtual.budget(100)
    spend(budget, virtual, until=2)
    budget.set_rate(0)
    assert not spend(budget, virtual, until=60)
    budget.set_rate(100)
    assert total(spend(budget, virtual, until=61)) <= 106


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf")])
def test_refuses_what_is_no_rate(rate):
    with pytest.raises(ValueError, match="finite number"):
        Budget(rate)


def test_throttling_lowers_the_rate_at_most_once_a_second():
    virtual = VirtualTime()
    budget = virtual.budget(1000)
    for _ in range(50):
        budget.throttled()
    assert budget.rate == pytest.approx(700)
    virtual.now = 1.0
    budget.throttled()
    assert budget.rate == pytest.approx(490)
    assert budget.statistics().throttled == 51


def test_quiet_raises_the_rate_steadily_up_to_the_limit():
    virtual = VirtualTime()
    budget = virtual.budget(1000)
    budget.throttled()
    assert total(spend(budget, virtual, until=1)) == pytest.approx(700, abs=40)
    spend(budget, virtual, until=3)
    assert budget.rate == pytest.approx(800, abs=10)
    spend(budget, virtual, until=9)
    assert budget.rate == 1000
    start = virtual.now
    assert total(spend(budget, virtual, until=start + 1)) <= 1051


def test_throttling_never_stops_the_work():
    virtual = VirtualTime()
    budget = virtual.budget(10)
    for second in range(100):
        virtual.now = float(second)
        budget.throttled()
    assert budget.rate == 1
    slow = VirtualTime()
    slower_than_one = slow.budget(0.2)
    slower_than_one.throttled()
    assert slower_than_one.rate == 0.2


def test_without_a_limit_throttling_slows_below_what_was_spent_lately_and_wears_off():
    virtual = VirtualTime()
    budget = virtual.budget(None)
    for _ in range(20):
        budget.acquire(100, never)
        virtual.now += 0.125
    budget.throttled()
    assert budget.rate == pytest.approx(560)
    assert most_in_a_second(spend(budget, virtual, until=virtual.now + 0.9)) <= 589
    for _ in range(60):
        virtual.now += 1
        assert budget.acquire(100, never)
    assert budget.rate == float("inf")


def test_a_new_limit_does_not_undo_backing_off():
    virtual = VirtualTime()
    budget = virtual.budget(1000)
    budget.throttled()
    budget.set_rate(5000)
    assert budget.rate == pytest.approx(700)
    budget.set_rate(100)
    assert budget.rate == 100


def test_statistics_of_a_run():
    virtual = VirtualTime()
    budget = virtual.budget(2000)
    spend(budget, virtual, until=10, units=12.5)
    statistics = budget.statistics()
    assert statistics.mean == pytest.approx(2000, rel=0.01)
    assert 1990 <= statistics.peak <= 2013
    assert statistics.limit == 2000


def test_statistics_of_nothing():
    assert VirtualTime().budget(5).statistics() == RateStatistics(0, 0, 0, 5, 0)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (2000.0, "mean 1,990 units/s, highest second 2,003, limit 2,000"),
        (None, "mean 1,990 units/s, highest second 2,003, limit none"),
        (1.5, "mean 1,990 units/s, highest second 2,003, limit 1.5"),
    ],
)
def test_statistics_as_people_read_them(limit, text):
    assert str(RateStatistics(10_000, 1990.2, 2003.4, limit, 0)) == text


@pytest.mark.alone
def test_64_threads_share_a_budget_fairly():
    budget = Budget(2000)
    done = [0] * 64
    ready = threading.Barrier(64)
    end = time.monotonic() + 2

    def work(number):
        ready.wait()
        while budget.acquire(5, lambda: time.monotonic() >= end):
            done[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 5 * sum(done) <= 2000 * 2 * 1.05 + 5
    assert 5 * sum(done) >= 2000 * 2 * 0.6
    assert min(done) * 3 >= max(done)


@pytest.mark.parametrize(("text", "rate"), [("500", 500), ("1.5", 1.5), (" 1 ", 1), ("1e3", 1000)])
def test_parses_units_a_second(text, rate):
    assert parse_rate(text, "read") == rate


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "fast", "", "50%", "5 %", "1,000"])
def test_refuses_other_rates_in_one_sentence_that_names_the_option(text):
    with pytest.raises(BadArgument, match=r"^--write-rate ") as caught:
        parse_rate(text, "write")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("50%", Asked(share=0.5)),
        (" 12.5 % ", Asked(share=0.125)),
        ("100%", Asked(share=1.0)),
        ("500", Asked(units_per_second=500)),
    ],
)
def test_parses_units_and_shares(text, asked):
    assert parse_asked(text, "read") == asked


@pytest.mark.parametrize("text", ["101%", "0%", "0", "-5%", "%", "x%", "nan%", "", "1,000"])
def test_refuses_what_is_neither_units_nor_a_share(text):
    with pytest.raises(BadArgument, match=r"^--read-rate "):
        parse_asked(text, "read")


def test_zero_pauses_where_a_pause_can_be_asked_for():
    assert parse_asked("0", "write", pause=True) == Asked(units_per_second=0.0)


def test_one_hot_partition_slows_nobody_else_down():
    budget = VirtualTime().budget(1000)
    budget.throttled(["TableWriteKeyRangeThroughputExceeded"])
    assert budget.rate == 1000
    budget.throttled(["TableWriteKeyRangeThroughputExceeded", "TableWriteProvisionedThroughputExceeded"])
    assert budget.rate == pytest.approx(700)
    assert budget.statistics().throttled == 2


def budgets_of(table_rate, **index_rates):
    virtual = VirtualTime()
    indexes = {name: virtual.budget(rate) for name, rate in index_rates.items()}
    return virtual, TableBudgets(virtual.budget(table_rate), indexes)


def spend_with_indexes(virtual, budgets, until, ratio):
    """Requests of 10 table units, each with `ratio` times as many for every index; table units spent."""
    spent = 0.0
    while virtual.now < until:
        reservation = budgets.reserve(10.0, lambda: virtual.now >= until)
        if reservation is None:
            break
        reservation.settle(Consumed(10.0, dict.fromkeys(("a", "b"), 10.0 * ratio)))
        spent += 10.0
    return spent


def test_index_units_are_not_charged_to_the_table():
    # case C059: a table with two indexes runs at its full rate, not at a third of it
    virtual, budgets = budgets_of(100, a=100, b=100)
    assert spend_with_indexes(virtual, budgets, 20, ratio=1.0) == pytest.approx(2000, rel=0.05)


def test_a_slow_index_sets_the_pace():
    # case C146
    virtual, budgets = budgets_of(100, a=100, b=20)
    assert spend_with_indexes(virtual, budgets, 20, ratio=1.0) == pytest.approx(400, rel=0.08)
    assert budgets.rate == pytest.approx(20, rel=0.01)


def test_an_index_that_writes_do_not_touch_costs_nothing():
    virtual, budgets = budgets_of(100, a=5, b=5)
    spend_with_indexes(virtual, budgets, 60, ratio=0.0)
    start = virtual.now
    assert spend_with_indexes(virtual, budgets, start + 20, ratio=0.0) >= 1900


def test_a_reservation_given_up_leaves_every_budget_as_it_was():
    virtual, budgets = budgets_of(1, a=100, b=100)
    assert budgets.reserve(50, never) is not None
    assert budgets.reserve(50, lambda: virtual.now > 1) is None
    assert budgets.share == pytest.approx(1)


def test_throttling_of_an_index_slows_the_indexes_only():
    _, budgets = budgets_of(100, a=200, b=300)
    budgets.throttled(["IndexWriteProvisionedThroughputExceeded"])
    assert budgets.rate == 100
    budgets.throttled(["TableWriteProvisionedThroughputExceeded"])
    assert budgets.rate == pytest.approx(70)


def test_reads_consumed_capacity_by_what_it_was_charged_to():
    capacity = {
        "CapacityUnits": 9.0,
        "Table": {"CapacityUnits": 2.0},
        "LocalSecondaryIndexes": {"local": {"CapacityUnits": 1.0}},
        "GlobalSecondaryIndexes": {"a": {"CapacityUnits": 4.0}, "b": {"CapacityUnits": 2.0}},
    }
    assert consumed(capacity) == Consumed(3.0, {"a": 4.0, "b": 2.0})
    assert consumed(capacity).total == 9.0
    assert consumed({"CapacityUnits": 5.0}) == Consumed(5.0, {})
