"""Acknowledged writes: every one ends in exactly one bucket, none is counted before DynamoDB has said so.

Limits: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import cast

import msgspec

from bulkexec.answers import Request, batch_write_decoder
from bulkexec.batches import BatchWrite, KeyValues, Statements
from bulkexec.buckets import EXHAUSTED, Buckets
from bulkexec.item_requests import ItemRequests
from bulkexec.item_size import item_size_bytes
from bulkexec.model import Work
from bulkexec.outcome import Outcome
from bulkexec.settle import ReadBack, item_of, key_of
from bulkexec.single_writes import SingleWrites
from bulkexec.statement_writes import StatementWrites
from bulkexec.wire import Answering, Fault, OnThrottle, Retry, Retrying
from bulkexec.writes import Apply, Delete, Put, Update, Write

__all__ = ["Outcome", "Writer"]

BATCH_ITEMS = 25
"""Requests of a BatchWriteItem, and statements of a BatchExecuteStatement."""
ITEM_LIMIT_BYTES = 400 * 1024

Send = Callable[[Sequence[Write], OnThrottle, Outcome], None]
_observed = attrgetter("observed")


@dataclass
class Writer:
    """Writes to the table of `work` until nothing is unprocessed, in the largest batches that the condition allows.

    Without a condition: BatchWriteItem. With one: BatchExecuteStatement, or one request an item where PartiQL cannot
    say the condition or `sequential` is asked for. Deletes, updates and `Apply` go with the scope's guard if the work
    is guarded. Raises BadArgument when aliases of the guard and of the work's update expression clash.

    A throttled write is sent again with backoff until the retry deadline passes without progress; then it is in
    `failed` with its key. Nothing is counted before it is acknowledged; after a lost answer items are read back.
    """

    calls: Retrying
    work: Work
    sequential: bool = False
    retry: Retry = field(default_factory=Retry)

    def __post_init__(self) -> None:
        table, scope = self.work.scope.table, self.work.scope
        guard, statement = (scope.guard, scope.guard_statement) if self.work.guarded else (None, None)
        # A single request knows the expression only: with the statement alone it would go unguarded.
        assert guard is not None or statement is None
        self._guarded, self._can_say = guard is not None, statement is not None
        # Only what is charged to an index needs to be told apart (case C059).
        detail = "INDEXES" if any(index.kind == "GSI" for index in table.indexes) else "TOTAL"
        self._table, self._key_values = table, KeyValues(table.key_names)
        self._batch = BatchWrite(table.name, detail)
        self._back = ReadBack(self.calls, table, self._key_values)
        self._buckets = Buckets(self.calls.refusals, self._key_values, self._back)
        requests = ItemRequests(table, self._key_values, detail, guard, self.work.update)
        self._singles = SingleWrites(self.calls, self.retry, requests, self._buckets, self._back)
        statements = Statements(table, detail, statement)
        self._statements = StatementWrites(self.calls, self.retry, statements, self._buckets, self._singles)

    def begins(self, writes: Sequence[Write]) -> bool:
        """Whether one of `batches` can be begun: if it is one BatchWriteItem as it stands."""
        send, _ = self._way(writes)
        return send == self._by_batch and not (isinstance(writes[0], Put) and _largest(writes) > ITEM_LIMIT_BYTES)

    def begin(self, writes: Sequence[Write]) -> Answering:
        """Send the first request of what `begins`; give it to `write`, which sees it through."""
        return self.calls.begin("BatchWriteItem", self._body(writes))

    def write(
        self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome, begun: Answering | None = None
    ) -> None:
        """Send one of `batches` and see it through; or see through what `begin` has begun.

        `outcome` is filled as writes are acknowledged, so that also when this raises it says what was done.
        """
        if begun is not None:
            self._by_batch(writes, on_throttle, outcome, begun)
            return
        if isinstance(writes[0], Put):
            writes = self._small_enough(cast(Sequence[Put], writes), outcome)
        if writes:
            send, _ = self._way(writes)
            send(writes, on_throttle, outcome)

    def batches(self, writes: Sequence[Write]) -> list[Sequence[Write]]:
        """The writes, all of one kind, as they may share requests: no more than fit; of statements, no key twice."""
        if not writes:
            return []
        send, size = self._way(writes)
        chunks = [writes[start : start + size] for start in range(0, len(writes), size)]
        if send != self._statements.send:
            return chunks
        return [part for chunk in chunks for part in self._distinct(chunk)]

    def already_there(self, puts: Sequence[Put], outcome: Outcome | None = None) -> list[Put]:
        """Those of these puts whose place in the table holds exactly the item they would put.

        Reads consistently; the read units are added to `outcome`.
        """
        return self._back.settled(puts, outcome or Outcome())

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
        return bytes(write.key) if isinstance(write, Delete | Update) else b",".join(self._key_values(item_of(write)))

    def _way(self, writes: Sequence[Write]) -> tuple[Send, int]:
        first = writes[0]
        if self.sequential or isinstance(first, Apply):
            return self._singles.send, 1
        if isinstance(first, Put):
            # BatchWriteItem carries no condition, so a put with one never goes that way (case C080).
            ways = {"": self._by_batch, "absent": self._statements.send}
            return (ways[first.when], BATCH_ITEMS) if first.when in ways else (self._singles.send, 1)
        if self._guarded and not self._can_say:
            return self._singles.send, 1
        if isinstance(first, Delete) and not self._guarded and not any(map(_observed, writes)):
            return self._by_batch, BATCH_ITEMS
        return self._statements.send, BATCH_ITEMS

    def _small_enough(self, puts: Sequence[Put], outcome: Outcome) -> Sequence[Put]:
        """Those that the service takes; one item over the limit would have the whole batch refused (case C072)."""
        # No item is larger than its JSON, so most need not be looked into.
        if _largest(puts) <= ITEM_LIMIT_BYTES:
            return puts
        kept: list[Put] = []
        for put in puts:
            if item_size_bytes(msgspec.json.decode(put.item)) > ITEM_LIMIT_BYTES:
                self._buckets.fail([put], "ItemTooLarge", "over 400 KB", outcome)
            else:
                kept.append(put)
        return kept

    def _by_batch(
        self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome, begun: Answering | None = None
    ) -> None:
        """BatchWriteItem until nothing is unprocessed."""
        attempts, pending = self.retry.start(), writes
        while True:
            try:
                content, _ = self.calls.attempt("BatchWriteItem", self._body(pending), on_throttle, begun=begun)
                begun = None
            except Fault as fault:
                self._buckets.refused_whole(
                    fault, pending, lambda half: self._by_batch(half, on_throttle, outcome), outcome
                )
                return
            answer = batch_write_decoder.decode(content)
            outcome.charge(answer.ConsumedCapacity)
            left = self._left(pending, answer.UnprocessedItems.get(self._table.name, []), outcome)
            if not left:
                return
            on_throttle(())
            if len(left) < len(pending):
                attempts.progress()
            pending = left
            if not attempts.wait():
                self._buckets.fail(pending, EXHAUSTED, "still unprocessed at the retry deadline", outcome)
                return

    def _body(self, writes: Sequence[Write]) -> bytes:
        if isinstance(writes[0], Put):
            return self._batch.puts(cast(Sequence[Put], writes))
        return self._batch.deletes(cast(Sequence[Delete], writes))

    def _left(self, writes: Sequence[Write], unprocessed: Sequence[Request], outcome: Outcome) -> Sequence[Write]:
        """The writes that came back unprocessed; the others are acknowledged."""
        if not unprocessed:
            outcome.acknowledge(writes)
            return []
        names = self._table.key_names
        back = {key_of(request.item, names) for request in unprocessed}
        left = [write for write in writes if key_of(msgspec.json.decode(item_of(write)), names) in back]
        if len(left) != len(unprocessed):
            return writes  # which ones cannot be told: all are sent again, which changes nothing
        again = set(map(id, left))
        outcome.acknowledge([write for write in writes if id(write) not in again])
        return left


def _largest(puts: Sequence[Write]) -> int:
    return max([len(put.item) for put in cast(Sequence[Put], puts)])
