"""A small paid sample: what the items are like that a run will find, and what the command would write for them.

Some pages from all over the table are read whole, through the run's own filter, and given to the command itself, so
that also a user's map is priced by what it makes. Nothing is written.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil, inf
from random import Random
from typing import Final

import msgspec

from bulkexec import errors
from bulkexec.command import Command
from bulkexec.extrapolate import Sample, SampledItem, SampledPage
from bulkexec.forecast import UNSEEN_DESTINATION, TypedItem, Units, added, units_of
from bulkexec.item_size import item_size_bytes
from bulkexec.lookup import fetch_items
from bulkexec.model import Index, Page, Segment, Table, Work
from bulkexec.reader import PageSource
from bulkexec.segments import MAX_SEGMENTS
from bulkexec.units import READ_UNIT_BYTES, TABLE, Span
from bulkexec.wire import Retrying
from bulkexec.writes import Move, Put, Write

PAGES: Final = 32
"""Segments that are read from: enough for the variance between them to mean something."""

PAGE_ITEMS: Final = 32
PAGE_READ_BYTES: Final = 256 * 1024
"""A page has no more items than fit in here, so that a sample of 400 KB items does not read 400 MB."""

WHOLE_ITEMS: Final = 1024
WHOLE_BYTES: Final = 4 * 1024 * 1024
"""A table no larger than this is read whole: it costs no more than a sample, and nothing is left to guess."""

MOST_SEGMENTS: Final = 64
"""Up to so many, the segments of the plan itself are walked, whose pages round up as those of the run will."""

COLLECTION_ITEMS: Final = 1000

CAPACITY_SECONDS: Final = 4.0
"""A sample takes no more of a table's limited capacity than this many seconds of it: others live from it too."""


Look = Callable[[Sequence[msgspec.Raw]], tuple[list[msgspec.Raw], float]]
"""Gives the items that are there under the keys of these, and the read units of looking."""


def read_whole(work: Work) -> Work:
    """How a sample's pages are read: the run's items, with all of their attributes."""
    return replace(work, projection=(), count_only=False)


def look_at(calls: Retrying, table: Table) -> Look:
    """Looks at what a table has."""
    return lambda keyed: fetch_items(calls, table, keyed, consistent=False)


def take_sample(
    source: PageSource, work: Work, command: Command, segments: int, look: Look, keys: int | None = None
) -> Sample:
    """Read a sample for a run of `command` in `segments`. Costs about 30 read units, at most some thousands.

    `source` reads pages of `read_whole(work)`; of a list it is told how many `keys` there are. `look` sees the table
    that puts go to, because a put over an item costs more than one over nothing. Raises the user's errors of reading.
    """
    sampling = _Sampling(source, work, command, look, _allowance(_read_from(work)), _allowance(work.writes_to))
    pages, total = _pages(sampling, segments) if keys is None else _pages_of_list(sampling, keys)
    unseen = f"what is in {work.writes_to.name} already could not be looked at, so writes to it are a range"
    clustered = len(work.scope.table.keys) > 1 or bool(work.index)
    remarks = (unseen,) if sampling.unseen else ()
    return Sample(tuple(pages), total, sampling.read_units, work.consistent, clustered, remarks)


def _pages(sampling: "_Sampling", segments: int) -> tuple[list[SampledPage], int]:
    """(pages, TotalSegments). As many segments as there are pages of items, so that most are read to their end: of
    what is behind the first page of a longer one nothing is known."""
    work = sampling.work
    if work.scope.pinned:
        return [sampling.first(Segment(0, 1), COLLECTION_ITEMS)], 1
    table, place = work.scope.table, _read_from(work)
    same = min(segments, MOST_SEGMENTS)
    affordable = place.size_bytes / READ_UNIT_BYTES + same <= sampling.allowance
    if place.item_count <= WHOLE_ITEMS and 0 < place.size_bytes <= WHOLE_BYTES and affordable:
        return [sampling.to_the_end(Segment(number, same)) for number in range(same)], same
    if not (place.item_count and place.size_bytes):
        return _pages_of_unknown(sampling, same)
    total = max(PAGES, min(MAX_SEGMENTS, place.item_count // PAGE_ITEMS))
    mean_bytes = max(1, place.size_bytes // place.item_count)
    most_bytes = min(PAGE_READ_BYTES, sampling.allowance * READ_UNIT_BYTES / PAGES)
    limit = max(2, min(2 * PAGE_ITEMS, int(most_bytes // mean_bytes)))
    return sampling.some(_chosen(total, table), total, limit), total


def _read_from(work: Work) -> Table | Index:
    """The table, or the index that is read in its place."""
    return next((index for index in work.scope.table.indexes if index.name == work.index), work.scope.table)


def _allowance(place: Table | Index) -> float:
    """Read units that a sample may take from what has a limit; on demand, without a maximum, as many as it needs."""
    on_demand = place.max_read_request_units if isinstance(place, Table) else 0
    limits = [limit for limit in (place.read_capacity, on_demand) if limit > 0]
    return max(1.0, min(limits) * CAPACITY_SECONDS) if limits else inf


def _pages_of_list(sampling: "_Sampling", keys: int) -> tuple[list[SampledPage], int]:
    """Stretches from all over a list of keys; all of a short one."""
    total = ceil(keys / PAGE_ITEMS)
    numbers = takewhile(lambda _: not sampling.spent, _chosen(total, sampling.work.scope.table))
    return [sampling.stretch(number * PAGE_ITEMS, PAGE_ITEMS) for number in numbers], total


def _pages_of_unknown(sampling: "_Sampling", segments: int) -> tuple[list[SampledPage], int]:
    """Of a table whose size is not known: finer and finer segments, until they are read to their end."""
    total, table = segments, sampling.work.scope.table
    while True:
        numbers = _chosen(total, table) if total > MOST_SEGMENTS else range(total)
        pages = sampling.some(numbers, total, 2 * PAGE_ITEMS)
        if all(page.complete for page in pages) or total == MAX_SEGMENTS or sampling.spent:
            return pages, total
        total = min(MAX_SEGMENTS, total * PAGES)


def _chosen(total: int, table: Table) -> list[int]:
    """Segments from all over the hash space, one from each part of it; the same ones each time."""
    chance = Random(f"{table.id}/{total}")
    parts = min(PAGES, total)
    return [chance.randrange(part * total // parts, (part + 1) * total // parts) for part in range(parts)]


@dataclass
class _Sampling:
    """One sample being taken; `read_units` is what it has cost so far, also in pages that are not kept.

    It ends when it has cost its `allowance`, and looks no more when `looked_units` are `look_allowance`.
    """

    source: PageSource
    work: Work
    command: Command
    look: Look
    allowance: float = inf
    look_allowance: float = inf
    read_units: float = 0.0
    looked_units: float = 0.0
    unseen: bool = False

    @property
    def spent(self) -> bool:
        """Whether no more may be read."""
        return self.read_units - self.looked_units >= self.allowance

    def some(self, numbers: Iterable[int], total: int, limit: int) -> list[SampledPage]:
        """The first pages of these segments, as many as may be read."""
        return [self.first(Segment(number, total), limit) for number in takewhile(lambda _: not self.spent, numbers)]

    def first(self, segment: Segment, limit: int | None) -> SampledPage:
        """The first page of a segment."""
        return self._read(segment, None, limit)[0]

    def stretch(self, line: int, count: int) -> SampledPage:
        """So many keys of a list from a line on; it ends where it was meant to end."""
        start = msgspec.json.encode({"line": {"N": str(line)}}) if line else None
        return self._read(Segment(0, 1), start, count)[0]._replace(complete=True)

    def to_the_end(self, segment: Segment) -> SampledPage:
        """All pages of a segment as one, without Limit, as a run that nothing holds back reads them."""
        whole, start = self._read(segment, None, None)
        while start is not None:
            more, start = self._read(segment, start, None)
            whole = SampledPage(
                whole.scanned + more.scanned,
                whole.matched + more.matched,
                whole.read_units + more.read_units,
                more.complete,
                whole.items + more.items,
            )
        return whole

    def _read(self, segment: Segment, start: bytes | None, limit: int | None) -> tuple[SampledPage, bytes | None]:
        page = self.source.page(segment, start, limit, lambda reasons: None, lambda: False)
        self.read_units += page.read_units
        items = (*self._priced(page.items), *self._of_nothing(page.matched - len(page.items)))
        complete = page.last_evaluated_key is None
        return SampledPage(page.scanned, page.matched, page.read_units, complete, items), page.last_evaluated_key

    def _priced(self, items: Sequence[msgspec.Raw]) -> Iterator[SampledItem]:
        """Every item with the units of what the command would write for it."""
        made = [self._writes(raw) for raw in items]
        there = self._there([put for writes in made for put in map(_put_of, writes) if put is not None])
        for raw, writes in zip(items, made, strict=True):
            item: TypedItem = msgspec.json.decode(raw)
            units: Units = {}
            for write in writes:
                units = added(units, units_of(write, item, self._under(write, there), self.work))
            yield SampledItem(item_size_bytes(item), units)

    def _of_nothing(self, missing: int) -> Iterator[SampledItem]:
        """Keys of a list whose items are gone: a delete that reads nothing first is sent for them too, for a unit."""
        blind = self.work.keys and self.work.projection == self.work.scope.table.key_names and not self.work.guarded
        units: Units = {(self.work.scope.table.arn, TABLE): Span(1.0, 1.0)} if blind else {}
        return (SampledItem(0, units) for _ in range(missing))

    def _writes(self, raw: msgspec.Raw) -> list[Write]:
        """What the command would write for one item, which it sees as it would in the run."""
        names = self.work.projection
        if names:
            whole = _attributes.decode(raw)
            raw = msgspec.Raw(msgspec.json.encode({name: whole[name] for name in names if name in whole}))
        return self.command.page(Page([raw], 1, 1, 0.0, None), self.work).writes

    def _there(self, puts: Sequence[Put]) -> dict[bytes, TypedItem] | None:
        """What is under the keys of these puts already; None when that is not to be seen."""
        self.unseen = self.unseen or self.looked_units >= self.look_allowance
        if not puts or self.unseen:
            return None
        try:
            found, units = self.look([put.item for put in puts])
        except errors.AccessDenied:
            self.unseen = True
            return None
        self.read_units += units
        self.looked_units += units
        items: list[TypedItem] = [msgspec.json.decode(raw) for raw in found]
        return {self._key(item): item for item in items}

    def _under(self, write: Write, there: dict[bytes, TypedItem] | None) -> TypedItem | None:
        put = _put_of(write)
        if put is None:
            return None
        return UNSEEN_DESTINATION if there is None else there.get(self._key(msgspec.json.decode(put.item)))

    def _key(self, item: TypedItem) -> bytes:
        names = self.work.writes_to.key_names
        return msgspec.json.encode({name: item[name] for name in names}, order="deterministic")


_attributes = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _put_of(write: Write) -> Put | None:
    return write.put if isinstance(write, Move) else write if isinstance(write, Put) else None
