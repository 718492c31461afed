"""A page of a subtree, written so that what is below a node is never without it."""

from collections.abc import Iterator, Sequence

import msgspec

from bulkexec.batches import KeyValues
from bulkexec.model import Page, PageResult, Work
from bulkexec.outcome import Outcome
from bulkexec.sending import Sending
from bulkexec.subtree import Held, waves
from bulkexec.writes import Apply, Delete, Move, Put, Update, Write

Sent = tuple[Outcome, BaseException | None]


class Ordered:
    """Sends the pages of one phase: writes go in waves, and one wave is through before the next one begins.

    When the phase removes, a node above something that was not removed (let be, skipped, failed, a conflict) is not
    sent; it is in the outcome's `held`.
    """

    def __init__(self, sending: Sending, work: Work) -> None:
        assert work.phase is not None
        self._sending, self._phase = sending, work.phase
        self._cut = KeyValues(work.scope.table.key_names)

    def page(self, page: Page, result: PageResult, held: Held) -> Sent:
        """As `Sending.page`; `held` takes in what remains of this page."""
        total = Outcome()
        names = [self._sort_key(_keyed(write)) for write in result.writes]
        if self._phase.removes:
            written = set(names)
            for raw in page.items:
                name = self._sort_key(raw)
                if name not in written:
                    held.remains(name)
        for wave in waves(names, self._phase.subtree.separator, self._phase.descending):
            outcome, error = self._wave([(names[n], result.writes[n]) for n in wave], held)
            total.add(outcome)
            if error is not None:
                return total, error
        return total, None

    def _wave(self, wave: Sequence[tuple[str, Write]], held: Held) -> Sent:
        if not self._phase.removes:
            return self._sending.page([write for _, write in wave])
        kept = [self._cut.key(_keyed(write)) for name, write in wave if name in held]
        free = [write for name, write in wave if name not in held]
        outcome, error = self._sending.page(free) if free else (Outcome(), None)
        outcome.held += kept
        for key in _not_removed(outcome):
            held.remains(self._sort_key(key))
        return outcome, error

    def _sort_key(self, keyed: msgspec.Raw) -> str:
        text: str = msgspec.json.decode(self._cut(keyed)[1])["S"]
        return text

    def reached(self, last_evaluated_key: bytes | None, held: Held) -> tuple[str, ...]:
        """What of `held` is to be remembered behind a page."""
        return () if last_evaluated_key is None else held.ahead(self._sort_key(msgspec.Raw(last_evaluated_key)))


def _not_removed(outcome: Outcome) -> Iterator[msgspec.Raw]:
    yield from outcome.skipped
    yield from outcome.conflicts
    for failure in outcome.failed:
        yield msgspec.Raw(msgspec.json.encode(failure.key))


def _keyed(write: Write) -> msgspec.Raw:
    """Where the key is that a write is known by: of a move, the one that is removed."""
    match write:
        case Put() | Apply():
            return write.item
        case Delete() | Update():
            return write.key
        case Move():
            return write.delete.key
