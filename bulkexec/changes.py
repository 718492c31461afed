"""What an edit has to say: the difference between an item before and after a map, at its top level. Pure."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from bulkexec.codec import (
    BinarySet,
    NotEncodable,
    NumberSet,
    StringSet,
    attribute_from_python,
    value_from_python,
)

_ABSENT = object()
_COMPARABLE = frozenset({str, Decimal, bytes, bool, type(None), int, StringSet, NumberSet, BinarySet})
"""Types within which Python's equality is DynamoDB's. Across types it is not: True == 1, and 0.1 != Decimal("0.1")."""


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, msgspec.Raw], tuple[str, ...]]:
    """What to set (name to the new value's typed JSON) and which names to remove, to get from one item to the other.

    Both are in the Python view of `bulkexec.codec`. A value is the same if DynamoDB would call it equal: 1 and 1.0 are,
    sets have no order, a number and a text or a number and a boolean never are. The two must not share lists or maps:
    one that was changed in place is not told from one that was not. Raises NotEncodable for a new value that cannot be
    stored.
    """
    sets: dict[str, msgspec.Raw] = {}
    for name, value in after.items():
        old = before.get(name, _ABSENT)
        try:
            if old is value or _same(old, value):
                continue
        except (NotEncodable, InvalidOperation):
            # What cannot even be compared is a change; its encoding below says what is wrong with it, and where.
            pass
        if not isinstance(name, str):
            raise NotEncodable("", f"{name!r} is no name: names of attributes are str, not {type(name).__name__}")
        sets[name] = attribute_from_python(name, value)
    return sets, tuple([name for name in before if name not in after])


def _same(old: Any, new: Any) -> bool:
    if type(old) is type(new) and type(new) in _COMPARABLE:
        return bool(old == new)
    if old is _ABSENT:
        return False
    # dict before Mapping, which is much slower to ask for and hardly ever something else.
    if isinstance(old, dict | Mapping) and isinstance(new, dict | Mapping):
        return old.keys() == new.keys() and all(_same(old[name], new[name]) for name in new)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    return _comparable(old) == _comparable(new)


def _comparable(value: Any) -> tuple[str, Any]:
    ((kind, content),) = value_from_python(value).items()
    if kind == "N":
        return kind, Decimal(content)
    if kind == "NS":
        return kind, frozenset(map(Decimal, content))
    return kind, content
