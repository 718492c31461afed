"""From a sample of items to all of them: the likeliest total, and the range it lies in with 99 % confidence. Pure.

A sample is some pages, so items of one page count as a cluster: variance is that between pages (W. G. Cochran,
Sampling Techniques, ratio estimator of clusters, 9.7, with the regression estimator of 7.1 where sizes are known).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final, NamedTuple

from bulkexec.units import READ_UNIT_BYTES, Span

CONFIDENCE_Z: Final = 2.576
"""Of the normal distribution, two-sided 99 %."""

UNSEEN: Final = 5.3
"""What is not among n items has a share of at most 5.3/n: 0.995 = 1 - (1 - share)^n."""

FEWEST_PAGES: Final = 5
"""From fewer pages nothing is concluded about all of them."""

Place = tuple[str, str]
"""What units are charged to: the ARN of a table, and `units.TABLE` or the name of one of its indexes."""


class Expected(NamedTuple):
    """The likeliest number and the range around it."""

    value: float
    span: Span


class SampledItem(NamedTuple):
    """An item that the filter found: its size, and the units of what the command would write for it."""

    size_bytes: int
    units: Mapping[Place, Span]


class SampledPage(NamedTuple):
    """One segment of the sample, or of an item collection its first pages. `complete` when its end was reached."""

    scanned: int
    matched: int
    read_units: float
    complete: bool
    items: tuple[SampledItem, ...]


@dataclass(frozen=True)
class Sample:
    """Items read to estimate from. `segments` is TotalSegments of the sample (1 for an item collection).

    `read_units` is what all of it cost. `clustered` when neighbours are alike: items that share a partition key.
    """

    pages: tuple[SampledPage, ...]
    segments: int
    read_units: float
    consistent: bool = False
    clustered: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def scanned(self) -> int:
        """Items that were read."""
        return sum(page.scanned for page in self.pages)

    @property
    def matched(self) -> int:
        """Items that the filter found."""
        return sum(page.matched for page in self.pages)

    @property
    def whole(self) -> bool:
        """Whether nothing was left out, so that all is known exactly."""
        return len(self.pages) == self.segments and all(page.complete for page in self.pages)

    @property
    def walk_units(self) -> float:
        """Read units of the pages themselves."""
        return sum(page.read_units for page in self.pages)

    @property
    def size_bytes(self) -> Span:
        """How many bytes were read. Of items that the filter found the size is known, of others what they cost."""
        if self.scanned == self.matched == sum(len(page.items) for page in self.pages):
            known = float(sum(item.size_bytes for page in self.pages for item in page.items))
            return Span(known, known)
        blocks = self.walk_units if self.consistent else 2 * self.walk_units
        return Span(max(0.0, blocks - len(self.pages)) * READ_UNIT_BYTES, blocks * READ_UNIT_BYTES)

    def count_of_all(self) -> Expected | None:
        """How many items there are, from how many are in each segment; None when segments are too large to tell."""
        if self.whole:
            return _exact(self.scanned)
        if len(self.pages) < FEWEST_PAGES or not all(page.complete for page in self.pages):
            return None
        counts = [page.scanned for page in self.pages]
        mean = sum(counts) / len(counts)
        variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1) / len(counts)
        margin = _quantile(len(counts)) * sqrt(variance * (1 - len(counts) / self.segments))
        low = max(float(self.scanned), self.segments * (mean - margin))
        return Expected(self.segments * mean, Span(low, max(low, self.segments * (mean + margin))))

    def matching(self, population: Expected) -> Expected | None:
        """How many of all items the filter finds."""
        return self._scaled([[1.0] * page.matched for page in self.pages], population, None, 1.0)

    def units(
        self, place: Place | None, population: Expected, mean_bytes: float | None, most: float
    ) -> Expected | None:
        """Write units for all items, at one place or (None) at all of them. None when the sample is too small to say.

        `population` is how many items there are, `mean_bytes` their mean size where that is known; `most` what one that
        is unlike all of the sample may cost.
        """

        def pick(end: Callable[[Span], float]) -> list[list[float]]:
            return [[_at(item, place, end) for item in page.items] for page in self.pages]

        lows, highs = pick(lambda span: span.low), pick(lambda span: span.high)
        most = max((units for page in highs for units in page), default=most)
        low = self._scaled(lows, population, mean_bytes, most)
        high = low if lows == highs else self._scaled(highs, population, mean_bytes, most)
        if low is None or high is None:
            return None
        return Expected((low.value + high.value) / 2, Span(low.span.low, max(low.span.high, high.span.high)))

    def places(self) -> tuple[Place, ...]:
        """Every place that a sampled write is charged to."""
        return tuple(sorted({place for page in self.pages for item in page.items for place in item.units}))

    def _scaled(
        self, values: list[list[float]], population: Expected, mean_bytes: float | None, most: float
    ) -> Expected | None:
        """`values` by page, those of items that the filter did not find left out: they are 0."""
        total = sum(map(sum, values))
        if self.whole:
            return _exact(total)
        if len(self.pages) < FEWEST_PAGES or not self.scanned:
            return None
        fit = _Fit(values, [[item.size_bytes for item in page.items] for page in self.pages], self, mean_bytes)
        left_out = max(0.0, 1 - self.scanned / max(population.value, self.scanned))
        margin = _quantile(len(values)) * fit.error * sqrt(left_out) + self._unseen * most * left_out
        low = max(total, population.span.low * (fit.mean - margin))
        high = max(low, population.span.high * (fit.mean + margin))
        return Expected(min(high, max(low, population.value * fit.mean)), Span(low, high))

    @property
    def _unseen(self) -> float:
        """The largest share that something may have of which the sample has nothing."""
        witnesses = sum(page.scanned > 0 for page in self.pages) if self.clustered else self.scanned
        return min(1.0, UNSEEN / witnesses)


class _Fit:
    """Mean of a value over all items, corrected by their mean size, and the standard error of that."""

    def __init__(
        self, values: list[list[float]], sizes: list[list[int]], sample: Sample, mean_bytes: float | None
    ) -> None:
        scanned = [page.scanned for page in sample.pages]
        count = sum(scanned)
        mean = sum(map(sum, values)) / count
        slope = 0.0
        if mean_bytes is not None and sum(map(len, values)) == count == sum(map(len, sizes)):
            slope = _slope(values, sizes)
        size_mean = sum(map(sum, sizes)) / count
        residuals = [
            sum(value) - mean * items - slope * (sum(size) - size_mean * items)
            for value, size, items in zip(values, sizes, scanned, strict=True)
        ]
        pages = len(values)
        self.mean = mean + slope * ((mean_bytes or size_mean) - size_mean)
        self.error = sqrt(pages / (pages - 1) * sum(residual**2 for residual in residuals)) / count


def _slope(values: list[list[float]], sizes: list[list[int]]) -> float:
    """Least squares: units by byte."""
    pairs = [pair for value, size in zip(values, sizes, strict=True) for pair in zip(size, value, strict=True)]
    size_mean = sum(size for size, _ in pairs) / len(pairs)
    value_mean = sum(value for _, value in pairs) / len(pairs)
    spread = sum((size - size_mean) ** 2 for size, _ in pairs)
    return sum((size - size_mean) * (value - value_mean) for size, value in pairs) / spread if spread else 0.0


def _at(item: SampledItem, place: Place | None, end: Callable[[Span], float]) -> float:
    if place is None:
        return sum(map(end, item.units.values()))
    return end(item.units[place]) if place in item.units else 0.0


def _exact(value: float) -> Expected:
    return Expected(value, Span(value, value))


def _quantile(pages: int) -> float:
    """Student's t for two-sided 99 % with one degree of freedom less than pages (Cornish-Fisher expansion)."""
    z, freedom = CONFIDENCE_Z, pages - 1
    if freedom < 1:
        return inf
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def together(parts: Sequence[Expected]) -> Expected:
    """Several numbers together."""
    return Expected(
        sum(part.value for part in parts),
        Span(sum(part.span.low for part in parts), sum(part.span.high for part in parts)),
    )
