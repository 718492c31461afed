"""The difference between an item before and after a map."""

import copy
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.changes import difference
from bulkexec.codec import BinarySet, NotEncodable, NumberSet, StringSet, value_from_python

SCALARS = st.one_of(
    st.text(max_size=4),
    st.integers(-3, 3).map(Decimal),
    st.binary(max_size=3),
    st.booleans(),
    st.none(),
    st.sets(st.sampled_from("abc"), min_size=1).map(StringSet),
    st.sets(st.sampled_from([Decimal(1), Decimal("2.50")]), min_size=1).map(NumberSet),
    st.sets(st.binary(max_size=1), min_size=1, max_size=3).map(BinarySet),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner), max_leaves=5
)
ITEMS = st.dictionaries(st.sampled_from("abcdef"), VALUES)


def decoded(sets: dict[str, msgspec.Raw]) -> dict[str, Any]:
    return {name: msgspec.json.decode(raw) for name, raw in sets.items()}


@given(ITEMS, ITEMS)
def test_applied_to_the_one_it_makes_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    sets, removes = difference(before, after)
    applied = {name: value_from_python(value) for name, value in before.items() if name not in removes}
    applied |= decoded(sets)
    assert applied == {name: value_from_python(value) for name, value in after.items()}
    unchanged = {name for name in before if name in after and value_from_python(before[name]) == applied[name]}
    assert unchanged.isdisjoint(sets)
    assert set(removes) == before.keys() - after.keys()


@given(ITEMS)
def test_an_equal_item_is_no_difference(item: dict[str, Any]) -> None:
    assert difference(item, copy.deepcopy(item)) == ({}, ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Decimal("1"), Decimal("1.0")),
        (Decimal("1"), 1),
        (Decimal("0.1"), 0.1),
        (Decimal("1"), 1.0),
        (StringSet("ab"), {"b", "a"}),
        (NumberSet({Decimal("1.0")}), {1}),
        (BinarySet({b"a"}), frozenset({b"a"})),
        ([Decimal("1"), {"a": Decimal("2")}], (1, {"a": 2.0})),
        (b"a", bytearray(b"a")),
    ],
)
def test_equal_to_dynamodb_is_no_difference(old: Any, new: Any) -> None:
    assert difference({"x": old}, {"x": new}) == ({}, ())
    assert difference({"x": [old]}, {"x": [new]}) == ({}, ())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Decimal(1), True),
        (True, 1),
        (False, None),
        (Decimal(5), "5"),
        (b"a", "a"),
        ([], None),
        ([], {}),
        (StringSet("a"), ["a"]),
        (StringSet({"1"}), {1}),
        ([Decimal(1)], [True]),
        ({"a": Decimal(1)}, {"a": True}),
        ([Decimal(1), Decimal(2)], [Decimal(2), Decimal(1)]),
    ],
)
def test_another_type_is_a_difference(old: Any, new: Any) -> None:
    sets, removes = difference({"x": old}, {"x": new})
    assert decoded(sets) == {"x": value_from_python(new)}
    assert removes == ()


@pytest.mark.parametrize("value", [float("nan"), Decimal("sNaN"), set(), object(), [set()], {"a": {1: 2}}])
def test_a_new_value_that_cannot_be_stored_is_named(value: Any) -> None:  # case C006
    for before in ({}, {"x": Decimal(1)}, {"x": [Decimal(1)]}, {"x": {"a": {"b": Decimal(1)}}}):
        with pytest.raises(NotEncodable) as caught:
            difference(before, {"x": value})
        assert caught.value.path.startswith("x")


def test_names_are_text() -> None:
    with pytest.raises(NotEncodable, match="7 is no name"):
        difference({}, {7: "a"})  # type: ignore[dict-item]
