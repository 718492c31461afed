"""From what is known of a table to units and dollars. Pure: no I/O, no clock.

Formulas are those of the DynamoDB developer guide, "Item sizes and formats" and "Read and write operations".
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import ceil
from typing import Any, Final, Literal, NamedTuple

from bulkexec.model import Counts, Estimate, Index, Options, Table, Work

READ_UNIT_BYTES: Final = 4096
WRITE_UNIT_BYTES: Final = 1024
CONTAINER_BYTES: Final = 3
MAX_NUMBER_BYTES: Final = 21


GLUE_START_SECONDS: Final = 60.0
GLUE_BYTES_PER_DPU_SECOND: Final = (3e6, 12e6)
"""How fast a DPU reads. An assumption: a published run, 506 GB on 220 G.1X in 5 min 31 s, did about 8.5 MB/s."""

WRITE_UNITS_PER_SECOND: Final = (4_000, 40_000)
"""Write units a second when nothing limits them: a new on-demand table's warm rate, and the default table quota."""

DPUS: Final[dict[str, float]] = {
    **{f"G.{size}X": size for size in (1, 2, 4, 8, 12, 16)},
    **{f"R.{size}X": size for size in (1, 2, 4, 8)},
}
"""DPUs of a Glue worker type, from the Glue developer guide."""

UNKNOWN_SIZE: Final = "size not known yet (DescribeTable says 0, and may be 6 hours old): nor are units and dollars"
DEFAULTS: Final = Options()


@dataclass(frozen=True)
class Prices:
    """Prices in USD for one region and table class. None is "not known", never "free".

    Request units are per million, provisioned units per unit-hour. `source` says where the numbers come from.
    """

    source: str
    read_per_million: float | None = None
    write_per_million: float | None = None
    replicated_write_per_million: float | None = None
    read_per_unit_hour: float | None = None
    write_per_unit_hour: float | None = None
    replicated_write_per_unit_hour: float | None = None
    glue_per_dpu_hour: float | None = None
    glue_flex_per_dpu_hour: float | None = None


@dataclass(frozen=True)
class GlueShape:
    """The workers of a Glue job run, the driver's included. A worker type of unknown size costs an unknown sum."""

    worker_type: str
    workers: int
    flex: bool = False

    @property
    def dpus(self) -> float | None:
        return DPUS[self.worker_type] * self.workers if self.worker_type in DPUS else None


class Span(NamedTuple):
    """From `low` to `high`."""

    low: float
    high: float

    def __str__(self) -> str:
        low, high = f"{self.low:,.4g}", f"{self.high:,.4g}"
        return high if low == high else f"{low} to {high}"


def item_size_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Size of a typed item as DynamoDB meters it: every attribute name in UTF-8 plus its value.

    Binary values may be base64 text (as on the wire) or bytes (as boto3 gives them). Numbers are documented as
    approximate, so the result can be off by a byte for each of them. Raises ValueError on
    anything but typed values.
    """
    return sum(_text_bytes(name) + _value_bytes(value) for name, value in item.items())


def read_units(size_bytes: int, consistent: bool) -> float:
    """Units of one Scan or Query page that evaluated `size_bytes`: the sum is rounded up once to 4 KB, an empty page
    costs the minimum, and eventual consistency halves."""
    units = max(1, ceil(size_bytes / READ_UNIT_BYTES))
    return float(units) if consistent else units / 2


def write_units(size_bytes: int) -> int:
    """Units of one write of an item of that size: rounded up to 1 KB, at least 1 (a miss costs 1 too)."""
    return max(1, ceil(size_bytes / WRITE_UNIT_BYTES))


def writes_span(items: int, size_bytes: int) -> Span:
    """Bounds on the units of one write for each of `items` items of together `size_bytes`, whatever their sizes.

    Each item rounds up to 1 KB on its own: together at least all bytes and one unit an item, and less than one unit an
    item above all bytes. A mean size cannot say where in between: half 100 B and half 1,900 B cost 1.5 units each.
    """
    low = max(items, ceil(size_bytes / WRITE_UNIT_BYTES))
    return Span(low, max(low, (size_bytes + items * (WRITE_UNIT_BYTES - 1)) // WRITE_UNIT_BYTES))


def estimate(
    table: Table,
    work: Work,
    mutates: bool,
    prices: Prices,
    segments: int,
    glue: GlueShape | None = None,
    options: Options = DEFAULTS,
) -> Estimate:
    """What a run will read, write and cost, from what DescribeTable says of table and indexes.

    `read_units` is the most that can be read: all of the table, whatever the filter. `write_units` are those of
    deletes, or of updates that keep an item's size, as ConsumedCapacity will report them: indexes included, replicas
    only in the dollars. Dollars are None when the table's size or a price is not known; provisioned capacity adds
    none, it is paid already.
    """
    if not (table.item_count and table.size_bytes):
        least = read_units(0, work.consistent) * segments
        return Estimate(least, Span(0.0, 0.0), None, (UNKNOWN_SIZE,), ("everything that depends on the size",))
    run = _Run(table, work, mutates and not options.dry_run, prices, segments, glue, options)
    return Estimate(run.reads.high, run.writes, run.usd, tuple(run.notes()), tuple(run.left_out()))


def metered_usd(counts: Counts, table: Table, prices: Prices) -> float | None:
    """Dollars for units as DynamoDB metered them, in all regions of a global table, without Glue, S3 and logs.

    0 when capacity is provisioned, because that is paid already; None when a price that is needed is not known.
    """
    if table.billing == "provisioned":
        return 0.0
    reads = _per_million(counts.read_units, prices.read_per_million)
    writes = _per_million(counts.write_units * _regions(table), _write_price(table, prices))
    return None if reads is None or writes is None else reads + writes


def glue_usd(dpu_hours: float, flex: bool, prices: Prices) -> float | None:
    """Dollars for DPU-hours; None when the price is not known."""
    price = prices.glue_flex_per_dpu_hour if flex else prices.glue_per_dpu_hour
    return None if price is None else dpu_hours * price


@dataclass(frozen=True)
class _Run:
    """One run over a table whose size is known."""

    table: Table
    work: Work
    writing: bool
    prices: Prices
    segments: int
    glue: GlueShape | None
    options: Options

    @property
    def reads(self) -> Span:
        """All bytes at 4 KB a unit and one unit for each segment's last page; eventual consistency halves."""
        units = self.table.size_bytes / READ_UNIT_BYTES + self.segments
        whole = units if self.work.consistent else units / 2
        return Span(read_units(0, self.work.consistent) if self._partial else whole, whole)

    @property
    def writes(self) -> Span:
        if not self.writing:
            return Span(0.0, 0.0)
        spans = [self._written(self.table), *map(self._written, self.table.indexes)]
        return Span(sum(span.low for span in spans), sum(span.high for span in spans))

    def _written(self, place: Table | Index) -> Span:
        """Units for what is written to the table or to one index, which has its own count and size."""
        cap = place.item_count if self.options.max_items is None else self.options.max_items
        span = writes_span(min(cap, place.item_count), place.size_bytes)
        return span._replace(low=0.0) if self.work.scope.filter is not None or self._partial else span

    @property
    def _partial(self) -> bool:
        """Whether the walk may end before all of the table is read."""
        cap = self.options.max_items
        return self.work.scope.pinned or (cap is not None and cap < self.table.item_count)

    @property
    def seconds(self) -> Span:
        """With Glue: start-up, then the slowest of reading, the limits on reads and those on writes."""
        dpus = (self.glue.dpus if self.glue else None) or 1.0
        slow, fast = GLUE_BYTES_PER_DPU_SECOND
        read_limit, write_limit = self._limit("read"), self._limit("write")
        slow_writes, fast_writes = (write_limit, write_limit) if write_limit else WRITE_UNITS_PER_SECOND
        share = self.reads.low / self.reads.high
        low = max(self.table.size_bytes * share / fast / dpus, self.writes.low / fast_writes)
        high = max(self.table.size_bytes / slow / dpus, self.writes.high / slow_writes)
        if read_limit:
            low, high = max(low, self.reads.low / read_limit), max(high, self.reads.high / read_limit)
        return Span(GLUE_START_SECONDS + low, GLUE_START_SECONDS + high)

    def _limit(self, kind: Literal["read", "write"]) -> float | None:
        """The smallest of our rate, provisioned capacity and an on-demand maximum, if set."""
        table, options = self.table, self.options
        if kind == "read":
            rate, of_table = options.read_rate, (table.read_capacity, table.max_read_request_units)
        else:
            rate, of_table = options.write_rate, (table.write_capacity, table.max_write_request_units)
        return min((limit for limit in (rate or 0.0, *of_table) if limit > 0), default=None)

    @property
    def usd(self) -> tuple[float, float] | None:
        """DynamoDB and Glue together."""
        ends = (
            self._usd(self.reads.low, self.writes.low, self.seconds.low),
            self._usd(self.reads.high, self.writes.high, self.seconds.high),
        )
        return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])

    def _usd(self, reads: float, writes: float, seconds: float) -> float | None:
        units = metered_usd(Counts(read_units=reads, write_units=writes), self.table, self.prices)
        if self.glue is None or units is None:
            return units
        dpus = self.glue.dpus
        glue = None if dpus is None else glue_usd(dpus * seconds / 3600, self.glue.flex, self.prices)
        return None if glue is None else units + glue

    def notes(self) -> Iterator[str]:
        """What the numbers rest on."""
        yield f"prices: {self.prices.source}"
        if self.work.scope.pinned:
            yield "one item collection is read; its size is not known, at most all of the table"
        elif self._partial:
            yield "the run may stop at its cap of items before all of the table is read"
        if self.writing:
            yield "each write rounds up to 1 KB by itself and only totals are known, so units are a range"
        if self.writing and self.table.indexes:
            yield "indexes included: one write for each entry"
        if self.writing and _regions(self.table) > 1:
            yield f"global table: dollars are for {_regions(self.table)} regions, at the prices of {self.table.region}"
        yield from self._capacity_notes()
        if self.glue is not None:
            yield self._glue_note(self.glue)
        if self.usd is None:
            yield "dollars are not known, because a price is not"

    def _capacity_notes(self) -> Iterator[str]:
        if self.table.billing != "provisioned":
            return
        yield "provisioned: capacity is already paid, reads and writes add nothing"
        if self.table.read_capacity > 0:
            yield f"at all of its read capacity reading takes {_duration(self.reads.high / self.table.read_capacity)}"
        places: list[Table | Index] = [self.table, *self.table.indexes] if self.writing else []
        limited = [place for place in places if place.write_capacity > 0]
        paces = [(self._written(place).high / place.write_capacity, place.name) for place in limited]
        if paces:
            seconds, name = max(paces)
            yield f"at all of the write capacity of {name} writing takes up to {_duration(seconds)}"

    def _glue_note(self, glue: GlueShape) -> str:
        if glue.dpus is None:
            return f"Glue: the size of worker type {glue.worker_type} is not known"
        slow, fast = (speed / 1e6 for speed in GLUE_BYTES_PER_DPU_SECOND)
        low, high = (glue.dpus * seconds / 3600 for seconds in self.seconds)
        return (
            f"Glue: {Span(low, high)} DPU-hours, assuming 1 min to start and {slow:g} to {fast:g} MB/s a DPU "
            "unless a rate is lower"
        )

    def left_out(self) -> Iterator[str]:
        """What the numbers do not contain."""
        yield "S3 requests and storage, logs"
        if not self.writing:
            return
        for index in self.table.indexes:
            if not (index.item_count and index.size_bytes):
                yield f"writes to index {index.name} (DescribeTable says it is empty)"
        yield "streams and what consumes them"


def _regions(table: Table) -> int:
    return 1 + len([region for region in table.replicas if region != table.region])


def _write_price(table: Table, prices: Prices) -> float | None:
    return prices.replicated_write_per_million if _regions(table) > 1 else prices.write_per_million


def _per_million(units: float, price: float | None) -> float | None:
    if not units:
        return 0.0
    return None if price is None else units / 1e6 * price


def _duration(seconds: float) -> str:
    hours, minutes = divmod(ceil(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _value_bytes(value: Mapping[str, Any]) -> int:
    for tag, content in value.items():
        if len(value) == 1 and tag in _SIZERS:
            return _SIZERS[tag](content)
    raise ValueError(f"not a DynamoDB-typed value: {sorted(value)}")


def _text_bytes(text: str) -> int:
    return len(text.encode())


def _number_bytes(text: str) -> int:
    """One byte, one for every pair of digits aligned on the decimal point, one more for a sign; 21 at most.

    The guide says "approximately 1 byte per two significant digits + 1"; the alignment is what has been measured
    (github.com/zaccharles/dynamodb-calculator, and dynalite, which is tested against the service).
    """
    sign, digits, exponent = _decimal(text).as_tuple()
    coefficient = "".join(map(str, digits)).lstrip("0")
    significant = coefficient.rstrip("0")
    if not isinstance(exponent, int):  # as_tuple gives a letter for infinity and NaN
        raise ValueError(f"not a DynamoDB number: {text}")
    if not significant:
        return 1
    low = exponent + len(coefficient) - len(significant)
    high = low + len(significant)
    pairs = (high + high % 2 - low + low % 2) // 2
    return min(1 + pairs + sign, MAX_NUMBER_BYTES)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"not a DynamoDB number: {text}") from error


def _binary_bytes(content: str | bytes | bytearray) -> int:
    return len(base64.b64decode(content, validate=True)) if isinstance(content, str) else len(bytes(content))


def _list_bytes(content: list[Mapping[str, Any]]) -> int:
    return CONTAINER_BYTES + len(content) + sum(map(_value_bytes, content))


def _map_bytes(content: Mapping[str, Mapping[str, Any]]) -> int:
    return CONTAINER_BYTES + len(content) + item_size_bytes(content)


def _one_byte(_: object) -> int:
    return 1


_SIZERS: Final[dict[str, Callable[[Any], int]]] = {
    "S": _text_bytes,
    "N": _number_bytes,
    "B": _binary_bytes,
    "BOOL": _one_byte,
    "NULL": _one_byte,
    "L": _list_bytes,
    "M": _map_bytes,
    "SS": lambda content: sum(map(_text_bytes, content)),
    "NS": lambda content: sum(map(_number_bytes, content)),
    "BS": lambda content: sum(map(_binary_bytes, content)),
}
