"""A wire that answers from a script, and what scripts are made of."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import botocore.session
import msgspec
from botocore.validate import ParamValidator

from bulkexec.model import Expression, KeyAttribute, Scope, Statement, Table, Work
from bulkexec.wire import Answering, Fault, Refusals, Retry, Retrying
from bulkexec.writer import Writer

KEYS = (KeyAttribute("key", "S"), KeyAttribute('so"rt', "B"))
TABLE = Table("orders", "arn:orders", "eu-west-1", "1", KEYS, "ACTIVE", 10, 5000, "on-demand")
FILTER = Expression("#n0 = :v0", {"#n0": "hash"}, {":v0": {"B": "AP8="}})
PINNED = Expression("#k0 = :k0", {"#k0": "key"}, {":k0": {"S": "a"}})
GUARD = Statement('"hash" = ?', ({"B": "AP8="},))
PLAIN = Work(Scope(TABLE))
GUARDED = Work(Scope(TABLE, filter=FILTER, guard=FILTER, guard_statement=GUARD), guarded=True)
MODEL = botocore.session.get_session().get_service_model("dynamodb")
THROTTLED = {"Error": {"Code": "ProvisionedThroughputExceeded", "Message": "slow"}}
REFUSED = {"Error": {"Code": "ConditionalCheckFailed", "Message": "changed"}}

Request = tuple[str, dict[str, Any]]
Script = dict[str, Any] | Fault | Callable[[dict[str, Any]], Any]


class ScriptedWire:
    """Stands at the seam: holds each request against the service model, then gives the next scripted answer."""

    def __init__(self, *answers: Script) -> None:
        self.answers, self.asked = list(answers), []  # type: tuple[list[Script], list[Request]]

    def begin(self, operation: str, body: bytes) -> Answering:
        return partial(self.call, operation, body)

    def call(self, operation: str, body: bytes) -> bytes:
        request = msgspec.json.decode(body)
        report = ParamValidator().validate(request, MODEL.operation_model(operation).input_shape)
        assert not report.has_errors(), report.generate_report()
        self.asked.append((operation, request))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Fault):
            raise Fault(answer.code, answer.message, status=answer.status)
        return msgspec.json.encode(answer)

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.asked]


def calls(wire: ScriptedWire, deadline_seconds: float = 60.0) -> Retrying:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Retrying(
        wire, Refusals("orders", "eu-west-1"), Retry(deadline_seconds, lambda: now[0], sleep, random.Random(1))
    )


def writer(wire: ScriptedWire, work: Work, sequential: bool = False) -> Writer:
    through = calls(wire)
    return Writer(through, work, sequential, through.retry)


def key(number: int) -> dict[str, Any]:
    return {"key": {"S": f"ä{number}"}, 'so"rt': {"B": "AP8="}}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def decoded(raws: list[msgspec.Raw]) -> list[Any]:
    return [msgspec.json.decode(raw) for raw in raws]


def capacity(units: float) -> list[dict[str, Any]]:
    return [{"TableName": "orders", "CapacityUnits": units}]


def unprocessed(keep: int, units: float = 1.0) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Acknowledge all but the last `keep` requests."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        left = request["RequestItems"]["orders"][-keep:] if keep else []
        return {"UnprocessedItems": {"orders": left} if left else {}, "ConsumedCapacity": capacity(units)}

    return answer


def responses(*each: dict[str, Any], units: float = 1.0) -> dict[str, Any]:
    return {"Responses": list(each), "ConsumedCapacity": capacity(units)}


def there(*items: dict[str, Any]) -> dict[str, Any]:
    return {"Responses": {"orders": list(items)}, "UnprocessedKeys": {}}
