"""The `move` command."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from bulkexec import errors
from bulkexec.codec import to_python
from bulkexec.command import Change, argument, require_choice
from bulkexec.mapped import Mapped, PythonItem, Rejected, key_of, keys_changed, observed_of, require_apart, when_of
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.writes import Delete, Put, Write
from bulkexec.writes import Move as MoveItem


@dataclass(frozen=True)
class Move(Mapped):
    """Move the items of a table that match a filter, or all of them, to another table or, with a map, to other keys.

    An item is put where it goes, and deleted where it was only when that put is acknowledged. After a crash it may be
    in both places, never in neither; a rerun finds it and ends in the right state.

    Reads   all of the table; one item collection when the partition key is pinned by =; an index with --index.
    Writes  one put and one delete for each item. The put replaces what is there under its key, unless --if-not-exists;
            then the item stays where it is and is counted as skipped. The filter goes along with the delete.
    Costs   read units for every item evaluated; write units by the size of each item twice, and in each index.
    Rerun   safe if the map gives the same for the same item; what has moved is not found again.
    """

    name: ClassVar[str] = "move"
    mutates: ClassVar[bool] = True
    verb: ClassVar[str] = "moved"

    to: str = argument("--to", "The table to move to, by name or ARN; the same one if left out.", default="")
    all: bool = argument("--all", "Move every item of the table.", default=False)
    if_not_exists: bool = argument("--if-not-exists", "Leave items whose new key is there already.", default=False)
    if_exists: bool = argument("--if-exists", "Leave items whose new key is not there yet.", default=False)
    version_field: str = argument(
        "--version-field", "An item whose version changes between read and delete is a conflict.", default=""
    )

    @property
    def writes_to(self) -> str:
        """See `Command.writes_to`."""
        return self.to

    @property
    def puts_if(self) -> bool:
        """See `Command.puts_if`."""
        return self.if_not_exists or self.if_exists

    def plan(self, scope: Scope) -> Work:
        """Whole items, and the filter again as a condition of each delete."""
        when_of(self.if_not_exists, self.if_exists)
        require_choice(self.name, self.all, scope)
        return Work(scope, guarded=scope.guard is not None)

    def check(self, work: Work) -> None:
        """See `Mapped.check`. Without a map an item stays under its key, so it needs another table."""
        if work.target is None and self.transform is None:
            raise errors.BadArgument("move needs another table with --to, or a map that changes keys")
        super().check(work)

    def trial(self, page: Page, work: Work) -> Sequence[Change]:
        """See `Command.trial`. Raises `errors.BadArgument` for items that would replace each other."""
        changes = super().trial(page, work)
        if not self.if_not_exists:
            require_apart(changes, work.writes_to)
        return changes

    def page(self, page: Page, work: Work) -> PageResult:
        """A put, and then a delete, for each item that goes somewhere else."""
        return self.each(page, work, self._moved)

    def _moved(self, raw: msgspec.Raw, work: Work) -> Write | None:
        when = when_of(self.if_not_exists, self.if_exists)
        if self.transform is None and not self.version_field:
            return MoveItem(Put(raw, when), Delete(key_of(raw, work)))
        before = to_python(raw)
        observed = self._observed(before)
        if self.transform is None:
            return MoveItem(Put(raw, when), Delete(key_of(raw, work), observed))
        after = self.after(before)
        if after is None or (work.target is None and after == before):
            return None
        self._require_elsewhere(before, after, work)
        put = self.put_of(after, work, when)
        return MoveItem(put, Delete(key_of(raw, work), {**observed, **self.told_apart(before, put, work)}))

    @staticmethod
    def _require_elsewhere(before: PythonItem, after: PythonItem, work: Work) -> None:
        """What was put under the item's own key would be deleted right away."""
        if work.target is None and not keys_changed(before, after, work.scope.table):
            raise Rejected("KeyUnchanged", "the map leaves the key as it is, so there is nowhere to move to")

    def _observed(self, before: PythonItem) -> "dict[str, msgspec.Raw | None]":
        return observed_of(before, (self.version_field,) if self.version_field else ())
