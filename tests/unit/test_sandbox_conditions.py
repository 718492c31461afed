"""Compiled conditions against the emulator's own evaluation, and update expressions against their grammar."""

from typing import Any

import ministack.services.dynamodb as emulated
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec.sandbox.conditions import compile_condition
from bulkexec.sandbox.update_expressions import UpdateExpression

VALUES: dict[str, Any] = {
    ":s": {"S": "b"},
    ":t": {"S": "bcd"},
    ":n": {"N": "5"},
    ":m": {"N": "10"},
    ":l": {"L": [{"N": "1"}]},
    ":y": {"S": "SS"},
}
NAMES = {"#s": "status", "#d": "a.b"}

scalars = st.sampled_from(
    [{"S": "a"}, {"S": "b"}, {"S": "bcd"}, {"N": "5"}, {"N": "7.50"}, {"BOOL": True}, {"NULL": True}]
)
contents = st.one_of(
    scalars,
    st.sampled_from([{"SS": ["a", "b"]}, {"NS": ["5", "6"]}]),
    st.lists(scalars, max_size=3).map(lambda one: {"L": one}),
    st.dictionaries(st.sampled_from(["x", "y"]), scalars, max_size=2).map(lambda one: {"M": one}),
)
items = st.dictionaries(st.sampled_from(["status", "a.b", "p", "q"]), contents)

paths = st.sampled_from(["#s", "#d", "p", "q", "p.x", "q[0]", "q[1]"])
operands = st.sampled_from([":s", ":t", ":n", ":m"])
atoms = st.one_of(
    st.builds("{} {} {}".format, paths, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), operands),
    st.builds("{} BETWEEN :n AND :m".format, paths),
    st.builds("{} IN ({}, {})".format, paths, operands, operands),
    st.builds("attribute_exists({})".format, paths),
    st.builds("attribute_not_exists({})".format, paths),
    st.builds("attribute_type({}, :y)".format, paths),
    st.builds("contains({}, {})".format, paths, operands),
    st.builds("size({}) {} :n".format, paths, st.sampled_from(["<", ">=", "="])),
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} OR {}".format, inner, inner),
        st.builds("NOT {}".format, inner),
        st.builds("p = :s AND ({} OR {})".format, inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=400)
@given(expressions, items)
def test_means_what_the_emulator_makes_of_it(text: str, item: dict[str, Any]) -> None:
    compiled = compile_condition(text, VALUES, NAMES, "FilterExpression")
    assert compiled(item) == bool(emulated._evaluate_condition(text, item, VALUES, NAMES, "FilterExpression"))


@pytest.mark.parametrize(
    ("text", "item", "holds"),
    [
        ("begins_with(p, :s)", {"p": {"S": "bc"}}, True),
        ("begins_with(p, :s)", {"p": {"S": "ab"}}, False),
        ("begins_with(p, :s)", {"p": {"N": "5"}}, False),
        ("begins_with(p, :s)", {}, False),
        ("contains(p, :n)", {"p": {"NS": ["5", "6"]}}, True),
        ("contains(p, :n)", {"p": {"L": [{"N": "5.0"}]}}, True),
        ("attribute_exists(p) AND p <> :null", {"p": {"BOOL": True}}, True),  # case C020
        ("p <> :s", {}, True),
        ("p = :s", {}, False),
    ],
)
def test_known_meanings(text: str, item: dict[str, Any], holds: bool) -> None:
    values = VALUES | {":null": {"NULL": True}}
    assert compile_condition(text, values, {}, "FilterExpression")(item) is holds


def test_errors_name_their_parameter() -> None:
    with pytest.raises(ValueError, match=r"^Invalid KeyConditionExpression: Attribute name is a reserved keyword"):
        compile_condition("status = :s", VALUES, {}, "KeyConditionExpression")


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("SET a = :v", ["SET"]),
        ("set a = :v remove b", ["SET", "REMOVE"]),
        ("SET #a.b[0] = if_not_exists(c, :v) + :v, d = list_append(:l, d)", ["SET"]),
        ("SET a = (b - :v)", ["SET"]),
        ("ADD n :v, m :v DELETE s :w REMOVE x[1].y", ["ADD", "DELETE", "REMOVE"]),
    ],
)
def test_updates_that_are_right(text: str, sections: list[str]) -> None:
    values = {":v": {"N": "1"}, ":l": {"L": []}, ":w": {"SS": ["a"]}}
    assert UpdateExpression(text, values, {"#a": "z"}).sections == sections


@pytest.mark.parametrize(
    "text",
    [
        "a = :v",
        "SET",
        "SET a",
        "SET a =",
        "SET a = :v,",
        "SET a = :v SET b = :v",
        "SET a = :v, a = :v",
        "SET a.b = :v REMOVE a",
        "SET a = nope(:v)",
        "SET a = :v + :s",
        "SET a = list_append(:v, b)",
        "SET a == :v",
        "SET a = :v; REMOVE b",
        "REMOVE a :v",
        "ADD a",
    ],
)
def test_updates_that_are_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"^Invalid UpdateExpression"):
        UpdateExpression(text, {":v": {"N": "1"}, ":s": {"S": "x"}}, {})


def test_only_taking_away_makes_nothing() -> None:
    assert UpdateExpression("REMOVE a DELETE b :v", {}, {}).removes_only
    assert not UpdateExpression("REMOVE a ADD b :v", {}, {}).removes_only
