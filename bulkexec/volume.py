"""How much a run reads and writes: from what DescribeTable says, and from a sample where one was taken. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, Literal

from bulkexec.extrapolate import Expected, Place, Sample, together
from bulkexec.model import Index, Table, Work
from bulkexec.plan import Options
from bulkexec.reading import Walk, page_items
from bulkexec.units import NOTHING, TABLE, Span, lookups_span, write_units, writes_span

Kind = Literal["", "delete", "put", "update", "move"]
"""What is written for each item that the filter finds; empty: nothing."""


NO_WRITES: Final = Expected(0.0, NOTHING)


@dataclass(frozen=True)
class Volume:
    """Items and units of one run. None is "not known". `writes` is by place; `sampled` when it rests on a sample."""

    reads: Expected
    matching: Expected | None = None
    writes: Mapping[Place, Expected] = field(default_factory=dict)
    written: Expected = NO_WRITES
    sampled: bool = False

    def written_to(self, table: Table) -> Expected:
        """Write units of one table and its indexes."""
        return together([units for (arn, _), units in self.writes.items() if arn == table.arn])


@dataclass(frozen=True)
class Basis:
    """All that a volume is worked out from. `keys` is how many keys a list has; `slots` how many threads walk."""

    table: Table
    work: Work
    kind: Kind
    options: Options
    segments: int
    slots: int = 4
    sample: Sample | None = None
    keys: int | None = None

    def volume(self) -> Volume | None:
        """What will be read and written; None where nothing is known of the table's size."""
        items = self._population()
        if items is None:
            return None
        matching = self._matching(items)
        writes = {place: self._written(place, items, matching) for place in self._places()}
        written = self._all_written(items, writes)
        # `engine` sizes its pages by what tables take; of their indexes it knows how far behind they are.
        base = together([units for (_, name), units in writes.items() if name == TABLE])
        # Each phase walks the same items again, and some look at each one's counterpart.
        walks = [self._reads(items, matching, base)] * max(1, len(self.work.phases))
        reads = together([*walks, *[self._looked_up(matching)] * self.work.looks])
        return Volume(reads, matching, writes, written, self._conclusive)

    # -- how many items there are --------------------------------------------------------------------------------

    @property
    def read_from(self) -> Table | Index:
        """The table, or the index that is read in its place."""
        return next((index for index in self.table.indexes if index.name == self.work.index), self.table)

    def _population(self) -> Expected | None:
        """Items that are read."""
        place = self.read_from
        if self.keys is not None:
            return _known(self.keys)
        if self.sample is not None and (self.sample.whole or not place.item_count):
            counted = self.sample.count_of_all()
            if counted is not None:
                return counted
        if not (place.item_count and place.size_bytes):
            return None
        if not self.work.scope.pinned:
            return _known(place.item_count)
        seen = float(self.sample.scanned) if self.sample is not None else 0.0
        return Expected(float(place.item_count), Span(min(seen, place.item_count), place.item_count))

    @property
    def _item_bytes(self) -> Span:
        """The mean size of what is read."""
        place, sample = self.read_from, self.sample
        if sample is not None and sample.scanned and (sample.whole or not place.item_count):
            return Span(*(size / sample.scanned for size in sample.size_bytes))
        mean = place.size_bytes / place.item_count if place.item_count else 0.0
        return Span(mean, mean)

    @property
    def _conclusive(self) -> bool:
        """Whether there is a sample from which something follows for all items."""
        return self.sample is not None and self.sample.matching(_known(1.0)) is not None

    # -- reads ---------------------------------------------------------------------------------------------------

    def _reads(self, items: Expected, matching: Expected, writes: Expected) -> Expected:
        """`writes` are those to tables, without their indexes."""
        if self.keys is not None:
            return self._looked_up(items)
        limit = self._page_items(self._threads, self._item_bytes.middle, writes.value / max(1.0, items.value))
        whole = self._walk(items.value, self._item_bytes.middle, limit)
        widest = max(limit, self._widest_page(writes.span.low / max(1.0, items.span.high)))
        value, low = whole.expected, self._walk(items.span.low, self._item_bytes.low, widest).bounds.low
        high = self._walk(items.span.high, self._item_bytes.high, self._narrowest_page).bounds.high
        exact = self._as_sampled(limit)
        if exact is not None:
            value, low = exact, min(low, exact)
        found = Expected(value, Span(min(low, value), max(high, value)))
        if self.work.lookup:
            found = together([found, self._looked_up(matching)])
        return self._cut_short(found, items, matching)

    def _as_sampled(self, limit: float) -> float | None:
        """What the walk costs when the sample was the very same walk, page by page."""
        sample = self.sample
        if sample is None or not sample.whole or sample.segments != self.segments:
            return None
        # An item collection is walked in full pages too, so what its pages cost is what they will cost.
        return sample.walk_units if all(page.scanned < limit for page in sample.pages) else None

    def _walk(self, items: float, item_bytes: float, limit: float) -> Walk:
        return Walk(items, items * item_bytes, self.segments, limit, self.work.consistent and not self.work.lookup)

    @property
    def _threads(self) -> int:
        return max(1, min(self.slots, self.segments))

    def _widest_page(self, least_units: float) -> float:
        """How many items the largest page may have: what one leads to is learned from the pages before it."""
        return 2 * self._page_items(self._threads, self._item_bytes.low, least_units)

    @property
    def _narrowest_page(self) -> float:
        """How many items the smallest page may have: when each of them is written, and in all indexes."""
        units = 0.0
        if self.kind:
            units = write_units(int(self._item_bytes.high)) * (1.0 + 2 * len(self.table.indexes))
        return self._page_items(self.slots, self._item_bytes.high, units)

    def _page_items(self, threads: int, item_bytes: float, units: float) -> float:
        return page_items(self.options, self.work, threads, item_bytes, units)

    def _looked_up(self, items: Expected) -> Expected:
        """Each item is read by its key. A list of keys is read strongly consistently."""
        if self.keys is not None and self.work.projection == self.table.key_names and not self.work.guarded:
            return _known(0.0)
        table, consistent = self.table, self.work.consistent or self.keys is not None
        mean = table.size_bytes / table.item_count if table.item_count else 0.0
        spans = [lookups_span(int(end), int(end * mean), consistent) for end in items.span]
        value, sample = (spans[0].middle + spans[1].middle) / 2, self.sample
        if self.keys is not None and sample is not None and sample.scanned:
            value = sample.walk_units / sample.scanned * self.keys
        return Expected(value, Span(min(spans[0].low, value), max(spans[1].high, value)))

    def _cut_short(self, reads: Expected, items: Expected, matching: Expected) -> Expected:
        """A cap may end the walk early; how early depends on where what matches lies."""
        whole_collection = not self.work.scope.pinned or (self.sample is not None and self.sample.whole)
        if whole_collection and not self._may_be_capped(matching):
            return reads
        least = 1.0 if self.work.consistent else 0.5
        value = max(least, reads.value * self._share_of_cap(matching))
        return Expected(min(value, reads.span.high), Span(min(least, reads.span.high), reads.span.high))

    def _share_of_cap(self, matching: Expected) -> float:
        """Which part of all that match a cap lets through."""
        cap = self.options.max_items
        return 1.0 if cap is None or not matching.value else min(1.0, cap / matching.value)

    def _may_be_capped(self, matching: Expected) -> bool:
        return self.options.max_items is not None and self.options.max_items < matching.span.high

    # -- writes --------------------------------------------------------------------------------------------------

    def _matching(self, items: Expected) -> Expected:
        found = self.sample.matching(items) if self.sample is not None else None
        if found is not None:
            return found
        if self.work.scope.filter is None and not self.work.scope.pinned:
            return items
        return Expected(items.value, Span(0.0, items.span.high))

    def _places(self) -> Iterable[Place]:
        """The tables that are written to, and their indexes."""
        if not self.kind:
            return ()
        changed = self.work.changed
        places = [(each.arn, name) for each in changed for name in (TABLE, *(index.name for index in each.indexes))]
        return dict.fromkeys((*places, *(self.sample.places() if self.sample is not None else ())))

    def _written(self, place: Place, items: Expected, matching: Expected) -> Expected:
        span = self._bounds(place, items)
        found = self._by_sample(place, items)
        if found is None:
            low = span.low if self._all_are_written else 0.0
            return Expected((low + span.high) / 2, Span(low, span.high))
        if self._all_are_written and not (self.sample is not None and self.sample.whole):
            found = Expected(found.value, found.span.within(span))
        low, high = found.span
        if self._may_be_capped(matching):
            low, high = 0.0, min(high, span.high)
        return Expected(min(high, max(low, found.value * self._share_of_cap(matching))), Span(low, high))

    def _by_sample(self, place: Place | None, items: Expected) -> Expected | None:
        """From the sample. Sizes in DescribeTable sharpen it where all items are written."""
        if self.sample is None:
            return None
        whole = self.table.item_count and self.read_from is self.table and self.keys is None
        known = self._item_bytes.middle if whole and not self.work.scope.pinned else None
        most = write_units(int(self._item_bytes.high) + 1023) * (1.0 + 2 * len(self.work.writes_to.indexes))
        return self.sample.units(place, items, known, most)

    def _all_written(self, items: Expected, writes: Mapping[Place, Expected]) -> Expected:
        """At all places. Errors of the places go together, so that of the sum is asked of the sample itself."""
        summed = together(list(writes.values()))
        found = self._by_sample(None, items) if writes else None
        if found is None or self.options.max_items is not None:
            return summed
        return Expected(summed.value, found.span.within(summed.span))

    @property
    def _all_are_written(self) -> bool:
        """Whether each item of the table is deleted as it is: then bounds from bytes alone are on both sides.

        What a map makes of an item is up to the map, and a sparse index, a filter, a list or a cap leave items out.
        """
        cap, scope = self.options.max_items, self.work.scope
        capped = cap is not None and cap < self.table.item_count
        narrowed = scope.filter is not None or scope.pinned or self.keys is not None or bool(self.work.index)
        return self.kind == "delete" and not narrowed and not capped

    def _bounds(self, place: Place, items: Expected) -> Span:
        """From counts and bytes alone, for items written as they are."""
        arn, name = place
        table = self.table if arn == self.table.arn else self.work.writes_to
        source: Table | Index = self.table
        if self.kind == "delete" and name != TABLE:
            source = next(index for index in table.indexes if index.name == name)
        count, mean = source.item_count, source.size_bytes / max(1, source.item_count)
        cap = self.options.max_items if self.options.max_items is not None else inf
        if not self.table.item_count or self.keys is not None:
            count, mean = int(items.span.high), mean or self._item_bytes.high
        span = writes_span(int(min(count, cap)), int(source.size_bytes or count * mean))
        if not self.table.item_count or self.keys is not None:
            fewest = int(min(items.span.low, cap))
            span = span._replace(low=writes_span(fewest, int(fewest * mean)).low)
        if self.kind == "delete" or (name == TABLE and self.kind == "update"):
            return span
        if self.kind == "update":  # at most every entry is taken out and put in again
            return Span(0.0, 2 * span.high)
        return self._put_bounds(table, name, span)

    def _put_bounds(self, table: Table, name: str, span: Span) -> Span:
        """Of puts, and of moves: what they land on may be larger, and is taken out of every index."""
        there = writes_span(table.item_count, table.size_bytes).high
        same = self.work.target is None
        if name == TABLE and table.arn == self.table.arn and not same:
            return span  # the deletes of a move
        high = span.high + there + (span.high if self.kind == "move" and same else 0.0)
        return Span(span.low, high) if name == TABLE else Span(0.0, span.high + high)


def _known(value: float) -> Expected:
    return Expected(float(value), Span(float(value), float(value)))
