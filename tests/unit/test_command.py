"""Commands are found by name, and their arguments travel as JSON."""

from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, ClassVar

import msgspec
import pytest

from bulkexec import errors
from bulkexec.command import Command, argument, arguments_of, entry, load, names, restore
from bulkexec.commands.count import Count
from bulkexec.commands.delete import Delete
from bulkexec.commands.find import Find
from bulkexec.model import Expression, KeyAttribute, Page, PageResult, Scope, Statement, Table, Work
from bulkexec.writes import Delete as DeleteItem

TABLE = Table(
    "orders", "arn", "eu-west-1", "1", (KeyAttribute("pk", "S"), KeyAttribute("sk", "N")), "ACTIVE", 1, 1, "on-demand"
)
FILTER = Expression("#a = :a", {"#a": "a"}, {":a": {"S": "x"}})
FILTERED = Scope(TABLE, filter=FILTER, guard=FILTER, guard_statement=Statement('"a" = ?', ({"S": "x"},)))
ITEMS = [msgspec.Raw(b'{"pk":{"S":"a"},"sk":{"N":"1.0"}}'), msgspec.Raw(b'{"pk":{"S":"\xc3\xa4"},"sk":{"N":"1E+3"}}')]
PAGE = Page(ITEMS, 2, 9, 0.5, None)


@pytest.mark.parametrize(
    "command", [Count(), Find(), Delete(), Delete(all=True), Delete(unguarded=True), Delete(all=True, unguarded=True)]
)
def test_arguments_survive_json(command: Command) -> None:
    travelled = msgspec.json.decode(msgspec.json.encode(arguments_of(command)))
    assert restore(command.name, travelled) == command


def test_arguments_of_another_type_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        restore("delete", {"all": "yes"})


def test_every_installed_command_is_named_as_it_is_registered() -> None:
    assert {"count", "delete", "find"} <= set(names())
    for name in names():
        assert load(name).name == name
        assert entry(name).dist is not None


@pytest.mark.parametrize("name", ["", "drop", "Delete", "count "])
def test_an_unknown_command_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(errors.BadArgument) as caught:
        load(name)
    assert caught.value.exit_code == 2
    assert "copy, copy-under, count, delete, delete-under, edit, find, move" in caught.value.fix


@pytest.mark.parametrize("kind", [Count, Find, Delete])
def test_a_commands_docstring_is_its_help(kind: type[Command]) -> None:
    text = cleandoc(kind.__doc__ or "")  # indented up to Python 3.12
    assert text.split("\n", 1)[0].endswith(".")
    for row in ("Reads ", "Writes ", "Costs ", "Rerun "):
        assert f"\n{row}" in text


def test_an_argument_knows_its_flag_help_and_choices() -> None:
    @dataclass(frozen=True)
    class Shout(Command):
        """Say it."""

        name: ClassVar[str] = "shout"
        volume: str = argument("--volume", "How loud.", choices=["low", "high"])
        times: int = argument("--times", "How often.", default=3)

    assert arguments_of(Shout("low", 5)) == {"volume": "low", "times": 5}
    # What a later version adds must not change the plans and tokens of those who do not use it.
    assert arguments_of(Shout("low")) == {"volume": "low"}
    metadata: Any = Shout.__dataclass_fields__["volume"].metadata
    assert dict(metadata) == {"flag": "--volume", "help": "How loud.", "choices": ("low", "high")}
    with pytest.raises(TypeError, match="volume"):
        Shout()  # type: ignore[call-arg]


# What the commands make of a page


def test_count_reads_counts_alone() -> None:
    assert Count().plan(FILTERED) == Work(FILTERED, count_only=True)
    assert Count().page(PAGE, Count().plan(FILTERED)) == PageResult()


def test_find_hands_out_every_match_untouched() -> None:
    # case C001 C002
    assert Find().page(PAGE, Find().plan(FILTERED)) == PageResult(rows=ITEMS)
    assert Find().plan(FILTERED).projection == ()


def test_delete_reads_keys_and_sends_the_filter_along() -> None:
    work = Delete().plan(FILTERED)
    assert (work.projection, work.guarded) == (("pk", "sk"), True)
    assert Delete().page(PAGE, work).writes == [DeleteItem(item) for item in ITEMS]
    assert not Delete(unguarded=True).plan(FILTERED).guarded


def test_delete_of_everything_has_no_condition() -> None:
    assert not Delete(all=True).plan(Scope(TABLE)).guarded


@pytest.mark.parametrize(
    ("command", "scope", "refusal"),
    [
        (Delete(), Scope(TABLE), errors.NoFilter),
        (Delete(unguarded=True), Scope(TABLE), errors.NoFilter),
        (Delete(all=True), FILTERED, errors.BadArgument),
        (Delete(all=True), Scope(TABLE, key_condition=FILTER), errors.BadArgument),
    ],
)
def test_delete_is_refused_unless_what_to_delete_is_said_once(
    command: Delete, scope: Scope, refusal: type[errors.Refused]
) -> None:
    with pytest.raises(refusal):
        command.plan(scope)
