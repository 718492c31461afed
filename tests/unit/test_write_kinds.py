"""Every kind of write, the three ways: what is asked for, and into which one bucket each answer leads."""

from dataclasses import replace
from typing import Any

import pytest

from bulkexec import errors
from bulkexec.model import Expression, Scope, Work
from bulkexec.wire import Fault
from bulkexec.writer import Outcome
from bulkexec.writes import Apply, Delete, Put, Update, Write
from tests.unit.scripted import (
    GUARDED,
    PLAIN,
    REFUSED,
    TABLE,
    Script,
    ScriptedWire,
    capacity,
    decoded,
    key,
    raw,
    responses,
    unprocessed,
    writer,
)

CHANGE = Expression("SET #n = #n + :one", {"#n": "n"}, {":one": {"N": "1"}})
APPLYING = Work(Scope(TABLE), update=CHANGE)
VERSION = {"v": raw({"N": "7"}), "gone": None}
CHECKED = "ConditionalCheckFailedException"


def item(number: int, **more: Any) -> dict[str, Any]:
    return {**key(number), "n": {"N": str(number)}, **more}


def put(number: int, when: Any = "", **more: Any) -> Put:
    return Put(raw(item(number, **more)), when)


def update(number: int, observed: Any = {}) -> Update:  # noqa: B006 - only read
    return Update(raw(key(number)), {"a": raw({"S": "new"}), "b": raw({"L": []})}, ("c",), observed)


def send(wire: ScriptedWire, writes: list[Write], work: Work = PLAIN, sequential: bool = False) -> Outcome:
    outcome, sending = Outcome(acknowledged=[]), writer(wire, work, sequential)
    for batch in sending.batches(writes):
        sending.write(batch, lambda *_: None, outcome)
    assert outcome.processed == len(outcome.acknowledged or ())
    return outcome


def buckets(outcome: Outcome) -> dict[str, int]:
    found = {
        "processed": outcome.processed,
        "skipped": len(outcome.skipped),
        "failed": len(outcome.failed),
        "conflicts": len(outcome.conflicts),
    }
    return {name: count for name, count in found.items() if count}


def request_of(write: Write, work: Work = PLAIN, sequential: bool = False) -> tuple[str, dict[str, Any]]:
    wire = ScriptedWire(lambda request: responses({}) if "Statements" in request else {})
    send(wire, [write], work, sequential)
    ((operation, request),) = wire.asked
    return operation, request


# What is asked for


def test_a_put_where_nothing_is_is_an_insert() -> None:
    # case C080: no put with a condition goes by BatchWriteItem
    operation, request = request_of(put(1, "absent", **{"it's": {"BOOL": True}}))
    assert operation == "BatchExecuteStatement"
    assert request["Statements"] == [
        {
            "Statement": "INSERT INTO \"orders\" VALUE {'key': ?, 'so\"rt': ?, 'n': ?, 'it''s': ?}",
            "Parameters": [*item(1).values(), {"BOOL": True}],
        }
    ]


@pytest.mark.parametrize(
    ("when", "sequential", "condition"),
    [
        ("", True, None),
        ("absent", True, "attribute_not_exists(#w0)"),
        ("present", False, "attribute_exists(#w0)"),
        ("present", True, "attribute_exists(#w0)"),
    ],
)
def test_a_put_alone_names_its_condition(when: str, sequential: bool, condition: str | None) -> None:
    operation, request = request_of(put(1, when), sequential=sequential)
    assert (operation, request["Item"]) == ("PutItem", item(1))
    assert request.get("ConditionExpression") == condition
    assert request.get("ExpressionAttributeNames") == ({"#w0": "key"} if condition else None)


def test_the_guard_is_not_for_puts() -> None:
    assert request_of(put(1), GUARDED)[0] == "BatchWriteItem"
    assert "ConditionExpression" not in request_of(put(1), GUARDED, sequential=True)[1]


def test_an_update_is_a_statement_under_what_was_observed_and_the_guard() -> None:
    operation, request = request_of(update(1, VERSION), GUARDED)
    assert operation == "BatchExecuteStatement"
    (statement,) = request["Statements"]
    assert statement["Statement"] == (
        'UPDATE "orders" SET "a" = ? SET "b" = ? REMOVE "c" WHERE "key" = ? AND "so""rt" = ? '
        'AND "v" = ? AND "gone" IS MISSING AND ("hash" = ?)'
    )
    assert statement["Parameters"] == [{"S": "new"}, {"L": []}, *key(1).values(), {"N": "7"}, {"B": "AP8="}]


def test_an_update_alone_says_the_same_and_that_the_item_is_there() -> None:
    # case C028
    operation, request = request_of(update(1, VERSION), GUARDED, sequential=True)
    assert (operation, request["Key"]) == ("UpdateItem", key(1))
    assert request["UpdateExpression"] == "SET #w0 = :w0, #w1 = :w1 REMOVE #w2"
    assert request["ConditionExpression"] == (
        "attribute_exists(#w3) AND #w4 = :w2 AND attribute_not_exists(#w5) AND (#n0 = :v0)"
    )
    assert list(request["ExpressionAttributeNames"].values()) == ["a", "b", "c", "key", "v", "gone", "hash"]
    assert list(request["ExpressionAttributeValues"].values()) == [{"S": "new"}, {"L": []}, {"N": "7"}, {"B": "AP8="}]


def test_deletes_that_observed_something_are_statements_the_others_batches() -> None:
    wire = ScriptedWire(responses({}, {}), unprocessed(0))
    send(wire, [Delete(raw(key(1)), VERSION), Delete(raw(key(2)))])
    send(wire, [Delete(raw(key(3)))])
    assert wire.operations == ["BatchExecuteStatement", "BatchWriteItem"]
    texts = [statement["Statement"] for statement in wire.asked[0][1]["Statements"]]
    assert [text.endswith('"v" = ? AND "gone" IS MISSING') for text in texts] == [True, False]


def test_a_filter_that_partiql_cannot_say_goes_item_by_item() -> None:
    work = replace(GUARDED, scope=replace(GUARDED.scope, guard_statement=None))
    assert request_of(update(1), work)[0] == "UpdateItem"
    assert request_of(Delete(raw(key(1))), work)[0] == "DeleteItem"
    assert request_of(put(1, "absent"), work)[0] == "BatchExecuteStatement"


def test_a_statement_that_would_be_too_long_goes_alone() -> None:
    long = put(1, "absent", **{"x" * 9000: {"N": "1"}})
    wire = ScriptedWire({}, responses({}, {}))
    outcome = send(wire, [put(0, "absent"), long, put(2, "absent")])
    assert wire.operations == ["PutItem", "BatchExecuteStatement"]
    assert buckets(outcome) == {"processed": 3}


def test_what_is_applied_is_the_works_expression_if_the_item_is_there_and_matches() -> None:
    operation, request = request_of(Apply(raw(item(1))), replace(GUARDED, update=CHANGE))
    assert (operation, request["Key"]) == ("UpdateItem", key(1))
    assert request["UpdateExpression"] == CHANGE.text
    assert request["ConditionExpression"] == "attribute_exists(#w1) AND (#n0 = :v0)"
    assert request["ExpressionAttributeNames"] == {"#n": "n", "#w1": "key", "#n0": "hash"}
    assert request["ExpressionAttributeValues"] == {":one": {"N": "1"}, ":v0": {"B": "AP8="}}


@pytest.mark.parametrize("alias", ["w0", "w", "ww0", "www"])
def test_aliases_of_ours_are_none_of_the_users(alias: str) -> None:
    guard = Expression(f"#{alias} = :{alias}", {f"#{alias}": "x"}, {f":{alias}": {"N": "1"}})
    work = Work(Scope(TABLE, guard=guard), guarded=True, update=replace(CHANGE, names={"#n": "n", "#w1": "y"}))
    for write in (update(1, VERSION), Delete(raw(key(1)), VERSION), Apply(raw(item(1)))):
        _, request = request_of(write, work)
        assert request["ExpressionAttributeNames"][f"#{alias}"] == "x"
        assert request["ExpressionAttributeValues"][f":{alias}"] == {"N": "1"}
        assert "key" in request["ExpressionAttributeNames"].values()


def test_parentheses_are_never_doubled() -> None:
    # DynamoDB refuses redundant ones
    for text, wanted in (("(#a = :a)", "(#a = :a)"), ("(#a = :a) OR (#a = :a)", "((#a = :a) OR (#a = :a))")):
        work = Work(Scope(TABLE, guard=Expression(text, {"#a": "a"}, {":a": {"N": "1"}})), guarded=True)
        assert request_of(update(1), work)[1]["ConditionExpression"].endswith(f" AND {wanted}")
        assert request_of(Delete(raw(key(1))), work)[1]["ConditionExpression"].endswith(f" OR {wanted}")


@pytest.mark.parametrize(
    ("names", "values", "clash"),
    [
        ({"#n": "n"}, {":v": {"N": "1"}}, ""),
        ({"#n": "m"}, {":v": {"N": "1"}}, "#n"),
        ({"#x": "n"}, {":one": {"N": "2"}}, ":one"),
    ],
)
def test_an_alias_that_means_two_things_is_refused_at_once(names: Any, values: Any, clash: str) -> None:
    work = Work(Scope(TABLE, guard=Expression("…", names, values)), guarded=True, update=CHANGE)
    if clash:
        with pytest.raises(errors.BadArgument, match=f"both use {clash},"):
            writer(ScriptedWire({}), work)
    else:
        writer(ScriptedWire({}), work)


# Buckets

ABSENT, PRESENT = put(0, "absent"), put(0, "present")
DELETE, OBSERVED_DELETE = Delete(raw(key(0))), Delete(raw(key(0)), VERSION)
UPDATE, OBSERVED_UPDATE = update(0), update(0, VERSION)
DUPLICATE = {"Error": {"Code": "DuplicateItem", "Message": "there"}}
INVALID = {"Error": {"Code": "ValidationError", "Message": "odd"}}


@pytest.mark.parametrize(
    ("write", "answer", "bucket"),
    [
        (ABSENT, {}, "processed"),
        (ABSENT, DUPLICATE, "skipped"),
        (ABSENT, INVALID, "failed"),
        (UPDATE, {}, "processed"),
        (UPDATE, REFUSED, "skipped"),
        (UPDATE, INVALID, "failed"),
        (OBSERVED_UPDATE, {}, "processed"),
        (OBSERVED_UPDATE, REFUSED, "conflicts"),
        (OBSERVED_DELETE, REFUSED, "conflicts"),
        (DELETE, REFUSED, "skipped"),
    ],
)
def test_each_statement_comes_into_one_bucket(write: Write, answer: dict[str, Any], bucket: str) -> None:
    wire = ScriptedWire(responses(answer))
    outcome = send(wire, [write], GUARDED)
    assert buckets(outcome) == {bucket: 1}
    assert decoded(outcome.skipped + outcome.conflicts) == [key(0)] * (bucket in ("skipped", "conflicts"))
    assert [failure.key for failure in outcome.failed] == [key(0)] * (bucket == "failed")
    assert len(wire.asked) == 1


@pytest.mark.parametrize(
    ("write", "code", "bucket"),
    [
        (ABSENT, CHECKED, "skipped"),
        (PRESENT, CHECKED, "skipped"),
        (UPDATE, CHECKED, "skipped"),
        (OBSERVED_UPDATE, CHECKED, "conflicts"),
        (DELETE, CHECKED, "skipped"),
        (OBSERVED_DELETE, CHECKED, "conflicts"),
        (Apply(raw(item(0))), CHECKED, "skipped"),
        (PRESENT, "ValidationException", "failed"),
        (UPDATE, "ItemCollectionSizeLimitExceededException", "failed"),
        (Apply(raw(item(0))), "ValidationException", "failed"),
        (Apply(raw(item(0))), "ThrottlingException", "failed"),
    ],
)
def test_each_single_request_comes_into_one_bucket(write: Write, code: str, bucket: str) -> None:
    wire = ScriptedWire(Fault(code, "no"))
    outcome = send(wire, [write], replace(GUARDED, update=CHANGE), sequential=True)
    assert buckets(outcome) == {bucket: 1}
    assert decoded(outcome.skipped + outcome.conflicts) == [key(0)] * (bucket in ("skipped", "conflicts"))
    assert {failure.reason for failure in outcome.failed} <= {code, "ThroughputExhausted"}


@pytest.mark.parametrize("work", [PLAIN, GUARDED], ids=["batch", "statements"])
def test_a_batch_that_is_throttled_until_the_deadline_fails_with_its_keys(work: Work) -> None:
    # case C065 C070
    wire = ScriptedWire(Fault("RequestLimitExceeded", "slow"))
    outcome = send(wire, [Delete(raw(key(number))) for number in range(3)], work)
    assert [failure.key for failure in outcome.failed] == [key(0), key(1), key(2)]
    assert {failure.reason for failure in outcome.failed} == {"ThroughputExhausted"}


def test_a_table_that_is_gone_ends_the_run() -> None:
    missing = {"Error": {"Code": "ResourceNotFound", "Message": "no such table"}}
    with pytest.raises(errors.TableMissing):
        send(ScriptedWire(responses(missing)), [UPDATE])


def test_every_put_is_measured_before_it_is_sent() -> None:
    # case C072
    large = {"payload": {"S": "x" * 410_000}}
    for when in ("", "absent", "present"):
        wire = ScriptedWire(lambda request: responses({}) if "Statements" in request else {})
        outcome = send(wire, [put(1, when, **large), put(2, when)])
        assert (outcome.failed[0].key, outcome.failed[0].reason) == (key(1), "ItemTooLarge")
        assert buckets(outcome) == {"processed": 1, "failed": 1}


# A batch that is refused as a whole


def refusing(*culprits: int) -> Script:
    """A service that refuses every request in which one of these items is."""

    def answer(request: dict[str, Any]) -> Any:
        text = str(request)
        if any(f"'ä{number}'" in text for number in culprits):
            return Fault("ValidationException", "one of them is bad")
        if "Statements" in request:
            return responses(*[{}] * len(request["Statements"]))
        return {"ConsumedCapacity": capacity(1)}

    return answer


@pytest.mark.parametrize("culprits", [(0,), (24,), (3, 17), tuple(range(25)), ()])
@pytest.mark.parametrize("when", ["", "absent"])
def test_only_the_culprit_of_a_refused_batch_fails(when: str, culprits: tuple[int, ...]) -> None:
    # case C032
    wire = ScriptedWire(refusing(*culprits))
    outcome = send(wire, [put(number, when) for number in range(25)])
    assert [failure.key for failure in outcome.failed] == [key(number) for number in culprits]
    assert outcome.processed == 25 - len(culprits)
    assert len(wire.asked) <= 1 + 10 * max(1, len(culprits))


def test_of_a_batch_that_is_refused_later_only_what_is_left_is_sent_again() -> None:
    wire = ScriptedWire(
        unprocessed(2), Fault("ValidationException", "odd"), unprocessed(0), Fault("ValidationException", "")
    )
    outcome = send(wire, [put(number) for number in range(10)])
    assert [len(request["RequestItems"]["orders"]) for _, request in wire.asked] == [10, 2, 1, 1]
    assert (outcome.processed, [failure.key for failure in outcome.failed]) == (9, [key(9)])


def test_a_put_without_its_key_fails_alone() -> None:
    wire = ScriptedWire(
        lambda request: Fault("ValidationException", "key") if "'only'" in str(request) else unprocessed(0)(request)
    )
    outcome = send(wire, [put(1), Put(raw({"only": {"S": "x"}})), put(2)])
    assert buckets(outcome) == {"processed": 2, "failed": 1}
    assert outcome.failed[0].key == {}


# What was acknowledged


@pytest.mark.parametrize("left", [1, 2, 9])
def test_what_came_back_unprocessed_is_not_among_the_acknowledged(left: int) -> None:
    puts = [put(number) for number in range(10)]
    wire, outcome = ScriptedWire(unprocessed(left)), Outcome(acknowledged=[])
    writer(wire, PLAIN).write(puts, lambda *_: None, outcome)
    assert outcome.acknowledged == puts[: 10 - left]
    assert [failure.key for failure in outcome.failed] == [key(number) for number in range(10 - left, 10)]


def test_unprocessed_items_are_known_by_their_key_however_it_is_written() -> None:
    table = replace(TABLE, keys=(replace(TABLE.keys[0], name="id", type="N"),))
    puts = [Put(raw({"id": {"N": "1.0"}})), Put(raw({"id": {"N": "2"}}))]
    back = {"UnprocessedItems": {"orders": [{"PutRequest": {"Item": {"n": {"S": ""}, "id": {"N": "1"}}}}]}}
    wire, outcome = ScriptedWire(back, {}), Outcome(acknowledged=[])
    writer(wire, Work(Scope(table))).write(puts, lambda *_: None, outcome)
    assert outcome.acknowledged == [puts[1], puts[0]]
    sent = wire.asked[1][1]["RequestItems"]["orders"]
    assert sent == [{"PutRequest": {"Item": {"id": {"N": "1.0"}}}}]


def test_of_statements_those_without_an_error_are_acknowledged() -> None:
    puts = [put(number, "absent") for number in range(3)]
    wire = ScriptedWire(responses({}, DUPLICATE, {}))
    outcome = send(wire, [*puts])
    assert outcome.acknowledged == [puts[0], puts[2]]


def test_outcomes_add_up() -> None:
    kept: list[Write] = []
    total, part = Outcome(acknowledged=kept), Outcome(acknowledged=kept)
    part.acknowledge([UPDATE])
    part.conflicts.append(raw(key(1)))
    part.read_units = 2.0
    total.add(part)
    total.add(Outcome(1, acknowledged=[DELETE]))
    assert (total.processed, total.acknowledged) == (2, [UPDATE, DELETE])
    assert (decoded(total.conflicts), total.read_units) == ([key(1)], 2.0)
