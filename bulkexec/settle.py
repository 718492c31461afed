"""Items read back, consistently, to learn what became of writes whose answers do not tell."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from bulkexec.batches import KeyValues
from bulkexec.equality import canonical, same, same_items
from bulkexec.lookup import fetch_items
from bulkexec.model import Table
from bulkexec.outcome import Outcome
from bulkexec.wire import Retrying
from bulkexec.writes import Apply, Delete, Move, Put, Update, Write

Key = tuple[Any, ...]
Item = dict[str, Any]


class ReadBack:
    """Reads items of one table by the keys that writes are for. Read units go into the given outcome."""

    def __init__(self, calls: Retrying, table: Table, keys: KeyValues) -> None:
        self._calls, self._table, self._keys = calls, table, keys

    def effective(self, writes: Collection[Write], outcome: Outcome) -> set[int]:
        """The `id()` of each of these writes that the table looks as if it had taken effect."""
        stored = self.items(writes, outcome)
        return {id(write) for write in writes if _has_effect(write, stored.get(self._key(write)))}

    def settled(self, puts: Sequence[Put], outcome: Outcome) -> list[Put]:
        """Those of these puts whose place in the table holds exactly the item they would put."""
        effective = self.effective(puts, outcome)
        return [put for put in puts if id(put) in effective]

    def item(self, write: Write, outcome: Outcome) -> Item | None:
        """What is stored under the key of one write."""
        return self.items([write], outcome).get(self._key(write))

    def items(self, writes: Iterable[Write], outcome: Outcome) -> dict[Key, Item]:
        """What is stored under the keys of these writes. Raises Exhausted when the service does not give all of it."""
        wanted = {self._key(write): self._keys.key(item_of(write)) for write in writes}
        found, units = fetch_items(self._calls, self._table, list(wanted.values()))
        outcome.read_units += units
        items: list[Item] = [msgspec.json.decode(raw) for raw in found]
        return {key_of(item, self._table.key_names): item for item in items}

    def _key(self, write: Write) -> Key:
        return tuple(canonical(msgspec.json.decode(value)) for value in self._keys(item_of(write)))


def item_of(write: Write) -> msgspec.Raw:
    """The raw item or key in which the key of a write is."""
    match write:
        case Delete() | Update():
            return write.key
        case Put() | Apply():
            return write.item
        case Move():
            raise TypeError("a move is written as its put and its delete")


def key_of(item: Item, names: Sequence[str]) -> Key:
    """A typed key as something hashable; keys that are equal to DynamoDB give the same."""
    return tuple(canonical(item[name]) for name in names)


def _has_effect(write: Write, stored: Item | None) -> bool:
    match write:
        case Delete():
            return stored is None
        case Put():
            return stored is not None and same_items(stored, msgspec.json.decode(write.item))
        case Update() if stored is not None:
            sets = {name: msgspec.json.decode(raw) for name, raw in write.sets.items()}
            gone = not any(name in stored for name in write.removes)
            return gone and all(same(stored.get(name), value) for name, value in sets.items())
    return False
