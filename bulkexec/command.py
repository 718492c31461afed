"""The contract of a command: one frozen dataclass in one file.

Its docstring is its help (first line: what it does; then Reads / Writes / Costs / Rerun), its fields are its arguments,
`plan` says how pages are read, `page` is pure (no I/O, no clock), `report` says in words what came of it.
A package adds commands through the entry-point group `bulkexec.commands`; built-in ones register the same way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar

import msgspec

from bulkexec import errors
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.report import Report

ENTRY_POINT_GROUP = "bulkexec.commands"


@dataclass(frozen=True)
class Change:
    """What would become of one item: itself as Python values before and after; `after` None: it would be let be.

    `problem` says why it would fail.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any] | None = None
    problem: str = ""


def argument(flag: str, text: str, *, default: Any = MISSING, choices: Iterable[str] = ()) -> Any:
    """A field that is a command-line option `flag` with this help text. Without a default it must be given."""
    return field(default=default, metadata={"flag": flag, "help": text, "choices": tuple(choices)})


@dataclass(frozen=True)
class Command:
    """One bulk operation. Subclasses set `name`, declare arguments and give the three methods."""

    name: ClassVar[str]
    mutates: ClassVar[bool] = False
    verb: ClassVar[str] = "processed"
    """Past participle for the report: what happened to a processed item ("deleted")."""
    keeps_rows: ClassVar[bool] = False
    """Whether `page` returns rows that are the user's result."""
    takes_filter: ClassVar[bool] = True
    """Whether a filter, an index or a list of keys says which items; otherwise the command's own arguments do."""

    @property
    def writes_to(self) -> str:
        """Name or ARN of another table that puts go to; empty: they go to the one that is read."""
        return ""

    @property
    def puts_if(self) -> bool:
        """Whether what is under an item's new key decides if it is put, which nobody knows before it is."""
        return False

    def prepare(self) -> "Command":
        """The command with what its arguments name (a file of the user's) read into it. Called once, by the client.

        Raises `errors.BadArgument`.
        """
        return self

    def check(self, work: Work) -> None:
        """Raises `errors.BadArgument` when the arguments do not fit the work, whose target is known now."""

    def trial(self, page: Page, work: Work) -> Sequence[Change]:
        """What the command would do to a sample of items, for people to see before anything is written."""
        return ()

    def plan(self, scope: Scope) -> Work:
        """How to read the scope's pages. Raises `errors.Refused` when the arguments do not fit it."""
        raise NotImplementedError

    def page(self, page: Page, work: Work) -> PageResult:
        """What to write and what to hand out for one page. Pure."""
        raise NotImplementedError

    def makes(self, source: msgspec.Raw, work: Work) -> bool:
        """Whether a source item has a copy, in a phase that removes what has no source. Pure."""
        return True

    def report(self, report: Report) -> list[str]:
        """Lines for people that say what came of it, beyond the counts every run shows."""
        return []


def require_choice(command: str, every: bool, scope: Scope) -> None:
    """What changes a table says which items, or --all. Raises `errors.BadArgument` and `errors.NoFilter`."""
    if every and scope.chosen:
        raise errors.BadArgument("--all and a filter contradict each other", fix="give one of them")
    if not every and not scope.chosen:
        raise errors.NoFilter(
            f"{command} needs --where, or --all to {command} every item of {scope.table.name}", state="nothing written"
        )


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def names() -> list[str]:
    """The names of all installed commands, sorted."""
    return sorted(_entries())


def entry(name: str) -> EntryPoint:
    """The entry point a command comes from; its distribution is what must be installed where the command runs."""
    try:
        return _entries()[name]
    except KeyError:
        raise errors.BadArgument(f"there is no command {name!r}", fix=f"one of: {', '.join(names())}") from None


def load(name: str) -> type[Command]:
    """The class of a command. Raises `errors.BadArgument` for an unknown name."""
    loaded: type[Command] = entry(name).load()
    return loaded


def arguments_of(command: Command) -> dict[str, Any]:
    """A command's arguments as JSON-ready values, without those that are as when they are left out.

    So an argument that a later version adds changes neither plans nor resume tokens that do not use it.
    """
    given = {each.name: getattr(command, each.name) for each in fields(command)}
    default = {each.name: each.default for each in fields(command)}
    return {name: msgspec.to_builtins(value) for name, value in given.items() if value != default[name]}


def restore(name: str, arguments: dict[str, Any]) -> Command:
    """The command that `arguments_of` came from."""
    return msgspec.convert(arguments, load(name))
