"""Faults on order: which request is to fail, and how. Deterministic by seed."""

import json
import random
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from bulkexec.sandbox.asgi import Request
from bulkexec.sandbox.service import ServiceError

Kind = Literal["error", "http500", "reset", "delay", "lost_answer", "expired_token", "cut"]


@dataclass(frozen=True)
class FaultRule:
    """Which requests fail and how.

    A request matches by `service`, `operation` (empty: any) and by `match`, members its JSON body must have.
    Of the matching ones the first `after` pass, then each fails with `probability` until `count` have failed (0:
    without end). `code`, `status` and `message` are for kind `error`; `delay_seconds` for `delay` and for `cut`, which
    resets the connection so long into the answer (Live Tail).
    """

    kind: Kind
    service: str = ""
    operation: str = ""
    code: str = "InternalServerError"
    status: int = 400
    message: str = "injected by the sandbox"
    probability: float = 1.0
    count: int = 0
    after: int = 0
    delay_seconds: float = 0.0
    match: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None

    @classmethod
    def from_json(cls, members: dict[str, Any]) -> "FaultRule":
        """A rule from its JSON form. Raises ServiceError on an unknown member or kind."""
        unknown = set(members) - set(cls.__dataclass_fields__)
        if unknown or members.get("kind") not in get_args(Kind):
            raise ServiceError("BadFaultRule", f"unknown members {sorted(unknown)} or kind {members.get('kind')!r}")
        return cls(**members)

    def error(self, request: Request) -> ServiceError:
        """What an `error`, `http500` or `expired_token` answers to a request."""
        if self.kind == "expired_token":
            code = "ExpiredTokenException" if request.target else "ExpiredToken"
            return ServiceError(code, "The security token included in the request is expired")
        if self.kind == "http500":
            return ServiceError("InternalServerError", "The request processing has failed on the server.", 500)
        return ServiceError(self.code, self.message, self.status)


class _Armed:
    """A rule with what has happened to it so far."""

    def __init__(self, number: int, rule: FaultRule, default_seed: int) -> None:
        self.number, self.rule = number, rule
        seed = default_seed if rule.seed is None else rule.seed
        self._random = random.Random(f"{seed}/{rule.service}/{rule.operation}/{rule.kind}")
        self.seen = 0
        self.fired = 0

    def strikes(self, request: Request) -> bool:
        """Whether this request is to fail; counts it."""
        if not self._matches(request):
            return False
        self.seen += 1
        exhausted = self.rule.count and self.fired >= self.rule.count
        if self.seen <= self.rule.after or exhausted or self._random.random() >= self.rule.probability:
            return False
        self.fired += 1
        return True

    def _matches(self, request: Request) -> bool:
        rule = self.rule
        named = rule.service in ("", request.service) and rule.operation in ("", request.operation)
        return named and (not rule.match or _has_members(request.body, rule.match))


def _has_members(body: bytes, wanted: dict[str, Any]) -> bool:
    try:
        members = json.loads(body)
    except ValueError:
        return False
    return isinstance(members, dict) and all(members.get(name) == value for name, value in wanted.items())


class Faults:
    """The rules in force, in the order they came. The first that strikes decides."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._armed: list[_Armed] = []
        self._next = 1

    def add(self, rule: FaultRule) -> int:
        """Puts a rule in force; returns its number."""
        armed = _Armed(self._next, rule, self._seed)
        self._armed.append(armed)
        self._next += 1
        return armed.number

    def remove(self, number: int | None = None) -> None:
        """Takes one rule out of force, or all."""
        self._armed = [armed for armed in self._armed if number is not None and armed.number != number]

    def listed(self) -> list[dict[str, Any]]:
        """All rules, with how many requests each has matched and failed."""
        return [{"id": a.number, **asdict(a.rule), "seen": a.seen, "fired": a.fired} for a in self._armed]

    def strike(self, request: Request) -> FaultRule | None:
        """The rule this request falls to, if any."""
        return next((armed.rule for armed in self._armed if armed.strikes(request)), None)
