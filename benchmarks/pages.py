"""Canned pages of 1 MB: order-like items of about 533 bytes with nested, binary, non-ASCII and escaped values."""

import base64
import random
import string
from pathlib import Path
from typing import Any

import msgspec

PAGES = 4
ITEMS_A_PAGE = 2000
SCAN_UNITS = 128.5
Item = dict[str, dict[str, Any]]


def item(dice: random.Random, number: int) -> Item:
    """One item in DynamoDB JSON. `status` and `total` are what predicates look at."""
    words = ("".join(dice.choices(string.ascii_lowercase, k=dice.randint(3, 9))) for _ in range(22))
    note = " ".join(words) + (' "q"\n' if number % 20 == 0 else "")
    return {
        "pk": {"S": f"customer#{number * 7919 % 10_000_000:07d}"},
        "sk": {"S": f"order#2025-{1 + number % 12:02d}-{1 + number % 28:02d}T00:{number % 60:02d}:00Z#{number:06d}"},
        "status": {"S": dice.choice(["active", "pending", "shipped", "cancelled"])},
        "total": {"N": f"{dice.random() * 1000:.2f}"},
        "qty": {"N": str(dice.randint(1, 20))},
        "tags": {"L": [{"S": dice.choice("abcdef") * 3}, {"S": dice.choice("xyz") * 2}]},
        "addr": {"M": _address(dice)},
        "flag": {"BOOL": dice.random() < 0.5},
        "note": {"S": note},
        "blob": {"B": base64.b64encode(dice.randbytes(24)).decode()},
        "createdAt": {"N": str(1_735_689_600 + number)},
    }


def _address(dice: random.Random) -> Item:
    return {
        "city": {"S": dice.choice(["Springfield", "Zürich", "New York", "San José"])},
        "zip": {"S": str(dice.randint(10_000, 99_999))},
        "lat": {"N": f"{dice.random() * 90:.4f}"},
    }


def key(whole: Item) -> Item:
    """The key attributes of an item."""
    return {"pk": whole["pk"], "sk": whole["sk"]}


def answer(items: list[Item]) -> bytes:
    """The body of a Scan answer that is never the last page."""
    return msgspec.json.encode(
        {
            "ConsumedCapacity": {"CapacityUnits": SCAN_UNITS, "TableName": "t"},
            "Count": len(items),
            "Items": items,
            "LastEvaluatedKey": key(items[-1]),
            "ScannedCount": len(items),
        }
    )


def make(directory: Path) -> None:
    """Write page0.json … page3.json and keys.json, the same every time."""
    dice = random.Random(7)
    for number in range(PAGES):
        first = number * ITEMS_A_PAGE
        items = [item(dice, each) for each in range(first, first + ITEMS_A_PAGE)]
        (directory / f"page{number}.json").write_bytes(answer(items))
    (directory / "keys.json").write_bytes(answer([key(each) for each in items]))
