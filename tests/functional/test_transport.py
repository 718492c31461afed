"""The transport against the sandbox: real requests, really signed, over kept-alive connections."""

import base64
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from bulkexec.batches import BatchWrite, Statements
from bulkexec.codec import to_python
from bulkexec.model import KeyAttribute, Statement, Table
from bulkexec.sandbox.process import Sandbox
from bulkexec.sandbox.seeding import Shape, ensure_table, item
from bulkexec.sigv4 import Credentials, Signer
from bulkexec.transport import FRESH_SECONDS, Answer, NotSent, Transport
from bulkexec.writes import Delete, Put, Update

ITEMS = 300


class _Scan(msgspec.Struct):
    Items: list[msgspec.Raw]


class Caller:
    """Signs and posts."""

    def __init__(self, sandbox: Sandbox) -> None:
        environment = sandbox.env()
        keys = Credentials(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
        self.transport = Transport(f"{sandbox.endpoint}/")
        self._signer = Signer(sandbox.endpoint.partition("//")[2], sandbox.running.region, lambda: keys)

    def raw(self, operation: str, body: bytes) -> Answer:
        return self.transport.post(self._signer.headers(operation, body), body)

    def __call__(self, operation: str, body: bytes) -> dict[str, Any]:
        status, content = self.raw(operation, body)
        assert status == 200, content
        answer: dict[str, Any] = json.loads(content)
        return answer


@pytest.fixture
def table(sandbox: Sandbox) -> Table:
    """An empty table with one key."""
    name = f"transport-{uuid.uuid4().hex[:8]}"
    ensure_table(sandbox.client("dynamodb"), Shape(name, 0, 300))
    return Table(
        name=name,
        arn=f"arn:aws:dynamodb:us-east-1:111122223333:table/{name}",
        region="us-east-1",
        account="111122223333",
        keys=(KeyAttribute("pk", "S"),),
        status="ACTIVE",
        item_count=0,
        size_bytes=0,
        billing="on-demand",
    )


def raw_items(count: int) -> list[Any]:
    """Seeded items as raw JSON, of every type."""
    shape = Shape("t", count, 300)
    encoded = (
        json.dumps(item(shape, number), default=lambda data: base64.b64encode(data).decode()) for number in range(count)
    )
    return [msgspec.Raw(text.encode()) for text in encoded]


def put_all(caller: Caller, table: Table, items: list[Any]) -> None:
    batch = BatchWrite(table.name)
    bodies = [batch.puts(map(Put, items[at : at + 25])) for at in range(0, len(items), 25)]
    with ThreadPoolExecutor(4) as threads:
        for answer in threads.map(lambda body: caller("BatchWriteItem", body), bodies):
            assert answer["UnprocessedItems"] == {}


def test_what_was_put_raw_is_scanned_raw(sandbox: Sandbox, table: Table) -> None:  # case C001
    caller, items = Caller(sandbox), raw_items(ITEMS)
    put_all(caller, table, items)
    status, content = caller.raw("Scan", json.dumps({"TableName": table.name}).encode())
    assert status == 200
    assert by_key(msgspec.json.decode(content, type=_Scan).Items) == by_key(items)


def by_key(items: list[Any]) -> dict[str, Any]:
    """Python values by key: the service may write a number in another way."""
    values = map(to_python, items)
    return {value["pk"]: value for value in values}


def test_statements_change_and_delete_only_what_still_is_as_expected(sandbox: Sandbox, table: Table) -> None:
    caller, items = Caller(sandbox), raw_items(25)
    put_all(caller, table, items)
    active = Statements(table, guard=Statement('"status" = ?', ({"S": "ACTIVE"},)))
    change = {"status": msgspec.Raw(b'{"S":"DONE"}')}
    keys = [json.loads(bytes(each)) for each in items]
    entries = [entry for each in items if (entry := active.entry(Update(each, change)))]
    responses = caller("BatchExecuteStatement", active.body(entries))["Responses"]
    refused = {key["pk"]["S"] for key, answer in zip(keys, responses, strict=True) if "Error" in answer}
    assert refused == {key["pk"]["S"] for key in keys if key["status"]["S"] != "ACTIVE"}
    done = Statements(table, guard=Statement('"status" = ?', ({"S": "DONE"},)))
    caller("BatchExecuteStatement", done.body([entry for each in items if (entry := done.entry(Delete(each)))]))
    left = caller("Scan", json.dumps({"TableName": table.name}).encode())["Items"]
    assert {each["pk"]["S"] for each in left} == refused


def test_a_refused_request_is_an_answer(sandbox: Sandbox, table: Table) -> None:
    batch = BatchWrite(table.name)
    key = raw_items(1)[0]
    status, content = Caller(sandbox).raw("BatchWriteItem", batch.deletes([Delete(key), Delete(key)]))
    assert status == 400
    assert b"ValidationException" in content


def test_a_service_that_is_gone_has_not_been_sent_anything() -> None:
    with Sandbox() as sandbox:
        caller = Caller(sandbox)
        assert caller("ListTables", b"{}") == {"TableNames": []}
    time.sleep(2 * FRESH_SECONDS)
    with pytest.raises(NotSent):
        caller.raw("ListTables", b"{}")
