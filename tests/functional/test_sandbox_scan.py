"""Parallel scans: disjoint, complete, and steady while items are deleted."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from bulkexec.sandbox import seeding
from bulkexec.sandbox.process import Sandbox

numbers = itertools.count()


@pytest.fixture
def dynamodb(sandbox: Sandbox) -> Any:
    return sandbox.client("dynamodb")


def seeded(dynamodb: Any, **shape: Any) -> str:
    table = f"scan-{next(numbers)}"
    seeding.fill(dynamodb, seeding.Shape(**{"table": table, "items": 1000, "item_bytes": 400, **shape}))
    return table


def key_of(item: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(item[name]) for name in ("pk", "sk") if name in item)


def walk(dynamodb: Any, table: str, segment: int, total: int, **members: Any) -> Iterator[dict[str, Any]]:
    request = {"TableName": table, "Segment": segment, "TotalSegments": total, **members}
    while True:
        page = dynamodb.scan(**request)
        yield page
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


@pytest.mark.parametrize(("key_type", "sort_key"), [("S", None), ("N", None), ("B", "N"), ("S", "B"), ("N", "S")])
def test_segments_are_disjoint_and_complete(dynamodb: Any, key_type: str, sort_key: str | None) -> None:
    table = seeded(dynamodb, key_type=key_type, sort_key=sort_key)
    found = [
        key_of(item)
        for segment in range(7)
        for page in walk(dynamodb, table, segment, 7, Limit=37)
        for item in page["Items"]
    ]
    assert len(found) == len(set(found)) == 1000


def test_more_segments_than_items(dynamodb: Any) -> None:
    table = seeded(dynamodb, items=5)
    counts = [sum(p["Count"] for p in walk(dynamodb, table, n, 100)) for n in range(100)]
    assert sum(counts) == 5


def test_deleting_while_scanning_skips_nothing(dynamodb: Any) -> None:  # case C049
    table = seeded(dynamodb, sort_key="N")
    seen = []
    for segment in range(3):
        for page in walk(dynamodb, table, segment, 3, Limit=10):
            for item in page["Items"]:
                seen.append(key_of(item))
                dynamodb.delete_item(TableName=table, Key={name: item[name] for name in ("pk", "sk")})
    assert len(seen) == len(set(seen)) == 1000
    assert dynamodb.scan(TableName=table, Select="COUNT")["Count"] == 0


def test_draining_from_the_front_skips_nothing(dynamodb: Any) -> None:  # case C049
    table = seeded(dynamodb, items=300)
    drained = 0
    while page := dynamodb.scan(TableName=table, Limit=25)["Items"]:
        requests = [{"DeleteRequest": {"Key": {"pk": item["pk"]}}} for item in page]
        dynamodb.batch_write_item(RequestItems={table: requests})
        drained += len(page)
    assert drained == 300


def test_items_written_behind_the_cursor_move_nothing(dynamodb: Any) -> None:
    table = seeded(dynamodb)
    before = [key_of(i) for page in walk(dynamodb, table, 0, 1, Limit=100) for i in page["Items"]]
    pages = walk(dynamodb, table, 0, 1, Limit=100)
    after = [key_of(item) for item in next(pages)["Items"]]
    for number in range(50):
        dynamodb.put_item(TableName=table, Item={"pk": {"S": f"new-{number}"}})
    after += [key_of(item) for page in pages for item in page["Items"]]
    old = set(before)
    assert [key for key in after if key in old] == before


def test_a_start_key_belongs_to_its_segment(dynamodb: Any) -> None:
    table = seeded(dynamodb)
    key = dynamodb.scan(TableName=table, Segment=0, TotalSegments=4, Limit=1)["LastEvaluatedKey"]
    with pytest.raises(dynamodb.exceptions.ClientError, match="correct Segment"):
        dynamodb.scan(TableName=table, Segment=1, TotalSegments=4, ExclusiveStartKey=key)


def test_one_item_collection_stays_in_one_segment(dynamodb: Any) -> None:  # case C040
    table = seeded(dynamodb, items=1, sort_key="N")
    for number in range(100):
        dynamodb.put_item(TableName=table, Item={"pk": {"S": "hot"}, "sk": {"N": str(number)}})
    counts = [sum(p["Count"] for p in walk(dynamodb, table, n, 16)) for n in range(16)]
    assert sorted(counts)[-1] >= 100


def test_sort_keys_come_in_their_order(dynamodb: Any) -> None:
    table = seeded(dynamodb, items=0, sort_key="N")
    for number in ("10", "9", "-1", "0.5", "1E+3"):
        dynamodb.put_item(TableName=table, Item={"pk": {"S": "p"}, "sk": {"N": number}})
    order = [item["sk"]["N"] for item in dynamodb.scan(TableName=table)["Items"]]
    assert order == ["-1", "0.5", "9", "10", "1000"]


def test_filter_projection_and_count_agree(dynamodb: Any) -> None:
    table = seeded(dynamodb)
    every = [item for page in walk(dynamodb, table, 0, 1) for item in page["Items"]]
    expired = [item for item in every if item["status"]["S"] == "EXPIRED"]
    request = {
        "FilterExpression": "#s = :s",
        "ExpressionAttributeNames": {"#s": "status", "#d": "full.name"},
        "ExpressionAttributeValues": {":s": {"S": "EXPIRED"}},
    }
    projected = dynamodb.scan(TableName=table, ProjectionExpression="pk, #d", **request)
    assert projected["Items"] == [{"pk": item["pk"], "full.name": item["full.name"]} for item in expired]
    request["ExpressionAttributeNames"] = {"#s": "status"}
    counted = dynamodb.scan(TableName=table, Select="COUNT", **request)
    assert (counted["Count"], counted["ScannedCount"], "Items" in counted) == (len(expired), 1000, False)


def test_an_index_scan_is_complete_too(dynamodb: Any) -> None:
    table = f"scan-{next(numbers)}"
    dynamodb.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "status")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-status",
                "KeySchema": [{"AttributeName": "status", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    seeding.fill(dynamodb, seeding.Shape(table, 200, 400))
    dynamodb.put_item(TableName=table, Item={"pk": {"S": "sparse"}})
    items = [
        item
        for segment in range(3)
        for page in walk(dynamodb, table, segment, 3, IndexName="by-status", Limit=17)
        for item in page["Items"]
    ]
    assert len({key_of(item) for item in items}) == len(items) == 200
    assert {name for item in items for name in item} == {"pk", "status"}
    (index,) = dynamodb.describe_table(TableName=table)["Table"]["GlobalSecondaryIndexes"]
    assert index["ItemCount"] == 200


def test_seeding_is_the_same_each_time(dynamodb: Any) -> None:
    shape = seeding.Shape("any", 100, 500, seed=7)
    assert [seeding.item(shape, n) for n in range(100)] == [seeding.item(shape, n) for n in range(100)]
    kinds = {tag for n in range(24) for value in seeding.item(shape, n).values() for tag in value}
    assert kinds == {"S", "N", "B", "SS", "NS", "BS", "BOOL", "NULL", "L", "M"}
