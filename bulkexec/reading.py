"""Read units of walking a table, an index or an item collection, before it is walked. Pure.

Every page rounds up to 4 KB by itself and an empty segment costs a unit too: small tables cost more than their bytes.
"""

from dataclasses import dataclass
from math import ceil, erf, exp, floor, inf, lgamma, log, sqrt
from typing import Final

from bulkexec.model import Work
from bulkexec.plan import Options
from bulkexec.units import ITEM_LIMIT_BYTES, READ_UNIT_BYTES, Span

PAGE_BYTES: Final = 1024 * 1024
"""A page ends with the item that would go past it (developer guide, "Paginating table query results")."""

LOOKUP_ITEMS: Final = 250.0
CAP_SHARES: Final = 8
"""Of an index whose items are fetched, `reader` reads so many entries a page; under a cap, `run` an eighth of it."""

SIZE_SPREAD: Final = 0.5
"""Standard deviation of item sizes as a share of their mean, where nothing is known of it."""

SMOOTH_BLOCKS: Final = 30.0
"""From so many blocks on, what rounding up adds is half a block whatever the spread."""

POISSON_ITEMS: Final = 50.0
"""Up to so many items a segment, how many each one has is reckoned with, beyond that their mean."""


@dataclass(frozen=True)
class Walk:
    """What is walked: items of together `size_bytes` in `segments`, on pages of at most `page_items`."""

    items: float
    size_bytes: float
    segments: int
    page_items: float = inf
    consistent: bool = False

    @property
    def expected(self) -> float:
        """The likeliest units."""
        return self._units(self.segments * self._segment_blocks())

    @property
    def bounds(self) -> Span:
        """Least and most units, however items and sizes are spread over the segments."""
        bytes_blocks = self.size_bytes / READ_UNIT_BYTES
        by_items = self.items / self.page_items
        fewest = max(self.segments, ceil(self.size_bytes / PAGE_BYTES), ceil(by_items))
        most = self.segments + self.size_bytes // (PAGE_BYTES - ITEM_LIMIT_BYTES) + floor(by_items)
        return Span(self._units(max(fewest, bytes_blocks)), self._units(bytes_blocks + most))

    def _units(self, blocks: float) -> float:
        return blocks if self.consistent else blocks / 2

    def _segment_blocks(self) -> float:
        mean_items = self.items / self.segments
        if not mean_items:
            return 1.0
        item_blocks = self.size_bytes / self.items / READ_UNIT_BYTES
        full = max(1.0, PAGE_BYTES / READ_UNIT_BYTES / item_blocks - 0.5)
        page = _Pages(item_blocks, min(self.page_items, full), by_size=full < self.page_items)
        if mean_items > POISSON_ITEMS:
            return page.about(mean_items)
        chances = _poisson(mean_items, ceil(mean_items + 10 * sqrt(mean_items) + 10))
        return sum(chance * page.exactly(items) for items, chance in enumerate(chances))


def page_items(options: Options, work: Work, threads: int, item_bytes: float, units_per_item: float) -> float:
    """How many items a page has at most, as `engine` sizes its pages: about a second of work for one of `threads`.

    `units_per_item` are the write units that an item which is read leads to.
    """
    per_read = max(item_bytes, 64.0) / (READ_UNIT_BYTES if work.consistent else 2 * READ_UNIT_BYTES)
    writes = [rate for rate in (options.write_rate, *options.index_rates.values()) if rate]
    limits = [LOOKUP_ITEMS] if work.lookup else [inf]
    if options.max_items is not None:
        limits.append(max(1.0, options.max_items // CAP_SHARES))
    for rate, units in ((options.read_rate, per_read), (min(writes, default=None), units_per_item)):
        if rate and units > 0:
            limits.append(max(1.0, floor(rate / threads / units)))
    return min(limits)


@dataclass(frozen=True)
class _Pages:
    """The pages of one segment: `items` on each full one, which ends by its size or by Limit."""

    item_blocks: float
    items: float
    by_size: bool

    def exactly(self, items: int) -> float:
        """Expected blocks of a segment that has exactly so many items."""
        full = int(items // self.items)
        return full * (self.items * self.item_blocks + self._added) + self._blocks(items - full * self.items)

    def about(self, items: float) -> float:
        """The same around a mean: what rounding adds to its full pages and to the last one."""
        if self.items >= items + 4 * sqrt(items):
            return _rounded_up(items * self.item_blocks, self.item_blocks * sqrt(items * (1 + SIZE_SPREAD**2)))
        full = max(0.0, items / self.items - 0.5)
        return full * (self.items * self.item_blocks + self._added) + self._blocks(self.items / 2)

    @property
    def _added(self) -> float:
        """What rounding adds to a full page. One that ends by its size lacks half an item of whole blocks."""
        if self.by_size:
            return min(0.5, self.item_blocks / 2)
        return self._blocks(self.items) - self.items * self.item_blocks

    def _blocks(self, items: float) -> float:
        return _rounded_up(items * self.item_blocks, SIZE_SPREAD * self.item_blocks * sqrt(items))


def _rounded_up(blocks: float, spread: float) -> float:
    """The mean of blocks rounded up, and of at least one, that are spread normally."""
    if blocks > SMOOTH_BLOCKS:
        return blocks + 0.5
    if not spread:
        return float(max(1, ceil(blocks)))
    above = (0.5 - 0.5 * erf((edge - blocks) / spread / sqrt(2)) for edge in range(1, ceil(blocks + 8 * spread) + 1))
    return 1.0 + sum(above)


def _poisson(mean: float, most: int) -> list[float]:
    return [exp(count * log(mean) - mean - lgamma(count + 1)) for count in range(most + 1)]
