"""Requests as DynamoDB's own model has them; writes seen through until each is acknowledged or accounted for."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from bulkexec import errors
from bulkexec.model import Expression, Scope, Segment, Work
from bulkexec.reader import Reader
from bulkexec.wire import Fault
from bulkexec.writer import Outcome
from bulkexec.writes import Delete, Put
from tests.unit.scripted import (
    FILTER,
    GUARDED,
    PINNED,
    PLAIN,
    REFUSED,
    TABLE,
    THROTTLED,
    Script,
    ScriptedWire,
    calls,
    decoded,
    key,
    responses,
    there,
    unprocessed,
    writer,
)


def read(wire: ScriptedWire, work: Work, start: bytes | None = None, limit: int | None = None) -> Any:
    return Reader(calls(wire), work).page(Segment(3, 8), start, limit, lambda *_: None, lambda: False)


def deletes(count: int) -> list[Delete]:
    return [Delete(msgspec.Raw(msgspec.json.encode(key(number)))) for number in range(count)]


def write(wire: ScriptedWire, work: Work, count: int, throttled: list[Any] | None = None, **more: bool) -> Outcome:
    slow = (lambda *_: None) if throttled is None else (lambda *reasons: throttled.append(reasons))
    outcome = Outcome()
    writer(wire, work, **more).write(deletes(count), slow, outcome)
    return outcome


# Reading

EMPTY: dict[str, Any] = {"Count": 0, "ScannedCount": 0, "Items": []}


@pytest.mark.parametrize(
    "work",
    [
        PLAIN,
        Work(Scope(TABLE, filter=FILTER)),
        Work(Scope(TABLE, filter=FILTER), projection=("key", 'so"rt', "a.b", "hash")),
        Work(Scope(TABLE, filter=FILTER), count_only=True, consistent=True),
        Work(Scope(TABLE, key_condition=PINNED)),
        Work(Scope(TABLE, filter=FILTER, key_condition=PINNED), projection=("key",)),
        Work(Scope(TABLE, filter=Expression("attribute_exists(#n0)", {"#n0": "x"}))),
    ],
)
@pytest.mark.parametrize("start", [None, msgspec.json.encode(key(1))])
@pytest.mark.parametrize("limit", [None, 1])
def test_every_read_is_a_request_of_the_service_model(work: Work, start: bytes | None, limit: int | None) -> None:
    # case C021 C023: no name stands in an expression, whatever the attributes are called
    wire = ScriptedWire(EMPTY)
    read(wire, work, start, limit)
    ((operation, request),) = wire.asked
    assert operation == ("Query" if work.scope.pinned else "Scan")
    assert ("Segment" in request) is not work.scope.pinned
    assert request.get("Limit") == limit
    assert request.get("ExclusiveStartKey") == (key(1) if start else None)
    assert request["ReturnConsumedCapacity"] == "TOTAL"
    names = request.get("ExpressionAttributeNames", {})
    projected = request.get("ProjectionExpression", "")
    assert [names[alias] for alias in projected.split(",") if alias] == list(work.projection)
    expressions = " ".join(request.get(f"{kind}Expression", "") for kind in ("Filter", "KeyCondition", "Projection"))
    assert all(alias in expressions for alias in [*names, *request.get("ExpressionAttributeValues", {})])


def test_a_segments_scan_names_segment_and_total() -> None:
    wire = ScriptedWire(EMPTY)
    read(wire, PLAIN)
    assert (wire.asked[0][1]["Segment"], wire.asked[0][1]["TotalSegments"]) == (3, 8)


def test_a_page_keeps_items_and_key_as_the_bytes_they_came_in() -> None:
    # case C004 C007: nothing is decoded, so no digit can be lost
    item = {"key": {"S": "ä"}, "n": {"N": "11888647184542023637.0"}, "e": {"N": "1E+100"}}
    answer = {
        "Items": [item],
        "Count": 1,
        "ScannedCount": 9,
        "LastEvaluatedKey": key(1),
        "ConsumedCapacity": {"TableName": "orders", "CapacityUnits": 2.5},
    }
    page = read(ScriptedWire(answer), PLAIN)
    assert [bytes(raw) for raw in page.items] == [msgspec.json.encode(item)]
    assert (page.matched, page.scanned, page.read_units) == (1, 9, 2.5)
    assert page.last_evaluated_key == msgspec.json.encode(key(1))


@pytest.mark.parametrize("answer", [EMPTY, {"Count": 0, "ScannedCount": 0}])
def test_the_last_page_has_no_key(answer: dict[str, Any]) -> None:
    page = read(ScriptedWire(answer), PLAIN)
    assert page.last_evaluated_key is None
    assert page.items == []


def test_an_empty_page_with_a_key_is_not_the_end() -> None:
    # case C047
    assert read(ScriptedWire({**EMPTY, "LastEvaluatedKey": key(1)}), PLAIN).last_evaluated_key is not None


# Plain batches


def test_unprocessed_items_are_sent_again_until_there_are_none() -> None:
    # case C065 C069
    wire, throttled = ScriptedWire(unprocessed(20, 5), unprocessed(20, 0), unprocessed(3, 17), unprocessed(0, 3)), []
    outcome = write(wire, PLAIN, 25, throttled)
    assert [len(request["RequestItems"]["orders"]) for _, request in wire.asked] == [25, 20, 20, 3]
    assert (outcome.processed, outcome.failed, outcome.units) == (25, [], 25)
    assert len(throttled) == 3
    sent = [entry["DeleteRequest"]["Key"] for entry in wire.asked[3][1]["RequestItems"]["orders"]]
    assert sent == [key(number) for number in (22, 23, 24)]


def test_a_whole_batch_that_is_throttled_is_kept_and_sent_again() -> None:
    # case C065
    wire = ScriptedWire(Fault("ProvisionedThroughputExceededException", "slow"), unprocessed(0))
    assert write(wire, PLAIN, 25).processed == 25
    assert wire.asked[0] == wire.asked[1]


def test_what_outlasts_the_deadline_is_failed_with_its_key() -> None:
    # case C070
    outcome = write(ScriptedWire(unprocessed(2)), PLAIN, 5)
    assert outcome.processed == 3
    assert [failure.key for failure in outcome.failed] == [key(3), key(4)]
    assert {failure.reason for failure in outcome.failed} == {"ThroughputExhausted"}


def test_a_put_that_outlasts_the_deadline_is_failed_with_its_key_alone() -> None:
    # case C070
    put = Put(msgspec.Raw(msgspec.json.encode({**key(1), "payload": {"S": "x" * 100}})))
    outcome = Outcome()
    writer(ScriptedWire(unprocessed(1)), PLAIN).write([put], lambda *_: None, outcome)
    assert [failure.key for failure in outcome.failed] == [key(1)]


def test_a_denied_batch_ends_the_run() -> None:
    # case C067
    with pytest.raises(errors.AccessDenied):
        write(ScriptedWire(Fault("AccessDeniedException", "no")), PLAIN, 24)


# Statements


def test_a_guarded_delete_names_the_key_and_binds_every_value() -> None:
    wire = ScriptedWire(responses({}))
    write(wire, GUARDED, 1)
    ((operation, request),) = wire.asked
    assert operation == "BatchExecuteStatement"
    assert request["Statements"] == [
        {
            "Statement": 'DELETE FROM "orders" WHERE "key" = ? AND "so""rt" = ? AND ("hash" = ?)',
            "Parameters": [{"S": "ä0"}, {"B": "AP8="}, {"B": "AP8="}],
        }
    ]


def test_each_statement_comes_into_its_own_bucket() -> None:
    # case C032 C065
    bad = {"Error": {"Code": "ValidationError", "Message": "odd"}}
    wire = ScriptedWire(responses({}, REFUSED, THROTTLED, bad, {}, units=4), responses({}, units=1))
    throttled: list[Any] = []
    outcome = write(wire, GUARDED, 5, throttled)
    assert outcome.processed == 3
    assert decoded(outcome.skipped) == [key(1)]
    assert [(failure.key, failure.reason, failure.details) for failure in outcome.failed] == [
        (key(3), "ValidationException", "odd")
    ]
    assert outcome.units == 5
    assert len(throttled) == 1
    assert [len(request["Statements"]) for _, request in wire.asked] == [5, 1]
    assert wire.asked[1][1]["Statements"][0]["Parameters"][0] == {"S": "ä2"}


@pytest.mark.parametrize(
    "code",
    [
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "RequestLimitExceeded",
        "InternalServerError",
        "TransactionConflict",
    ],
)
def test_a_statement_that_may_succeed_later_is_sent_again(code: str) -> None:
    wire = ScriptedWire(responses({"Error": {"Code": code, "Message": ""}}), responses({}))
    assert write(wire, GUARDED, 1).processed == 1


def test_statements_that_outlast_the_deadline_are_failed_with_their_keys() -> None:
    # case C070
    wire = ScriptedWire(lambda request: responses(*[THROTTLED] * len(request["Statements"])))
    outcome = write(wire, GUARDED, 3)
    assert [failure.key for failure in outcome.failed] == [key(0), key(1), key(2)]
    assert outcome.processed == 0


def test_a_denied_statement_ends_the_run() -> None:
    # case C067
    message = "User: arn:aws:sts::1:assumed-role/r is not authorized to perform: dynamodb:PartiQLDelete on resource: a"
    wire = ScriptedWire(responses({}, {"Error": {"Code": "AccessDenied", "Message": message}}))
    with pytest.raises(errors.AccessDenied, match="lacks dynamodb:PartiQLDelete"):
        write(wire, GUARDED, 2)


@pytest.mark.parametrize("work", [PLAIN, GUARDED], ids=["batch", "statements"])
def test_what_goes_on_slowly_is_not_given_up(work: Work) -> None:
    # case C060: the deadline of 60 s is of the time without progress; one write gets through in 12 attempts
    attempts = [0]

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        attempts[0] += 1
        through = attempts[0] % 12 == 0
        if work is PLAIN:
            return unprocessed(len(request["RequestItems"]["orders"]) - through)(request)
        return responses(*[{}] * through, *[THROTTLED] * (len(request["Statements"]) - through))

    outcome = write(ScriptedWire(answer), work, 10)
    assert (outcome.processed, outcome.failed) == (10, [])


# Lost answers


@pytest.mark.parametrize(
    "lost", [Fault("ConnectionLost", "reset"), Fault("InternalServerError", "", status=500)], ids=["reset", "500"]
)
def test_after_a_lost_answer_what_is_gone_was_ours_and_what_is_there_was_changed(lost: Fault) -> None:
    wire = ScriptedWire(lost, responses(REFUSED, REFUSED, {}), there(key(1)))
    outcome = write(wire, GUARDED, 3)
    assert (outcome.processed, decoded(outcome.skipped)) == (2, [key(1)])
    assert wire.operations == ["BatchExecuteStatement", "BatchExecuteStatement", "BatchGetItem"]
    asked = wire.asked[2][1]["RequestItems"]["orders"]
    assert asked["ConsistentRead"] is True
    assert asked["Keys"] == [key(0), key(1)]


def test_the_look_after_a_lost_answer_goes_on_while_keys_are_unprocessed() -> None:
    rest = {"orders": {"Keys": [key(1)], "ConsistentRead": True}}
    wire = ScriptedWire(
        Fault("ConnectionLost", "reset"),
        responses(REFUSED, REFUSED),
        {"Responses": {"orders": [key(0)]}, "UnprocessedKeys": rest},
        there(),
    )
    outcome = write(wire, GUARDED, 2)
    assert (outcome.processed, decoded(outcome.skipped)) == (1, [key(0)])


def test_a_statement_that_failed_inside_the_service_may_have_had_its_effect() -> None:
    broken = {"Error": {"Code": "InternalServerError", "Message": ""}}
    outcome = write(ScriptedWire(responses(broken), responses(REFUSED), there()), GUARDED, 1)
    assert (outcome.processed, outcome.skipped) == (1, [])


def test_without_a_lost_answer_a_refused_condition_is_believed() -> None:
    wire = ScriptedWire(responses(REFUSED))
    assert decoded(write(wire, GUARDED, 1).skipped) == [key(0)]
    assert wire.operations == ["BatchExecuteStatement"]


# One by one


def test_one_by_one_each_delete_goes_with_the_filter_as_its_condition() -> None:
    wire = ScriptedWire({"ConsumedCapacity": {"TableName": "orders", "CapacityUnits": 3.0}})
    outcome = write(wire, GUARDED, 1, sequential=True)
    ((operation, request),) = wire.asked
    assert operation == "DeleteItem"
    assert request["Key"] == key(0)
    # As BatchWriteItem and PartiQL's DELETE have it, that an item is gone already is no error.
    assert request["ConditionExpression"] == "attribute_not_exists(#w1) OR (#n0 = :v0)"
    assert request["ExpressionAttributeNames"] == {**FILTER.names, "#w1": "key"}
    assert request["ExpressionAttributeValues"] == FILTER.values
    assert (outcome.processed, outcome.units) == (1, 3.0)


@pytest.mark.parametrize(
    ("answers", "bucket"),
    [
        ([Fault("ConditionalCheckFailedException", "changed")], "skipped"),
        ([Fault("ValidationException", "odd")], "failed"),
        ([Fault("ThrottlingException", "slow")], "failed"),
        ([Fault("ThrottlingException", "slow"), {}], "processed"),
        ([Fault("ConnectionLost", ""), Fault("ConditionalCheckFailedException", ""), there()], "processed"),
        ([Fault("ConnectionLost", ""), Fault("ConditionalCheckFailedException", ""), there(key(0))], "skipped"),
    ],
)
def test_one_by_one_each_delete_comes_into_one_bucket(answers: list[Script], bucket: str) -> None:
    outcome = write(ScriptedWire(*answers), GUARDED, 1, sequential=True)
    buckets = {"processed": outcome.processed, "skipped": len(outcome.skipped), "failed": len(outcome.failed)}
    assert buckets == {"processed": 0, "skipped": 0, "failed": 0, bucket: 1}


@pytest.mark.parametrize(
    ("code", "kind"),
    [("AccessDeniedException", errors.AccessDenied), ("ResourceNotFoundException", errors.TableMissing)],
)
def test_one_by_one_what_is_not_of_the_item_ends_the_run(code: str, kind: type[errors.BulkexecError]) -> None:
    with pytest.raises(kind):
        write(ScriptedWire(Fault(code, "no")), GUARDED, 1, sequential=True)


@pytest.mark.parametrize(
    ("work", "sequential", "size"),
    [
        (PLAIN, False, 25),
        (GUARDED, False, 25),
        (GUARDED, True, 1),
        (PLAIN, True, 1),
        (replace(GUARDED, scope=replace(GUARDED.scope, guard_statement=None)), False, 1),
    ],
    ids=["batch", "statements", "sequential", "sequential-plain", "no-statement"],
)
def test_batches_are_as_large_as_the_condition_allows(work: Work, sequential: bool, size: int) -> None:
    parts = writer(ScriptedWire({}), work, sequential).batches(deletes(60))
    assert [len(part) for part in parts] == [min(size, 60 - start) for start in range(0, 60, size)]


# What may share a request


def test_no_key_is_twice_in_a_batch_of_statements_and_writes_of_a_key_keep_their_order() -> None:
    one, two = deletes(2)
    parts = writer(ScriptedWire(), GUARDED).batches([one, two, one, one])
    assert [[bytes(each.key) for each in part] for part in parts] == [
        [bytes(one.key), bytes(two.key)],
        [bytes(one.key)],
        [bytes(one.key)],
    ]


def test_a_batch_that_is_refused_for_a_key_that_is_twice_in_it_is_sent_in_parts() -> None:
    puts = [Put(msgspec.Raw(msgspec.json.encode({"n": {"N": str(n)}, **key(n % 2)}))) for n in range(4)]
    refused = Fault("ValidationException", "Provided list of item keys contains duplicates")
    wire, outcome = ScriptedWire(refused, {}, {}), Outcome()
    writer(wire, PLAIN).write(puts, lambda *_: None, outcome)
    assert (outcome.processed, outcome.failed) == (4, [])


def test_an_item_over_the_limit_fails_alone_and_is_not_sent() -> None:
    # case C072
    large = Put(msgspec.Raw(msgspec.json.encode({**key(1), "payload": {"S": "x" * 410_000}})))
    padded = Put(msgspec.Raw(msgspec.json.encode({**key(2), "payload": {"B": "A" * 500_000}})))
    wire, outcome = ScriptedWire({"ConsumedCapacity": [{"CapacityUnits": 367.0}]}), Outcome()
    writer(wire, PLAIN).write([large, padded], lambda *_: None, outcome)
    assert ([failure.key for failure in outcome.failed], outcome.processed) == ([key(1)], 1)
    assert outcome.failed[0].reason == "ItemTooLarge"
