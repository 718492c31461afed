"""From what a table has to a rate."""

from dataclasses import replace

import pytest

from bulkexec.ceilings import Ceilings, Load, resolve_rate
from bulkexec.errors import BadArgument
from bulkexec.model import Index, KeyAttribute, Table

KEY = (KeyAttribute("pk", "S"),)
ON_DEMAND = Table(
    "orders", "arn:aws:dynamodb:eu-west-1:1:table/orders", "eu-west-1", "1", KEY, "ACTIVE", 1000, 10**6, "on-demand"
)
PROVISIONED = replace(ON_DEMAND, billing="provisioned", read_capacity=400, write_capacity=100)
NOTHING = Ceilings()


def index(name, write_capacity=0.0, kind="GSI"):
    return Index(name, kind, KEY, "ALL", write_capacity=write_capacity)


def test_half_of_what_is_provisioned_is_left_to_others():
    # case C061
    resolved = resolve_rate(None, "write", PROVISIONED, NOTHING)
    assert resolved.units_per_second == 50
    assert resolved.source == "50 write units/s = 50 % of 100, provisioned; the default"
    assert resolved.warnings == ()


def test_an_on_demand_table_has_no_capacity_of_0():
    # case C057
    reads = resolve_rate(None, "read", ON_DEMAND, NOTHING)
    writes = resolve_rate(None, "write", ON_DEMAND, NOTHING)
    assert (reads.units_per_second, writes.units_per_second) == (6000, 2000)
    assert "what every on-demand table serves at once" in reads.source


def test_warm_throughput_counts_for_on_demand_tables():
    facts = Ceilings(warm={("", "write"): 8000.0}, quota={"write": 40_000.0})
    resolved = resolve_rate("25%", "write", ON_DEMAND, facts)
    assert resolved.source == "2,000 write units/s = 25 % of 8,000, its warm throughput"


def test_an_on_demand_maximum_counts_when_it_is_lower():
    facts = Ceilings(warm={("", "write"): 8000.0})
    resolved = resolve_rate(None, "write", replace(ON_DEMAND, max_write_request_units=300), facts)
    assert resolved.source == "150 write units/s = 50 % of 300, its on-demand maximum; the default"


def test_a_raised_quota_is_read_not_assumed():
    # case C058
    facts = Ceilings(warm={("", "write"): 100_000.0}, quota={"write": 200_000.0})
    assert resolve_rate("50%", "write", ON_DEMAND, facts).units_per_second == 50_000
    unknown = resolve_rate("50%", "write", ON_DEMAND, replace(facts, quota={}))
    assert unknown.units_per_second == 20_000
    assert "the documented quota for a table" in unknown.source


def test_shares_of_auto_scaled_tables_are_of_the_maximum_but_the_default_is_not():
    facts = Ceilings(auto_scaling={("", "write"): 1000.0})
    asked = resolve_rate("50%", "write", PROVISIONED, facts)
    assert asked.source == "500 write units/s = 50 % of 1,000, the maximum of its auto scaling"
    assert "more than the 100 that are provisioned now" in asked.warnings[0]
    assert resolve_rate(None, "write", PROVISIONED, facts).units_per_second == 50


def test_units_are_taken_as_given_and_their_share_is_shown():
    resolved = resolve_rate("25", "write", PROVISIONED, NOTHING)
    assert (resolved.units_per_second, resolved.source) == (25, "25 write units/s = 25 % of 100, provisioned")


def test_warns_above_the_ceiling():
    (warning,) = resolve_rate("500", "write", PROVISIONED, NOTHING).warnings
    assert warning == "500 write units/s is more than the table can serve: 100, provisioned; requests will be throttled"


def test_warns_when_little_is_left_to_others():
    (warning,) = resolve_rate("100%", "write", PROVISIONED, NOTHING).warnings
    assert "leaves less than a tenth" in warning


@pytest.mark.parametrize(("units", "warns"), [(3_600 * 50 * 2, False), (3_600 * 50 * 2 + 51, True)])
def test_warns_when_the_job_would_time_out(units, warns):
    resolved = resolve_rate(None, "write", PROVISIONED, NOTHING, Load(units, 2 * 3600.0))
    assert any("timeout of 2 h" in warning for warning in resolved.warnings) == warns


def test_a_slower_index_is_named_and_has_a_budget_of_its_own():
    # case C146: the table's capacity was raised, the index's was not
    table = replace(PROVISIONED, write_capacity=1000, indexes=(index("by-state", 20), index("by-day", 1000)))
    resolved = resolve_rate(None, "write", table, NOTHING)
    assert resolved.indexes == {"by-state": 10, "by-day": 500}
    assert len(resolved.warnings) == 1
    assert resolved.warnings[0].startswith("index by-state takes 10 write units/s, less than the 500 of the table")


def test_indexes_have_budgets_beside_the_tables():
    # case C059: two indexes do not halve the table's rate
    table = replace(PROVISIONED, indexes=(index("a", 100), index("b", 100), index("local", kind="LSI")))
    resolved = resolve_rate("100%", "write", table, NOTHING)
    assert resolved.units_per_second == 100
    assert resolved.indexes == {"a": 100, "b": 100}
    assert resolve_rate("100%", "read", table, NOTHING).indexes == {}


def test_indexes_of_on_demand_tables_have_their_own_maximum():
    facts = Ceilings(on_demand={("slow", "write"): 100.0})
    resolved = resolve_rate(None, "write", replace(ON_DEMAND, indexes=(index("slow"),)), facts)
    assert resolved.indexes == {"slow": 50}


def test_what_could_not_be_read_is_passed_on():
    facts = Ceilings(warnings=("cannot read the table's auto scaling (AccessDeniedException)",))
    assert resolve_rate(None, "read", PROVISIONED, facts).warnings == facts.warnings


def test_a_table_with_1_unit_gets_1():
    # case C053
    assert resolve_rate(None, "write", replace(PROVISIONED, write_capacity=1), NOTHING).units_per_second == 1


@pytest.mark.parametrize("text", ["0", "-1", "150%", "fast"])
def test_refuses_what_is_no_rate(text):
    with pytest.raises(BadArgument, match="--write-rate"):
        resolve_rate(text, "write", PROVISIONED, NOTHING)
