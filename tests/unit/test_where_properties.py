"""Any tree, written as SQL, is read back as the same tree; no name or value ever reaches an expression's text."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

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
    compile_statement,
    parse_where,
)

WORDS = [
    "a",
    "Status",
    "größe",
    "日本",
    "order",
    "and",
    "x.y",
    "my-name",
    'say "hi"',
    "it's",
    "a -- b",
    "😀",
    "missing",
    "list",
    "ARRAY",
    "#n0",
]
NAMES = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5)
PATHS = st.builds(lambda name, more: Path((name, *more)), NAMES, st.lists(NAMES | st.integers(0, 99), max_size=3))
SIZES = PATHS.map(Size)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["it's", "'", "%_", "-- ", "\\'"]
)
STRINGS = TEXTS.map(lambda content: Value("S", content))
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?", fullmatch=True).map(
    lambda digits: Value("N", re.sub(r"[^\x00-\x7f]", "1", digits))
)
BINARIES = st.sampled_from(["", "AA==", "AP8=", "YWJj"]).map(lambda encoded: Value("B", encoded))
ORDERED = STRINGS | NUMBERS | BINARIES
CONSTANTS = st.sampled_from([Value("BOOL", "true"), Value("BOOL", "false"), Value("NULL", "")])
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def _between(value: Path, bounds: list[Value]) -> Between:
    return Between(value, *sorted(bounds, key=lambda bound: bound.order))


def _pairs(kind: st.SearchStrategy[Value]) -> st.SearchStrategy[list[Value]]:
    return st.lists(kind, min_size=2, max_size=2)


LEAVES: st.SearchStrategy[Node] = st.one_of(
    st.builds(Comparison, PATHS, SIGNS, ORDERED | PATHS | SIZES),
    st.builds(Comparison, PATHS, st.sampled_from(["=", "<>"]), CONSTANTS),
    st.builds(Comparison, SIZES, SIGNS, NUMBERS | PATHS | SIZES),
    st.builds(_between, PATHS, _pairs(STRINGS) | _pairs(NUMBERS) | _pairs(BINARIES)),
    st.builds(_between, SIZES, _pairs(NUMBERS)),
    st.builds(In, PATHS, st.lists(ORDERED | CONSTANTS, min_size=1, max_size=4).map(tuple)),
    st.builds(BeginsWith, PATHS, STRINGS | BINARIES),
    st.builds(Contains, PATHS, ORDERED | CONSTANTS),
    st.builds(IsNull, PATHS),
    st.builds(IsMissing, PATHS),
    st.builds(AttributeType, PATHS, st.sampled_from(["S", "SS", "N", "NS", "B", "BS", "BOOL", "L", "M"])),
)


def _joined(kind: type[And] | type[Or], terms: list[Node]) -> Node:
    """Canonical: no And directly within And."""
    flat = [inner for term in terms for inner in (term.terms if isinstance(term, kind) else (term,))]
    return kind(tuple(flat))


TREES: st.SearchStrategy[Node] = st.recursive(
    LEAVES,
    lambda trees: st.one_of(
        trees.map(Not),
        st.lists(trees, min_size=2, max_size=3).map(lambda terms: _joined(And, terms)),
        st.lists(trees, min_size=2, max_size=3).map(lambda terms: _joined(Or, terms)),
    ),
    max_leaves=8,
)


def sql_path(path: Path) -> str:
    written = (f"[{part}]" if isinstance(part, int) else '."' + part.replace('"', '""') + '"' for part in path.parts)
    return "".join(written)[1:]


def sql_operand(operand: Path | Size | Value) -> str:
    match operand:
        case Path():
            return sql_path(operand)
        case Size(path):
            return f"size({sql_path(path)})"
        case Value("S", content):
            return "'" + content.replace("'", "''") + "'"
    return str(operand)


def sql(node: Node) -> str:  # noqa: PLR0911 - one return a kind of node
    match node:
        case And(terms):
            return " AND ".join(f"({sql(term)})" for term in terms)
        case Or(terms):
            return " OR ".join(f"({sql(term)})" for term in terms)
        case Not(term):
            return f"NOT ({sql(term)})"
        case Comparison(left, operator, right):
            return f"{sql_operand(left)} {operator} {sql_operand(right)}"
        case Between(value, low, high):
            return f"{sql_operand(value)} BETWEEN {sql_operand(low)} AND {sql_operand(high)}"
        case In(value, options):
            return f"{sql_operand(value)} IN ({', '.join(map(sql_operand, options))})"
        case BeginsWith(path, value) | Contains(path, value):
            name = "begins_with" if isinstance(node, BeginsWith) else "contains"
            return f"{name}({sql_path(path)}, {sql_operand(value)})"
        case AttributeType(path, kind):
            return f"attribute_type({sql_path(path)}, '{kind}')"
    return f"{sql_path(node.path)} IS {'NULL' if isinstance(node, IsNull) else 'MISSING'}"


def sides_are_plain(node: Node) -> bool:
    """A double-quoted name to the right of size() is refused on purpose: it is mostly meant as text."""
    match node:
        case And(terms) | Or(terms):
            return all(map(sides_are_plain, terms))
        case Not(term):
            return sides_are_plain(term)
        case Comparison(Size(), _, Path()):
            return False
        case Comparison(Path(parts), _, Path()):
            return isinstance(parts[-1], str)
    return True


@settings(deadline=None)  # the first example imports sqlglot, on a machine that may be busy
@given(TREES.filter(sides_are_plain))
def test_text_of_a_tree_is_read_as_that_tree(tree: Node) -> None:
    assert parse_where(sql(tree)) == tree


@given(TREES)
def test_no_name_or_value_in_an_expression(tree: Node) -> None:
    found = compile_filter(tree)
    words = "AND|OR|NOT|BETWEEN|IN|size|begins_with|contains|attribute_type|attribute_exists|attribute_not_exists"
    assert re.fullmatch(rf"(#n\d+|:v\d+|\b(?:{words})\b|<>|[<>]=?|=|\[\d+\]|[().,]| )*", found.text)
    assert set(re.findall(r"#n\d+", found.text)) == found.names.keys()
    assert set(re.findall(r":v\d+", found.text)) == found.values.keys()
    assert len(set(found.names.values())) == len(found.names)


@given(TREES)
def test_statement_has_a_parameter_for_each_mark(tree: Node) -> None:
    found = compile_statement(tree)
    if found is not None:
        outside_names = re.sub(r'"(?:[^"]|"")*"', "", found.text)
        assert outside_names.count("?") == len(found.parameters)
        assert "'" not in outside_names
