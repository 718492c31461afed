"""PartiQL conditions that a filter can turn into, each against items it holds for and items it does not."""

from typing import Any

import pytest

from bulkexec.sandbox.process import Sandbox

ITEM = {
    "pk": {"S": "a"},
    "status": {"S": "EXPIRED"},
    "n": {"N": "5"},
    "full.name": {"S": "Zoë"},
    "m": {"M": {"k": {"L": [{"N": "1"}]}}},
    "tags": {"SS": ["p", "q"]},
    "raw": {"B": b"\x01\x02"},
}
S, N = (lambda text: {"S": text}), (lambda text: {"N": text})

HOLDS: list[tuple[str, list[Any]]] = [
    ('("status" = ? OR "status" = ?)', [S("ACTIVE"), S("EXPIRED")]),
    ('(("status" = ? AND "n" = ?) OR "n" < ?)', [S("EXPIRED"), N("5"), N("0")]),
    ('("n" = ? OR ("status" <> ? AND NOT ("n" > ?)))', [N("3"), S("ACTIVE"), N("7")]),
    ('NOT ("status" = ? OR "n" = ?)', [S("ACTIVE"), N("6")]),
    ('NOT ("status" = ?)', [S("ACTIVE")]),
    ('("n" BETWEEN ? AND ?)', [N("5"), N("6")]),
    ('"status" IN [?, ?]', [S("ACTIVE"), S("EXPIRED")]),
    ('(begins_with("status", ?) OR contains("tags", ?))', [S("no"), S("q")]),
    ('begins_with("raw", ?)', [{"B": b"\x01"}]),
    ('size("tags") = ?', [N("2")]),
    ('attribute_type("tags", ?)', [S("SS")]),
    ('("zz" IS MISSING OR "zz" IS NULL)', []),
    ('"status" IS NOT MISSING', []),
    ('"m"."k"[0] = ?', [N("1")]),
    ('"full.name" = ?', [S("Zoë")]),
]
FAILS: list[tuple[str, list[Any]]] = [
    ('("status" = ? OR "status" = ?)', [S("ACTIVE"), S("PENDING")]),
    ('NOT ("status" = ? OR "n" = ?)', [S("ACTIVE"), N("5")]),
    ('(begins_with("status", ?) OR contains("tags", ?))', [S("no"), S("z")]),
    ('"zz" = ?', [S("x")]),
]


@pytest.fixture(scope="module")
def dynamodb(sandbox: Sandbox) -> Any:
    client = sandbox.client("dynamodb")
    client.create_table(
        TableName="statements",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return client


def delete_where(dynamodb: Any, condition: str, parameters: list[Any]) -> dict[str, Any]:
    dynamodb.put_item(TableName="statements", Item=ITEM)
    statement = f'DELETE FROM "statements" WHERE "pk" = ? AND {condition}'
    answer = dynamodb.batch_execute_statement(
        Statements=[{"Statement": statement, "Parameters": [{"S": "a"}, *parameters]}],
    )
    return answer["Responses"][0]


def exists(dynamodb: Any) -> bool:
    return "Item" in dynamodb.get_item(TableName="statements", Key={"pk": {"S": "a"}}, ConsistentRead=True)


@pytest.mark.parametrize(("condition", "parameters"), HOLDS)
def test_condition_holds(dynamodb: Any, condition: str, parameters: list[Any]) -> None:
    assert delete_where(dynamodb, condition, parameters) == {"TableName": "statements"}
    assert not exists(dynamodb)


@pytest.mark.parametrize(("condition", "parameters"), FAILS)
def test_condition_fails(dynamodb: Any, condition: str, parameters: list[Any]) -> None:
    assert delete_where(dynamodb, condition, parameters)["Error"]["Code"] == "ConditionalCheckFailed"
    assert exists(dynamodb)


def test_an_or_at_the_top_leaves_the_key_open(dynamodb: Any) -> None:
    answer = delete_where(dynamodb, '"n" = ? OR "n" = ?', [N("5"), N("6")])
    assert answer["Error"]["Code"] == "ValidationError"
    assert exists(dynamodb)


def test_updates_take_the_same_conditions(dynamodb: Any) -> None:
    dynamodb.put_item(TableName="statements", Item=ITEM)
    text = 'UPDATE "statements" SET "full.name" = ? REMOVE "n" WHERE "pk" = ? AND ("status" = ? OR "n" = ?)'
    parameters = [S("new"), S("a"), S("no"), N("5")]
    answer = dynamodb.batch_execute_statement(Statements=[{"Statement": text, "Parameters": parameters}])
    assert answer["Responses"] == [{"TableName": "statements"}]
    item = dynamodb.get_item(TableName="statements", Key={"pk": S("a")}, ConsistentRead=True)["Item"]
    assert item["full.name"] == S("new")
    assert "n" not in item


def test_duplicates_and_absent_items(dynamodb: Any) -> None:
    dynamodb.put_item(TableName="statements", Item=ITEM)
    statements = [
        {"Statement": "INSERT INTO \"statements\" VALUE {'pk': ?}", "Parameters": [S("a")]},
        {"Statement": 'UPDATE "statements" SET "n" = ? WHERE "pk" = ?', "Parameters": [N("1"), S("none")]},
        {"Statement": 'DELETE FROM "statements" WHERE "pk" = ?', "Parameters": [S("none")]},
    ]
    responses = dynamodb.batch_execute_statement(Statements=statements)["Responses"]
    codes = [response.get("Error", {}).get("Code") for response in responses]
    assert codes == ["DuplicateItem", "ConditionalCheckFailed", None]
