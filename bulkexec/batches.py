"""Bodies of batch requests, joined from raw bytes.

An item or a key goes from a page into a request as the bytes it came in; what all requests of a run have in common is
encoded once.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bulkexec.model import Statement, Table
from bulkexec.writes import Delete, Put

TEXTS_KEPT = 1000
"""Statement texts kept at most; more come only from maps that change other attributes in every item."""

_encode = msgspec.json.encode
_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


class BatchWrite:
    """BatchWriteItem on one table. An entry is one request of it, and also what UnprocessedItems gives back."""

    def __init__(self, table: str, capacity: str = "TOTAL") -> None:
        self._begin = b'{"RequestItems":{' + _encode(table) + b":["
        self._end = b']},"ReturnConsumedCapacity":%b}' % _encode(capacity)

    def body(self, entries: Iterable[bytes | msgspec.Raw]) -> bytes:
        """The request for at most 25 entries."""
        return self._begin + b",".join(entries) + self._end

    @staticmethod
    def entries(writes: Iterable[Delete | Put]) -> list[bytes]:
        """The entry of each write."""
        return [
            b'{"DeleteRequest":{"Key":%b}}' % write.key
            if isinstance(write, Delete)
            else b'{"PutRequest":{"Item":%b}}' % write.item
            for write in writes
        ]


class Statements:
    """BatchExecuteStatement on one table: updates and deletes by key, each under a condition if there is one.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.html
    """

    def __init__(self, table: Table, capacity: str = "TOTAL") -> None:
        self._end = b'],"ReturnConsumedCapacity":%b}' % _encode(capacity)
        self._table = quoted(table.name)
        self._where = " AND ".join(f"{quoted(name)} = ?" for name in table.key_names)
        self._key_names = table.key_names
        self._texts: dict[tuple[str, str], bytes] = {}

    def body(self, entries: Iterable[bytes]) -> bytes:
        """The request for at most 25 entries."""
        return b'{"Statements":[' + b",".join(entries) + self._end

    def delete(self, key: msgspec.Raw, condition: Statement | None = None) -> bytes:
        """DELETE of one item. `key` may hold other attributes too."""
        return self._entry("DELETE FROM", "", (), key, condition)

    def update(self, key: msgspec.Raw, change: Statement, condition: Statement | None = None) -> bytes:
        """UPDATE of one item by `change`, the SET and REMOVE clauses (`SET "a" = ? REMOVE "b"`)."""
        return self._entry("UPDATE", change.text, change.parameters, key, condition)

    def _entry(
        self,
        verb: str,
        clauses: str,
        values: Sequence[dict[str, Any]],
        key: msgspec.Raw,
        condition: Statement | None,
    ) -> bytes:
        wanted = condition.text if condition is not None else ""
        begin = self._texts.get((verb + clauses, wanted)) or self._begin(verb, clauses, wanted)
        raw = _raw_values.decode(key)
        parameters = [*map(_encode, values), *[raw[name] for name in self._key_names]]
        if condition is not None:
            parameters += map(_encode, condition.parameters)
        return begin + b",".join(parameters) + b"]}"

    def _begin(self, verb: str, clauses: str, wanted: str) -> bytes:
        """The entry up to its parameters. A run has few different texts, so they are kept."""
        where = self._where + (f" AND ({wanted})" if wanted else "")
        text = " ".join(part for part in (verb, self._table, clauses, "WHERE", where) if part)
        begin = b'{"Statement":' + _encode(text) + b',"Parameters":['
        if len(self._texts) >= TEXTS_KEPT:
            self._texts.clear()
        self._texts[verb + clauses, wanted] = begin
        return begin


class KeyValues:
    """Cuts the typed key values out of raw items, in the order of the key schema, without decoding the rest."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        # A struct skips what it has no field for; its fields can be renamed to these names only.
        plain = all(name.isascii() and name.isidentifier() for name in names)
        rename = {f"key{i}": name for i, name in enumerate(names)}
        kind = msgspec.defstruct("Key", [(field, msgspec.Raw) for field in rename], rename=rename) if plain else None
        self._decoder = None if kind is None else msgspec.json.Decoder(kind)

    def __call__(self, raw: msgspec.Raw) -> Sequence[msgspec.Raw]:
        if self._decoder is None:
            values = _raw_values.decode(raw)
            return [values[name] for name in self._names]
        return msgspec.structs.astuple(self._decoder.decode(raw))


def quoted(name: str) -> str:
    """A name as PartiQL's identifier."""
    return '"' + name.replace('"', '""') + '"'
