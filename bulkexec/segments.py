"""Into how many segments a table is cut, and in which order they are walked. Pure and deterministic."""

from itertools import pairwise
from math import ceil
from random import Random
from typing import Final

from bulkexec.errors import BadArgument

MAX_SEGMENTS: Final = 1_000_000
"""TotalSegments of Scan, from the API reference."""

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""A segment's size. About 256 pages: little is lost when one is walked again, and the half unit that an empty segment
costs is nothing beside the 32,768 units that a full one does."""

SEGMENTS_PER_SLOT: Final = 4
"""Several segments for each slot, so that one slow segment does not leave the other slots idle at the end."""


def total_segments(size_bytes: int, slots: int, requested: int | None = None, *, pinned: bool = False) -> int:
    """TotalSegments for a table of `size_bytes` (0 when not known yet) walked by `slots` threads or Spark tasks.

    A pinned partition key is one Query, so one segment whatever was requested. Otherwise `requested` is honoured;
    raises BadArgument when it is not within 1 to 1,000,000.
    """
    if requested is not None and not 1 <= requested <= MAX_SEGMENTS:
        raise BadArgument(f"{requested:,} segments were asked for; DynamoDB allows 1 to {MAX_SEGMENTS:,}")
    if pinned:
        return 1
    if requested is not None:
        return requested
    return min(MAX_SEGMENTS, max(SEGMENTS_PER_SLOT * max(slots, 1), ceil(size_bytes / SEGMENT_BYTES)))


def order_of_visit(total: int, tasks: int, seed: int) -> list[list[int]]:
    """For each of `tasks` tasks the segments it walks, in order: disjoint, complete, lengths differ by at most one.

    The hash space is cut into one stripe for each task. A round takes the same offset from every stripe, so that
    segments walked at the same time are a stripe's width apart and load spreads over all partitions; which task gets
    which stripe, and which offset comes next, is shuffled, so a heavy stretch is shared by all tasks.
    """
    chance = Random(seed)
    stripes = list(pairwise(task * total // tasks for task in range(tasks + 1)))
    visits: list[list[int]] = [[] for _ in range(tasks)]
    for offset in _offsets(total // tasks, chance):
        segments = [start + offset for start, end in stripes if start + offset < end]
        chance.shuffle(segments)
        for visit, segment in zip(visits, segments, strict=False):
            visit.append(segment)
    return visits


def _offsets(width: int, chance: Random) -> list[int]:
    """All offsets that every stripe has, shuffled, then the one that only the wider stripes have."""
    offsets = list(range(width))
    chance.shuffle(offsets)
    return [*offsets, width]
