"""Change a table with cursor and totals in a row of another table, where anybody can watch them.

`python examples/state_row.py --table orders --where "status = 'EXPIRED'" --state-table loops --name archive-orders`
`aws dynamodb get-item --table-name loops --key '{"pk": {"S": "archive-orders"}}'`

Started again, after a kill -9 too, it goes on from the row. The row is written after each call, under the condition
that nobody else wrote it meanwhile: of two loops with one name the second to write ends. What a call did that did not
live to write the row is done once more; items that are done are not found again, so the totals may miss up to one call.
"""

import argparse
import sys
import time
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

import boto3
from botocore.exceptions import ClientError

from bulkexec import MassOpResult, Table

WHERE_CHANGED = "the row is of another table or condition; take another --name"


@dataclass(frozen=True)
class State:
    """The row. `cursor` is None before the first call and when `finished`; `updated_at` is in epoch seconds."""

    pk: str
    table: str
    where: str
    cursor: str | None = None
    finished: bool = False
    calls: int = 0
    scanned: int = 0
    processed: int = 0
    skipped: int = 0
    failed: int = 0
    conflicts: int = 0
    updated_at: int = 0

    def after(self, result: MassOpResult) -> "State":
        return replace(
            self,
            cursor=result.cursor,
            finished=result.cursor is None,
            calls=self.calls + 1,
            scanned=self.scanned + result.scanned,
            processed=self.processed + result.processed,
            skipped=self.skipped + result.skipped,
            failed=self.failed + len(result.failed),
            conflicts=self.conflicts + len(result.conflicts),
            updated_at=int(time.time()),
        )


def archive(item: dict[str, Any]) -> dict[str, Any]:
    """The map: what becomes of an item. Given its own output it has to give the same."""
    item["status"] = "ARCHIVED"
    return item


def load(rows: Any, fresh: State) -> State:
    """The state that was kept, or the fresh one."""
    row: dict[str, Any] | None = rows.get_item(Key={"pk": fresh.pk}, ConsistentRead=True).get("Item")
    if row is None:
        return fresh
    plain: dict[str, Any] = {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items()}
    kept = State(**plain)
    if (kept.table, kept.where) != (fresh.table, fresh.where):
        raise SystemExit(WHERE_CHANGED)
    return kept


def keep(rows: Any, before: State, after: State) -> None:
    """Write the row, unless another loop has done so since it was read."""
    try:
        rows.put_item(
            Item=asdict(after),
            ConditionExpression="attribute_not_exists(pk) OR calls = :seen",
            ExpressionAttributeValues={":seen": before.calls},
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        raise SystemExit(f"another loop goes on with {after.pk}; this one ends") from error


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Archive the items that match; go on from a row that others can watch."
    )
    parser.add_argument("--table", required=True, help="name or ARN")
    parser.add_argument("--where", required=True, help="SQL condition that no item matches any more once it is done")
    parser.add_argument("--state-table", required=True, help="a table with the partition key pk, a string")
    parser.add_argument("--name", required=True, help="the row's key")
    parser.add_argument("--items", type=int, default=5_000, help="a call ends at the first page boundary at or past it")
    parser.add_argument("--write-rate", help="units a second, or a share such as 30%%; half of the table's by default")
    return parser.parse_args()


def main() -> None:
    asked = parse()
    rows = boto3.resource("dynamodb").Table(asked.state_table)
    table = Table(asked.table)
    state = load(rows, State(asked.name, asked.table, asked.where))
    while not state.finished:
        result = table.edit_list(
            archive,
            where=asked.where,
            max_items=asked.items,
            resume_token=state.cursor,
            write_rate=asked.write_rate,
        )
        before, state = state, state.after(result)
        keep(rows, before, state)
        sys.stdout.write(f"call {state.calls}: {state.processed} processed of {state.scanned} scanned\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
