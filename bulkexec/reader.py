"""Pages of raw items out of DynamoDB: requests are put together from raw bytes, answers are only split.

Limits: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from bulkexec.answers import page_decoder
from bulkexec.batches import KeyValues
from bulkexec.lookup import fetch_items
from bulkexec.model import Page, Scope, Segment, Work
from bulkexec.wire import OnThrottle, Retrying

encode = msgspec.json.encode

LOOKUP_ITEMS = 250
"""Entries of an index on one page whose items are then fetched whole: at 400 KB each what memory must hold."""


class PageSource(Protocol):
    """Where the pages of a run come from, the same for every source."""

    def page(
        self,
        segment: Segment,
        start_key: bytes | None,
        limit: int | None,
        on_throttle: OnThrottle,
        stop: Callable[[], bool],
    ) -> Page:
        """One page of a segment. `start_key` is the raw JSON of an earlier page's last evaluated key."""


@dataclass(frozen=True)
class Reader:
    """Reads the pages of one segment (Scan) or of one item collection (Query), of the table or of an index."""

    calls: Retrying
    work: Work

    def page(
        self,
        segment: Segment,
        start_key: bytes | None,
        limit: int | None,
        on_throttle: OnThrottle,
        stop: Callable[[], bool],
    ) -> Page:
        """See `PageSource`."""
        operation = "Query" if self.work.scope.pinned else "Scan"
        if self.work.lookup:
            limit = min(limit or LOOKUP_ITEMS, LOOKUP_ITEMS)
        body = self._body(segment, start_key, limit)
        content, _ = self.calls.call(operation, body, on_throttle, stop)
        answer = page_decoder.decode(content)
        last = bytes(answer.LastEvaluatedKey) or None
        page = Page(answer.Items, answer.Count, answer.ScannedCount, answer.ConsumedCapacity.CapacityUnits, last)
        page = self._without_hidden(page) if self.work.hidden else page
        return self._looked_up(page, on_throttle) if self.work.lookup else page

    def _without_hidden(self, page: Page) -> Page:
        """The reserved row is no item of the user's; it was read all the same, so it stays in `scanned`."""
        names = self.work.scope.table.key_names
        wanted = [msgspec.json.decode(encode(self.work.hidden))[name] for name in names]
        key_values = KeyValues(names)
        kept = [item for item in page.items if [msgspec.json.decode(value) for value in key_values(item)] != wanted]
        return page._replace(items=kept, matched=page.matched - len(page.items) + len(kept))

    def _looked_up(self, page: Page, on_throttle: OnThrottle) -> Page:
        """The items that the entries of an index belong to. What is gone meanwhile is missing."""
        table = self.work.scope.table
        found, units = fetch_items(self.calls, table, page.items, self.work.consistent, on_throttle)
        return page._replace(items=found, missing=page.matched - len(found), read_units=page.read_units + units)

    def _body(self, segment: Segment, start_key: bytes | None, limit: int | None) -> bytes:
        body = dict(self._fixed())
        if not self.work.scope.pinned:
            body |= {"Segment": segment.number, "TotalSegments": segment.total}
        if start_key is not None:
            body["ExclusiveStartKey"] = msgspec.Raw(start_key)
        if limit is not None:
            body["Limit"] = limit
        return encode(body)

    def _fixed(self) -> dict[str, Any]:
        scope, work = self.work.scope, self.work
        body: dict[str, Any] = {"TableName": scope.table.name, "ReturnConsumedCapacity": "TOTAL"}
        if work.index:
            body["IndexName"] = work.index
        if work.consistent and not work.lookup:
            body["ConsistentRead"] = True
        if work.descending:
            body["ScanIndexForward"] = False
        names, values = _bind(body, scope)
        if work.count_only:
            body["Select"] = "COUNT"
        elif work.projection or work.lookup:
            aliases = _aliases(work.projection if not work.lookup else scope.table.key_names, names)
            body["ProjectionExpression"] = ",".join(aliases)
            names |= aliases
        if names:
            body["ExpressionAttributeNames"] = names
        if values:
            body["ExpressionAttributeValues"] = values
        return body


def _aliases(attributes: Sequence[str], taken: Mapping[str, str]) -> dict[str, str]:
    """An alias for each attribute that no other expression of the request has; users choose theirs freely."""
    prefix = "#p"
    while any(name.startswith(prefix) for name in taken):
        prefix += "p"
    return {f"{prefix}{i}": name for i, name in enumerate(attributes)}


def _bind(body: dict[str, Any], scope: Scope) -> tuple[dict[str, str], dict[str, Any]]:
    """Put filter and key condition into a read; give the names and values they bind."""
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    for member, expression in (("FilterExpression", scope.filter), ("KeyConditionExpression", scope.key_condition)):
        if expression is not None:
            body[member] = expression.text
            assert not names.keys() & expression.names.keys()
            assert not values.keys() & expression.values.keys()
            names |= expression.names
            values |= expression.values
    return names, values
