"""SQL text to the expression tree. Only this and `where.tokens` know sqlglot, which splits and nests the text."""

import base64
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parser import Parser
from sqlglot.tokens import Token

from bulkexec.errors import BadFilter
from bulkexec.where.tokens import FUNCTIONS, MAX_NESTING, Preparation, refusal
from bulkexec.where.tree import (
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
    Operand,
    Operator,
    Or,
    Path,
    Size,
    Value,
)

TYPES = ("S", "SS", "N", "NS", "B", "BS", "BOOL", "NULL", "L", "M")
MAX_OPTIONS = 100  # operands of IN

_OPERATORS: dict[type, Operator] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_FLIPPED: dict[Operator, Operator] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _Parser(Parser):  # type: ignore[misc]  # sqlglot has no types for mypy here
    """Takes `list[0]` and `array[0]` for an element of an attribute of that name, not for a literal."""

    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}


def parse(text: str) -> Node:
    """The tree of a filter in SQL syntax. Raises BadFilter with a sentence on what, where and what to do."""
    if not text.strip():
        raise BadFilter(
            "--where is empty", fix="write a condition, or leave the option out and say --all for every item"
        )
    tokens = Preparation(text).run()
    try:
        (tree,) = _Parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _unreadable(text, tokens, error) from None
    return _node(tree)


def _unreadable(text: str, tokens: list[Token], error: ParseError) -> BadFilter:
    found = error.errors[0]
    between = "Between" in found["description"]
    fix = "write BETWEEN 1 AND 9" if between else "see docs/filters.md"
    at = [token.start for token in tokens if (token.line, token.col) == (found["line"], found["col"])]
    return refusal(text, at[0] if at else 0, f"cannot make sense of {found['highlight'] or 'the end'}", fix=fix)


def _node(tree: exp.Expression) -> Node:  # noqa: PLR0911 - one return a kind of node
    match tree:
        case exp.Paren():
            return _node(tree.this)
        case exp.And() | exp.Or():
            return _joined(tree)
        case exp.Not():
            return Not(_node(tree.this))
        case exp.Between():
            return _between(tree)
        case exp.In():
            return _in(tree)
        case exp.Like():
            found = _like(tree)
            return Not(found) if tree.args.get("negate") else found
        case exp.Is():
            return _is(_path(tree.this, "IS"), tree.expression.name)
        case exp.Anonymous():
            return _function(tree)
    if type(tree) in _OPERATORS:
        return _comparison(tree, _OPERATORS[type(tree)])
    return _no_condition(tree)


def _joined(tree: exp.Expression) -> Node:
    """A chain of one connective as one node. A loop, because chains can be longer than the stack is deep."""
    kind = And if isinstance(tree, exp.And) else Or
    terms: list[Node] = []
    links = [tree]
    while isinstance(links[-1].this, type(tree)):
        links.append(links[-1].this)
    for part in [links[-1].this, *(link.expression for link in reversed(links))]:
        term = _node(part)
        terms.extend(term.terms if isinstance(term, kind) else (term,))
    return kind(tuple(terms))


def _no_condition(tree: exp.Expression) -> NoReturn:
    operand = _operand(tree)
    if isinstance(operand, Path):
        fix = f"write {operand} = TRUE, or {operand} IS NOT MISSING"
        raise BadFilter(f"--where: {operand} alone is not a condition", fix=fix)
    raise BadFilter(
        f"--where: {operand} alone is not a condition", fix="compare an attribute with it; --all takes every item"
    )


def _operand(tree: exp.Expression) -> Operand:
    if isinstance(tree, exp.Paren):
        return _operand(tree.this)
    if isinstance(tree, exp.Anonymous) and _called(tree) == "size":
        return Size(_path(_arguments(tree, 1)[0], "size()"))
    return _value(tree) or _path(tree, "a comparison")


def _value(tree: exp.Expression) -> Value | None:
    match tree:
        case exp.Paren():
            return _value(tree.this)
        case exp.Literal():
            return Value("S" if tree.is_string else "N", tree.this)
        case exp.Boolean():
            return Value("BOOL", "true" if tree.this else "false")
        case exp.Null():
            return Value("NULL", "")
        case exp.HexString():
            return Value("B", base64.b64encode(bytes.fromhex(tree.this)).decode())
    return None


def _path(tree: exp.Expression, user: str) -> Path:
    parts = _parts(tree)
    if parts is None:
        raise BadFilter(
            f"--where: {user} takes an attribute, not {_shown(tree)}", fix="write name, map.name or list[0]"
        )
    if len(parts) > MAX_NESTING:
        raise BadFilter(f"--where: {Path(parts)} goes {len(parts)} levels deep, DynamoDB's documents go {MAX_NESTING}")
    return Path(parts)


def _shown(tree: exp.Expression) -> str:
    """What stands where it may not, in words."""
    match tree:
        case exp.Anonymous():
            return f"{_called(tree)}()"
        case exp.Tuple():
            return "a list in parentheses"
        case exp.Condition() if _value(tree) is None and _parts(tree) is None:
            return "another condition"
    return str(_value(tree) or Path(_parts(tree) or ()))


def _parts(tree: exp.Expression) -> tuple[str | int, ...] | None:
    match tree:
        case exp.Column():
            return tuple(part.name for part in tree.parts)
        case exp.Dot():
            before = _parts(tree.this)
            return None if before is None else (*before, tree.expression.name)
        case exp.Bracket():
            before = _parts(tree.this)
            return None if before is None else (*before, int(tree.expressions[0].name))
        case exp.Paren() | exp.Identifier():
            return (tree.name,) if isinstance(tree, exp.Identifier) else _parts(tree.this)
    return None


def _comparison(tree: exp.Expression, operator: Operator) -> Node:
    if isinstance(tree.this, exp.Anonymous) and _called(tree.this) == "attribute_type":
        return _type_comparison(tree, operator)
    left, right = _operand(tree.this), _operand(tree.expression)
    if isinstance(left, Value):
        if isinstance(right, Value):
            raise BadFilter(
                f"--where: {left} {operator} {right} compares two literals", fix="name an attribute on one side"
            )
        left, operator, right = right, _FLIPPED[operator], left
    for value in (right,) if isinstance(right, Value) else ():
        _check_kind(left, operator, value)
    return Comparison(left, operator, right)


def _type_comparison(tree: exp.Expression, operator: Operator) -> Node:
    found = _type(_path(_arguments(tree.this, 1)[0], "attribute_type()"), tree.expression)
    if operator not in ("=", "<>"):
        raise BadFilter(f"--where: attribute_type() has no order, so {operator} says nothing", fix="use = or <>")
    return found if operator == "=" else Not(found)


def _check_kind(left: Path | Size, operator: str, value: Value) -> None:
    if isinstance(left, Size) and value.kind != "N":
        raise BadFilter(f"--where: {left} is a number and cannot match {value}", fix=f"write {left} > 10")
    if value.kind in ("BOOL", "NULL") and operator not in ("=", "<>", "IN"):
        raise BadFilter(
            f"--where: {left} {operator} {value}: {value} has no order", fix="use = or <>, or IS [NOT] NULL"
        )


def _subject(tree: exp.Expression) -> Path | Size:
    subject = _operand(tree)
    if isinstance(subject, Value):
        raise BadFilter(f"--where: an attribute is expected in place of {subject}", fix="write low <= x AND high >= x")
    return subject


def _literal(tree: exp.Expression, user: str) -> Value:
    value = _value(tree)
    if value is None:
        raise BadFilter(
            f"--where: {user} takes literals, not {_shown(tree)}",
            fix="text stands in single quotes; compare attributes with = < <= > >=",
        )
    return value


def _between(tree: exp.Between) -> Node:
    if tree.args.get("symmetric"):
        raise BadFilter("--where: BETWEEN SYMMETRIC cannot be pushed down", fix="put the lower bound first")
    value = _subject(tree.this)
    low, high = _literal(tree.args["low"], "BETWEEN"), _literal(tree.args["high"], "BETWEEN")
    for bound in (low, high):
        _check_kind(value, "BETWEEN", bound)
    if low.kind != high.kind:
        raise BadFilter(
            f"--where: BETWEEN {low} AND {high} has bounds of different types",
            fix="write both as text, or both as numbers",
        )
    if low.order > high.order:
        raise BadFilter(
            f"--where: BETWEEN {low} AND {high} matches nothing, as the first bound is the higher one",
            fix=f"write BETWEEN {high} AND {low}",
        )
    return Between(value, low, high)


def _in(tree: exp.In) -> Node:
    options = tree.expressions
    if not options or any(tree.args.get(key) for key in ("query", "field", "unnest")):
        raise BadFilter(
            "--where: IN needs a list of literals", fix="write IN ('a', 'b'); subqueries cannot be pushed down"
        )
    if len(options) > MAX_OPTIONS:
        raise BadFilter(
            f"--where: IN has {len(options)} values, DynamoDB takes {MAX_OPTIONS}",
            fix="join two IN (...) with OR, or run several filters",
        )
    if isinstance(tree.this, exp.Anonymous) and _called(tree.this) == "attribute_type":
        path = _path(_arguments(tree.this, 1)[0], "attribute_type()")
        found = tuple(_type(path, option) for option in options)
        return found[0] if len(found) == 1 else Or(found)
    value = _subject(tree.this)
    literals = tuple(_literal(option, "IN") for option in options)
    for literal in literals:
        _check_kind(value, "IN", literal)
    return In(value, literals)


def _like(tree: exp.Like) -> Node:
    path, pattern = _path(tree.this, "LIKE"), _literal(tree.expression, "LIKE")
    text, shown = pattern.text, f"{_path(tree.this, 'LIKE')} LIKE {pattern}"
    middle = text.strip("%")
    if pattern.kind != "S":
        raise BadFilter(f"--where: {shown} needs a pattern in single quotes", fix="write LIKE 'x%'")
    if text and not middle:
        raise BadFilter(f"--where: {shown} is true of any text", fix=f"write attribute_type({path}, 'S')")
    if "_" in middle or "%" in middle:
        function = "contains" if text.startswith("%") else "begins_with"
        why = f"{shown} has a wildcard within, and DynamoDB knows only beginnings and parts"
        raise BadFilter(
            f"--where: {shown} cannot be pushed down",
            why=why,
            fix=f"if the characters themselves are meant: {function}({path}, {Value('S', middle)})",
        )
    if text.startswith("%") and not text.endswith("%"):
        why = "DynamoDB cannot ask how a text ends"
        raise BadFilter(
            f"--where: {shown} cannot be pushed down", why=why, fix=f"{path} LIKE '%{middle}%' finds the part anywhere"
        )
    if text.startswith("%"):
        return Contains(path, Value("S", middle))
    return BeginsWith(path, Value("S", middle)) if text.endswith("%") else Comparison(path, "=", pattern)


def _is(path: Path, state: str) -> Node:
    negated, _, what = state.rpartition(" ")
    if what == "null":
        # Not plain negation: "x IS NOT NULL" asks for items that have a value, so those without x are not meant.
        return And((Not(IsMissing(path)), Not(IsNull(path)))) if negated else IsNull(path)
    found = IsMissing(path) if what == "missing" else Comparison(path, "=", Value("BOOL", what))
    return Not(found) if negated else found


def _called(tree: exp.Anonymous) -> str:
    return str(tree.name).removeprefix("function ")


def _arguments(tree: exp.Anonymous, number: int) -> list[exp.Expression]:
    name = _called(tree)
    if len(tree.expressions) != number:
        raise BadFilter(
            f"--where: {name}() has {len(tree.expressions)} arguments and takes {number}",
            fix=f"write {FUNCTIONS[name]}",
        )
    return list(tree.expressions)


def _type(path: Path, tree: exp.Expression) -> Node:
    value = _value(tree)
    if value is None or value.kind != "S" or value.text not in TYPES:
        raise BadFilter(
            f"--where: attribute_type() knows no type {value or 'of that name'}",
            fix=f"one of {', '.join(TYPES)}, in single quotes",
        )
    return IsNull(path) if value.text == "NULL" else AttributeType(path, value.text)


def _function(tree: exp.Anonymous) -> Node:
    name = _called(tree)
    if name == "size":
        raise BadFilter(f"--where: {_operand(tree)} alone is not a condition", fix=f"write {_operand(tree)} > 10")
    arguments = _arguments(tree, 1 if name.endswith("exists") else 2)
    path = _path(arguments[0], f"{name}()")
    if name == "attribute_type":
        return _type(path, arguments[1])
    if name.endswith("exists"):
        return IsMissing(path) if "not" in name else Not(IsMissing(path))
    value = _literal(arguments[1], f"the second argument of {name}()")
    if name == "contains":
        return Contains(path, value)
    if value.kind not in ("S", "B"):
        raise BadFilter(
            f"--where: begins_with({path}, {value}): only text and binary have a beginning",
            fix="compare numbers with < and >",
        )
    return BeginsWith(path, value)
