"""A filter's tree evaluated here, on one item, as DynamoDB evaluates it there."""

import base64
from typing import Any, Literal

from bulkexec.equality import same
from bulkexec.model import Item
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
    Leaf,
    Node,
    Not,
    Operand,
    Or,
    Path,
    Size,
    Value,
)

_Typed = dict[str, Any] | None
"""One typed value; None where it is missing."""


def matches(node: Node, item: Item) -> bool:
    """Whether an item, as typed JSON, is one that the filter finds.

    Of two missing attributes that are compared with each other AWS documents nothing: here they are equal. size()
    counts the UTF-16 units of text, and a number, a boolean and NULL have none.
    """
    match node:
        case And(terms):
            return all(matches(term, item) for term in terms)
        case Or(terms):
            return any(matches(term, item) for term in terms)
        case Not(term):
            return not matches(term, item)
        case _:
            return _holds(node, item)


def _holds(leaf: Leaf, item: Item) -> bool:  # noqa: PLR0911 - one return a kind of condition
    match leaf:
        case Comparison(left, operator, right):
            return _compared(_operand(left, item), operator, _operand(right, item))
        case Between(value, low, high):
            found = _operand(value, item)
            return _compared(found, ">=", low.typed) and _compared(found, "<=", high.typed)
        case In(value, options):
            found = _operand(value, item)
            return any(same(found, option.typed) for option in options)
        case BeginsWith(path, prefix):
            return _begins_with(_at(path, item), prefix)
        case Contains(path, part):
            return _contains(_at(path, item), part)
        case IsNull(path):
            return "NULL" in (_at(path, item) or ())
        case AttributeType(path, type_):
            return type_ in (_at(path, item) or ())
        case IsMissing(path):
            return _at(path, item) is None


def _operand(operand: Operand, item: Item) -> _Typed:
    match operand:
        case Value():
            return operand.typed
        case Size(path):
            return _size(_at(path, item))
        case Path():
            return _at(operand, item)


def _at(path: Path, item: Item) -> _Typed:
    found: Any = {"M": item}
    for part in path.parts:
        if isinstance(part, int):
            members = found.get("L", ())
            found = members[part] if part < len(members) else None
        else:
            found = found.get("M", {}).get(part)
        if found is None:
            return None
    typed: dict[str, Any] = found
    return typed


def _size(typed: _Typed) -> _Typed:
    match typed:
        case {"S": str(text)}:
            return {"N": str(len(text.encode("utf-16-le", "surrogatepass")) // 2)}
        case {"B": str(text)}:
            return {"N": str(len(base64.b64decode(text)))}
        case {"SS": members} | {"NS": members} | {"BS": members} | {"L": members} | {"M": members}:
            return {"N": str(len(members))}
    return None


def _compared(left: _Typed, operator: str, right: _Typed) -> bool:
    if operator in ("=", "<>"):
        return same(left, right) == (operator == "=")
    if left is None or right is None or left.keys() != right.keys():
        return False
    kind = _ordered_kind(left)
    if kind is None:
        return False
    one, other = Value(kind, left[kind]).order, Value(kind, right[kind]).order
    if operator in ("<=", ">="):
        return bool(one <= other if operator == "<=" else one >= other)
    return bool(one < other if operator == "<" else one > other)


def _ordered_kind(typed: dict[str, Any]) -> Literal["S", "N", "B"] | None:
    match typed:
        case {"S": _}:
            return "S"
        case {"N": _}:
            return "N"
        case {"B": _}:
            return "B"
    return None


def _begins_with(typed: _Typed, prefix: Value) -> bool:
    if typed is None or prefix.kind not in typed:
        return False
    text: str | bytes = Value(prefix.kind, typed[prefix.kind]).order
    return text.startswith(prefix.order)


def _contains(typed: _Typed, part: Value) -> bool:
    if typed is None:
        return False
    ((kind, content),) = typed.items()
    if kind in ("S", "B"):
        return kind == part.kind and part.order in Value(part.kind, content).order
    members = content if kind == "L" else [{kind[0]: one} for one in content] if kind in ("SS", "NS", "BS") else []
    return any(same(member, part.typed) for member in members)
