"""What a write will cost, from the item it is made of and from what is there already. Pure."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from bulkexec.extrapolate import Place
from bulkexec.item_size import item_size_bytes
from bulkexec.model import Expression, Table, Work
from bulkexec.units import TABLE, Span, entry_units, refused, write_units, written
from bulkexec.writes import Apply, Delete, Move, Put, Update, Write

TypedItem = dict[str, Any]
Units = dict[Place, Span]

UNSEEN_DESTINATION: Final[Any] = object()
"""What is under the key of a put is not known."""

_ASSIGNMENT = re.compile(r"\s*(#?\w+)\s*=\s*(:\w+)\s*")
_CLAUSES = re.compile(r"\b(SET|REMOVE|ADD|DELETE)\b", re.IGNORECASE)


def units_of(write: Write, source: TypedItem, there: TypedItem | None, work: Work) -> Units:
    """Units of one write by place, as a range where the outcome is not known.

    `source` is the item that was read; `there` what is under the key of a put, None when nothing is, or
    `UNSEEN_DESTINATION`.
    """
    table = work.scope.table
    if isinstance(write, Delete):
        return _at(table, written(table, source, None))
    if isinstance(write, Update):
        return _at(table, written(table, source, _updated(source, write)))
    if isinstance(write, Apply):
        return _applied(table, source, work.update)
    if isinstance(write, Put):
        return _put(write, there, work.writes_to)
    assert isinstance(write, Move)
    return added(_put(write.put, there, work.writes_to), _at(table, written(table, source, None)))


def added(one: Units, other: Units) -> Units:
    """Two writes together."""
    nothing = Span(0.0, 0.0)
    return {place: one.get(place, nothing).plus(other.get(place, nothing)) for place in {**one, **other}}


def _at(table: Table, low: Mapping[str, float], high: Mapping[str, float] | None = None) -> Units:
    high = low if high is None else high
    return {(table.arn, name): Span(min(units, high[name]), max(units, high[name])) for name, units in low.items()}


def _updated(source: TypedItem, write: Update) -> TypedItem:
    sets = {name: msgspec.json.decode(value) for name, value in write.sets.items()}
    return {name: value for name, value in {**source, **sets}.items() if name not in write.removes}


def _put(write: Put, there: TypedItem | None, table: Table) -> Units:
    item: TypedItem = msgspec.json.decode(write.item)
    if there is not UNSEEN_DESTINATION:
        return _landed(write, item, there, table)
    one, other = _landed(write, item, None, table), _over_another(write, item, table)
    return {
        place: Span(min(one[place].low, other[place].low), max(one[place].high, other[place].high)) for place in one
    }


def _landed(write: Put, item: TypedItem, there: TypedItem | None, table: Table) -> Units:
    fails = (write.when == "absent" and there is not None) or (write.when == "present" and there is None)
    return _at(table, refused(table, there) if fails else written(table, there, item))


def _over_another(write: Put, item: TypedItem, table: Table) -> Units:
    """Over an item of the same size: refused if it has to be absent, else with no index entry changed up to all."""
    base = refused(table, item)
    return _at(table, base) if write.when == "absent" else _at(table, base, entry_units(table, item, item))


def _applied(table: Table, source: TypedItem, update: Expression | None) -> Units:
    """The run's own UpdateExpression: exact where it only assigns and removes, else up to what it may touch."""
    assert update is not None
    after = _after(source, update)
    if after is not None:
        return _at(table, written(table, source, after))
    grown = item_size_bytes(source) + sum(item_size_bytes({"": value}) for value in update.values.values())
    least = refused(table, source)
    # Attributes stand in the text by alias or by their own name.
    touched = {*update.names.values(), *re.findall(r"\w+", update.text)}
    return _at(table, least, entry_units(table, source, touched) | {TABLE: float(write_units(grown))})


def _after(source: TypedItem, update: Expression) -> TypedItem | None:
    """The item after `SET name = :value, … REMOVE name, …`; None for any other expression."""
    _, *parts = _CLAUSES.split(update.text)
    after = dict(source)
    for clause, content in zip(parts[::2], parts[1::2], strict=True):
        for one in content.split(","):
            if not _do(clause.upper(), one, update, after):
                return None
    return after if parts else None


def _do(clause: str, action: str, update: Expression, item: TypedItem) -> bool:
    """Carry out one action on the item; whether it was one that is understood."""
    if clause == "REMOVE" and re.fullmatch(r"\s*#?\w+\s*", action):
        item.pop(update.names.get(action.strip(), action.strip()), None)
        return True
    match = _ASSIGNMENT.fullmatch(action) if clause == "SET" else None
    if match is None or match.group(2) not in update.values:
        return False
    item[update.names.get(match.group(1), match.group(1))] = update.values[match.group(2)]
    return True
