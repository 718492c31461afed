"""The operations of `table.Table` on a node of an item collection and all that is below it."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal, TypedDict, Unpack

import boto3

from bulkexec.commands.copy_under import CopyUnder
from bulkexec.commands.delete_under import DeleteUnder
from bulkexec.commands.move_under import MoveUnder
from bulkexec.commands.rename import Rename
from bulkexec.declarations import Declarations
from bulkexec.keywords import PutKeysOptions, Running, Targeting, check, in_python_terms, running_options
from bulkexec.maps import Map, as_map
from bulkexec.planning import Outline, make_outline
from bulkexec.results import MassOpResult
from bulkexec.runtimes.assembly import Given
from bulkexec.selection import Filter
from bulkexec.under import Under, key_text

Partition = str | int | Decimal | bytes
"""A partition key's value."""

MapFunction = Callable[[dict[str, Any]], Mapping[str, Any] | Literal[False] | None]


class Placing(TypedDict, total=False):
    """Where a subtree goes: what is left out stays as it is. `to` is another table, by name or ARN."""

    to: str
    to_partition: Partition | None
    to_prefix: str | None
    separator: str | None


class PlacingOptions(Placing, PutKeysOptions, total=False):
    """Where it goes, the condition of every put, and how to run."""


class OverwriteOptions(Placing, Running, Targeting, total=False):
    """Where it goes, how to run, and the credentials for another account."""


class UnderOptions(Running, total=False):
    """What separates a node's sort key from what is below it, if not declared; and how to run."""

    separator: str | None


class SubtreeOperations:
    """What `Table` does with subtrees.

    A subtree is the item of partition key `partition` and sort key `under`, which may be missing, and all whose sort
    keys go on with the separator. That is declared, or given as `separator`; an empty one takes every longer sort key.
    """

    name: str
    declarations: Declarations
    _session: boto3.Session

    def delete_all_under(self, partition: Partition, under: str, **options: Unpack[UnderOptions]) -> MassOpResult:
        """Delete a subtree, from below. What has something left below it is skipped."""
        check("delete_all_under", options, UnderOptions)
        return self._under(DeleteUnder(**self._node(partition, under, options)), options)

    def clone_all_under(
        self,
        partition: Partition,
        under: str,
        map_fn: Map | MapFunction | None = None,
        **options: Unpack[PlacingOptions],
    ) -> MassOpResult:
        """Copy a subtree to another place, the node first."""
        check("clone_all_under", options, PlacingOptions)
        return self._under(CopyUnder(**self._placed(partition, under, map_fn, options), **_when(options)), options)

    def clone_with_overwrite(
        self,
        partition: Partition,
        under: str,
        map_fn: Map | MapFunction | None = None,
        **options: Unpack[OverwriteOptions],
    ) -> MassOpResult:
        """Copy a subtree, then delete what is in that place and has no source; both are counted."""
        check("clone_with_overwrite", options, OverwriteOptions)
        return self._under(CopyUnder(**self._placed(partition, under, map_fn, options), overwrite=True), options)

    def move_all_under(
        self,
        partition: Partition,
        under: str,
        map_fn: Map | MapFunction | None = None,
        **options: Unpack[PlacingOptions],
    ) -> MassOpResult:
        """Copy a subtree to another place, then delete it where it was, from below: never in neither place."""
        check("move_all_under", options, PlacingOptions)
        placed = self._placed(partition, under, map_fn, options)
        version = self.declarations.version_field
        return self._under(MoveUnder(**placed, **_when(options), version_field=version), options)

    def rename(
        self,
        partition: Partition,
        under: str,
        to_prefix: str,
        **options: Unpack[UnderOptions],
    ) -> MassOpResult:
        """Give the node another sort key and all below it one that fits. What is taken by another item stays."""
        check("rename", options, UnderOptions)
        node = self._node(partition, under, options)
        return self._under(Rename(**node, to_prefix=to_prefix, version_field=self.declarations.version_field), options)

    def _node(self, partition: Partition, under: str, options: Mapping[str, Any]) -> dict[str, Any]:
        given = options.get("separator")
        separator = self.declarations.separator or None if given is None else given
        return {"partition": key_text(partition), "under": under, "separator": separator}

    def _placed(
        self, partition: Partition, under: str, map_fn: Map | MapFunction | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        to_partition = options.get("to_partition")
        return {
            **self._node(partition, under, options),
            "transform": None if map_fn is None else as_map(map_fn),
            "technical_prefix": self.declarations.technical_prefix,
            "to": options.get("to", ""),
            "to_partition": None if to_partition is None else key_text(to_partition),
            "to_prefix": options.get("to_prefix"),
        }

    @in_python_terms()
    def _under(self, command: Under, options: Mapping[str, Any]) -> MassOpResult:
        chosen = Filter(declared=self.declarations)
        outline = make_outline(self._session, command, self.name, chosen, running_options(options))
        return self._run(outline, "", options, Given(outline.command), None)

    def _run(
        self, outline: Outline, where: str, options: Mapping[str, Any], given: Given, listed: int | None
    ) -> MassOpResult:
        """Run what is outlined, once."""
        raise NotImplementedError


def _when(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: options.get(name, False) for name in ("if_not_exists", "if_exists")}
