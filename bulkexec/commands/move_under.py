"""The `move-under` command."""

from dataclasses import dataclass
from typing import ClassVar

from bulkexec.command import argument
from bulkexec.mapped import when_of
from bulkexec.under import Moved, When


@dataclass(frozen=True, kw_only=True)
class MoveUnder(Moved):
    """Move a node of an item collection and everything below it to another place.

    Another place is another sort key prefix, partition key or table. All of it is copied first, the node before what is
    below it; then each item is deleted, from below, once its copy is seen to be there. A node is never deleted while
    something below it could not be; it is counted as skipped then. After a crash an item may be in both places, never
    in neither; a rerun ends in the right state.

    Reads   the subtree twice and each copy once, strongly consistent.
    Writes  one put and one delete for each item. The put replaces what is there under its key, unless --if-not-exists;
            then the item stays where it is and is counted as skipped.
    Costs   read units for the subtree twice, and at least one for each copy; write units by the size of each item
            twice, and in each index.
    Rerun   safe if the map gives the same for the same item; what has moved is not found again.
    """

    name: ClassVar[str] = "move-under"

    if_not_exists: bool = argument("--if-not-exists", "Leave items whose new key is there already.", default=False)
    if_exists: bool = argument("--if-exists", "Leave items whose new key is not there yet.", default=False)

    @property
    def when(self) -> When:
        """See `Elsewhere.when`."""
        return when_of(self.if_not_exists, self.if_exists)
