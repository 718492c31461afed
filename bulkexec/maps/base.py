"""What every map is."""

import hashlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec

MapFunction = Callable[[dict[str, Any]], dict[str, Any] | Literal[False] | None]
"""From an item in the Python view of `bulkexec.codec` to another one; None or False: leave the item as it is.

The dict is the function's own, to change in place or not, if the map says `in_place`: then whoever calls it keeps, for
comparison, one that shares nothing with it that can change.
"""


class BaseMap(msgspec.Struct, frozen=True, tag=str.lower):
    """A map as a value: it can be compared and, but for `Local`, sent to another machine as JSON."""

    def compile(self) -> MapFunction:
        """The function. What it raises is the item's failure, not the run's."""
        raise NotImplementedError

    @property
    def in_place(self) -> bool:
        """Whether the function may change the item that it is given, or anything in it."""
        return False

    @property
    def identity(self) -> Any:
        """What makes two maps the same, as JSON-able values."""
        return msgspec.to_builtins(self)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits, the same in every process for maps that do the same by the same text."""
        identity = (type(self).__name__, self.identity)
        return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:16]
