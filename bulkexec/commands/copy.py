"""The `copy` command."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from bulkexec import errors
from bulkexec.codec import to_python
from bulkexec.command import argument
from bulkexec.mapped import Mapped, Rejected, key_of, keys_changed, when_of
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.writes import Put, Write


@dataclass(frozen=True)
class Copy(Mapped):
    """Copy the items of a table that match a filter, or all of them, to another table or, with a map, to other keys.

    Without a map items go over byte for byte; no schema is ever inferred. The other table may be in another region or
    account: give its ARN.

    Reads   all of the table; one item collection when the partition key is pinned by =; an index with --index.
    Writes  one put for each item. It replaces what is there under its key, unless --if-not-exists or --if-exists.
    Costs   read units for every item evaluated; write units by the size of each item, and in each index of the target.
            A put that is refused by its condition costs the size of what is there.
    Rerun   safe if the map gives the same for the same item: what is there already is put again, or skipped.
    """

    name: ClassVar[str] = "copy"
    mutates: ClassVar[bool] = True
    verb: ClassVar[str] = "copied"

    to: str = argument("--to", "The table to copy to, by name or ARN; the same one if left out.", default="")
    if_not_exists: bool = argument("--if-not-exists", "Skip items whose key is there already.", default=False)
    if_exists: bool = argument("--if-exists", "Skip items whose key is not there yet.", default=False)

    @property
    def writes_to(self) -> str:
        """See `Command.writes_to`."""
        return self.to

    @property
    def puts_if(self) -> bool:
        """See `Command.puts_if`."""
        return self.if_not_exists or self.if_exists

    def plan(self, scope: Scope) -> Work:
        """Whole items; the table that is read is not changed unless it is also the target."""
        when_of(self.if_not_exists, self.if_exists)
        return Work(scope, changes_source=False)

    def check(self, work: Work) -> None:
        """See `Mapped.check`. A table is not copied onto itself, however it is called."""
        if work.target is None and self.transform is None:
            raise errors.BadArgument(
                f"{work.scope.table.name} would be copied onto itself", fix="give another table with --to, or a map"
            )
        super().check(work)

    def page(self, page: Page, work: Work) -> PageResult:
        """One put for each item: the bytes that were read, or what the map makes of them."""
        when = when_of(self.if_not_exists, self.if_exists)
        if self.transform is None:
            return PageResult(writes=[Put(item, when) for item in page.items])
        return self.each(page, work, self._copied)

    def _copied(self, raw: msgspec.Raw, work: Work) -> Write | None:
        before = to_python(raw)
        after = self.after(before)
        if after is None or (work.target is None and after == before):
            return None
        if work.target is None and not keys_changed(before, after, work.scope.table):
            raise Rejected("KeyUnchanged", "the map leaves the key as it is: that is for edit, which loses no update")
        put = self.put_of(after, work, when_of(self.if_not_exists, self.if_exists))
        return replace(put, origin=key_of(raw, work))
