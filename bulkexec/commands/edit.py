"""The `edit` command."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import msgspec

from bulkexec import errors, where
from bulkexec.batches import KeyValues
from bulkexec.changes import difference
from bulkexec.codec import NotEncodable, to_python
from bulkexec.command import Change, argument, require_choice
from bulkexec.item_requests import ItemRequests
from bulkexec.mapped import (
    Mapped,
    PythonItem,
    Rejected,
    added_by,
    key_of,
    keys_changed,
    next_version,
    observed_of,
    raw_value,
    require_apart,
)
from bulkexec.model import Expression, Page, PageResult, Scope, Work
from bulkexec.writes import Apply, Delete, Move, Observed, Update, Write

_BARE_NAME = re.compile(r"(?<![#:\w])[A-Za-z_]\w*")
_SAID_OF_FILTERS = {
    "--filter-expression": "--update-expression",
    "--expression-names": "--update-names",
    "--expression-values": "--update-values",
    "the filter makes an expression": "this is an expression",
    "write a condition": "write SET #a = :v",
}


@dataclass(frozen=True)
class Edit(Mapped):
    """Change the items of a table that match a filter, or all of them with --all.

    Each item is read and given to the map; only the attributes that the map changed are written, and only if the item
    is still there and still matches the filter. With --version-field a change that somebody else makes in between is a
    conflict, not lost; so is one to a number that --add adds to. --keys-from on the list of conflicts does those again.

    Reads   all of the table; one item collection when the partition key is pinned by =; an index with --index.
    Writes  one update for each item that the map changes; none for the others.
    Costs   read units for every item evaluated; write units by the size of each changed item, and in each index whose
            attributes change. An update that is refused by its condition costs the same.
    Rerun   safe if the map gives the same for what it made itself. --add is not: what is done again after a crash (at
            most one checkpoint interval) is added again.
    """

    name: ClassVar[str] = "edit"
    mutates: ClassVar[bool] = True
    verb: ClassVar[str] = "changed"

    all: bool = argument("--all", "Edit every item of the table.", default=False)
    allow_key_change: bool = argument(
        "--allow-key-change", "A map that changes the key moves the item: put, then delete.", default=False
    )
    version_field: str = argument(
        "--version-field", "A number that every change counts up; a change in between is a conflict.", default=""
    )
    update_expression: str = argument(
        "--update-expression", "Instead of a map: DynamoDB's UpdateExpression, one request an item.", default=""
    )
    update_names: str = argument("--update-names", "ExpressionAttributeNames of it, as JSON.", default="")
    update_values: str = argument("--update-values", "ExpressionAttributeValues of it, typed, as JSON.", default="")

    def prepare(self) -> "Edit":
        """See `Mapped.prepare`. Raises `errors.BadArgument` unless there is one way to change items."""
        edit = super().prepare()
        assert isinstance(edit, Edit)
        if (edit.transform is None) == (not edit.update_expression):
            raise errors.BadArgument(
                "edit needs a map or an --update-expression, and not both",
                fix="--map FILE.py, --set NAME=VALUE, --remove NAME, --add NAME=NUMBER, or --update-expression",
            )
        edit._require_whole()
        edit._require_counted()
        return edit

    def _require_whole(self) -> None:
        """What only an expression, or only a map, has a use for."""
        if self.update_expression and self.allow_key_change:
            raise errors.BadArgument("--update-expression cannot change a key", fix="leave --allow-key-change out")
        if not self.update_expression and (self.update_names or self.update_values):
            raise errors.BadArgument(
                "--update-names and --update-values are those of an --update-expression, and there is none",
                fix="give --update-expression, or leave them out",
            )

    def _require_counted(self) -> None:
        """An expression of the user's has to count the version itself; without that, other writers' checks go blind."""
        update, field = self._update(), self.version_field
        if update is None or not field:
            return
        if field not in update.names.values() and field not in _BARE_NAME.findall(update.text):
            raise errors.BadArgument(
                f"--update-expression leaves the version {field} as it is",
                why="whoever relies on the version would not see the change",
                fix=f"count it in the expression, e.g. ADD #v :one with #v for {field}; or use --map or --set",
            )

    def plan(self, scope: Scope) -> Work:
        """Whole items, because the map may look at all of them; the filter again as a condition of each update."""
        require_choice(self.name, self.all, scope)
        return Work(scope, guarded=scope.guard is not None, update=self._update())

    def _update(self) -> Expression | None:
        if not self.update_expression:
            return None
        try:
            return where.from_raw(self.update_expression, self.update_names or None, self.update_values or None)
        except errors.BadFilter as error:
            raise errors.BadArgument(_of_update(error.message), fix=_of_update(error.fix)) from error

    def check(self, work: Work) -> None:
        """See `Mapped.check`. No alias may mean one thing in the filter and another in the update expression."""
        super().check(work)
        if work.update is not None:
            table = work.scope.table
            ItemRequests(table, KeyValues(table.key_names), "TOTAL", work.scope.guard, work.update)

    def _settled(self, item: PythonItem, again: PythonItem, work: Work) -> bool:
        """An item that stays under its key is only updated."""
        return not keys_changed(item, again, work.scope.table)

    def trial(self, page: Page, work: Work) -> Sequence[Change]:
        """See `Command.trial`. Raises `errors.BadArgument` for items that would replace each other."""
        changes = super().trial(page, work)
        require_apart(changes, work.scope.table)
        return changes

    def page(self, page: Page, work: Work) -> PageResult:
        """An update with the difference alone for each item that the map changes."""
        if work.update is not None:
            return PageResult(writes=[Apply(item) for item in page.items])
        return self.each(page, work, self._edited)

    def _edited(self, raw: msgspec.Raw, work: Work) -> Write | None:
        before = to_python(raw)
        after = self.after(before)
        if after is None:
            return None
        moved = keys_changed(before, after, work.scope.table)
        if moved:
            return self._moved(raw, before, after, moved, work)
        try:
            sets, removes = difference(before, after)
        except NotEncodable as error:
            raise Rejected("NotEncodable", str(error)) from error
        if not sets and not removes:
            return None
        sets, removes, observed = self._versioned(dict(sets), removes, before)
        return Update(key_of(raw, work), sets, removes, observed)

    def _versioned(
        self, sets: dict[str, msgspec.Raw], removes: tuple[str, ...], before: PythonItem
    ) -> tuple[dict[str, msgspec.Raw], tuple[str, ...], Observed]:
        """With the version counted up, and what must not have changed since the item was read as a condition."""
        field = self.version_field
        if field:
            sets[field] = raw_value(next_version(before, field))
            removes = tuple(name for name in removes if name != field)
        return sets, removes, self._observed(before)

    def _observed(self, before: PythonItem) -> Observed:
        """The version, and every number that is added to: a sum rests on what was read."""
        return observed_of(before, (self.version_field,) if self.version_field else self._added)

    @cached_property
    def _added(self) -> tuple[str, ...]:
        return added_by(self.transform)

    def _moved(self, raw: msgspec.Raw, before: PythonItem, after: PythonItem, changed: list[str], work: Work) -> Move:
        if not self.allow_key_change:
            raise Rejected("KeyChanged", f"the map changes {', '.join(changed)}; --allow-key-change makes that a move")
        if self.version_field:
            after = {**after, self.version_field: next_version(before, self.version_field)}
        put = self.put_of(after, work, "")
        observed = {**self._observed(before), **self.told_apart(before, put, work)}
        return Move(put, Delete(key_of(raw, work), observed))


def _of_update(said: str) -> str:
    """What is said of a filter's expression, said of an update's."""
    for of_filter, of_update in _SAID_OF_FILTERS.items():
        said = said.replace(of_filter, of_update)
    return said
