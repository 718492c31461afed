"""Sizes, units and dollars."""

import base64
from dataclasses import replace

import msgspec
import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.cost import Terms, estimate
from bulkexec.dollars import GlueShape, Prices, glue_usd, metered_usd
from bulkexec.item_size import item_size_bytes
from bulkexec.model import Counts, Expression, Index, KeyAttribute, Scope, Table, Work
from bulkexec.plan import Estimate, Options
from bulkexec.units import read_units, write_units, writes_span

PRICES = Prices("a test", 0.125, 0.625, 0.7, 0.00013, 0.00065, 0.00065, 0.44, 0.29)
TIB = 1024**4
KEYS = (KeyAttribute("pk", "S"),)
ORDERS = Table("orders", "arn:orders", "eu-west-1", "111122223333", KEYS, "ACTIVE", 1000, 1_024_000, "on-demand")
EXPIRED = Expression("#n0 = :v0", {"#n0": "status"}, {":v0": {"S": "EXPIRED"}})


def work_on(table, **scope):
    return Work(Scope(table, **scope))


def priced(table=ORDERS, mutates=False, prices=PRICES, segments=1, glue=None, options=None, work=None):
    return estimate(table, work or work_on(table), mutates, prices, segments, glue, options or Options())


# Sizes


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": ""}, 0),
        ({"S": "häß"}, 5),
        ({"B": base64.b64encode(b"12345").decode()}, 5),
        ({"B": b"12345"}, 5),
        ({"NULL": True}, 1),
        ({"BOOL": False}, 1),
        ({"L": []}, 3),
        ({"M": {}}, 3),
        ({"L": [{"S": "abc"}, {"BOOL": True}]}, 3 + (1 + 3) + (1 + 1)),
        ({"M": {"ab": {"S": "abc"}}}, 3 + (1 + 2 + 3)),
        ({"M": {"a": {"L": [{"M": {}}]}}}, 3 + (1 + 1 + (3 + (1 + 3)))),
        ({"SS": ["a", "bc"]}, 3),
        ({"NS": ["1", "-1"]}, 2 + 3),
        ({"BS": ["AAAA", b"xy"]}, 5),
    ],
)
def test_size_of_a_value(value, size):
    assert item_size_bytes({"": value}) == size
    assert item_size_bytes({"näme": value}) == 5 + size


@pytest.mark.parametrize(
    ("number", "size"),
    [
        ("0", 1),
        ("-0.00", 1),
        ("1", 2),
        ("99", 2),
        ("100", 2),
        ("1E+125", 2),
        ("-7", 3),
        ("123", 3),
        ("1234", 3),
        ("0.05", 2),
        ("1.5", 3),
        ("1E-130", 2),
        ("9" * 38, 20),
        ("-" + "9" * 38, 21),
        ("-1." + "2" * 37, 21),
    ],
)
def test_size_of_a_number(number, size):
    assert item_size_bytes({"": {"N": number}}) == size


@given(st.decimals(-(10**30), 10**30, places=4), st.integers(0, 6))
def test_zeros_around_a_number_do_not_count(number, zeros):
    plain = {"": {"N": f"{number:f}"}}
    padded = {"": {"N": f"{number:f}" + "0" * zeros}}
    assert item_size_bytes(plain) == item_size_bytes(padded)


@pytest.mark.parametrize("value", [{"X": 1}, {}, {"S": "a", "N": "1"}, {"N": "NaN"}, {"N": "ten"}])
def test_refuses_what_is_no_typed_value(value):
    with pytest.raises(ValueError, match="not a DynamoDB"):
        item_size_bytes({"a": value})


names = st.text(min_size=1, max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.decimals(-(10**20), 10**20, places=3)
    | st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=4)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(names, values, max_size=6), names, values)
def test_an_item_is_the_sum_of_its_attributes_and_its_size_survives_the_wire(plain, name, value):
    serialize = TypeSerializer().serialize
    item = {key: serialize(content) for key, content in plain.items()}
    attribute = {name: serialize(value)}
    assert item_size_bytes({**item, **attribute}) == (
        item_size_bytes({key: content for key, content in item.items() if key != name}) + item_size_bytes(attribute)
    )
    nested = {"m": {"M": item}}
    assert item_size_bytes(nested) == 1 + 3 + len(item) + item_size_bytes(item)
    on_the_wire = msgspec.json.decode(msgspec.json.encode(_base64(item)))
    assert item_size_bytes(on_the_wire) == item_size_bytes(item)


def _base64(value):
    """What boto3 does to binary values before it sends them."""
    if isinstance(value, dict):
        return {key: _base64(content) for key, content in value.items()}
    if isinstance(value, list):
        return [_base64(content) for content in value]
    return base64.b64encode(bytes(value)).decode() if not isinstance(value, str | bool) else value


def test_sizes_the_values_not_only_the_names():
    # case C081: a generated item was taken for the 15 bytes of its attribute names
    item = {"pk": {"S": "order#000001"}, "payload": {"S": "x" * 220}, "amount": {"N": "199.95"}}
    assert item_size_bytes(item) == (2 + 12) + (7 + 220) + (6 + 4)


# Units


@pytest.mark.parametrize(
    ("size", "consistent", "units"),
    [(0, False, 0.5), (0, True, 1), (4096, True, 1), (4097, True, 2), (1_048_576, False, 128), (6000, False, 1)],
)
def test_read_units_of_a_page(size, consistent, units):
    assert read_units(size, consistent) == units


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (409_600, 400)])
def test_write_units_of_an_item(size, units):
    assert write_units(size) == units


@given(st.lists(st.integers(1, 409_600), max_size=200))
def test_the_range_of_writes_holds_whatever_the_sizes(sizes):
    # case C085
    span = writes_span(len(sizes), sum(sizes))
    assert span.low <= sum(map(write_units, sizes)) <= span.high


def test_mixed_sizes_are_a_range_around_their_real_mean():
    # case C085: half 100 B and half 1,900 B cost 1.5 units each; the rounded mean says 1
    span = writes_span(2000, 1000 * 100 + 1000 * 1900)
    assert span.low <= 3000 <= span.high
    assert span.high < 2 * 2000


# Estimates


def test_a_scan_reads_8192_bytes_a_unit_and_half_a_unit_a_segment():
    # case C085: not 8,096
    table = replace(ORDERS, size_bytes=TIB, item_count=10**9)
    found = priced(table, segments=1000)
    assert found.read_units == pytest.approx(TIB / 8192, rel=0.001)
    assert found.reads[0] <= found.read_units <= found.reads[1]
    assert found.write_units == (0, 0)
    assert found.usd == pytest.approx((16.78, 16.78), rel=0.01)


def test_strong_reads_cost_double_and_a_filter_saves_nothing():
    once = priced(segments=8).read_units
    assert priced(segments=8, work=Work(Scope(ORDERS), consistent=True)).read_units == 2 * once
    assert priced(segments=8, work=work_on(ORDERS, filter=EXPIRED)).read_units == once


def test_a_pinned_key_reads_at_most_all_of_the_table():
    found = priced(mutates=True, work=work_on(ORDERS, key_condition=EXPIRED))
    assert found.read_units == pytest.approx(125.5, rel=0.01)
    assert found.write_units[0] == 0
    assert found.usd[0] < 1e-6 < found.usd[1]
    assert any("one item collection" in note for note in found.notes)


def test_unknown_size_is_said_and_costs_no_invented_dollars():
    found = priced(replace(ORDERS, item_count=0, size_bytes=0), mutates=True, segments=16, glue=GlueShape("G.1X", 2))
    assert found.usd is None
    assert found.read_units == 8
    assert "DescribeTable says 0" in found.notes[0]
    assert found.left_out == ("everything that depends on the size",)


def test_deleting_with_a_filter_may_write_nothing_or_everything():
    found = priced(mutates=True, work=work_on(ORDERS, filter=EXPIRED))
    assert found.write_units == (0, 1999)
    assert found.usd[0] == pytest.approx(125 * 0.125e-6)
    assert found.usd[1] == pytest.approx(126 * 0.125e-6 + 1999 * 0.625e-6)


def test_deleting_everything_has_a_lower_bound():
    assert priced(mutates=True).write_units == (1000, 1999)


def test_a_dry_run_writes_nothing():
    assert priced(mutates=True, options=Options(dry_run=True)).write_units == (0, 0)


def test_a_cap_of_items_caps_the_writes():
    assert priced(mutates=True, options=Options(max_items=10)).write_units == (0, 1009)
    assert priced(mutates=True, options=Options(max_items=5000)).write_units == (1000, 1999)


def test_index_writes_are_in_the_estimate_and_empty_indexes_are_named():
    # case C084
    by_status = Index("by-status", "GSI", KEYS, "KEYS_ONLY", item_count=500, size_bytes=25_000)
    new = Index("by-date", "GSI", KEYS, "ALL")
    found = priced(replace(ORDERS, indexes=(by_status, new)), mutates=True)
    assert found.write_units == (1000 + 500, 1999 + 523)
    assert any("by-date" in left for left in found.left_out)
    assert not any("by-status" in left for left in found.left_out)


def test_replicas_multiply_the_dollars_of_writes():
    # case C084; DescribeTable may or may not list the table's own region
    table = replace(ORDERS, replicas=("eu-west-1", "us-east-1", "us-west-2"))
    found = priced(table, mutates=True)
    assert found.write_units == (1000, 1999)
    assert found.usd[0] == pytest.approx(125 * 0.125e-6 + 3 * 1000 * 0.7e-6)
    assert any("3 regions" in note for note in found.notes)


def test_provisioned_capacity_is_paid_already():
    # case C085: never the on-demand price divided by something
    by_status = Index("by-status", "GSI", KEYS, "ALL", item_count=1000, size_bytes=1_024_000, write_capacity=1)
    table = replace(ORDERS, billing="provisioned", read_capacity=5, write_capacity=10, indexes=(by_status,))
    found = priced(table, mutates=True)
    assert found.usd == (0, 0)
    assert any("already paid" in note for note in found.notes)
    assert any("reading orders at all of its capacity takes up to 26 s" in note for note in found.notes)
    assert any("index by-status at all of its capacity takes up to 34 min" in note for note in found.notes)


@pytest.mark.parametrize("billing", ["on-demand", "provisioned"])
def test_zero_capacity_is_no_limit_and_no_division_by_zero(billing):
    # case C057: on-demand tables report 0
    table = replace(ORDERS, billing=billing, indexes=(Index("i", "GSI", KEYS, "ALL", 10, 10),))
    found = priced(table, mutates=True, glue=GlueShape("G.1X", 2))
    assert found.usd is not None
    assert not any("takes" in note for note in found.notes)


def test_unknown_prices_are_unknown_dollars():
    # case C082
    nothing = Prices("nowhere")
    assert priced(prices=nothing).usd is None
    assert priced(prices=replace(PRICES, write_per_million=None)).usd is not None
    assert priced(prices=replace(PRICES, write_per_million=None), mutates=True).usd is None
    assert priced(prices=replace(PRICES, glue_per_dpu_hour=None), glue=GlueShape("G.1X", 2)).usd is None
    assert any("not known" in note for note in priced(prices=nothing).notes)


def test_glue_is_a_range_with_its_assumption():
    # 506 GB on 220 G.1X took 3.93 DPU-hours
    table = replace(ORDERS, size_bytes=506 * 10**9, item_count=1_700_000_000)
    found = priced(table, segments=2000, glue=GlueShape("G.1X", 220))
    dynamodb = priced(table, segments=2000).usd
    low, high = ((glue - plain) / 0.44 for glue, plain in zip(found.usd, dynamodb, strict=True))
    assert low < 15.3 + 5
    assert low < 220 * 331 / 3600 < high
    assert any("assuming 1 min to start" in note for note in found.notes)


def of_glue(found):
    return dict(found.parts)["Glue"]


def test_glue_waits_for_the_slowest_rate():
    slow = priced(mutates=True, glue=GlueShape("G.2X", 10), options=Options(write_rate=1))
    assert of_glue(slow)[1] == pytest.approx((60 + 1999) * 20 / 3600 * 0.44)
    reading = priced(glue=GlueShape("G.1X", 2, flex=True), options=Options(read_rate=1))
    assert of_glue(reading)[0] == pytest.approx((60 + reading.reads[0]) * 2 / 3600 * 0.29)
    capped = priced(replace(ORDERS, max_read_request_units=1), glue=GlueShape("G.1X", 2, flex=True))
    assert of_glue(capped)[0] == pytest.approx((60 + capped.reads[0]) * 2 / 3600 * 0.29)


def test_a_rate_is_for_the_whole_job_whatever_its_size():
    found = priced(mutates=True, segments=1000, options=Options(write_rate=1), glue=GlueShape("G.2X", 3))
    assert of_glue(found)[1] == pytest.approx((60 + 1999) * 6 / 3600 * 0.44)


def test_small_sums_of_a_job_are_named_and_all_parts_are_the_whole():
    found = priced(mutates=True, glue=GlueShape("G.1X", 2))
    assert [name for name, _ in found.parts] == ["reads", "writes", "Glue", "control table", "S3 requests", "Live Tail"]
    assert sum(high for _, (_, high) in found.parts) == pytest.approx(found.usd[1])
    assert sum(low for _, (low, _) in found.parts) == pytest.approx(found.usd[0])
    assert [name for name, _ in priced(mutates=True).parts] == ["reads", "writes"]


def test_an_unknown_worker_type_is_said():
    found = priced(glue=GlueShape("G.999X", 2))
    assert found.usd is None
    assert any("G.999X" in note for note in found.notes)


def test_an_estimate_survives_the_plan():
    found = priced(mutates=True, glue=GlueShape("G.1X", 2))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Estimate) == found


# Metered


def test_metered_dollars_by_billing_mode():
    counts = Counts(read_units=8e6, write_units=2e6)
    assert metered_usd(counts, ORDERS, PRICES) == pytest.approx(1 + 1.25)
    assert metered_usd(counts, replace(ORDERS, replicas=("us-east-1",)), PRICES) == pytest.approx(1 + 2.8)
    assert metered_usd(counts, replace(ORDERS, billing="provisioned"), PRICES) == 0


def test_metered_dollars_need_only_the_prices_of_what_was_used():
    no_writes = replace(PRICES, write_per_million=None)
    assert metered_usd(Counts(read_units=8e6), ORDERS, no_writes) == pytest.approx(1)
    assert metered_usd(Counts(write_units=1), ORDERS, no_writes) is None


def test_dollars_of_glue():
    assert glue_usd(10, False, PRICES) == pytest.approx(4.4)
    assert glue_usd(10, True, PRICES) == pytest.approx(2.9)
    assert glue_usd(10, True, Prices("")) is None


# Time and workers


def test_a_timeout_that_is_shorter_is_warned_of_whatever_it_is():
    # case C103: the user's own timeout counts
    options, glue = Options(write_rate=1), GlueShape("G.1X", 2)

    def warned(timeout_seconds):
        return estimate(
            ORDERS, work_on(ORDERS), True, PRICES, 1, glue, options, Terms(timeout_seconds=timeout_seconds)
        ).warnings

    assert any("takes at least 18 min, longer than the job's timeout of 2 min" in line for line in warned(120))
    assert any("may take up to 35 min, longer than the job's timeout of 30 min" in line for line in warned(1800))
    assert warned(36_000) == ()
    assert warned(None) == ()


def test_a_slow_index_is_what_the_run_waits_for():
    # case C146: capacity of the table is useless where that of an index is low
    by_status = Index("by-status", "GSI", KEYS, "ALL", item_count=1000, size_bytes=1_024_000, write_capacity=1)
    table = replace(ORDERS, billing="provisioned", read_capacity=1000, write_capacity=1000, indexes=(by_status,))
    found = priced(table, mutates=True)
    assert found.seconds[0] == pytest.approx(1000)
    assert found.seconds[1] == pytest.approx(1999)


def test_a_local_index_draws_on_the_table():
    by_date = Index("by-date", "LSI", KEYS, "ALL", item_count=1000, size_bytes=1_024_000)
    table = replace(ORDERS, billing="provisioned", read_capacity=1000, write_capacity=10, indexes=(by_date,))
    assert priced(table, mutates=True).seconds[0] == pytest.approx(200)


def test_the_same_work_in_every_runtime_side_by_side():
    glue = GlueShape("G.1X", 10)
    found = priced(replace(ORDERS, size_bytes=TIB, item_count=10**9), segments=4096, glue=glue)
    rows = {each.runtime: each for each in found.alternatives}
    assert set(rows) >= {"this process", "Glue standard, 10 x G.1X", "Glue flex, 10 x G.1X"}
    assert [each.runtime for each in found.alternatives if each.chosen] == ["Glue standard, 10 x G.1X"]
    here, standard, flex = (rows[name] for name in ("this process", "Glue standard, 10 x G.1X", "Glue flex, 10 x G.1X"))
    assert here.usd[1] < standard.usd[1], "no workers to pay"
    assert here.seconds[1] > standard.seconds[1]
    assert flex.usd[1] < standard.usd[1]
    assert (standard.seconds, standard.usd) == (found.seconds, found.usd)


def test_as_many_workers_are_suggested_as_the_rates_keep_busy():
    big = replace(ORDERS, size_bytes=TIB, item_count=10**9)

    def suggestion(table=big, **rates):
        found = priced(table, segments=4096, glue=GlueShape("G.8X", 50), options=Options(**rates))
        return found.alternatives[-1].runtime

    assert suggestion(read_rate=100.0) == "Glue standard, 2 x G.1X"
    assert suggestion(read_rate=6_000.0) == "Glue standard, 10 x G.1X"
    assert suggestion(read_rate=1e9) == "Glue standard, 100 x G.1X"
    small = replace(ORDERS, size_bytes=10**6, item_count=10**3)
    assert suggestion(small, read_rate=6_000.0) == "Glue standard, 2 x G.1X", "a minute is paid in any case"


def test_native_bulk_put_is_for_loads_and_has_no_known_price():
    plain = priced(mutates=True)
    loading = estimate(ORDERS, work_on(ORDERS), True, PRICES, 1, terms=Terms(kind="put", loads=True))
    assert not any("bulk put" in each.runtime for each in plain.alternatives)
    native = [each for each in loading.alternatives if "bulk put" in each.runtime]
    assert [each.usd for each in native] == [None]


def test_a_target_that_is_provisioned_adds_no_dollars_for_writes():
    target = replace(ORDERS, name="archive", arn="arn:archive", billing="provisioned", write_capacity=100)
    work = Work(Scope(ORDERS), target=target, changes_source=False)
    found = estimate(ORDERS, work, True, PRICES, 1, terms=Terms(kind="put"))
    assert dict(found.parts)["writes"] == (0, 0)
    assert dict(found.parts)["reads"][0] > 0
    assert any("writing archive at all of its capacity takes" in note for note in found.notes)


def test_a_target_elsewhere_has_prices_of_its_own():
    # case C082: unknown there is unknown, not the price from here
    target = replace(ORDERS, name="archive", arn="arn:archive", region="xx")
    work = Work(Scope(ORDERS), target=target, changes_source=False)
    here = estimate(ORDERS, work, True, PRICES, 1, terms=Terms(kind="put"))
    there = estimate(ORDERS, work, True, PRICES, 1, terms=Terms(kind="put", target_prices=Prices("xx")))
    assert here.usd is not None
    assert there.usd is None
    assert any("a price is not: writes" in note for note in there.notes)
