"""Maps that need no code: overlay fields, swap a prefix, rename or drop an attribute."""

from collections.abc import Callable
from typing import Any

from bulkexec.codec import value_from_python, value_to_python
from bulkexec.maps.base import BaseMap, MapFunction


class Overlay(BaseMap, frozen=True):
    """Lays fields over every item. Their values are typed JSON."""

    fields: dict[str, dict[str, Any]]

    def compile(self) -> MapFunction:
        """The function."""
        values = values_of(self.fields)
        return lambda item: item | values()


class SwapPrefix(BaseMap, frozen=True):
    """Puts `new` where the text of an attribute begins with `old`; an item whose does not is left alone (None)."""

    attribute: str
    old: str
    new: str

    def compile(self) -> MapFunction:
        """The function."""
        attribute, old, new = self.attribute, self.old, self.new

        def swapped(item: dict[str, Any]) -> dict[str, Any] | None:
            value = item.get(attribute)
            if not isinstance(value, str) or not value.startswith(old):
                return None
            return {**item, attribute: new + value[len(old) :]}

        return swapped


class Rename(BaseMap, frozen=True):
    """Gives an attribute another name; an item without it stays as it is. The new name must be free."""

    old: str
    new: str

    def compile(self) -> MapFunction:
        """The function. It raises ValueError where both names are there: one value would be lost."""
        old, new = self.old, self.new

        def renamed(item: dict[str, Any]) -> dict[str, Any]:
            if old not in item or old == new:
                return item
            if new in item:
                raise ValueError(f"cannot rename {old} to {new}: the item has both")
            return {new if name == old else name: value for name, value in item.items()}

        return renamed


class Drop(BaseMap, frozen=True):
    """Removes an attribute; an item without it stays as it is."""

    name: str

    def compile(self) -> MapFunction:
        """The function."""
        dropped = self.name
        return lambda item: {name: value for name, value in item.items() if name != dropped}


def overlay(**fields: Any) -> Overlay:
    """Lays these fields over every item. Raises codec.NotEncodable."""
    return Overlay({name: value_from_python(value) for name, value in fields.items()})


def swap_prefix(attribute: str, old: str, new: str) -> SwapPrefix:
    """Puts `new` where the text of an attribute (a key, mostly) begins with `old`; leaves other items alone."""
    return SwapPrefix(attribute, old, new)


def rename(old: str, new: str) -> Rename:
    """Gives an attribute another name. An item that has both fails."""
    return Rename(old, new)


def drop(name: str) -> Drop:
    """Removes an attribute."""
    return Drop(name)


def values_of(typed: dict[str, dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Gives the Python values anew for each item, as far as somebody could change them in place."""
    fixed = {name: value_to_python(value) for name, value in typed.items() if value.keys().isdisjoint(("L", "M"))}
    fresh = {name: value for name, value in typed.items() if name not in fixed}
    if not fresh:
        return lambda: fixed
    return lambda: fixed | {name: value_to_python(value) for name, value in fresh.items()}
