"""From sizes to read and write units. Pure.

Rules: DynamoDB developer guide, "DynamoDB read and write operations" and "Using global secondary indexes"; an index
entry follows the item by its own size, and is charged to the index.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, Final, NamedTuple

from bulkexec.item_size import item_size_bytes
from bulkexec.model import Index, Item, Table

READ_UNIT_BYTES: Final = 4096
WRITE_UNIT_BYTES: Final = 1024
ITEM_LIMIT_BYTES: Final = 400 * 1024

TABLE: Final = ""
"""Stands for the table itself where others are names of its indexes."""


class Span(NamedTuple):
    """From `low` to `high`."""

    low: float
    high: float

    def __str__(self) -> str:
        low, high = f"{self.low:,.4g}", f"{self.high:,.4g}"
        return high if low == high else f"{low} to {high}"

    def plus(self, other: "Span") -> "Span":
        """Both together."""
        return Span(self.low + other.low, self.high + other.high)

    def within(self, other: "Span") -> "Span":
        """What of this is in `other` too; `other` when they have nothing in common."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Span(low, high) if low <= high else other

    @property
    def middle(self) -> float:
        """Half way between the two."""
        return (self.low + self.high) / 2


NOTHING: Final = Span(0.0, 0.0)


def total(spans: Iterable[Span]) -> Span:
    """All of them together."""
    listed = list(spans)
    return Span(sum(span.low for span in listed), sum(span.high for span in listed))


def read_units(size_bytes: int, consistent: bool) -> float:
    """Units of one Scan or Query page that evaluated `size_bytes`, or of one item that is got.

    The sum is rounded up once to 4 KB, an empty page or a miss costs the minimum, and eventual consistency halves.
    """
    units = max(1, ceil(size_bytes / READ_UNIT_BYTES))
    return float(units) if consistent else units / 2


def write_units(size_bytes: int) -> int:
    """Units of one write of an item of that size: rounded up to 1 KB, at least 1 (a miss costs 1 too)."""
    return max(1, ceil(size_bytes / WRITE_UNIT_BYTES))


def writes_span(items: int, size_bytes: int) -> Span:
    """Bounds on the units of one write for each of `items` items of together `size_bytes`, whatever their sizes.

    Each item rounds up to 1 KB on its own: together at least all bytes and one unit an item, and less than one unit an
    item above all bytes. A mean size cannot say where in between: half 100 B and half 1,900 B cost 1.5 units each.
    """
    low = max(items, ceil(size_bytes / WRITE_UNIT_BYTES))
    return Span(low, max(low, (size_bytes + items * (WRITE_UNIT_BYTES - 1)) // WRITE_UNIT_BYTES))


def lookups_span(items: int, size_bytes: int, consistent: bool) -> Span:
    """Bounds on the units of getting `items` items of together `size_bytes` one by one: each rounds up to 4 KB."""
    low = max(items, ceil(size_bytes / READ_UNIT_BYTES))
    span = Span(low, max(low, (size_bytes + items * (READ_UNIT_BYTES - 1)) // READ_UNIT_BYTES))
    return span if consistent else Span(span.low / 2, span.high / 2)


def index_entry(table: Table, index: Index, item: Item | None) -> Item | None:
    """What an index holds of an item; None when the item lacks one of the index's keys (a sparse index)."""
    if item is None or any(key.name not in item for key in index.keys):
        return None
    if index.projection == "ALL":
        return item
    held = {*table.key_names, *(key.name for key in index.keys), *index.included}
    return {name: value for name, value in item.items() if name in held}


def index_units(table: Table, index: Index, before: Item | None, after: Item | None) -> int:
    """Units of bringing one index up to date when a write turns `before` into `after`; None is "no item".

    Nothing where the entry stays as it is, one write to add, remove or change an entry, two when its key changes.
    """
    old, new = index_entry(table, index, before), index_entry(table, index, after)
    if old == new:
        return 0
    if old is None or new is None:
        return write_units(item_size_bytes(old or new or {}))
    if any(old[key.name] != new[key.name] for key in index.keys):
        return write_units(item_size_bytes(old)) + write_units(item_size_bytes(new))
    return write_units(max(item_size_bytes(old), item_size_bytes(new)))


Places = Mapping[str, float]
"""Units by what they are charged to: `TABLE`, or an index's name."""


def written(table: Table, before: Item | None, after: Item | None) -> dict[str, float]:
    """Units of one write that turns `before` into `after`, by `Places`, as ConsumedCapacity reports them.

    A put, a delete, an update; replicas write as much again, each in its own region. The table's share is that of the
    larger item. A write that is refused by its condition costs the table `refused` and the indexes nothing.
    """
    size_bytes = max(item_size_bytes(before or {}), item_size_bytes(after or {}))
    indexes = {index.name: float(index_units(table, index, before, after)) for index in table.indexes}
    return {TABLE: float(write_units(size_bytes)), **indexes}


def refused(table: Table, before: Item | None) -> dict[str, float]:
    """Units of a write whose condition fails: those of the item that is there, or 1."""
    return {TABLE: float(write_units(item_size_bytes(before or {}))), **{index.name: 0.0 for index in table.indexes}}


def entry_units(table: Table, item: Mapping[str, Any], touched: Iterable[str]) -> dict[str, float]:
    """The most that an update of these top-level attributes costs, if the item keeps its size.

    An index whose key may change costs two writes, one that holds an attribute which may change one.
    """
    names, units = set(touched), {TABLE: float(write_units(item_size_bytes(item)))}
    for index in table.indexes:
        entry = index_entry(table, index, item)
        once = write_units(item_size_bytes(entry or item))
        keys = {key.name for key in index.keys}
        holds = names if index.projection == "ALL" else names & (keys | set(index.included))
        units[index.name] = float(2 * once if names & keys else once if holds and entry is not None else 0)
    return units
