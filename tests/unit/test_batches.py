"""Batch bodies joined from raw bytes are the JSON that an encoder would have made."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec import batches
from bulkexec.batches import BatchWrite, KeyValues, Statements
from bulkexec.model import KeyAttribute, Statement, Table
from bulkexec.writes import Delete, Put, Update

NAMES = st.text(min_size=1, max_size=10)
VALUES = st.fixed_dictionaries({"S": st.text(max_size=20)}) | st.fixed_dictionaries({"N": st.integers().map(str)})
ITEMS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=5)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def table(*keys: str, name: str = "t") -> Table:
    return Table(
        name=name,
        arn=f"arn:aws:dynamodb:us-east-1:111122223333:table/{name}",
        region="us-east-1",
        account="111122223333",
        keys=tuple(KeyAttribute(key, "S") for key in keys),
        status="ACTIVE",
        item_count=0,
        size_bytes=0,
        billing="on-demand",
    )


@given(st.lists(ITEMS, min_size=1, max_size=25))
def test_batch_write_carries_each_write_as_it_is(items: list[Any]) -> None:
    made = BatchWrite("t.able-1")
    puts = [{"PutRequest": {"Item": item}} for item in items]
    deletes = [{"DeleteRequest": {"Key": item}} for item in items]
    for body, wanted in (
        (made.puts(Put(raw(item)) for item in items), puts),
        (made.deletes(Delete(raw(item)) for item in items), deletes),
    ):
        assert json.loads(body) == {"RequestItems": {"t.able-1": wanted}, "ReturnConsumedCapacity": "TOTAL"}


@given(key=st.tuples(VALUES, VALUES), others=ITEMS, names=st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_a_delete_names_its_keys_in_the_order_of_the_schema(
    key: tuple[Any, Any], others: dict[str, Any], names: list[str]
) -> None:
    item = others | dict(zip(reversed(names), reversed(key), strict=True))
    guard = Statement('"a" = ? OR "b" = ?', ({"N": "1"}, {"S": "\"'"}))
    entry = loaded(Statements(table(*names), guard=guard), Delete(raw(item)))
    quoted = [batches.quoted(name) for name in names]
    assert entry == {
        "Statement": f'DELETE FROM "t" WHERE {quoted[0]} = ? AND {quoted[1]} = ? AND ("a" = ? OR "b" = ?)',
        "Parameters": [*key, {"N": "1"}, {"S": "\"'"}],
    }


def loaded(statements: Statements, write: Delete | Update | Put) -> Any:
    entry = statements.entry(write)
    assert entry is not None
    return json.loads(entry)


def test_an_update_binds_its_changes_then_the_key_then_what_was_observed_then_the_guard() -> None:
    statements = Statements(table("pk"), guard=Statement('"a" = ?', ({"S": "old"},)))
    observed = {"v": raw({"N": "1"}), 'q"t': None, "n": raw({"NULL": True}), "s": raw({"S": "NULL"})}
    update = Update(raw({"pk": {"S": "k"}}), {"a": raw({"S": "new"}), "c": raw({"L": []})}, ("b", "d"), observed)
    delete = Delete(raw({"pk": {"S": "k"}}))
    entries = [statements.entry(write) for write in (update, delete)]
    assert json.loads(statements.body([entry for entry in entries if entry])) == {
        "Statements": [
            {
                "Statement": 'UPDATE "t" SET "a" = ? SET "c" = ? REMOVE "b" REMOVE "d" WHERE "pk" = ? AND "v" = ? '
                'AND "q""t" IS MISSING AND attribute_type("n", ?) AND "s" = ? AND ("a" = ?)',
                "Parameters": [
                    {"S": "new"},
                    {"L": []},
                    {"S": "k"},
                    {"N": "1"},
                    {"S": "NULL"},
                    {"S": "NULL"},
                    {"S": "old"},
                ],
            },
            {"Statement": 'DELETE FROM "t" WHERE "pk" = ? AND ("a" = ?)', "Parameters": [{"S": "k"}, {"S": "old"}]},
        ],
        "ReturnConsumedCapacity": "TOTAL",
    }


@given(ITEMS)
def test_an_insert_binds_every_attribute(item: dict[str, Any]) -> None:
    entry = loaded(Statements(table("pk")), Put(raw(item), "absent"))
    members = ", ".join("'" + name.replace("'", "''") + "': ?" for name in item)
    assert entry == {"Statement": f'INSERT INTO "t" VALUE {{{members}}}', "Parameters": list(item.values())}


@pytest.mark.parametrize(("length", "fits"), [(8192, True), (8193, False)])
def test_a_statement_has_at_most_8192_characters(length: int, fits: bool) -> None:
    frame = len("INSERT INTO \"t\" VALUE {'pk': ?, '': ?}")
    item = {"pk": {"S": "ä"}, "ö" * (length - frame): {"N": "1"}}
    assert (Statements(table("pk")).entry(Put(raw(item), "absent")) is not None) is fits


def test_texts_that_never_repeat_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "TEXTS_KEPT", 3)
    statements = Statements(table("pk"))
    key = raw({"pk": {"S": "k"}})
    for number in range(20):
        entry = loaded(statements, Update(key, {f"a{number}": raw({"N": "1"})}))
        assert entry["Statement"] == f'UPDATE "t" SET "a{number}" = ? WHERE "pk" = ?'
    assert len(statements._begins) <= 3


@given(ITEMS, st.lists(NAMES, min_size=1, max_size=2, unique=True))
def test_keys_are_cut_out_of_items_whatever_they_are_called(item: dict[str, Any], names: list[str]) -> None:
    keys = KeyValues(names)
    assert json.loads(bytes(keys.key(raw(item)))) == {name: item[name] for name in names if name in item}
    assert [bytes(value) for value in keys(raw(item))] == [
        json.dumps(item[name]).encode() if name in item else b"" for name in names
    ]


@pytest.mark.parametrize(("name", "wanted"), [("a.b", '"a.b"'), ('a"b', '"a""b"'), ("größe", '"größe"')])
def test_names_are_quoted(name: str, wanted: str) -> None:  # case C021 C023
    assert batches.quoted(name) == wanted
