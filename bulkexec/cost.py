"""What a run costs, before it runs: units, time and dollars, in ranges where the truth is one. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from bulkexec.dollars import (
    DPUS,
    GlueShape,
    Prices,
    added,
    glue_usd,
    metered_usd,
    per_million,
    reads_usd,
    regions,
    writes_usd,
)
from bulkexec.duration import GLUE_BYTES_PER_DPU_SECOND, LOCAL, Pace, glue_pace, in_words, limits, seconds, suggested
from bulkexec.extrapolate import Sample
from bulkexec.model import Table, Work
from bulkexec.plan import Alternative, Estimate, Options
from bulkexec.units import Span
from bulkexec.volume import Basis, Kind, Volume

__all__ = ["DPUS", "GlueShape", "Prices", "Terms", "estimate", "glue_usd", "metered_usd"]

UNKNOWN_SIZE: Final = "size not known yet (DescribeTable says 0, and may be 6 hours old): nor are units and dollars"
DEFAULTS: Final = Options()

S3_REQUEST_USD: Final = 5e-6
"""A PUT, S3 Standard in us-east-1; small enough that its region does not matter."""

LIVE_TAIL_MINUTE_USD: Final = 0.01
"""CloudWatch Logs, after 1,800 free minutes a month."""

CONTROL_WRITES_PER_SECOND: Final = Span(2, 250)
"""Leases of rates and checkpoints, from few workers to hundreds (benchmarks/README.md, "The fleet's rate limit")."""

JOB_OBJECTS: Final = 10
"""Plan, reports and lists of a job in S3."""


@dataclass(frozen=True)
class Terms:
    """What else an estimate depends on. `timeout_seconds` is when a job is stopped; `loads` when items come from files.

    `keys` is how many keys a list has, `slots` how many threads walk, `target_prices` those of the table that puts go
    to, where it is in another region or class.
    """

    kind: Kind = "delete"
    slots: int = 4
    keys: int | None = None
    sample: Sample | None = None
    timeout_seconds: float | None = None
    target_prices: Prices | None = None
    loads: bool = False


TERMS: Final = Terms()


def estimate(
    table: Table,
    work: Work,
    mutates: bool,
    prices: Prices,
    segments: int,
    glue: GlueShape | None = None,
    options: Options = DEFAULTS,
    terms: Terms = TERMS,
) -> Estimate:
    """What a run will read, write and cost, from what DescribeTable says of table and indexes and from a sample.

    `read_units` is what a walk over everything takes, whatever the filter. `write_units` are as ConsumedCapacity will
    report them: indexes included, replicas only in the dollars. Dollars are None when the table's size or a price is
    not known; provisioned capacity adds none, it is paid already.
    """
    kind: Kind = terms.kind if mutates and not options.dry_run else ""
    basis = Basis(table, work, kind, options, segments, terms.slots, terms.sample, terms.keys)
    volume = basis.volume()
    if volume is None:
        least = Span(1.0, 1.0) if work.consistent else Span(0.5, 0.5)
        return Estimate(
            least.low * segments, (0.0, 0.0), None, (UNKNOWN_SIZE,), ("everything that depends on the size",)
        )
    return _Run(basis, volume, prices, glue, terms).estimate()


@dataclass(frozen=True)
class _Run:
    """One run over a table whose size is known, in one runtime."""

    basis: Basis
    volume: Volume
    prices: Prices
    glue: GlueShape | None
    terms: Terms

    def estimate(self) -> Estimate:
        volume = self.volume
        written = volume.written
        return Estimate(
            read_units=volume.reads.value,
            write_units=written.span,
            usd=self.usd,
            notes=tuple(self.notes()),
            left_out=tuple(self.left_out()),
            reads=volume.reads.span,
            expected_writes=written.value if volume.sampled else None,
            matching=volume.matching.span if volume.matching is not None else None,
            seconds=self.seconds,
            parts=tuple(self.parts),
            sampled=self.sampled,
            alternatives=tuple(self.alternatives()),
            warnings=tuple(self.warnings()),
        )

    @property
    def pace(self) -> Pace:
        return LOCAL if self.glue is None else glue_pace(self.glue)

    @property
    def seconds(self) -> Span:
        return seconds(self.volume, self.basis, self.pace)

    # -- dollars -------------------------------------------------------------------------------------------------

    @property
    def usd(self) -> tuple[float, float] | None:
        """All parts together."""
        spans = [span for _, span in self.parts]
        low = added(*(None if span is None else span[0] for span in spans))
        high = added(*(None if span is None else span[1] for span in spans))
        return None if low is None or high is None else (low, high)

    @property
    def parts(self) -> list[tuple[str, tuple[float, float] | None]]:
        """Dollars by what they are for; what costs nothing here is left out."""
        reads = self.volume.reads.span
        table = self.basis.table
        parts = [("reads", _both(*(reads_usd(end, table, self.prices) for end in reads)))]
        if self.basis.kind:
            parts.append(("writes", self._writes_usd()))
        return parts + (self._job_parts(self.glue) if self.glue is not None else [])

    def _writes_usd(self) -> tuple[float, float] | None:
        changed = self.basis.work.changed
        # The range of all places together is narrower than the sum of their ranges.
        spans = [
            self.volume.written.span if len(changed) == 1 else self.volume.written_to(each).span for each in changed
        ]
        ends = [
            [writes_usd(span[end], each, self._prices_of(each)) for each, span in zip(changed, spans, strict=True)]
            for end in (0, 1)
        ]
        return _both(added(*ends[0]), added(*ends[1]))

    def _prices_of(self, table: Table) -> Prices:
        return self.prices if table.arn == self.basis.table.arn else self.terms.target_prices or self.prices

    def _job_parts(self, glue: GlueShape) -> list[tuple[str, tuple[float, float] | None]]:
        """What a job costs beside the table's units."""
        times, segments = self.seconds, self.basis.segments
        dpus = glue.dpus
        of_glue = [None if dpus is None else glue_usd(dpus * time / 3600, glue.flex, self.prices) for time in times]
        writes = [2 * segments + rate * time for rate, time in zip(CONTROL_WRITES_PER_SECOND, times, strict=True)]
        control = [per_million(units, self.prices.write_per_million) for units in writes]
        files = JOB_OBJECTS + (2 * segments if self.basis.options.results else 0)
        return [
            ("Glue", _both(*of_glue)),
            ("control table", _both(*control)),
            ("S3 requests", (JOB_OBJECTS * S3_REQUEST_USD, files * S3_REQUEST_USD)),
            ("Live Tail", (0.0, times.high / 60 * LIVE_TAIL_MINUTE_USD)),
        ]

    # -- ways to run it ------------------------------------------------------------------------------------------

    def alternatives(self) -> Iterator[Alternative]:
        """The same work in every runtime, the planned one marked. Phases run in this process only."""
        if self.basis.work.phases:
            return
        fitting = suggested(self.volume, self.basis)
        deployed = self.glue or fitting
        yield self._alternative("this process", None, "runs as long as this client does")
        standard, flex = replace(deployed, flex=False), replace(deployed, flex=True)
        yield self._alternative(_named(standard), standard, "goes on without this client")
        yield self._alternative(_named(flex), flex, "spare capacity: may start late, may be interrupted and resumed")
        if replace(fitting, flex=deployed.flex) != deployed:
            yield self._alternative(_named(fitting), fitting, "as many workers as these rates keep busy")
        if self.terms.loads:
            yield Alternative("native bulk put", None, None, "its price is not known; puts only, no global tables")

    def _alternative(self, name: str, glue: GlueShape | None, note: str) -> Alternative:
        run = replace(self, glue=glue)
        return Alternative(name, run.seconds, run.usd, note, chosen=glue == self.glue)

    # -- words ---------------------------------------------------------------------------------------------------

    @property
    def sampled(self) -> str:
        """What was read for this estimate, and what that cost."""
        sample = self.terms.sample
        if sample is None:
            return ""
        usd = reads_usd(sample.read_units, self.basis.table, self.prices)
        cost = "at an unknown price" if usd is None else f"${usd:.6f}" if usd else "paid already"
        found = f"{sample.matched:,} of {sample.scanned:,} items match"
        what = "all items were read" if sample.whole else f"{len(sample.pages)} pages were read"
        return f"{what}, {found}; {sample.read_units:,.1f} read units, {cost}"

    def warnings(self) -> Iterator[str]:
        """What the user should act on."""
        timeout = self.terms.timeout_seconds
        if self.glue is not None and timeout and self.seconds.high > timeout:
            least = "takes at least" if self.seconds.low > timeout else "may take up to"
            longest = self.seconds.low if self.seconds.low > timeout else self.seconds.high
            yield (
                f"the run {least} {in_words(longest)}, longer than the job's timeout of {in_words(timeout)}; "
                "it can be resumed then"
            )

    def notes(self) -> Iterator[str]:
        """What the numbers rest on."""
        yield f"prices: {self.prices.source}"
        yield from self._read_notes()
        if self.basis.kind:
            yield from self._write_notes()
        yield from self._capacity_notes()
        if self.glue is not None:
            yield self._glue_note(self.glue)
        if self.usd is None:
            missing = ", ".join(name for name, span in self.parts if span is None)
            yield f"dollars are not known, because a price is not: {missing}"
        yield from self.terms.sample.remarks if self.terms.sample is not None else ()

    def _read_notes(self) -> Iterator[str]:
        sample, cap = self.terms.sample, self.basis.options.max_items
        if self.basis.work.scope.pinned and not (sample is not None and sample.whole):
            yield "one item collection is read; its size is not known, at most all of the table"
        elif cap is not None and self.volume.matching is not None and cap < self.volume.matching.span.high:
            yield "the run may stop at its cap of items before all of the table is read"

    def _write_notes(self) -> Iterator[str]:
        if not self.volume.sampled:
            yield "each write rounds up to 1 KB by itself and only totals are known, so units are a range"
            if self.basis.kind != "delete":
                yield "items are taken to keep their size; what changes in indexes is not known without a sample"
        elif self.terms.sample is not None and not self.terms.sample.whole:
            yield "the range of writes is that of the sample, with 99 % confidence"
        if any(table.indexes for table in self.basis.work.changed):
            yield "indexes included: one write for each entry"
        for table in self.basis.work.changed:
            if regions(table) > 1:
                yield f"global table: dollars are for {regions(table)} regions, at the prices of {table.region}"

    def _capacity_notes(self) -> Iterator[str]:
        if self.basis.table.billing == "provisioned":
            yield "provisioned: capacity is already paid, reads and writes add nothing"
        free = replace(
            self.basis.options,
            read_rate=None,
            write_rate=None,
            index_rates={},
            target_write_rate=None,
            target_index_rates={},
        )
        unlimited = replace(self.basis, options=free)
        for units, capacity, doing in limits(self.volume, unlimited):
            yield f"{doing} at all of its capacity takes {_up_to(units)}{in_words(units.high / capacity)}"

    def _glue_note(self, glue: GlueShape) -> str:
        if glue.dpus is None:
            return f"Glue: the size of worker type {glue.worker_type} is not known"
        slow, fast = (speed / 1e6 for speed in GLUE_BYTES_PER_DPU_SECOND)
        hours = Span(*(glue.dpus * time / 3600 for time in self.seconds))
        return (
            f"Glue: {hours} DPU-hours, assuming 1 min to start and {slow:g} to {fast:g} MB/s a DPU "
            "unless a rate is lower"
        )

    def left_out(self) -> Iterator[str]:
        """What the numbers do not contain."""
        yield "S3 storage, logs" if self.glue is not None else "S3 requests and storage, logs"
        if not self.basis.kind:
            return
        if self.basis.kind == "delete" and not self.volume.sampled:
            for index in self.basis.table.indexes:
                if not (index.item_count and index.size_bytes):
                    yield f"writes to index {index.name} (DescribeTable says it is empty)"
        yield "streams and what consumes them"


def _both(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _named(glue: GlueShape) -> str:
    return f"Glue {'flex' if glue.flex else 'standard'}, {glue.workers} x {glue.worker_type}"


def _up_to(units: Span) -> str:
    return "" if units.low == units.high else "up to "
