"""Faults on order, each kind, over HTTP."""

import itertools
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError

from bulkexec.sandbox.process import Sandbox

numbers = itertools.count()


@pytest.fixture
def dynamodb(sandbox: Sandbox) -> Iterator[Any]:
    yield sandbox.client("dynamodb", retries={"total_max_attempts": 1})
    sandbox.control.faults.clear()


@pytest.fixture
def table(dynamodb: Any) -> str:
    name = f"faults-{next(numbers)}"
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def put(dynamodb: Any, table: str, key: str = "a") -> None:
    dynamodb.put_item(TableName=table, Item={"pk": {"S": key}})


def count(dynamodb: Any, table: str) -> int:
    return int(dynamodb.scan(TableName=table, Select="COUNT")["Count"])


def code_of(call: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def test_an_error_of_choice(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("error", operation="PutItem", code="RequestLimitExceeded", count=1)
    assert code_of(lambda: put(dynamodb, table)) == "RequestLimitExceeded"
    assert count(dynamodb, table) == 0
    put(dynamodb, table)


def test_http_500(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("http500", operation="PutItem", count=1)
    with pytest.raises(ClientError) as caught:
        put(dynamodb, table)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    assert count(dynamodb, table) == 0


def test_an_expired_token(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("expired_token", count=2)
    assert code_of(lambda: put(dynamodb, table)) == "ExpiredTokenException"
    assert code_of(lambda: sandbox.client("s3").list_buckets()) == "ExpiredToken"


def test_a_reset_has_no_effect(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("reset", operation="PutItem", count=1)
    with pytest.raises((ConnectionClosedError, BotoCoreError)):
        put(dynamodb, table)
    assert count(dynamodb, table) == 0


def test_a_lost_answer_has_its_effect(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("lost_answer", operation="PutItem", count=1)
    with pytest.raises((ConnectionClosedError, BotoCoreError)):
        put(dynamodb, table)
    assert count(dynamodb, table) == 1


def test_a_client_that_retries_gets_over_it(sandbox: Sandbox, table: str) -> None:
    for kind in ("reset", "lost_answer", "http500"):
        sandbox.control.faults.add(kind, operation="BatchWriteItem", count=1)
    requests = [{"PutRequest": {"Item": {"pk": {"S": str(n)}}}} for n in range(25)]
    sandbox.client("dynamodb").batch_write_item(RequestItems={table: requests})
    assert count(sandbox.client("dynamodb"), table) == 25
    sandbox.control.faults.clear()


def test_a_delay(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("delay", operation="GetItem", delay_seconds=0.4, count=1)
    began = time.monotonic()
    dynamodb.get_item(TableName=table, Key={"pk": {"S": "a"}})
    assert time.monotonic() - began >= 0.4


def test_only_what_matches(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    sandbox.control.faults.add("http500", service="dynamodb", match={"TableName": table})
    with pytest.raises(ClientError):
        put(dynamodb, table)
    dynamodb.list_tables()
    with pytest.raises(ClientError):
        dynamodb.describe_table(TableName=table)


def test_after_and_count(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    number = sandbox.control.faults.add("http500", operation="PutItem", after=2, count=3)
    failed = [fails(dynamodb, table) for _ in range(8)]
    assert failed == [False, False, True, True, True, False, False, False]
    (rule,) = sandbox.control.faults.listed()
    assert (rule["id"], rule["seen"], rule["fired"]) == (number, 8, 3)
    sandbox.control.faults.remove(number)
    assert sandbox.control.faults.listed() == []


def fails(dynamodb: Any, table: str) -> bool:
    try:
        put(dynamodb, table)
    except ClientError:
        return True
    return False


def test_probability_is_the_same_by_seed(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    runs = []
    for seed in (1, 1, 2):
        number = sandbox.control.faults.add("http500", operation="PutItem", probability=0.5, seed=seed)
        runs.append([fails(dynamodb, table) for _ in range(30)])
        sandbox.control.faults.remove(number)
    assert runs[0] == runs[1] != runs[2]
    assert 5 < sum(runs[0]) < 25


def test_other_services_fail_too(sandbox: Sandbox, dynamodb: Any) -> None:
    s3 = sandbox.client("s3", retries={"total_max_attempts": 1})
    s3.create_bucket(Bucket="faults")
    sandbox.control.faults.add("error", service="s3", operation="PutObject", code="SlowDown", status=503, count=1)
    assert code_of(lambda: s3.put_object(Bucket="faults", Key="a", Body=b"x")) == "SlowDown"
    s3.put_object(Bucket="faults", Key="a", Body=b"x")
    glue = sandbox.client("glue", retries={"total_max_attempts": 1})
    sandbox.control.faults.add("error", service="glue", operation="GetJobs", code="ThrottlingException", count=1)
    assert code_of(glue.get_jobs) == "ThrottlingException"
    assert "Jobs" in glue.get_jobs()


def test_a_stream_is_cut(sandbox: Sandbox, dynamodb: Any) -> None:  # case C115
    logs = sandbox.client("logs")
    logs.create_log_group(logGroupName="/faults")
    sandbox.control.faults.add("cut", operation="StartLiveTail", delay_seconds=1.5, count=1)
    arn = f"arn:aws:logs:us-east-1:{sandbox.options.account}:log-group:/faults"
    stream = logs.start_live_tail(logGroupIdentifiers=[arn])["responseStream"]
    kinds: list[str] = []
    with pytest.raises(Exception, match=r"(?i)connection|read|broken"):
        kinds.extend(kind for event in stream for kind in event)
    assert kinds[0] == "sessionStart"


def test_a_rule_nobody_knows_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(HTTPError) as caught:
        sandbox.control.faults.add("explode")
    with caught.value as error:
        assert error.code == 400


def test_requests_are_counted(sandbox: Sandbox, dynamodb: Any, table: str) -> None:
    before = sandbox.control.requests("PutItem")
    sandbox.control.faults.add("http500", operation="PutItem", count=1)
    assert [fails(dynamodb, table) for _ in range(3)] == [True, False, False]
    assert sandbox.control.requests("PutItem") - before == 3
