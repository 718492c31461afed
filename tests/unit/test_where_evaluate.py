"""A tree evaluated here finds what the sandbox's own evaluator, written independently, finds with its expression."""

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec.sandbox.conditions import compile_condition
from bulkexec.where import (
    And,
    AttributeType,
    BeginsWith,
    Between,
    Comparison,
    Contains,
    In,
    IsMissing,
    IsNull,
    Node,
    Not,
    Or,
    Path,
    Size,
    Value,
    compile_filter,
    matches,
    parse_where,
)

NUMBERS = ["0", "1", "1.0", "-1", "2.50", "10", "9E+30", "3"]
TEXTS = ["", "a", "ab", "b", "é", "😀", "1"]
BINARIES = [base64.b64encode(data).decode() for data in (b"", b"a", b"\xff", b"ab")]
SCALARS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: {"S": text}),
    st.sampled_from(NUMBERS).map(lambda text: {"N": text}),
    st.sampled_from(BINARIES).map(lambda text: {"B": text}),
    st.booleans().map(lambda value: {"BOOL": value}),
    st.just({"NULL": True}),
)
SETS = st.one_of(
    st.sets(st.sampled_from(TEXTS), min_size=1).map(lambda members: {"SS": list(members)}),
    st.sets(st.sampled_from(["1", "2.50", "10"]), min_size=1).map(lambda members: {"NS": list(members)}),
    st.sets(st.sampled_from(BINARIES), min_size=1).map(lambda members: {"BS": list(members)}),
)
TYPED = st.recursive(
    SCALARS | SETS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda members: {"L": members}),
        st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2).map(lambda members: {"M": members}),
    ),
    max_leaves=4,
)
ITEMS = st.dictionaries(st.sampled_from(["a", "b", "c"]), TYPED, max_size=3)

PATHS = st.sampled_from(
    [Path((name, *more)) for name in "abc" for more in ((), ("x",), (0,), (1,), ("x", "y"), (0, "x"))]
)
SIZES = PATHS.map(Size)
VALUES = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: Value("S", text)),
    st.sampled_from(NUMBERS).map(lambda text: Value("N", text)),
    st.sampled_from(BINARIES).map(lambda text: Value("B", text)),
)
CONSTANTS = st.sampled_from([Value("BOOL", "true"), Value("BOOL", "false"), Value("NULL", "")])
COUNTS = st.sampled_from(["0", "1", "2"]).map(lambda text: Value("N", text))
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def between(value: Path | Size, bounds: list[Value]) -> Node:
    return Between(value, *sorted(bounds, key=lambda bound: bound.order))


def bounds(*texts: str, kind: Any) -> st.SearchStrategy[list[Value]]:
    return st.lists(st.sampled_from(texts).map(lambda text: Value(kind, text)), min_size=2, max_size=2)


LEAVES: st.SearchStrategy[Node] = st.one_of(
    st.builds(Comparison, PATHS, SIGNS, VALUES),
    st.builds(Comparison, PATHS, st.sampled_from(["=", "<>"]), CONSTANTS),
    st.tuples(PATHS, SIGNS, PATHS).filter(lambda parts: parts[0] != parts[2]).map(lambda parts: Comparison(*parts)),
    st.builds(Comparison, SIZES, SIGNS, COUNTS),
    st.builds(between, PATHS, bounds(*TEXTS, kind="S") | bounds(*NUMBERS, kind="N") | bounds(*BINARIES, kind="B")),
    st.builds(between, SIZES, bounds("0", "1", "2", kind="N")),
    st.builds(In, PATHS, st.lists(VALUES | CONSTANTS, min_size=1, max_size=3).map(tuple)),
    st.builds(BeginsWith, PATHS, VALUES.filter(lambda value: value.kind != "N")),
    st.builds(Contains, PATHS, VALUES | CONSTANTS),
    st.builds(IsNull, PATHS),
    st.builds(IsMissing, PATHS),
    st.builds(AttributeType, PATHS, st.sampled_from(["S", "SS", "N", "NS", "B", "BS", "BOOL", "L", "M"])),
)
TREES: st.SearchStrategy[Node] = st.recursive(
    LEAVES,
    lambda trees: st.one_of(
        trees.map(Not),
        st.lists(trees, min_size=2, max_size=3).map(lambda terms: And(tuple(terms))),
        st.lists(trees, min_size=2, max_size=3).map(lambda terms: Or(tuple(terms))),
    ),
    max_leaves=4,
)


def measures_a_scalar(node: Node, item: dict[str, Any]) -> bool:
    """Of size() of a number, a boolean and NULL nothing is documented; the emulator says 0."""
    match node:
        case And(terms) | Or(terms):
            return any(measures_a_scalar(term, item) for term in terms)
        case Not(term):
            return measures_a_scalar(term, item)
        case Comparison(left, _, right):
            sizes = [side for side in (left, right) if isinstance(side, Size)]
        case Between(value, _, _) | In(value, _):
            sizes = [value] if isinstance(value, Size) else []
        case _:
            return False
    return any(matches(AttributeType(size.path, kind), item) for size in sizes for kind in ("N", "BOOL", "NULL"))


@settings(max_examples=500, deadline=None)
@given(TREES, ITEMS)
def test_finds_what_the_sandbox_finds(tree: Node, item: dict[str, Any]) -> None:
    if measures_a_scalar(tree, item):
        return
    expression = compile_filter(tree)
    theirs = compile_condition(expression.text, expression.values, expression.names, "FilterExpression")
    assert matches(tree, item) == theirs(item)


ITEM = {
    "s": {"S": "abc"},
    "n": {"N": "5"},
    "ten": {"N": "10.0"},
    "flag": {"BOOL": True},
    "nothing": {"NULL": True},
    "tags": {"SS": ["red", "blue"]},
    "numbers": {"NS": ["1.0", "2"]},
    "list": {"L": [{"N": "1"}, {"M": {"x": {"S": "y"}}}]},
    "b": {"B": "AP8="},
}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("s = 'abc'", True),
        ("missing <> 'x'", True),
        ("missing = 'x'", False),
        ("NOT missing = 'x'", True),
        ("n = '5'", False),
        ("n <> '5'", True),
        ("n < '9'", False),
        ("n = 5.0", True),
        ("ten > 9", True),
        ("ten > n", True),
        ("flag = TRUE", True),
        ("flag <> NULL", True),  # case C020
        ("nothing = NULL", True),
        ("nothing IS NULL", True),
        ("nothing IS NOT MISSING", True),
        ("missing IS NULL", False),
        ("missing IS NOT NULL", False),
        ("tags = 'red'", False),
        ("contains(tags, 'red')", True),
        ("contains(tags, 're')", False),
        ("contains(numbers, 1)", True),
        ("contains(numbers, '1')", False),
        ("contains(list, 1)", True),
        ("contains(s, 'bc')", True),
        ("begins_with(b, X'00')", True),
        ("b > X'00FE'", True),
        ("list[1].x = 'y'", True),
        ("list[2] IS MISSING", True),
        ("s.x IS MISSING", True),
        ("size(tags) = 2", True),
        ("size(b) = 2", True),
        ("size(missing) <> 2", True),
        ("n BETWEEN 5 AND 6 AND s IN ('x', 'abc')", True),
        ("n > 5 OR s = 'abc'", True),
    ],
)
def test_by_example(sql: str, found: bool) -> None:
    assert matches(parse_where(sql), ITEM) is found
