"""Acknowledged writes: every one ends in exactly one bucket, none is counted before DynamoDB has said so.

Limits: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from bulkexec.answers import (
    Capacity,
    Request,
    StatementAnswer,
    batch_get_decoder,
    batch_write_decoder,
    item_decoder,
    statements_decoder,
)
from bulkexec.batches import BatchWrite, KeyValues, Statements
from bulkexec.budgets import Consumed
from bulkexec.cost import item_size_bytes
from bulkexec.model import Expression, Failure, Work
from bulkexec.wire import Fault, OnThrottle, Retry, Retrying
from bulkexec.writes import Apply, Delete, Put, Update, Write

BATCH_WRITE_ITEMS = 25
BATCH_STATEMENTS = 25
ITEM_LIMIT_BYTES = 400 * 1024
ITEM_FAULTS = frozenset({"ValidationException", "ItemCollectionSizeLimitExceededException"})
"""Faults that are of one item, not of the run."""

encode = msgspec.json.encode


@dataclass
class Outcome:
    """What became of some writes. `units` as metered; every write is in exactly one of the first three."""

    processed: int = 0
    skipped: list[msgspec.Raw] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    units: float = 0.0
    index_units: dict[str, float] = field(default_factory=dict)

    @property
    def consumed(self) -> Consumed:
        """Units by what they were charged to."""
        return Consumed(self.units - sum(self.index_units.values()), self.index_units)

    def charge(self, capacities: Iterable[Capacity]) -> None:
        """Take in what requests consumed."""
        for capacity in capacities:
            self.units += capacity.CapacityUnits
            for name, index in capacity.GlobalSecondaryIndexes.items():
                self.index_units[name] = self.index_units.get(name, 0.0) + index.CapacityUnits

    def add(self, other: "Outcome") -> None:
        """Take in another outcome."""
        self.processed += other.processed
        self.skipped += other.skipped
        self.failed += other.failed
        self.units += other.units
        for name, units in other.index_units.items():
            self.index_units[name] = self.index_units.get(name, 0.0) + units


@dataclass
class Writer:
    """Writes until nothing is unprocessed, in the largest batches that the condition allows.

    Without a condition: BatchWriteItem. With one: BatchExecuteStatement, or one request an item where PartiQL cannot
    say the condition or `sequential` is asked for. A throttled write is sent again with backoff until the retry
    deadline passes without progress; then it is in `failed` with its key. Nothing is counted before it is acknowledged.
    """

    calls: Retrying
    work: Work
    sequential: bool = False
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        table = self.work.scope.table
        # Only what is charged to an index needs to be told apart (case C059).
        self._detail = "INDEXES" if any(index.kind == "GSI" for index in table.indexes) else "TOTAL"
        self._batch = BatchWrite(table.name, self._detail)
        self._statements = Statements(table, self._detail)
        self._key_values = KeyValues(table.key_names)

    def write(self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome) -> None:
        """Send one of `batches` and see it through.

        `outcome` is filled as writes are acknowledged, so that also when this raises it says what was done.
        """
        send, _ = self._way()
        send(writes, on_throttle, outcome)

    def batches(self, writes: Sequence[Write]) -> list[Sequence[Write]]:
        """The writes as they may share requests: no more than fit; of statements, no key twice."""
        send, size = self._way()
        chunks = [writes[start : start + size] for start in range(0, len(writes), size)]
        return [part for chunk in chunks for part in self._distinct(chunk)] if send == self._by_statements else chunks

    def _distinct(self, chunk: Sequence[Write]) -> list[Sequence[Write]]:
        keys = [self._key_of(write) for write in chunk]
        if len(set(keys)) == len(keys):
            return [chunk]
        parts: list[dict[bytes, Write]] = []
        for key, write in zip(keys, chunk, strict=True):
            # After the last part that has the key, so that writes of one key keep their order.
            place = max((number + 1 for number, part in enumerate(parts) if key in part), default=0)
            if place == len(parts):
                parts.append({})
            parts[place][key] = write
        return [list(part.values()) for part in parts]

    def _key_of(self, write: Write) -> bytes:
        return bytes(write.key) if isinstance(write, Delete | Update) else b",".join(self._key_values(_item_of(write)))

    def _way(self) -> tuple[Callable[[Sequence[Write], OnThrottle, Outcome], None], int]:
        if self.sequential or (self.work.guarded and self.work.scope.guard_statement is None):
            return self._one_by_one, 1
        if self.work.guarded:
            return self._by_statements, BATCH_STATEMENTS
        return self._by_batch, BATCH_WRITE_ITEMS

    # -- BatchWriteItem ------------------------------------------------------------------------------------------

    def _by_batch(self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome) -> None:
        entries: Sequence[bytes] = self._batch.entries(cast(Sequence[Delete | Put], writes))
        if max(map(len, entries)) > ITEM_LIMIT_BYTES:
            writes = self._small_enough(writes, outcome)
            entries = self._batch.entries(cast(Sequence[Delete | Put], writes))
        try:
            self._until_processed(entries, on_throttle, outcome)
        except Fault as fault:
            # Two writes of one key have the whole batch refused. Rare, so it is looked for only then.
            parts = self._distinct(writes) if "duplicate" in fault.message.lower() else []
            if len(parts) < 2:
                self.calls.refusals.raise_for(fault)
            for part in parts:
                self._by_batch(part, on_throttle, outcome)

    def _until_processed(self, entries: Sequence[bytes], on_throttle: OnThrottle, outcome: Outcome) -> None:
        attempts = self.retry.start()
        pending: Sequence[bytes | msgspec.Raw] = entries
        while pending:
            content, _ = self.calls.attempt("BatchWriteItem", self._batch.body(pending), on_throttle)
            answer = batch_write_decoder.decode(content)
            left = next(iter(answer.UnprocessedItems.values()), [])
            outcome.charge(answer.ConsumedCapacity)
            outcome.processed += len(pending) - len(left)
            if not left:
                return
            on_throttle(())
            if len(left) < len(pending):
                attempts.progress()
            pending = left
            if not attempts.wait():
                outcome.failed += [Failure(_entry_key(entry, self._keys), "ThroughputExhausted") for entry in pending]
                return

    def _small_enough(self, writes: Sequence[Write], outcome: Outcome) -> Sequence[Write]:
        """Those that the service takes; one item over the limit would have the whole batch refused (case C072)."""
        kept: list[Write] = []
        for write in writes:
            item = msgspec.json.decode(write.item) if isinstance(write, Put) else {}
            if item_size_bytes(item) > ITEM_LIMIT_BYTES:
                outcome.failed.append(Failure({name: item[name] for name in self._keys}, "ItemTooLarge", "over 400 KB"))
            else:
                kept.append(write)
        return kept

    @property
    def _keys(self) -> tuple[str, ...]:
        return self.work.scope.table.key_names

    # -- BatchExecuteStatement -----------------------------------------------------------------------------------

    def _by_statements(self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome) -> None:
        attempts = self.retry.start()
        pending, doubtful = list(writes), False
        while pending:
            body = self._statements.body([self._statement(write) for write in pending])
            content, lost = self.calls.call("BatchExecuteStatement", body, on_throttle)
            answer = statements_decoder.decode(content)
            outcome.charge(answer.ConsumedCapacity)
            left = self._sort(pending, answer.Responses, outcome, doubtful or lost)
            # A statement that failed inside the service may have had its effect, like a request whose answer was lost.
            doubtful = (
                doubtful or lost or any(each.Error is not None and each.Error.unsure for each in answer.Responses)
            )
            if len(left) < len(pending):
                attempts.progress()
            pending = left
            if pending:
                on_throttle(())
                if not attempts.wait():
                    outcome.failed += [Failure(key_of(write), "ThroughputExhausted") for write in pending]
                    return

    def _statement(self, write: Write) -> bytes:
        if isinstance(write, Delete):
            return self._statements.delete(write.key, self.work.scope.guard_statement)
        raise TypeError(f"{type(write).__name__} cannot be written yet")

    def _sort(
        self, writes: Sequence[Write], answers: Sequence[StatementAnswer], outcome: Outcome, doubtful: bool
    ) -> list[Write]:
        """Put each write into its bucket; give back those to send again."""
        again, refused, denied = [], [], ""
        for write, answer in zip(writes, answers, strict=True):
            if answer.Error is None:
                outcome.processed += 1
            elif answer.Error.Code.startswith("ConditionalCheckFailed"):
                refused.append(write)
            elif Fault(answer.Error.Code, answer.Error.Message).again:
                again.append(write)
            elif answer.Error.Code.startswith("AccessDenied"):
                denied = answer.Error.Message
            else:
                outcome.failed.append(Failure(key_of(write), answer.Error.Code, answer.Error.Message))
        if refused:
            self._settle_refused(refused, outcome, doubtful)
        if denied:
            self.calls.refusals.raise_for(Fault("AccessDeniedException", denied))
        return again

    # -- one request an item -------------------------------------------------------------------------------------

    def _one_by_one(self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome) -> None:
        (write,) = writes
        assert isinstance(write, Delete)
        body: dict[str, Any] = {
            "TableName": self.work.scope.table.name,
            "Key": write.key,
            "ReturnConsumedCapacity": self._detail,
        }
        if self.work.guarded and self.work.scope.guard is not None:
            body |= _condition(self.work.scope.guard)
        try:
            content, _ = self.calls.attempt("DeleteItem", encode(body), on_throttle)
        except Fault as fault:
            self._refused_alone(write, fault, outcome)
            return
        outcome.charge([item_decoder.decode(content).ConsumedCapacity])
        outcome.processed += 1

    def _refused_alone(self, write: Write, fault: Fault, outcome: Outcome) -> None:
        if fault.code == "ConditionalCheckFailedException":
            self._settle_refused([write], outcome, fault.lost)
        elif fault.code in ITEM_FAULTS or fault.throttle:
            outcome.failed.append(Failure(key_of(write), fault.code, fault.message))
        else:
            self.calls.refusals.raise_for(fault)

    def _settle_refused(self, writes: Sequence[Write], outcome: Outcome, doubtful: bool) -> None:
        """A refused condition means "changed after it was read", unless an earlier answer was lost.

        Then our own write may be why the condition fails: what is gone counts as deleted, what is there as skipped.
        """
        gone = self._absent(writes) if doubtful else set()
        for write in writes:
            if _canonical(key_of(write)) in gone:
                outcome.processed += 1
            else:
                outcome.skipped.append(key_of_raw(write))

    def _absent(self, writes: Sequence[Write]) -> set[bytes]:
        keys = [key_of(write) for write in writes]
        table, there = self.work.scope.table.name, set()
        names = {f"#p{i}": name for i, name in enumerate(self._keys)}
        request: dict[str, Any] = {
            table: {
                "Keys": keys,
                "ConsistentRead": True,
                "ProjectionExpression": ",".join(names),
                "ExpressionAttributeNames": names,
            }
        }
        while request:
            content, _ = self.calls.call("BatchGetItem", encode({"RequestItems": request}))
            answer = batch_get_decoder.decode(content)
            there |= {_canonical(item) for items in answer.Responses.values() for item in items}
            request = answer.UnprocessedKeys
        return {_canonical(key) for key in keys} - there


def _condition(expression: Expression) -> dict[str, Any]:
    body: dict[str, Any] = {"ConditionExpression": expression.text}
    if expression.names:
        body["ExpressionAttributeNames"] = expression.names
    if expression.values:
        body["ExpressionAttributeValues"] = expression.values
    return body


def _entry_key(entry: bytes | msgspec.Raw, names: tuple[str, ...]) -> dict[str, Any]:
    request = msgspec.json.decode(entry, type=Request)
    raw = request.DeleteRequest.get("Key") or request.PutRequest["Item"]
    item: dict[str, Any] = msgspec.json.decode(raw)
    return {name: item[name] for name in names}


def key_of_raw(write: Write) -> msgspec.Raw:
    """The typed JSON of the key that a delete or update is for."""
    assert isinstance(write, Delete | Update)
    return write.key


def _item_of(write: Write) -> msgspec.Raw:
    assert isinstance(write, Put | Apply)
    return write.item


def key_of(write: Write) -> dict[str, Any]:
    """The key that a delete or update is for, decoded."""
    key: dict[str, Any] = msgspec.json.decode(key_of_raw(write))
    return key


def _canonical(key: Any) -> bytes:
    return encode(key, order="deterministic")
