"""A tree as plain JSON, to travel in a plan to workers that have no SQL parser."""

from dataclasses import fields, is_dataclass
from typing import Any

from bulkexec.where import tree
from bulkexec.where.tree import Node

Portable = Any
"""Lists, texts, numbers, booleans and None; a node is the name of its class and its fields."""


def to_portable(node: Node) -> Portable:
    """The tree as JSON values. `from_portable` is the inverse."""
    return _pack(node)


def from_portable(packed: Portable) -> Node:
    """The tree that `to_portable` packed. Raises KeyError, TypeError or ValueError on anything else."""
    node: Node = _unpack(packed)
    return node


def _pack(value: Any) -> Portable:
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: [_pack(getattr(value, each.name)) for each in fields(value)]}
    return [_pack(each) for each in value] if isinstance(value, tuple) else value


def _unpack(packed: Portable) -> Any:
    if isinstance(packed, dict):
        ((name, values),) = packed.items()
        return getattr(tree, name)(*[_unpack(value) for value in values])
    return tuple(_unpack(each) for each in packed) if isinstance(packed, list) else packed
