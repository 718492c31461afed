"""A DynamoDB expression as a tree, where it can be one: the two languages differ in little but their aliases."""

import re

from bulkexec.errors import BadFilter
from bulkexec.model import Expression
from bulkexec.where.tree import Node, Value, is_number

_ALIAS = re.compile(r"[#:][A-Za-z0-9_]+")


def tree_of(expression: Expression) -> Node | None:
    """The tree that means the same, None where this language cannot say it (a set, list or map as a value)."""
    from bulkexec.where.sql import parse

    values = {alias: _literal(value) for alias, value in expression.values.items()}
    if None in values.values():
        return None
    names = {alias: '"' + name.replace('"', '""') + '"' for alias, name in expression.names.items()}
    text = _ALIAS.sub(lambda match: str((names | values)[match.group()]), expression.text)
    try:
        return parse(text)
    except BadFilter:
        return None


def _literal(typed: dict[str, object]) -> str | None:
    ((kind, content),) = typed.items()
    match kind, content:
        case "S" | "B", str():
            return str(Value(kind, content))
        case "N", str() if is_number(content):
            return content
        case "BOOL", bool():
            return str(content).upper()
        case "NULL", _:
            return "NULL"
    return None
