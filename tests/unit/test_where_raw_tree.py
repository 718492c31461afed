"""An expression of DynamoDB's as a tree: the same items are found, or there is no tree."""

import json
from typing import Any

import pytest

from bulkexec.model import Expression
from bulkexec.where import from_raw
from bulkexec.where.evaluate import matches
from bulkexec.where.raw_tree import tree_of

ITEM: dict[str, Any] = {
    "pk": {"S": "a#1"},
    "n": {"N": "7"},
    "b": {"B": "AP8="},
    "t": {"BOOL": True},
    "z": {"NULL": True},
    "full.name": {"S": 'O\'Neil "x"'},
    "m": {"M": {"in": {"L": [{"N": "1"}]}}},
    "ss": {"SS": ["x", "y"]},
}


def raw(text: str, names: dict[str, str], values: dict[str, Any]) -> Expression:
    return from_raw(text, json.dumps(names) if names else None, json.dumps(values) if values else None)


@pytest.mark.parametrize(
    ("text", "names", "values", "found"),
    [
        ("begins_with(#k, :p) AND n > :n", {"#k": "pk"}, {":p": {"S": "a#"}, ":n": {"N": "6.5"}}, True),
        ("#f = :v", {"#f": "full.name"}, {":v": {"S": 'O\'Neil "x"'}}, True),
        ("b = :v AND t = :t AND z = :z", {}, {":v": {"B": "AP8="}, ":t": {"BOOL": True}, ":z": {"NULL": True}}, True),
        ("NOT (n BETWEEN :a AND :b)", {}, {":a": {"N": "1"}, ":b": {"N": "9"}}, False),
        ("attribute_exists(#m.#i[0]) AND contains(ss, :x)", {"#m": "m", "#i": "in"}, {":x": {"S": "x"}}, True),
        ("n IN (:a, :b) OR attribute_not_exists(q)", {}, {":a": {"N": "1"}, ":b": {"N": "2"}}, True),
        ("size(ss) = :n AND attribute_type(n, :t)", {}, {":n": {"N": "2"}, ":t": {"S": "N"}}, True),
    ],
)
def test_an_expression_and_its_tree_find_the_same(
    text: str, names: dict[str, str], values: dict[str, Any], found: bool
) -> None:
    tree = tree_of(raw(text, names, values))
    assert tree is not None
    assert matches(tree, ITEM) is found


def test_there_is_no_tree_for_a_value_that_no_literal_says() -> None:
    assert tree_of(raw("ss = :v", {}, {":v": {"SS": ["x"]}})) is None
