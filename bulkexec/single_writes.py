"""One request an item: what no batch can say."""

from collections.abc import Sequence

import msgspec

from bulkexec.answers import item_decoder
from bulkexec.buckets import Buckets
from bulkexec.equality import same_items
from bulkexec.item_requests import ItemRequests
from bulkexec.outcome import Outcome
from bulkexec.settle import ReadBack
from bulkexec.wire import Fault, OnThrottle, Retry, Retrying
from bulkexec.writes import Apply, Write

REFUSED = "ConditionalCheckFailedException"


class SingleWrites:
    """PutItem, DeleteItem and UpdateItem; an `Apply` is not sent twice unless it is known to have had no effect."""

    def __init__(self, calls: Retrying, retry: Retry, requests: ItemRequests, buckets: Buckets, back: ReadBack) -> None:
        self._calls, self._retry, self._requests, self._buckets, self._back = calls, retry, requests, buckets, back

    def send(self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome) -> None:
        """See each of them through."""
        for write in writes:
            if isinstance(write, Apply):
                self._apply(write, on_throttle, outcome)
            else:
                self._write(write, on_throttle, outcome)

    def _write(self, write: Write, on_throttle: OnThrottle, outcome: Outcome, resend_lost: bool = True) -> None:
        operation, body = self._requests.request(write)
        try:
            content, _ = self._calls.attempt(operation, body, on_throttle, resend_lost=resend_lost)
        except Fault as fault:
            if fault.lost and not resend_lost:
                raise
            if fault.code == REFUSED:
                self._buckets.refuse([write], {id(write)} if fault.lost else (), outcome)
            else:
                self._buckets.refused_whole(fault, [write], lambda half: None, outcome)
            return
        outcome.charge([item_decoder.decode(content).ConsumedCapacity])
        outcome.acknowledge([write])

    def _apply(self, write: Apply, on_throttle: OnThrottle, outcome: Outcome) -> None:
        """An expression that adds or appends must not take effect twice, so after a lost answer the item is looked at.

        As it was read: the expression did not run, and is sent again. Changed: nobody can say by whom.
        """
        attempts = self._retry.start()
        while True:
            try:
                self._write(write, on_throttle, outcome, resend_lost=False)
                return
            except Fault as fault:
                in_time = attempts.wait()  # first: the update may still be on its way
                stored = self._back.item(write, outcome)
                if stored is None:
                    self._buckets.refuse([write], (), outcome)  # deleted meanwhile
                    return
                if not same_items(stored, msgspec.json.decode(write.item)):
                    self._buckets.fail([write], "AnswerLost", _LOST, outcome)
                    return
                if not in_time:
                    self._calls.refusals.raise_for(fault)


_LOST = (
    "the answer to the update was lost, and the item is not as it was read: the update may have been applied, or "
    "somebody else has changed the item; look at it before applying the update again"
)
