"""DynamoDB as the sandbox serves it: the emulator's handlers, each checked, metered and held to its table's capacity.

The handlers are replaced inside the emulator's module, so that authorization, accounts and regions stay in front of
them. All of them run on the event loop, one after another, so what a rehearsal has found still holds when the request
is carried out.
"""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import ministack.services.dynamodb as emulated

from bulkexec.item_size import item_size_bytes
from bulkexec.sandbox.capacity import Record, index_entry
from bulkexec.sandbox.conditions import Conditions
from bulkexec.sandbox.emulated_dynamodb import (
    Answer,
    Shelves,
    Writes,
    refusal,
    table_of,
    with_canonical_keys,
    with_remembered_texts,
)
from bulkexec.sandbox.expressions import check_placeholders
from bulkexec.sandbox.metering import Handler, Meter, Request, with_members
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.read_handlers import ReadHandlers
from bulkexec.sandbox.recovery import Recovery
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.sizes import forget_sizes, size_of
from bulkexec.sandbox.statement_handlers import StatementHandlers
from bulkexec.sandbox.stats import Stats
from bulkexec.sandbox.throughput import Throughput
from bulkexec.sandbox.write_handlers import WriteHandlers

Overlay = Callable[[Handler, Request], Answer]


def take_over(options: SandboxOptions, stats: Stats) -> None:
    """Puts the sandbox's DynamoDB in place of the emulator's. Once in a process."""
    shelves = Shelves()
    meter = Meter(Throughput(options.burst_seconds), stats, Writes(shelves))
    emulated._evaluate_condition = Conditions().evaluate
    emulated._item_size_bytes = size_of
    with_remembered_texts()
    with_canonical_keys()
    for operation, overlay in _overlays(meter, shelves, options.size_age_seconds).items():
        name = _function_name(operation)
        setattr(emulated, name, _answering(overlay, getattr(emulated, name)))


def _overlays(meter: Meter, shelves: Shelves, size_age_seconds: float) -> dict[str, Overlay]:
    writes, reads = WriteHandlers(meter), ReadHandlers(meter, shelves)
    statements, recovery = StatementHandlers(meter), Recovery()
    tables = TableHandlers(shelves, size_age_seconds)
    return {
        "PutItem": writes.put,
        "UpdateItem": writes.update,
        "DeleteItem": writes.delete,
        "BatchWriteItem": writes.batch,
        "TransactWriteItems": writes.transaction,
        "GetItem": reads.get,
        "BatchGetItem": reads.batch,
        "TransactGetItems": reads.transaction,
        "Query": reads.query,
        "Scan": reads.scan,
        "ExecuteStatement": statements.single,
        "BatchExecuteStatement": statements.batch,
        "ExecuteTransaction": statements.transaction,
        "DescribeTable": tables.describe,
        "DeleteTable": tables.delete,
        "UpdateTable": tables.update,
        "DescribeContinuousBackups": recovery.describe,
        "UpdateContinuousBackups": recovery.update,
    }


def _function_name(operation: str) -> str:
    """The emulator's function for an operation: `_put_item` for PutItem."""
    return "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()


def _answering(overlay: Overlay, original: Handler) -> Handler:
    def handler(request: Request) -> Answer:
        forget_sizes()
        try:
            check_placeholders(request)
            return overlay(original, request)
        except ServiceError as error:
            return refusal(error)

    return handler


class TableHandlers:
    """Handlers of whole tables. Counts and sizes may be `size_age_seconds` old; those of a new table are 0 so long."""

    def __init__(self, shelves: Shelves, size_age_seconds: float = 0.0) -> None:
        self._shelves, self._size_age_seconds = shelves, size_age_seconds
        self._measured: dict[str, tuple[float, _Sizes]] = {}

    def describe(self, original: Handler, request: Request) -> Answer:
        """DescribeTable, with the counts and sizes of indexes too."""
        table = table_of(request.get("TableName"))
        answer = original(request)
        if table is None or answer[0] != 200:
            return answer
        described = json.loads(answer[2])["Table"]
        for member in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
            for index in described.get(member, []):
                index.update(_contents(table, index))
        if self._size_age_seconds:
            self._put_back(described)
        return with_members(answer, {"Table": described})

    def _put_back(self, described: Record) -> None:
        """Gives counts and sizes as they were when they were last taken; the first time they are asked for, 0."""
        places = _places(described)
        nothing = [dict.fromkeys(sizes, 0) for sizes in map(_sizes, places)]
        now = time.monotonic()
        taken, sizes = self._measured.get(described["TableId"], (now, nothing))
        if now - taken >= self._size_age_seconds or len(sizes) != len(places):
            taken, sizes = now, list(map(_sizes, places))
        self._measured[described["TableId"]] = (taken, sizes)
        for place, old in zip(places, sizes, strict=True):
            place.update(old)

    def update(self, original: Handler, request: Request) -> Answer:
        """UpdateTable, with the on-demand maxima of indexes, which the emulator passes over."""
        answer = original(request)
        table = table_of(request.get("TableName"))
        if table is None or answer[0] != 200:
            return answer
        changes = [one["Update"] for one in request.get("GlobalSecondaryIndexUpdates", []) if "Update" in one]
        for change in changes:
            index = emulated._index_def(table, change["IndexName"])
            index |= {name: change[name] for name in ("OnDemandThroughput",) if name in change}
        return answer

    def delete(self, original: Handler, request: Request) -> Answer:
        """DeleteTable."""
        table = table_of(request.get("TableName"))
        answer = original(request)
        if table is not None and answer[0] == 200:
            self._shelves.drop(table)
        return answer


_Sizes = list[dict[str, int]]
"""Of the table, then of each of its indexes: the members of DescribeTable that say how large it is."""


def _places(described: Record) -> list[Record]:
    indexes = (described.get(member, []) for member in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"))
    return [described, *(index for each in indexes for index in each)]


def _sizes(place: Record) -> dict[str, int]:
    return {name: place[name] for name in ("ItemCount", "TableSizeBytes", "IndexSizeBytes") if name in place}


def _contents(table: Record, index: Record) -> dict[str, Any]:
    entries = [index_entry(table, index, item) for row in table["items"].values() for item in row.values()]
    sizes = [item_size_bytes(entry) for entry in entries if entry is not None]
    return {"ItemCount": len(sizes), "IndexSizeBytes": sum(sizes)}
