"""What became of writes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from bulkexec.answers import Capacity
from bulkexec.budgets import Consumed
from bulkexec.model import Failure
from bulkexec.writes import Write


@dataclass
class Outcome:
    """What became of some writes: each is in exactly one of `processed`, `skipped`, `held`, `failed` and `conflicts`.

    `skipped`, `held` (not sent, because something below it remains) and `conflicts` are keys as typed JSON. `units` are
    write units and `index_units` those of them that were charged to an index, `read_units` are of items that were read
    back, all as metered. Where `acknowledged` is a list, every write that counts as processed is put into it.
    """

    processed: int = 0
    skipped: list[msgspec.Raw] = field(default_factory=list)
    held: list[msgspec.Raw] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    conflicts: list[msgspec.Raw] = field(default_factory=list)
    units: float = 0.0
    index_units: dict[str, float] = field(default_factory=dict)
    read_units: float = 0.0
    acknowledged: list[Write] | None = None

    @property
    def consumed(self) -> Consumed:
        """Write units by what they were charged to."""
        return Consumed(self.units - sum(self.index_units.values()), self.index_units)

    def acknowledge(self, writes: Sequence[Write]) -> None:
        """These have taken effect."""
        self.processed += len(writes)
        if self.acknowledged is not None:
            self.acknowledged += writes

    def charge(self, capacities: Iterable[Capacity]) -> None:
        """Take in what requests consumed."""
        for capacity in capacities:
            self.units += capacity.CapacityUnits
            for name, index in capacity.GlobalSecondaryIndexes.items():
                self.index_units[name] = self.index_units.get(name, 0.0) + index.CapacityUnits

    def add(self, other: "Outcome") -> None:
        """Take in another outcome."""
        self.processed += other.processed
        self.skipped += other.skipped
        self.held += other.held
        self.failed += other.failed
        self.conflicts += other.conflicts
        self.units += other.units
        self.read_units += other.read_units
        for name, units in other.index_units.items():
            self.index_units[name] = self.index_units.get(name, 0.0) + units
        if self.acknowledged is not None and other.acknowledged is not self.acknowledged:
            self.acknowledged += other.acknowledged or ()
