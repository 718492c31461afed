"""The frozen nouns everything else speaks in. No I/O, no clock.

Items are DynamoDB-typed JSON (`{"pk": {"S": "a"}}`) end to end. They are kept as raw bytes (`msgspec.Raw`) until
somebody looks into them, so a number keeps its text and a set its tag.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import msgspec

from bulkexec.nodes import Phase
from bulkexec.writes import Write

AttributeValue = Mapping[str, Any]
"""One typed value, e.g. `{"N": "1E+100"}`."""

Item = Mapping[str, AttributeValue]


@dataclass(frozen=True)
class KeyAttribute:
    """A key attribute and its type."""

    name: str
    type: Literal["S", "N", "B"]


@dataclass(frozen=True)
class Index:
    """A secondary index. Capacities are units a second, 0 when on demand. `included` are projected beside the keys."""

    name: str
    kind: Literal["GSI", "LSI"]
    keys: tuple[KeyAttribute, ...]
    projection: Literal["ALL", "KEYS_ONLY", "INCLUDE"]
    item_count: int = 0
    size_bytes: int = 0
    read_capacity: float = 0
    write_capacity: float = 0
    included: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """What DescribeTable and DescribeContinuousBackups say. `item_count` and `size_bytes` are up to six hours old.

    `id` tells a table from another one that was made later under the same name; empty where the service gives none.
    """

    name: str
    arn: str
    region: str
    account: str
    keys: tuple[KeyAttribute, ...]
    status: str
    item_count: int
    size_bytes: int
    billing: Literal["on-demand", "provisioned"]
    table_class: Literal["STANDARD", "STANDARD_INFREQUENT_ACCESS"] = "STANDARD"
    read_capacity: float = 0
    write_capacity: float = 0
    max_read_request_units: int = -1
    max_write_request_units: int = -1
    indexes: tuple[Index, ...] = ()
    replicas: tuple[str, ...] = ()
    recovery: bool = False
    recovery_from: str = ""
    id: str = ""

    @property
    def key_names(self) -> tuple[str, ...]:
        """Partition key first, then the sort key if there is one."""
        return tuple(key.name for key in self.keys)


@dataclass(frozen=True)
class Expression:
    """A DynamoDB expression with every name aliased (`#n0`) and every value bound (`:v0`)."""

    text: str
    names: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Statement:
    """A PartiQL condition with `?` for each typed parameter, to stand behind a key in a WHERE clause."""

    text: str
    parameters: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Scope:
    """Which items of which table a run is about."""

    table: Table
    filter: Expression | None = None
    key_condition: Expression | None = None
    guard: Expression | None = None
    guard_statement: Statement | None = None
    listed: bool = False

    @property
    def chosen(self) -> bool:
        """Whether somebody said which items: by a filter, or one by one in a list of keys."""
        return self.filter is not None or self.pinned or self.listed

    @property
    def pinned(self) -> bool:
        """Whether the partition key is fixed, so that the walk is a Query of one item collection."""
        return self.key_condition is not None


@dataclass(frozen=True)
class Work:
    """How a command wants its pages read, and under which condition its writes may go.

    `projection` names the top-level attributes to fetch (empty: all of them). `count_only` pages carry no items.
    `guarded` says that each delete and update goes with the scope's guard. Puts go to `target`, None is the scope's
    table. `update` is the expression that `Apply` runs. With `index` its entries are read instead of the table, and
    with `lookup` the items they belong to are then fetched. With `keys` (a file, or s3://) the items of these keys are
    read, each once; `keys_sha256` is the list's. `hidden` is the key of an item that no run sees. `changes_source` says
    whether the scope's table is written at all when there is a target. `selects` is the filter's tree as
    `where.portable` packs it. With `phases` each is one segment, and `phase` is the one that is walked.
    """

    scope: Scope
    projection: tuple[str, ...] = ()
    count_only: bool = False
    consistent: bool = False
    guarded: bool = False
    target: Table | None = None
    update: Expression | None = None
    index: str = ""
    lookup: bool = False
    keys: str = ""
    keys_sha256: str = ""
    hidden: dict[str, Any] | None = None
    descending: bool = False
    changes_source: bool = True
    selects: Any = None
    phases: tuple[Phase, ...] = ()
    phase: Phase | None = None

    def in_phase(self, number: int) -> "Work":
        """The work as its phase of this number has it; itself where there are no phases."""
        if not self.phases:
            return self
        phase = self.phases[number]
        if not phase.of_target:
            return replace(self, phase=phase)
        scope = replace(self.scope, table=self.writes_to)
        return replace(self, phase=phase, scope=scope, projection=scope.table.key_names)

    @property
    def looks(self) -> int:
        """How many phases read the counterpart of each item, by its key."""
        return sum(phase.removes and phase.other is not None for phase in self.phases)

    @property
    def writes_to(self) -> Table:
        """Where puts go."""
        return self.target or self.scope.table

    @property
    def changed(self) -> tuple[Table, ...]:
        """The tables that a command which mutates changes."""
        source = (self.scope.table,) if self.changes_source or self.target is None else ()
        return source + ((self.target,) if self.target is not None else ())


@dataclass(frozen=True)
class Segment:
    """One of `total` disjoint slices of a table's hash space."""

    number: int
    total: int


class Page(NamedTuple):
    """One answer of Scan or Query. `scanned` counts what was evaluated, `matched` what passed the filter.

    `last_evaluated_key` is the raw JSON of the key to go on from, None at the end of the segment. `missing` of those
    that matched were gone when their items were fetched. `listed` tells of a page of a list whether an item's key is
    anywhere in it.
    """

    items: list[msgspec.Raw]
    matched: int
    scanned: int
    read_units: float
    last_evaluated_key: bytes | None
    missing: int = 0
    listed: Callable[[msgspec.Raw], bool] | None = None


@dataclass(frozen=True)
class Failure:
    """One item that could not be written. `key` is typed JSON."""

    key: dict[str, Any]
    reason: str
    details: str = ""


class PageResult(NamedTuple):
    """What a command makes of a page: writes to send, rows for the user, and items that it lets be or rejects."""

    writes: list[Write] = []
    rows: list[msgspec.Raw] = []
    skipped: int = 0
    failed: list[Failure] = []


@dataclass(frozen=True)
class Counts:
    """Acknowledged counts: `scanned` items were evaluated, `matched` passed the filter; units are as metered."""

    scanned: int = 0
    matched: int = 0
    processed: int = 0
    skipped: int = 0
    failed: int = 0
    conflicts: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    throttled: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.scanned + other.scanned,
            self.matched + other.matched,
            self.processed + other.processed,
            self.skipped + other.skipped,
            self.failed + other.failed,
            self.conflicts + other.conflicts,
            self.read_units + other.read_units,
            self.write_units + other.write_units,
            self.throttled + other.throttled,
        )

    @property
    def units_alone(self) -> "Counts":
        """What was consumed, without the items."""
        return Counts(read_units=self.read_units, write_units=self.write_units, throttled=self.throttled)

    @property
    def handled(self) -> int:
        """Items that count towards a cap."""
        return self.processed + self.skipped + self.failed + self.conflicts


@dataclass(frozen=True)
class DataFile:
    """One spilled file, as a manifest names it. `bucket`-relative key, number of items, MD5 and ETag of the object."""

    key: str
    items: int
    md5: str
    etag: str


@dataclass(frozen=True)
class SegmentRecord:
    """A segment's checkpoint: where to go on, and what was acknowledged so far. Totals are sums of these.

    `held` are sort keys of nodes still to come that must stay, because something below them did.
    """

    number: int
    counts: Counts = Counts()
    last_evaluated_key: str = ""
    done: bool = False
    files: tuple[DataFile, ...] = ()
    failures: tuple[Failure, ...] = ()
    conflicts: tuple[Failure, ...] = ()
    held: tuple[str, ...] = ()

    @property
    def started(self) -> bool:
        """Whether at least one page was acknowledged."""
        return self.done or bool(self.last_evaluated_key)
