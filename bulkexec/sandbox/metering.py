"""Every request is charged what it consumes, and refused when its table has nothing left."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from bulkexec.sandbox.capacity import Charge, Item, write_charge
from bulkexec.sandbox.emulated_dynamodb import Answer, Target, Writes
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.stats import Stats
from bulkexec.sandbox.throughput import Throughput

Request = dict[str, Any]
Handler = Callable[[Request], Answer]


class Addressed(NamedTuple):
    """An item with its table's name or ARN as the request has it."""

    name: str
    target: Target


class Metered(NamedTuple):
    """What an item cost."""

    name: str
    target: Target
    charge: Charge


Metering = list[Metered]

_Batched = TypeVar("_Batched")

_CHARGED_ERRORS = (b"ConditionalCheckFailedException", b"TransactionCanceledException", b"DuplicateItemException")
"""Errors of requests that were carried out far enough to consume capacity."""


class Meter:
    """Charges requests. `transactional` and `collected` are set while statements run inside a larger request."""

    def __init__(self, throughput: Throughput, stats: Stats, writes: Writes) -> None:
        self.throughput, self._stats, self.writes = throughput, stats, writes
        self._transactional = False
        self._collected: Metering | None = None

    @contextmanager
    def collecting(self, transactional: bool = False) -> Iterator[Metering]:
        """Within the block charges are also gathered, for the request that everything in it belongs to."""
        gathered: Metering = []
        self._collected, self._transactional = gathered, transactional
        try:
            yield gathered
        finally:
            self._collected, self._transactional = None, False

    def write(self, original: Handler, request: Request, items: list[Addressed]) -> tuple[Answer, Metering]:
        """Carries out a request that writes to these items. Raises ServiceError for want of capacity."""
        before = [one.target.item() for one in items]
        if any(self.throughput.limited(one.target.table) for one in items):
            rehearsed, after = self._rehearse(original, request, items, before)
            if not was_charged(rehearsed):
                return rehearsed, []
            self.check(self._charges(items, before, after))
        return self.carry_out(original, request, items)

    def carry_out(self, original: Handler, request: Request, items: list[Addressed]) -> tuple[Answer, Metering]:
        """Carries out a request that writes to these items, whatever the capacity."""
        before = [one.target.item() for one in items]
        answer = original(request)
        if not was_charged(answer):
            return answer, []
        return answer, self.spend(self._charges(items, before, [one.target.item() for one in items]))

    def _rehearse(
        self, original: Handler, request: Request, items: list[Addressed], before: list[Item | None]
    ) -> tuple[Answer, list[Item | None]]:
        # A token would make the performance a mere replay of the rehearsal.
        untokened = {name: value for name, value in request.items() if name != "ClientRequestToken"}
        with self.writes.rehearsal() as effects:
            answer = original(untokened)
        planned = [effects.get(one.target.address, old) for one, old in zip(items, before, strict=True)]
        return answer, planned

    def _charges(self, items: list[Addressed], before: list[Item | None], after: list[Item | None]) -> Metering:
        return [
            Metered(name, target, write_charge(target.table, old, new, self._transactional))
            for (name, target), old, new in zip(items, before, after, strict=True)
        ]

    def check(self, metering: Metering) -> None:
        """Raises ServiceError if a bucket that is drawn on is empty."""
        for target, charge in by_table(metering).values():
            self.throughput.check(target.table, charge)

    def spend(self, metering: Metering) -> Metering:
        """Draws what was consumed from the buckets; returns it."""
        for target, charge in by_table(metering).values():
            self.throughput.spend(target.table, charge)
            self._count(target.table["TableName"], charge)
        if self._collected is not None:
            self._collected += metering
        return metering

    def _count(self, name: str, charge: Charge) -> None:
        table_units = charge.table_units + sum(charge.local_units.values())
        if table_units:
            self._stats.units(name, charge.kind, table_units)
        for index, units in charge.global_units.items():
            self._stats.units(f"{name}/index/{index}", charge.kind, units)

    def admit(self, wanted: list[tuple[_Batched, Metered]]) -> tuple[list[_Batched], list[_Batched]]:
        """What of a batch the buckets admit, and what is left. Raises ServiceError when nothing is admitted."""
        admitted: list[_Batched] = []
        left: list[_Batched] = []
        pending: dict[str, Charge] = {}
        refused: ServiceError | None = None
        for one, (name, target, charge) in wanted:
            drawn = pending.get(name)
            try:
                self.throughput.check(target.table, charge, drawn)
            except ServiceError as error:
                refused = error
                left.append(one)
                continue
            pending[name] = charge if drawn is None else drawn + charge
            admitted.append(one)
        if refused and not admitted:
            raise refused
        return admitted, left


def was_charged(answer: Answer) -> bool:
    """Whether a request got so far that it costs something."""
    return answer[0] == 200 or any(code in answer[2] for code in _CHARGED_ERRORS)


def by_table(metering: Metering) -> dict[str, tuple[Target, Charge]]:
    """Charges added up by the names the request used."""
    totals: dict[str, tuple[Target, Charge]] = {}
    for name, target, charge in metering:
        totals[name] = (target, totals[name][1] + charge if name in totals else charge)
    return totals


def consumed(request: Request, metering: Metering) -> dict[str, Any]:
    """The ConsumedCapacity member of a request on one table; nothing unless it was asked for."""
    several = consumed_by_table(request, metering)
    return {"ConsumedCapacity": several["ConsumedCapacity"][0]} if several else {}


def consumed_by_table(request: Request, metering: Metering) -> dict[str, Any]:
    """The ConsumedCapacity member of a request on several tables; nothing unless it was asked for."""
    wanted = request.get("ReturnConsumedCapacity", "NONE")
    if wanted == "NONE" or not metering:
        return {}
    totals = by_table(metering).items()
    return {"ConsumedCapacity": [charge.to_json(name, wanted == "INDEXES") for name, (_, charge) in totals]}


def with_members(answer: Answer, members: dict[str, Any]) -> Answer:
    """A successful answer with members added or replaced; any other as it is."""
    status, headers, body = answer
    if status != 200 or not members:
        return answer
    return status, headers, json.dumps({**json.loads(body), **members}, ensure_ascii=False).encode()
