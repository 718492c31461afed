"""The plain boto3 way of each case: the resource interface, one call after another, batch_writer where there is one.

Each function works until `over()` and gives the number of items it handled. Cases that write are measured in halves,
reading and writing, and added: in the time of a measurement item-by-item writes do not get through a page, and the page
would be charged to the few of its items that were written.
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


def scan_keys(table: Any, over: Over) -> int:
    """Pages of keys."""
    return sum(len(items) for items in _pages(table, over, **KEYS))


def copy(table: Any, over: Over, items: list[dict[str, Any]]) -> int:
    """Put with batch_writer."""
    with table.batch_writer() as writer:
        return _each(items, over, lambda item: writer.put_item(Item=item))


def delete(table: Any, over: Over, keys: list[dict[str, Any]]) -> int:
    """Delete with batch_writer."""
    with table.batch_writer() as writer:
        return _each(keys, over, lambda key: writer.delete_item(Key=key))


def guarded_delete(table: Any, over: Over, keys: list[dict[str, Any]]) -> int:
    """One conditional delete_item after another: batch_writer cannot carry conditions."""
    values = {":old": "active"}
    return _each(keys, over, lambda key: table.delete_item(Key=key, **UNCHANGED, ExpressionAttributeValues=values))


def conditional_update(table: Any, over: Over, keys: list[dict[str, Any]]) -> int:
    """One conditional update_item after another."""
    change = {"UpdateExpression": "SET #status = :new", **UNCHANGED}
    values = {":old": "active", ":new": "archived"}
    return _each(keys, over, lambda key: table.update_item(Key=key, **change, ExpressionAttributeValues=values))


def _each(items: list[dict[str, Any]], over: Over, write: Callable[[dict[str, Any]], object]) -> int:
    done = 0
    while not over():
        write(items[done % len(items)])
        done += 1
    return done


def page(table: Any, keys_only: bool) -> list[dict[str, Any]]:
    """A page of items to write."""
    items: list[dict[str, Any]] = table.scan(**KEYS if keys_only else {})["Items"]
    return items


def _pages(table: Any, over: Over, **arguments: Any) -> Iterator[list[dict[str, Any]]]:
    while True:
        answer = table.scan(**arguments)
        arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        yield answer["Items"]
        if over():
            return
