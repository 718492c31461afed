"""Clauses, searches and moments become the trees that the same conditions in SQL become."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from bulkexec.errors import BadArgument, BadFilter
from bulkexec.model import KeyAttribute
from bulkexec.where import (
    And,
    Comparison,
    Contains,
    In,
    Node,
    Or,
    Path,
    Value,
    as_of_node,
    clause,
    compile_filter,
    compile_key_condition,
    conjunction,
    parse_clause,
    parse_where,
    search_node,
    split_key,
)

KEYS = (KeyAttribute("pk", "S"), KeyAttribute("day", "N"))
BINARY_KEY = (KeyAttribute("hash", "B"),)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("status:eq:ACTIVE", "status = 'ACTIVE'"),
        ("status:ne:ACTIVE", "status <> 'ACTIVE'"),
        ("n:lt:5", "n < 5"),
        ("n:le:-5.50", "n <= -5.50"),
        ("n:gt:1E+100", "n > 1E+100"),  # case C004
        ("n:ge:11888647184542023637", "n >= 11888647184542023637"),  # case C007
        ("n:eq:007", "n = '007'"),
        ("n:eq:+41791234567", "n = '+41791234567'"),
        ("n:eq:" + "1" * 39, f"n = '{'1' * 39}'"),
        ("n:eq:'5'", "n = '5'"),
        ('n:eq:"5"', "n = '5'"),
        ("n:eq:it's", "n = 'it''s'"),
        ("n:eq:", "n = ''"),
        ("n:eq:a:b:eq:c", "n = 'a:b:eq:c'"),
        ("n:eq: 5", "n = ' 5'"),
        ("b:eq:true", "b = TRUE"),
        ("b:ne:null", "b <> NULL"),
        ("b:eq:True", "b = 'True'"),
        ("b:eq:X'00ff'", "b = X'00FF'"),
        ("c:in:CH,DE", "c IN ('CH', 'DE')"),
        ("c:in:CH", "c IN ('CH')"),
        ("c:in:1,a,true,", "c IN (1, 'a', TRUE, '')"),
        (r"c:in:a\,b,c\\,d\e\,", "c IN ('a,b', 'c\\', 'd\\e,')"),
        ("n:btw:1,9", "n BETWEEN 1 AND 9"),
        ("n:btw:'1','9'", "n BETWEEN '1' AND '9'"),
        ("sku:beg:50", "begins_with(sku, '50')"),
        ("sku:beg:true", "begins_with(sku, 'true')"),
        ("sku:beg:X'00'", "begins_with(sku, X'00')"),
        ("tags:ct:red", "contains(tags, 'red')"),
        ("tags:ct:42", "contains(tags, 42)"),
        ("email:ex", "email IS NOT MISSING"),
        ("email:nx", "email IS MISSING"),
        ("email:nx:", "email IS MISSING"),
        ("a.b[0].c:eq:1", "a.b[0].c = 1"),
        ('"a.b".c:eq:1', '"a.b".c = 1'),
        ("-version:eq:1", '"-version" = 1'),
        ("ns:attr:eq:1", '"ns:attr" = 1'),
        ("size:eq:1", '"size" = 1'),
        ("größe:gt:180", "größe > 180"),
        ("in:in:in", "\"in\" IN ('in')"),
    ],
)
def test_a_clause_is_its_condition_in_sql(text: str, sql: str) -> None:
    assert parse_clause(text) == parse_where(sql)


@pytest.mark.parametrize(
    ("text", "keys", "sql"),
    [
        ("pk:eq:42", KEYS, "pk = '42'"),
        ("pk:eq:true", KEYS, "pk = 'true'"),
        ("pk:eq:X'00'", KEYS, "pk = 'X''00'''"),
        ("pk:in:1,2", KEYS, "pk IN ('1', '2')"),
        ("pk:beg:a/", KEYS, "begins_with(pk, 'a/')"),
        ("day:eq:'5'", KEYS, "day = 5"),
        ("day:btw:007,8", KEYS, "day BETWEEN 007 AND 8"),
        ("pk.x:eq:42", KEYS, "pk.x = 42"),
        ("hash:eq:X'00FF'", BINARY_KEY, "hash = X'00FF'"),
    ],
)
def test_a_value_takes_the_type_of_the_key(text: str, keys: tuple[KeyAttribute, ...], sql: str) -> None:
    assert parse_clause(text, keys) == parse_where(sql)
    compile_filter(parse_clause(text, keys), keys)


def test_a_key_with_a_dot_is_one_name() -> None:
    assert parse_clause("a.b:eq:1", (KeyAttribute("a.b", "S"),)) == Comparison(Path(("a.b",)), "=", Value("S", "1"))


@pytest.mark.parametrize(
    ("field", "op", "values", "wanted"),
    [
        ("n", "eq", (5,), "n = 5"),
        ("n", "eq", ("5",), "n = '5'"),
        ("n", "lt", (Decimal("1.50"),), "n < 1.50"),
        ("n", "ge", (0.1,), "n >= 0.1"),
        ("b", "eq", (True,), "b = TRUE"),
        ("b", "ne", (None,), "b <> NULL"),
        ("b", "beg", (b"\x00",), "begins_with(b, X'00')"),
        ("c", "in", ("a,b", 1), "c IN ('a,b', 1)"),
        ("n", "btw", (1, 2.5), "n BETWEEN 1 AND 2.5"),
        ("a.b", "ct", ("x",), "contains(a.b, 'x')"),
        ("e", "ex", (), "e IS NOT MISSING"),
        ("e", "nx", (), "e IS MISSING"),
        ("pk", "eq", (42,), "pk = '42'"),
        ("day", "ge", ("42",), "day >= 42"),
    ],
)
def test_a_clause_of_python_values(field: str, op: str, values: tuple[Any, ...], wanted: str) -> None:
    assert clause(field, op, *values, keys=KEYS) == parse_where(wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not field:op:value"),
        ("status", "is not field:op:value"),
        ("status=ACTIVE", "is not field:op:value"),
        ("status:equals:ACTIVE", "is not field:op:value"),
        (":eq:1", "'' names no attribute"),
        ("a..b:eq:1", "names no attribute"),
        ("[0]:eq:1", "names no attribute"),
        ("a[x]:eq:1", "names no attribute"),
        ("a]:eq:1", "names no attribute"),
        ("a.:eq:1", "names no attribute"),
        ('"a:eq:1', "names no attribute"),
        ("status:eq", "eq needs a value"),
        ("status:ex:1", "ex takes no value"),
        ("b:lt:true", "TRUE has no order"),
        ("b:btw:true,true", "TRUE has no order"),
        ("n:btw:1", "has 1 values and takes 2"),
        ("n:btw:1,2,3", "has 3 values and takes 2"),
        ("n:btw:1,a", "bounds of different types"),
        ("n:btw:9,1", "matches nothing"),
        ("n:in:" + ",".join(map(str, range(101))), "has 101 values and takes 1 to 100"),
        ("day:eq:monday", "day is a number"),
        ("day:beg:1", "only text and binary have a beginning"),
    ],
)
def test_a_clause_that_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadFilter, match=message):
        parse_clause(text, KEYS)


@pytest.mark.parametrize(
    ("op", "values", "message"),
    [
        ("like", ("x",), "no operator 'like'"),
        ("eq", (), "has 0 values and takes 1"),
        ("eq", (1, 2), "has 2 values and takes 1"),
        ("in", (), "has 0 values and takes 1 to 100"),
        ("ex", (1,), "has 1 values and takes 0"),
        ("eq", ([1],), "is a list"),
        ("eq", ({"a"},), "is a set"),
        ("eq", (float("nan"),), "NaN is no number"),
        ("eq", (object(),), "no type that DynamoDB has"),
        ("beg", (5,), "only text and binary"),
    ],
)
def test_python_values_that_say_nothing_are_refused(op: str, values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(BadFilter, match=message):
        clause("n", op, *values)


def test_a_key_of_another_type_is_refused_when_compiled() -> None:
    with pytest.raises(BadFilter, match="the key pk is text"):
        compile_filter(clause("pk", "eq", True, keys=KEYS), KEYS)


def test_clauses_on_keys_become_the_key_condition() -> None:
    node = conjunction([parse_clause(text, KEYS) for text in ("pk:eq:7", "day:btw:1,9", "status:eq:ACTIVE")])
    assert node is not None
    pinned, rest = split_key(node, KEYS)
    assert pinned is not None
    found = compile_key_condition(pinned)
    assert found.text == "#k0 = :k0 AND #k1 BETWEEN :k1 AND :k2"
    assert found.values == {":k0": {"S": "7"}, ":k1": {"N": "1"}, ":k2": {"N": "9"}}
    assert rest == parse_where("status = 'ACTIVE'")


def test_conjunction_is_flat() -> None:
    a, b, c = (parse_where(text) for text in ("a = 1", "b = 1", "c = 1 OR d = 1"))
    assert conjunction([]) is None
    assert conjunction([None, None]) is None
    assert conjunction([a, None]) == a
    assert conjunction([And((a, b)), None, c]) == And((a, b, c))


def test_search_looks_into_each_field() -> None:
    found: Node = search_node("50%", ["name", "address.city"])
    parts = tuple(Contains(Path(path), Value("S", "50%")) for path in (("name",), ("address", "city")))
    assert found == Or(parts)
    assert search_node("50%", ["name"]) == parts[0]
    with pytest.raises(BadFilter, match="no field to search"):
        search_node("x", [])
    with pytest.raises(BadFilter, match="is empty"):
        search_node("", ["name"])


NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "wanted"),
    [
        (NOON, Value("S", "2026-11-30T12:00:00.000Z")),
        (NOON.replace(tzinfo=None), Value("S", "2026-11-30T12:00:00.000Z")),
        (NOON.astimezone(timezone(timedelta(hours=5))), Value("S", "2026-11-30T12:00:00.000Z")),
        ("2026-11-30T12:00:00Z", Value("S", "2026-11-30T12:00:00Z")),
        ("2026-11-30T12:00:00+00:00", Value("S", "2026-11-30T12:00:00+00:00")),
        ("2026-11-30T13:00:00+01:00", Value("S", "2026-11-30T12:00:00.000Z")),
        ("2026-11-30", Value("S", "2026-11-30")),
        (1796040000, Value("N", "1796040000")),
        ("1796040000", Value("N", "1796040000")),
        (1796040000.5, Value("N", "1796040000.5")),
        (Decimal("1796040000.500"), Value("N", "1796040000.500")),
    ],
)
def test_a_moment(moment: Any, wanted: Value) -> None:
    assert as_of_node("createdAt", moment) == Comparison(Path(("createdAt",)), "<=", wanted)


@pytest.mark.parametrize("moment", ["yesterday", "", True, None, float("nan"), [1]])
def test_what_is_no_moment_is_refused(moment: Any) -> None:
    with pytest.raises(BadArgument, match=r"is no moment|the moment cannot be used"):
        as_of_node("createdAt", moment)


def test_in_keeps_the_order_of_its_values() -> None:
    assert parse_clause("a:in:b,a") == In(Path(("a",)), (Value("S", "b"), Value("S", "a")))
