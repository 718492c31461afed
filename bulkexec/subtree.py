"""Sort keys as paths: what is above what, in which order a page is written, and which nodes must stay. Pure.

Sort keys are compared as DynamoDB does, by their UTF-8 bytes, which is the order of their code points and so of `str`.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import cast

from bulkexec import where
from bulkexec.model import Expression, Table
from bulkexec.nodes import Subtree
from bulkexec.where.tree import And, BeginsWith, Comparison, Kind, Node, Path, Value


def above(sort_key: str, separator: str, shortest: int = 1) -> list[str]:
    """The sort keys that nodes above this one have, whether there are such items or not; the nearest first.

    Those with fewer than `shortest` characters are left out.
    """
    if not separator:
        return [sort_key[:end] for end in range(len(sort_key) - 1, max(shortest, 1) - 1, -1)]
    found = []
    end = sort_key.rfind(separator)
    while end >= max(shortest, 1):
        found.append(sort_key[:end])
        # One character before, so that of "###" both places of "##" are seen.
        end = sort_key.rfind(separator, 0, end + len(separator) - 1)
    return found


def contains(subtree: Subtree, sort_key: str) -> bool:
    """Whether a sort key is the node's or below it."""
    return sort_key == subtree.prefix or sort_key.startswith(subtree.beginning)


def overlap(one: Subtree, other: Subtree) -> bool:
    """Whether a sort key can be in both, their partition keys apart."""
    if contains(one, other.prefix) or contains(other, one.prefix):
        return True
    return one.beginning.startswith(other.beginning) or other.beginning.startswith(one.beginning)


def moved(sort_key: str, old: Subtree, new: Subtree) -> str:
    """The sort key that an item of one subtree has in another."""
    return new.prefix + sort_key[len(old.prefix) :]


def waves(sort_keys: Sequence[str], separator: str, descending: bool) -> list[list[int]]:
    """Places in `sort_keys`, which come in the order of the walk, so that no wave has two of which one is above the
    other; what is above comes in an earlier wave, `descending` in a later one."""
    place = {key: number for number, key in enumerate(sort_keys)}
    shortest = min(map(len, sort_keys), default=1)
    wave = [0] * len(sort_keys)
    for number, key in enumerate(sort_keys):
        for parent in (place[each] for each in above(key, separator, shortest) if each in place):
            later, earlier = (parent, number) if descending else (number, parent)
            wave[later] = max(wave[later], wave[earlier] + 1)
    found: list[list[int]] = [[] for _ in range(max(wave, default=-1) + 1)]
    for number, which in enumerate(wave):
        found[which].append(number)
    return found


class Held:
    """The nodes above what remains, none of which may be removed, while a subtree is walked against its order.

    What is still to come of them is above the place that was reached, so it is remembered in few keys.
    """

    def __init__(self, subtree: Subtree, kept: Iterable[str] = ()) -> None:
        self._subtree, self._keys = subtree, set[str]()
        for key in kept:
            self._keys |= self._closure(key)

    def __contains__(self, sort_key: str) -> bool:
        return sort_key in self._keys

    def remains(self, sort_key: str) -> None:
        """An item of this sort key was not removed."""
        for key in self._above(sort_key):
            if key in self._keys:
                return  # then all above it are, too
            self._keys.add(key)

    def ahead(self, reached: str) -> tuple[str, ...]:
        """The keys to remember, for a `Held` that goes on below the sort key that was reached. Forgets all others."""
        self._keys = {key for key in self._keys if key < reached}
        kept: list[str] = []
        implied: set[str] = set()
        for key in sorted(self._keys, key=len, reverse=True):
            if key not in implied:
                kept.append(key)
                implied |= self._closure(key)
        return tuple(kept)

    def _closure(self, key: str) -> set[str]:
        return {key, *self._above(key + self._subtree.separator)}

    def _above(self, sort_key: str) -> Collection[str]:
        return above(sort_key, self._subtree.separator, len(self._subtree.prefix))


def node_condition(table: Table, subtree: Subtree) -> Expression:
    """The key condition of the node itself."""
    sort_key = Comparison(Path((table.key_names[1],)), "=", Value("S", subtree.prefix))
    return where.compile_key_condition(And((_partition(table, subtree), sort_key)))


def below_condition(table: Table, subtree: Subtree) -> Expression:
    """The key condition of all below the node; without a separator of the node too."""
    sort_key = BeginsWith(Path((table.key_names[1],)), Value("S", subtree.beginning))
    return where.compile_key_condition(And((_partition(table, subtree), sort_key)))


def _partition(table: Table, subtree: Subtree) -> Node:
    ((kind, text),) = subtree.partition.items()
    return Comparison(Path((table.key_names[0],)), "=", Value(cast(Kind, kind), text))
