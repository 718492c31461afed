"""Items by their keys: BatchGetItem until none is unprocessed."""

from collections.abc import Sequence

import msgspec

from bulkexec.answers import Capacity
from bulkexec.batches import KeyValues
from bulkexec.model import Table
from bulkexec.wire import Fault, OnThrottle, Retrying

BATCH_GET_ITEMS = 100
"""Keys of one BatchGetItem (API reference)."""

_encode = msgspec.json.encode


class _Keys(msgspec.Struct):
    Keys: list[msgspec.Raw] = []


class _Answer(msgspec.Struct):
    Responses: dict[str, list[msgspec.Raw]] = {}
    UnprocessedKeys: dict[str, _Keys] = {}
    ConsumedCapacity: list[Capacity] = []


_decoder = msgspec.json.Decoder(_Answer)


def fetch_items(
    calls: Retrying,
    table: Table,
    keyed: Sequence[msgspec.Raw],
    consistent: bool = True,
    on_throttle: OnThrottle = lambda reasons: None,
) -> tuple[list[msgspec.Raw], float]:
    """(the items of these keys that are there, in no order; read units). `keyed` may hold more than the keys.

    A key that is given twice is read once. Raises the user's error of a fault that no retry mends.
    """
    cut = KeyValues(table.key_names)
    keys = list(dict.fromkeys(bytes(cut.key(each)) for each in keyed))
    items: list[msgspec.Raw] = []
    units = 0.0
    for start in range(0, len(keys), BATCH_GET_ITEMS):
        found, spent = _fetch(calls, table, keys[start : start + BATCH_GET_ITEMS], consistent, on_throttle)
        items += found
        units += spent
    return items, units


def _fetch(
    calls: Retrying, table: Table, keys: Sequence[bytes], consistent: bool, on_throttle: OnThrottle
) -> tuple[list[msgspec.Raw], float]:
    items: list[msgspec.Raw] = []
    units, pending, attempts = 0.0, [msgspec.Raw(key) for key in keys], calls.retry.start()
    while pending:
        request = {"Keys": pending, "ConsistentRead": consistent}
        body = _encode({"RequestItems": {table.name: request}, "ReturnConsumedCapacity": "TOTAL"})
        content, _ = calls.call("BatchGetItem", body, on_throttle)
        answer = _decoder.decode(content)
        items += [item for found in answer.Responses.values() for item in found]
        units += sum(capacity.CapacityUnits for capacity in answer.ConsumedCapacity)
        left = [key for keys in answer.UnprocessedKeys.values() for key in keys.Keys]
        if left and len(left) == len(pending):
            # Nothing came back: throttled. Some of it: the answer was full (16 MB), which is no reason to wait.
            on_throttle(())
            if not attempts.wait():
                calls.refusals.raise_for(Fault("ProvisionedThroughputExceededException", "keys stayed unprocessed"))
        elif left:
            attempts.progress()
        pending = left
    return items, units
