"""Filters that are not text in SQL: clauses `field op value`, a search in several fields, and a moment.

Each gives a tree like `parse_where` does, so what becomes of one becomes of the other.
"""

import base64
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from bulkexec.codec import NotEncodable, value_from_python
from bulkexec.errors import BadArgument, BadFilter
from bulkexec.model import KeyAttribute
from bulkexec.where.tree import (
    And,
    BeginsWith,
    Between,
    Comparison,
    Contains,
    In,
    IsMissing,
    Node,
    Not,
    Operator,
    Or,
    Path,
    Value,
    is_number,
)

COMPARISONS: dict[str, Operator] = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OPERATORS = (*COMPARISONS, "in", "btw", "beg", "ct", "ex", "nx")
MAX_OPTIONS = 100  # operands of IN

_EXAMPLES = {
    "in": "status:in:ACTIVE,TRIAL",
    "btw": "age:btw:18,65",
    "beg": "sku:beg:50-",
    "ct": "tags:ct:red",
    "ex": "email:ex",
    "nx": "email:nx",
}
_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_CONSTANTS = {"true": Value("BOOL", "true"), "false": Value("BOOL", "false"), "null": Value("NULL", "")}
_HEXADECIMAL = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})*)'")
_PATH = re.compile(r'(?:^|\.)(?:"((?:[^"]|"")+)"|([^".\[\]]+))|\[(\d+)\]')


def parse_clause(text: str, keys: tuple[KeyAttribute, ...] = ()) -> Node:
    """The tree of `field:op:value`, as `--filter` takes it (docs/filters.md). Raises BadFilter.

    `keys` are the table's (or index's): a value for one of them is of its type, whatever it looks like.
    """
    field, op, rest = _split(text)
    path = _path(field, keys)
    if op in ("ex", "nx"):
        if rest:
            raise BadFilter(f"--filter {text}: {op} takes no value", fix=f"write {field}:{op}")
        return _built(path, op, ())
    if rest is None:
        raise BadFilter(f"--filter {text}: {op} needs a value", fix=f"write {_EXAMPLES.get(op, f'{field}:{op}:value')}")
    kind = _key_type(path, keys)
    texts = _comma_separated(rest) if op in ("in", "btw") else [rest]
    return _built(path, op, tuple(_literal(each, kind, op, path) for each in texts))


def clause(field: str | Path, op: str, *values: Any, keys: tuple[KeyAttribute, ...] = ()) -> Node:
    """The tree of a clause with Python values: str, numbers, bytes, bool, None. Raises BadFilter.

    `in` takes one to a hundred values, `btw` two, `ex` and `nx` none, all others one. A value for one of `keys` becomes
    of that key's type where text can be read as it.
    """
    if op not in OPERATORS:
        raise BadFilter(f"there is no operator {op!r} for a filter", fix=f"one of: {' '.join(OPERATORS)}")
    path = field if isinstance(field, Path) else _path(field, keys)
    kind = _key_type(path, keys)
    return _built(path, op, tuple(_of_key(_value(path, value), kind) for value in values))


def search_node(text: str, fields: Iterable[str]) -> Node:
    """Items that have the text in one of the fields (a part of a text, or a member of a set). Raises BadFilter."""
    if not text:
        raise BadFilter("the text to search for is empty", fix="leave the search out, or give it a text")
    found = tuple(Contains(_path(field, ()), Value("S", text)) for field in fields)
    if not found:
        raise BadFilter(
            f"there is no field to search for {text!r}", fix="declare the table's searchable fields, or use --where"
        )
    return found[0] if len(found) == 1 else Or(found)


def as_of_node(field: str, moment: datetime | str | int | float | Decimal) -> Node:
    """Items whose `field` is not later than a moment; one without the field is not among them. Raises BadArgument.

    A datetime (a naive one is UTC) is compared as text such as 2026-11-30T12:00:00.000Z, ISO text as it stands (one
    with an offset from UTC as that same moment in UTC), and a number, or text that is one, as a number.
    """
    return Comparison(_path(field, ()), "<=", _moment(moment))


def conjunction(nodes: Iterable[Node | None]) -> Node | None:
    """All of them at once; None for a condition, or a result, that is none."""
    terms: list[Node] = []
    for node in nodes:
        terms += node.terms if isinstance(node, And) else () if node is None else (node,)
    if not terms:
        return None
    return terms[0] if len(terms) == 1 else And(tuple(terms))


def _split(text: str) -> tuple[str, str, str | None]:
    """Field, operator, rest. A field may have colons: the first part that is an operator's name is the operator."""
    parts = text.split(":")
    for position, part in enumerate(parts[1:], start=1):
        if part in OPERATORS:
            rest = parts[position + 1 :]
            return ":".join(parts[:position]), part, ":".join(rest) if rest else None
    raise BadFilter(
        f"--filter {text!r} is not field:op:value", fix=f"status:eq:ACTIVE; op is one of: {' '.join(OPERATORS)}"
    )


def _path(field: str, keys: tuple[KeyAttribute, ...]) -> Path:
    """`name`, `map.name`, `list[0]`; a key's name, or one in double quotes, is one name whatever is in it."""
    if any(key.name == field for key in keys):
        return Path((field,))
    parts: list[str | int] = []
    end = 0
    for match in _PATH.finditer(field):
        quoted, plain, index = match.groups()
        if match.start() != end or (index is not None and not parts):
            break
        parts.append(int(index) if index is not None else plain or quoted.replace('""', '"'))
        end = match.end()
    if end != len(field) or not parts:
        raise BadFilter(
            f"{field!r} names no attribute", fix='write name, map.name or list[0]; "a.b" for a name with a dot'
        )
    return Path(tuple(parts))


def _key_type(path: Path, keys: tuple[KeyAttribute, ...]) -> str:
    return next((key.type for key in keys if path.parts == (key.name,)), "")


def _comma_separated(text: str) -> list[str]:
    """Split at commas; a comma or backslash that belongs to a value has a backslash before it."""
    values = [""]
    for escaped, comma, other in re.findall(r"\\([,\\])|(,)|(.)", text, re.DOTALL):
        if comma:
            values.append("")
        values[-1] += escaped or other
    return values


def _literal(text: str, kind: str, op: str, path: Path) -> Value:
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal and kind in ("", "B"):
        return Value("B", base64.b64encode(bytes.fromhex(hexadecimal[1])).decode())
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return _of_key(Value("S", text[1:-1]), kind)
    if kind == "N" and not is_number(text):
        raise BadFilter(f"the key {path} is a number (N), so it can never match {text!r}", fix=f"write {path}:{op}:42")
    if kind == "N" or (not kind and op != "beg" and _JSON_NUMBER.fullmatch(text) and is_number(text)):
        return Value("N", text)
    return Value("S", text) if kind or op == "beg" else _CONSTANTS.get(text, Value("S", text))


def _of_key(value: Value, kind: str) -> Value:
    """The value in the key's type, where its text says one. What cannot be is refused when the tree is compiled."""
    if (kind, value.kind) == ("S", "N") or ((kind, value.kind) == ("N", "S") and is_number(value.text)):
        return Value("S" if kind == "S" else "N", value.text)
    return value


def _value(path: Path, value: Any) -> Value:
    try:
        ((kind, content),) = value_from_python(value).items()
    except NotEncodable as error:
        raise BadFilter(f"the filter's value for {path}: {error}") from None
    match kind:
        case "S" | "N" | "B":
            return Value(kind, content)
        case "BOOL":
            return Value("BOOL", "true" if content else "false")
        case "NULL":
            return Value("NULL", "")
    raise BadFilter(
        f"the filter's value for {path} is a {type(value).__name__}",
        fix="compare with text, numbers, bytes, bool or None",
    )


def _built(path: Path, op: str, values: tuple[Value, ...]) -> Node:  # noqa: PLR0911 - one return an operator
    wanted = {"in": range(1, MAX_OPTIONS + 1), "btw": (2,), "ex": (0,), "nx": (0,)}.get(op, (1,))
    if len(values) not in wanted:
        raise BadFilter(
            f"the filter's {op} on {path} has {len(values)} values and takes {'1 to 100' if op == 'in' else wanted[0]}",
            fix=f"as in {_EXAMPLES.get(op, 'status:eq:ACTIVE')}; a comma within a value is written \\,",
        )
    match op:
        case "ex":
            return Not(IsMissing(path))
        case "nx":
            return IsMissing(path)
        case "in":
            return In(path, values)
        case "ct":
            return Contains(path, values[0])
        case "beg":
            return _begins_with(path, values[0])
        case "btw":
            return _between(path, *values)
    return _comparison(path, op, values[0])


def _comparison(path: Path, op: str, value: Value) -> Node:
    if value.kind in ("BOOL", "NULL") and op not in ("eq", "ne"):
        raise BadFilter(f"the filter's {op} on {path}: {value} has no order", fix="use eq or ne")
    return Comparison(path, COMPARISONS[op], value)


def _begins_with(path: Path, value: Value) -> Node:
    if value.kind not in ("S", "B"):
        raise BadFilter(f"the filter's beg on {path}: only text and binary have a beginning, {value} has none")
    return BeginsWith(path, value)


def _between(path: Path, low: Value, high: Value) -> Node:
    for bound in (low, high):
        if bound.kind in ("BOOL", "NULL"):
            raise BadFilter(f"the filter's btw on {path}: {bound} has no order", fix="use eq or in")
    if low.kind != high.kind:
        raise BadFilter(
            f"the filter's btw on {path} has bounds of different types: {low} and {high}",
            fix="quotes make text of a number: age:btw:'1','9'",
        )
    if low.order > high.order:
        raise BadFilter(
            f"the filter's btw on {path} matches nothing, as {low} is higher than {high}", fix="the lower bound first"
        )
    return Between(path, low, high)


def _moment(moment: datetime | str | int | float | Decimal) -> Value:
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return Value("S", aware.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    if isinstance(moment, str):
        return _moment_text(moment)
    if isinstance(moment, bool) or not isinstance(moment, int | float | Decimal):
        raise BadArgument(f"{moment!r} is no moment", fix="give a datetime, ISO text or an epoch number")
    try:
        return Value("N", value_from_python(moment)["N"])
    except NotEncodable as error:
        raise BadArgument(
            f"the moment cannot be used: {error}", fix="give a datetime, ISO text or an epoch number"
        ) from None


def _moment_text(text: str) -> Value:
    if is_number(text):
        return Value("N", text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise BadArgument(
            f"{text!r} is no moment", fix="give ISO text such as 2026-11-30T12:00:00.000Z, or an epoch number"
        ) from None
    # The same moment is written in many ways and text is compared as it is written: no offset is kept.
    return _moment(parsed) if parsed.utcoffset() else Value("S", text)
