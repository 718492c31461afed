"""An estimate in words."""

from dataclasses import replace

from bulkexec.cost import estimate
from bulkexec.dollars import GlueShape, Prices
from bulkexec.estimate_text import cost_rows, estimate_rows
from bulkexec.model import Expression, KeyAttribute, Scope, Table, Work
from bulkexec.plan import CostLimit, Estimate, Options, Plan

PRICES = Prices("a test", 0.125, 0.625, 0.7, 0.00013, 0.00065, 0.00065, 0.44, 0.29)
KEYS = (KeyAttribute("pk", "S"),)
ORDERS = Table("orders", "arn:orders", "r", "1", KEYS, "ACTIVE", 1000, 1_024_000, "on-demand")
FILTER = Expression("#n0 = :v0", {"#n0": "status"}, {":v0": {"S": "EXPIRED"}})
WORK = Work(Scope(ORDERS, filter=FILTER))
PLAN = Plan("delete", {}, WORK, 16, True)


def text(plan=PLAN, found=None, glue=None):
    found = found or estimate(ORDERS, plan.work, plan.mutates, PRICES, 16, glue, plan.options)
    rows = [*estimate_rows(plan, found), *cost_rows(plan, found)]
    return "\n".join(f"{name}: {line}" for name, line in rows)


def test_without_a_sample_writes_are_a_range():
    shown = text()
    assert "Reads: 129 units   (125 to 133.5)    all of the table is read, whatever the filter" in shown
    assert "Writes: 0 to 1,999 units    how many items match is not known before they are read" in shown
    assert "Matching" not in shown
    assert "Sample" not in shown


def test_with_a_sample_there_is_a_likeliest_number_and_a_range():
    found = replace(
        estimate(ORDERS, WORK, True, PRICES, 16),
        expected_writes=310.0,
        write_units=(250.0, 380.0),
        matching=(240.0, 360.0),
        sampled="32 pages were read",
    )
    shown = text(found=found)
    assert "Writes: 310 units   (250 to 380)" in shown
    assert "Matching: 240 to 360 items" in shown
    assert "Sample: 32 pages were read" in shown


def test_what_was_not_seen_is_at_most_something():
    found = replace(estimate(ORDERS, WORK, True, PRICES, 16), matching=(0.0, 53.0), sampled="32 pages were read")
    assert "Matching: at most 53 items" in text(found=found)


def test_all_ways_to_run_it_and_all_parts_of_the_cost():
    shown = text(glue=GlueShape("G.1X", 3))
    for part in ("reads ", "writes ", "Glue $", "control table ", "S3 requests ", "Live Tail "):
        assert part in shown
    assert "Elsewhere:   this process: " in shown
    assert ": * Glue standard, 3 x G.1X: " in shown


def test_what_is_not_known_is_said():
    young = Estimate(8.0, (0.0, 0.0), None, ("size not known",), ("everything that depends on the size",))
    shown = text(found=young)
    assert "Reads: at least 8 units" in shown
    assert "Writes: not known" in shown
    assert "Cost: unknown (estimate)" in shown
    assert "Time" not in shown


def test_a_limit_on_the_cost_is_shown():
    plan = replace(PLAN, options=Options(cost_limit=CostLimit(5.0, 1e-7)))
    assert "stops when $5.00 are spent (--max-cost)" in text(plan)


def test_a_dry_run_writes_nothing():
    assert "Writes: none: --dry-run" in text(replace(PLAN, options=Options(dry_run=True)))
