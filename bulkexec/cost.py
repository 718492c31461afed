"""From what is known of a table to units and dollars. Pure: no I/O, no clock.

Formulas are those of the DynamoDB developer guide, "Item sizes and formats" and "Read and write operations".
"""

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import ceil
from typing import Any, Final

READ_UNIT_BYTES: Final = 4096
WRITE_UNIT_BYTES: Final = 1024
CONTAINER_BYTES: Final = 3
MAX_NUMBER_BYTES: Final = 21


def item_size_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Size of a typed item as DynamoDB meters it: every attribute name in UTF-8 plus its value.

    Binary values may be base64 text (as on the wire) or bytes (as boto3 gives them). Numbers are documented as
    approximate, so the result can be off by a byte for each of them. Raises ValueError on an unknown type.
    """
    return sum(_text_bytes(name) + _value_bytes(value) for name, value in item.items())


def read_units(size_bytes: int, consistent: bool) -> float:
    """Units of one Scan or Query page that evaluated `size_bytes`: the sum is rounded up once to 4 KB, an empty page
    costs the minimum, and eventual consistency halves."""
    units = max(1, ceil(size_bytes / READ_UNIT_BYTES))
    return float(units) if consistent else units / 2


def write_units(size_bytes: int) -> int:
    """Units of one write of an item of that size: rounded up to 1 KB, at least 1 (a miss costs 1 too)."""
    return max(1, ceil(size_bytes / WRITE_UNIT_BYTES))


def _value_bytes(value: Mapping[str, Any]) -> int:
    (tag, content) = next(iter(value.items()))
    sizer = _SIZERS.get(tag)
    if sizer is None or len(value) != 1:
        raise ValueError(f"not a DynamoDB-typed value: {sorted(value)}")
    return sizer(content)


def _text_bytes(text: str) -> int:
    return len(text.encode())


def _number_bytes(text: str) -> int:
    """One byte, one for every pair of digits aligned on the decimal point, one more for a sign; 21 at most.

    The guide says "approximately 1 byte per two significant digits + 1"; the alignment is what has been measured
    (github.com/zaccharles/dynamodb-calculator, and dynalite, which is tested against the service).
    """
    sign, digits, exponent = Decimal(text).as_tuple()
    coefficient = "".join(map(str, digits)).lstrip("0")
    significant = coefficient.rstrip("0")
    if not significant:
        return 1
    if not isinstance(exponent, int):
        raise ValueError(f"not a DynamoDB number: {text}")
    low = exponent + len(coefficient) - len(significant)
    high = low + len(significant)
    pairs = (high + high % 2 - low + low % 2) // 2
    return min(1 + pairs + sign, MAX_NUMBER_BYTES)


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
