"""Where a fleet keeps its shared virtual clock: one item for each budget, in the control table or in memory.

`tat` (theoretical arrival time, as in GCRA) is the moment up to which units have been handed out. Whoever moves it
forward by some seconds has leased that slice of time, and may spend `seconds * rate` units from its beginning on.
So no slice is handed out twice, whatever the number of workers.

The clock is the fleet's own, not that of any host: it starts at 0 when the item is made, whoever leases stamps the item
with it, and a worker that comes later starts from the stamp. It stands still while nobody leases. So it does not
matter how far apart the hosts' clocks are.
"""

import threading
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, NamedTuple, Protocol

import botocore.exceptions
from botocore.config import Config

from bulkexec import errors
from bulkexec.describe import user_errors
from bulkexec.rate import BACK_OFF_SECONDS, RECOVERY_PER_SECOND, Kind, checked_rate
from bulkexec.wire import EXPIRED_CODES, THROTTLE_CODES, TRANSIENT_CODES

AHEAD_SECONDS: Final = 0.03
"""A slice is leased at most so long before it may be spent, so that a change of rate acts at once."""

BEHIND_SECONDS: Final = 0.02
"""Time that nobody leased is given up when it is older than this."""

STALE_SECONDS: Final = 0.25
"""How far behind a lease may still begin, for a worker that did not know; what is too old of it is not spent."""

LAG_SECONDS: Final = 0.02
"""A worker whose clock shows so much less than the last stamp has to set it first."""

NEVER: Final = -1e9

LEASE_CLIENT: Final = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1})
RECORD_DAYS: Final = 30
SET_RATE_TRIES: Final = 20


class LeaseStoreDown(Exception):
    """The store does not answer for now. A lease asked for may or may not have been handed out; it is not spent."""


@dataclass(frozen=True)
class Shared:
    """What all workers share: seconds on the fleet's clock, and units a second.

    `ceiling` is what was asked for, 0 pauses. `slowed` is what throttling at `throttled_at` left of it. `stamp` is what
    the fleet's clock showed at the last lease.
    """

    ceiling: float
    tat: float = 0.0
    slowed: float = inf
    throttled_at: float = NEVER
    stamp: float = 0.0

    def rate(self, now: float) -> float:
        """Units a second: after one quiet second throttling wears off by 5 % of the ceiling each second."""
        quiet_seconds = max(0.0, now - self.throttled_at - BACK_OFF_SECONDS)
        return min(self.ceiling, self.slowed + quiet_seconds * RECOVERY_PER_SECOND * self.ceiling)

    def leased(self, seconds: float, now: float, behind: bool) -> "Shared | None":
        """After a lease; None when `tat` is not where the lessee believes, or too far ahead, or its clock lags."""
        if self.stamp > now + LAG_SECONDS:
            return None
        if behind:
            return replace(self, tat=now + seconds, stamp=now) if self.tat < now - BEHIND_SECONDS else None
        due = now - STALE_SECONDS <= self.tat <= now + AHEAD_SECONDS
        return replace(self, tat=self.tat + seconds, stamp=now) if due else None

    def rescaled(self, ceiling: float) -> "Shared":
        """With another ceiling: units that were owed at the last lease take their time at the new rate."""
        now = self.stamp
        old, owed_seconds = self.rate(now), self.tat - now
        after = replace(self, ceiling=ceiling)
        if owed_seconds <= AHEAD_SECONDS or old <= 0 or after.rate(now) <= 0:
            return after
        return replace(after, tat=now + owed_seconds * old / after.rate(now))


class Leased(NamedTuple):
    """Whether a lease was granted, and what is shared after it. It begins `seconds` before `shared.tat`."""

    granted: bool
    shared: Shared


class LeaseStore(Protocol):
    """One budget's shared clock. Every method raises `LeaseStoreDown` when it should be tried again later."""

    def open(self, ceiling: float) -> None:
        """Begin a run at this rate. What a former run still owes stays owed."""

    def read(self) -> Shared:
        """What is shared now."""

    def lease(self, seconds: float, now: float, behind: bool) -> Leased:
        """Take the next slice of time. `behind`: it begins now, because older time was left unused."""

    def slow(self, rate: float, now: float) -> Shared:
        """Lower everybody's rate, unless somebody did so within the last second."""

    def set_ceiling(self, ceiling: float) -> Shared:
        """Change the rate that was asked for; 0 pauses."""


class MemoryLeaseStore:
    """In this process: for the local runtime, and for simulations. Thread-safe."""

    def __init__(self, ceiling: float) -> None:
        self._lock, self._shared = threading.Lock(), Shared(checked_rate(ceiling))

    def open(self, ceiling: float) -> None:
        """See `LeaseStore.open`."""
        with self._lock:
            self._shared = replace(self._shared, ceiling=checked_rate(ceiling), slowed=inf, throttled_at=NEVER)

    def read(self) -> Shared:
        """See `LeaseStore.read`."""
        return self._shared

    def lease(self, seconds: float, now: float, behind: bool) -> Leased:
        """See `LeaseStore.lease`."""
        with self._lock:
            after = self._shared.leased(seconds, now, behind)
            self._shared = after or self._shared
            return Leased(after is not None, self._shared)

    def slow(self, rate: float, now: float) -> Shared:
        """See `LeaseStore.slow`."""
        with self._lock:
            if self._shared.throttled_at <= now - BACK_OFF_SECONDS:
                self._shared = replace(self._shared, slowed=rate, throttled_at=now)
            return self._shared

    def set_ceiling(self, ceiling: float) -> Shared:
        """See `LeaseStore.set_ceiling`."""
        with self._lock:
            self._shared = self._shared.rescaled(checked_rate(ceiling))
            return self._shared


@dataclass(frozen=True)
class ControlTableLeaseStore:
    """An item of the control table: `pk = job#<id>`, `sk = rate#<table or index>#read|write`.

    `client` is a DynamoDB client made with `LEASE_CLIENT`; `resource` is the table's name, or `<table>/index/<name>`.
    """

    client: Any
    control_table: str
    job_id: str
    resource: str
    kind: Kind

    def open(self, ceiling: float) -> None:
        """See `LeaseStore.open`."""
        values = {":c": _number(checked_rate(ceiling)), ":z": _number(0.0), ":e": _expiry()}
        changes = "SET ceiling = :c, tat = if_not_exists(tat, :z), stamp = if_not_exists(stamp, :z), expires_at = :e"
        self._update(f"{changes} REMOVE slowed, throttled_at", values)

    def read(self) -> Shared:
        """See `LeaseStore.read`."""
        with _down():
            answer = self.client.get_item(TableName=self.control_table, Key=self._key, ConsistentRead=True)
        return self._shared(answer.get("Item"))

    def lease(self, seconds: float, now: float, behind: bool) -> Leased:
        """See `LeaseStore.lease`. DynamoDB adds decimal numbers exactly, so the clock does not drift."""
        if behind:
            forward = {":n": now, ":t": now + seconds, ":o": now - BEHIND_SECONDS, ":l": now + LAG_SECONDS}
            return self._update("SET tat = :t, stamp = :n", _numbers(forward), "tat < :o AND stamp <= :l")
        window = {":o": now - STALE_SECONDS, ":f": now + AHEAD_SECONDS, ":l": now + LAG_SECONDS}
        values = _numbers({":n": now, ":s": seconds, **window})
        return self._update("SET stamp = :n ADD tat :s", values, "(tat BETWEEN :o AND :f) AND stamp <= :l")

    def slow(self, rate: float, now: float) -> Shared:
        """See `LeaseStore.slow`."""
        values = {":r": _number(rate), ":n": _number(now), ":o": _number(now - BACK_OFF_SECONDS)}
        condition = "attribute_exists(pk) AND (attribute_not_exists(throttled_at) OR throttled_at <= :o)"
        return self._update("SET slowed = :r, throttled_at = :n", values, condition).shared

    def set_ceiling(self, ceiling: float) -> Shared:
        """See `LeaseStore.set_ceiling`. Raises `errors.UnknownJob` when the job has no such budget."""
        for _ in range(SET_RATE_TRIES):
            before = self.read()
            after = before.rescaled(checked_rate(ceiling))
            if after.tat == before.tat:
                return self._update("SET ceiling = :c", {":c": _number(ceiling)}, "attribute_exists(pk)").shared
            values = {":c": _number(ceiling), ":t": _number(after.tat), ":b": _number(before.tat)}
            if (done := self._update("SET ceiling = :c, tat = :t", values, "tat = :b")).granted:
                return done.shared
        raise LeaseStoreDown("the clock moved whenever the rate was to be changed")

    @property
    def _key(self) -> dict[str, dict[str, str]]:
        return {"pk": {"S": f"job#{self.job_id}"}, "sk": {"S": f"{RATE_PREFIX}{self.resource}#{self.kind}"}}

    def _update(self, changes: str, values: dict[str, Any], condition: str = "") -> Leased:
        conditions = {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        try:
            with _down():
                answer = self.client.update_item(
                    TableName=self.control_table,
                    Key=self._key,
                    UpdateExpression=changes,
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW",
                    **(conditions if condition else {}),
                )
        except self.client.exceptions.ConditionalCheckFailedException as error:
            return Leased(False, self._shared(error.response.get("Item")))
        return Leased(True, self._shared(answer["Attributes"]))

    def _shared(self, item: dict[str, Any] | None) -> Shared:
        if not item:
            raise errors.UnknownJob(f"job {self.job_id} has no {self.kind} rate for {self.resource}")
        return _decoded(item)


RATE_PREFIX: Final = "rate#"


def job_rates(client: Any, control_table: str, job_id: str) -> dict[tuple[str, Kind], Shared]:
    """Every budget of a job, by (table or index, "read" or "write"); empty when it has none."""
    with user_errors(f"read the rates of job {job_id}"):
        answer = client.query(
            TableName=control_table,
            KeyConditionExpression="pk = :pk AND begins_with(sk, :sk)",
            ExpressionAttributeValues={":pk": {"S": f"job#{job_id}"}, ":sk": {"S": RATE_PREFIX}},
            ConsistentRead=True,
        )
    return {_budget_name(item["sk"]["S"]): _decoded(item) for item in answer["Items"]}


def _budget_name(sort_key: str) -> tuple[str, Kind]:
    resource, _, kind = sort_key.removeprefix(RATE_PREFIX).rpartition("#")
    return resource, "read" if kind == "read" else "write"


def _decoded(item: dict[str, Any]) -> Shared:
    fields = ("ceiling", "tat", "slowed", "throttled_at", "stamp")
    return Shared(**{name: float(item[name]["N"]) for name in fields if name in item})


def _number(value: float) -> dict[str, str]:
    """Microseconds, and millionths of a unit."""
    return {"N": f"{value:.6f}"}


def _numbers(values: dict[str, float]) -> dict[str, dict[str, str]]:
    return {name: _number(value) for name, value in values.items()}


def _expiry() -> dict[str, str]:
    import time

    return {"N": str(int(time.time()) + RECORD_DAYS * 86_400)}


class _down:  # noqa: N801 - reads as a word at the with statement
    """Tells answers that a later attempt may mend (as `LeaseStoreDown`) from those that a user must mend."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, botocore.exceptions.ClientError):
            self._of_client(error)
        if isinstance(error, botocore.exceptions.HTTPClientError | botocore.exceptions.ConnectionError):
            raise LeaseStoreDown(str(error)) from error

    def _of_client(self, error: botocore.exceptions.ClientError) -> None:
        code = error.response["Error"].get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in THROTTLE_CODES | TRANSIENT_CODES | EXPIRED_CODES or status >= 500:
            raise LeaseStoreDown(f"{code}: {error}") from error
        if code != "ConditionalCheckFailedException":
            with user_errors("lease units in the control table"):
                raise error
