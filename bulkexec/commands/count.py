"""The `count` command."""

from dataclasses import dataclass
from typing import ClassVar

from bulkexec.command import Command
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.report import Report


@dataclass(frozen=True)
class Count(Command):
    """Count the items of a table that match a filter.

    Reads   all of the table, whatever the filter; one item collection when the partition key is pinned by =.
    Writes  nothing.
    Costs   read units for every item evaluated; no item crosses the network.
    Rerun   safe; a resumed count adds the segments that were not finished.
    """

    name: ClassVar[str] = "count"
    verb: ClassVar[str] = "counted"

    def plan(self, scope: Scope) -> Work:
        """Pages carry counts alone."""
        return Work(scope, count_only=True)

    def page(self, page: Page, work: Work) -> PageResult:
        """Nothing to do: the page's own counts are the result."""
        return PageResult()

    def report(self, report: Report) -> list[str]:
        """The number that was asked for."""
        return [f"{report.counts.matched:,} items match" if report.counts.matched != 1 else "1 item matches"]
