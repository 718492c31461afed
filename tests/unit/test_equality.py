"""Typed values are equal if they are to DynamoDB, however their JSON is written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.equality import same, same_items

NUMBERS = st.integers(-(10**37), 10**37).map(lambda number: {"N": str(number)})
SCALARS = st.one_of(
    NUMBERS, st.text(max_size=5).map(lambda text: {"S": text}), st.booleans().map(lambda flag: {"BOOL": flag})
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: {"L": values})
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(lambda values: {"M": values})
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"N": "1"}, {"N": "1.0"}),
        ({"N": "1E+2"}, {"N": "100"}),
        ({"N": "-0"}, {"N": "0"}),
        ({"N": "12345678901234567890123456789012345678"}, {"N": "1.2345678901234567890123456789012345678E37"}),
        ({"SS": ["a", "b"]}, {"SS": ["b", "a"]}),
        ({"NS": ["1", "2"]}, {"NS": ["2.0", "1"]}),
        ({"BS": ["AA==", "AQ=="]}, {"BS": ["AQ==", "AA=="]}),
        ({"L": [{"N": "1"}]}, {"L": [{"N": "1.0"}]}),
        ({"M": {"a": {"NS": ["1", "2"]}, "b": {"S": ""}}}, {"M": {"b": {"S": ""}, "a": {"NS": ["2", "1"]}}}),
        (None, None),
    ],
)
def test_the_same(one: Any, other: Any) -> None:
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"N": "1"}, {"S": "1"}),
        ({"N": "1"}, {"BOOL": True}),
        ({"N": "12345678901234567890123456789012345678"}, {"N": "12345678901234567890123456789012345679"}),
        ({"S": "a"}, {"S": "A"}),
        ({"S": "AA=="}, {"B": "AA=="}),
        ({"SS": ["1"]}, {"NS": ["1"]}),
        ({"L": [{"S": "a"}, {"S": "b"}]}, {"L": [{"S": "b"}, {"S": "a"}]}),
        ({"L": []}, {"M": {}}),
        ({"M": {"a": {"N": "1"}}}, {"M": {"a": {"N": "1"}, "b": {"N": "1"}}}),
        ({"NULL": True}, None),
        (None, {"S": ""}),
    ],
)
def test_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert not same(other, one)


@given(VALUES, VALUES)
def test_what_is_written_the_same_is_the_same_and_other_texts_never_are(one: Any, other: Any) -> None:
    assert same(one, other) is (one == other)
    assert same_items({"a": one}, {"a": other}) is (one == other)
    assert not same_items({"a": one}, {"b": one})
