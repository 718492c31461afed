"""Bodies of batch requests, joined from raw bytes.

An item or a key goes from a page into a request as the bytes it came in; what all requests of a run have in common is
encoded once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bulkexec.model import Statement, Table
from bulkexec.writes import Delete, Observed, Put, Update

TEXTS_KEPT = 1000
"""Statement texts kept at most; more come only from maps that change other attributes in every item."""
STATEMENT_CHARACTERS = 8192
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchStatementRequest.html"""

_encode = msgspec.json.encode
_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL_TYPE = msgspec.Raw(b'{"S":"NULL"}')


class BatchWrite:
    """BatchWriteItem on one table. What stands between two writes is always the same, so a body is one join."""

    def __init__(self, table: str, capacity: str = "TOTAL") -> None:
        self._begin = b'{"RequestItems":{' + _encode(table) + b":["
        self._end = b'}}]},"ReturnConsumedCapacity":%b}' % _encode(capacity)

    def puts(self, writes: Iterable[Put]) -> bytes:
        """The request for 1 to 25 puts."""
        return self._joined(b'{"PutRequest":{"Item":', [write.item for write in writes])

    def deletes(self, writes: Iterable[Delete]) -> bytes:
        """The request for 1 to 25 deletes."""
        return self._joined(b'{"DeleteRequest":{"Key":', [write.key for write in writes])

    def _joined(self, opening: bytes, raw: Sequence[msgspec.Raw]) -> bytes:
        return self._begin + opening + (b"}}," + opening).join(raw) + self._end


class _Shape(NamedTuple):
    """What makes the text of a statement: all but its parameters."""

    verb: str
    sets: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


class Statements:
    """BatchExecuteStatement on one table: each write by its key, under its condition and the run's `guard`.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.html
    """

    def __init__(self, table: Table, capacity: str = "TOTAL", guard: Statement | None = None) -> None:
        self._end = b'],"ReturnConsumedCapacity":%b}' % _encode(capacity)
        self._table = quoted(table.name)
        self._key_names = table.key_names
        self._guard = guard.text if guard is not None else ""
        self._guard_values = [_encode(value) for value in guard.parameters] if guard is not None else []
        self._begins: dict[_Shape, bytes] = {}

    def body(self, entries: Iterable[bytes]) -> bytes:
        """The request for at most 25 entries."""
        return b'{"Statements":[' + b",".join(entries) + self._end

    def entry(self, write: Delete | Update | Put) -> bytes | None:
        """The statement of one write; of a put, one that inserts. None where its text would be too long."""
        if isinstance(write, Put):
            item = _raw_values.decode(write.item)
            return self._joined(_Shape("INSERT INTO", tuple(item)), item.values())
        key = _raw_values.decode(write.key)
        parameters: list[bytes] = [key[name] for name in self._key_names]
        tests: tuple[str, ...] = ()
        if write.observed:
            tests, values = _tests(write.observed)
            parameters += values
        parameters += self._guard_values
        if isinstance(write, Delete):
            return self._joined(_Shape("DELETE FROM", tests=tests), parameters)
        return self._joined(
            _Shape("UPDATE", tuple(write.sets), write.removes, tests), [*write.sets.values(), *parameters]
        )

    def _joined(self, shape: _Shape, parameters: Iterable[bytes]) -> bytes | None:
        begin = self._begins.get(shape)
        if begin is None:
            begin = self._begin(shape)
        return begin + b",".join(parameters) + b"]}" if begin else None

    def _begin(self, shape: _Shape) -> bytes:
        """The entry up to its parameters, empty where the text is too long. A run has few texts, so they are kept."""
        text = self._text(shape)
        begin = b'{"Statement":' + _encode(text) + b',"Parameters":[' if len(text) <= STATEMENT_CHARACTERS else b""
        if len(self._begins) >= TEXTS_KEPT:
            self._begins.clear()
        self._begins[shape] = begin
        return begin

    def _text(self, shape: _Shape) -> str:
        if shape.verb == "INSERT INTO":
            members = ", ".join([f"{_string(name)}: ?" for name in shape.sets])
            return f"{shape.verb} {self._table} VALUE {{{members}}}"
        clauses = [f"SET {quoted(name)} = ?" for name in shape.sets]
        clauses += [f"REMOVE {quoted(name)}" for name in shape.removes]
        conditions = [f"{quoted(name)} = ?" for name in self._key_names]
        conditions += [*shape.tests, *([f"({self._guard})"] if self._guard else [])]
        return " ".join([shape.verb, self._table, *clauses, "WHERE", " AND ".join(conditions)])


def _tests(observed: Observed) -> tuple[tuple[str, ...], list[msgspec.Raw]]:
    """Conditions that attributes still are as observed, and the parameters they bind.

    Of a NULL the type is asked for: in PartiQL a comparison with NULL is not plainly true.
    """
    tests, values = [], []
    for name, raw in observed.items():
        if raw is None:
            tests.append(f"{quoted(name)} IS MISSING")
            continue
        null = _is_null(raw)
        tests.append(f"attribute_type({quoted(name)}, ?)" if null else f"{quoted(name)} = ?")
        values.append(_NULL_TYPE if null else raw)
    return tuple(tests), values


def _is_null(raw: msgspec.Raw) -> bool:
    return bytes(raw).lstrip(b"{ \t\r\n").startswith(b'"NULL"')


class KeyValues:
    """Cuts the typed key values out of raw items, in the order of the key schema, without decoding the rest."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._members = [_encode(name) + b":" for name in names]
        # A struct skips what it has no field for; its fields can be renamed to these names only.
        plain = all(name.isascii() and name.isidentifier() for name in names)
        rename = {f"key{i}": name for i, name in enumerate(names)}
        fields = [(field, msgspec.Raw, msgspec.Raw()) for field in rename]
        kind = msgspec.defstruct("Key", fields, rename=rename) if plain else None
        self._decoder = None if kind is None else msgspec.json.Decoder(kind)

    def __call__(self, raw: msgspec.Raw) -> Sequence[msgspec.Raw]:
        """The values; an empty one where the item lacks the attribute."""
        if self._decoder is None:
            values: Mapping[str, msgspec.Raw] = _raw_values.decode(raw)
            return [values.get(name, msgspec.Raw()) for name in self._names]
        return msgspec.structs.astuple(self._decoder.decode(raw))

    def key(self, raw: msgspec.Raw) -> msgspec.Raw:
        """The key alone, as typed JSON."""
        found = zip(self._members, self(raw), strict=True)
        return msgspec.Raw(b"{" + b",".join([member + value for member, value in found if value]) + b"}")


def quoted(name: str) -> str:
    """A name as PartiQL's identifier."""
    return '"' + name.replace('"', '""') + '"'


def _string(text: str) -> str:
    """A text as PartiQL's string."""
    return "'" + text.replace("'", "''") + "'"
