"""bulkexec's way of each case: its engine, reader and writer on real commands.

`scan` is `find` without a place for results; `copy`, `edit`, `delete` and `guarded_delete` are the commands. For what
no command does alone, one is declared here on the pieces that commands use: `Attributes` and `to_python` for predicates
and maps, `Update` for updates of items that nobody looks into.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import msgspec

from benchmarks import boto3_way
from benchmarks.boto3_way import Over
from bulkexec.budgets import TableBudgets
from bulkexec.codec import Attributes, to_python
from bulkexec.command import Command
from bulkexec.commands.copy import Copy
from bulkexec.commands.delete import Delete
from bulkexec.commands.edit import Edit
from bulkexec.commands.find import Find
from bulkexec.engine import Cap, Run, Spills
from bulkexec.maps import set_values
from bulkexec.model import Expression, KeyAttribute, Page, PageResult, Scope, Statement, Table, Work
from bulkexec.plan import Plan
from bulkexec.rate import Budget
from bulkexec.reader import Reader
from bulkexec.runtimes.assembly import THREADS, MemoryCheckpoints
from bulkexec.wire import Refusals, Retrying, Wire
from bulkexec.writer import Writer
from bulkexec.writes import Update

TABLE = Table(
    name="t",
    arn="arn:aws:dynamodb:us-east-1:111122223333:table/t",
    region="us-east-1",
    account="111122223333",
    keys=(KeyAttribute("pk", "S"), KeyAttribute("sk", "S")),
    status="ACTIVE",
    item_count=1_000_000,
    size_bytes=533_000_000,
    billing="on-demand",
)
FILTERED = Scope(
    TABLE,
    filter=Expression("#n0 = :v0", {"#n0": "status"}, {":v0": {"S": "active"}}),
    guard=Expression("#n0 = :v0", {"#n0": "status"}, {":v0": {"S": "active"}}),
    guard_statement=Statement('"status" = ?', ({"S": "active"},)),
)
WHOLE_TABLE = Scope(TABLE)
SEGMENTS = 64
ARCHIVED = set_values(("status=archived",))
"""`--set status=archived`: each item is decoded, mapped, compared and updated under the filter as a condition."""


class Predicate(Command):
    """Keeps the items for which a condition on two attributes holds."""

    name: ClassVar[str] = "predicate"
    _look = Attributes("status", "total")

    def plan(self, scope: Scope) -> Work:
        return Work(scope)

    def page(self, page: Page, work: Work) -> PageResult:
        rows = []
        for item in page.items:
            status, total = self._look(item)
            if status == {"S": "active"} and total and Decimal(total["N"]) > 500:
                rows.append(item)
        return PageResult(rows=rows)


class MapItems(Command):
    """Gives each whole item to a function."""

    name: ClassVar[str] = "map"

    def plan(self, scope: Scope) -> Work:
        return Work(scope)

    def page(self, page: Page, work: Work) -> PageResult:
        for item in page.items:
            boto3_way.grow(to_python(item))
        return PageResult()


class Archive(Command):
    """Sets one attribute, if the item still is as the filter says."""

    name: ClassVar[str] = "update"
    mutates: ClassVar[bool] = True

    def plan(self, scope: Scope) -> Work:
        return Work(scope, projection=scope.table.key_names, guarded=True)

    def page(self, page: Page, work: Work) -> PageResult:
        sets = {"status": msgspec.Raw(b'{"S":"archived"}')}
        return PageResult(writes=[Update(item, sets) for item in page.items])


@dataclass(frozen=True)
class Case:
    """One kind of work, done both ways. `at_most` is the share of boto3's CPU that issue 3 allows.

    boto3's way is `read`, and `write` of a page's items where there is one. It reads whole items, as a plain `scan`
    does; where bulkexec fetches keys alone, boto3 with a projection is measured as well.
    """

    name: str
    at_most: float
    command: Command
    read: Callable[[Any, Over], int]
    write: Callable[[Any, Over, list[dict[str, Any]]], int] | None = None
    scope: Scope = WHOLE_TABLE

    @property
    def keys_only(self) -> bool:
        """Whether bulkexec reads nothing but keys."""
        return bool(self.command.plan(self.scope).projection)

    def run(self, wire: Wire, over: Over) -> Run:
        """bulkexec's run of it, ready to walk segments until `over()`."""
        work = self.command.plan(self.scope)
        calls = Retrying(wire, Refusals(TABLE.name, TABLE.region))
        return Run(
            plan=Plan(self.command.name, {}, work, SEGMENTS, self.command.mutates),
            command=self.command,
            reader=Reader(calls, work),
            writer=Writer(calls, work),
            read_budget=Budget(None),
            write_budget=TableBudgets(Budget(None), {}),
            checkpoints=MemoryCheckpoints(),
            cap=Cap(None, lambda items: items),
            stop=over,
            spills=lambda record: Spills(),
            threads=THREADS,
        )


CASES = (
    Case("scan", 1 / 60, Find(), boto3_way.scan),
    Case("scan_predicate", 1 / 30, Predicate(), boto3_way.scan_predicate),
    Case("map", 1 / 8, MapItems(), boto3_way.map_items),
    Case("copy", 1 / 40, Copy(to="another"), boto3_way.scan, boto3_way.copy),
    Case("delete", 1 / 30, Delete(all=True), boto3_way.scan, boto3_way.delete),
    Case("guarded_delete", 1 / 30, Delete(), boto3_way.scan, boto3_way.guarded_delete, FILTERED),
    Case("conditional_update", 1 / 40, Archive(), boto3_way.scan, boto3_way.conditional_update, FILTERED),
    Case("edit", 1 / 40, Edit(transform=ARCHIVED), boto3_way.scan, boto3_way.conditional_update, FILTERED),
)
