"""The `delete` command."""

from dataclasses import dataclass
from typing import ClassVar

from bulkexec.command import Command, argument, require_choice
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.writes import Delete as DeleteItem


@dataclass(frozen=True)
class Delete(Command):
    """Delete the items of a table that match a filter, or all of them with --all.

    The filter goes along with every delete as a condition, so an item that changed after it was read survives and is
    counted as skipped.

    Reads   all of the table, keys only; one item collection when the partition key is pinned by =.
    Writes  one delete for each item that matches.
    Costs   read units for every item evaluated; write units by the size of each deleted item, and in each index.
            A delete that is refused by its condition costs the same.
    Rerun   safe; what is gone is not found again.
    """

    name: ClassVar[str] = "delete"
    mutates: ClassVar[bool] = True
    verb: ClassVar[str] = "deleted"

    all: bool = argument("--all", "Delete every item of the table.", default=False)
    unguarded: bool = argument(
        "--unguarded", "Delete in plain batches, without the filter as a condition: faster, but blind.", default=False
    )

    def plan(self, scope: Scope) -> Work:
        """Keys only, and the filter again as a condition of each delete."""
        require_choice(self.name, self.all, scope)
        guarded = scope.guard is not None and not self.unguarded
        return Work(scope, projection=scope.table.key_names, guarded=guarded)

    def page(self, page: Page, work: Work) -> PageResult:
        """One delete for each item; the projection has left only its key."""
        return PageResult(writes=[DeleteItem(item) for item in page.items])
