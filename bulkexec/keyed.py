"""Pages of items that are named one by one: by keys in a file or in S3, or given by the caller of the Python API."""

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Protocol

import msgspec

from bulkexec import errors
from bulkexec.lookup import BATCH_GET_ITEMS, fetch_items
from bulkexec.model import KeyAttribute, Page, Segment, Work
from bulkexec.s3 import Location, Objects
from bulkexec.wire import OnThrottle, Retrying

KEYS_A_PAGE = BATCH_GET_ITEMS
SEGMENTS_OF_A_LIST = 16
"""A list of keys is divided among so many segments at most, because each reads all of it."""
KEYS_A_SEGMENT = 1000


class KeyLines(Protocol):
    """A list of keys that can be gone through again and again: each line is JSON with a typed key."""

    def __call__(self) -> Iterable[bytes]:
        """The lines from the first one on."""


def file_lines(path: str) -> KeyLines:
    """The lines of a file, gzipped or not."""

    def lines() -> Iterator[bytes]:
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rb") as stream:
            yield from stream

    return lines


def object_lines(objects: Objects, place: Location) -> KeyLines:
    """The lines of one object, or of every object below a prefix, in the order of their names."""

    def lines() -> Iterator[bytes]:
        for each in objects.below(place):
            data = objects.get(each) or b""
            yield from (gzip.decompress(data) if each.key.endswith(".gz") else data).splitlines()

    return lines


def key_lines(keys: str, objects: Callable[[], Objects]) -> KeyLines:
    """The lines that `--keys-from` names."""
    return object_lines(objects(), Location.parse(keys)) if keys.startswith("s3://") else file_lines(keys)


def typed_key(line: bytes, keys: Sequence[KeyAttribute]) -> msgspec.Raw:
    """The key in one line: `{"Keys": …}` as in a job's lists, `{"Item": …}` as in an export, or the key alone.

    Raises ValueError when it is none for these key attributes.
    """
    whole: Any = msgspec.json.decode(line)
    key = whole.get("Keys") or whole.get("Item") or whole if isinstance(whole, dict) else None
    if not isinstance(key, dict):
        raise ValueError("not a JSON object")
    for attribute in keys:
        value = key.get(attribute.name)
        if not isinstance(value, dict) or list(value) != [attribute.type] or not isinstance(value[attribute.type], str):
            raise ValueError(f"it has no {attribute.name} of type {attribute.type}")
    return msgspec.Raw(msgspec.json.encode({attribute.name: key[attribute.name] for attribute in keys}))


def count_keys(source: str, lines: KeyLines, keys: Sequence[KeyAttribute]) -> int:
    """How many keys a list has. Raises `errors.BadArgument` when it cannot be read or a line has none."""
    count = 0
    try:
        for number, line in enumerate(lines(), 1):
            if not line.strip():
                continue
            try:
                typed_key(line, keys)
            except (ValueError, msgspec.DecodeError) as error:
                raise errors.BadArgument(
                    f"line {number} of {source} is not a key of this table: {error}",
                    fix='one JSON object a line, e.g. {"pk": {"S": "a"}}, or a list that a job left',
                    state="nothing written",
                ) from error
            count += 1
    except OSError as error:
        raise errors.BadArgument(
            f"{source} cannot be read: {error.strerror or error}", fix="check --keys-from"
        ) from error
    if not count:
        raise errors.BadArgument(f"{source} has no keys", fix="check --keys-from")
    return count


def segments_for(keys: int) -> int:
    """Into how many segments a list of so many keys is divided."""
    return max(1, min(SEGMENTS_OF_A_LIST, keys // KEYS_A_SEGMENT))


class KeyReader:
    """Reads the items that a list of keys names, a hundred at a time. Keys whose items are gone are missing.

    A command that wants keys alone gets them without a read.
    """

    def __init__(self, calls: Retrying, work: Work, lines: KeyLines) -> None:
        self._calls, self._work, self._lines = calls, work, lines
        self._open: dict[int, tuple[int, Iterator[bytes]]] = {}

    def page(
        self,
        segment: Segment,
        start_key: bytes | None,
        limit: int | None,
        on_throttle: OnThrottle,
        stop: Callable[[], bool],
    ) -> Page:
        """See `reader.PageSource`. The last evaluated key is a place in the list."""
        table = self._work.scope.table
        lines, last = self._take(segment, _line(start_key), min(limit or KEYS_A_PAGE, KEYS_A_PAGE))
        keys = list(dict.fromkeys(bytes(typed_key(line, table.keys)) for line in lines))
        raw = [msgspec.Raw(key) for key in keys]
        if self._work.projection == table.key_names and not self._work.guarded:
            return Page(raw, len(raw), len(raw), 0.0, last)
        items, units = fetch_items(self._calls, table, raw, True, on_throttle)
        return Page(items, len(raw), len(raw), units, last, missing=len(raw) - len(items))

    def _take(self, segment: Segment, start: int, count: int) -> tuple[list[bytes], bytes | None]:
        """From the `start`th line of the segment on, and the place behind them. Goes on where it was, if it can."""
        at, rest = self._open.pop(segment.number, (0, iter(())))
        if at != start or not start:
            rest = islice(self._of(segment), start, None)
        found = list(islice(rest, count))
        more = list(islice(rest, 1))
        if not more:
            return found, None
        self._open[segment.number] = (start + len(found), chain(more, rest))
        return found, msgspec.json.encode({"line": {"N": str(start + len(found))}})

    def _of(self, segment: Segment) -> Iterator[bytes]:
        """The lines of a segment: they go round the segments in blocks of a page."""
        lines = (line for line in self._lines() if line.strip())
        return (line for n, line in enumerate(lines) if n // KEYS_A_PAGE % segment.total == segment.number)


def _line(start_key: bytes | None) -> int:
    if start_key is None:
        return 0
    place: dict[str, dict[str, str]] = msgspec.json.decode(start_key)
    return int(place["line"]["N"])
