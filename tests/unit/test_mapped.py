"""What may come of one item: keys and versions as DynamoDB sees them, and what fails in which words."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bulkexec import errors, maps
from bulkexec.command import arguments_of, restore
from bulkexec.commands.copy import Copy
from bulkexec.commands.edit import Edit
from bulkexec.commands.move import Move
from bulkexec.cursor import Cursor, decode_cursor, require_same
from bulkexec.mapped import DETAILS_CHARACTERS, Rejected, added_by, keys_changed, next_version
from bulkexec.model import KeyAttribute, Page, Scope, Table, Work
from bulkexec.plan import Plan
from bulkexec.writes import Put, Update

KEYS = (KeyAttribute("pk", "S"), KeyAttribute("sk", "N"))
TABLE = Table("orders", "arn:orders", "eu-west-1", "1", KEYS, "ACTIVE", 10, 5000, "on-demand")
OTHER = Table("archive", "arn:archive", "eu-west-1", "1", (KeyAttribute("id", "S"),), "ACTIVE", 0, 0, "on-demand")
ITEM = {"pk": "a", "sk": Decimal("0.1")}


def page(*items: dict[str, Any]) -> Page:
    return Page([msgspec.Raw(msgspec.json.encode(item)) for item in items], len(items), len(items), 0.0, None)


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        ({"sk": Decimal("0.10")}, []),
        ({"sk": 0.1}, []),
        ({"sk": Decimal("0.2")}, ["sk"]),
        ({"pk": "b", "sk": 1}, ["pk", "sk"]),
        ({"sk": "0.1"}, ["sk"]),
        ({"pk": None}, ["pk"]),
    ],
)
def test_a_key_is_changed_when_dynamodb_says_so(after: dict[str, Any], changed: list[str]) -> None:
    assert keys_changed(ITEM, {**ITEM, **after}, TABLE) == changed


def test_a_key_that_cannot_be_stored_is_rejected() -> None:
    with pytest.raises(Rejected, match="pk"):
        keys_changed(ITEM, {**ITEM, "pk": object()}, TABLE)


@pytest.mark.parametrize("digits", [1, 27, 28, 29, 37])
def test_a_version_is_counted_exactly(digits: int) -> None:
    assert next_version({"v": Decimal("9" * digits)}, "v") == 10**digits


@pytest.mark.parametrize("version", ["text", None, Decimal("1E+60"), Decimal("1E-60")])
def test_a_version_that_cannot_be_counted_is_rejected(version: Any) -> None:
    with pytest.raises(Rejected):
        next_version({"v": version}, "v")


def test_what_is_added_to_is_known_by_its_own_name_in_every_place() -> None:
    once, twice = maps.set_values(adds=['"a=b"=1']), maps.set_values(sets=["x=1"], adds=["n=2", '"c""d"=3'])
    assert added_by(once) == ("a=b",)
    assert added_by(maps.compose(maps.drop("z"), maps.compose(once, twice))) == ("a=b", "n", 'c"d')
    assert added_by(None) == ()


def test_a_sum_is_written_only_over_what_it_was_made_of() -> None:
    edit = restore("edit", arguments_of(Edit(add=('"a=b"=5',), rename=("x=y",)).prepare()))
    assert isinstance(edit, Edit)
    (write,) = edit.page(page({"pk": {"S": "a"}, "sk": {"N": "1"}, "a=b": {"N": "10"}}), Work(Scope(TABLE))).writes
    assert isinstance(write, Update)
    assert {name: bytes(raw or b"") for name, raw in write.observed.items()} == {"a=b": b'{"N":"10"}'}
    assert bytes(write.sets["a=b"]) == b'{"N":"15"}'


def test_details_are_short_and_in_one_line() -> None:
    rejected = Rejected("MapRaised", "ValueError:\n" + "x " * 2000)
    assert "\n" not in rejected.details
    assert len(rejected.details) == DETAILS_CHARACTERS + 1


def test_what_could_not_be_copied_is_named_by_its_old_key(tmp_path: Path) -> None:
    path = tmp_path / "change.py"
    path.write_text("def map_item(item):\n    return {'id': item['pk'] + '!'}\n")
    copy = Copy(map_file=str(path), to="archive").prepare()
    (write,) = copy.page(page({"pk": {"S": "a"}, "sk": {"N": "1"}}), Work(Scope(TABLE), target=OTHER)).writes
    assert isinstance(write, Put)
    assert bytes(write.origin) == b'{"pk":{"S":"a"},"sk":{"N":"1"}}'
    assert bytes(write.item) == b'{"id":{"S":"a!"}}'


@pytest.mark.parametrize(
    "command", [Copy(if_not_exists=True, if_exists=True), Move(if_not_exists=True, if_exists=True)]
)
def test_conditions_that_exclude_each_other(command: Any) -> None:
    with pytest.raises(errors.BadArgument, match="exclude each other"):
        command.plan(Scope(TABLE, listed=True))


@pytest.mark.parametrize(
    ("expression", "names", "counted"),
    [
        ("ADD version :one", "", True),
        ("ADD #v :one", '{"#v": "version"}', True),
        ("SET #version = :one", '{"#version": "n"}', False),
        ("SET versions = :one", "", False),
    ],
)
def test_an_expression_has_to_count_the_version(expression: str, names: str, counted: bool) -> None:
    edit = Edit(
        update_expression=expression,
        update_names=names,
        update_values='{":one": {"N": "1"}}',
        version_field="version",
    )
    if counted:
        assert edit.prepare() == edit
    else:
        with pytest.raises(errors.BadArgument, match="leaves the version version as it is"):
            edit.prepare()


# Tokens

TOKEN_OF_0_1 = (
    "eyJmaW5nZXJwcmludCI6ImE2MmUyNmZkNTA3Y2I0MGEiLCJzZWdtZW50cyI6OCwiZG9uZSI6W1swLDJdLFs1LDVdXSwib3BlbiI6eyIzIjoie1wicG"
    "tcIjp7XCJTXCI6XCLDqVwifSxcInNrXCI6e1wiTlwiOlwiMVwifX0ifSwiam9iIjoiIiwidmVyc2lvbiI6MSwiaGVsZCI6e319"
)
"""As version 0.1 gave it to a user, who may come back with it to any later 0.x."""


def plan(command: Any) -> Plan:
    return Plan("edit", arguments_of(command), Work(Scope(TABLE)), 8, True, where="n > 1")


def test_a_token_fits_a_map_by_its_text_alone(tmp_path: Path) -> None:
    def edit(name: str, text: str = "def f(item):\n    return item\n") -> Edit:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return Edit(map_file=str(path), rename=("a=b",)).prepare()  # type: ignore[return-value]

    token = Cursor.of(plan(edit("one.py")).fingerprint, 8, ()).encode()
    require_same(decode_cursor(token), plan(edit("elsewhere/two.py")).fingerprint)
    for other in (edit("one.py", "def f(item):\n    return None\n"), Edit(set_values=("a=1",)).prepare()):
        with pytest.raises(errors.BadToken):
            require_same(decode_cursor(token), plan(other).fingerprint)


def test_a_token_of_version_0_1_still_fits() -> None:
    cursor = decode_cursor(TOKEN_OF_0_1)
    assert (cursor.done, cursor.open) == (((0, 2), (5, 5)), {3: '{"pk":{"S":"é"},"sk":{"N":"1"}}'})
    require_same(cursor, plan(Edit(set_values=("a=1",), add=("n=2",), version_field="v").prepare()).fingerprint)
