"""From what a table has to a rate: provisioned capacity, auto scaling, on-demand maximum, warm throughput, quota.

What cannot be read (no permission, no such service) is said and replaced by what is documented; it stops nothing.
Limits: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import boto3
import botocore.exceptions

from bulkexec.describe import CLIENT_CONFIG, why_refused
from bulkexec.duration import in_words
from bulkexec.model import Index, Table
from bulkexec.rate import Asked, Kind, parse_asked

DEFAULT_SHARE: Final = 0.5
"""Half of what there is goes to production. The EMR connector's default is the same (dynamodb.throughput.*.percent)."""

TABLE: Final = ""
"""Stands for the table where others are names of indexes."""

QUOTA_CODES: Final[dict[Kind, str]] = {"read": "L-CF0CBE56", "write": "L-AB614373"}
"""Service Quotas of "dynamodb": table-level read and write throughput limit, for a table or one of its indexes."""

DOCUMENTED_QUOTA: Final = 40_000.0
DOCUMENTED_WARM: Final[dict[Kind, float]] = {"read": 12_000.0, "write": 4_000.0}
"""What every on-demand table serves at once, however new."""

DIMENSIONS: Final[dict[str, Kind]] = {
    "dynamodb:table:ReadCapacityUnits": "read",
    "dynamodb:table:WriteCapacityUnits": "write",
    "dynamodb:index:ReadCapacityUnits": "read",
    "dynamodb:index:WriteCapacityUnits": "write",
}

Place = tuple[str, Kind]
"""`TABLE` or an index's name, and which of its two capacities."""


@dataclass(frozen=True)
class Ceilings:
    """What `model.Table` does not keep, in units a second. Absent means not set or not known.

    `warnings` are sentences on what could not be read.
    """

    auto_scaling: Mapping[Place, float] = field(default_factory=dict)
    warm: Mapping[Place, float] = field(default_factory=dict)
    on_demand: Mapping[Place, float] = field(default_factory=dict)
    quota: Mapping[Kind, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResolvedRate:
    """Units a second for the whole fleet, where the number comes from, and what the user should know about it.

    `indexes` are the limits of global secondary indexes, which writes to the table consume too (cases C059, C146).
    """

    units_per_second: float
    source: str
    warnings: tuple[str, ...] = ()
    indexes: Mapping[str, float] = field(default_factory=dict)


class _Capacity(NamedTuple):
    """`now` is served at once, `most` after scaling; each with the words for it. Shares asked for are of `whole`."""

    now: float
    now_words: str
    most: float
    most_words: str
    auto_scaled: bool = False

    @property
    def whole(self) -> tuple[float, str]:
        return (self.most, self.most_words) if self.auto_scaled else (self.now, self.now_words)


@dataclass(frozen=True)
class Load:
    """How much is to be done and in what time, where that is known."""

    units: float | None = None
    timeout_seconds: float | None = None


T = TypeVar("T")
NO_LOAD: Final = Load()


def resolve_rate(
    asked: str | None, kind: Kind, table: Table, facts: Ceilings, load: Load = NO_LOAD, index: str = TABLE
) -> ResolvedRate:
    """The rate of a run, never unlimited and never 0. Raises BadArgument when `asked` is no rate.

    `index` is a global secondary index that is read instead of the table, which has capacity of its own.

    A share is of what the table serves now: its provisioned capacity or warm throughput, no more than its on-demand
    maximum and the quota. Where it is auto scaled, a share that is asked for is of the maximum; the default is not.
    """
    capacity = _capacity(index, kind, table, facts)
    rate, source = _chosen(None if asked is None else parse_asked(asked, kind), kind, capacity)
    indexes = _index_limits(rate / capacity.now, table, facts) if kind == "write" else {}
    warnings = [
        *_above(rate, kind, capacity),
        *_slower_indexes(rate, indexes),
        *_too_slow(rate, kind, load),
    ]
    return ResolvedRate(rate, source, (*warnings, *facts.warnings), indexes)


def _chosen(asked: Asked | None, kind: Kind, capacity: _Capacity) -> tuple[float, str]:
    if asked is None:
        rate = max(1.0, DEFAULT_SHARE * capacity.now)
        return rate, f"{_of(rate, kind, DEFAULT_SHARE, capacity.now, capacity.now_words)}; the default"
    if asked.share is not None:
        whole, words = capacity.whole
        return asked.share * whole, _of(asked.share * whole, kind, asked.share, whole, words)
    assert asked.units_per_second is not None
    rate = asked.units_per_second
    return rate, _of(rate, kind, rate / capacity.now, capacity.now, capacity.now_words)


def _of(rate: float, kind: Kind, share: float, whole: float, words: str) -> str:
    return f"{_units(rate)} {kind} units/s = {share * 100:.3g} % of {_units(whole)}, {words}"


def _units(units: float) -> str:
    return f"{units:,.4g}" if units < 1000 else f"{units:,.0f}"


def _capacity(name: str, kind: Kind, table: Table, facts: Ceilings) -> _Capacity:
    if table.billing == "provisioned":
        return _provisioned(name, kind, table, facts)
    quota, quota_words = _quota(kind, facts)
    cap, cap_words = facts.on_demand.get((name, kind), 0.0), "its on-demand maximum"
    if name == TABLE:
        cap = max(cap, table.max_read_request_units if kind == "read" else table.max_write_request_units)
    most, most_words = (cap, cap_words) if 0 < cap <= quota else (quota, quota_words)
    known = facts.warm.get((name, kind))
    warm = known or DOCUMENTED_WARM[kind]
    warm_words = "its warm throughput" if known else "what every on-demand table serves at once"
    return (
        _Capacity(warm, warm_words, most, most_words) if warm < most else _Capacity(most, most_words, most, most_words)
    )


def _provisioned(name: str, kind: Kind, table: Table, facts: Ceilings) -> _Capacity:
    place = table if name == TABLE else _index(table, name)
    now = max(1.0, place.read_capacity if kind == "read" else place.write_capacity)
    most = facts.auto_scaling.get((name, kind), 0.0)
    if most > now:
        return _Capacity(now, "provisioned now", most, "the maximum of its auto scaling", True)
    return _Capacity(now, "provisioned", now, "provisioned")


def _index(table: Table, name: str) -> Index:
    return next(index for index in table.indexes if index.name == name)


def _quota(kind: Kind, facts: Ceilings) -> tuple[float, str]:
    """Never a fixed number where the account's own can be read (case C058)."""
    if kind in facts.quota:
        return facts.quota[kind], "the account's quota for a table"
    return DOCUMENTED_QUOTA, "the documented quota for a table"


def _index_limits(share: float, table: Table, facts: Ceilings) -> dict[str, float]:
    """The same share of each index as of the table. Local indexes draw on the table's own capacity."""
    names = [index.name for index in table.indexes if index.kind == "GSI"]
    capacities = {name: _capacity(name, "write", table, facts) for name in names}
    return {name: max(1.0, min(share * each.now, each.most)) for name, each in capacities.items()}


# -- warnings --------------------------------------------------------------------------------------------------------


def _above(rate: float, kind: Kind, capacity: _Capacity) -> list[str]:
    if rate > capacity.most:
        return [
            f"{_units(rate)} {kind} units/s is more than the table can serve: {_units(capacity.most)}, "
            f"{capacity.most_words}; requests will be throttled"
        ]
    if rate > capacity.now:
        return [
            f"{_units(rate)} {kind} units/s is more than the {_units(capacity.now)} that are {capacity.now_words}; "
            "requests are throttled until DynamoDB has scaled"
        ]
    if rate > 0.9 * capacity.now:
        return [f"{_units(rate)} {kind} units/s leaves less than a tenth of {_units(capacity.now)} to other users"]
    return []


def _slower_indexes(rate: float, indexes: Mapping[str, float]) -> list[str]:
    return [
        f"index {name} takes {_units(limit)} write units/s, less than the {_units(rate)} of the table: "
        "writes that change it go at its pace"
        for name, limit in sorted(indexes.items())
        if limit < 0.999 * rate
    ]


def _too_slow(rate: float, kind: Kind, load: Load) -> list[str]:
    if load.units is None or not load.timeout_seconds or load.units <= rate * load.timeout_seconds:
        return []
    needed, allowed = in_words(load.units / rate), in_words(load.timeout_seconds)
    enough = _units(load.units / load.timeout_seconds)
    return [
        f"{_units(load.units)} {kind} units take {needed} at {_units(rate)} units/s, longer than the job's "
        f"timeout of {allowed}: give it at least {enough} units/s, or resume it then"
    ]


# -- asking AWS ------------------------------------------------------------------------------------------------------


def fetch_ceilings(session: boto3.Session, table: Table) -> Ceilings:
    """Ask DynamoDB, Application Auto Scaling and Service Quotas. A refusal becomes a warning (cases C093, C097)."""
    asking = _Asking(session, table)
    nothing: tuple[dict[Place, float], dict[Place, float]] = ({}, {})
    warm, on_demand = asking.try_to("read the table's warm throughput", asking.described, nothing)
    auto_scaling: dict[Place, float] = {}
    if table.billing == "provisioned":
        auto_scaling = asking.try_to("read the table's auto scaling", asking.auto_scaling, {})
    quota: dict[Kind, float] = {}
    if table.billing == "on-demand":
        without = f"read the account's quota, so {DOCUMENTED_QUOTA:,.0f} is taken"
        quota = asking.try_to(without, asking.quotas, {})
    return Ceilings(auto_scaling, warm, on_demand, quota, tuple(asking.warnings))


class _Asking:
    """Three services, each of which may be denied."""

    def __init__(self, session: boto3.Session, table: Table) -> None:
        self._session, self._table = session, table
        self.warnings: list[str] = []

    def _client(self, service: str) -> Any:
        return self._session.client(service, region_name=self._table.region, config=CLIENT_CONFIG)

    def try_to(self, do: str, ask: Callable[[], T], otherwise: T) -> T:
        """What `ask` gives, or `otherwise` with a warning."""
        try:
            return ask()
        except botocore.exceptions.ClientError as error:
            why = why_refused(error)
        except botocore.exceptions.BotoCoreError as error:
            why = type(error).__name__
        self.warnings.append(f"cannot {do} ({why})")
        return otherwise

    def described(self) -> tuple[dict[Place, float], dict[Place, float]]:
        """(warm throughput, on-demand maximum) of the table and of each index."""
        facts = self._client("dynamodb").describe_table(TableName=self._table.name)["Table"]
        places = {TABLE: facts} | {each["IndexName"]: each for each in facts.get("GlobalSecondaryIndexes", ())}
        warm = _both(places, "WarmThroughput", "ReadUnitsPerSecond", "WriteUnitsPerSecond")
        return warm, _both(places, "OnDemandThroughput", "MaxReadRequestUnits", "MaxWriteRequestUnits")

    def auto_scaling(self) -> dict[Place, float]:
        """Maximum capacity by place."""
        resources = {f"table/{self._table.name}": TABLE}
        resources |= {f"table/{self._table.name}/index/{index.name}": index.name for index in self._table.indexes}
        pages = self._client("application-autoscaling").get_paginator("describe_scalable_targets")
        answers = pages.paginate(ServiceNamespace="dynamodb", ResourceIds=list(resources))
        return {
            (resources[target["ResourceId"]], DIMENSIONS[target["ScalableDimension"]]): float(target["MaxCapacity"])
            for answer in answers
            for target in answer["ScalableTargets"]
            if target["ScalableDimension"] in DIMENSIONS
        }

    def quotas(self) -> dict[Kind, float]:
        """Table-level throughput quotas of the account."""
        return {kind: self._quota(code) for kind, code in QUOTA_CODES.items()}

    def _quota(self, code: str) -> float:
        client = self._client("service-quotas")
        try:
            answer = client.get_service_quota(ServiceCode="dynamodb", QuotaCode=code)
        except client.exceptions.NoSuchResourceException:  # never changed in this account
            answer = client.get_aws_default_service_quota(ServiceCode="dynamodb", QuotaCode=code)
        return float(answer["Quota"]["Value"])


def _both(places: Mapping[str, Any], member: str, read: str, write: str) -> dict[Place, float]:
    """Values above 0 only: -1 is "no maximum", 0 "not said"."""
    kinds: tuple[tuple[Kind, str], ...] = (("read", read), ("write", write))
    found = {(name, kind): place.get(member, {}).get(key, 0) for name, place in places.items() for kind, key in kinds}
    return {place: float(units) for place, units in found.items() if units > 0}
