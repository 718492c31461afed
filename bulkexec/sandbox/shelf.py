"""A table's items in the order in which DynamoDB scans them, with their size and JSON text kept at hand.

The order is that of the partition key's hash, then of the sort key, and so depends on keys alone: a scan that goes on
from a key finds what follows it whatever was written or deleted meanwhile. A segment is a slice of the hash space.
"""

import base64
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from bulkexec.item_size import item_size_bytes
from bulkexec.sandbox.capacity import Item, Record, index_entry, key_names

HASH_SPACE = 1 << 64

_MINIMUM = ""
"""The sort key's place in tables without one."""

_encode = msgspec.json.encode


class Place(NamedTuple):
    """Where an item stands: hash of its partition key, then keys in a form that sorts as DynamoDB sorts them."""

    hash: int
    partition: str
    sort: Any


class Stored(NamedTuple):
    """An item, its size in bytes and its JSON text."""

    item: Item
    size_bytes: int
    text: bytes


def place_of(record: Record, table: Record, item: Item) -> Place:
    """The place of an item, or of a key, in a table or index with that key schema."""
    names = key_names(record)
    partition = identity(item[names[0]])
    sort = sortable(item[names[1]]) if len(names) > 1 else _MINIMUM
    if record is not table:
        # Entries of an index are told apart by the table's own keys.
        return Place(hash_of(partition), partition, (sort, *_base_keys(table, item)))
    return Place(hash_of(partition), partition, sort)


def _base_keys(table: Record, item: Item) -> Iterator[Any]:
    return (sortable(item[name]) for name in key_names(table))


def identity(value: dict[str, Any]) -> str:
    """A key value as text that is the same for equal values, however a number is written."""
    ((kind, content),) = value.items()
    return f"N{Decimal(content).normalize()}" if kind == "N" else f"{kind}{content}"


def hash_of(partition: str) -> int:
    """Where a partition key lies in the hash space, 0 to 2**64 - 1."""
    return int.from_bytes(hashlib.md5(partition.encode(), usedforsecurity=False).digest()[:8])


def sortable(value: dict[str, Any]) -> Any:
    """A key value in a form that sorts as DynamoDB sorts: numbers by value, the rest by bytes."""
    ((kind, content),) = value.items()
    if kind == "N":
        return Decimal(content)
    return content.encode() if kind == "S" else base64.b64decode(content)


def segment_of(place: Place, total: int) -> int:
    """The segment of so many in which a place lies."""
    return place.hash * total // HASH_SPACE


class Shelf:
    """The items of one table in scan order. Keys of deleted items stay in the order until it is rebuilt."""

    def __init__(self, table: Record) -> None:
        self._table = table
        self.items = table["items"]
        self._order: list[Place] = []
        self._addresses: dict[Place, tuple[str, str]] = {}
        self._fresh = False
        self._stored: dict[Place, Stored] = {}
        for partition, row in self.items.items():
            for sort, item in row.items():
                self.add(partition, sort, item)

    def add(self, partition: str, sort: str, item: Item) -> None:
        """Notes a written item."""
        place = place_of(self._table, self._table, item)
        if place not in self._addresses:
            self._addresses[place] = (partition, sort)
            self._fresh = True

    def walk(self, segment: int = 0, total: int = 1, after: Place | None = None) -> Iterator[Stored]:
        """Items of a segment in order, from behind a place on."""
        order = self._sorted()
        first = bisect_left(order, (-(-segment * HASH_SPACE // total),))
        if after is not None:
            first = max(first, bisect_right(order, after))
        end = -(-(segment + 1) * HASH_SPACE // total)
        for position in range(first, len(order)):
            place = order[position]
            if place.hash >= end:
                return
            stored = self._stored_at(place)
            if stored is not None:
                yield stored

    def _sorted(self) -> list[Place]:
        if self._fresh or len(self._addresses) > 2 * self._table["ItemCount"] + 1000:
            self._addresses = {p: a for p, a in self._addresses.items() if self._item(a) is not None}
            self._stored = {p: stored for p, stored in self._stored.items() if p in self._addresses}
            self._order = sorted(self._addresses)
            self._fresh = False
        return self._order

    def _item(self, address: tuple[str, str]) -> Item | None:
        row = self.items.get(address[0])
        return None if row is None else row.get(address[1])

    def _stored_at(self, place: Place) -> Stored | None:
        item = self._item(self._addresses[place])
        if item is None:
            return None
        stored = self._stored.get(place)
        if stored is None or stored.item is not item:
            stored = self._stored[place] = Stored(item, item_size_bytes(item), _encode(item))
        return stored


def walk_index(
    table: Record, index: Record, segment: int = 0, total: int = 1, after: Place | None = None
) -> Iterator[Stored]:
    """The same for a secondary index, whose order is made for each page."""
    rows = (item for row in table["items"].values() for item in row.values())
    entries = [(item, index_entry(table, index, item)) for item in rows]
    placed = sorted((place_of(index, table, item), entry) for item, entry in entries if entry is not None)
    for place, entry in placed:
        if segment_of(place, total) == segment and (after is None or place > after):
            yield Stored(entry, item_size_bytes(entry), _encode(entry))
