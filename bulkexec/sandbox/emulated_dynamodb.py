"""The emulator's DynamoDB as the sandbox sees it: tables, keys, errors, and a rehearsal of writes.

Everything here reaches into ministack's module; its version is pinned, and no other module of the sandbox depends on
how it keeps its tables.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import ministack.services._dynamodb_keywords as keywords
import ministack.services.dynamodb as emulated

from bulkexec.sandbox.capacity import Item, Record
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.shelf import Shelf
from bulkexec.sandbox.sizes import size_of

Answer = tuple[int, dict[str, str], bytes]
"""HTTP status, headers and body."""


class Target(NamedTuple):
    """An item's address in the emulator: its table and the two keys it is kept under."""

    table: Record
    partition: str
    sort: str

    @property
    def address(self) -> tuple[int, str, str]:
        """The address in what a rehearsal notes."""
        return id(self.table), self.partition, self.sort

    def item(self) -> Item | None:
        """The item as it stands."""
        row = self.table["items"].get(self.partition)
        return None if row is None else row.get(self.sort)


def answer(members: dict[str, Any], status: int = 200, error_type: str = "") -> Answer:
    """A JSON answer as the emulator's handlers give it."""
    headers = {"Content-Type": "application/x-amz-json-1.0"}
    if error_type:
        headers["x-amzn-errortype"] = error_type
    return status, headers, json.dumps(members, ensure_ascii=False).encode()


def refusal(error: ServiceError) -> Answer:
    """An error as an answer."""
    prefix = "com.amazonaws.dynamodb.v20120810#"
    members = {"__type": prefix + error.code, "message": error.message, **error.details}
    return answer(members, error.status, error.code)


def table_name(reference: Any) -> str:
    """A table's name, from its name or ARN."""
    return str(emulated._normalize_table_name(reference))


def table_of(reference: Any) -> Record | None:
    """The table with that name or ARN in the request's account and region, if there is one."""
    found: Record | None = emulated._tables.get(table_name(reference))
    return found


def target_of(table: Record, keys: Any) -> Target | None:
    """The address that a key, or an item with its key, names; None when it fits not the table's schema."""
    if not isinstance(keys, dict):
        return None
    partition, sort, error = emulated._resolve_table_key_values(table, keys, allow_extra=True)
    return None if error else Target(table, partition, sort)


@contextmanager
def emptied(table: Record) -> Iterator[None]:
    """Within the block the table looks empty, so that a request is checked and nothing is read."""
    items, table["items"] = table["items"], {}
    try:
        yield
    finally:
        table["items"] = items


class Shelves:
    """A shelf for each table that was scanned, kept up to date by the emulator's own writes."""

    def __init__(self) -> None:
        self._shelves: dict[str, Shelf] = {}

    def drop(self, table: Record) -> None:
        """Forgets a table."""
        self._shelves.pop(table["TableId"], None)

    def of(self, table: Record) -> Shelf:
        """The table's shelf."""
        shelf = self._shelves.get(table["TableId"])
        if shelf is None or shelf.items is not table["items"]:
            shelf = self._shelves[table["TableId"]] = Shelf(table)
        return shelf

    def note(self, table: Record, partition: str, sort: str, item: Item) -> None:
        """Notes a written item, if the table has a shelf."""
        shelf = self._shelves.get(table["TableId"])
        if shelf is not None and shelf.items is table["items"]:
            shelf.add(partition, sort, item)


Effects = dict[tuple[int, str, str], Item | None]
"""What a request wrote: by identity of the table and both keys the new item, None where it was deleted."""


class Writes:
    """Stands in for the emulator's two functions that change a table, to note sizes and to rehearse requests."""

    def __init__(self, shelves: Shelves) -> None:
        self._shelves = shelves
        self._set, self._remove = emulated._set_item, emulated._remove_item
        self._emit = emulated._emit_stream_event
        self._rehearsed: Effects | None = None
        emulated._set_item, emulated._remove_item, emulated._emit_stream_event = self.set, self.remove, self.emit
        emulated._update_counts = _recount

    @contextmanager
    def rehearsal(self) -> Iterator[Effects]:
        """Within the block requests run through every check, but what they write is only noted."""
        effects: Effects = {}
        outer, self._rehearsed = self._rehearsed, effects
        try:
            yield effects
        finally:
            self._rehearsed = outer

    def set(self, table: Record, partition: str, sort: str, item: Item) -> Item | None:
        """Stores an item."""
        if self._rehearsed is not None:
            self._rehearsed[id(table), partition, sort] = item
            return Target(table, partition, sort).item()
        size_bytes = table["TableSizeBytes"] + size_of(item)
        old: Item | None = self._set(table, partition, sort, item)
        table["TableSizeBytes"] = size_bytes - size_of(old)
        self._shelves.note(table, partition, sort, item)
        return old

    def remove(self, table: Record, partition: str, sort: str) -> Item | None:
        """Removes an item, if it is there."""
        if self._rehearsed is not None:
            self._rehearsed[id(table), partition, sort] = None
            return Target(table, partition, sort).item()
        size_bytes = table["TableSizeBytes"]
        old: Item | None = self._remove(table, partition, sort)
        table["TableSizeBytes"] = size_bytes - size_of(old)
        return old

    def emit(self, *arguments: Any, **options: Any) -> None:
        """Sends a change to streams and replicas, unless rehearsing."""
        if self._rehearsed is None:
            self._emit(*arguments, **options)


def _recount(table: Record) -> None:
    items = [item for row in table["items"].values() for item in row.values()]
    table["ItemCount"], table["TableSizeBytes"] = len(items), sum(map(size_of, items))


def with_remembered_texts() -> None:
    """Makes the emulator read each number and each statement once: both come again and again."""
    for name in ("_ddb_canonicalize_number", "_number_error"):
        setattr(emulated, name, lru_cache(100_000)(getattr(emulated, name)))
    keywords._tokenize = lru_cache(1_000)(keywords._tokenize)


def with_canonical_keys() -> None:
    """Makes the emulator keep and look up number keys by value: 1, 1.0 and 1E0 are one key."""
    extract, canonicalize = emulated._extract_key_val, emulated._ddb_canonicalize_number

    def by_value(value: Any) -> Any:
        number = value.get("N") if isinstance(value, dict) else None
        canonical = number and canonicalize(number)
        return canonical or extract(value)

    emulated._extract_key_val = by_value
