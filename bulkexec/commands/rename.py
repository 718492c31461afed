"""The `rename` command."""

from dataclasses import dataclass
from typing import ClassVar

from bulkexec.under import Moved, When


@dataclass(frozen=True, kw_only=True)
class Rename(Moved):
    """Give a node of an item collection another sort key, and everything below it one that fits.

    As move-under, but nothing that is there already is replaced: an item whose new key is taken by another one stays
    where it is, with the nodes above it, and is counted as skipped.

    Reads   the subtree twice and each copy once, strongly consistent.
    Writes  one put and one delete for each item.
    Costs   read units for the subtree twice, and at least one for each copy; write units by the size of each item
            twice, and in each index. A put that is refused because its key is taken costs the size of what is there.
    Rerun   safe if the map gives the same for the same item; what has moved is not found again.
    """

    name: ClassVar[str] = "rename"
    verb: ClassVar[str] = "renamed"

    @property
    def when(self) -> When:
        """See `Elsewhere.when`."""
        return "absent"
