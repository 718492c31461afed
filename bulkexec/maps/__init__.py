"""Maps: what turns an item into another one, as values that travel in a plan.

`load` takes the user's Python file, `set_values` options of the command line, `Local` a callable of this process;
`overlay`, `swap_prefix`, `rename`, `drop` and `compose` are ready-made. `map.compile()` gives the function, from an
item in the Python view of `bulkexec.codec` to another one, or None or False to leave the item as it is.
"""

from collections.abc import Callable
from typing import Any, Literal

from bulkexec.maps.assignments import SetValues, set_values
from bulkexec.maps.base import BaseMap, MapFunction
from bulkexec.maps.local import Local
from bulkexec.maps.ready_made import (
    Drop,
    Overlay,
    Rename,
    SwapPrefix,
    drop,
    overlay,
    rename,
    swap_prefix,
)
from bulkexec.maps.source import Source, load

__all__ = [
    "Compose",
    "Drop",
    "Local",
    "Map",
    "MapFunction",
    "Overlay",
    "Rename",
    "SetValues",
    "Source",
    "SwapPrefix",
    "as_map",
    "compose",
    "drop",
    "load",
    "overlay",
    "rename",
    "set_values",
    "swap_prefix",
]


class Compose(BaseMap, frozen=True):
    """One map after the other; the first that leaves an item alone ends it there, and the item is left as it was."""

    maps: tuple["Map", ...]

    @property
    def in_place(self) -> bool:
        """Whether any of them may."""
        return any(each.in_place for each in self.maps)

    @property
    def identity(self) -> Any:
        """The maps, in their order."""
        return [(type(each).__name__, each.identity) for each in self.maps]

    def compile(self) -> MapFunction:
        """The function."""
        functions = [each.compile() for each in self.maps]

        def composed(item: dict[str, Any]) -> dict[str, Any] | Literal[False] | None:
            for function in functions:
                changed = function(item)
                if changed is None or changed is False:
                    return changed
                item = changed
            return item

        return composed


Map = Source | Overlay | SwapPrefix | Rename | Drop | SetValues | Local | Compose
"""Any map. A field of this type goes into a plan's JSON and comes back out of it."""


def as_map(map_fn: "Map | Callable[[dict[str, Any]], Any]") -> Map:
    """The map itself, or a callable as one."""
    return map_fn if isinstance(map_fn, Map) else Local(map_fn)


def compose(*maps: "Map | Callable[[dict[str, Any]], Any]") -> Compose:
    """One map, or callable, after the other; ends where one returns None or False, and the item is left as it was."""
    return Compose(tuple(as_map(each) for each in maps))
