"""Capacity that runs out: a token bucket for every table and index that has a limit, and what a throttled call gets."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bulkexec.sandbox.capacity import Charge, Kind, Record
from bulkexec.sandbox.service import ServiceError

_UNIT_NAMES = {
    "read": ("ReadCapacityUnits", "MaxReadRequestUnits"),
    "write": ("WriteCapacityUnits", "MaxWriteRequestUnits"),
}

_PROVISIONED_MESSAGE = (
    "The level of configured provisioned throughput for the table was exceeded. "
    "Consider increasing your provisioning level with the UpdateTable API."
)
_ON_DEMAND_MESSAGE = "Throughput exceeds the maximum OnDemandThroughput configured on table or index"


@dataclass(frozen=True)
class Limit:
    """Units a second that a table or an index may consume, and where that is configured."""

    arn: str
    table_id: str
    kind: Kind
    units_a_second: float
    provisioned: bool
    index: bool

    @property
    def key(self) -> tuple[str, str, Kind]:
        """Names its bucket; a table that is made anew under an old name gets a new one."""
        return self.table_id, self.arn, self.kind

    @property
    def reason(self) -> dict[str, str]:
        """The ThrottlingReason of exceeding it."""
        what = "ProvisionedThroughputExceeded" if self.provisioned else "MaxOnDemandThroughputExceeded"
        resource = "Index" if self.index else "Table"
        return {"reason": f"{resource}{self.kind.capitalize()}{what}", "resource": self.arn}


@dataclass
class _Bucket:
    level_units: float
    filled_at: float


class Throughput:
    """Buckets of all tables. A request is admitted while its buckets hold anything and may then overdraw them.

    A full bucket holds `burst_seconds` of units; a new one starts with what one second gives. `clock` counts seconds.
    """

    def __init__(self, burst_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst_seconds, self._clock = burst_seconds, clock
        self._buckets: dict[tuple[str, str, Kind], _Bucket] = {}

    def limited(self, table: Record) -> bool:
        """Whether anything of this table has a limit at all."""
        return any(limits_of(table, kind, index) for kind in _KINDS for index in (None, *_global_indexes(table)))

    def check(self, table: Record, charge: Charge, pending: Charge | None = None) -> None:
        """Raises ServiceError if a bucket the charge draws on is empty, once `pending` is drawn from it too."""
        exceeded = [limit for limit, _ in _draws(table, charge) if self._level(limit) <= _drawn(table, pending, limit)]
        if exceeded:
            raise throttled(exceeded)

    def spend(self, table: Record, charge: Charge) -> None:
        """Draws what was consumed."""
        for limit, units in _draws(table, charge):
            level = self._level(limit)
            self._buckets[limit.key] = _Bucket(level - units, self._clock())

    def _level(self, limit: Limit) -> float:
        now = self._clock()
        first = _Bucket(limit.units_a_second * min(1.0, self._burst_seconds), now)
        bucket = self._buckets.setdefault(limit.key, first)
        filled = bucket.level_units + (now - bucket.filled_at) * limit.units_a_second
        bucket.level_units = min(filled, limit.units_a_second * self._burst_seconds)
        bucket.filled_at = now
        return bucket.level_units


_KINDS: tuple[Kind, ...] = ("read", "write")


def throttled(exceeded: list[Limit]) -> ServiceError:
    """The exception of a throttled request: ProvisionedThroughputExceededException, or for on-demand maxima
    ThrottlingException; both name every limit that was exceeded."""
    reasons = [limit.reason for limit in exceeded]
    if any(limit.provisioned for limit in exceeded):
        details: dict[str, Any] = {"ThrottlingReasons": reasons}
        return ServiceError("ProvisionedThroughputExceededException", _PROVISIONED_MESSAGE, 400, details)
    return ServiceError("ThrottlingException", _ON_DEMAND_MESSAGE, 400, {"throttlingReasons": reasons})


def limits_of(table: Record, kind: Kind, index: Record | None = None) -> Limit | None:
    """The limit of a table, or of one of its global indexes; None where there is none."""
    holder = table if index is None else index
    names = (table["TableArn"] if index is None else index["IndexArn"], table["TableId"], kind)
    provisioned, on_demand = _UNIT_NAMES[kind]
    is_provisioned = table["BillingModeSummary"]["BillingMode"] == "PROVISIONED"
    configured = holder["ProvisionedThroughput"] if is_provisioned else holder.get("OnDemandThroughput") or {}
    units = configured.get(provisioned if is_provisioned else on_demand, -1)
    # -1 is "no maximum", and 0 what an index keeps from on-demand times until it is given a capacity.
    return Limit(*names, units, is_provisioned, index is not None) if units > 0 else None


def _global_indexes(table: Record) -> list[Record]:
    return table.get("GlobalSecondaryIndexes") or []


def _draws(table: Record, charge: Charge) -> list[tuple[Limit, float]]:
    """Limits a charge counts against. Local indexes live on the table's own capacity."""
    table_units = charge.table_units + sum(charge.local_units.values())
    wanted = [(limits_of(table, charge.kind), table_units)] if table_units else []
    for index in _global_indexes(table):
        if index["IndexName"] in charge.global_units:
            wanted.append((limits_of(table, charge.kind, index), charge.global_units[index["IndexName"]]))
    return [(limit, units) for limit, units in wanted if limit is not None]


def _drawn(table: Record, pending: Charge | None, limit: Limit) -> float:
    if pending is None:
        return 0.0
    return sum(units for drawn, units in _draws(table, pending) if drawn.key == limit.key)
