"""The `edit` command."""

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar

import msgspec

from bulkexec import errors, where
from bulkexec.changes import difference
from bulkexec.codec import NotEncodable, to_python
from bulkexec.command import argument
from bulkexec.mapped import Mapped, PythonItem, Rejected, key_of, observed_of, raw_value
from bulkexec.model import Expression, Page, PageResult, Scope, Work
from bulkexec.writes import Apply, Delete, Move, Observed, Update, Write


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
    added: tuple[str, ...] = ()

    def prepare(self) -> "Edit":
        """See `Mapped.prepare`. Raises `errors.BadArgument` unless there is one way to change items."""
        edit = super().prepare()
        assert isinstance(edit, Edit)
        edit = replace(edit, added=tuple(each.split("=", 1)[0] for each in self.add) or self.added)
        if (edit.transform is None) == (not edit.update_expression):
            raise errors.BadArgument(
                "edit needs a map or an --update-expression, and not both",
                fix="--map FILE.py, --set NAME=VALUE, --remove NAME, --add NAME=NUMBER, or --update-expression",
            )
        if edit.update_expression and edit.version_field:
            raise errors.BadArgument(
                "--update-expression cannot count a version",
                fix="put it into the expression, or leave --version-field out",
            )
        return edit

    def plan(self, scope: Scope) -> Work:
        """Whole items, because the map may look at all of them; the filter again as a condition of each update."""
        if self.all and scope.chosen:
            raise errors.BadArgument("--all and a filter contradict each other", fix="give one of them")
        if not self.all and not scope.chosen:
            raise errors.NoFilter(
                f"edit needs --where, or --all to edit every item of {scope.table.name}", state="nothing written"
            )
        return Work(scope, guarded=scope.guard is not None, update=self._update())

    def _update(self) -> Expression | None:
        if not self.update_expression:
            return None
        try:
            return where.from_raw(self.update_expression, self.update_names or None, self.update_values or None)
        except errors.BadFilter as error:
            said = error.message
            for part in ("filter-expression", "expression-names", "expression-values"):
                said = said.replace(f"--{part}", f"--update-{part.removeprefix('filter-').removeprefix('expression-')}")
            raise errors.BadArgument(said, fix=error.fix) from error

    @property
    def _puts(self) -> bool:
        return self.allow_key_change

    def page(self, page: Page, work: Work) -> PageResult:
        """An update with the difference alone for each item that the map changes."""
        if work.update is not None:
            return PageResult(writes=[Apply(item) for item in page.items])
        return self.each(page, work, self._edited)

    def _edited(self, raw: msgspec.Raw, work: Work) -> Write | None:
        before, after = to_python(raw), self.after(to_python(raw))
        if after is None:
            return None
        moved = [name for name in work.scope.table.key_names if before[name] != after.get(name)]
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
            sets[field] = raw_value(self._next_version(before))
            removes = tuple(name for name in removes if name != field)
        return sets, removes, self._observed(before)

    def _observed(self, before: PythonItem) -> Observed:
        """The version, and every number that is added to: a sum rests on what was read."""
        names = (self.version_field,) if self.version_field else self.added
        return observed_of(before, names)

    def _next_version(self, before: PythonItem) -> Decimal:
        version = before.get(self.version_field, Decimal(0))
        if not isinstance(version, Decimal):
            raise Rejected("VersionInvalid", f"{self.version_field} is no number")
        return version + 1

    def _moved(self, raw: msgspec.Raw, before: PythonItem, after: PythonItem, changed: list[str], work: Work) -> Move:
        if not self.allow_key_change:
            raise Rejected("KeyChanged", f"the map changes {', '.join(changed)}; --allow-key-change makes that a move")
        if self.version_field:
            after = {**after, self.version_field: self._next_version(before)}
        return Move(self.put_of(after, work, ""), Delete(key_of(raw, work), self._observed(before)))
