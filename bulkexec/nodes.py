"""Nodes of an item collection whose sort keys are paths, and the walks over them. Frozen nouns, no I/O."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Subtree:
    """A node of an item collection and all that is below it: the item whose sort key is `prefix`, which may be missing,
    and those whose sort keys begin with prefix and `separator`.

    `partition` is the typed partition key. Without a separator every longer sort key that begins so is below.
    """

    partition: dict[str, Any]
    prefix: str
    separator: str

    @property
    def beginning(self) -> str:
        """How the sort key of everything below the node begins."""
        return self.prefix + self.separator


@dataclass(frozen=True)
class Phase:
    """One of the walks that a run makes one after the other: over a subtree by sort key, parents first, or last.

    `other` is the subtree that its items go to or come from. `of_target` says that the table that puts go to is read,
    and deleted from; `removes` that a node is let be while something below it could not be removed. Items of a phase
    that does not count are those of a later one too: only what it consumed is reported.
    """

    name: str
    subtree: Subtree
    other: Subtree | None = None
    descending: bool = False
    removes: bool = False
    counts: bool = True
    of_target: bool = False
