"""Which bucket of an outcome a write belongs to when it did not simply succeed."""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from bulkexec.batches import KeyValues
from bulkexec.model import Failure
from bulkexec.outcome import Outcome
from bulkexec.settle import ReadBack, item_of
from bulkexec.wire import Fault, Refusals
from bulkexec.writes import Delete, Put, Update, Write

ITEM_FAULTS = frozenset({"ValidationException", "ItemCollectionSizeLimitExceededException"})
"""Faults that are of one item, not of the run."""
EXHAUSTED = "ThroughputExhausted"


def observed(write: Write) -> bool:
    """Whether the write asks that attributes still are as they were read."""
    return isinstance(write, Delete | Update) and bool(write.observed)


class Buckets:
    """Sorts writes of one table into outcomes. Errors that are of no single item are raised as a user reads them."""

    def __init__(self, refusals: Refusals, keys: KeyValues, back: ReadBack) -> None:
        self._refusals, self._keys, self._back = refusals, keys, back

    def fail(self, writes: Iterable[Write], reason: str, details: str, outcome: Outcome) -> None:
        """These could not be written."""
        for write in writes:
            key = msgspec.json.decode(self._name(write))
            outcome.failed.append(Failure(key, reason, details))

    def refuse(self, writes: Sequence[Write], doubtful: Collection[int], outcome: Outcome) -> None:
        """The conditions of these failed: a conflict where something was observed, else a skip.

        Unless an earlier answer was lost (the write's `id()` is in `doubtful`): then our own write may be why the
        condition fails, so the items are read back, and what is as the write wants it counts as written.
        """
        unsure = [write for write in writes if id(write) in doubtful]
        effective = self._back.effective(unsure, outcome) if unsure else set()
        for write in writes:
            if id(write) in effective:
                outcome.acknowledge([write])
            else:
                bucket = outcome.conflicts if observed(write) else outcome.skipped
                bucket.append(self._name(write))

    def _name(self, write: Write) -> msgspec.Raw:
        """The key that a user knows the item by."""
        return write.origin if isinstance(write, Put) and bytes(write.origin) else self._keys.key(item_of(write))

    def give_up(self, reasons: Sequence[tuple[Write, Fault]], doubtful: Collection[int], outcome: Outcome) -> None:
        """The deadline has passed for these; what may have had its effect is read back first."""
        unsure = [write for write, _ in reasons if id(write) in doubtful]
        effective = self._back.effective(unsure, outcome) if unsure else set()
        for write, fault in reasons:
            if id(write) in effective:
                outcome.acknowledge([write])
            else:
                self.fail([write], EXHAUSTED if fault.throttle else fault.code, fault.message, outcome)

    def refused_whole(
        self,
        fault: Fault,
        writes: Sequence[Write],
        again: Callable[[Sequence[Write]], None],
        outcome: Outcome,
        doubtful: Collection[int] = (),
    ) -> None:
        """A request was refused as a whole: for one bad item, or because a key is in it twice (case C032).

        Halves of it are sent `again`, in order, until the one that is refused stands alone; only that has failed.
        """
        if fault.code in ITEM_FAULTS and len(writes) > 1:
            middle = len(writes) // 2
            again(writes[:middle])
            again(writes[middle:])
        elif fault.code in ITEM_FAULTS:
            self.fail(writes, fault.code, fault.message, outcome)
        elif fault.throttle:
            unsure = {id(write) for write in writes} if fault.lost else doubtful
            self.give_up([(write, fault) for write in writes], unsure, outcome)
        else:
            self._refusals.raise_for(fault)
