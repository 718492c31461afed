"""What a run may cost: refused before the start, stopped when it is reached."""

import threading
from dataclasses import replace

import pytest

from bulkexec import errors
from bulkexec.cost_cap import CostCap, require_affordable
from bulkexec.dollars import GlueShape, Prices, cost_limit, metered_usd, run_usd
from bulkexec.model import Counts, KeyAttribute, Scope, Table, Work
from bulkexec.plan import CostLimit, Estimate

PRICES = Prices("a test", 0.125, 0.625, 0.7, 0.00013, 0.00065, 0.00065, 0.44, 0.29)
ORDERS = Table("orders", "arn:orders", "r", "1", (KeyAttribute("pk", "S"),), "ACTIVE", 1000, 1_000_000, "on-demand")
ARCHIVE = replace(ORDERS, name="archive", arn="arn:archive")
HERE = Work(Scope(ORDERS))


def costing(low, high):
    return Estimate(1.0, (0.0, 0.0), (low, high))


def test_a_run_that_costs_more_at_the_least_is_refused():
    # case C088
    limit = cost_limit(5.0, HERE, PRICES)
    with pytest.raises(errors.TooExpensive, match="at least") as caught:
        require_affordable(costing(5.01, 9), limit, 5.0)
    assert caught.value.exit_code == 2
    assert require_affordable(costing(4.9, 900), limit, 5.0) is limit
    assert require_affordable(replace(costing(0, 0), usd=None), limit, 5.0) is limit, "its size may be unknown"


@pytest.mark.parametrize(
    ("prices", "glue"),
    [
        (replace(PRICES, read_per_million=None), None),
        (replace(PRICES, write_per_million=None), None),
        (replace(PRICES, glue_per_dpu_hour=None), GlueShape("G.1X", 2)),
        (PRICES, GlueShape("G.999X", 2)),
    ],
)
def test_a_limit_that_nobody_could_keep_is_refused(prices, glue):
    # case C082: unknown is not free
    assert cost_limit(5.0, HERE, prices, glue=glue) is None
    with pytest.raises(errors.TooExpensive, match="price is not known"):
        require_affordable(costing(0, 1), None, 5.0)


def test_a_cap_is_reached_by_units():
    cap = CostCap(cost_limit(1.0, HERE, PRICES))
    cap.add(Counts(read_units=4e6))
    assert cap.spent_usd == pytest.approx(0.5)
    assert not cap.reached
    cap.add(Counts(write_units=0.8e6))
    assert cap.reached


def test_a_cap_is_reached_by_the_time_of_workers():
    now = 100.0
    cap = CostCap(cost_limit(0.44, HERE, PRICES, glue=GlueShape("G.1X", 10)), lambda: now)
    now += 359
    assert not cap.reached
    now += 2
    assert cap.reached


def test_without_a_limit_nothing_is_reached():
    cap = CostCap(None)
    cap.add(Counts(read_units=1e30))
    assert not cap.reached
    assert cap.spent_usd == 0


def test_counts_of_a_fleet_are_set_not_added():
    cap = CostCap(CostLimit(1.0, 0.1))
    cap.set(Counts(read_units=50.0))
    for _ in range(5):
        cap.set(Counts(read_units=59.0))
    assert not cap.reached, "50 are of earlier runs"
    cap.set(Counts(read_units=60.0))
    assert cap.reached


def test_threads_count_together():
    cap = CostCap(CostLimit(1e9, 1.0))
    threads = [threading.Thread(target=lambda: [cap.add(Counts(read_units=1)) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cap.spent_usd == 4000


def test_writes_elsewhere_cost_what_they_cost_there():
    counts = Counts(read_units=8e6, write_units=2e6)
    assert run_usd(counts, HERE, PRICES) == metered_usd(counts, ORDERS, PRICES)
    copy = Work(Scope(ORDERS), target=replace(ARCHIVE, billing="provisioned"), changes_source=False)
    assert run_usd(counts, copy, PRICES) == pytest.approx(1.0)
    dear = replace(PRICES, write_per_million=1.0)
    assert run_usd(counts, replace(copy, target=ARCHIVE), PRICES, dear) == pytest.approx(1 + 2)
    move = Work(Scope(ORDERS), target=ARCHIVE)
    assert run_usd(counts, move, PRICES, dear) == pytest.approx(1 + 2), "the dearer of both, for all"
    assert run_usd(counts, move, PRICES, Prices("unknown")) is None
