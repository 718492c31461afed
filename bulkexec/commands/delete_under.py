"""The `delete-under` command."""

from dataclasses import dataclass
from typing import ClassVar

from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.nodes import Phase
from bulkexec.report import Report
from bulkexec.under import Under, kept_lines
from bulkexec.writes import Delete


@dataclass(frozen=True, kw_only=True)
class DeleteUnder(Under):
    """Delete a node of an item collection and everything below it, from below, the node itself last.

    Below a node is what has its sort key, a separator and something more as sort key. A node is never deleted while
    something below it could not be; it is counted as skipped then.

    Reads   the subtree, keys only, strongly consistent.
    Writes  one delete for each item.
    Costs   read units for every item of the subtree; write units by the size of each item, and in each index.
    Rerun   safe; what is gone is not found again.
    """

    name: ClassVar[str] = "delete-under"
    verb: ClassVar[str] = "deleted"

    def plan(self, scope: Scope) -> Work:
        """Keys only, against the order of the sort key, in which a parent comes before its children."""
        phase = Phase("delete", self.source(scope.table), descending=True, removes=True)
        return self.work(scope, phase, projection=scope.table.key_names)

    def page(self, page: Page, work: Work) -> PageResult:
        """One delete for each item; the projection has left only its key."""
        return PageResult(writes=[Delete(item) for item in page.items])

    def report(self, report: Report) -> list[str]:
        """See `Command.report`."""
        return kept_lines(report)
