"""Sizes of typed items as DynamoDB meters them. Pure.

Rules: DynamoDB developer guide, "DynamoDB item sizes and formats".
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

CONTAINER_BYTES: Final = 3
MAX_NUMBER_BYTES: Final = 21


def item_size_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Size of a typed item as DynamoDB meters it: every attribute name in UTF-8 plus its value.

    Binary values may be base64 text (as on the wire) or bytes (as boto3 gives them). Numbers are documented as
    approximate, so the result can be off by a byte for each of them. Raises ValueError on
    anything but typed values.
    """
    return sum(_text_bytes(name) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    for tag, content in value.items():
        if len(value) == 1 and tag in _SIZERS:
            return _SIZERS[tag](content)
    raise ValueError(f"not a DynamoDB-typed value: {sorted(value)}")


def _text_bytes(text: str) -> int:
    return len(text.encode())


def _number_bytes(text: str) -> int:
    """One byte, one for every pair of digits aligned on the decimal point, one more for a sign; 21 at most.

    The guide says "approximately 1 byte per two significant digits + 1"; the alignment is what has been measured
    (github.com/zaccharles/dynamodb-calculator, and dynalite, which is tested against the service).
    """
    sign, digits, exponent = _decimal(text).as_tuple()
    coefficient = "".join(map(str, digits)).lstrip("0")
    significant = coefficient.rstrip("0")
    if not isinstance(exponent, int):  # as_tuple gives a letter for infinity and NaN
        raise ValueError(f"not a DynamoDB number: {text}")
    if not significant:
        return 1
    low = exponent + len(coefficient) - len(significant)
    high = low + len(significant)
    pairs = (high + high % 2 - low + low % 2) // 2
    return min(1 + pairs + sign, MAX_NUMBER_BYTES)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"not a DynamoDB number: {text}") from error


def _binary_bytes(content: str | bytes | bytearray) -> int:
    return len(base64.b64decode(content, validate=True)) if isinstance(content, str) else len(bytes(content))


def _list_bytes(content: list[Mapping[str, Any]]) -> int:
    return CONTAINER_BYTES + len(content) + sum(map(_value_bytes, content))


def _map_bytes(content: Mapping[str, Mapping[str, Any]]) -> int:
    return CONTAINER_BYTES + len(content) + item_size_bytes(content)


def _one_byte(_: object) -> int:
    return 1


_SIZERS: Final[dict[str, Callable[[Any], int]]] = {
    "S": _text_bytes,
    "N": _number_bytes,
    "B": _binary_bytes,
    "BOOL": _one_byte,
    "NULL": _one_byte,
    "L": _list_bytes,
    "M": _map_bytes,
    "SS": lambda content: sum(map(_text_bytes, content)),
    "NS": lambda content: sum(map(_number_bytes, content)),
    "BS": lambda content: sum(map(_binary_bytes, content)),
}


PARTITION_KEY_BYTES, SORT_KEY_BYTES = 2048, 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


def key_size_problem(name: str, typed: Mapping[str, Any], partition: bool) -> str:
    """What is wrong with the size of a text or binary key value; empty where nothing is, and for numbers.

    Raises ValueError for what is no base64.
    """
    ((kind, content),) = typed.items()
    if kind == "N":
        return ""
    size_bytes = len(binascii.a2b_base64(content, strict_mode=True) if kind == "B" else content.encode())
    limit_bytes = PARTITION_KEY_BYTES if partition else SORT_KEY_BYTES
    if 0 < size_bytes <= limit_bytes:
        return ""
    return f"{name} has {size_bytes:,} bytes, a key has 1 to {limit_bytes:,}"
