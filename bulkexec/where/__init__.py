"""Filters: SQL, clauses or raw in; FilterExpression, KeyConditionExpression, ConditionExpression and PartiQL out.

`docs/filters.md` describes the language. Every name is aliased, so no attribute's name can be one too many (a reserved
word, a dot, any script), and every value is bound, so none can be read as anything else.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable
from itertools import count
from typing import Any

from bulkexec.errors import BadFilter
from bulkexec.model import Expression, KeyAttribute, Statement
from bulkexec.where.clauses import as_of_node, clause, conjunction, parse_clause, search_node
from bulkexec.where.evaluate import matches
from bulkexec.where.keys import check_keys, guard_of, split_key
from bulkexec.where.notes import notes
from bulkexec.where.render import Aliases, ExpressionWriter, StatementWriter
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
    Or,
    Path,
    Size,
    Value,
    is_number,
    leaves,
    mentions,
    operators,
    paths,
)

__all__ = [
    "And",
    "AttributeType",
    "BeginsWith",
    "Between",
    "Comparison",
    "Contains",
    "In",
    "IsMissing",
    "IsNull",
    "Node",
    "Not",
    "Or",
    "Path",
    "Size",
    "Value",
    "as_of_node",
    "clause",
    "compile_filter",
    "compile_key_condition",
    "compile_statement",
    "conjunction",
    "enclosed",
    "from_raw",
    "guard_of",
    "leaves",
    "matches",
    "merge",
    "notes",
    "parse_clause",
    "parse_where",
    "paths",
    "project",
    "realiased",
    "search_node",
    "split_key",
    "used",
]

# Expression limits: "Service, account, and table quotas in Amazon DynamoDB", section Expression parameters.
MAX_EXPRESSION_BYTES = 4096
MAX_OPERATORS = 300
# A PartiQL statement may have 8,192 characters; the verb, the table's name and its key need the rest.
MAX_CONDITION_CHARACTERS = 6000

_ALIAS = re.compile(r"[#:][A-Za-z0-9_]+")


def parse_where(text: str) -> Node:
    """The tree of a filter in SQL syntax. Raises BadFilter."""
    from bulkexec.where.sql import parse  # brings sqlglot, a tenth of a second that most runs can do without

    return parse(text)


def compile_filter(node: Node, table_keys: tuple[KeyAttribute, ...] = ()) -> Expression:
    """A FilterExpression or ConditionExpression.

    Raises BadFilter where a key attribute meets a literal of another type (nothing could ever match, and DynamoDB
    would not say so) and where the expression is over DynamoDB's limits of 4 KB and 300 operators.
    """
    check_keys(node, table_keys)
    return _expression(node, ("n", "v"))


def compile_key_condition(node: Node) -> Expression:
    """A KeyConditionExpression, from the first part of `split_key`. Its aliases differ from any filter's."""
    return _expression(node, ("k", "k"))


def compile_statement(node: Node, table_keys: tuple[KeyAttribute, ...] = ()) -> Statement | None:
    """The same condition in PartiQL, or None where PartiQL is not known to say the same.

    None for comparisons of two attributes (undocumented), for conditions on key attributes (next to the key's own
    equality the service may take them for a second key condition), and when the text is too long.
    """
    if mentions(node, table_keys) or any(
        isinstance(leaf, Comparison) and len(paths(leaf)) > 1 for leaf in leaves(node)
    ):
        return None
    writer = StatementWriter()
    text = writer.node(node)
    if isinstance(node, Or):
        text = f"({text})"
    return Statement(text, tuple(writer.parameters)) if len(text) <= MAX_CONDITION_CHARACTERS else None


def from_raw(expression: str, names: str | None = None, values: str | None = None) -> Expression:
    """An expression in DynamoDB's own syntax, with its names and values as JSON objects. Raises BadFilter."""
    if not expression.strip():
        raise BadFilter("--filter-expression is empty", fix="leave the option out, or write a condition")
    known_names = _json_object(names, "--expression-names")
    known_values = _json_object(values, "--expression-values")
    for alias, name in known_names.items():
        if not isinstance(name, str) or not name:
            raise BadFilter(f"--expression-names gives {alias} no attribute name", fix='{"#s": "status"}')
    for alias, value in known_values.items():
        _check_typed(value, alias)
    _check_used(expression, "#", known_names, "--expression-names")
    _check_used(expression, ":", known_values, "--expression-values")
    _check_length(expression)
    return Expression(expression.strip(), known_names, known_values)


def merge(a: Expression, b: Expression) -> Expression:
    """Both conditions at once, under new aliases."""
    aliases = Aliases()
    texts = [enclosed(_realiased(expression, aliases)) for expression in (a, b)]
    return aliases.expression(" AND ".join(texts))


def realiased(expression: Expression, prefix: tuple[str, str]) -> Expression:
    """The same expression under aliases that begin with `prefix`, so that it can share a request with another one."""
    aliases = Aliases(prefix)
    return aliases.expression(_realiased(expression, aliases))


def used(expression: str, known: str | None) -> str | None:
    """Those of some names or values, a JSON object, that an expression uses; None for none. Raises BadFilter."""
    aliases = set(_ALIAS.findall(expression))
    kept = {alias: value for alias, value in _json_object(known, "the names or values").items() if alias in aliases}
    return json.dumps(kept) if kept else None


def project(names: Iterable[str], start: Expression | None = None) -> Expression:
    """A ProjectionExpression of top-level attributes, each once; `start` is the filter sent in the same request.

    Names that the filter has aliased keep its alias; the others get new ones that the filter does not use.
    """
    alias_of = {name: alias for alias, name in (start.names if start else {}).items()}
    unused = (f"#p{number}" for number in count() if not (start and f"#p{number}" in start.names))
    wanted = {alias_of.get(name) or next(unused): name for name in dict.fromkeys(names)}
    return Expression(", ".join(wanted), wanted)


def _expression(node: Node, prefix: tuple[str, str]) -> Expression:
    aliases = Aliases(prefix)
    text = ExpressionWriter(aliases).node(node)
    if operators(node) > MAX_OPERATORS:
        raise BadFilter(
            f"the filter has {operators(node)} operators and functions, DynamoDB takes {MAX_OPERATORS}",
            fix="put many values of one attribute into IN (...), or run several filters one after the other",
        )
    _check_length(text)
    return aliases.expression(text)


def _check_length(text: str) -> None:
    if len(text.encode()) > MAX_EXPRESSION_BYTES:
        raise BadFilter(
            f"the filter makes an expression of {len(text.encode()):,} bytes, DynamoDB takes {MAX_EXPRESSION_BYTES:,}",
            fix="use fewer conditions, or run several filters one after the other",
        )


def enclosed(text: str) -> str:
    """A condition in parentheses, unless it is already: DynamoDB refuses redundant ones."""
    depth, closes = 0, []
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            closes.append(position)
    return text if text.startswith("(") and closes[:1] == [len(text) - 1] else f"({text})"


def _realiased(expression: Expression, aliases: Aliases) -> str:
    def new(match: re.Match[str]) -> str:
        alias = match.group()
        if alias in expression.names:
            return aliases.name(expression.names[alias])
        return aliases.value(expression.values[alias])

    return _ALIAS.sub(new, expression.text)


def _json_object(text: str | None, option: str) -> dict[str, Any]:
    if text is None or not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFilter(f"{option} is not JSON: {error.msg} at position {error.pos + 1}") from error
    if not isinstance(found, dict):
        raise BadFilter(
            f"{option} is not a JSON object", fix='{"#s": "status"} for names, {":v": {"S": "x"}} for values'
        )
    return found


def _check_used(expression: str, sign: str, known: dict[str, Any], option: str) -> None:
    used = {alias for alias in _ALIAS.findall(expression) if alias.startswith(sign)}
    for alias in sorted(used - known.keys()):
        raise BadFilter(f"--filter-expression uses {alias}, which {option} does not define", fix=f"add it to {option}")
    for alias in sorted(known.keys() - used):
        raise BadFilter(
            f"{option} defines {alias}, which --filter-expression does not use", fix=f"remove it from {option}"
        )


def _check_typed(value: Any, alias: str) -> None:
    """Refuses what is not DynamoDB-typed JSON, at any depth."""
    match value:
        case {"S": str()} | {"BOOL": bool()} | {"NULL": True} if len(value) == 1:
            return
        case {"N": str(text)} if len(value) == 1 and is_number(text):
            return
        case {"B": str(text)} if len(value) == 1 and _is_base64(text):
            return
        case {"SS": list(members)} | {"NS": list(members)} | {"BS": list(members)} if len(value) == 1 and members:
            kind = next(iter(value))[0]
            typed = [{kind: member} for member in members]
        case {"L": list(typed)} if len(value) == 1:
            pass
        case {"M": dict(members)} if len(value) == 1:
            typed = list(members.values())
        case _:
            raise _untyped(value, alias)
    for member in typed:
        _check_typed(member, alias)


def _untyped(value: Any, alias: str) -> BadFilter:
    shown = json.dumps(value, ensure_ascii=False)
    return BadFilter(
        f"--expression-values: {alias} has {shown}, which is not a typed value",
        fix='write {"S": "text"}, {"N": "42"}, {"B": "base64"}, {"BOOL": true}, {"NULL": true}, a set, a list or a map',
    )


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True
