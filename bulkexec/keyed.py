"""Pages of items that are named one by one: by keys in a file or in S3, or given by the caller of the Python API."""

import binascii
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Context, Decimal
from functools import cached_property
from hashlib import blake2b, sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import msgspec

from bulkexec import errors
from bulkexec.batches import KeyValues
from bulkexec.equality import same_items
from bulkexec.item_size import key_size_problem
from bulkexec.lookup import BATCH_GET_ITEMS, fetch_items
from bulkexec.model import KeyAttribute, Page, Segment, Work
from bulkexec.reader import PageSource, Reader
from bulkexec.s3 import Location, Objects
from bulkexec.where.tree import is_number
from bulkexec.wire import OnThrottle, Retrying

KEYS_A_PAGE = BATCH_GET_ITEMS
SEGMENTS_OF_A_LIST = 16
"""A list of keys is divided among so many segments at most, because each reads all of it."""
KEYS_A_SEGMENT = 1000

UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading a list may raise; the last two where it is gzipped only by name, or cut off."""


class KeyLines(Protocol):
    """A list of keys that can be gone through again and again: each line is JSON with a typed key."""

    def __call__(self) -> Iterable[bytes]:
        """The lines from the first one on."""


def file_lines(path: str) -> KeyLines:
    """The lines of a file, gzipped or not, or of every file below a folder, in the order of their names."""

    def lines() -> Iterator[bytes]:
        for each in list_files(Path(path)):
            opener = gzip.open if each.suffix == ".gz" else open
            with opener(each, "rb") as stream:
                yield from stream

    return lines


def list_files(path: Path) -> list[Path]:
    """The file of this name, or all those below it."""
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def one_list(path: Path) -> tuple[bytes, str]:
    """What `file_lines` gives of a file or folder as the content of one object, and how its name has to end."""
    if not path.is_dir():
        return path.read_bytes(), ".gz" if path.suffix == ".gz" else ""
    return gzip.compress(b"".join(file_lines(str(path))())), ".gz"


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


def page_source(calls: Retrying, work: Work, objects: Callable[[], Objects]) -> PageSource:
    """Where the pages of a run come from that is no subtree: a list of keys, or the table or index itself."""
    return KeyReader(calls, work, key_lines(work.keys, objects)) if work.keys else Reader(calls, work)


def typed_key(line: bytes, keys: Sequence[KeyAttribute]) -> msgspec.Raw:
    """The key in one line: `{"Keys": …}` as in a job's lists, `{"Item": …}` as in an export, or the key alone.

    Raises ValueError when it is none for these key attributes.
    """
    return msgspec.Raw(msgspec.json.encode(_key_in(line, keys)))


def _key_in(line: bytes, keys: Sequence[KeyAttribute]) -> dict[str, dict[str, str]]:
    texts = _texts(line, keys)
    for attribute, text in zip(keys, texts, strict=True):
        _check(attribute, text, attribute is keys[0])
    return {attribute.name: {attribute.type: text} for attribute, text in zip(keys, texts, strict=True)}


def _texts(line: bytes, keys: Sequence[KeyAttribute]) -> list[str]:
    """The values of a line's key, without their types. Raises ValueError where one is missing or of another type."""
    try:
        whole: Any = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    if not isinstance(whole, dict):
        raise ValueError("not a JSON object")
    # A table may have a key attribute called Keys or Item; its value is a typed one then, not a key.
    places: tuple[Any, ...] = (whole.get("Keys"), whole.get("Item"), whole)
    for key in places:
        try:
            texts = [key[each.name][each.type] for each in keys]
        except (KeyError, TypeError):
            continue
        if all(isinstance(text, str) for text in texts):
            return texts
    missing = " and ".join(f"{each.name} of type {each.type}" for each in keys)
    raise ValueError(f"it has no {missing}")


def _check(attribute: KeyAttribute, text: str, partition: bool) -> None:
    """Refuses what no item can have in its key: it would fail the keys that are asked for beside it too."""
    if attribute.type == "N" and not is_number(text):
        raise ValueError(f"{attribute.name} is {text!r}, which is no number")
    if problem := key_size_problem(attribute.name, {attribute.type: text}, partition):
        raise ValueError(problem)


class KeyList(NamedTuple):
    """How many lines of a list have keys, and the hash of all of its lines: places in another list are other keys."""

    keys: int
    sha256: str


def survey(source: str, lines: KeyLines, keys: Sequence[KeyAttribute]) -> KeyList:
    """Goes through a list once. Raises `errors.BadArgument` when it cannot be read or a line has no key."""
    count, content = 0, sha256()
    try:
        for number, line in enumerate(lines(), 1):
            if line.strip():
                _require_key(source, number, line, keys)
                content.update(line.strip() + b"\n")
                count += 1
    except UNREADABLE as error:
        raise _unreadable(source, error) from error
    if not count:
        raise errors.BadArgument(f"{source} has no keys", fix="check --keys-from")
    return KeyList(count, content.hexdigest())


def _unreadable(source: str, error: Exception) -> errors.BadArgument:
    said = getattr(error, "strerror", None) or error
    return errors.BadArgument(f"{source} cannot be read: {said}", fix="check --keys-from")


def _require_key(source: str, number: int, line: bytes, keys: Sequence[KeyAttribute]) -> None:
    try:
        _key_in(line, keys)
    except ValueError as error:
        raise errors.BadArgument(
            f"line {number} of {source} is not a key of this table: {error}",
            fix='one JSON object a line, e.g. {"pk": {"S": "a"}}, or a list that a job left',
            state="nothing written",
        ) from error


def segments_for(keys: int, most: int | None = None) -> int:
    """Into how many segments a list of so many keys is divided, when `most` are asked for."""
    return max(1, min(most or SEGMENTS_OF_A_LIST, SEGMENTS_OF_A_LIST, keys // KEYS_A_SEGMENT))


class KeyReader:
    """Reads the items that a list of keys names, a hundred at a time. Keys whose items are gone are missing.

    Each key counts once, however often and however written it is in the list. A command that wants keys alone gets them
    without a read.
    """

    def __init__(self, calls: Retrying, work: Work, lines: KeyLines) -> None:
        self._calls, self._work, self._lines = calls, work, lines
        self._open: dict[int, tuple[int, Iterator[msgspec.Raw]]] = {}
        self._cut = KeyValues(work.scope.table.key_names)

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
        keys, last = self._take(segment, _place(start_key), min(limit or KEYS_A_PAGE, KEYS_A_PAGE))
        shown = [key for key in keys if not self._hidden(key)]
        if self._work.projection == table.key_names and not self._work.guarded:
            return Page(shown, len(shown), len(keys), 0.0, last)
        items, units = fetch_items(self._calls, table, shown, True, on_throttle)
        return Page(items, len(shown), len(keys), units, last, len(shown) - len(items), self._listed)

    def _listed(self, item: msgspec.Raw) -> bool:
        attributes = self._work.scope.table.keys
        values = zip(attributes, map(msgspec.json.decode, self._cut(item)), strict=True)
        return _digest([value[each.type] for each, value in values], attributes) in self._digests

    @cached_property
    def _digests(self) -> frozenset[bytes]:
        """Of every key in the list; made when it is first asked for."""
        attributes = self._work.scope.table.keys
        return frozenset(_digest(_texts(line, attributes), attributes) for line in self._lines() if line.strip())

    def _hidden(self, key: msgspec.Raw) -> bool:
        """Whether this is the key of the reserved row, which is no item of the user's."""
        hidden = self._work.hidden
        return hidden is not None and same_items(hidden, msgspec.json.decode(key))

    def _take(self, segment: Segment, start: int, count: int) -> tuple[list[msgspec.Raw], bytes | None]:
        """From the `start`th key of the segment on, and the place behind them. Goes on where it was, if it can."""
        at, rest = self._open.pop(segment.number, (0, iter(())))
        if at != start or not start:
            rest = islice(self._of(segment), start, None)
        try:
            found = list(islice(rest, count))
            more = list(islice(rest, 1))
        except (*UNREADABLE, ValueError) as error:
            raise _unreadable(self._work.keys, error) from error  # it was there, and a list of keys, when this began
        if not more:
            return found, None
        self._open[segment.number] = (start + len(found), chain(more, rest))
        return found, msgspec.json.encode({"line": {"N": str(start + len(found))}})

    def _of(self, segment: Segment) -> Iterator[msgspec.Raw]:
        """The keys of a segment, each once. Equal keys are of one segment, since it is chosen by the key."""
        attributes = self._work.scope.table.keys
        seen: set[bytes] = set()
        for line in self._lines():
            if not line.strip():
                continue
            texts = _texts(line, attributes)
            if crc32(_canonical(texts, attributes)) % segment.total != segment.number:
                continue
            digest = _digest(texts, attributes)
            if digest not in seen:
                seen.add(digest)
                yield typed_key(line, attributes)


_DIGITS = Context(prec=40)
_CANONICAL: dict[str, Callable[[str], bytes]] = {
    "S": str.encode,
    "N": lambda text: str(_DIGITS.normalize(Decimal(text) or Decimal(0))).encode(),
    "B": binascii.a2b_base64,
}
"""The same bytes for values that are equal to DynamoDB."""


def _canonical(texts: Sequence[str], attributes: Sequence[KeyAttribute]) -> bytes:
    return b"\0".join([_CANONICAL[each.type](text) for each, text in zip(attributes, texts, strict=True)])


def _digest(texts: Sequence[str], attributes: Sequence[KeyAttribute]) -> bytes:
    return blake2b(_canonical(texts, attributes), digest_size=16).digest()


def _place(start_key: bytes | None) -> int:
    if start_key is None:
        return 0
    place: dict[str, dict[str, str]] = msgspec.json.decode(start_key)
    return int(place["line"]["N"])
