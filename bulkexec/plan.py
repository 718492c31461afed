"""A plan: everything a runtime needs, as JSON. Only this goes to a job."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from bulkexec.model import Counts, Work


@dataclass(frozen=True)
class Alternative:
    """One way to run the same work: where, how long it takes and what it costs. `chosen` is the one that is planned."""

    runtime: str
    seconds: tuple[float, float] | None
    usd: tuple[float, float] | None
    note: str = ""
    chosen: bool = False


@dataclass(frozen=True)
class Estimate:
    """What a run is expected to read, write and cost. Ranges are (low, high); None is "not known".

    `read_units` and `expected_writes` are the likeliest numbers, the latter only where items were sampled; `reads` and
    `write_units` the ranges around them. `matching` is how many items the filter finds. `parts` are the dollars by what
    they are for. `sampled` says what was read for this estimate, and what that cost. `notes` say what the numbers rest
    on, `left_out` what they do not contain, `warnings` what the user should act on.
    """

    read_units: float
    write_units: tuple[float, float]
    usd: tuple[float, float] | None
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    reads: tuple[float, float] | None = None
    expected_writes: float | None = None
    matching: tuple[float, float] | None = None
    seconds: tuple[float, float] | None = None
    parts: tuple[tuple[str, tuple[float, float] | None], ...] = ()
    sampled: str = ""
    alternatives: tuple[Alternative, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CostLimit:
    """What one run may cost at most, and what its units and seconds cost, in USD. See `cost_cap`."""

    usd: float
    read_unit_usd: float = 0.0
    write_unit_usd: float = 0.0
    second_usd: float = 0.0

    def spent(self, counts: Counts, seconds: float = 0.0) -> float:
        """Dollars for metered units and for so many seconds of all workers."""
        units = counts.read_units * self.read_unit_usd + counts.write_units * self.write_unit_usd
        return units + seconds * self.second_usd


@dataclass(frozen=True)
class Options:
    """How to run, whatever the command. Rates are units a second for the whole job, None is "no limit of ours".

    `index_rates` are those of global secondary indexes, which have capacity of their own; `write_rate` is for the table
    that is read, `target_write_rate` for the one that puts go to where that is another.

    `target_role` (an ARN) or `target_profile` gives the credentials for a target in another account.

    `results` is where rows go: the folder of one export (`s3://bucket/prefix/AWSDynamoDB/<id>`), or empty.
    `cost_limit` is where a run stops, as at a cap of items.
    """

    read_rate: float | None = None
    write_rate: float | None = None
    max_items: int | None = None
    dry_run: bool = False
    results: str = ""
    strategy: Literal["native", "sequential"] = "native"
    checkpoint_seconds: float = 5.0
    index_rates: dict[str, float] = field(default_factory=dict)
    target_write_rate: float | None = None
    target_index_rates: dict[str, float] = field(default_factory=dict)
    max_failures: int | None = None
    target_role: str = ""
    target_profile: str = ""
    cost_limit: CostLimit | None = None


@dataclass(frozen=True)
class Plan:
    """Everything a runtime needs, as JSON. Only this goes to a job."""

    command: str
    arguments: dict[str, Any]
    work: Work
    segments: int
    mutates: bool
    options: Options = Options()
    estimate: Estimate | None = None
    where: str = ""
    version: int = 1

    def to_json(self) -> bytes:
        """Canonical JSON."""
        return msgspec.json.encode(self, order="sorted")

    @staticmethod
    def from_json(data: bytes) -> "Plan":
        """The inverse of `to_json`. Raises msgspec.ValidationError on anything else."""
        return msgspec.json.decode(data, type=Plan)

    @property
    def fingerprint(self) -> str:
        """Hash of what must not change between a run and its continuation.

        That is command, arguments, table with its id and keys, the filter as it was given, what a list of keys has, and
        whether it is a dry run.
        """
        table = self.work.scope.table
        identity: tuple[Any, ...] = (
            self.command,
            _as_identity(self.arguments),
            table.arn,
            table.id,
            table.keys,
            self.where,
            self.options.dry_run,
        )
        work = self.work
        if work.target is not None:
            # Only then, so that tokens of earlier versions still fit.
            identity += (work.target.arn, work.target.id)
        if work.keys_sha256:
            identity += (work.keys_sha256,)
        return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:16]

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that name this plan to people."""
        # Through JSON and back first: a whole number in a float field is 0 before and 0.0 after.
        return hashlib.sha256(Plan.from_json(self.to_json()).to_json()).hexdigest()[:8]

    def with_options(self, **changes: Any) -> "Plan":
        """The same plan, run another way."""
        return replace(self, options=replace(self.options, **changes))


def _as_identity(value: Any) -> Any:
    """Arguments without what may change between a run and its continuation: how the file of a map is called."""
    match value:
        case {"type": "source", "sha256": sha256, "function": function}:
            return [function, sha256]
        case dict():
            return {name: _as_identity(each) for name, each in value.items()}
        case list() | tuple():
            return [_as_identity(each) for each in value]
    return value
