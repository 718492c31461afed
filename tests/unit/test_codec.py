"""Typed JSON to Python values: exact, and no further than looked at."""

import base64
import enum
import json
from collections import OrderedDict
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from boto3.dynamodb.types import Binary
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.codec import (
    Attributes,
    BinarySet,
    NotEncodable,
    NumberSet,
    StringSet,
    attribute_from_python,
    fresh,
    from_python,
    to_python,
    value_from_python,
    value_to_python,
)

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


def as_dynamodb_writes(text: str) -> str:
    """The text DynamoDB gives for a number: all zeros written out, none that say nothing."""
    plain = format(Decimal(text), "f")
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) if Decimal(text) else "0"


def unordered(value: Any) -> Any:
    """Typed JSON with its sets in one order, numbers as DynamoDB writes them."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, content),) = value.items()
        if kind in ("SS", "NS", "BS"):
            return {kind: sorted(content)}
        if kind == "N":
            return {"N": as_dynamodb_writes(content)}
        if kind == "L":
            return {"L": [unordered(one) for one in content]}
        if kind == "M":
            return {"M": {name: unordered(one) for name, one in content.items()}}
    return value


@given(ITEMS)
def test_an_item_comes_back_as_it_was(item: dict[str, tuple[Any, Any]]) -> None:  # case C001 C002
    stored = {name: unordered(value) for name, (value, _) in item.items()}
    again = json.loads(from_python(to_python(json.dumps(stored).encode())))
    assert again == stored
    assert list(again) == list(stored)


@given(ITEMS)
def test_python_values_survive_the_way_there_and_back(item: dict[str, tuple[Any, Any]]) -> None:
    values = {name: value for name, (_, value) in item.items()}
    assert to_python(from_python(values)) == values
    for name, value in values.items():
        assert msgspec.json.decode(attribute_from_python(name, value)) == value_from_python(value)


@pytest.mark.parametrize(
    "text",
    [
        "1" + "0" * 100,
        "1E+100",
        "11888647184542023637",
        "9" * 38,
        "-0.10",
        "1.00",
        "0.0000001",
        "0." + "0" * 129 + "1",
        "0",
        "9.9999999999999999999999999999999999999E+125",
    ],
)
def test_a_number_goes_back_as_the_text_it_was(text: str) -> None:  # case C004 C007 C008
    assert value_from_python(value_to_python({"N": text})) == {"N": text}


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        (30.40, {"N": "30.4"}),  # case C006
        (1e-7, {"N": "0.0000001"}),
        (1e22, {"N": "1E+22"}),
        (10**100, {"N": "1" + "0" * 100}),
        (-7, {"N": "-7"}),
        (True, {"BOOL": True}),
        (None, {"NULL": True}),
        ("", {"S": ""}),  # case C017
        ([], {"L": []}),  # case C015
        ({}, {"M": {}}),
        (("a", 1), {"L": [{"S": "a"}, {"N": "1"}]}),
        ({"b", "a"}, {"SS": ["a", "b"]}),
        (frozenset({1, Decimal(2)}), {"NS": ["1", "2"]}),
        ({0.5, Decimal("0.1"), 0.1}, {"NS": ["0.1", "0.5"]}),
        ({b"\0"}, {"BS": ["AA=="]}),
        (bytearray(b"\xff"), {"B": "/w=="}),
        (Binary(b"\xff"), {"B": "/w=="}),
        ({Binary(b"\xff")}, {"BS": ["/w=="]}),
        (StringSet({"9"}), {"SS": ["9"]}),
        (enum.StrEnum("Colour", ["RED"]).RED, {"S": "red"}),
        (enum.IntEnum("Level", ["LOW"]).LOW, {"N": "1"}),
        (OrderedDict(a=1), {"M": {"a": {"N": "1"}}}),
        (Decimal("0E+200"), {"N": "0"}),
        (Decimal("0E-200"), {"N": "0"}),
    ],
)
def test_what_user_code_may_give(value: Any, typed: dict[str, Any]) -> None:
    assert value_from_python(value) == typed
    assert json.loads(from_python({"x": value})) == {"x": typed}


def endless() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (float("nan"), "x", "NaN is no number"),
        (Decimal("sNaN1"), "x", "sNaN1 is no number"),
        (float("-inf"), "x", "-Infinity is no number"),
        (Decimal("1." + "1" * 38), "x", "39 significant digits"),
        (Decimal.from_float(30.40), "x", "significant digits, DynamoDB holds 38"),  # case C006
        (10**126, "x", "out of range"),
        pytest.param(10**5000, "x", "out of range", id="longer than Python writes out"),
        (int("1" * 39), "x", "39 significant digits"),
        (Decimal("1E+126"), "x", "out of range"),
        (Decimal("1E-131"), "x", "out of range"),
        (1e-200, "x", "out of range"),
        (set(), "x", "empty set"),
        (NumberSet(), "x", "empty set"),
        ({"a", 1}, "x", "members of a set"),
        ({True}, "x", "members of a set"),
        ({None}, "x", "members of a set"),
        (StringSet([1]), "x", "StringSet with members of another type"),  # type: ignore[list-item]
        (object(), "x", "builtins.object is no type"),
        ("\ud800", "x", "surrogate"),
        ({1: "a"}, "x", "1 is no name"),
        ([{"a": 1}, {"b": [set()]}], "x[1].b[0]", "empty set"),
        ({"lines": [{"price": 1e300}]}, "x.lines[0].price", "out of range"),
        (endless(), "x", "nested without end"),
    ],
)
def test_what_dynamodb_cannot_hold_is_refused_by_name(value: Any, path: str, reason: str) -> None:
    with pytest.raises(NotEncodable, match=reason) as caught:
        from_python({"before": "fine", "x": value})
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(NotEncodable) as alone:
        attribute_from_python("x", value)
    assert alone.value.path == path
    with pytest.raises(ValueError, match=reason):
        value_from_python(value)


def test_names_are_text() -> None:
    with pytest.raises(NotEncodable, match="None is no name"):
        from_python({None: 1})  # type: ignore[dict-item]


def test_what_somebody_changes_in_place_is_his_alone() -> None:
    item = to_python(b'{"s":{"SS":["a"]},"l":{"L":[{"M":{"n":{"NS":["1"]}}}]},"t":{"S":"x"}}')
    mine = fresh(item)
    mine["s"].add("b")
    mine["l"][0]["n"].clear()
    mine["l"].append("more")
    assert item == to_python(b'{"s":{"SS":["a"]},"l":{"L":[{"M":{"n":{"NS":["1"]}}}]},"t":{"S":"x"}}')
    assert value_from_python(mine["s"]) == {"SS": ["a", "b"]}
