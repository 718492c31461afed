"""What a filter says about key attributes: whether it pins them, and whether it can match them at all."""

from bulkexec.errors import BadFilter
from bulkexec.model import KeyAttribute
from bulkexec.where.tree import (
    And,
    BeginsWith,
    Between,
    Comparison,
    Contains,
    In,
    Leaf,
    Node,
    Path,
    Value,
    is_number,
    leaves,
    mentions,
    paths,
)

_KEY_TYPES = {"S": "text (S)", "N": "a number (N)", "B": "binary (B)"}


def split_key(node: Node, keys: tuple[KeyAttribute, ...]) -> tuple[Node | None, Node | None]:
    """(key condition, rest) when the filter pins the partition key, so that a Query will do; otherwise (None, node).

    The rest becomes the Query's FilterExpression, which may not mention key attributes.
    Raises BadFilter like `compile_filter`.
    """
    check_keys(node, keys)
    terms = node.terms if isinstance(node, And) else (node,)
    pinned = [term for term in terms if _pins(term, keys[0])]
    ranges = [term for term in terms if keys[1:] and _ranges(term, keys[1])]
    rest = [term for term in terms if term not in pinned and term not in ranges]
    ranges = _joined(ranges)
    if len(pinned) != 1 or len(ranges) > 1 or any(mentions(term, keys) for term in rest):
        return None, node
    return _and([*pinned, *ranges]), _and(rest)


def guard_of(node: Node, keys: tuple[KeyAttribute, ...]) -> Node | None:
    """What of the filter can have changed since an item was read: all but top-level terms on key attributes alone."""
    names = {key.name for key in keys}
    terms = node.terms if isinstance(node, And) else (node,)
    return _and([term for term in terms if any(p.parts[0] not in names for leaf in leaves(term) for p in paths(leaf))])


def check_keys(node: Node, keys: tuple[KeyAttribute, ...]) -> None:
    """Refuses a literal that a key attribute can never equal: a table's keys have one type each."""
    types: dict[str | int, str] = {key.name: key.type for key in keys}
    for leaf in leaves(node):
        name = paths(leaf)[0].parts[0]
        values = _literals(leaf)
        if len(paths(leaf)[0].parts) > 1 or name not in types:
            continue
        if types[name] == "N" and isinstance(leaf, BeginsWith | Contains):
            raise BadFilter(
                f"the key {name} is a number (N), and a number has no beginning or part to look for",
                fix=f"compare it, as in {name} BETWEEN 100 AND 199",
            )
        for value in values:
            if value.kind != types[name]:
                raise _wrong_type(str(name), types[name], value)


def _literals(leaf: Leaf) -> tuple[Value, ...]:
    """The literals a condition holds its attribute itself (not its size) against."""
    match leaf:
        case Comparison(Path(), _, Value() as right):
            return (right,)
        case Between(Path(), low, high):
            return (low, high)
        case In(Path(), options):
            return options
        case BeginsWith(_, value) | Contains(_, value):
            return (value,)
    return ()


def _wrong_type(name: str, key_type: str, value: Value) -> BadFilter:
    return BadFilter(
        f"the key {name} is {_KEY_TYPES[key_type]}, so it can never match {value}",
        why="values of different types are never equal, and a key has one type in all items",
        fix=_rewritten(key_type, value),
    )


def _rewritten(key_type: str, value: Value) -> str:
    """How the literal would be written in the key's type, or what such a literal looks like."""
    if key_type == "S" and value.kind == "N":
        return f"write {Value('S', value.text)}"
    if key_type == "N" and value.kind == "S" and is_number(value.text):
        return f"write {value.text}"
    if key_type == "B" and value.kind in ("S", "N"):
        return f"write X'{value.text.encode().hex().upper()}', the bytes in hexadecimal"
    return "write a literal such as " + {"S": "'text'", "N": "42", "B": "X'00FF'"}[key_type]


def _and(terms: list[Node]) -> Node | None:
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else And(tuple(terms))


def _pins(term: Node, key: KeyAttribute) -> bool:
    """Whether the term fixes the partition key. DynamoDB refuses an empty key in a key condition."""
    match term:
        case Comparison(Path((key.name,)), "=", Value(text=text)):
            return bool(text)
    return False


def _ranges(term: Node, key: KeyAttribute) -> bool:
    """Whether the term is one that a key condition may have on its sort key."""
    match term:
        case Comparison(Path((key.name,)), operator, Value(text=text)):
            return bool(text) and operator != "<>"
        case Between(Path((key.name,)), Value(text=low), Value(text=high)):
            return bool(low and high)
        case BeginsWith(Path((key.name,)), Value(text=prefix)):
            return bool(prefix)
    return False


def _joined(ranges: list[Node]) -> list[Node]:
    """`sk >= a AND sk <= b` is one BETWEEN, the only way to give a key condition both ends."""
    match sorted(ranges, key=lambda term: getattr(term, "operator", ""), reverse=True):
        case [Comparison(path, ">=", Value() as low), Comparison(Path(), "<=", Value() as high)] if (
            low.order <= high.order
        ):
            assert isinstance(path, Path)
            return [Between(path, low, high)]
    return ranges
