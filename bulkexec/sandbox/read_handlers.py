"""GetItem, BatchGetItem, TransactGetItems, Query and Scan, metered."""

from typing import Any, NamedTuple

import ministack.services.dynamodb as emulated
import msgspec

from bulkexec.sandbox.capacity import Charge, Item, Record, index_entry, read_units
from bulkexec.sandbox.emulated_dynamodb import Answer, Shelves, Target, emptied, table_of, target_of
from bulkexec.sandbox.expressions import check_expressions
from bulkexec.sandbox.metering import Handler, Meter, Metered, Request, consumed, consumed_by_table, with_members
from bulkexec.sandbox.scan import read_charge, scan
from bulkexec.sandbox.sizes import size_of

MOST_BATCH_GET_BYTES = 16 * 1024 * 1024


class KeyRequest(NamedTuple):
    """One key of a BatchGetItem or TransactGetItems."""

    name: str
    key: dict[str, Any]
    target: Target
    consistent: bool

    def metered(self, factor: int = 1) -> Metered:
        """What reading it costs."""
        units = factor * read_units(size_of(self.target.item()), self.consistent)
        return Metered(self.name, self.target, Charge("read", units, transactional=factor > 1))


class ReadHandlers:
    """Handlers by operation."""

    def __init__(self, meter: Meter, shelves: Shelves) -> None:
        self._meter, self._shelves = meter, shelves
        self._evaluated: list[Item] = []
        self._paginate = emulated._paginate_evaluated_items
        emulated._paginate_evaluated_items = self._note_evaluated

    def _note_evaluated(self, *arguments: Any, **options: Any) -> tuple[list[Item], bool]:
        """Stands in for the emulator's pagination to learn which items a Query evaluated."""
        page: tuple[list[Item], bool] = self._paginate(*arguments, **options)
        self._evaluated = page[0]
        return page

    def get(self, original: Handler, request: Request) -> Answer:
        """GetItem."""
        wanted = _key_request(request.get("TableName"), request.get("Key"), request)
        if wanted is None:
            return original(request)
        return self._read(original, request, [wanted.metered()], consumed)

    def transaction(self, original: Handler, request: Request) -> Answer:
        """TransactGetItems: twice the price of strongly consistent reads."""
        wanted = []
        for action in request.get("TransactItems") or []:
            get = action["Get"]
            one = _key_request(get.get("TableName"), get.get("Key"), {"ConsistentRead": True})
            if one is None:
                return original(request)
            wanted.append(one)
        return self._read(original, request, [one.metered(factor=2) for one in wanted], consumed_by_table)

    def _read(self, original: Handler, request: Request, metering: list[Metered], shape: Any) -> Answer:
        answer = original(request)
        if answer[0] != 200:
            return answer
        self._meter.check(metering)
        return with_members(answer, shape(request, self._meter.spend(metering)))

    def batch(self, original: Handler, request: Request) -> Answer:
        """BatchGetItem: what the capacity or 16 MB do not admit comes back unprocessed."""
        checked = original(request)
        if checked[0] != 200:
            return checked
        items = request["RequestItems"]
        wanted = [
            KeyRequest(name, key, target, bool(config.get("ConsistentRead")))
            for name, config in items.items()
            for key in config["Keys"]
            if (table := table_of(name)) and (target := target_of(table, key))
        ]
        admitted, left = self._meter.admit([(one, one.metered()) for one in wanted])
        fitting = _fitting(admitted)
        answer = original({**request, "RequestItems": _with_keys(items, fitting)})
        metering = self._meter.spend([one.metered() for one in fitting])
        unprocessed = _with_keys(items, admitted[len(fitting) :] + left)
        return with_members(answer, {"UnprocessedKeys": unprocessed, **consumed_by_table(request, metering)})

    def query(self, original: Handler, request: Request) -> Answer:
        """Query: the sizes of the items evaluated, rounded once."""
        table = table_of(request.get("TableName"))
        if table is None:
            return original(request)
        self._evaluated = []
        answer = original(request)
        if answer[0] != 200:
            return answer
        check_expressions(request, table)
        index = emulated._index_def(table, request["IndexName"]) if "IndexName" in request else None
        entries = [index_entry(table, index, item) if index else item for item in self._evaluated]
        size_bytes = sum(size_of(entry) for entry in entries)
        return with_members(answer, self._pay(table, index, request, size_bytes))

    def scan(self, original: Handler, request: Request) -> Answer:
        """Scan: the emulator checks the request on an empty table, the shelf answers it."""
        table = table_of(request.get("TableName"))
        if table is None:
            return original(request)
        with emptied(table):
            checked = original(request)
        if checked[0] != 200:
            return checked
        check_expressions(request, table)
        page, index = scan(table, self._shelves, request)
        members = page.body(table, index, request.get("Select") == "COUNT")
        members |= self._pay(table, index, request, page.size_bytes)
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, msgspec.json.encode(members)

    def _pay(self, table: Record, index: Record | None, request: Request, size_bytes: int) -> dict[str, Any]:
        charge = read_charge(size_bytes, bool(request.get("ConsistentRead")), index)
        metering = [Metered(request["TableName"], Target(table, "", ""), charge)]
        self._meter.check(metering)
        return consumed(request, self._meter.spend(metering))


def _key_request(name: Any, key: Any, request: Request) -> KeyRequest | None:
    table = table_of(name)
    target = table and target_of(table, key)
    return KeyRequest(name, key, target, bool(request.get("ConsistentRead"))) if target else None


def _fitting(requests: list[KeyRequest]) -> list[KeyRequest]:
    """As many from the front as an answer can hold."""
    size_bytes = 0
    for position, one in enumerate(requests):
        size_bytes += size_of(one.target.item())
        if size_bytes > MOST_BATCH_GET_BYTES and position:
            return requests[:position]
    return requests


def _with_keys(items: dict[str, dict[str, Any]], requests: list[KeyRequest]) -> dict[str, dict[str, Any]]:
    """The request's tables with those keys only; tables without keys are left out."""
    keys: dict[str, list[dict[str, Any]]] = {}
    for one in requests:
        keys.setdefault(one.name, []).append(one.key)
    return {name: {**config, "Keys": keys[name]} for name, config in items.items() if name in keys}
