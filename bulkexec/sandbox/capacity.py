"""What operations consume, by the rules of the developer guide, "Capacity unit consumption" for reads and writes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from bulkexec.sandbox.sizes import size_of

Kind = Literal["read", "write"]
Record = dict[str, Any]
Item = dict[str, Any]


@dataclass(frozen=True)
class Charge:
    """Units one request consumed of one table and of its indexes, global and local by name."""

    kind: Kind
    table_units: float = 0.0
    global_units: Mapping[str, float] = field(default_factory=dict)
    local_units: Mapping[str, float] = field(default_factory=dict)
    transactional: bool = False

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(
            self.kind,
            self.table_units + other.table_units,
            _sum(self.global_units, other.global_units),
            _sum(self.local_units, other.local_units),
            self.transactional,
        )

    @property
    def total(self) -> float:
        """All units."""
        return self.table_units + sum(self.global_units.values()) + sum(self.local_units.values())

    def to_json(self, table_name: str, indexes: bool) -> dict[str, Any]:
        """The ConsumedCapacity structure; with `indexes` the breakdown by table and index."""
        answer = {"TableName": table_name, **self._units(self.total)}
        if indexes:
            answer["Table"] = self._units(self.table_units)
            for member, units in (
                ("GlobalSecondaryIndexes", self.global_units),
                ("LocalSecondaryIndexes", self.local_units),
            ):
                if units:
                    answer[member] = {name: self._units(one) for name, one in units.items()}
        return answer

    def _units(self, units: float) -> dict[str, float]:
        if not self.transactional:
            return {"CapacityUnits": units}
        return {"CapacityUnits": units, f"{self.kind.capitalize()}CapacityUnits": units}


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def read_units(size_bytes: int, consistent: bool) -> float:
    """Units of reading so many bytes: started 4 KB, at least one (a miss costs it too), half if eventual."""
    units = float(max(1, ceil(size_bytes / 4096)))
    return units if consistent else units / 2


def write_units(size_bytes: int) -> float:
    """Units of writing so many bytes: started 1 KB, at least one."""
    return float(max(1, ceil(size_bytes / 1024)))


def write_charge(table: Record, before: Item | None, after: Item | None, transactional: bool = False) -> Charge:
    """What a write costs that turned `before` into `after`: the larger of the two, and every index it changes.

    In a transaction the table's share is double; indexes follow asynchronously at the plain price.
    """
    size_bytes = max(size_of(before), size_of(after))
    return Charge(
        "write",
        write_units(size_bytes) * (2 if transactional else 1),
        _index_charges(table, "GlobalSecondaryIndexes", before, after),
        _index_charges(table, "LocalSecondaryIndexes", before, after),
        transactional,
    )


def _index_charges(table: Record, member: str, before: Item | None, after: Item | None) -> dict[str, float]:
    charges = {index["IndexName"]: index_write_units(table, index, before, after) for index in table.get(member) or []}
    return {name: units for name, units in charges.items() if units}


def index_write_units(table: Record, index: Record, before: Item | None, after: Item | None) -> float:
    """Units of bringing one index up to date: nothing if its entry is the same, one write to add, remove or change
    an entry in place, a removal and an addition when the entry's key changes."""
    old, new = index_entry(table, index, before), index_entry(table, index, after)
    if old == new:
        return 0.0
    if old is None or new is None:
        return write_units(size_of(old or new))
    if any(old[name] != new[name] for name in key_names(index)):
        return write_units(size_of(old)) + write_units(size_of(new))
    return write_units(max(size_of(old), size_of(new)))


def key_names(holder: Record) -> list[str]:
    """Names of the key attributes of a table or an index."""
    return [key["AttributeName"] for key in holder["KeySchema"]]


def index_entry(table: Record, index: Record, item: Item | None) -> Item | None:
    """What an index holds of an item; None when the item lacks one of the index's keys."""
    if item is None or any(name not in item for name in key_names(index)):
        return None
    projection = index.get("Projection") or {}
    if projection.get("ProjectionType", "ALL") == "ALL":
        return item
    held = {*key_names(index), *key_names(table), *(projection.get("NonKeyAttributes") or [])}
    return {name: value for name, value in item.items() if name in held}
