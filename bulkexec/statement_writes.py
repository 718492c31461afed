"""Writes as PartiQL statements, 25 in a request, each answered on its own."""

from collections.abc import Mapping, Sequence
from typing import cast

from bulkexec.answers import StatementAnswer, statements_decoder
from bulkexec.batches import Statements
from bulkexec.buckets import Buckets
from bulkexec.outcome import Outcome
from bulkexec.single_writes import SingleWrites
from bulkexec.wire import Fault, OnThrottle, Retry, Retrying
from bulkexec.writes import Delete, Put, Update, Write

RUN_FAULTS = {"AccessDenied": "AccessDeniedException", "ResourceNotFound": "ResourceNotFoundException"}
"""Errors of a statement that end the run, with the names of the exceptions that they stand for."""
ITEM_FAULTS = {
    "ValidationError": "ValidationException",
    "ItemCollectionSizeLimitExceeded": "ItemCollectionSizeLimitExceededException",
}
"""Errors of one item; their reason is the same whichever way a write goes."""


class StatementWrites:
    """BatchExecuteStatement until every statement is acknowledged or accounted for; no key twice in a request."""

    def __init__(
        self, calls: Retrying, retry: Retry, statements: Statements, buckets: Buckets, singles: SingleWrites
    ) -> None:
        self._calls, self._retry, self._buckets, self._singles = calls, retry, buckets, singles
        self._statements = statements

    def send(self, writes: Sequence[Write], on_throttle: OnThrottle, outcome: Outcome) -> None:
        """See these through; those whose statement would be too long go one by one."""
        entries: dict[int, bytes] = {}
        sendable: list[Write] = []
        for write in writes:
            entry = self._statements.entry(cast(Delete | Update | Put, write))
            if entry is None:
                self._singles.send([write], on_throttle, outcome)
            else:
                entries[id(write)] = entry
                sendable.append(write)
        through = (self._calls, self._retry, self._statements, self._buckets)
        _Exchange(*through, entries, on_throttle, outcome).run(sendable)


class _Exchange:
    """One batch until its end. `entries` are the statements of writes by their `id()`."""

    def __init__(
        self,
        calls: Retrying,
        retry: Retry,
        statements: Statements,
        buckets: Buckets,
        entries: Mapping[int, bytes],
        on_throttle: OnThrottle,
        outcome: Outcome,
    ) -> None:
        self._calls, self._retry, self._statements, self._buckets = calls, retry, statements, buckets
        self._entries, self._on_throttle, self._outcome = entries, on_throttle, outcome
        self._doubtful: set[int] = set()  # the id() of writes that may have had their effect already

    def run(self, writes: Sequence[Write]) -> None:
        attempts, pending = self._retry.start(), writes
        while pending:
            answers = self._execute(pending)
            if answers is None:
                return
            again = self._sort(pending, answers)
            if len(again) < len(pending):
                attempts.progress()
            if any(fault.throttle for _, fault in again):
                self._on_throttle(())
            if again and not attempts.wait():
                self._buckets.give_up(again, self._doubtful, self._outcome)
                return
            pending = [write for write, _ in again]

    def _execute(self, writes: Sequence[Write]) -> list[StatementAnswer] | None:
        """The answers to these statements; None when they were refused as a whole, and have been seen to."""
        body = self._statements.body([self._entries[id(write)] for write in writes])
        try:
            content, lost = self._calls.attempt("BatchExecuteStatement", body, self._on_throttle)
        except Fault as fault:
            if fault.lost:
                self._doubtful |= {id(write) for write in writes}
            self._buckets.refused_whole(fault, writes, self.run, self._outcome, self._doubtful)
            return None
        if lost:
            self._doubtful |= {id(write) for write in writes}
        answer = statements_decoder.decode(content)
        self._outcome.charge(answer.ConsumedCapacity)
        return answer.Responses

    def _sort(self, writes: Sequence[Write], answers: Sequence[StatementAnswer]) -> list[tuple[Write, Fault]]:
        """Put each write into its bucket; give back those to send again, with what happened to them."""
        done: list[Write] = []
        refused: list[Write] = []
        faults: list[tuple[Write, Fault]] = []
        for write, answer in zip(writes, answers, strict=True):
            if answer.Error is None:
                done.append(write)
            elif answer.Error.refused:
                refused.append(write)
            else:
                code = ITEM_FAULTS.get(answer.Error.Code, answer.Error.Code)
                faults.append((write, Fault(code, answer.Error.Message)))
                if answer.Error.unsure:
                    # Like a request whose answer was lost: it may have had its effect before it failed.
                    self._doubtful.add(id(write))
        self._outcome.acknowledge(done)
        if refused:
            self._buckets.refuse(refused, self._doubtful, self._outcome)
        return self._sort_faults(faults)

    def _sort_faults(self, faults: Sequence[tuple[Write, Fault]]) -> list[tuple[Write, Fault]]:
        for write, fault in faults:
            if not fault.again and fault.code not in RUN_FAULTS:
                self._buckets.fail([write], fault.code, fault.message, self._outcome)
        for _, fault in faults:
            if fault.code in RUN_FAULTS:
                self._calls.refusals.raise_for(Fault(RUN_FAULTS[fault.code], fault.message))
        return [(write, fault) for write, fault in faults if fault.again]
