"""The `copy-under` command."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from bulkexec import errors
from bulkexec.codec import to_python
from bulkexec.command import argument
from bulkexec.mapped import Rejected, key_of, when_of
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.nodes import Phase
from bulkexec.report import Report
from bulkexec.under import Elsewhere, When
from bulkexec.writes import Delete, Write


@dataclass(frozen=True, kw_only=True)
class CopyUnder(Elsewhere):
    """Copy a node of an item collection and everything below it to another place, the node itself first.

    The copies have another sort key prefix, partition key or table. With --overwrite, what is in that place and has no
    source is deleted when all else is copied, so that it ends as an image of the source.

    Reads   the subtree, strongly consistent. With --overwrite also the keys at the destination, and each one's source.
    Writes  one put for each item. It replaces what is there under its key, unless --if-not-exists or --if-exists.
            With --overwrite one delete for each item that has no source.
    Costs   read units for every item of the subtree; write units by the size of each item, and in each index.
    Rerun   safe if the map gives the same for the same item: what is there already is put again, or skipped.
    """

    name: ClassVar[str] = "copy-under"
    verb: ClassVar[str] = "copied"

    if_not_exists: bool = argument("--if-not-exists", "Skip items whose key is there already.", default=False)
    if_exists: bool = argument("--if-exists", "Skip items whose key is not there yet.", default=False)
    overwrite: bool = argument("--overwrite", "Delete what is at the destination and has no source.", default=False)

    @property
    def when(self) -> When:
        """See `Elsewhere.when`."""
        return when_of(self.if_not_exists, self.if_exists)

    def plan(self, scope: Scope) -> Work:
        """The copies, parents first; then what has no source, children first."""
        if self.when and self.overwrite:
            raise errors.BadArgument("--overwrite and a condition on each put contradict each other")
        here, there = self.source(scope.table), self.destination(scope.table)
        prune = Phase("prune", there, here, descending=True, removes=True, of_target=True)
        phases = (Phase("copy", here, there), *((prune,) if self.overwrite else ()))
        return self.work(scope, *phases, changes_source=False)

    def page(self, page: Page, work: Work) -> PageResult:
        """One put for each item; then one delete for each that has no source."""
        if work.phase is not None and work.phase.removes:
            return PageResult(writes=[Delete(item) for item in page.items])
        return self.each(page, work, self._copied)

    def _copied(self, raw: msgspec.Raw, work: Work) -> Write | None:
        put = self.put_under(raw, work)
        return None if put is None else replace(put, origin=key_of(raw, work))

    def makes(self, source: msgspec.Raw, work: Work) -> bool:
        """Whether there is a copy of a source item. One that could not be made is not taken for unwanted."""
        if self.transform is None:
            return True
        try:
            return self.after(to_python(source)) is not None
        except Rejected:
            return True

    def report(self, report: Report) -> list[str]:
        """See `Command.report`."""
        return ["what had no source and was deleted at the destination is counted too"] if self.overwrite else []
