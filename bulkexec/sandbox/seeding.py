"""Tables of varied items to try things on. The same shape and seed give the same items."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bulkexec.item_size import item_size_bytes

STATUSES = ("ACTIVE", "EXPIRED", "PENDING", "ARCHIVED")
"""Values of the attribute `status`; an item has each with the same chance."""

CREATED_FROM = 1_700_000_000
"""`created_at` is a number of epoch seconds in the 365 days from here on."""

ITEMS_A_PARTITION = 10
"""How many items share a partition key when there is a sort key."""

_Item = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Shape:
    """A table to make: how many items of what size, and the types of its keys."""

    table: str
    items: int
    item_bytes: int
    key_type: str = "S"
    sort_key: str | None = None
    seed: int = 0


def fill(client: Any, shape: Shape) -> int:
    """Makes the table if need be and writes its items; returns how many. Raises what boto3 raises."""
    ensure_table(client, shape)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda batch: _write(client, shape.table, batch), _batches(shape)))
    return shape.items


def ensure_table(client: Any, shape: Shape) -> None:
    """Makes an on-demand table with keys `pk` and, if asked for, `sk`; an existing one stays as it is."""
    keys = [("pk", shape.key_type, "HASH"), ("sk", shape.sort_key, "RANGE")]
    try:
        client.create_table(
            TableName=shape.table,
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind, _ in keys if kind],
            KeySchema=[{"AttributeName": name, "KeyType": role} for name, kind, role in keys if kind],
            BillingMode="PAY_PER_REQUEST",
        )
    except client.exceptions.ResourceInUseException:
        return
    client.get_waiter("table_exists").wait(TableName=shape.table, WaiterConfig={"Delay": 1})


def _batches(shape: Shape) -> Iterator[list[_Item]]:
    for first in range(0, shape.items, 25):
        yield [item(shape, number) for number in range(first, min(first + 25, shape.items))]


def _write(client: Any, table: str, items: list[_Item]) -> None:
    pending = [{"PutRequest": {"Item": one}} for one in items]
    while pending:
        answer = client.batch_write_item(RequestItems={table: pending})
        pending = answer["UnprocessedItems"].get(table, [])


def item(shape: Shape, number: int) -> _Item:
    """The item of that number: keys, the attributes every item has, some that vary, and padding to its size."""
    dice = random.Random(f"{shape.seed}/{number}")
    made = _keys(shape, number) | _common(dice) | dict([_ODDITIES[number % len(_ODDITIES)](dice)])
    missing = shape.item_bytes - item_size_bytes(made) - len("padding")
    if missing > 0:
        made["padding"] = {"S": f"{dice.getrandbits(64):016x}"[:missing].ljust(missing, "x")}
    return made


def _keys(shape: Shape, number: int) -> _Item:
    if shape.sort_key is None:
        return {"pk": _key(shape.key_type, number)}
    partition, place = divmod(number, ITEMS_A_PARTITION)
    return {"pk": _key(shape.key_type, partition), "sk": _key(shape.sort_key, place)}


def _key(kind: str, number: int) -> dict[str, Any]:
    if kind == "N":
        return {"N": str(number)}
    text = f"schlüssel.{number:08d}" if number % 10 == 3 else f"item-{number:08d}"
    return {"S": text} if kind == "S" else {"B": b"\x00\xff" + text.encode()}


def _common(dice: random.Random) -> _Item:
    return {
        "status": {"S": dice.choice(STATUSES)},
        "created_at": {"N": str(CREATED_FROM + dice.randrange(365 * 86_400))},
        "size": {"N": f"{dice.randrange(10**6) / 100:.2f}"},
        "full.name": {"S": f"Zoë {dice.randrange(1000)}"},
        "active": {"BOOL": dice.random() < 0.5},
    }


_ODDITIES = (
    lambda dice: ("tags", {"SS": sorted({f"t{dice.randrange(20)}" for _ in range(3)})}),
    lambda dice: ("scores", {"NS": sorted({str(dice.randrange(100)) for _ in range(3)})}),
    lambda dice: ("blobs", {"BS": sorted({dice.randbytes(4) for _ in range(2)})}),
    lambda dice: ("exact", {"N": str(dice.randrange(10**37, 10**38))}),
    lambda dice: ("huge", {"N": f"1E+{dice.randrange(100, 125)}"}),
    lambda dice: ("note", {"S": ""}),
    lambda dice: ("größe", {"N": f"-0.{dice.randrange(1, 10**9)}"}),
    lambda dice: ("名前", {"S": "山田太郎"}),
    lambda dice: ("nothing", {"NULL": True}),
    lambda dice: ("raw", {"B": dice.randbytes(16)}),
    lambda dice: ("order", {"M": {"lines": {"L": [{"N": str(dice.randrange(9))}, {"M": {"a.b": {"S": ""}}}]}}}),
    lambda dice: (
        "list",
        {"L": [] if dice.random() < 0.5 else [{"S": "x"}, {"N": "9"}, {"BOOL": True}, {"NULL": True}]},
    ),
)
"""One of these for each item, in turn: every type, odd names and reserved words."""
