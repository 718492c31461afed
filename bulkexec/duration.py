"""How long a run takes, and on how many workers: from units, rates and what a worker can do. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from bulkexec.dollars import DPUS, GlueShape
from bulkexec.model import Index, Table
from bulkexec.units import TABLE, Span, total
from bulkexec.volume import Basis, Volume

LEAST_PAID_SECONDS: Final = 60.0
"""Of a Glue job run, however short it is (pricing page of Glue)."""
GLUE_START_SECONDS: Final = 60.0
GLUE_BYTES_PER_DPU_SECOND: Final = Span(3e6, 12e6)
"""How fast a DPU reads. An assumption: a published run, 506 GB on 220 G.1X in 5 min 31 s, did about 8.5 MB/s."""

GLUE_WRITES_PER_DPU_SECOND: Final = Span(4_000, 40_000)
"""Write units a second that a DPU gets through: 4 cores, each with 32 requests in flight for 5 to 50 ms."""

LOCAL_BYTES_PER_SECOND: Final = Span(4e6, 40e6)
LOCAL_WRITES_PER_SECOND: Final = Span(1_000, 20_000)
"""What one process does, from far away over a home line or beside the table. An assumption."""

MOST_WORKERS: Final = 100
"""More are not suggested: few tables serve so much."""

WORKER_TYPE: Final = "G.1X"
"""The cheapest that runs this: items stay in Python, a page at a time, so memory is never what is short."""


@dataclass(frozen=True)
class Pace:
    """What a runtime can do where no rate holds it back."""

    start_seconds: float
    bytes_per_second: Span
    writes_per_second: Span


LOCAL: Final = Pace(0.0, LOCAL_BYTES_PER_SECOND, LOCAL_WRITES_PER_SECOND)


def glue_pace(glue: GlueShape) -> Pace:
    """All workers together; one of unknown size is taken for one DPU."""
    dpus = glue.dpus or 1.0
    reads, writes = GLUE_BYTES_PER_DPU_SECOND, GLUE_WRITES_PER_DPU_SECOND
    return Pace(
        GLUE_START_SECONDS, Span(reads.low * dpus, reads.high * dpus), Span(writes.low * dpus, writes.high * dpus)
    )


def seconds(volume: Volume, basis: Basis, pace: Pace) -> Span:
    """Start-up, then the slowest of reading, of writing, and of every limit on units a second."""
    held = limited_seconds(volume, basis)
    reads, writes = volume.reads.span, volume.written.span
    size_bytes = Span(*(units * (4096 if basis.work.consistent else 8192) for units in reads))
    low = max(size_bytes.low / pace.bytes_per_second.high, writes.low / pace.writes_per_second.high, held.low)
    high = max(size_bytes.high / pace.bytes_per_second.low, writes.high / pace.writes_per_second.low, held.high)
    return Span(pace.start_seconds + low, pace.start_seconds + high)


def limited_seconds(volume: Volume, basis: Basis) -> Span:
    """How long the limits alone make it last."""
    times = [Span(units.low / limit, units.high / limit) for units, limit, _ in limits(volume, basis)]
    return Span(max((time.low for time in times), default=0.0), max((time.high for time in times), default=0.0))


def limits(volume: Volume, basis: Basis) -> Iterator[tuple[Span, float, str]]:
    """(units, the units a second that they are held to, of what) for all that has a limit.

    Local indexes live on the table's capacity, global ones have their own: a slow one holds up the table (case C146).
    """
    reader, options = basis.read_from, basis.options
    read = _smallest(options.read_rate, reader.read_capacity, _on_demand(reader, "read"))
    if read is not None:
        yield volume.reads.span, read, f"reading {reader.name}"
    for table in basis.work.changed if basis.kind else ():
        own = table.arn == basis.table.arn
        rates = (options.write_rate, options.index_rates)
        yield from _write_limits(
            volume, table, *rates if own else (options.target_write_rate, options.target_index_rates)
        )


def _write_limits(
    volume: Volume, table: Table, rate: float | None, index_rates: Mapping[str, float]
) -> Iterator[tuple[Span, float, str]]:
    own = [TABLE, *(index.name for index in table.indexes if index.kind == "LSI")]
    units = total(volume.writes[table.arn, name].span for name in own if (table.arn, name) in volume.writes)
    limit = _smallest(rate, table.write_capacity, _on_demand(table, "write"))
    if limit is not None:
        yield units, limit, f"writing {table.name}"
    for index in table.indexes:
        limit = _smallest(index_rates.get(index.name), index.write_capacity)
        if index.kind == "GSI" and limit is not None and (table.arn, index.name) in volume.writes:
            yield volume.writes[table.arn, index.name].span, limit, f"writing index {index.name}"


def _on_demand(place: Table | Index, kind: str) -> float:
    if isinstance(place, Index):
        return 0.0
    return place.max_read_request_units if kind == "read" else place.max_write_request_units


def _smallest(*given: float | None) -> float | None:
    """0 and -1 are no limits, they are how DescribeTable says that there is none (case C057)."""
    return min((limit for limit in given if limit is not None and limit > 0), default=None)


def suggested(volume: Volume, basis: Basis) -> GlueShape:
    """The fewest workers that keep up with the limits; more would wait, and be paid for it, a minute at the least."""
    held = max(LEAST_PAID_SECONDS, limited_seconds(volume, basis).middle or 600.0)
    reads, writes = GLUE_BYTES_PER_DPU_SECOND, GLUE_WRITES_PER_DPU_SECOND
    size_bytes = volume.reads.value * (4096 if basis.work.consistent else 8192)
    written = volume.written.value
    # Of a range of speeds that spans a decade the middle is the geometric one.
    dpus = max(size_bytes / (reads.low * reads.high) ** 0.5, written / (writes.low * writes.high) ** 0.5) / held
    return GlueShape(WORKER_TYPE, min(MOST_WORKERS, ceil(dpus / DPUS[WORKER_TYPE]) + 1 or 2))


def in_words(length_seconds: float) -> str:
    """ "6 h 58 min", "10 h", "4 min", "20 s"."""
    if length_seconds < 59.5:
        return f"{ceil(length_seconds)} s"
    hours, minutes = divmod(ceil(length_seconds / 60), 60)
    return " ".join(f"{number} {unit}" for number, unit in ((hours, "h"), (minutes, "min")) if number)
