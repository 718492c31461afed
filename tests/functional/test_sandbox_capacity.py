"""Units consumed by every operation, and tables that run out of them. Over HTTP, with boto3."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from bulkexec.item_size import item_size_bytes
from bulkexec.sandbox.process import Sandbox

pytestmark = pytest.mark.alone

numbers = itertools.count()


@pytest.fixture
def dynamodb(sandbox: Sandbox) -> Any:
    return sandbox.client("dynamodb", retries={"total_max_attempts": 1})


def make_table(dynamodb: Any, **options: Any) -> str:
    name = f"capacity-{next(numbers)}"
    indexes = options.pop("indexes", [])
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            *({"AttributeName": i["key"], "AttributeType": "S"} for i in indexes),
        ],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        **{"BillingMode": "PAY_PER_REQUEST", **options},
        **({"GlobalSecondaryIndexes": [index_of(i, options) for i in indexes]} if indexes else {}),
    )
    return name


def index_of(index: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    made = {
        "IndexName": index["name"],
        "KeySchema": [{"AttributeName": index["key"], "KeyType": "HASH"}],
        "Projection": {"ProjectionType": index.get("projection", "ALL")},
    }
    return made | {"ProvisionedThroughput": index["throughput"]} if "throughput" in index else made


def provisioned(read: int, write: int) -> dict[str, Any]:
    return {"BillingMode": "PROVISIONED", "ProvisionedThroughput": throughput(read, write)}


def throughput(read: int, write: int) -> dict[str, int]:
    return {"ReadCapacityUnits": read, "WriteCapacityUnits": write}


def item_of(key: str, size_bytes: int) -> dict[str, Any]:
    return {"pk": {"S": key}, "v": {"S": "x" * (size_bytes - len(key) - 3)}}


def units(answer: dict[str, Any]) -> float:
    consumed = answer["ConsumedCapacity"]
    return (consumed[0] if isinstance(consumed, list) else consumed)["CapacityUnits"]


def put(dynamodb: Any, table: str, item: dict[str, Any], **more: Any) -> dict[str, Any]:
    return dynamodb.put_item(TableName=table, Item=item, ReturnConsumedCapacity="INDEXES", **more)


def repeat(call: Callable[[int], Any], times: int) -> None:
    for number in range(times):
        call(number)


def test_scan_adds_sizes_and_rounds_once(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    sizes = [100 + 37 * n for n in range(200)]
    for number, size in enumerate(sizes):
        put(dynamodb, table, item_of(f"k{number:03}", size))
    whole = -(-sum(sizes) // 4096)
    scan = {"TableName": table, "ReturnConsumedCapacity": "TOTAL"}
    assert units(dynamodb.scan(**scan)) == whole / 2
    assert units(dynamodb.scan(**scan, ConsistentRead=True)) == whole
    assert units(dynamodb.scan(**scan, Select="COUNT")) == whole / 2
    nothing = dynamodb.scan(**scan, FilterExpression="v = :v", ExpressionAttributeValues={":v": {"S": "no"}})
    assert (nothing["Count"], nothing["ScannedCount"], units(nothing)) == (0, 200, whole / 2)
    assert dynamodb.describe_table(TableName=table)["Table"]["TableSizeBytes"] == sum(sizes)


def test_a_page_is_one_mebibyte_before_the_filter(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    for number in range(30):
        put(dynamodb, table, item_of(f"k{number:03}", 100_000))
    pages = list(
        dynamodb.get_paginator("scan").paginate(
            TableName=table,
            FilterExpression="attribute_not_exists(v)",
            ReturnConsumedCapacity="TOTAL",
        )
    )
    assert [page["ScannedCount"] for page in pages] == [10, 10, 10]
    assert [page["Count"] for page in pages] == [0, 0, 0]
    assert [units(page) for page in pages] == [122.5, 122.5, 122.5]  # ceil(1,000,000 / 4,096) = 245


def test_reads_of_single_items_round_each(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    put(dynamodb, table, item_of("a", 4096))
    put(dynamodb, table, item_of("b", 4097))
    get = {"TableName": table, "ReturnConsumedCapacity": "TOTAL"}
    assert units(dynamodb.get_item(Key={"pk": {"S": "a"}}, **get)) == 0.5
    assert units(dynamodb.get_item(Key={"pk": {"S": "b"}}, ConsistentRead=True, **get)) == 2
    assert units(dynamodb.get_item(Key={"pk": {"S": "none"}}, ConsistentRead=True, **get)) == 1
    keys = {"Keys": [{"pk": {"S": key}} for key in ("a", "b", "none")]}
    batch = dynamodb.batch_get_item(RequestItems={table: keys}, ReturnConsumedCapacity="TOTAL")
    assert units(batch) == 0.5 + 1.0 + 0.5
    gets = [{"Get": {"TableName": table, "Key": {"pk": {"S": key}}}} for key in ("a", "b")]
    assert units(dynamodb.transact_get_items(TransactItems=gets, ReturnConsumedCapacity="TOTAL")) == 2 + 4
    query = {"KeyConditionExpression": "pk = :k", "ExpressionAttributeValues": {":k": {"S": "b"}}}
    assert units(dynamodb.query(**query, **get)) == 1.0


def test_writes_cost_the_larger_of_before_and_after(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    assert units(put(dynamodb, table, item_of("a", 3000))) == 3
    assert units(put(dynamodb, table, item_of("a", 1024))) == 3
    assert units(put(dynamodb, table, item_of("a", 1025))) == 2
    update = {
        "TableName": table,
        "Key": {"pk": {"S": "a"}},
        "UpdateExpression": "REMOVE v",
        "ReturnConsumedCapacity": "TOTAL",
    }
    assert units(dynamodb.update_item(**update)) == 2
    delete = {"TableName": table, "Key": {"pk": {"S": "a"}}, "ReturnConsumedCapacity": "TOTAL"}
    put(dynamodb, table, item_of("a", 2500))
    assert units(dynamodb.delete_item(**delete)) == 3
    assert units(dynamodb.delete_item(**delete)) == 1


def test_a_failed_condition_costs_the_item_that_is_there(dynamodb: Any, sandbox: Sandbox) -> None:
    table = make_table(dynamodb)
    put(dynamodb, table, item_of("a", 5000))
    before = sum(sandbox.control.units(table, "write").values())
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        put(dynamodb, table, item_of("a", 100), ConditionExpression="attribute_not_exists(pk)")
    assert sum(sandbox.control.units(table, "write").values()) - before == 5


def test_index_writes_and_their_breakdown(dynamodb: Any) -> None:
    table = make_table(
        dynamodb, indexes=[{"name": "by-a", "key": "a"}, {"name": "by-b", "key": "b", "projection": "KEYS_ONLY"}]
    )
    item = item_of("k", 2000) | {"a": {"S": "1"}}
    new = put(dynamodb, table, item)["ConsumedCapacity"]
    assert (new["CapacityUnits"], new["Table"]["CapacityUnits"]) == (4, 2)
    assert new["GlobalSecondaryIndexes"] == {"by-a": {"CapacityUnits": 2}}
    moved = put(dynamodb, table, item | {"a": {"S": "2"}})["ConsumedCapacity"]
    assert moved["GlobalSecondaryIndexes"] == {"by-a": {"CapacityUnits": 4}}
    same = put(dynamodb, table, item | {"a": {"S": "2"}})["ConsumedCapacity"]
    assert "GlobalSecondaryIndexes" not in same
    gone = put(dynamodb, table, item_of("k", 100) | {"b": {"S": "1"}})["ConsumedCapacity"]
    assert gone["GlobalSecondaryIndexes"] == {"by-a": {"CapacityUnits": 2}, "by-b": {"CapacityUnits": 1}}
    read = dynamodb.scan(TableName=table, IndexName="by-b", ReturnConsumedCapacity="INDEXES")["ConsumedCapacity"]
    assert read["GlobalSecondaryIndexes"] == {"by-b": {"CapacityUnits": 0.5}}
    assert read["Table"]["CapacityUnits"] == 0


def test_batches_and_transactions(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    puts = [{"PutRequest": {"Item": item_of(f"k{n}", 1500)}} for n in range(10)]
    batch = dynamodb.batch_write_item(RequestItems={table: puts}, ReturnConsumedCapacity="TOTAL")
    assert (batch["UnprocessedItems"], units(batch)) == ({}, 20)
    actions = [
        {"Delete": {"TableName": table, "Key": {"pk": {"S": "k0"}}}},
        {"Put": {"TableName": table, "Item": item_of("k1", 100)}},
        {
            "ConditionCheck": {
                "TableName": table,
                "Key": {"pk": {"S": "k2"}},
                "ConditionExpression": "attribute_exists(pk)",
            }
        },
    ]
    answer = dynamodb.transact_write_items(TransactItems=actions, ReturnConsumedCapacity="TOTAL")
    assert units(answer) == 2 * (2 + 2 + 2)


def test_statements_are_metered_by_the_items_they_touch(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    for number in range(3):
        put(dynamodb, table, item_of(f"k{number}", 3000))
    deletes = [
        {"Statement": f'DELETE FROM "{table}" WHERE pk = ?', "Parameters": [{"S": key}]} for key in ("k0", "k1", "none")
    ]
    failing = {"Statement": f'DELETE FROM "{table}" WHERE pk = ? AND v = ?', "Parameters": [{"S": "k2"}, {"S": "no"}]}
    answer = dynamodb.batch_execute_statement(Statements=[*deletes, failing], ReturnConsumedCapacity="TOTAL")
    assert answer["Responses"][3]["Error"]["Code"] == "ConditionalCheckFailed"
    assert units(answer) == 3 + 3 + 1 + 3


def test_provisioned_writes_are_throttled_with_the_reason(dynamodb: Any, sandbox: Sandbox) -> None:
    table = make_table(dynamodb, **provisioned(5, 10))
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException) as caught:
        repeat(lambda n: put(dynamodb, table, item_of(f"k{n}", 1024)), 100)
    arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
    expected = [{"reason": "TableWriteProvisionedThroughputExceeded", "resource": arn}]
    assert caught.value.response["ThrottlingReasons"] == expected
    written = dynamodb.scan(TableName=table, Select="COUNT")["Count"]
    assert 10 <= written <= 15


def test_a_request_may_overdraw_and_the_debt_is_worked_off(dynamodb: Any) -> None:
    table = make_table(dynamodb, **provisioned(5, 100))
    put(dynamodb, table, item_of("big", 250_000))
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException):
        put(dynamodb, table, item_of("next", 10))
    time.sleep(1.6)
    put(dynamodb, table, item_of("next", 10))


def test_no_second_gets_more_than_its_units_and_one_request(dynamodb: Any, sandbox: Sandbox) -> None:
    table = make_table(dynamodb, **provisioned(5, 50))
    began, acknowledged, number = time.monotonic(), 0, 0
    while time.monotonic() - began < 2:
        number += 1
        try:
            put(dynamodb, table, item_of(f"k{number}", 2048))
            acknowledged += 2
        except dynamodb.exceptions.ProvisionedThroughputExceededException:
            time.sleep(0.005)
    elapsed = time.monotonic() - began
    assert acknowledged == sum(sandbox.control.units(table, "write").values())
    assert 0.8 * 50 * elapsed <= acknowledged <= 50 * (elapsed + 1) + 2


def test_an_index_without_capacity_throttles_the_table(dynamodb: Any) -> None:  # case C146
    index = {"name": "slow", "key": "a", "throughput": throughput(5, 1)}
    table = make_table(dynamodb, indexes=[index], **provisioned(1000, 1000))
    for number in range(5):
        put(dynamodb, table, item_of(f"unindexed{number}", 100))
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException) as caught:
        repeat(lambda n: put(dynamodb, table, item_of(f"k{n}", 100) | {"a": {"S": "x"}}), 5)
    (reason,) = caught.value.response["ThrottlingReasons"]
    assert reason["reason"] == "IndexWriteProvisionedThroughputExceeded"
    assert reason["resource"].endswith(f"table/{table}/index/slow")
    count = dynamodb.scan(TableName=table, Select="COUNT")["Count"]
    put(dynamodb, table, item_of("still", 100))
    assert dynamodb.scan(TableName=table, Select="COUNT")["Count"] == count + 1


def test_a_throttled_batch_comes_back_in_part_and_then_fails_whole(dynamodb: Any) -> None:
    table = make_table(dynamodb, **provisioned(10, 10))
    puts = [{"PutRequest": {"Item": item_of(f"k{n}", 1024)}} for n in range(25)]
    answer = dynamodb.batch_write_item(RequestItems={table: puts}, ReturnConsumedCapacity="TOTAL")
    left = answer["UnprocessedItems"][table]
    assert units(answer) == 25 - len(left)
    assert 10 <= 25 - len(left) <= 12
    assert left == puts[25 - len(left) :]
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException):
        repeat(lambda _: dynamodb.batch_write_item(RequestItems={table: left}), 3)


def test_reads_are_throttled_too(dynamodb: Any) -> None:
    table = make_table(dynamodb, **provisioned(2, 1000))
    for number in range(10):
        put(dynamodb, table, item_of(f"k{number}", 4000))
    keys = {"Keys": [{"pk": {"S": f"k{n}"}} for n in range(10)], "ConsistentRead": True}
    answer = dynamodb.batch_get_item(RequestItems={table: keys})
    assert len(answer["Responses"][table]) + len(answer["UnprocessedKeys"][table]["Keys"]) == 10
    assert answer["UnprocessedKeys"][table]["ConsistentRead"] is True
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException) as caught:
        repeat(lambda _: dynamodb.scan(TableName=table), 3)
    assert caught.value.response["ThrottlingReasons"][0]["reason"] == "TableReadProvisionedThroughputExceeded"


def test_on_demand_maximum(dynamodb: Any) -> None:
    table = make_table(dynamodb, OnDemandThroughput={"MaxWriteRequestUnits": 5})
    with pytest.raises(ClientError) as caught:
        repeat(lambda n: put(dynamodb, table, item_of(f"k{n}", 1024)), 30)
    assert caught.value.response["Error"]["Code"] == "ThrottlingException"
    assert caught.value.response["throttlingReasons"][0]["reason"] == "TableWriteMaxOnDemandThroughputExceeded"
    for _ in range(30):
        dynamodb.get_item(TableName=table, Key={"pk": {"S": "k0"}})


def test_on_demand_maximum_of_an_index(dynamodb: Any) -> None:
    table = make_table(dynamodb, indexes=[{"name": "by-a", "key": "a"}])
    change = {"IndexName": "by-a", "OnDemandThroughput": {"MaxWriteRequestUnits": 1}}
    dynamodb.update_table(TableName=table, GlobalSecondaryIndexUpdates=[{"Update": change}])
    with pytest.raises(ClientError) as caught:
        repeat(lambda n: put(dynamodb, table, item_of(f"k{n}", 100) | {"a": {"S": "x"}}), 10)
    assert caught.value.response["throttlingReasons"][0]["reason"] == "IndexWriteMaxOnDemandThroughputExceeded"
    put(dynamodb, table, item_of("unindexed", 100))


def test_raising_the_capacity_ends_the_throttling(dynamodb: Any) -> None:
    table = make_table(dynamodb, **provisioned(5, 1))
    put(dynamodb, table, item_of("big", 20_000))
    with pytest.raises(dynamodb.exceptions.ProvisionedThroughputExceededException):
        put(dynamodb, table, item_of("next", 10))
    dynamodb.update_table(TableName=table, BillingMode="PAY_PER_REQUEST")
    put(dynamodb, table, item_of("next", 10))


def test_statements_are_throttled_one_by_one(dynamodb: Any) -> None:
    table = make_table(dynamodb, **provisioned(5, 4))
    inserts = [
        {"Statement": f"INSERT INTO \"{table}\" VALUE {{'pk': ?}}", "Parameters": [{"S": f"k{n}"}]} for n in range(20)
    ]
    responses = dynamodb.batch_execute_statement(Statements=inserts)["Responses"]
    codes = [response.get("Error", {}).get("Code") for response in responses]
    assert set(codes) == {None, "ProvisionedThroughputExceeded"}
    assert codes.count(None) == dynamodb.scan(TableName=table, Select="COUNT")["Count"]
    assert 4 <= codes.count(None) <= 6


def test_a_throttled_transaction_is_cancelled_whole(dynamodb: Any) -> None:
    table = make_table(dynamodb, **provisioned(5, 2))
    put(dynamodb, table, item_of("big", 8000))
    actions = [{"Put": {"TableName": table, "Item": item_of(f"k{n}", 10)}} for n in range(2)]
    with pytest.raises(dynamodb.exceptions.TransactionCanceledException) as caught:
        dynamodb.transact_write_items(TransactItems=actions)
    codes = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert codes == ["ProvisionedThroughputExceeded"] * 2
    assert dynamodb.scan(TableName=table, Select="COUNT")["Count"] == 1


def test_sizes_agree_with_those_of_the_cost_model(dynamodb: Any) -> None:
    table = make_table(dynamodb)
    odd = {
        "pk": {"S": "ключ"},
        "full.name": {"S": ""},
        "n": {"N": "-0.00012300"},
        "m": {"M": {"l": {"L": [{"NULL": True}, {"NS": ["1", "22"]}]}}},
        "b": {"B": b"12345"},
    }
    put(dynamodb, table, odd)
    assert dynamodb.describe_table(TableName=table)["Table"]["TableSizeBytes"] == item_size_bytes(odd)
