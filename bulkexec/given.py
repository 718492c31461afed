"""Items that the caller gives, to be put: a source of pages and a command for it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from bulkexec import errors
from bulkexec.codec import Attributes, NotEncodable, from_python
from bulkexec.command import Command
from bulkexec.keyed import KEYS_A_PAGE
from bulkexec.mapped import when_of
from bulkexec.model import Failure, Page, PageResult, Scope, Segment, Work
from bulkexec.reader import PageSource
from bulkexec.wire import OnThrottle, Retrying
from bulkexec.writes import Put, Write


@dataclass(frozen=True)
class PutItems(Command):
    """Put the given items. `items` is their fingerprint."""

    name: ClassVar[str] = "put"
    mutates: ClassVar[bool] = True

    if_not_exists: bool = False
    if_exists: bool = False
    items: str = ""

    def plan(self, scope: Scope) -> Work:
        """Nothing is read."""
        when_of(self.if_not_exists, self.if_exists)
        return Work(scope)

    def page(self, page: Page, work: Work) -> PageResult:
        """One put for each item."""
        when, keys = when_of(self.if_not_exists, self.if_exists), work.scope.table.keys
        key_of = Attributes(*(key.name for key in keys))
        writes: list[Write] = []
        failed: list[Failure] = []
        for item in page.items:
            found = {key.name: value for key, value in zip(keys, key_of(item), strict=True) if value is not None}
            wrong = [f"{key.name} of type {key.type}" for key in keys if list(found.get(key.name, ())) != [key.type]]
            if wrong:
                failed.append(Failure(found, "KeyInvalid", f"the item has no {' and no '.join(wrong)}"))
            else:
                writes.append(Put(item, when))
        return PageResult(writes=writes, failed=failed)


class GivenItems:
    """Items as Python values, encoded at once; those that cannot be are `rejected`, each with a sentence."""

    def __init__(self, items: Iterable[Mapping[str, Any]]) -> None:
        self.lines: list[bytes] = []
        self.rejected: list[tuple[Mapping[str, Any], str]] = []
        for item in items:
            if not isinstance(item, Mapping):
                raise errors.BadArgument(
                    f"{item!r} is no item", fix='give a list: [{"pk": "a"}]', state="nothing written"
                )
            try:
                self.lines.append(from_python(item))
            except NotEncodable as error:
                self.rejected.append((item, str(error)))

    @property
    def fingerprint(self) -> str:
        """Of all that can be put."""
        return f"{len(self.lines)} items {hashlib.sha256(b''.join(self.lines)).hexdigest()[:16]}"

    def source(self, calls: Retrying) -> PageSource:
        """Pages of these items."""
        return _ItemSource(self.lines)


@dataclass(frozen=True)
class _ItemSource:
    lines: list[bytes]

    def page(
        self,
        segment: Segment,
        start_key: bytes | None,
        limit: int | None,
        on_throttle: OnThrottle,
        stop: Callable[[], bool],
    ) -> Page:
        """See `reader.PageSource`. Blocks of a page go round the segments, as in `keyed.KeyReader`."""
        blocks = range(segment.number * KEYS_A_PAGE, len(self.lines), segment.total * KEYS_A_PAGE)
        mine = [number for block in blocks for number in range(block, min(block + KEYS_A_PAGE, len(self.lines)))]
        at = 0 if start_key is None else int(msgspec.json.decode(start_key)["line"]["N"])
        taken = mine[at : at + min(limit or KEYS_A_PAGE, KEYS_A_PAGE)]
        end = at + len(taken)
        last = msgspec.json.encode({"line": {"N": str(end)}}) if end < len(mine) else None
        return Page([msgspec.Raw(self.lines[number]) for number in taken], len(taken), len(taken), 0.0, last)
