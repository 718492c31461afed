"""Client CPU per item: boto3, bulkexec and the floor, one after another in one process on one core."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import boto3

from benchmarks import boto3_way, floor
from benchmarks.boto3_way import Over
from benchmarks.cases import CASES, TABLE, Case
from benchmarks.endpoint import VARIANTS, Endpoint, Variant, running
from bulkexec.engine import IN_FLIGHT, run_segments
from bulkexec.runtimes.assembly import THREADS
from bulkexec.wire import HttpWire, Wire

SECONDS = 0.7
"""Wall time of one measurement."""
ROUNDS = 2
"""Measurements of each way, alternating; the one with the least CPU counts, as others only ever add to it."""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_DEFAULT_REGION": TABLE.region,
    "AWS_EC2_METADATA_DISABLED": "true",
}

Way = Callable[[Over], int]


@dataclass(frozen=True)
class Measured:
    """CPU (user and system) and wall time of some items."""

    items: int
    cpu_seconds: float
    wall_seconds: float

    def __add__(self, other: "Measured") -> "Measured":
        """Both done to each item; as for the number of items of `other`."""
        share = other.items / self.items
        return Measured(
            other.items, self.cpu_seconds * share + other.cpu_seconds, self.wall_seconds * share + other.wall_seconds
        )

    @property
    def cpu_us_per_item(self) -> float:
        return self.cpu_seconds / self.items * 1e6

    @property
    def items_per_second(self) -> float:
        return self.items / self.wall_seconds


@dataclass(frozen=True)
class Row:
    """One case in one variant."""

    case: Case
    variant: Variant
    boto3: Measured
    ours: Measured
    floor: Measured
    boto3_keys: Measured | None = None
    """boto3 with a projection of the keys, where that is what bulkexec reads."""

    @property
    def share_of_boto3(self) -> float:
        return self.ours.cpu_us_per_item / self.boto3.cpu_us_per_item

    @property
    def times_floor(self) -> float:
        return self.ours.cpu_us_per_item / self.floor.cpu_us_per_item

    @property
    def allowed(self) -> bool:
        """Whether it is within what issue 3 allows."""
        return self.share_of_boto3 <= self.case.at_most


def measure_all(
    tls: bool, cases: Sequence[Case] = CASES, variants: Sequence[Variant] = VARIANTS, seconds: float = SECONDS
) -> Iterator[Row]:
    """Every case in every variant; without `tls` those that need it are left out."""
    for variant in variants:
        if tls or not variant.tls:
            with running(variant) as endpoint:
                yield from _measure_variant(cases, variant, endpoint, seconds)


def _measure_variant(cases: Sequence[Case], variant: Variant, endpoint: Endpoint, seconds: float) -> Iterator[Row]:
    os.environ.update(ENVIRONMENT, AWS_ENDPOINT_URL_DYNAMODB=endpoint.url, AWS_CA_BUNDLE=endpoint.certificate)
    if not endpoint.certificate:
        del os.environ["AWS_CA_BUNDLE"]
    session = boto3.Session(region_name=TABLE.region)
    table, wire = session.resource("dynamodb").Table(TABLE.name), HttpWire(session, TABLE.region, THREADS + IN_FLIGHT)
    for case in cases:
        yield _measure_case(case, variant, endpoint, table, wire, seconds)


def _measure_case(case: Case, variant: Variant, endpoint: Endpoint, table: Any, wire: Wire, seconds: float) -> Row:
    requests = floor.requests_of_a_page(case, wire)
    ways: list[Callable[[], Measured]] = [
        lambda: _boto3(case, case.read, table, seconds),
        lambda: measure(lambda over: _ours(case, wire, over), seconds),
        lambda: _floor(endpoint, requests, seconds / 2),
    ]
    if case.keys_only:
        ways.append(lambda: _boto3(case, boto3_way.scan_keys, table, seconds / 2))
    best: list[Measured] = []
    for _ in range(ROUNDS):
        measured = [way() for way in ways]
        best = [min(pair, key=lambda one: one.cpu_us_per_item) for pair in zip(best or measured, measured, strict=True)]
    return Row(case, variant, *best)


def _boto3(case: Case, read: Callable[[Any, Over], int], table: Any, seconds: float) -> Measured:
    write = case.write
    if write is None:
        return measure(lambda over: read(table, over), seconds)
    items = boto3_way.page(table, keys_only=case.keys_only)
    return measure(lambda over: read(table, over), seconds / 3) + measure(
        lambda over: write(table, over, items), seconds
    )


def _floor(endpoint: Endpoint, requests: list[bytes], seconds: float) -> Measured:
    with floor.connected(endpoint, IN_FLIGHT if len(requests) > 1 else THREADS) as connections:
        return measure(lambda over: floor.replay(connections, requests, over), seconds)


def _ours(case: Case, wire: Wire, over: Over) -> int:
    run = case.run(wire, over)
    return sum(record.counts.scanned for record in run_segments(run, range(run.plan.segments)))


def measure(way: Way, seconds: float) -> Measured:
    """Let a way work for some seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    items = way(lambda: time.perf_counter() - wall > seconds)
    return Measured(items, time.process_time() - cpu, time.perf_counter() - wall)


def table(rows: list[Row]) -> str:
    """The rows for people, in Markdown."""
    lines = [
        "| case | endpoint | boto3 µs | bulkexec µs | of boto3 | allowed | floor µs | of floor | items/s a process |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        keys = f" ({row.boto3_keys.cpu_us_per_item:.0f})" if row.boto3_keys else ""
        share = f"1/{1 / row.share_of_boto3:.0f}" + ("" if row.allowed else " **missed**")
        cells = (
            row.case.name,
            str(row.variant),
            f"{row.boto3.cpu_us_per_item:.1f}{keys}",
            f"{row.ours.cpu_us_per_item:.2f}",
            share,
            f"1/{1 / row.case.at_most:.0f}",
            f"{row.floor.cpu_us_per_item:.2f}",
            f"{row.times_floor:.1f}",
            f"{row.ours.items_per_second:,.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def entries(rows: list[Row]) -> list[dict[str, Any]]:
    """The rows as results.json has them; the case `floor` is that of a scan."""
    scans = [replace(row, ours=row.floor) for row in rows if row.case.name == "scan"]
    named = [(row.case.name, row) for row in rows] + [("floor", row) for row in scans]
    return [
        {
            "name": name,
            "variant": str(row.variant),
            "cpu_us_per_item": round(row.ours.cpu_us_per_item, 3),
            "items_per_second": round(row.ours.items_per_second),
            "ratio_to_boto3": round(row.share_of_boto3, 5),
            "ratio_to_floor": round(row.times_floor, 2),
            "boto3_cpu_us_per_item": round(row.boto3.cpu_us_per_item, 2),
            "floor_cpu_us_per_item": round(row.floor.cpu_us_per_item, 3),
            "boto3_keys_only_cpu_us_per_item": round(row.boto3_keys.cpu_us_per_item, 2) if row.boto3_keys else None,
        }
        for name, row in named
    ]
