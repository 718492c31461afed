"""A mass operation on dicts: what the contract says becomes of every item, written without the code that it is for."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

Item = dict[str, Any]
Key = tuple[Any, ...]

VERSION, CREATED = "-version", "created"


@dataclass(frozen=True)
class Shape:
    """A table's key: the types of `pk` and, if there is one, `sk`."""

    kinds: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return ("pk", "sk")[: len(self.kinds)]

    def key(self, item: Mapping[str, Any]) -> Key:
        return tuple(item[name] for name in self.names)

    def named(self, key: Key) -> Item:
        return dict(zip(self.names, key, strict=True))


def exact(value: Any) -> Any:
    """Something hashable that is equal only for what DynamoDB calls equal: True is not 1, and 1.0 is 1."""
    match value:
        case dict():
            return "M", frozenset((name, exact(each)) for name, each in value.items())
        case list():
            return "L", tuple(map(exact, value))
        case frozenset() | set():
            return "set", frozenset(map(exact, value))
        case bool() | None:
            return "flag", str(value)
        case int() | Decimal():
            return "N", Decimal(value)
    return type(value).__name__, value


def typed(item: Mapping[str, Any]) -> dict[str, Any]:
    """As boto3's client takes it."""
    return {name: TypeSerializer().serialize(value) for name, value in item.items()}


def plain(item: Mapping[str, Any]) -> Item:
    """From what boto3's client gives."""
    return {name: _plain(TypeDeserializer().deserialize(value)) for name, value in item.items()}


def _plain(value: Any) -> Any:
    match value:
        case Binary():
            return bytes(value.value)
        case set():
            return frozenset(map(_plain, value))
        case list():
            return list(map(_plain, value))
        case dict():
            return {name: _plain(each) for name, each in value.items()}
    return value


# -- conditions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """One term of a selection, and how it is said: as a clause in text or parts, as SQL, as boto3's, or as of."""

    form: str
    field: str
    op: str
    values: tuple[Any, ...] = ()

    def holds(self, item: Mapping[str, Any]) -> bool:
        if self.op in ("ex", "nx"):
            return (self.field in item) == (self.op == "ex")
        if self.field not in item:
            return False
        value = item[self.field]
        if self.op == "in":
            return any(_alike(value, each) and value == each for each in self.values)
        if not all(_alike(value, each) for each in self.values):
            return False
        return _COMPARISONS[self.op](value, *self.values)


def _alike(one: Any, other: Any) -> bool:
    return type(one) is type(other)


_COMPARISONS: dict[str, Callable[..., bool]] = {
    "eq": lambda value, other: value == other,
    "lt": lambda value, other: value < other,
    "le": lambda value, other: value <= other,
    "gt": lambda value, other: value > other,
    "ge": lambda value, other: value >= other,
    "btw": lambda value, low, high: low <= value <= high,
    "beg": lambda value, start: value.startswith(start),
    "ct": lambda value, part: part in value,
}


# -- maps ----------------------------------------------------------------------------------------------------------


def _number(item: Item) -> int:
    number = item.get("n")
    return int(number) if isinstance(number, Decimal) else -1


def done(item: Item) -> Any:
    return item | {"state": "DONE"}


def even(item: Item) -> Any:
    return None if _number(item) % 2 else item | {"even": True, "half": Decimal(_number(item)) / 2}


def drop(item: Item) -> Any:
    return {name: value for name, value in item.items() if name != "any"}


def same(item: Item) -> Any:
    return item


def never(item: Item) -> Any:
    return False


def raises(item: Item) -> Any:
    if _number(item) > 5:
        raise ValueError("more than five")
    return done(item)


def unencodable(item: Item) -> Any:
    return done(item) | ({"x": object()} if _number(item) == 3 else {})


def no_dict(item: Item) -> Any:
    return 7 if _number(item) == 2 else done(item)


def in_place(item: Item) -> Any:
    if isinstance(item.get("any"), list):
        item["any"].append({"more": [Decimal(1), None]})
    return item


def technical(item: Item) -> Any:
    return done(item) | ({"_made": "x"} if _number(item) == 1 else {})


def versioned(item: Item) -> Any:
    return item | {VERSION: Decimal(99)}


def rekeyed(item: Item) -> Any:
    """To another partition key, and to a state that no selection names."""
    return _rekeyed(item) | {"state": "DONE"}


def rekeyed_alike(item: Item) -> Any:
    """To another partition key alone: the selection may find it again."""
    return _rekeyed(item)


def rekeyed_some(item: Item) -> Any:
    return rekeyed(item) if _number(item) % 2 == 0 else done(item)


def _rekeyed(item: Item) -> Item:
    key = item["pk"]
    return item | {
        "pk": "copy#" + key if isinstance(key, str) else key + 1000 if isinstance(key, Decimal) else b"~" + key
    }


EDIT_MAPS = (done, even, drop, same, never, raises, unencodable, no_dict, in_place, technical, versioned, rekeyed_some)
COPY_MAPS = (rekeyed, rekeyed_alike, rekeyed_some, raises, unencodable, even, done, never)
NOT_IDEMPOTENT = (in_place, versioned)


# -- other writers -------------------------------------------------------------------------------------------------

ACTIONS = ("gone", "touched", "bumped", "unmatched", "made again")


def written(item: Item, action: str) -> Item | None:
    """What another writer makes of an item between its read and its write."""
    match action:
        case "gone":
            return None
        case "touched":
            return item | {"touched": "by another"}
        case "bumped":
            return item | {"bumped": "by another", VERSION: item.get(VERSION, Decimal(0)) + 1}
        case "unmatched":
            return item | {"state": "OTHER", "n": Decimal(-99)}
    return {name: item[name] for name in ("pk", "sk") if name in item} | {"state": "AGAIN"}


# -- one operation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One operation and all that is asked of it. `keys` and `items` are for those that are given some."""

    operation: str
    conditions: tuple[Condition, ...] = ()
    map_fn: Callable[[Item], Any] | None = None
    to_target: bool = False
    if_not_exists: bool = False
    if_exists: bool = False
    allow_key_change: bool = False
    keys: tuple[Key, ...] = ()
    items: tuple[Item, ...] = ()
    actions: Mapping[Key, str] = field(default_factory=dict)

    @property
    def verb(self) -> str:
        return self.operation.partition("_")[0]

    @property
    def by_keys(self) -> bool:
        return self.operation.endswith("_by_keys")


@dataclass
class Buckets:
    """What became of every item. Failures and conflicts by key, with the reason."""

    processed: int = 0
    skipped: int = 0
    failed: "Counter[tuple[Any, str]]" = field(default_factory=Counter)
    conflicts: "Counter[Any]" = field(default_factory=Counter)

    @property
    def matched(self) -> int:
        return self.processed + self.skipped + self.failed.total() + self.conflicts.total()


class _Failed(Exception):
    """An item that cannot be written; says the reason."""


@dataclass
class Model:
    """Two tables of one shape, as dicts."""

    shape: Shape
    version_field: bool
    technical_prefix: str
    source: dict[Key, Item] = field(default_factory=dict)
    target: dict[Key, Item] = field(default_factory=dict)

    def run(self, step: Step) -> Buckets:
        """Do it. Between the read and the write of each item the other writer has its turn."""
        buckets = Buckets()
        if step.operation == "put_items":
            for item in step.items:
                self._settle(buckets, item, lambda item=item: self._put_given(item, step))
            return buckets
        for key, read in self._found(step, buckets):
            if key in step.actions and (step.verb != "delete" or not step.by_keys):
                self._store(self.source, key, written(deepcopy(read), step.actions[key]))
            self._settle(buckets, self.shape.named(key), lambda read=read: self._one(deepcopy(read), step))
        return buckets

    def _found(self, step: Step, buckets: Buckets) -> list[tuple[Key, Item]]:
        if not step.by_keys:
            there = self.source.items()
            return [(key, item) for key, item in there if all(each.holds(item) for each in step.conditions)]
        keys = list(dict.fromkeys(step.keys))
        if step.verb == "delete":
            return [(key, self.source.get(key, {})) for key in keys]
        buckets.skipped += sum(key not in self.source for key in keys)
        return [(key, self.source[key]) for key in keys if key in self.source]

    def _settle(self, buckets: Buckets, key: Mapping[str, Any], do: Callable[[], str]) -> None:
        try:
            bucket = do()
        except _Failed as failed:
            parts = {name: key[name] for name in self.shape.names if name in key and not _foreign(key[name])}
            buckets.failed[exact(parts), str(failed)] += 1
            return
        if bucket == "conflict":
            buckets.conflicts[exact(dict(key))] += 1
        elif bucket == "processed":
            buckets.processed += 1
        else:
            buckets.skipped += 1

    def _one(self, read: Item, step: Step) -> str:
        match step.verb:
            case "delete":
                return self._delete(read, step) if read else "processed"
            case "clone":
                return self._clone(read, step)
            case "move":
                return self._move(read, step)
        return self._edit(read, step)

    # -- the operations

    def _delete(self, read: Item, step: Step) -> str:
        key = self.shape.key(read)
        if key in self.source and not self._guarded(key, step):
            return "skipped"
        self.source.pop(key, None)  # what is gone meanwhile counts as deleted, docs/adr/0006
        return "processed"

    def _clone(self, read: Item, step: Step) -> str:
        after = read if step.map_fn is None else self._mapped(read, step)
        if after is None or self._stays(read, after, step):
            return "skipped"
        self._require_storable(after, step)
        return "processed" if self._put(after, step) else "skipped"

    def _move(self, read: Item, step: Step) -> str:
        after = read if step.map_fn is None else self._mapped(read, step)
        if after is None or self._stays(read, after, step):
            return "skipped"
        self._require_storable(after, step)
        place = self.target if step.to_target else self.source
        there = place.get(self.shape.key(after))
        already = there is not None and exact(there) == exact(after)
        if not self._put(after, step) and not already:
            return "skipped"
        return self._delete_moved(read, step)

    def _delete_moved(self, read: Item, step: Step) -> str:
        key = self.shape.key(read)
        if key in self.source and self.version_field and not self._version_stands(read, step):
            return "conflict"
        if key in self.source and not self._guarded(key, step):
            return "skipped"
        self.source.pop(key, None)
        return "processed"

    def _edit(self, read: Item, step: Step) -> str:
        after = self._mapped(deepcopy(read), step)
        if after is None:
            return "skipped"
        if exact(self._key_of(after)) != exact(self.shape.key(read)):
            if not step.allow_key_change:
                raise _Failed("KeyChanged")
            return self._edit_key(read, after, step)
        changed = {
            name: value for name, value in after.items() if name not in read or exact(read[name]) != exact(value)
        }
        removed = [name for name in read if name not in after]
        if any(_foreign(value) for value in changed.values()):
            raise _Failed("NotEncodable")
        if not changed and not removed:
            return "skipped"
        return self._update(read, changed, removed, step)

    def _update(self, read: Item, changed: Item, removed: list[str], step: Step) -> str:
        key = self.shape.key(read)
        if self.version_field:
            changed = changed | {VERSION: read.get(VERSION, Decimal(0)) + 1}
            if not self._version_stands(read, step):
                return "conflict"
        elif key not in self.source or not self._guarded(key, step):
            return "skipped"
        kept = {name: value for name, value in self.source[key].items() if name not in removed or name in changed}
        self.source[key] = kept | changed
        return "processed"

    def _edit_key(self, read: Item, after: Item, step: Step) -> str:
        if self.version_field:
            after = after | {VERSION: read.get(VERSION, Decimal(0)) + 1}
        self._require_storable(after, step)
        self.source[self.shape.key(after)] = deepcopy(after)
        return self._delete_moved(read, step)

    def _put_given(self, item: Item, step: Step) -> str:
        if any(_foreign(value) for value in item.values()):
            raise _Failed("NotEncodable")
        if not self._has_key(item):
            raise _Failed("KeyInvalid")
        return "processed" if self._put(item, step) else "skipped"

    # -- what they are made of

    def _mapped(self, read: Item, step: Step) -> Item | None:
        hidden = {name: value for name, value in read.items() if self._hides(name)}
        assert step.map_fn is not None
        try:
            made = step.map_fn({name: value for name, value in read.items() if name not in hidden})
        except ValueError:
            raise _Failed("MapRaised") from None
        if made is None or made is False:
            return None
        if not isinstance(made, dict):
            raise _Failed("MapReturned")
        if any(map(self._hides, made)):
            raise _Failed("TechnicalField")
        return hidden | made

    def _stays(self, read: Item, after: Item, step: Step) -> bool:
        """Whether an item would be put where and as it is. Under its own key as another one it is for edit."""
        if step.to_target or exact(self._key_of(after)) != exact(self.shape.key(read)):
            return False
        if exact(after) != exact(read):
            raise _Failed("KeyUnchanged")
        return True

    def _hides(self, name: str) -> bool:
        return bool(self.technical_prefix) and name.startswith(self.technical_prefix)

    def _require_storable(self, after: Item, step: Step) -> None:
        if any(_foreign(value) for value in after.values()):
            raise _Failed("NotEncodable")
        found_again = not step.to_target and not step.by_keys and all(each.holds(after) for each in step.conditions)
        if found_again and step.map_fn is not None:
            raise _Failed("OutputMatches")

    def _put(self, item: Item, step: Step) -> bool:
        place = self.target if step.to_target else self.source
        key = self.shape.key(item)
        if (step.if_not_exists and key in place) or (step.if_exists and key not in place):
            return False
        place[key] = deepcopy(item)
        return True

    def _guarded(self, key: Key, step: Step) -> bool:
        now = self.source.get(key)
        return now is not None and all(each.holds(now) for each in step.conditions)

    def _version_stands(self, read: Item, step: Step) -> bool:
        key = self.shape.key(read)
        return self._guarded(key, step) and exact(self.source[key].get(VERSION)) == exact(read.get(VERSION))

    def _key_of(self, item: Item) -> tuple[Any, ...]:
        return tuple(item.get(name) for name in self.shape.names)

    def _has_key(self, item: Item) -> bool:
        kinds: dict[str, type] = {"S": str, "N": Decimal, "B": bytes}
        return all(
            type(item.get(name)) is kinds[kind] for name, kind in zip(self.shape.names, self.shape.kinds, strict=True)
        )

    @staticmethod
    def _store(place: dict[Key, Item], key: Key, item: Item | None) -> None:
        if item is None:
            place.pop(key, None)
        else:
            place[key] = item


def _foreign(value: Any) -> bool:
    return type(value) is object


def contents(items: Iterable[Mapping[str, Any]]) -> "Counter[Any]":
    """A table as something that can be compared."""
    return Counter(exact(dict(item)) for item in items)
