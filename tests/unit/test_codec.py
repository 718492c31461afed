"""Typed JSON to Python values: exact, and no further than looked at."""

import base64
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.codec import Attributes, BinarySet, NumberSet, StringSet, to_python, value_to_python

NUMBERS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1).map(str),
    st.tuples(st.integers(-(10**37), 10**37), st.integers(-130, 88)).map(lambda pair: f"{pair[0]}E{pair[1]:+d}"),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9).map(str),
)
BINARY = st.binary(max_size=30)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


SCALARS = st.one_of(
    st.text(max_size=20).map(lambda text: ({"S": text}, text)),
    NUMBERS.map(lambda text: ({"N": text}, Decimal(text))),
    BINARY.map(lambda data: ({"B": b64(data)}, data)),
    st.booleans().map(lambda value: ({"BOOL": value}, value)),
    st.just(({"NULL": True}, None)),
    st.sets(st.text(max_size=9), min_size=1, max_size=4).map(lambda texts: ({"SS": sorted(texts)}, StringSet(texts))),
    st.sets(st.integers(-99, 99), min_size=1, max_size=4).map(
        lambda numbers: ({"NS": [str(number) for number in numbers]}, NumberSet(map(Decimal, numbers)))
    ),
    st.sets(BINARY, min_size=1, max_size=4).map(lambda all_: ({"BS": [b64(data) for data in all_]}, BinarySet(all_))),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4).map(lambda pairs: ({"L": [t for t, _ in pairs]}, [p for _, p in pairs]))
    maps = st.dictionaries(st.text(max_size=9), inner, max_size=4).map(
        lambda pairs: ({"M": {n: t for n, (t, _) in pairs.items()}}, {n: p for n, (_, p) in pairs.items()})
    )
    return lists | maps


VALUES = st.recursive(SCALARS, nested, max_leaves=12)
ITEMS = st.dictionaries(st.text(min_size=1, max_size=12), VALUES, min_size=1, max_size=6)


def typed(item: dict[str, tuple[Any, Any]]) -> bytes:
    return json.dumps({name: value for name, (value, _) in item.items()}).encode()


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, and numbers to the last trailing zero."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(ITEMS)
def test_an_item_becomes_the_python_values_it_says(item: dict[str, tuple[Any, Any]]) -> None:
    wanted = {name: value for name, (_, value) in item.items()}
    assert same(to_python(typed(item)), wanted)
    assert same(to_python(msgspec.Raw(typed(item))), wanted)


@given(ITEMS, st.data())
def test_attributes_gives_the_named_ones_alone(item: dict[str, tuple[Any, Any]], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from([*item, "not in any item"]), unique=True))
    found = Attributes(*names)(msgspec.Raw(typed(item)))
    assert found == tuple(item[name][0] if name in item else None for name in names)


@pytest.mark.parametrize(
    "text",
    ["1E+100", "11888647184542023637", "9" * 38, "-0.10", "1E-130", "9.9999999999999999999999999999999999999E+125"],
)
def test_a_number_keeps_every_digit(text: str) -> None:  # case C004 C007 C008
    assert value_to_python({"N": text}) == Decimal(text)
    assert str(value_to_python({"N": text})) == str(Decimal(text))


def test_set_types_are_told_apart() -> None:  # case C002
    assert type(value_to_python({"SS": ["9"]})) is StringSet
    assert type(value_to_python({"NS": ["9"]})) is NumberSet
    assert type(value_to_python({"BS": ["OQ=="]})) is BinarySet
    assert value_to_python({"L": [{"S": "x"}, {"N": "9"}, {"BOOL": True}, {"NULL": True}]}) == [
        "x",
        Decimal(9),
        True,
        None,
    ]


def test_a_type_that_dynamodb_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        to_python(b'{"a":{"X":"1"}}')
    with pytest.raises(msgspec.DecodeError):
        to_python(b'{"a":1}')
