"""Expressions in DynamoDB's own syntax, joining two expressions, and projections beside them."""

import pytest

from bulkexec.errors import BadFilter
from bulkexec.model import Expression
from bulkexec.where import compile_filter, from_raw, merge, parse_where, project


def test_raw_expression_is_taken_as_it_is() -> None:
    found = from_raw(" #s = :s AND age > :a ", '{"#s": "status"}', '{":s": {"S": "x"}, ":a": {"N": "1E+5"}}')
    assert found == Expression("#s = :s AND age > :a", {"#s": "status"}, {":s": {"S": "x"}, ":a": {"N": "1E+5"}})
    assert from_raw("attribute_exists(a)") == Expression("attribute_exists(a)", {}, {})


@pytest.mark.parametrize(
    "value",
    [
        *('{"S": ""}', '{"N": "-1.5e3"}', '{"B": "AA=="}', '{"B": ""}', '{"BOOL": false}', '{"NULL": true}'),
        *('{"SS": ["a", "b"]}', '{"NS": ["1"]}', '{"BS": ["AA=="]}', '{"L": []}', '{"M": {}}'),
        '{"L": [{"S": "a"}, {"M": {"x": {"N": "1"}}}]}',
    ],
)
def test_typed_values(value: str) -> None:
    assert from_raw("a = :v", None, f'{{":v": {value}}}').values.keys() == {":v"}


@pytest.mark.parametrize(
    "value",
    [
        *('"x"', "5", "null", "[]", "{}", '{"S": 5}', '{"N": 5}', '{"N": "five"}', '{"N": "1E200"}', '{"B": "?"}'),
        *('{"BOOL": "true"}', '{"NULL": false}', '{"S": "a", "N": "1"}', '{"SS": []}', '{"SS": [1]}', '{"NS": ["x"]}'),
        *('{"L": ["x"]}', '{"M": {"x": 1}}', '{"L": [{"M": {"x": {"N": 1}}}]}', '{"X": "a"}', '{"L": {}}', '{"M": []}'),
    ],
)
def test_untyped_values(value: str) -> None:
    with pytest.raises(BadFilter, match=r"--expression-values: :v has .* which is not a typed value"):
        from_raw("a = :v", None, f'{{":v": {value}}}')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", None, None), "--filter-expression is empty"),
        ((" ", '{"#a": "a"}', None), "--filter-expression is empty"),
        (("#a = :v", None, '{":v": {"S": "x"}}'), "uses #a, which --expression-names does not define"),
        (("#a = :v", '{"#a": "a"}', None), "uses :v, which --expression-values does not define"),
        (("a = :v", '{"#a": "a"}', '{":v": {"S": "x"}}'), "--expression-names defines #a, which .* does not use"),
        (("a = b", None, '{":v": {"S": "x"}}'), "--expression-values defines :v, which .* does not use"),
        (("#ab = b", '{"#a": "a"}', None), "uses #ab, which"),
        (("#a = b", "{#a: a}", None), "--expression-names is not JSON: .* at position 2"),
        (("#a = b", '["#a"]', None), "--expression-names is not a JSON object"),
        (("#a = b", '{"#a": 5}', None), "--expression-names gives #a no attribute name"),
        (("#a = b", '{"#a": ""}', None), "--expression-names gives #a no attribute name"),
        (("a = :v", None, "{"), "--expression-values is not JSON"),
        (("a" * 4097, None, None), "4,097 bytes, DynamoDB takes 4,096"),
    ],
)
def test_raw_refused(arguments: tuple[str, str | None, str | None], message: str) -> None:
    with pytest.raises(BadFilter, match=message):
        from_raw(*arguments)


def test_merge_gives_new_aliases() -> None:
    left = compile_filter(parse_where("a = 1 OR b = 2"))
    right = compile_filter(parse_where("c = 2 AND a = 'x'"))
    assert merge(left, right) == Expression(
        "(#n0 = :v0 OR #n1 = :v1) AND (#n2 = :v1 AND #n0 = :v2)",
        {"#n0": "a", "#n1": "b", "#n2": "c"},
        {":v0": {"N": "1"}, ":v1": {"N": "2"}, ":v2": {"S": "x"}},
    )


def test_merge_of_raw_expressions() -> None:
    left = from_raw("(#v0 = :n0)", '{"#v0": "a"}', '{":n0": {"L": [{"S": "x"}]}}')
    right = from_raw("(b = :n0) OR (c = :n1)", None, '{":n0": {"S": "x"}, ":n1": {"L": [{"S": "x"}]}}')
    merged = merge(left, right)
    # No redundant parentheses: DynamoDB refuses them.
    assert merged.text == "(#n0 = :v0) AND ((b = :v1) OR (c = :v0))"
    assert merged.values == {":v0": {"L": [{"S": "x"}]}, ":v1": {"S": "x"}}


def test_projection_beside_a_filter() -> None:
    filters = compile_filter(parse_where("a = 1 AND b.c = 2"))
    found = project(iter(["pk", "b", "x.y", "pk"]), filters)
    assert found.text == "#p0, #n1, #p1"
    assert found.names == {"#p0": "pk", "#n1": "b", "#p1": "x.y"}
    assert {**filters.names, **found.names} == {**found.names, **filters.names}


def test_projection_avoids_the_names_of_a_raw_filter() -> None:
    filters = from_raw("#p0 = #p1", '{"#p0": "a", "#p1": "b"}')
    assert project(["pk", "a"], filters) == Expression("#p2, #p0", {"#p2": "pk", "#p0": "a"})


def test_projection_alone() -> None:
    assert project(["key", "größe"]) == Expression("#p0, #p1", {"#p0": "key", "#p1": "größe"})
