"""The `find` command."""

from dataclasses import dataclass
from typing import ClassVar

from bulkexec.command import Command
from bulkexec.model import Page, PageResult, Scope, Work


@dataclass(frozen=True)
class Find(Command):
    """Find the items of a table that match a filter.

    The first 10 are shown. With --results s3://… (and in a Glue job always) every match is written there, typed, in the
    layout of a DynamoDB export: gzipped JSON lines with a manifest, which `load` and ImportTable read.

    Reads   all of the table, whatever the filter; one item collection when the partition key is pinned by =.
    Writes  nothing to the table; files to S3.
    Costs   read units for every item evaluated; S3 requests and storage for the results.
    Rerun   safe; a resumed find goes on behind the files that are complete.
    """

    name: ClassVar[str] = "find"
    verb: ClassVar[str] = "found"
    keeps_rows: ClassVar[bool] = True

    def plan(self, scope: Scope) -> Work:
        """Whole items."""
        return Work(scope)

    def page(self, page: Page, work: Work) -> PageResult:
        """Every matched item is a row."""
        return PageResult(rows=page.items)
