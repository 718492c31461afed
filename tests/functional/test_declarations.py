"""bulkexec.toml: what is said once about a table stands where an option was not given; flags win."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def edit(verb: Any) -> Any:
    return verb("edit")


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes bulkexec.toml, which is found from a folder below it."""

    def write(text: str) -> None:
        (tmp_path / "bulkexec.toml").write_text(text)
        (tmp_path / "here" / "below").mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(tmp_path / "here" / "below")

    return write


def by_key(tables: Any, name: str) -> dict[str, Any]:
    return {item["pk"]["S"]: item for item in tables.read(name)}


def test_what_is_declared_need_not_be_repeated(edit: Any, tables: Any, items: Any, declare: Any) -> None:
    head = {"pk": {"S": "#table"}, "title": {"S": "the word"}, "at": {"N": "1"}}
    given = [
        item | {"at": item["n"], "title": {"S": f"word {n}" if n % 2 else "none"}}
        for n, item in enumerate(items(20, 60))
    ]
    name = tables.make([*given, head])
    declare(
        f'[tables.{name}]\nkeys = ["pk"]\nversion_field = "-v"\ncreated_at_field = "at"\n'
        'searchable = ["title", "note"]\ntechnical_prefix = "-"\n'
        'descriptor = {pk = "#table"}\n[tables.other]\nversion_field = "x"\n'
    )
    outcome = edit(name, "--search", "word", "--as-of", "10", "--set", "seen=true")
    assert (outcome.report["processed"], outcome.report["matched"]) == (5, 5), "1, 3, 5, 7, 9"
    assert "title or note has 'word' AND at up to 10" in " ".join(outcome.stderr.split())
    found = by_key(tables, name)
    assert found["k0000003"]["-v"] == {"N": "1"}
    assert found["#table"] == head
    arn = tables.client.describe_table(TableName=name)["Table"]["TableArn"]
    outcome = edit(arn, "--all", "--set", "seen=true", "--version-field", "mine")
    assert (outcome.report["processed"], outcome.report["skipped"]) == (15, 5), "an ARN is of the same table"
    found = by_key(tables, name)
    assert (found["k0000000"].get("mine"), found["k0000000"].get("-v")) == ({"N": "1"}, None), "flags win"
    assert found["#table"] == head


def test_the_descriptor_stays_hidden_from_every_source(
    edit: Any, verb: Any, tables: Any, items: Any, declare: Any, tmp_path: Path
) -> None:
    head = {"pk": {"S": "#table"}, "n": {"N": "1"}}
    name = tables.make([*items(9, 60), head])
    declare(f'[tables.{name}]\ndescriptor = {{pk = {{S = "#table"}}}}\n')
    listed = tmp_path / "keys.json"
    listed.write_text('{"pk": {"S": "#table"}}\n{"pk": {"S": "k0000001"}}\n')
    report = edit(name, "--keys-from", str(listed), "--set", "seen=true").report
    assert (report["scanned"], report["matched"], report["processed"]) == (2, 1, 1)
    assert edit(name, "--all", "--add", "n=1").report["processed"] == 9
    assert verb("delete")(name, "--all").report["processed"] == 9
    assert tables.read(name) == [head]


def test_attributes_of_others_are_neither_shown_nor_taken(edit: Any, tables: Any, declare: Any, tmp_path: Path) -> None:
    name = tables.make([{"pk": {"S": "a"}, "_ttl": {"N": "9"}, "x": {"S": "y"}}])
    declare(f'[tables.{name}]\ntechnical_prefix = "_"\n')
    path = tmp_path / "change.py"
    path.write_text("def map_item(item):\n    assert '_ttl' not in item\n    return {'pk': item['pk'], 'z': 1}\n")
    assert edit(name, "--all", "--map", str(path)).report["processed"] == 1
    assert tables.read(name) == [{"pk": {"S": "a"}, "_ttl": {"N": "9"}, "z": {"N": "1"}}]
    path.write_text("def map_item(item):\n    return {**item, '_ttl': 1}\n")
    assert "TechnicalField" in edit.tried(name, "--all", "--map", str(path)).report["error"][0]


def test_a_declared_version_must_be_counted_by_an_expression_too(
    edit: Any, tables: Any, items: Any, declare: Any
) -> None:
    name = tables.make(items(3, 60))
    declare(f'[tables.{name}]\nversion_field = "v"\n')
    values = ("--update-values", '{":one": {"N": "1"}}')
    refused = edit.tried(name, "--all", "--update-expression", "ADD n :one", *values)
    assert "leaves the version v as it is" in refused.report["error"][0]
    assert edit(name, "--all", "--update-expression", "ADD n :one, v :one", *values).report["processed"] == 3
    assert {item["v"]["N"] for item in tables.read(name)} == {"1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tables.NAME]\nkeys = ["id"]\n', "is declared with the keys id, but has pk"),
        ('[tables.NAME]\nversionfield = "v"\n', "versionfield"),
        ("[tables.NAME]\nversion_field = 3\n", "version_field"),
        ('[tables.NAME]\ndescriptor = {sk = "a"}\n', "the descriptor has sk"),
        ('[tables.NAME]\ndescriptor = {pk = {N = "1"}}\n', "the key is of type S"),
        ("[tables.NAME]\ndescriptor = {pk = true}\n", "the key is of type S"),
        ('[table.NAME]\nversion_field = "v"\n', "[tables.orders]"),
        ("tables = 3\n", "[tables.orders]"),
        ("[tables]\nNAME = 3\n", "[tables.orders]"),
        ("[tables.NAME\n", "cannot be read"),
    ],
)
def test_a_faulty_declaration_is_refused(
    text: str, said: str, edit: Any, tables: Any, items: Any, declare: Any
) -> None:
    name = tables.make(items(3, 60))
    declare(text.replace("NAME", name))
    outcome = edit.tried(name, "--all", "--set", "a=1")
    assert outcome.code == 2
    assert said in " ".join(outcome.report["error"]), outcome.report
    assert all("a" not in item for item in tables.read(name))


def test_what_is_not_declared_is_said(edit: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(3, 60))
    for options, code, word in (
        (("--as-of", "2026-11-30"), "BX115", "--created-at-field"),
        (("--search", "x"), "BX100", "--searchable"),
        (("--as-of", "yesterday", "--created-at-field", "at"), "BX100", "yesterday"),
        (("--filter", "n:between:1:2"), "BX103", "field:op:value"),
    ):
        outcome = edit.tried(name, *options, "--set", "a=1")
        assert outcome.report["error"][0].startswith(f"error {code}"), outcome.report
        assert word in " ".join(outcome.report["error"]), outcome.report


def test_as_of_takes_texts_and_offsets(edit: Any, tables: Any) -> None:
    name = tables.make(
        [{"pk": {"S": f"d{day}"}, "at": {"S": f"2026-11-{day:02d}T12:00:00.000Z"}} for day in range(1, 7)]
    )
    options = ("--created-at-field", "at", "--set", "seen=true")
    assert edit(name, "--as-of", "2026-11-03T14:00:00+02:00", *options).report["matched"] == 3
    assert edit(name, "--as-of", "2026-11-02", *options).report["matched"] == 1
