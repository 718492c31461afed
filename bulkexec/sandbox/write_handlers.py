"""PutItem, UpdateItem, DeleteItem, BatchWriteItem and TransactWriteItems, metered."""

from typing import Any, NamedTuple

from bulkexec.sandbox.capacity import Item, write_charge
from bulkexec.sandbox.emulated_dynamodb import Answer, Target, table_of, target_of
from bulkexec.sandbox.metering import (
    Addressed,
    Handler,
    Meter,
    Metered,
    Request,
    consumed,
    consumed_by_table,
    with_members,
)
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.update_expressions import UpdateExpression


class WriteRequest(NamedTuple):
    """One request of a BatchWriteItem."""

    name: str
    request: dict[str, Any]
    target: Target

    @property
    def addressed(self) -> Addressed:
        """The item it is about."""
        return Addressed(self.name, self.target)

    @property
    def item(self) -> Item | None:
        """What is to be there afterwards."""
        put: Item | None = self.request.get("PutRequest", {}).get("Item")
        return put


class WriteHandlers:
    """Handlers by operation."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def put(self, original: Handler, request: Request) -> Answer:
        """PutItem."""
        return self._single(original, request, request.get("Item"))

    def delete(self, original: Handler, request: Request) -> Answer:
        """DeleteItem."""
        return self._single(original, request, request.get("Key"))

    def update(self, original: Handler, request: Request) -> Answer:
        """UpdateItem. One that only removes makes no item where there is none, though the emulator would."""
        text = request.get("UpdateExpression", "")
        if text.strip() and _update_of(request).removes_only and _is_absent(request):
            return self._single(self._without_effect(original), request, request["Key"])
        return self._single(original, request, request.get("Key"))

    def _without_effect(self, original: Handler) -> Handler:
        def checked(request: Request) -> Answer:
            with self._meter.writes.rehearsal():
                return original({**request, "ReturnValues": "NONE"})

        return checked

    def _single(self, original: Handler, request: Request, keys: Any) -> Answer:
        item = _addressed(request.get("TableName"), keys)
        if item is None:
            return original(request)
        answer, metering = self._meter.write(original, request, [item])
        return with_members(answer, consumed(request, metering))

    def batch(self, original: Handler, request: Request) -> Answer:
        """BatchWriteItem: what the capacity does not admit comes back unprocessed."""
        requests = _write_requests(request)
        if requests is None:
            return original(request)
        if not any(self._meter.throughput.limited(one.target.table) for one in requests):
            answer, metering = self._meter.carry_out(original, request, [one.addressed for one in requests])
            return with_members(answer, consumed_by_table(request, metering))
        with self._meter.writes.rehearsal():
            rehearsed = original(request)
        if rehearsed[0] != 200:
            return rehearsed
        return self._admitted(original, request, requests)

    def _admitted(self, original: Handler, request: Request, requests: list[WriteRequest]) -> Answer:
        admitted, left = self._meter.admit([(one, _planned(one)) for one in requests])
        part = {**request, "RequestItems": _grouped(admitted)}
        answer, metering = self._meter.carry_out(original, part, [one.addressed for one in admitted])
        return with_members(answer, {"UnprocessedItems": _grouped(left), **consumed_by_table(request, metering)})

    def transaction(self, original: Handler, request: Request) -> Answer:
        """TransactWriteItems."""
        items = _transacted(request)
        if items is None:
            return original(request)
        try:
            with self._meter.collecting(transactional=True):
                answer, metering = self._meter.write(original, request, items)
        except ServiceError as error:
            raise cancelled(error, len(items)) from error
        return with_members(answer, consumed_by_table(request, metering))


def _update_of(request: Request) -> UpdateExpression:
    values, names = request.get("ExpressionAttributeValues") or {}, request.get("ExpressionAttributeNames") or {}
    try:
        return UpdateExpression(request["UpdateExpression"], values, names)
    except ValueError as error:
        raise ServiceError("ValidationException", str(error)) from error


def _is_absent(request: Request) -> bool:
    item = _addressed(request.get("TableName"), request.get("Key"))
    return item is not None and item.target.item() is None


def _addressed(name: Any, keys: Any) -> Addressed | None:
    table = table_of(name)
    target = table and target_of(table, keys)
    return Addressed(name, target) if target else None


def _write_requests(request: Request) -> list[WriteRequest] | None:
    """The requests of a batch; None if one is malformed or names no table."""
    found = []
    for name, requests in (request.get("RequestItems") or {}).items():
        for one in requests:
            if len(one) != 1:
                message = "Supplied WriteRequest must contain exactly one of PutRequest or DeleteRequest"
                raise ServiceError("ValidationException", message)
            keys = one["PutRequest"]["Item"] if "PutRequest" in one else one["DeleteRequest"]["Key"]
            item = _addressed(name, keys)
            if item is None:
                return None
            found.append(WriteRequest(name, one, item.target))
    return found


def _planned(one: WriteRequest) -> Metered:
    return Metered(one.name, one.target, write_charge(one.target.table, one.target.item(), one.item))


def _grouped(requests: list[WriteRequest]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for one in requests:
        grouped.setdefault(one.name, []).append(one.request)
    return grouped


def _transacted(request: Request) -> list[Addressed] | None:
    """The items of a transaction; None if one is malformed or names no table."""
    found = []
    for action in request.get("TransactItems") or []:
        ((kind, members),) = action.items()
        item = _addressed(members.get("TableName"), members.get("Item" if kind == "Put" else "Key"))
        if item is None:
            return None
        found.append(item)
    return found


def cancelled(error: ServiceError, actions: int) -> ServiceError:
    """A transaction that is throttled is cancelled, with the throttling as the reason of each of its actions."""
    code = "ThrottlingError" if error.code == "ThrottlingException" else error.code.removesuffix("Exception")
    reasons = [{"Code": code, "Message": error.message}] * actions
    listed = ", ".join(code for _ in reasons)
    message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{listed}]"
    return ServiceError("TransactionCanceledException", message, 400, {"CancellationReasons": reasons})
