"""Sizes of items, each worked out once in a request: checks, charges and counts all ask for the same ones."""

from typing import Any

from bulkexec.item_size import item_size_bytes

_known: dict[int, tuple[dict[str, Any], int]] = {}
"""By identity; the item is kept so that its identity is not given to another. For the event loop's thread only."""


def size_of(item: dict[str, Any] | None) -> int:
    """An item's size in bytes; 0 for none."""
    if not item:
        return 0
    known = _known.get(id(item))
    if known is None:
        known = _known[id(item)] = (item, item_size_bytes(item))
    return known[1]


def forget_sizes() -> None:
    """Starts a new request."""
    _known.clear()
