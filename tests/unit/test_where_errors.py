"""Every refusal is one sentence that says what and where, and a line that says what to do."""

import pytest

from bulkexec.errors import BadFilter
from bulkexec.where import compile_filter, parse_where

NO_ARITHMETIC = ("DynamoDB does no arithmetic in filters", "work the value out beforehand")
NO_REGEX = ("DynamoDB has no regular expressions", "take every character as it is")
UNEXPECTED = "conditions are joined with AND or OR"
QUOTES = "write 'active' for text"
STORED = "DynamoDB compares text exactly as it is stored"

REFUSED: list[tuple[str, str, str]] = [
    ("", "--where is empty", "say --all for every item"),
    (" \t\n", "--where is empty", "say --all for every item"),
    # functions
    (
        "begin_with(a, 'x')",
        "begin_with() is not a function of DynamoDB (--where, position 1: ",
        "mean begins_with(path",
    ),
    ("a = 1 AND sizee(a) > 5", "sizee() is not a function of DynamoDB (--where, position 11: ", "mean size(path)"),
    ("contain(a, 'x')", "contain() is not a function of DynamoDB", "did you mean contains(path, 'x')?"),
    ("attribute_exist(a)", "attribute_exist() is not a function", "did you mean attribute_exists(path)?"),
    ("starts_with(a, 'x')", "starts_with() is not a function", "did you mean begins_with(path, 'x')?"),
    ("length(a) > 1", "length() is not a function", "did you mean size(path) > 10?"),
    ("now() > a", "now() is not a function of DynamoDB", "there are attribute_exists, attribute_not_exists, "),
    ("lower(a) = 'x'", f"lower() changes text, and {STORED}", "there are attribute_exists"),
    ("count(a) > 5", "count() is an aggregate over many items, and a filter sees one item at a time", "there are "),
    ("count(*) > 5", "count() is an aggregate", "there are "),
    ("CAST(a AS int) = 5", "CAST() changes types, and DynamoDB compares values as they are stored", "there are "),
    ("exists(select 1)", "exists() takes a subquery", "did you mean attribute_exists(path)?"),
    ("a = any (1)", "any() takes a subquery", "there are "),
    ("regexp_like(a, 'x')", "regexp_like() is about regular expressions", "there are "),
    ("size(size(a)) > 5", "--where: size() takes an attribute, not size()", "write name, map.name or list[0]"),
    ("size(a) = 'x'", "--where: size(a) is a number and cannot match 'x'", "write size(a) > 10"),
    ("size(a) IN (1, 'x')", "--where: size(a) is a number and cannot match 'x'", "write size(a) > 10"),
    ("size(a)", "--where: size(a) alone is not a condition", "write size(a) > 10"),
    ("size(a, b) = 1", "--where: size() has 2 arguments and takes 1", "write size(path) > 10"),
    ("size() = 1", "--where: size() has 0 arguments and takes 1", "write size(path) > 10"),
    ("size('x') = 1", "--where: size() takes an attribute, not 'x'", "write name"),
    ("size(a = 1) = 1", "--where: size() takes an attribute, not another condition", "write name"),
    ("begins_with(a, b)", "the second argument of begins_with() takes literals, not b", "text stands in single quotes"),
    ("contains(a, b.c)", "the second argument of contains() takes literals, not b.c", "text stands in single quotes"),
    ("begins_with('x', a)", "begins_with() takes an attribute, not 'x'", "write name"),
    ("begins_with(a, 5)", "begins_with(a, 5): only text and binary have a beginning", "compare numbers with < and >"),
    ("begins_with(a)", "begins_with() has 1 arguments and takes 2", "write begins_with(path, 'x')"),
    ("begins_with(a, 'x') = TRUE", "a comparison takes an attribute, not begins_with()", "write name"),
    ("attribute_type(a, 'X')", "attribute_type() knows no type 'X'", "one of S, SS, N, NS, B, BS, BOOL, NULL, L, M"),
    ("attribute_type(a) = 5", "attribute_type() knows no type 5", "one of S, SS"),
    ("attribute_type(a) > 'S'", "attribute_type() has no order, so > says nothing", "use = or <>"),
    ("attribute_exists('x')", "attribute_exists() takes an attribute, not 'x'", "write name"),
    ("a.b(1) = 2", "( is not expected here (--where, position 4: ", UNEXPECTED),
    ('"size"(a) > 1', "( is not expected here (--where, position 7: ", UNEXPECTED),
    ("size(a)[0] = 1", "a comparison takes an attribute, not another condition", "write name"),
    # LIKE and its kin
    ("a LIKE '%x'", "--where: a LIKE '%x' cannot be pushed down", "a LIKE '%x%' finds the part anywhere"),
    ("a LIKE 'x_y%'", "--where: a LIKE 'x_y%' cannot be pushed down", "begins_with(a, 'x_y')"),
    ("a LIKE '%x_y%'", "--where: a LIKE '%x_y%' cannot be pushed down", "contains(a, 'x_y')"),
    ("a LIKE 'x%y'", "--where: a LIKE 'x%y' cannot be pushed down", "begins_with(a, 'x%y')"),
    ("a NOT LIKE '_'", "--where: a LIKE '_' cannot be pushed down", "begins_with(a, '_')"),
    ("a LIKE '%'", "--where: a LIKE '%' is true of any text", "write attribute_type(a, 'S')"),
    ("a LIKE 5", "--where: a LIKE 5 needs a pattern in single quotes", "write LIKE 'x%'"),
    ("a LIKE b", "--where: LIKE takes literals, not b", "text stands in single quotes"),
    ("size(a) LIKE 'x'", "--where: LIKE takes an attribute, not size()", "write name"),
    ("a LIKE '!%' ESCAPE '!'", "LIKE 'x%' and LIKE '%x%' can be pushed down, ESCAPE cannot", "take every character"),
    ("a ILIKE 'x'", f"ILIKE ignores case, and {STORED} (--where, position 3: a ILIKE 'x')", "take every character"),
    *((f"a {sign} 'x'", *NO_REGEX) for sign in ("RLIKE", "REGEXP", "SIMILAR TO", "GLOB", "~")),
    # SQL that DynamoDB has no counterpart for
    *((f"a {sign} 1 = 5", *NO_ARITHMETIC) for sign in ("+", "*", "/", "%", "||", "&")),
    ("a - 1 = 5", *NO_ARITHMETIC),
    ("my-attr = 1", "DynamoDB does no arithmetic in filters (--where, position 3: my-attr = 1)", '"my-name"'),
    ("CASE WHEN a = 1 THEN 2 END = 2", "DynamoDB has no CASE", "give only the condition"),
    ("a IN (SELECT b FROM t)", "a filter sees one item at a time, so there is nothing to select from", "give only"),
    (
        "SELECT * FROM t WHERE a = 1",
        "there is nothing to select from (--where, position 1: ",
        "give only the condition",
    ),
    ("WHERE a = 1", "--where already says WHERE", "give only the condition that follows it"),
    ("d > DATE '2020-01-01'", "there are no DATE '…' literals", "write 'text', 42, X'00FF', TRUE, FALSE or NULL"),
    ("INTERVAL '1 day' > a", "DynamoDB has no dates", "give only the condition"),
    ("a::int = 5", "DynamoDB changes no types", "the type that is stored"),
    ("a->'b' = 5", "nested attributes are not reached with arrows", "write map.name or list[0]"),
    (
        "a = 1; b = 2",
        "--where takes one condition, not several statements (--where, position 6: ",
        "leave the semicolon",
    ),
    ("a = 1;", "--where takes one condition, not several statements", "leave the semicolon"),
    ("a = 1 -- x", "comments are not taken in a filter (--where, position 7: ", "leave it out"),
    ("a /* x */ = 1", "comments are not taken in a filter (--where, position 3: ", "leave it out"),
    ("-- x", "comments are not taken in a filter (--where, position 1: ", "leave it out"),
    ("a = --5", "comments are not taken in a filter", "leave it out"),
    *((f"a = {sign}", "placeholders belong to --filter-expression", "write the name or value") for sign in ("?", ":v")),
    ("#n = 1", "placeholders belong to --filter-expression", "write the name or value"),
    ("`a` = 1", "backquotes are not taken", "stands in double quotes"),
    ("a = 1 LIMIT 5", "LIMIT is not expected here (--where, position 7: a = 1 LIMIT 5)", UNEXPECTED),
    ("a = 1 ORDER BY b", "ORDER BY is not expected here", UNEXPECTED),
    ("a IS DISTINCT FROM b", "IS is followed by [NOT] NULL, MISSING, TRUE or FALSE only", "with = or <>"),
    ("a IS 5", "IS is followed by [NOT] NULL, MISSING, TRUE or FALSE only", "with = or <>"),
    ('a IS "MISSING"', "IS is followed by [NOT] NULL, MISSING, TRUE or FALSE only", "with = or <>"),
    ("a BETWEEN SYMMETRIC 1 AND 2", "1 is not expected here", UNEXPECTED),
    # literals and operands
    ("1 = 1", "--where: 1 = 1 compares two literals", "name an attribute on one side"),
    ("'a' <> 'b'", "--where: 'a' <> 'b' compares two literals", "name an attribute on one side"),
    ("TRUE", "--where: TRUE alone is not a condition", "--all takes every item"),
    ("a", "--where: a alone is not a condition", "write a = TRUE, or a IS NOT MISSING"),
    ("NOT a.b OR c = 1", "--where: a.b alone is not a condition", "write a.b = TRUE, or a.b IS NOT MISSING"),
    ("a < 5 < 6", "--where: a comparison takes an attribute, not another condition", "write name"),
    ("a = b = c", "--where: a comparison takes an attribute, not another condition", "write name"),
    ("(a, b) = (1, 2)", "--where: a comparison takes an attribute, not a list in parentheses", "write name"),
    ("()", "--where: a comparison takes an attribute, not a list in parentheses", "write name"),
    ("a = NOT b", "--where: a comparison takes an attribute, not another condition", "write name"),
    ("a < TRUE", "--where: a < TRUE: TRUE has no order", "use = or <>"),
    ("a >= NULL", "--where: a >= NULL: NULL has no order", "IS [NOT] NULL"),
    ("a BETWEEN FALSE AND TRUE", "--where: a BETWEEN FALSE: FALSE has no order", "use = or <>"),
    ("a BETWEEN 5 AND 1", "--where: BETWEEN 5 AND 1 matches nothing", "write BETWEEN 1 AND 5"),
    ("a BETWEEN 10 AND 9", "--where: BETWEEN 10 AND 9 matches nothing", "write BETWEEN 9 AND 10"),
    ("a BETWEEN 'b' AND 'a'", "--where: BETWEEN 'b' AND 'a' matches nothing", "write BETWEEN 'a' AND 'b'"),
    ("a BETWEEN X'01' AND X'00'", "--where: BETWEEN X'01' AND X'00' matches nothing", "write BETWEEN X'00' AND X'01'"),
    ("a BETWEEN 1 AND 'x'", "--where: BETWEEN 1 AND 'x' has bounds of different types", "write both"),
    ("a BETWEEN b AND c", "--where: BETWEEN takes literals, not b", "text stands in single quotes"),
    ("5 BETWEEN a AND b", "--where: an attribute is expected in place of 5", "low <= x AND high >= x"),
    ("a BETWEEN 1", "cannot make sense of 1 (--where, position 11: ", "write BETWEEN 1 AND 9"),
    ("a BETWEEN 1 OR 2", "cannot make sense of OR (--where, position 13: ", "write BETWEEN 1 AND 9"),
    ("a IN 5", "IN needs a list (--where, position 3: ", "write IN ('a', 'b')"),
    ("a IN ()", "--where: IN needs a list of literals", "write IN ('a', 'b')"),
    ("a IN (1,)", "nothing follows the comma", ""),
    ("a IN (b)", "--where: IN takes literals, not b", "text stands in single quotes"),
    ('a IN ("x", "y")', "--where: IN takes literals, not x", "text stands in single quotes"),
    ("1 IN (1, 2)", "--where: an attribute is expected in place of 1", ""),
    ("a = 5abc", "5abc is not a number", "double quotes"),
    ("a = 0x1F", "0x1F is not a number", "double quotes"),
    ("a = 1_000", "1_000 is not a number", "double quotes"),
    ("a = .5", ".5 is not understood", "write 0.5"),
    ("a = " + "1" * 39, "DynamoDB cannot hold " + "1" * 39, "at most 38 digits"),
    ("a = 1E126", "DynamoDB cannot hold 1E126", "from 1E-130 to 9.99E+125"),
    ("a = 1E-131", "DynamoDB cannot hold 1E-131", "from 1E-130 to 9.99E+125"),
    ("a = 1E99999999999999999999", "DynamoDB cannot hold 1E99999999999999999999", "at most 38 digits"),
    ("a = X'0'", "X'…' takes pairs of hexadecimal digits", "write X'00FF'"),
    ("a = X'zz'", "X'…' takes pairs of hexadecimal digits", "write X'00FF'"),
    ("a = E'x'", "there are no E '…' literals", "write 'text'"),
    ("a = 'x' 'y'", "'y' is not expected here", UNEXPECTED),
    ("a = [1]", "brackets hold the number of a list's element", "write list[0]"),
    # names
    ('status = "active"', 'double quotes make "active" an attribute\'s name (--where, position 10: ', QUOTES),
    ('status <> "active"', 'double quotes make "active" an attribute\'s name', QUOTES),
    ('a LIKE "active"', 'double quotes make "active" an attribute\'s name', QUOTES),
    ('size(a) > "active"', 'double quotes make "active" an attribute\'s name', QUOTES),
    ("status = \u2018active\u2019", "\u2018active\u2019 has typographic quotes", "straight ones: 'x'"),
    ("status = x\u201d", "x\u201d has typographic quotes", "straight ones: 'x'"),
    ('"" = 1', "a name in double quotes is empty", "single quotes"),
    ("a.0 = 1", ".0 is not understood", "write list[0]"),
    *(
        (f"a[{index}] = 1", "brackets hold the number of a list's element", "write list[0]")
        for index in ("-1", "x", "")
    ),
    ("a['x'] = 1", "brackets hold the number of a list's element (--where, position 2: ", "map.name for maps"),
    ("[0] = 1", "brackets hold the number of a list's element", "write list[0]"),
    ("a..b = 1", "nothing to the left of . (--where, position 3: ", ""),
    (".a = 1", "nothing to the left of . (--where, position 1: ", ""),
    ("a. = 1", "nothing to the left of = (--where, position 4: ", "name an attribute"),
    (".".join("a" * 33) + " = 1", "goes 33 levels deep, DynamoDB's documents go 32", ""),
    ("in = 5", "nothing to the left of in", 'an attribute of that name is written "in"'),
    ("a = 1 AND and = 2", "nothing to the left of and (--where, position 11: ", 'is written "and"'),
    # left-overs and gaps
    ("a = 1 b", "b is not expected here (--where, position 7: a = 1 b)", UNEXPECTED),
    ("a = 1 b = 2", "b is not expected here", UNEXPECTED),
    ("status active", "active is not expected here", UNEXPECTED),
    ("a = 1, b = 2", "cannot make sense of , (--where, position 6: ", "see docs/filters.md"),
    ("a NOT = 5", "NOT is not expected here", UNEXPECTED),
    ("a = = 5", "nothing to the left of = (--where, position 5: ", "name an attribute"),
    ("= 5", "nothing to the left of =", "name an attribute"),
    ("a =", "nothing follows = (--where, position 3: ", "complete the condition"),
    ("a = 1 AND", "nothing follows AND", "complete the condition"),
    ("NOT", "nothing follows NOT", "complete the condition"),
    ("(a = 1", "a parenthesis is opened and not closed (--where, position 1: ", ""),
    ("a = 1)", "a parenthesis is closed and was not opened (--where, position 6: ", ""),
    ("a = 'x", "a quote is opened and not closed (--where, position 5: ", "write a quote within text twice"),
    ('a = 1 AND "x', "a quote is opened and not closed (--where, position 11: ", "write a quote within text twice"),
    ("a = '\udc80'", "--where is not UTF-8 text", ""),
    # limits
    ("(" * 40 + "a=1" + ")" * 40, "more than 32 parentheses within one another", ""),
    ("NOT " * 40 + "a=1", "more than 32 NOT in a row", ""),
    ("(" * 9000 + "a=1" + ")" * 9000, "--where is too long: 18,003 words and signs", ""),
    (f"a IN ({','.join(map(str, range(101)))})", "--where: IN has 101 values, DynamoDB takes 100", "with OR"),
    (" OR ".join(["a=1"] * 200), "the filter has 399 operators and functions, DynamoDB takes 300", "IN (...)"),
    (" OR ".join(["a." * 15 + "a=1"] * 60), "DynamoDB takes 4,096", "use fewer conditions"),
]


@pytest.mark.parametrize(("written", "message", "fix"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_refused(written: str, message: str, fix: str) -> None:
    with pytest.raises(BadFilter) as caught:
        compile_filter(parse_where(written))
    assert message in caught.value.message
    assert fix in caught.value.fix
    assert "\n" not in caught.value.message
    assert "sqlglot" not in str(caught.value.lines())
    assert caught.value.exit_code == 2


def test_within_the_limits() -> None:
    assert compile_filter(parse_where(f"a IN ({','.join(map(str, range(100)))})"))
    assert compile_filter(parse_where(" OR ".join(["a=1"] * 150)))
    assert compile_filter(parse_where("(" * 32 + "a=1" + ")" * 32))
    assert compile_filter(parse_where(".".join("a" * 32) + " = 1"))


def test_position_and_excerpt() -> None:
    with pytest.raises(BadFilter) as caught:
        parse_where("first_name = 'Ann' AND last_name = 'Lee' AND sise(children) > 3 AND city = 'Bern'")
    assert caught.value.message == (
        "sise() is not a function of DynamoDB (--where, position 46: …= 'Lee' AND sise(children) > 3 AND city…)"
    )
