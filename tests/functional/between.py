"""What happens between the engine and DynamoDB: small pages, other writers, lost answers, refusals, sudden death.

Stands at the one-method seam of `bulkexec.wire.Wire`, around the real wire to the sandbox.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bulkexec.wire import Answering, Fault, Wire

DENIED = "User: arn:aws:sts::111122223333:assumed-role/r/x is not authorized to perform: dynamodb:{} on resource: t"


class Died(BaseException):
    """The process is no more."""


@dataclass
class Trouble:
    """The request number `at` of a run has this trouble; nothing else does, but after a death nothing works."""

    kind: str = ""
    at: int = 0
    seen: int = 0
    dead: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> str:
        with self.lock:
            if self.dead:
                raise Died
            mine, self.seen = self.seen == self.at, self.seen + 1
            self.dead = mine and self.kind == "died before"
            return self.kind if mine else ""


@dataclass
class Between:
    """A wire around a wire. `on_read` are called once each, by key, when their item was read."""

    wire: Wire
    trouble: Trouble
    page_items: int | None
    on_read: dict[Any, Callable[[], None]]
    key_of: Callable[[Mapping[str, Any]], Any]

    def call(self, operation: str, body: bytes) -> bytes:
        """See `Wire.call`."""
        return self.begin(operation, body)()

    def begin(self, operation: str, body: bytes) -> Answering:
        """See `Wire.begin`."""
        kind = self.trouble.next()
        if kind == "died before":
            raise Died
        if kind == "denied":
            return partial(_refused, Fault("AccessDeniedException", DENIED.format(operation)))
        if kind == "throttled":
            return partial(_refused, Fault("ProvisionedThroughputExceededException", "slower"))
        return partial(self._end, kind, operation, self.wire.begin(operation, self._small(operation, body)))

    def _end(self, kind: str, operation: str, receive: Answering) -> bytes:
        answer = receive()
        if kind == "lost":
            raise Fault("ConnectionLost", "reset by peer")
        if kind == "died after":
            with self.trouble.lock:
                self.trouble.dead = True
            raise Died
        if operation in ("Scan", "Query", "BatchGetItem"):
            self._others(json.loads(answer))
        return answer

    def _small(self, operation: str, body: bytes) -> bytes:
        if self.page_items is None or operation not in ("Scan", "Query"):
            return body
        request = json.loads(body)
        return json.dumps(request | {"Limit": min(request.get("Limit", self.page_items), self.page_items)}).encode()

    def _others(self, answer: dict[str, Any]) -> None:
        items = answer.get("Items") or [item for each in answer.get("Responses", {}).values() for item in each]
        for item in items:
            with self.trouble.lock:
                act = self.on_read.pop(self.key_of(item), None)
            if act is not None:
                act()


def _refused(fault: Fault) -> bytes:
    raise fault
