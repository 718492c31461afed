"""Bodies of PutItem, DeleteItem and UpdateItem on one table: one item a request, under any condition.

Every name is aliased and every value bound, under aliases that no expression of the user's has.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from bulkexec import errors
from bulkexec.batches import KeyValues
from bulkexec.model import Expression, Table
from bulkexec.where import enclosed
from bulkexec.writes import Apply, Delete, Move, Observed, Put, Update, Write

_encode = msgspec.json.encode


class ItemRequests:
    """Makes the request of one write. `guard` goes with deletes and updates, `update` is what `Apply` runs.

    Raises BadArgument when one alias means two things in the two.
    """

    def __init__(
        self, table: Table, keys: KeyValues, capacity: str, guard: Expression | None, update: Expression | None
    ) -> None:
        self._keys, self._partition_key, self._guard, self._update = keys, table.key_names[0], guard, update
        self._common = {"TableName": table.name, "ReturnConsumedCapacity": capacity}
        _check_aliases(guard, update)
        self._prefix = _unused_prefix(guard, update)

    def request(self, write: Write) -> tuple[str, bytes]:
        """(operation, body)."""
        match write:
            case Put():
                return "PutItem", self._put(write)
            case Delete():
                return "DeleteItem", self._delete(write)
            case Update():
                return "UpdateItem", self._change(write)
            case Apply():
                return "UpdateItem", self._apply(write)
            case Move():
                raise TypeError("a move is written as its put and its delete")

    def _put(self, write: Put) -> bytes:
        bound = _Bound(self._prefix)
        if write.when:
            bound.condition = f"attribute_{'not_' * (write.when == 'absent')}exists({bound.name(self._partition_key)})"
        return _encode({**self._common, "Item": write.item, **bound.members()})

    def _delete(self, write: Delete) -> bytes:
        """Like PartiQL's DELETE and BatchWriteItem's: that the item is gone already is no error."""
        bound = _Bound(self._prefix)
        tests = [*bound.observed(write.observed), *bound.guard(self._guard)]
        if tests:
            bound.condition = f"attribute_not_exists({bound.name(self._partition_key)}) OR {' AND '.join(tests)}"
        return _encode({**self._common, "Key": self._keys.key(write.key), **bound.members()})

    def _change(self, write: Update) -> bytes:
        bound = _Bound(self._prefix)
        sets = ", ".join([f"{bound.name(name)} = {bound.value(value)}" for name, value in write.sets.items()])
        removes = ", ".join(map(bound.name, write.removes))
        clauses = [f"SET {sets}" if sets else "", f"REMOVE {removes}" if removes else ""]
        bound.update = " ".join(filter(None, clauses))
        return self._updating(write.key, write.observed, bound)

    def _apply(self, write: Apply) -> bytes:
        if self._update is None:
            raise TypeError("the work has no update expression to apply")
        bound = _Bound(self._prefix)
        bound.take(self._update)
        bound.update = self._update.text
        return self._updating(write.item, {}, bound)

    def _updating(self, item: msgspec.Raw, observed: Observed, bound: "_Bound") -> bytes:
        # Without this an update would bring an item back that was deleted meanwhile, as a stub (case C028).
        there = f"attribute_exists({bound.name(self._partition_key)})"
        bound.condition = " AND ".join([there, *bound.observed(observed), *bound.guard(self._guard)])
        body = {**self._common, "Key": self._keys.key(item), "UpdateExpression": bound.update}
        return _encode({**body, **bound.members()})


class _Bound:
    """The names and values of one request, with its expressions."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._names: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self.condition = self.update = ""

    def name(self, attribute: str) -> str:
        alias = f"#{self._prefix}{len(self._names)}"
        self._names[alias] = attribute
        return alias

    def value(self, raw: msgspec.Raw) -> str:
        alias = f":{self._prefix}{len(self._values)}"
        self._values[alias] = raw
        return alias

    def take(self, expression: Expression) -> None:
        self._names |= expression.names
        self._values |= expression.values

    def observed(self, observed: Observed) -> list[str]:
        return [
            f"attribute_not_exists({self.name(name)})" if raw is None else f"{self.name(name)} = {self.value(raw)}"
            for name, raw in observed.items()
        ]

    def guard(self, guard: Expression | None) -> list[str]:
        if guard is None:
            return []
        self.take(guard)
        return [enclosed(guard.text)]

    def members(self) -> dict[str, Any]:
        """Those members of the request that are there at all; the service refuses empty ones."""
        found = {
            "ConditionExpression": self.condition,
            "ExpressionAttributeNames": self._names,
            "ExpressionAttributeValues": self._values,
        }
        return {name: value for name, value in found.items() if value}


def _unused_prefix(*expressions: Expression | None) -> str:
    """A prefix that no alias of these begins with; users choose theirs freely."""
    prefix = "w"
    aliases = [alias[1:] for each in expressions if each for alias in (*each.names, *each.values)]
    while any(alias.startswith(prefix) for alias in aliases):
        prefix += "w"
    return prefix


def _check_aliases(guard: Expression | None, update: Expression | None) -> None:
    if guard is None or update is None:
        return
    for one, other in ((guard.names, update.names), (guard.values, update.values)):
        if clash := _clash(one, other):
            raise errors.BadArgument(
                f"the filter and the update expression both use {clash}, for different things",
                fix=f"give {clash} another name in one of them",
            )


def _clash(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return next((alias for alias in one if alias in other and one[alias] != other[alias]), "")
