"""The plain boto3 way of each case: the resource interface, one call after another, batch_writer where there is one.

Each function works until `over()` and gives the number of items it handled.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

Over = Callable[[], bool]
KEYS = {"ProjectionExpression": "#p, #s", "ExpressionAttributeNames": {"#p": "pk", "#s": "sk"}}
UNCHANGED = {
    "ConditionExpression": "#status = :old",
    "ExpressionAttributeNames": {"#status": "status"},
}


def scan(table: Any, over: Over) -> int:
    """Pages of items that nobody opens."""
    return sum(len(items) for items in _pages(table, over))


def scan_predicate(table: Any, over: Over) -> int:
    """A condition on two attributes, decided here."""
    seen = 0
    for items in _pages(table, over):
        seen += len(items)
        [item for item in items if item["status"] == "active" and item["total"] > 500]
    return seen


def map_items(table: Any, over: Over) -> int:
    """A function of the whole item."""
    seen = 0
    for items in _pages(table, over):
        for item in items:
            grow(item)
        seen += len(items)
    return seen


def grow(item: dict[str, Any]) -> Decimal:
    """What a user's function might do with an item."""
    grown: Decimal = item["total"] * item["qty"] + len(item["note"])
    return grown


def copy(table: Any, over: Over) -> int:
    """Scan and put with batch_writer."""
    seen = 0
    with table.batch_writer() as writer:
        for item in _items(table, over):
            writer.put_item(Item=item)
            seen += 1
    return seen


def delete(table: Any, over: Over) -> int:
    """Scan of keys and delete with batch_writer."""
    seen = 0
    with table.batch_writer() as writer:
        for key in _items(table, over, **KEYS):
            writer.delete_item(Key=key)
            seen += 1
    return seen


def guarded_delete(table: Any, over: Over) -> int:
    """Scan of keys and one conditional delete_item after another: batch_writer cannot carry conditions."""
    seen = 0
    for key in _items(table, over, **KEYS):
        table.delete_item(Key=key, **UNCHANGED, ExpressionAttributeValues={":old": "active"})
        seen += 1
    return seen


def conditional_update(table: Any, over: Over) -> int:
    """Scan of keys and one conditional update_item after another."""
    seen = 0
    for key in _items(table, over, **KEYS):
        values = {":old": "active", ":new": "archived"}
        table.update_item(Key=key, UpdateExpression="SET #status = :new", **UNCHANGED, ExpressionAttributeValues=values)
        seen += 1
    return seen


def _items(table: Any, over: Over, **arguments: Any) -> Iterator[dict[str, Any]]:
    for items in _pages(table, over, **arguments):
        for item in items:
            if over():
                return
            yield item


def _pages(table: Any, over: Over, **arguments: Any) -> Iterator[list[dict[str, Any]]]:
    while not over():
        answer = table.scan(**arguments)
        arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        yield answer["Items"]
