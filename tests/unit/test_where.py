"""The language of filters: what text becomes, and what it is written out as."""

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

from bulkexec.errors import BadFilter
from bulkexec.model import Expression, KeyAttribute, Statement
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
    compile_key_condition,
    compile_statement,
    guard_of,
    notes,
    parse_where,
    split_key,
)

A, B = Path(("a",)), Path(("b",))
KEYS = (KeyAttribute("pk", "S"), KeyAttribute("sk", "N"))


def number(text: str) -> Value:
    return Value("N", text)


def text(content: str) -> Value:
    return Value("S", content)


TRUE, FALSE, NULL = Value("BOOL", "true"), Value("BOOL", "false"), Value("NULL", "")
A1, B2, C3 = (Comparison(Path((name,)), "=", number(digit)) for name, digit in (("a", "1"), ("b", "2"), ("c", "3")))

GRAMMAR: list[tuple[str, Node]] = [
    *((f"a {sign} 1", Comparison(A, sign, number("1"))) for sign in ("=", "<>", "<", "<=", ">", ">=")),
    ("a != 1", Comparison(A, "<>", number("1"))),
    ("1 < a", Comparison(A, ">", number("1"))),
    ("1 >= a", Comparison(A, "<=", number("1"))),
    ("'x' = a", Comparison(A, "=", text("x"))),
    ("a = b", Comparison(A, "=", B)),
    ('"a" = "b"', Comparison(A, "=", B)),
    ("a <> b.c", Comparison(A, "<>", Path(("b", "c")))),
    ("a=1 AND b=2 AND c=3", And((A1, B2, C3))),
    ("a=1 or b=2 or c=3", Or((A1, B2, C3))),
    ("a=1 AND (b=2 AND c=3)", And((A1, B2, C3))),
    ("a=1 OR b=2 AND c=3", Or((A1, And((B2, C3))))),
    ("(a=1 OR b=2) AND c=3", And((Or((A1, B2)), C3))),
    ("NOT a=1 AND b=2", And((Not(A1), B2))),
    ("NOT (a=1 AND b=2)", Not(And((A1, B2)))),
    ("NOT NOT a=1", Not(Not(A1))),
    ("((a = 1))", A1),
    ("a BETWEEN 1 AND 2 AND b = 2", And((Between(A, number("1"), number("2")), B2))),
    ("a NOT BETWEEN 'a' AND 'b'", Not(Between(A, text("a"), text("b")))),
    ("a BETWEEN -5 AND +7", Between(A, number("-5"), number("7"))),
    ("a IN (1, 'x', TRUE, NULL)", In(A, (number("1"), text("x"), TRUE, NULL))),
    ("a not in (-1)", Not(In(A, (number("-1"),)))),
    ("a LIKE 'x%'", BeginsWith(A, text("x"))),
    ("a LIKE '%x%'", Contains(A, text("x"))),
    ("a LIKE 'x'", Comparison(A, "=", text("x"))),
    ("a LIKE ''", Comparison(A, "=", text(""))),
    ("a not like 'x%'", Not(BeginsWith(A, text("x")))),
    ("a NOT LIKE 'x'", Not(Comparison(A, "=", text("x")))),
    ("a IS NULL", IsNull(A)),
    ("NOT a IS NULL", Not(IsNull(A))),
    ("a IS NOT NULL", And((Not(IsMissing(A)), Not(IsNull(A))))),
    ("a IS NOT NULL AND b = 2", And((Not(IsMissing(A)), Not(IsNull(A)), B2))),
    ("a is missing", IsMissing(A)),
    ("a IS NOT MISSING", Not(IsMissing(A))),
    ("a IS TRUE", Comparison(A, "=", TRUE)),
    ("a IS NOT FALSE", Not(Comparison(A, "=", FALSE))),
    ("a = NULL", Comparison(A, "=", NULL)),
    ("a <> TRUE", Comparison(A, "<>", TRUE)),
    ("size(a) > 5", Comparison(Size(A), ">", number("5"))),
    ("5 > SIZE(a)", Comparison(Size(A), "<", number("5"))),
    ("size(a) = size(b)", Comparison(Size(A), "=", Size(B))),
    ("a >= size(b)", Comparison(A, ">=", Size(B))),
    ("size(a) BETWEEN 1 AND 2", Between(Size(A), number("1"), number("2"))),
    ("size(a) IN (1, 2)", In(Size(A), (number("1"), number("2")))),
    ("attribute_type(a, 'SS')", AttributeType(A, "SS")),
    ("attribute_type(a) = 'S'", AttributeType(A, "S")),
    ("attribute_type(a) <> 'S'", Not(AttributeType(A, "S"))),
    ("attribute_type(a) IN ('S', 'NULL')", Or((AttributeType(A, "S"), IsNull(A)))),
    ("attribute_type(a) NOT IN ('S')", Not(AttributeType(A, "S"))),
    ("attribute_exists(a)", Not(IsMissing(A))),
    ("Attribute_Not_Exists(a)", IsMissing(A)),
    ("begins_with(a, '5%_')", BeginsWith(A, text("5%_"))),
    ("begins_with(a, X'00')", BeginsWith(A, Value("B", "AA=="))),
    ("contains(a, 'x')", Contains(A, text("x"))),
    ("contains(a, 5)", Contains(A, number("5"))),
    ("a = X'00fF'", Comparison(A, "=", Value("B", "AP8="))),
    ("a = x''", Comparison(A, "=", Value("B", ""))),
    ("a = 'it''s; -- ? MISSING IS NULL \\n'", Comparison(A, "=", text("it's; -- ? MISSING IS NULL \\n"))),
    ("a = 'Zürich 東京 😀'", Comparison(A, "=", text("Zürich 東京 😀"))),
    ("a =\n\t1", A1),
]


@pytest.mark.parametrize(("written", "expected"), GRAMMAR, ids=[written for written, _ in GRAMMAR])
def test_grammar(written: str, expected: Node) -> None:
    assert parse_where(written) == expected


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("Status", ("Status",)),
        ("sTATUS", ("sTATUS",)),
        ("größe", ("größe",)),
        ("日本", ("日本",)),
        ("_a1$", ("_a1$",)),
        ('"quoted.with.dots"', ("quoted.with.dots",)),
        ('"a ""b"" c"', ('a "b" c',)),
        ('"😀"', ("😀",)),
        ('"function size"', ("function size",)),
        ("a.b[0].c", ("a", "b", 0, "c")),
        ("a.B.c.D.e.F[10][2].g", ("a", "B", "c", "D", "e", "F", 10, 2, "g")),
        ('"a.b"."c d"[3]', ("a.b", "c d", 3)),
        ("a.null.in.like.select", ("a", "null", "in", "like", "select")),
        ('"and"', ("and",)),
        ("missing", ("missing",)),
        ("size", ("size",)),
        ("x", ("x",)),
        ("X", ("X",)),
    ],
)
def test_names(written: str, parts: tuple[str | int, ...]) -> None:
    assert parse_where(f"{written} = 1") == Comparison(Path(parts), "=", number("1"))
    assert parse_where(f"1 = {written}") == Comparison(Path(parts), "=", number("1"))
    assert parse_where(f"size({written}) = 1") == Comparison(Size(Path(parts)), "=", number("1"))


# case C021, case C023, case C024: no list of reserved words anywhere, so none can be wrong
@pytest.mark.parametrize(
    "word",
    [
        *("hash", "key", "order", "group", "select", "from", "where", "case", "end", "values", "table", "date", "user"),
        *(
            "timestamp",
            "interval",
            "current_date",
            "count",
            "sum",
            "exists",
            "any",
            "all",
            "distinct",
            "union",
            "limit",
        ),
        *("having", "with", "cast", "time", "name", "status", "metadata", "data", "size", "contains", "begins_with"),
        *("attribute_type", "range", "uuid", "array", "map", "struct", "row", "schema", "missing", "escape", "x"),
    ],
)
def test_reserved_words_are_names(word: str) -> None:
    found = compile_filter(parse_where(f"{word} = 1 AND {word} IS NOT MISSING AND {word} IN (1, 2)"))
    assert found.names == {"#n0": word}
    assert word not in found.text.replace("attribute_exists", "")


@pytest.mark.parametrize(
    "digits",
    [
        "0",
        "-0",
        "007",
        "1.50",
        "1e5",
        "1E+100",
        "-1.5e-10",
        "9.99E+125",
        "1E-130",
        "12345678901234567890123456789012345678",
        "-0.00000000000000000000000000000000000012345678901234567890123456789012345678",
        "1000000000000000000000000000000000000000000000000000",
    ],
)
def test_numbers_keep_their_text(digits: str) -> None:
    assert compile_filter(parse_where(f"a = {digits}")).values == {":v0": {"N": digits}}


def test_nodes_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        A1.operator = "<>"  # type: ignore[misc]


def test_expression_shares_names_and_values() -> None:
    found = compile_filter(parse_where("a.b = 'x' AND b.a <> 'x' OR NOT (c = 1 OR a[0] = 1.0)"))
    assert found == Expression(
        "#n0.#n1 = :v0 AND #n1.#n0 <> :v0 OR NOT (#n2 = :v1 OR #n0[0] = :v2)",
        {"#n0": "a", "#n1": "b", "#n2": "c"},
        {":v0": {"S": "x"}, ":v1": {"N": "1"}, ":v2": {"N": "1.0"}},
    )


@pytest.mark.parametrize(
    ("written", "expression", "statement"),
    [
        ("a BETWEEN 1 AND 2", "#n0 BETWEEN :v0 AND :v1", '"a" BETWEEN ? AND ?'),
        ("a IN (1, 2)", "#n0 IN (:v0, :v1)", '"a" IN [?, ?]'),
        ("a LIKE 'x%'", "begins_with(#n0, :v0)", 'begins_with("a", ?)'),
        ("a LIKE '%x%'", "contains(#n0, :v0)", 'contains("a", ?)'),
        ("a IS MISSING", "attribute_not_exists(#n0)", '"a" IS MISSING'),
        ("a.b[0] IS NOT MISSING", "attribute_exists(#n0.#n1[0])", '"a"."b"[0] IS NOT MISSING'),
        ("attribute_type(a, 'L')", "attribute_type(#n0, :v0)", 'attribute_type("a", ?)'),
        ("a IS NULL", "attribute_type(#n0, :v0)", 'attribute_type("a", ?)'),
        ("a = NULL", "#n0 = :v0", 'attribute_type("a", ?)'),
        ("size(a) > 5", "size(#n0) > :v0", 'size("a") > ?'),
        ("NOT NOT a = 1", "#n0 = :v0", '"a" IS NOT MISSING AND "a" = ?'),
        ("NOT a = 1", "NOT (#n0 = :v0)", 'NOT ("a" IS NOT MISSING AND "a" = ?)'),
        ("a <> 1", "#n0 <> :v0", 'NOT ("a" IS NOT MISSING AND "a" = ?)'),
        ("(a=1 OR b=2) AND c=3", "(#n0 = :v0 OR #n1 = :v1) AND #n2 = :v2", '("a" = ? OR "b" = ?) AND "c" = ?'),
        ("a=1 OR b=2", "#n0 = :v0 OR #n1 = :v1", '("a" = ? OR "b" = ?)'),
        ('"a.""b" = 1', "#n0 = :v0", '"a.""b" = ?'),
    ],
)
def test_both_languages(written: str, expression: str, statement: str) -> None:
    node = parse_where(written)
    found = compile_statement(node)
    assert compile_filter(node).text == expression
    assert found is not None
    assert found.text == statement


def test_statement_parameters_in_order() -> None:
    found = compile_statement(parse_where("a BETWEEN 1 AND 2 AND b IN ('x', TRUE) AND c LIKE 'y%' AND NOT d = X'00'"))
    assert found is not None
    assert found.parameters == ({"N": "1"}, {"N": "2"}, {"S": "x"}, {"BOOL": True}, {"S": "y"}, {"B": "AA=="})
    assert compile_statement(parse_where("a IS NULL")) == Statement('attribute_type("a", ?)', ({"S": "NULL"},))


def test_statement_only_where_it_surely_means_the_same() -> None:
    assert compile_statement(parse_where("a = b")) is None
    assert compile_statement(parse_where("a = 1 AND NOT size(a) < size(b)")) is None
    assert compile_statement(parse_where("pk = 'x' OR a = 1"), KEYS) is None
    assert compile_statement(parse_where("pk.x = 'x' OR a = 1")) is not None
    assert compile_statement(parse_where(f'"{"long" * 2000}" = 1')) is None


@pytest.mark.parametrize(
    ("written", "key", "fix"),
    [
        ("k = 42", "S", "write '42'"),
        ("k IN ('a', 42)", "S", "write '42'"),
        ("k = X'00'", "S", "write a literal such as 'text'"),
        ("k <> TRUE", "S", "write a literal such as 'text'"),
        ("k = '42'", "N", "write 42"),
        ("k < 'forty'", "N", "write a literal such as 42"),
        ("k BETWEEN '1' AND '2'", "N", "write 1"),
        ("k = 'abc'", "B", "write X'616263', the bytes in hexadecimal"),
        ("k LIKE 'a%'", "B", "write X'61', the bytes in hexadecimal"),
        ("k LIKE '4%'", "N", "compare it, as in k BETWEEN 100 AND 199"),
        ("NOT (a = 1 OR contains(k, 4))", "N", "compare it, as in k BETWEEN 100 AND 199"),
        ("begins_with(k, X'00')", "S", "write a literal such as 'text'"),
    ],
)
def test_key_of_another_type(written: str, key: str, fix: str) -> None:
    keys = (KeyAttribute("k", key),)  # type: ignore[arg-type]
    with pytest.raises(BadFilter, match=r"the key k is (text \(S\)|a number \(N\)|binary \(B\))") as caught:
        compile_filter(parse_where(written), keys)
    assert caught.value.fix == fix
    with pytest.raises(BadFilter):
        split_key(parse_where(written), keys)


@pytest.mark.parametrize(
    "written", ["k = 'x'", "k.a = 42", "size(k) = 42", "k = a", "k IS NOT MISSING", "a = 42", "attribute_type(k, 'N')"]
)
def test_key_of_the_right_type(written: str) -> None:
    assert compile_filter(parse_where(written), (KeyAttribute("k", "S"),))


# case C036
@pytest.mark.parametrize(
    ("written", "condition", "rest"),
    [
        ("pk = 'x'", "#k0 = :k0", None),
        ("'x' = pk AND a = 1", "#k0 = :k0", "a = 1"),
        ("a = 1 AND pk = 'x' AND b = 2", "#k0 = :k0", "a = 1 AND b = 2"),
        ("sk > 5 AND pk = 'x'", "#k0 = :k0 AND #k1 > :k1", None),
        *((f"pk='x' AND sk {sign} 5", f"#k0 = :k0 AND #k1 {sign} :k1", None) for sign in ("=", "<", "<=", ">", ">=")),
        ("pk = 'x' AND sk BETWEEN 1 AND 2", "#k0 = :k0 AND #k1 BETWEEN :k1 AND :k2", None),
        ("pk = 'x' AND sk <= 9 AND sk >= 1 AND a = 1", "#k0 = :k0 AND #k1 BETWEEN :k1 AND :k2", "a = 1"),
        ("pk LIKE 'x' AND a = 1", "#k0 = :k0", "a = 1"),
        ("pk = 'x' AND (a = 1 OR b = 2)", "#k0 = :k0", "a = 1 OR b = 2"),
    ],
)
def test_pinned_key(written: str, condition: str, rest: str | None) -> None:
    key, others = split_key(parse_where(written), KEYS)
    assert key is not None
    assert compile_key_condition(key).text == condition
    assert others == (parse_where(rest) if rest else None)


@pytest.mark.parametrize(
    "written",
    [
        "a = 1",
        "sk = 5",
        "pk = 'x' OR a = 1",
        "NOT pk = 'x'",
        "pk <> 'x'",
        "pk LIKE 'x%'",
        "pk IN ('x')",
        "pk = a",
        "pk = ''",
        "pk.a = 'x'",
        "pk = 'x' AND pk = 'y'",
        "pk = 'x' AND sk <> 5",
        "pk = 'x' AND sk > 5 AND sk < 9",
        "pk = 'x' AND sk >= 9 AND sk <= 5",
        "pk = 'x' AND (sk > 5 OR a = 1)",
        "pk = 'x' AND size(pk) > 5",
    ],
)
def test_key_that_is_not_pinned(written: str) -> None:
    node = parse_where(written)
    assert split_key(node, KEYS) == (None, node)


def test_key_condition_with_text_sort_key() -> None:
    keys = (KeyAttribute("pk", "B"), KeyAttribute("sk", "S"))
    key, rest = split_key(parse_where("pk = X'00' AND sk LIKE '2026-%' AND n = 1"), keys)
    assert key is not None
    assert rest is not None
    condition, remainder = compile_key_condition(key), compile_filter(rest, keys)
    assert condition.text == "#k0 = :k0 AND begins_with(#k1, :k1)"
    assert not (condition.names.keys() & remainder.names.keys())
    assert not (condition.values.keys() & remainder.values.keys())


def test_table_without_sort_key_is_pinned_alone() -> None:
    key, rest = split_key(parse_where("pk = 'x' AND sk = 5"), KEYS[:1])
    assert (key, rest) == (parse_where("pk = 'x'"), parse_where("sk = 5"))


def test_guard_leaves_out_what_cannot_change() -> None:
    assert guard_of(parse_where("pk = 'x' AND a = 1 AND sk > 5"), KEYS) == A1
    assert guard_of(parse_where("pk LIKE 'x%' OR sk > 5"), KEYS) is None
    mixed = parse_where("pk = 'x' OR a = 1")
    assert guard_of(mixed, KEYS) == mixed


def test_notes_say_what_may_surprise() -> None:
    assert notes(parse_where("status <> active AND x <> 1")) == (
        "compares the attributes status and active; text would stand in single quotes",
        "<> also matches items without status",
        "<> also matches items without x",
    )
    assert notes(parse_where("NOT (a = 1 OR b LIKE 'x%') AND c NOT IN (1)")) == (
        "NOT also matches items without a",
        "NOT also matches items without b",
        "NOT also matches items without c",
    )
    assert notes(parse_where("a <> 1 AND a IS NOT MISSING AND b IS NOT NULL AND attribute_exists(c)")) == ()
    assert notes(parse_where("a = 1 AND a <> 2 AND NOT b <> 3")) == ()
    assert notes(parse_where("pk <> 'x' AND NOT sk = 1"), KEYS) == ()


def test_importing_filters_leaves_sqlglot_alone() -> None:
    code = "import sys, bulkexec.where; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
