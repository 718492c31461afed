"""From units and DPU-hours to US dollars. Pure. None is "not known", never "free"."""

from dataclasses import dataclass
from typing import Final

from bulkexec.model import Counts, Table, Work
from bulkexec.plan import CostLimit

DPUS: Final[dict[str, float]] = {
    **{f"G.{size}X": size for size in (1, 2, 4, 8, 12, 16)},
    **{f"R.{size}X": size for size in (1, 2, 4, 8)},
}
"""DPUs of a Glue worker type, from the Glue developer guide."""


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
        """DPUs of all workers together."""
        return DPUS[self.worker_type] * self.workers if self.worker_type in DPUS else None


def metered_usd(counts: Counts, table: Table, prices: Prices) -> float | None:
    """Dollars for units as DynamoDB metered them, in all regions of a global table, without Glue, S3 and logs.

    0 when capacity is provisioned, because that is paid already; None when a price that is needed is not known.
    """
    return added(reads_usd(counts.read_units, table, prices), writes_usd(counts.write_units, table, prices))


def run_usd(counts: Counts, work: Work, prices: Prices, target_prices: Prices | None = None) -> float | None:
    """The same for all tables of a run.

    Where two are written to, as by a move to another table, counts do not tell them apart: the dearer price is taken.
    """
    table = work.scope.table
    writes = [writes_usd(counts.write_units, each, _of(each, work, prices, target_prices)) for each in work.changed]
    known = [each for each in writes if each is not None]
    dearest = max(known, default=0.0) if len(known) == len(writes) else None
    return added(reads_usd(counts.read_units, table, prices), dearest)


def cost_limit(
    usd: float, work: Work, prices: Prices, target_prices: Prices | None = None, glue: GlueShape | None = None
) -> CostLimit | None:
    """A limit on what a run may cost, as something that can be reckoned with where no prices are at hand.

    None when a price that it needs is not known, because then it could not be kept.
    """
    unit = [run_usd(each, work, prices, target_prices) for each in (Counts(read_units=1), Counts(write_units=1))]
    second = 0.0
    if glue is not None:
        of_glue = None if glue.dpus is None else glue_usd(glue.dpus / 3600, glue.flex, prices)
        if of_glue is None:
            return None
        second = of_glue
    read, write = unit
    return None if read is None or write is None else CostLimit(usd, read, write, second)


def _of(table: Table, work: Work, prices: Prices, target_prices: Prices | None) -> Prices:
    return prices if table.arn == work.scope.table.arn else target_prices or prices


def reads_usd(units: float, table: Table, prices: Prices) -> float | None:
    """Dollars for read units of a table."""
    return 0.0 if table.billing == "provisioned" else per_million(units, prices.read_per_million)


def writes_usd(units: float, table: Table, prices: Prices) -> float | None:
    """Dollars for write units of a table, in all of its regions."""
    if table.billing == "provisioned":
        return 0.0
    several = regions(table) > 1
    price = prices.replicated_write_per_million if several else prices.write_per_million
    return per_million(units * regions(table), price)


def glue_usd(dpu_hours: float, flex: bool, prices: Prices) -> float | None:
    """Dollars for DPU-hours; None when the price is not known."""
    price = prices.glue_flex_per_dpu_hour if flex else prices.glue_per_dpu_hour
    return None if price is None else dpu_hours * price


def regions(table: Table) -> int:
    """In how many regions each write is made. DescribeTable may or may not list the table's own among the replicas."""
    return 1 + len([region for region in table.replicas if region != table.region])


def per_million(units: float, price: float | None) -> float | None:
    """Nothing costs nothing, also where the price is not known."""
    if not units:
        return 0.0
    return None if price is None else units / 1e6 * price


def added(*sums: float | None) -> float | None:
    """The sum; not known when one of them is not."""
    known = [each for each in sums if each is not None]
    return sum(known) if len(known) == len(sums) else None
