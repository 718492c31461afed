"""What a command may ask to be written: typed writes, whose items and keys stay raw."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Observed = Mapping[str, msgspec.Raw | None]
"""What top-level attributes must still be for a write to go: their typed JSON, None for one that must be missing."""


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Delete by key; `key` is typed JSON that has the key attributes.

    A refusal by `observed` is a conflict, one by the run's filter alone is a skip.
    """

    key: msgspec.Raw
    observed: Observed = {}


class Put(msgspec.Struct, frozen=True, gc=False):
    """Put a whole item, given as typed JSON; always, or when its key is absent or present (else it is skipped).

    `origin` is the key it is named by when it is not put: of the item it was made from. Empty: its own.
    """

    item: msgspec.Raw
    when: Literal["", "absent", "present"] = ""
    origin: msgspec.Raw = msgspec.Raw()


class Update(msgspec.Struct, frozen=True):
    """Set and remove top-level attributes of one item that is there; values are typed JSON.

    A refusal by `observed` is a conflict, any other (gone, no longer matched by the filter) is a skip.
    """

    key: msgspec.Raw
    sets: Mapping[str, msgspec.Raw]
    removes: tuple[str, ...] = ()
    observed: Observed = {}


class Apply(msgspec.Struct, frozen=True):
    """Run the work's own UpdateExpression on one item that is there; `item` is the item as it was read."""

    item: msgspec.Raw


class Move(msgspec.Struct, frozen=True):
    """Put an item, and when that is acknowledged delete what it was made from.

    A put that is refused because the destination is there counts as acknowledged when that equals what it would put:
    then an earlier attempt got as far as this. With `settled`, this is looked at first and an equal item not put again.
    """

    put: Put
    delete: Delete
    settled: bool = False


Write = Delete | Put | Update | Apply | Move
