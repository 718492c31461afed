"""The budgets of a table and of its indexes together: capacity is separate, so is the limit (cases C059, C146)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bulkexec.rate import Limiter, RateStatistics


@dataclass(frozen=True)
class Consumed:
    """Units of one request by what they were charged to. Local secondary indexes draw on the table's capacity."""

    table: float
    indexes: Mapping[str, float]

    @property
    def total(self) -> float:
        """All units, as they are billed."""
        return self.table + sum(self.indexes.values())


def consumed(capacity: Mapping[str, Any]) -> Consumed:
    """Reads one ConsumedCapacity that was asked for with INDEXES; with TOTAL, all of it is the table's (case C059)."""
    indexes = {name: _units(each) for name, each in capacity.get("GlobalSecondaryIndexes", {}).items()}
    return Consumed(_units(capacity) - sum(indexes.values()), indexes)


def _units(capacity: Mapping[str, Any]) -> float:
    return float(capacity.get("CapacityUnits", 0.0))


@dataclass
class Reservation:
    """Units that may be spent by one request, on the table and on each index."""

    budgets: "TableBudgets"
    estimated: Consumed

    def settle(self, actual: Consumed) -> None:
        """Correct every budget by what the request consumed; `Consumed(0.0, {})` when it was throttled."""
        self.budgets.settle(self.estimated, actual)


class TableBudgets:
    """The budgets of a table and of its indexes, which have capacity of their own (cases C059, C146).

    How many index units go with a unit of the table is learned from what is consumed, at first `index_ratio` each.
    """

    def __init__(self, table: Limiter, indexes: Mapping[str, Limiter], index_ratio: float = 1.0) -> None:
        self._table, self._indexes = table, dict(indexes)
        self._ratios = dict.fromkeys(self._indexes, index_ratio)

    def reserve(self, table_units: float, stop: Callable[[], bool]) -> Reservation | None:
        """Wait until every budget has room, the tightest first; None, with nothing spent, when `stop()` is true."""
        if not self._indexes:
            return Reservation(self, Consumed(table_units, {})) if self._table.acquire(table_units, stop) else None
        wanted = {name: table_units * self._ratios[name] for name in self._indexes}
        held: list[tuple[Limiter, float]] = []
        for limiter, units in self._tightest_first(table_units, wanted):
            if not limiter.acquire(units, stop):
                for earlier, reserved in held:
                    earlier.settle(reserved, 0.0)
                return None
            held.append((limiter, units))
        return Reservation(self, Consumed(table_units, wanted))

    def settle(self, estimated: Consumed, actual: Consumed) -> None:
        """See `Reservation.settle`."""
        self._table.settle(estimated.table, actual.table)
        for name, limiter in self._indexes.items():
            units = actual.indexes.get(name, 0.0)
            limiter.settle(estimated.indexes.get(name, 0.0), units)
            if actual.table > 0:
                self._ratios[name] = 0.8 * self._ratios[name] + 0.2 * units / actual.table

    def statistics(self) -> RateStatistics:
        """What this process spent of the table's budget."""
        return self._table.statistics()

    def throttled(self, reasons: Sequence[str] = ()) -> None:
        """Slow down what was throttled: indexes when every reason names an index, else the table."""
        of_index = bool(reasons) and all(reason.startswith("Index") for reason in reasons)
        for limiter in self._indexes.values() if of_index and self._indexes else (self._table,):
            limiter.throttled(reasons)

    @property
    def rate(self) -> float:
        """Table units a second that every budget has room for, at the ratios seen so far."""
        return self._narrowest(lambda limiter: limiter.rate)

    @property
    def share(self) -> float:
        """As `rate`, for this process."""
        return self._narrowest(lambda limiter: limiter.share)

    def _narrowest(self, of: Callable[[Limiter], float]) -> float:
        indexes = [of(self._indexes[name]) / ratio for name, ratio in self._ratios.items() if ratio > 0]
        return min([of(self._table), *indexes])

    def _tightest_first(self, table_units: float, wanted: Mapping[str, float]) -> list[tuple[Limiter, float]]:
        pairs = [(self._indexes[name], units) for name, units in wanted.items() if units > 0]
        return sorted([*pairs, (self._table, table_units)], key=lambda pair: pair[0].rate / max(pair[1], 1e-9))
