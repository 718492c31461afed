"""Requests that DynamoDB refuses are refused here too. Raw HTTP, so that no client mends them first."""

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from bulkexec.sandbox.process import Sandbox

KEY = {"pk": {"S": "a"}, "sk": {"N": "1"}}
TABLE = "strictness"
VALUE = {":v": {"S": "x"}}

Call = Callable[[str, Any], tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def call(sandbox: Sandbox) -> Iterator[Call]:
    connection = HTTPConnection("127.0.0.1", sandbox.running.port)
    signature = (
        "AWS4-HMAC-SHA256 Credential=a/20261130/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=x"
    )

    def send(operation: str, body: Any) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body)
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Authorization": signature}
        connection.request("POST", "/", data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    created = send(
        "CreateTable",
        {
            "TableName": TABLE,
            "AttributeDefinitions": [
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "N"},
            ],
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )
    assert created[0] == 200
    assert send("PutItem", put(n={"N": "5"}, s={"S": "x"}))[0] == 200
    yield send
    connection.close()


def put(**attributes: Any) -> dict[str, Any]:
    return {"TableName": TABLE, "Item": {**KEY, **attributes}}


def batch(*requests: Any) -> dict[str, Any]:
    return {"RequestItems": {TABLE: list(requests)}}


def delete(key: Any) -> dict[str, Any]:
    return {"DeleteRequest": {"Key": key}}


def scan(**members: Any) -> dict[str, Any]:
    return {"TableName": TABLE, **members}


def matching(text: str, values: Any = None, **members: Any) -> dict[str, Any]:
    bound = {"ExpressionAttributeValues": values} if values is not None else {}
    return scan(FilterExpression=text, **bound, **members)


def query(condition: str, **members: Any) -> dict[str, Any]:
    values = {":p": {"S": "a"}, ":n": {"N": "1"}}
    text = condition + members.get("FilterExpression", "")
    used = {name: value for name, value in values.items() if name in text}
    return {"TableName": TABLE, "KeyConditionExpression": condition, "ExpressionAttributeValues": used, **members}


def update(text: str, values: Any = None, **members: Any) -> dict[str, Any]:
    bound = {"ExpressionAttributeValues": values} if values is not None else {}
    return {"TableName": TABLE, "Key": KEY, "UpdateExpression": text, **bound, **members}


def nested(levels: int) -> dict[str, Any]:
    return {"L": [nested(levels - 1)]} if levels else {"S": "x"}


REFUSED: dict[str, tuple[str, Any, str]] = {
    "malformed JSON": ("PutItem", b"{", "SerializationException"),
    "not an object": ("PutItem", b"[]", "SerializationException"),
    "an unknown operation": ("Nope", {}, "UnknownOperationException"),
    "an unknown member": ("PutItem", {**put(), "Foo": 1}, "SerializationException"),
    "an unknown nested member": (
        "BatchWriteItem",
        batch({"PutRequest": {"Item": KEY, "X": 1}}),
        "SerializationException",
    ),
    "no table": ("PutItem", {"Item": KEY}, "ValidationException"),
    "a number as a number": ("PutItem", put(v={"N": 5}), "SerializationException"),
    "a boolean as text": ("PutItem", put(v={"BOOL": "true"}), "SerializationException"),
    "bad base64": ("PutItem", put(v={"B": "***"}), "SerializationException"),
    "two types": ("PutItem", put(v={"S": "a", "N": "1"}), "ValidationException"),
    "no type": ("PutItem", put(v={}), "ValidationException"),
    "an unknown type": ("PutItem", put(v={"X": "1"}), "ValidationException"),
    "NULL false": ("PutItem", put(v={"NULL": False}), "ValidationException"),
    "39 digits": ("PutItem", put(v={"N": "1" * 39}), "ValidationException"),
    "too large a number": ("PutItem", put(v={"N": "1E+126"}), "ValidationException"),
    "not a number": ("PutItem", put(v={"N": "NaN"}), "ValidationException"),
    "an empty set": ("PutItem", put(v={"SS": []}), "ValidationException"),
    "a set with duplicates": ("PutItem", put(v={"NS": ["1", "1.0"]}), "ValidationException"),
    "an empty key": ("PutItem", put(pk={"S": ""}), "ValidationException"),
    "a key of another type": ("PutItem", put(pk={"N": "1"}), "ValidationException"),
    "a key too long": ("PutItem", put(pk={"S": "x" * 2049}), "ValidationException"),
    "no sort key": ("PutItem", {"TableName": TABLE, "Item": {"pk": {"S": "a"}}}, "ValidationException"),
    "an item over 400 KB": ("PutItem", put(v={"S": "x" * 409_600}), "ValidationException"),
    "33 levels": ("PutItem", put(v=nested(33)), "ValidationException"),
    "26 in a batch": (
        "BatchWriteItem",
        batch(*(delete({"pk": {"S": str(n)}, "sk": {"N": "1"}}) for n in range(26))),
        "ValidationException",
    ),
    "a key twice in a batch": (
        "BatchWriteItem",
        batch(delete(KEY), {"PutRequest": {"Item": KEY}}),
        "ValidationException",
    ),
    "a key twice, written differently": (
        "BatchWriteItem",
        batch(delete(KEY), delete({**KEY, "sk": {"N": "1.0"}})),
        "ValidationException",
    ),
    "an empty batch": ("BatchWriteItem", {"RequestItems": {}}, "ValidationException"),
    "put and delete in one": (
        "BatchWriteItem",
        batch({**delete(KEY), "PutRequest": {"Item": KEY}}),
        "ValidationException",
    ),
    "neither put nor delete": ("BatchWriteItem", batch({}), "ValidationException"),
    "more than a key": ("BatchWriteItem", batch(delete({**KEY, "z": {"S": "1"}})), "ValidationException"),
    "a large item in a batch": (
        "BatchWriteItem",
        batch({"PutRequest": put(v={"S": "x" * 409_600})}),
        "SerializationException",
    ),
    "101 keys": (
        "BatchGetItem",
        {"RequestItems": {TABLE: {"Keys": [{"pk": {"S": str(n)}, "sk": {"N": "1"}} for n in range(101)]}}},
        "ValidationException",
    ),
    "a key twice in a batch get": (
        "BatchGetItem",
        {"RequestItems": {TABLE: {"Keys": [KEY, KEY]}}},
        "ValidationException",
    ),
    "segment beyond total": ("Scan", scan(Segment=2, TotalSegments=2), "ValidationException"),
    "segment alone": ("Scan", scan(Segment=0), "ValidationException"),
    "total alone": ("Scan", scan(TotalSegments=2), "ValidationException"),
    "no segments": ("Scan", scan(Segment=0, TotalSegments=0), "ValidationException"),
    "too many segments": ("Scan", scan(Segment=0, TotalSegments=1_000_001), "ValidationException"),
    "limit 0": ("Scan", scan(Limit=0), "ValidationException"),
    "limit as text": ("Scan", scan(Limit="5"), "SerializationException"),
    "an unknown select": ("Scan", scan(Select="NOPE"), "ValidationException"),
    "half a start key": ("Scan", scan(ExclusiveStartKey={"pk": {"S": "a"}}), "ValidationException"),
    "a start key of another type": ("Scan", scan(ExclusiveStartKey={**KEY, "pk": {"N": "1"}}), "ValidationException"),
    "a start key with more": ("Scan", scan(ExclusiveStartKey={**KEY, "z": {"S": "1"}}), "ValidationException"),
    "a reserved word": ("Scan", matching("status = :v", VALUE), "ValidationException"),
    "a reserved word projected": ("Scan", scan(ProjectionExpression="status"), "ValidationException"),
    "an unused value": ("Scan", matching("n = :v", {**VALUE, ":w": {"S": "1"}}), "ValidationException"),
    "an unused name": ("Scan", matching("n = :v", VALUE, ExpressionAttributeNames={"#t": "q"}), "ValidationException"),
    "an undefined value": ("Scan", matching("n = :z"), "ValidationException"),
    "an undefined name": ("Scan", matching("#q = :v", VALUE), "ValidationException"),
    "empty names": ("Scan", matching("n = :v", VALUE, ExpressionAttributeNames={}), "ValidationException"),
    "an unknown function": ("Scan", matching("misspelt(n, :v)", VALUE), "ValidationException"),
    "a function in capitals": ("Scan", matching("BEGINS_WITH(n, :v)", VALUE), "ValidationException"),
    "an argument missing": ("Scan", matching("begins_with(n)"), "ValidationException"),
    "size as a condition": ("Scan", matching("size(n)"), "ValidationException"),
    "begins_with of a number": ("Scan", matching("begins_with(n, :v)", {":v": {"N": "1"}}), "ValidationException"),
    "less than a boolean": ("Scan", matching("n < :v", {":v": {"BOOL": True}}), "ValidationException"),
    "an unfinished expression": ("Scan", matching("n = :v AND", VALUE), "ValidationException"),
    "redundant parentheses": ("Scan", matching("((n = :v))", VALUE), "ValidationException"),
    "an empty expression": ("Scan", matching(""), "ValidationException"),
    "two equals signs": ("Scan", matching("n == :v", VALUE), "ValidationException"),
    "an unknown attribute type": (
        "Scan",
        matching("attribute_type(n, :v)", {":v": {"S": "STRING"}}),
        "ValidationException",
    ),
    "bounds reversed": (
        "Scan",
        matching("n BETWEEN :a AND :b", {":a": {"N": "5"}, ":b": {"N": "1"}}),
        "ValidationException",
    ),
    "4 KB of expression": ("Scan", matching(" OR ".join(["n = :v"] * 600), VALUE), "ValidationException"),
    "301 operators": ("Scan", matching(" OR ".join(["n=:v"] * 302), VALUE), "ValidationException"),
    "101 in a list": ("Scan", matching(f"n IN ({','.join([':v'] * 101)})", VALUE), "ValidationException"),
    "existence of a value": ("Scan", matching("attribute_exists(:v)", VALUE), "ValidationException"),
    "an attribute compared with itself": ("Scan", matching("n = n"), "ValidationException"),
    "an attribute containing itself": ("Scan", matching("contains(s, s)"), "ValidationException"),
    "a query without partition key": ("Query", query("sk = :n"), "ValidationException"),
    "a query filtering a key": ("Query", query("pk = :p", FilterExpression="sk = :n"), "ValidationException"),
    "a query with <>": ("Query", query("pk = :p AND sk <> :n"), "ValidationException"),
    "a query with OR": ("Query", query("pk = :p OR sk = :n"), "ValidationException"),
    "an update of a key": ("UpdateItem", update("SET pk = :v", VALUE), "ValidationException"),
    "an update of a reserved word": ("UpdateItem", update("SET status = :v", VALUE), "ValidationException"),
    "an unfinished update": ("UpdateItem", update("SET n"), "ValidationException"),
    "an update of one path twice": ("UpdateItem", update("SET n = :v, n = :v", VALUE), "ValidationException"),
    "an update of overlapping paths": ("UpdateItem", update("SET m.a = :v, m = :v", VALUE), "ValidationException"),
    "an update with two SETs": ("UpdateItem", update("SET n = :v SET s = :v", VALUE), "ValidationException"),
    "an update through nothing": ("UpdateItem", update("SET q.r = :v", VALUE), "ValidationException"),
    "an update with an unknown function": ("UpdateItem", update("SET n = foo(:v)", VALUE), "ValidationException"),
    "addition of text": ("UpdateItem", update("SET n = n + :v", VALUE), "ValidationException"),
    "ADD of text": ("UpdateItem", update("ADD n :v", VALUE), "ValidationException"),
    "an unknown function in a condition": (
        "DeleteItem",
        {"TableName": TABLE, "Key": KEY, "ConditionExpression": "nope(n)"},
        "ValidationException",
    ),
    "an item twice in a transaction": (
        "TransactWriteItems",
        {"TransactItems": [{"Delete": {"TableName": TABLE, "Key": KEY}}] * 2},
        "ValidationException",
    ),
    "26 statements": (
        "BatchExecuteStatement",
        {"Statements": [{"Statement": f"DELETE FROM {TABLE} WHERE pk='a' AND sk=1"}] * 26},
        "ValidationException",
    ),
    "reads among writes": (
        "BatchExecuteStatement",
        {
            "Statements": [
                {"Statement": f"DELETE FROM {TABLE} WHERE pk='a' AND sk=1"},
                {"Statement": f"SELECT * FROM {TABLE} WHERE pk='a' AND sk=1"},
            ]
        },
        "ValidationException",
    ),
    "recovery without a setting": (
        "UpdateContinuousBackups",
        {"TableName": TABLE, "PointInTimeRecoverySpecification": {}},
        "ValidationException",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(call: Call, what: str) -> None:
    operation, body, code = REFUSED[what]
    status, answer = call(operation, body)
    assert (status, answer["__type"].rpartition("#")[2]) == (400, code)


def test_a_refused_request_changes_nothing(call: Call) -> None:
    for operation, body, _ in REFUSED.values():
        call(operation, body)
    _, answer = call("Scan", scan())
    assert answer["Items"] == [{**KEY, "n": {"N": "5"}, "s": {"S": "x"}}]


STATEMENTS: dict[str, tuple[str, list[Any]]] = {
    "half a key": (f"DELETE FROM {TABLE} WHERE pk = ?", [{"S": "a"}]),
    "a parameter missing": (f"DELETE FROM {TABLE} WHERE pk = ? AND sk = ?", [{"S": "a"}]),
    "a parameter too many": (f"DELETE FROM {TABLE} WHERE pk = ? AND sk = ?", [{"S": "a"}, {"N": "1"}, {"N": "2"}]),
    "a key of another type": (f"DELETE FROM {TABLE} WHERE pk = ? AND sk = ?", [{"S": "a"}, {"S": "1"}]),
    "an unknown function": (f"DELETE FROM {TABLE} WHERE pk = ? AND sk = 1 AND foo(n)", [{"S": "a"}]),
    "an update of a key": (f"UPDATE {TABLE} SET pk = 'b' WHERE pk = ? AND sk = 1", [{"S": "a"}]),
    "39 digits": (f"UPDATE {TABLE} SET n = ? WHERE pk = 'a' AND sk = 1", [{"N": "1" * 39}]),
    "an insert without sort key": (f"INSERT INTO {TABLE} VALUE {{'pk': ?}}", [{"S": "x"}]),
    "an insert with an empty key": (f"INSERT INTO {TABLE} VALUE {{'pk': ?, 'sk': 1}}", [{"S": ""}]),
}


@pytest.mark.parametrize("what", STATEMENTS)
def test_a_wrong_statement_fails_alone(call: Call, what: str) -> None:
    text, parameters = STATEMENTS[what]
    good = {"Statement": f"UPDATE {TABLE} SET s = ? WHERE pk = 'a' AND sk = 1", "Parameters": [{"S": "x"}]}
    status, answer = call(
        "BatchExecuteStatement", {"Statements": [{"Statement": text, "Parameters": parameters}, good]}
    )
    wrong, right = answer["Responses"]
    assert (status, wrong["Error"]["Code"], right) == (200, "ValidationError", {"TableName": TABLE})


def test_answers_carry_checksum_and_request_id(sandbox: Sandbox) -> None:
    import zlib
    from urllib.request import Request, urlopen

    for target, body in (
        ("DynamoDB_20120810.ListTables", b"{}"),
        ("AWSPriceListService.DescribeServices", b"{}"),
    ):
        request = Request(sandbox.endpoint, body, {"X-Amz-Target": target})
        with urlopen(request, timeout=5) as answer:
            assert int(answer.headers["x-amz-crc32"]) == zlib.crc32(answer.read())
            assert answer.headers["x-amzn-requestid"]


def test_number_keys_are_one_key_however_they_are_written(call: Call) -> None:
    _, answer = call("GetItem", {"TableName": TABLE, "Key": {**KEY, "sk": {"N": "1.00"}}})
    assert answer["Item"]["n"] == {"N": "5"}


def test_removing_makes_no_item(call: Call) -> None:  # case C030
    key = {"pk": {"S": "absent"}, "sk": {"N": "1"}}
    status, answer = call("UpdateItem", {**update("REMOVE a"), "Key": key, "ReturnConsumedCapacity": "TOTAL"})
    assert (status, answer["ConsumedCapacity"]["CapacityUnits"]) == (200, 1)
    assert "Item" not in call("GetItem", {"TableName": TABLE, "Key": key})[1]


def test_begins_with_is_false_for_other_types(call: Call) -> None:
    _, answer = call("Scan", matching("begins_with(n, :v)", VALUE))
    assert answer["Count"] == 0
