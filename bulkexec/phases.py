"""Pages of the walks that a run over a subtree makes one after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from bulkexec.lookup import fetch_items
from bulkexec.model import Expression, Page, Segment, Table, Work
from bulkexec.nodes import Subtree
from bulkexec.reader import Reader
from bulkexec.subtree import below_condition, moved, node_condition
from bulkexec.wire import OnThrottle, Retrying

SOURCES_A_PAGE = 1000
"""Items of a page whose sources are then fetched."""

Makes = Callable[[msgspec.Raw, Work], bool]
"""Whether a source item has a copy."""

Read = Callable[[Expression, bytes | None], Page]


@dataclass(frozen=True)
class PhaseReader:
    """Reads each phase of a plan as one segment, in the order of the sort key or against it.

    Of a phase that walks the target, what has a source that `makes` a copy is left out: it is none of the phase's.
    """

    calls: Retrying
    target_calls: Retrying
    work: Work
    makes: Makes

    def page(
        self,
        segment: Segment,
        start_key: bytes | None,
        limit: int | None,
        on_throttle: OnThrottle,
        stop: Callable[[], bool],
    ) -> Page:
        """See `reader.PageSource`."""
        work = self.work.in_phase(segment.number)
        phase, scope = work.phase, work.scope
        assert phase is not None
        if phase.of_target:
            limit = min(limit or SOURCES_A_PAGE, SOURCES_A_PAGE)

        def read(condition: Expression, start: bytes | None) -> Page:
            part = replace(work, scope=replace(scope, key_condition=condition), descending=phase.descending)
            calls = self.target_calls if phase.of_target else self.calls
            return Reader(calls, part).page(segment, start, limit, on_throttle, stop)

        page = _page(read, scope.table, phase.subtree, phase.descending, start_key)
        return self._without_source(page, work, on_throttle) if phase.of_target else page

    def _without_source(self, page: Page, work: Work, on_throttle: OnThrottle) -> Page:
        """Only what would not be there, had the target been empty before the copy."""
        phase, source = work.phase, self.work.scope.table
        assert phase is not None
        assert phase.other is not None
        names = [moved(_sort_key(raw, work.scope.table), phase.subtree, phase.other) for raw in page.items]
        keys = [msgspec.Raw(_key(source, phase.other, name)) for name in names]
        found, units = fetch_items(self.calls, source, keys, True, on_throttle)
        there = {_sort_key(raw, source) for raw in found if self.makes(raw, work)}
        kept = [raw for raw, name in zip(page.items, names, strict=True) if name not in there]
        return page._replace(items=kept, matched=len(kept), read_units=page.read_units + units)


def _page(read: Read, table: Table, subtree: Subtree, descending: bool, start: bytes | None) -> Page:
    """A page of a subtree. The node is read apart from what is below it, because others lie between in the order of
    sort keys: `user!` between `user` and `user#1`, and where the separator is "|" also `user2`."""
    node, below = node_condition(table, subtree), below_condition(table, subtree)
    if not subtree.separator:
        return read(below, start)
    reached = None if start is None else _sort_key(start, table)
    if descending:
        if reached == subtree.beginning:  # no sort key below the node is smaller
            return read(node, None)._replace(last_evaluated_key=None)
        page = read(below, start)
        return page._replace(last_evaluated_key=page.last_evaluated_key or _key(table, subtree, subtree.beginning))
    if reached is None:
        return read(node, None)._replace(last_evaluated_key=_key(table, subtree, subtree.prefix))
    return read(below, None if reached == subtree.prefix else start)


def _key(table: Table, subtree: Subtree, sort_key: str) -> bytes:
    return msgspec.json.encode({table.key_names[0]: subtree.partition, table.key_names[1]: {"S": sort_key}})


def _sort_key(raw: msgspec.Raw | bytes, table: Table) -> str:
    text: str = msgspec.json.decode(raw)[table.key_names[1]]["S"]
    return text
