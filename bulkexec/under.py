"""What commands on a subtree have in common: which subtree, where it goes, and what becomes of one of its items.

A subtree is a node of an item collection and all that is below it: the item whose sort key is the given one, which may
be missing, and those whose sort keys go on with a separator behind it.
"""

import base64
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal

import msgspec

from bulkexec import errors
from bulkexec.codec import to_python, value_to_python
from bulkexec.command import Command, argument
from bulkexec.equality import same
from bulkexec.mapped import Mapped, Rejected, key_of, keys_changed, observed_of
from bulkexec.model import KeyAttribute, Page, PageResult, Scope, Table, Work
from bulkexec.nodes import Phase, Subtree
from bulkexec.report import Report
from bulkexec.subtree import below_condition, moved, overlap
from bulkexec.where.tree import is_number
from bulkexec.writes import Delete, Move, Put, Write

_HEXADECIMAL = re.compile(r"[xX]'((?:[0-9a-fA-F]{2})+)'")
_attributes = msgspec.json.Decoder(dict[str, msgspec.Raw])
When = Literal["", "absent", "present"]
KEPT = "what has something left below it is kept: skipped, with the reason ChildRemains"


@dataclass(frozen=True, kw_only=True)
class Under(Command):
    """Base of the commands on a subtree."""

    mutates: ClassVar[bool] = True
    takes_filter: ClassVar[bool] = False

    partition: str = argument("--partition", "The partition key of the item collection, in the type of the key.")
    under: str = argument("--under", "The sort key of the node; it need not be there itself.")
    separator: str | None = argument(
        "--separator",
        "What stands between a node's sort key and what is below it, if not declared in bulkexec.toml; "
        "'' takes every longer sort key that begins so.",
        default=None,
    )

    def source(self, table: Table) -> Subtree:
        """The subtree. Raises `errors.BadArgument` where the table or the arguments have none."""
        return self._subtree(table, "--partition", self.partition, "--under", self.under)

    def _subtree(self, table: Table, flag: str, partition: str, prefix_flag: str, prefix: str) -> Subtree:
        if len(table.keys) < 2 or table.keys[1].type != "S":
            raise errors.BadArgument(f"{table.name} has no sort key of type S, so it has no subtrees")
        if self.separator is None:
            raise errors.BadArgument(
                f"{self.name} needs to know what separates the parts of a sort key",
                why=f"under {prefix!r} without one there would also be {prefix + '0'!r}",
                fix="give --separator or declare it in bulkexec.toml; --separator '' if every longer sort key is meant",
            )
        if not prefix:
            raise errors.BadArgument(f"{prefix_flag} is empty", fix="give the sort key of a node")
        if self.separator and prefix.endswith(self.separator):
            raise errors.BadArgument(
                f"{prefix_flag} {prefix!r} ends with the separator", fix=f"leave the last {self.separator!r} off"
            )
        return Subtree(typed_key_value(flag, partition, table.keys[0]), prefix, self.separator)

    def work(self, scope: Scope, *phases: Phase, **more: Any) -> Work:
        """The work of these phases. Raises `errors.BadArgument` for a scope that is chosen some other way."""
        if scope.chosen:
            raise errors.BadArgument(f"{self.name} takes no filter: --partition and --under say which items")
        # What a sample is read by, and what tells everybody that one item collection is read.
        scope = Scope(scope.table, key_condition=below_condition(scope.table, phases[0].subtree))
        return Work(scope, consistent=True, phases=phases, **more)


@dataclass(frozen=True, kw_only=True)
class Elsewhere(Under, Mapped):
    """Base of the commands that make a subtree anew in another place."""

    to: str = argument("--to", "The table it goes to, by name or ARN; the same one if left out.", default="")
    to_partition: str | None = argument("--to-partition", "The partition key it goes to.", default=None)
    to_prefix: str | None = argument("--to-prefix", "The sort key that the node gets.", default=None)

    @property
    def writes_to(self) -> str:
        """See `Command.writes_to`."""
        return self.to

    @property
    def when(self) -> When:
        """The condition of each put. Raises `errors.BadArgument` for two at once."""
        raise NotImplementedError

    @property
    def puts_if(self) -> bool:
        """See `Command.puts_if`."""
        return bool(self.when)

    def destination(self, table: Table) -> Subtree:
        """Where the subtree goes; keys of the target are those of the source."""
        partition = self.partition if self.to_partition is None else self.to_partition
        prefix = self.under if self.to_prefix is None else self.to_prefix
        return self._subtree(table, "--to-partition", partition, "--to-prefix", prefix)

    def check(self, work: Work) -> None:
        """A subtree does not go into itself, and keys keep their names and types."""
        source, target = work.scope.table, work.target
        if target is not None and target.keys != source.keys:
            raise errors.BadArgument(
                f"{target.name} has other key attributes than {source.name}", fix="choose a table with the same key"
            )
        here, there = self.source(source), self.destination(source)
        if target is None and same(here.partition, there.partition) and overlap(here, there):
            raise errors.BadArgument(
                f"what is under {here.prefix!r} and under {there.prefix!r} overlap, so {self.name} would find its own"
                " output",
                fix="give --to-prefix outside the subtree, or another --to-partition or table",
                state="nothing written",
            )

    def put_under(self, raw: msgspec.Raw, work: Work) -> Put | None:
        """The put of an item at its new key; None when the map lets it be. Raises `Rejected`."""
        partition_name, sort_name = work.scope.table.key_names
        phase = work.phase or work.phases[0]
        assert phase.other is not None
        if self.transform is None:
            attributes = _attributes.decode(raw)
            old = msgspec.json.decode(attributes[sort_name])["S"]
            new = {"S": moved(old, phase.subtree, phase.other)}
            attributes[partition_name] = msgspec.Raw(msgspec.json.encode(phase.other.partition))
            attributes[sort_name] = msgspec.Raw(msgspec.json.encode(new))
            return Put(msgspec.Raw(msgspec.json.encode(attributes)), self.when)
        before = to_python(raw)
        after = self.after(before)
        if after is None:
            return None
        if keys_changed(before, after, work.scope.table):
            raise Rejected("KeyChanged", "the map changes the key, which the command itself does")
        after[partition_name] = value_to_python(phase.other.partition)
        after[sort_name] = moved(before[sort_name], phase.subtree, phase.other)
        return self.put_of(after, work, self.when)


@dataclass(frozen=True, kw_only=True)
class Moved(Elsewhere):
    """Base of the commands after which a subtree is in another place and no longer where it was.

    All of it is copied before anything is deleted, parents first; then, from below, each item is deleted once its copy
    is seen to be there.
    """

    verb: ClassVar[str] = "moved"

    version_field: str = argument(
        "--version-field", "An item whose version changes between read and delete is a conflict.", default=""
    )

    def plan(self, scope: Scope) -> Work:
        """First the copies, then, from below, what they were made from."""
        _ = self.when  # refused before anything is asked
        here, there = self.source(scope.table), self.destination(scope.table)
        copy = Phase("copy", here, there, counts=False)
        return self.work(scope, copy, Phase("move", here, there, descending=True, removes=True))

    def page(self, page: Page, work: Work) -> PageResult:
        """A put for each item, in the second phase followed by its delete."""
        copies = work.phase is not None and not work.phase.removes
        return self.each(page, work, self.put_under if copies else self._moved)

    def _moved(self, raw: msgspec.Raw, work: Work) -> Write | None:
        put = self.put_under(raw, work)
        if put is None:
            return None
        names = (self.version_field,) if self.version_field else ()
        observed = observed_of(to_python(raw), names) if names else {}
        return Move(put, Delete(key_of(raw, work), observed), settled=True)

    def report(self, report: Report) -> list[str]:
        """See `Command.report`."""
        return kept_lines(report)


def kept_lines(report: Report) -> list[str]:
    """What is to be known of nodes that were not removed."""
    return [KEPT] if report.counts.skipped + report.counts.failed + report.counts.conflicts else []


def key_text(value: str | int | Decimal | bytes) -> str:
    """A partition key's Python value as the commands take it."""
    return f"X'{value.hex()}'" if isinstance(value, bytes) else str(value)


def typed_key_value(flag: str, text: str, key: KeyAttribute) -> dict[str, str]:
    """A key's value as typed JSON; binary is written X'00FF'. Raises `errors.BadArgument`."""
    if key.type == "S" and text:
        return {"S": text}
    if key.type == "N" and is_number(text):
        return {"N": text}
    binary = _HEXADECIMAL.fullmatch(text)
    if key.type == "B" and binary is not None:
        return {"B": base64.b64encode(bytes.fromhex(binary[1])).decode()}
    words = {"S": "a text", "N": "a number such as 42", "B": "binary such as X'00FF'"}[key.type]
    raise errors.BadArgument(f"{flag} {text!r}: the key {key.name} is of type {key.type}", fix=f"give {words}")
