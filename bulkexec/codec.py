"""DynamoDB-typed JSON to Python values, exact, and only as far as somebody looks.

A number becomes a Decimal with its text's digits, trailing zeros and exponent. The set types are types of their own.
"""

import binascii
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec


class StringSet(frozenset[str]):
    """SS."""


class NumberSet(frozenset[Decimal]):
    """NS."""


class BinarySet(frozenset[bytes]):
    """BS."""


_typed_item = msgspec.json.Decoder(dict[str, dict[str, Any]])


def to_python(raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """A whole item as Python values. Raises msgspec.DecodeError, KeyError for a type DynamoDB does not have."""
    return _map(_typed_item.decode(raw))


def value_to_python(typed: dict[str, Any]) -> Any:
    """One typed value, e.g. `{"N": "1E+100"}`, as a Python value."""
    ((kind, value),) = typed.items()
    return _FROM[kind](value)


def _map(attributes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    # A typed value has one member; a second loop reads it faster than a call, and strings, most of all, need none.
    return {
        name: value if kind == "S" else _FROM[kind](value)
        for name, typed in attributes.items()
        for kind, value in typed.items()
    }


def _list(values: list[dict[str, Any]]) -> list[Any]:
    return [value if kind == "S" else _FROM[kind](value) for typed in values for kind, value in typed.items()]


_FROM: dict[str, Callable[[Any], Any]] = {
    "S": str,
    "N": Decimal,
    "B": binascii.a2b_base64,
    "BOOL": bool,
    "NULL": lambda value: None,
    "L": _list,
    "M": _map,
    "SS": StringSet,
    "NS": lambda values: NumberSet(map(Decimal, values)),
    "BS": lambda values: BinarySet(map(binascii.a2b_base64, values)),
}


class Attributes:
    """Decodes some top-level attributes of raw items and skips over the rest.

    `Attributes("status", "total")(raw)` gives the typed values in that order, None for one that the item does not have.
    """

    def __init__(self, *names: str) -> None:
        fields = [(f"attribute{i}", dict[str, Any] | None, None) for i in range(len(names))]
        renamed = {f"attribute{i}": name for i, name in enumerate(names)}
        self._names = names
        self._fields: tuple[str, ...] = tuple(renamed)
        try:
            self._decoder = msgspec.json.Decoder(msgspec.defstruct("Attributes", fields, rename=renamed))
        except ValueError:
            # A struct's names cannot have quotes, backslashes or control characters; DynamoDB's can. Slower then.
            self._fields = ()

    def __call__(self, raw: msgspec.Raw | bytes) -> tuple[dict[str, Any] | None, ...]:
        """The typed values of one item."""
        if not self._fields:
            item = _typed_item.decode(raw)
            return tuple([item.get(name) for name in self._names])
        found = self._decoder.decode(raw)
        return tuple([getattr(found, field) for field in self._fields])
