"""Whether two typed values are the same to DynamoDB, however their JSON is written."""

import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any


def same(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two typed values (`{"N": "1"}`) are equal; None is a value that is missing.

    Numbers are compared by value, sets without order, binary by its bytes, nested values the same way.
    """
    if one is None or other is None:
        return one is other
    return one == other or canonical(one) == canonical(other)


def same_items(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two items, maps of typed values by attribute name, are equal."""
    return one == other or _map(one) == _map(other)


def canonical(typed: Mapping[str, Any]) -> tuple[str, Any]:
    """A typed value as (type, something hashable): equal values give the same. Raises KeyError for an unknown type."""
    ((kind, value),) = typed.items()
    return kind, _OF[kind](value)


def _map(attributes: Mapping[str, Mapping[str, Any]]) -> frozenset[tuple[str, Any]]:
    return frozenset((name, canonical(typed)) for name, typed in attributes.items())


_OF: dict[str, Callable[[Any], Any]] = {
    "S": str,
    "N": Decimal,
    "B": binascii.a2b_base64,
    "BOOL": bool,
    "NULL": bool,
    "L": lambda values: tuple(map(canonical, values)),
    "M": _map,
    "SS": frozenset,
    "NS": lambda values: frozenset(map(Decimal, values)),
    "BS": lambda values: frozenset(map(binascii.a2b_base64, values)),
}
