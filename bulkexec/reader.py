"""Pages of raw items out of DynamoDB: requests are put together from raw bytes, answers are only split.

Limits: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bulkexec.answers import page_decoder
from bulkexec.model import Page, Scope, Segment, Work
from bulkexec.wire import OnThrottle, Retrying

encode = msgspec.json.encode


@dataclass(frozen=True)
class Reader:
    """Reads the pages of one segment (Scan) or of one item collection (Query)."""

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
        """One page. `start_key` is the raw JSON of an earlier page's last evaluated key."""
        operation = "Query" if self.work.scope.pinned else "Scan"
        body = self._body(segment, start_key, limit)
        answer, _ = self.calls.call(operation, body, on_throttle, stop)
        page = page_decoder.decode(answer)
        last = bytes(page.LastEvaluatedKey) or None
        return Page(page.Items, page.Count, page.ScannedCount, page.ConsumedCapacity.CapacityUnits, last)

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
        if work.consistent:
            body["ConsistentRead"] = True
        names, values = _bind(body, scope)
        if work.count_only:
            body["Select"] = "COUNT"
        elif work.projection:
            aliases = _aliases(work.projection, names)
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
