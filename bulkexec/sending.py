"""A page's writes under their rates, many requests at a time.

Each write goes to one table under that table's budget: puts to the target, all else to the table that was read. A move
is both, one after the other: what it was made from is deleted only after its put was acknowledged.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from bulkexec.batches import KeyValues
from bulkexec.budgets import Consumed, Reservation, TableBudgets
from bulkexec.outcome import Outcome
from bulkexec.run import Run
from bulkexec.wire import Answering, OnThrottle, Stopped
from bulkexec.writer import Writer
from bulkexec.writes import Move, Put, Write

LANES_A_PAGE = 8
IN_FLIGHT_A_PAGE = 8
"""Requests of one segment that were sent and are not answered."""
MOVES_A_BATCH = 25


@dataclass
class Place:
    """A table that is written, with what a write of one item is expected to cost there."""

    writer: Writer
    budget: TableBudgets
    units_a_write: float = 1.0

    def learn(self, units: float, writes: int) -> None:
        """Take in what some writes did cost."""
        self.units_a_write = max(1.0, 0.9 * self.units_a_write + 0.1 * units / writes)


@dataclass
class Batch:
    """Writes of one kind that share a request, or the requests of some moves; and what became of them."""

    place: Place
    writes: Sequence[Write]
    outcome: Outcome = field(default_factory=Outcome)


class _Begun(NamedTuple):
    batch: Batch
    permit: Reservation
    answer: Answering


class Sending:
    """Sends the pages of one segment. `throttled` wraps what is told of throttles.

    What was read is deleted where it was read; `from_target` says that this is the target.
    """

    def __init__(self, run: Run, throttled: Callable[[OnThrottle], OnThrottle], from_target: bool = False) -> None:
        self._run, self._throttled = run, throttled
        self._source = Place(run.writer, run.write_budget)
        self._target = self._source if run.target is None else Place(*run.target)
        self._source = self._target if from_target else self._source
        self._cut = KeyValues(run.plan.work.writes_to.key_names)

    def page(self, writes: Sequence[Write]) -> tuple[Outcome, BaseException | None]:
        """What was acknowledged of a page's writes, and the error that ended it, if one did."""
        batches = list(self._batches(writes))
        left = deque(batches)
        errors = self._in_flight(left)
        if not errors:
            errors = self._in_lanes(left)
        total = Outcome()
        for batch in batches:
            total.add(batch.outcome)
        error = errors[0] if errors else None
        return total, error or (Stopped() if left else None)

    def _in_flight(self, left: "deque[Batch]") -> list[BaseException]:
        """Send batches from the front, the next before the last are answered, and see through all that were sent.

        In this thread: waking one for each answer costs more than the answer. Up to the first that cannot be begun.
        """
        begun: deque[_Begun] = deque()
        errors: list[BaseException] = []
        begin = True
        while begun or (begin and left):
            try:
                if begin and left and len(begun) < IN_FLIGHT_A_PAGE:
                    begin = self._begin(left, begun)
                else:
                    self._see_through(begun.popleft())
            except BaseException as error:  # noqa: BLE001 - the others that were sent have an outcome too; given back
                errors.append(error)
                begin = False
        return errors

    def _begin(self, left: "deque[Batch]", begun: "deque[_Begun]") -> bool:
        """Send the next batch. False when it cannot be begun, or when the run stops while the rate is 0."""
        batch = left[0]
        if isinstance(batch.writes[0], Move) or not batch.place.writer.begins(batch.writes):
            return False
        permit = self._permit(batch.place, batch.writes)
        if permit is None:
            return False
        try:
            answer = batch.place.writer.begin(batch.writes)
        except BaseException:
            permit.settle(Consumed(0.0, {}))
            raise
        begun.append(_Begun(left.popleft(), permit, answer))
        return True

    def _see_through(self, begun: "_Begun") -> None:
        self._write_permitted(begun.batch.place, begun.batch.writes, begun.batch.outcome, begun.permit, begun.answer)

    def _in_lanes(self, left: "deque[Batch]") -> list[BaseException]:
        """A few lanes that take one batch after another: a future for each would cost more than the batch."""
        lanes = _Inline() if self._run.lanes is None or len(left) == 1 else self._run.lanes
        pending = [lanes.submit(self._send_all, left) for _ in range(min(LANES_A_PAGE, len(left)))]
        wait(pending)  # what is in flight must not outlive the checkpoint
        return [error for each in pending if (error := each.exception()) is not None]

    def _batches(self, writes: Sequence[Write]) -> Iterator[Batch]:
        """Runs of one kind, each cut as its table's writer allows."""
        for kind, group in groupby(writes, type):
            some = list(group)
            if kind is Move:
                yield from (Batch(self._target, moves) for moves in self._apart(some))
            else:
                place = self._target if kind is Put else self._source
                yield from (Batch(place, batch) for batch in place.writer.batches(some))

    def _apart(self, moves: Sequence[Write]) -> Iterator[Sequence[Write]]:
        """Moves by the batch; no two of a batch have one destination, so that each put's fate is that of its key."""
        batch: dict[bytes, Write] = {}
        for move in moves:
            assert isinstance(move, Move)
            key = self._destination(move.put.item)
            if key in batch or len(batch) == MOVES_A_BATCH:
                yield list(batch.values())
                batch = {}
            batch[key] = move
        if batch:
            yield list(batch.values())

    def _send_all(self, left: "deque[Batch]") -> None:
        """Send batches until none is left. What an error or a stop leaves there was not sent."""
        while left:
            try:
                batch = left.popleft()
            except IndexError:
                return  # another lane was faster
            try:
                sent = self._send(batch)
            except BaseException:
                left.clear()
                raise
            if not sent:
                left.append(batch)
                return

    def _send(self, batch: Batch) -> bool:
        if isinstance(batch.writes[0], Move):
            return self._move([move for move in batch.writes if isinstance(move, Move)], batch.outcome)
        return self._write(batch.place, batch.writes, batch.outcome)

    def _write(self, place: Place, writes: Sequence[Write], outcome: Outcome) -> bool:
        """Send writes of one kind under their table's rate. False when the run stops while that rate is 0."""
        permit = self._permit(place, writes)
        if permit is None:
            return False
        self._write_permitted(place, writes, outcome, permit)
        return True

    def _write_permitted(
        self,
        place: Place,
        writes: Sequence[Write],
        outcome: Outcome,
        permit: Reservation,
        begun: Answering | None = None,
    ) -> None:
        try:
            place.writer.write(writes, self._throttled(place.budget.throttled), outcome, begun)
        finally:
            permit.settle(outcome.consumed)
        place.learn(outcome.consumed.table, len(writes))

    def _permit(self, place: Place, writes: Sequence[Write]) -> Reservation | None:
        """Units for a batch. A page is finished once it is begun, unless it would wait for a rate that is 0."""
        units = place.units_a_write * len(writes)
        return place.budget.reserve(units, lambda: self._run.stopping and place.budget.rate <= 0)

    # -- moves ---------------------------------------------------------------------------------------------------

    def _move(self, moves: Sequence[Move], outcome: Outcome) -> bool:
        """Put, and delete what was acknowledged. False when it stopped before the last delete."""
        wanted = {self._destination(move.put.item): move for move in moves}
        there = self._there({key: move for key, move in wanted.items() if move.settled}, outcome)
        put, deleted = Outcome(acknowledged=[]), Outcome()
        if not self._write_all(self._target, [wanted[key].put for key in wanted.keys() - there], put):
            return False
        acknowledged = {self._destination(write.item) for write in put.acknowledged or () if isinstance(write, Put)}
        refused = {self._destination(key) for key in put.skipped}
        there |= self._there({key: wanted[key] for key in refused}, outcome)
        done = [move.delete for key, move in wanted.items() if key in acknowledged | there]
        try:
            if not self._write_all(self._source, done, deleted):
                return False
        finally:
            # Also of an error: what was deleted is not found again, so it has to be counted now.
            outcome.add(deleted)
        # What failed or was refused is named by its own key, not by where it was to go.
        put.failed = [replace(each, key=_decoded(wanted[_canonical(each.key.values())])) for each in put.failed]
        put.skipped = [wanted[key].delete.key for key in refused - there]
        put.processed, put.acknowledged = 0, None
        outcome.add(put)
        return True

    def _write_all(self, place: Place, writes: Sequence[Write], outcome: Outcome) -> bool:
        for batch in place.writer.batches(writes) if writes else ():
            part = Outcome(acknowledged=outcome.acknowledged)
            try:
                if not self._write(place, batch, part):
                    return False
            finally:
                outcome.add(part)
        return True

    def _there(self, wanted: Mapping[bytes, Move], outcome: Outcome) -> set[bytes]:
        """Destinations that hold exactly what would be put, so that only the delete is left to do."""
        found = self._target.writer.already_there([move.put for move in wanted.values()], outcome) if wanted else ()
        return {self._destination(put.item) for put in found}

    def _destination(self, keyed: msgspec.Raw) -> bytes:
        return _canonical(map(msgspec.json.decode, self._cut(keyed)))


def _canonical(values: Iterable[Any]) -> bytes:
    return msgspec.json.encode(list(values))


def _decoded(move: Move) -> dict[str, Any]:
    key: dict[str, Any] = msgspec.json.decode(move.delete.key)
    return key


class _Inline(Executor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """See `Executor.submit`."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as every executor: the error is the future's
            future.set_exception(error)
        return future
