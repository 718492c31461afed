"""What commands that change items have in common: the map, and what may come of it for one item."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact
from functools import cached_property, lru_cache
from typing import Any, Literal

import msgspec

from bulkexec import errors
from bulkexec.batches import KeyValues
from bulkexec.changes import difference
from bulkexec.codec import NotEncodable, fresh, from_python, to_python, value_from_python
from bulkexec.command import Change, Command, argument
from bulkexec.equality import same
from bulkexec.item_size import key_size_problem
from bulkexec.maps import Compose, Map, SetValues, compose, load, rename, set_values, swap_prefix
from bulkexec.model import Failure, Page, PageResult, Table, Work
from bulkexec.where import Node
from bulkexec.where.evaluate import matches
from bulkexec.where.portable import from_portable
from bulkexec.writes import Move, Observed, Put, Write

PythonItem = dict[str, Any]

DETAILS_CHARACTERS = 500
"""Of what is said of a failed item: a map's exception may quote a whole item, and a checkpoint keeps 20 of them."""
_WHOLE = Context(prec=38, traps=[Inexact])


class Rejected(Exception):
    """One item that cannot be written; `reason` is a word, `details` a sentence."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(details or reason)
        words = " ".join(details.split())
        short = len(words) <= DETAILS_CHARACTERS
        self.reason, self.details = reason, words if short else f"{words[:DETAILS_CHARACTERS]}…"


@dataclass(frozen=True)
class Mapped(Command):
    """Base of the commands whose writes are made of the items they read."""

    map_file: str = argument("--map", "A Python file, FILE.py[:function]: an item in, an item or None out.", default="")
    set_values: tuple[str, ...] = argument("--set", "NAME=VALUE: set an attribute; JSON, or else text.", default=())
    remove: tuple[str, ...] = argument("--remove", "NAME: remove an attribute.", default=())
    add: tuple[str, ...] = argument("--add", "NAME=NUMBER: add to a number; what is missing counts as 0.", default=())
    swap_prefix: tuple[str, ...] = argument(
        "--swap-prefix", "NAME:OLD:NEW (or NAME=OLD>NEW): change how a text begins; others are let be.", default=()
    )
    rename: tuple[str, ...] = argument("--rename", "OLD=NEW: rename an attribute.", default=())
    technical_prefix: str = argument(
        "--technical-prefix", "Attributes that begin so are not shown to the map and stay as they are.", default=""
    )
    transform: Map | None = None

    def prepare(self) -> "Mapped":
        """The map as one value that travels in the plan, its file's text included."""
        maps = list(self._maps())
        whole = maps[0] if len(maps) == 1 else compose(*maps) if maps else self.transform
        blank: dict[str, Any] = {
            "map_file": "",
            "set_values": (),
            "remove": (),
            "add": (),
            "swap_prefix": (),
            "rename": (),
        }
        return replace(self, **blank, transform=whole)

    def _maps(self) -> Iterator[Map]:
        """In this order: the file, renames, prefixes, assignments."""
        if self.map_file:
            yield load(self.map_file)
        for text in self.rename:
            old, _, new = text.partition("=")
            if not old or not new:
                raise errors.BadArgument(f"--rename {text!r}: two names are needed", fix="--rename OLD=NEW")
            yield rename(old, new)
        for text in self.swap_prefix:
            parts = text.split(":") if "=" not in text else [text.partition("=")[0], *text.partition("=")[2].split(">")]
            if len(parts) != 3:
                raise errors.BadArgument(
                    f"--swap-prefix {text!r}: an attribute and two prefixes are needed",
                    fix="--swap-prefix NAME:OLD:NEW, or NAME=OLD>NEW where a prefix has a colon",
                )
            yield swap_prefix(*parts)
        if self.set_values or self.remove or self.add:
            yield set_values(self.set_values, self.remove, self.add)

    def check(self, work: Work) -> None:
        """A target with another key needs a map that makes it."""
        source, target = work.scope.table, work.target
        if target is not None and target.keys != source.keys and self.transform is None:
            raise errors.BadArgument(
                f"{target.name} has the key {_key_words(target)}, {source.name} has {_key_words(source)}",
                fix="give a --map that makes the other key",
            )

    # -- one page ------------------------------------------------------------------------------------------------

    def each(self, page: Page, work: Work, make: Callable[[msgspec.Raw, Work], Write | None]) -> PageResult:
        """A page's result, from what is made of each of its items; None lets it be, `Rejected` fails it."""
        writes: list[Write] = []
        failed: list[Failure] = []
        skipped = 0
        for raw in page.items:
            try:
                write = make(raw, work)
                _require_unlisted(write, page, work)
            except Rejected as rejected:
                failed.append(Failure(msgspec.json.decode(key_of(raw, work)), rejected.reason, rejected.details))
                continue
            if write is None:
                skipped += 1
            else:
                writes.append(write)
        return PageResult(writes=writes, skipped=skipped, failed=failed)

    def after(self, before: PythonItem) -> PythonItem | None:
        """What the map makes of an item, with the technical attributes that it did not see. Raises `Rejected`.

        `before` itself stays as it is, whatever the map does.
        """
        if self._in_place:
            before = fresh(before)
        prefix = self.technical_prefix
        if not prefix:
            return self._mapped(before)
        hidden = {name: value for name, value in before.items() if name.startswith(prefix)}
        shown = {name: value for name, value in before.items() if name not in hidden}
        made = self._mapped(shown)
        if made is None:
            return None
        if any(name.startswith(prefix) for name in made):
            raise Rejected("TechnicalField", f"the map gave an attribute that begins with {prefix!r}")
        return {**hidden, **made}

    @cached_property
    def _in_place(self) -> bool:
        return self.transform is not None and self.transform.in_place

    def _mapped(self, item: PythonItem) -> PythonItem | None:
        try:
            made = self._function(item)
        except (Exception, SystemExit) as error:
            raise Rejected("MapRaised", f"{type(error).__name__}: {error}") from error
        if made is None or made is False:
            return None
        if not isinstance(made, Mapping):
            raise Rejected("MapReturned", f"the map gave {type(made).__name__}, not a dict, None or False")
        return made if type(made) is dict else dict(made)

    @cached_property
    def _function(self) -> Callable[[PythonItem], Any]:
        return (lambda item: item) if self.transform is None else self.transform.compile()

    def put_of(self, item: PythonItem, work: Work, when: Any) -> Put:
        """The put of an item made by the map. Raises `Rejected` when it cannot be one, or would be found again."""
        table = work.writes_to
        try:
            encoded = from_python(item)
        except NotEncodable as error:
            raise Rejected("NotEncodable", str(error)) from error
        typed: dict[str, dict[str, Any]] = msgspec.json.decode(encoded)
        for key in table.keys:
            if list(typed.get(key.name, ())) != [key.type]:
                raise Rejected("KeyInvalid", f"the item has no {key.name} of type {key.type}")
            if problem := key_size_problem(key.name, typed[key.name], key is table.keys[0]):
                raise Rejected("KeyInvalid", problem)
        if work.target is None and not work.scope.listed and self._found_again(item, encoded, work):
            raise Rejected(
                "OutputMatches", f"what the map makes would be found again, and {self.name} would go on with it"
            )
        return Put(msgspec.Raw(encoded), when)

    def _found_again(self, item: PythonItem, encoded: bytes, work: Work) -> bool:
        """Whether an output in the table that is read would be made into something else when the walk meets it.

        It is not when the filter does not find it, or when the map lets it be.
        """
        if not self._finds(encoded, work):
            return False
        again = self.after(to_python(encoded))
        return again is not None and not self._settled(item, again, work)

    def _settled(self, item: PythonItem, again: PythonItem, work: Work) -> bool:
        """Whether what the map makes of its own output needs no further put."""
        return again == item

    def told_apart(self, before: PythonItem, put: Put, work: Work) -> Observed:
        """By what an item is told from an output that was put under its key since it was read, which must stay.

        Only an output that is found, and that the map lets be, can be there. A list has no other key's output.
        """
        if work.target is not None or work.scope.listed or not self._finds(put.item, work):
            return {}
        sets, removes = difference(before, to_python(put.item))
        return observed_of(before, [name for name in (*sets, *removes) if name not in work.scope.table.key_names])

    def _finds(self, encoded: bytes, work: Work) -> bool:
        """Whether the run's filter finds an item; a filter that is no tree may."""
        return work.selects is None or matches(self._tree(work), msgspec.json.decode(encoded))

    def _tree(self, work: Work) -> Node:
        if id(work) not in self._trees:
            self._trees[id(work)] = from_portable(work.selects)
        return self._trees[id(work)]

    @cached_property
    def _trees(self) -> dict[int, Node]:
        return {}

    def trial(self, page: Page, work: Work) -> Sequence[Change]:
        """See `Command.trial`."""
        return [self._tried(page._replace(items=[raw]), work) for raw in page.items] if self.transform else []

    def _tried(self, page: Page, work: Work) -> Change:
        before = to_python(page.items[0])
        result = self.page(page, work)
        if result.failed:
            return Change(before, problem=f"{result.failed[0].reason}: {result.failed[0].details}".removesuffix(": "))
        if not result.writes:
            return Change(before)
        return Change(before, self.after(before))


def _require_unlisted(write: Write | None, page: Page, work: Work) -> None:
    """An output under a key of the list would replace an item that is still to be read, or be deleted in its place."""
    put = write.put if isinstance(write, Move) else write
    if work.target is None and page.listed is not None and isinstance(put, Put) and page.listed(put.item):
        raise Rejected("OutputMatches", "its new key is in the list itself, so another item's output could be lost")


@lru_cache(maxsize=16)
def _cut(names: tuple[str, ...]) -> KeyValues:
    return KeyValues(names)


def key_of(raw: msgspec.Raw, work: Work) -> msgspec.Raw:
    """An item's key in the table that is read, as typed JSON."""
    return _cut(work.scope.table.key_names).key(raw)


def require_apart(changes: Sequence[Change], table: Table) -> None:
    """Raises `errors.BadArgument` where items of a sample get one key, so that all but the last would be lost."""
    made = [each.after for each in changes if each.after is not None]
    times = Counter(tuple(map(repr, map(item.get, table.key_names))) for item in made)
    several = next((key for key, count in times.items() if count > 1), None)
    if several is not None:
        raise errors.BadArgument(
            f"several items get the key {', '.join(several)}, so all but the last one would be lost",
            fix="make keys that differ; move --if-not-exists leaves the others where they are",
            state="nothing written",
        )


def when_of(if_not_exists: bool, if_exists: bool) -> Literal["", "absent", "present"]:
    """The condition of a put. Raises `errors.BadArgument` for both at once."""
    if if_not_exists and if_exists:
        raise errors.BadArgument("--if-not-exists and --if-exists exclude each other", fix="give one of them")
    return "absent" if if_not_exists else "present" if if_exists else ""


def keys_changed(before: PythonItem, after: PythonItem, table: Table) -> list[str]:
    """The key attributes of a table that a map changed, in DynamoDB's eyes: 0.1 and Decimal("0.1") are one key.

    Raises `Rejected` for one that cannot be stored.
    """
    return [key.name for key in table.keys if not _same_value(before[key.name], after.get(key.name), key.name)]


def _same_value(old: Any, new: Any, name: str) -> bool:
    if type(old) is type(new) and old == new:
        return True
    if new is None:
        return False
    try:
        return same(value_from_python(old), value_from_python(new))
    except NotEncodable as error:
        raise Rejected("NotEncodable", f"{name}: {error}") from error


def next_version(before: PythonItem, field: str) -> Decimal:
    """One more than an item's version, 1 for an item without one. Raises `Rejected` where it cannot be counted."""
    version = before.get(field, Decimal(0))
    if not isinstance(version, Decimal):
        raise Rejected("VersionInvalid", f"{field} is no number")
    try:
        return _WHOLE.add(version, 1)
    except Inexact as error:
        raise Rejected("VersionInvalid", f"{field} is {version}, which cannot be counted up by 1") from error


def added_by(transform: Map | None) -> tuple[str, ...]:
    """The attributes that a map adds to, also as a part of a composed one."""
    if isinstance(transform, Compose):
        return tuple(name for each in transform.maps for name in added_by(each))
    return tuple(transform.adds) if isinstance(transform, SetValues) else ()


def observed_of(before: PythonItem, names: Iterable[str]) -> dict[str, msgspec.Raw | None]:
    """What these attributes were when the item was read, as conditions for its write."""
    return {name: raw_value(before[name]) if name in before else None for name in names}


def raw_value(value: Any) -> msgspec.Raw:
    """A Python value as typed JSON."""
    return msgspec.Raw(msgspec.json.encode(value_from_python(value)))


def _key_words(table: Table) -> str:
    return ", ".join(f"{key.name} ({key.type})" for key in table.keys)
