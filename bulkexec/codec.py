"""DynamoDB-typed JSON to Python values, exact and only as far as somebody looks, and back.

A number becomes a Decimal with its text's digits, trailing zeros and exponent. The set types are types of their own.
On the way back ints and finite floats are taken too (a float by its shortest text), tuples are lists, and a builtin set
or frozenset is of the type that its members have.
"""

import binascii
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec


class StringSet(set[str]):
    """SS."""


class NumberSet(set[Decimal]):
    """NS."""


class BinarySet(set[bytes]):
    """BS."""


_typed_item = msgspec.json.Decoder(dict[str, dict[str, Any]])


def to_python(raw: msgspec.Raw | bytes) -> dict[str, Any]:
    """A whole item as Python values. Raises msgspec.DecodeError, KeyError for a type DynamoDB does not have."""
    return _map(_typed_item.decode(raw))


def fresh(item: dict[str, Any]) -> dict[str, Any]:
    """The item again, so that somebody may change it in place: lists, maps and sets are copied, all else is fixed."""
    return {name: _copied(value) if type(value) in _CHANGEABLE else value for name, value in item.items()}


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return fresh(value)
    if type(value) is list:
        return [_copied(each) for each in value]
    return type(value)(value) if type(value) in _SETS else value


_SETS = (StringSet, NumberSet, BinarySet)
_CHANGEABLE = frozenset({dict, list, *_SETS})


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


class NotEncodable(ValueError):
    """A Python value that DynamoDB cannot hold.

    `path` is the attribute's, such as `lines[0].price`; empty for a lone value.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


def from_python(item: Mapping[str, Any]) -> bytes:
    """A whole item as typed JSON. Raises NotEncodable."""
    try:
        return _encoded(_attributes(item))
    except (ValueError, RecursionError) as error:
        raise _located("", item, error) from None


def value_from_python(value: Any) -> dict[str, Any]:
    """One typed value, e.g. `{"N": "1E+100"}`. Raises NotEncodable."""
    return _checked("", value)[0]


def attribute_from_python(name: str, value: Any) -> msgspec.Raw:
    """The typed JSON of one top-level attribute's value. Raises NotEncodable, which says the name."""
    return msgspec.Raw(_checked(name, value)[1])


def _checked(path: str, value: Any) -> tuple[dict[str, Any], bytes]:
    try:
        typed = _TO[type(value)](value)
        return typed, _encoded(typed)
    except (ValueError, RecursionError) as error:
        raise _located(path, value, error) from None


_encoded = msgspec.json.Encoder().encode


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    # Both tests are here and not in functions of their own because most names and most values are plain strings.
    return {
        name if type(name) is str else _name(name): {"S": value} if type(value) is str else _TO[type(value)](value)
        for name, value in values.items()
    }


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is no name: names of attributes are str, not {type(name).__name__}")
    return str.__str__(name)


def _number(value: Decimal) -> dict[str, str]:
    text = str(value)
    if len(text) < 39 and "E" not in text and value.is_finite():
        return {"N": text}
    return {"N": _unusual(value, text)}


def _unusual(value: Decimal, text: str) -> str:
    """The text of a number that is long or has an exponent.

    DynamoDB itself writes no exponents, so text that has a negative one was not its: the zeros come back.
    """
    if not value.is_finite():
        raise ValueError(f"{value} is no number that DynamoDB can hold")
    magnitude = value.adjusted()
    if not value:
        return "0" if "E+" in text or magnitude < -130 else format(value, "f")
    if not -130 <= magnitude <= 125:
        raise ValueError(f"{_short(text)} is out of range: DynamoDB holds magnitudes from 1E-130 to 9.99E+125")
    if "E-" in text:
        text = format(value, "f")
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    if len(digits) > 38:
        raise ValueError(f"{_short(text)} has {len(digits)} significant digits, DynamoDB holds 38")
    return text


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:50]}…"


def _int(value: int) -> dict[str, str]:
    if value.bit_length() > 420:  # beyond 1E+126; Python itself refuses to write out very long ones
        raise ValueError("the number is out of range: DynamoDB holds magnitudes up to 9.99E+125")
    text = int.__repr__(value)
    return {"N": text if len(text) < 39 else _unusual(Decimal(value), text)}


def _string_set(members: Any) -> dict[str, Any]:
    return _set_of(members, "SS", "StringSet")


def _number_set(members: Any) -> dict[str, Any]:
    return _set_of(members, "NS", "NumberSet")


def _binary_set(members: Any) -> dict[str, Any]:
    return _set_of(members, "BS", "BinarySet")


def _set_of(members: Any, wanted: str, shown: str) -> dict[str, Any]:
    typed = _set(members)
    if wanted not in typed:
        raise ValueError(f"a {shown} with members of another type")
    return typed


def _set(members: Any) -> dict[str, Any]:
    if not members:
        raise ValueError("an empty set, which DynamoDB cannot hold; remove the attribute instead")
    typed = [_TO[type(member)](member) for member in members]
    kinds = {kind for member in typed for kind in member}
    kind = kinds.pop()
    if kinds or kind not in ("S", "N", "B"):
        raise ValueError("the members of a set must be all text, all numbers or all binary")
    # Sorted, because the order of a Python set of strings differs from process to process.
    return {f"{kind}S": sorted({member[kind] for member in typed})}


class _Encoders(dict[type, Callable[[Any], dict[str, Any]]]):
    """Learns the encoder of a derived type (an enum, a named tuple, boto3's Binary) when it meets one."""

    def __missing__(self, kind: type) -> Callable[[Any], dict[str, Any]]:
        encoder = self._inherited(kind)
        if encoder is None:
            raise ValueError(
                f"{kind.__module__}.{kind.__qualname__} is no type that DynamoDB has; make it text or a number"
            )
        self[kind] = encoder
        return encoder

    def _inherited(self, kind: type) -> Callable[[Any], dict[str, Any]] | None:
        # boto3 is looked for, not imported: whoever has such a value has imported it.
        boto3_types = sys.modules.get("boto3.dynamodb.types")
        if boto3_types is not None and issubclass(kind, boto3_types.Binary):
            return lambda value: _TO[bytes](value.value)
        base = next((base for base in kind.__mro__ if base in self), None)
        if base is None:
            return self[dict] if issubclass(kind, Mapping) else None
        return (lambda value: {"S": str.__str__(value)}) if base is str else self[base]


_TO: _Encoders = _Encoders(
    {
        str: lambda value: {"S": value},
        Decimal: _number,
        int: _int,
        float: lambda value: _number(Decimal(float.__repr__(value))),
        bytes: lambda value: {"B": binascii.b2a_base64(value, newline=False).decode()},
        bytearray: lambda value: {"B": binascii.b2a_base64(value, newline=False).decode()},
        bool: lambda value: {"BOOL": value},
        type(None): lambda value: {"NULL": True},
        list: lambda values: {
            "L": [{"S": value} if type(value) is str else _TO[type(value)](value) for value in values]
        },
        tuple: lambda values: {"L": [_TO[type(value)](value) for value in values]},
        dict: lambda values: {"M": _attributes(values)},
        set: _set,
        frozenset: _set,
        StringSet: _string_set,
        NumberSet: _number_set,
        BinarySet: _binary_set,
    }
)


def _located(path: str, value: Any, error: Exception) -> NotEncodable:
    """The innermost part of a value that cannot be encoded. Only a failure pays for knowing where it is."""
    if isinstance(error, RecursionError) and path:
        return NotEncodable(path, "nested without end, or far deeper than DynamoDB's 32 levels")
    for part, inner in _parts(value):
        inner_path = part if not path else f"{path}{part}" if part.startswith("[") else f"{path}.{part}"
        try:
            _encoded(_TO[type(inner)](inner))
        except (ValueError, RecursionError) as inner_error:
            return _located(inner_path, inner, inner_error)
    if isinstance(error, UnicodeEncodeError):
        return NotEncodable(path, "text with half a surrogate pair, which is not UTF-8")
    return NotEncodable(path, str(error))


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(name, inner) for name, inner in value.items() if isinstance(name, str)]
    if isinstance(value, list | tuple):
        return [(f"[{position}]", inner) for position, inner in enumerate(value)]
    return []


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
