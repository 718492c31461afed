"""The resume token: base64url of compact JSON, opaque to callers, stable across restarts and minor versions.

It carries a version, the fingerprint of what it belongs to, and either every open segment's key (in-process runtime) or
the id of a job whose checkpoints are in the control table. Segments that are done are given as ranges; what is
neither done nor open was not begun.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from bulkexec import errors
from bulkexec.model import SegmentRecord

VERSION = 1
MAX_SEGMENTS = 1_000_000
"""TotalSegments of Scan goes up to this (DynamoDB API reference)."""


@dataclass(frozen=True)
class Cursor:
    """Where to go on. `open` maps segment number to the raw JSON of its last evaluated key.

    `held` maps it to the sort keys of nodes that must stay (see `SegmentRecord`).
    """

    fingerprint: str
    segments: int = 0
    done: tuple[tuple[int, int], ...] = ()
    open: dict[int, str] = field(default_factory=dict)
    job: str = ""
    version: int = VERSION
    held: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(fingerprint: str, segments: int, records: Iterable[SegmentRecord]) -> "Cursor":
        """The cursor of an interrupted walk."""
        kept = list(records)
        done = _ranges(sorted(record.number for record in kept if record.done))
        return Cursor(
            fingerprint,
            segments,
            done,
            {record.number: record.last_evaluated_key for record in kept if record.started and not record.done},
            held={record.number: record.held for record in kept if record.held and not record.done},
        )

    def encode(self) -> str:
        """The token."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    def records(self) -> list[SegmentRecord]:
        """Segment records to begin with; their counts are zero, because a result counts its own call."""
        done = [SegmentRecord(number, done=True) for first, last in self.done for number in range(first, last + 1)]
        begun = self.open.items()
        return done + [SegmentRecord(n, last_evaluated_key=key, held=self.held.get(n, ())) for n, key in begun]


def decode_cursor(token: str) -> Cursor:
    """What is in a token, for debugging. Raises `errors.BadToken` when it is none of ours."""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.json.decode(raw, type=Cursor)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise errors.BadToken("this is not a resume token, or it was cut off", fix="paste the whole token") from error
    if cursor.version > VERSION:
        raise errors.BadToken(f"the token is of version {cursor.version}, this program reads up to {VERSION}")
    if not _possible(cursor):
        raise errors.BadToken("the token names segments that no walk can have", fix="paste the token as it was given")
    return cursor


def _possible(cursor: Cursor) -> bool:
    """Whether a walk can have left this. Looks at the ends of ranges alone, since a range may claim any length."""
    if not 0 <= cursor.segments <= MAX_SEGMENTS or (cursor.segments == 0 and not cursor.job):
        return False
    free = 0
    for first, last in cursor.done:
        if not free <= first <= last < cursor.segments:
            return False
        free = last + 1
    return all(0 <= number < cursor.segments for number in cursor.open)


def require_same(cursor: Cursor, fingerprint: str) -> None:
    """Raises `errors.BadToken` when the token was made with another operation, table, filter or options."""
    if cursor.fingerprint != fingerprint:
        raise errors.BadToken(
            "the resume token was made by another command, table, filter or option",
            why="a table that was dropped and made again, and --dry-run, are other ones too",
            fix="repeat the command exactly as it was, or start without the token",
        )


def _ranges(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)
