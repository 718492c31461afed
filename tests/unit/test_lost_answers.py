"""A request whose answer was lost may have had its effect: items are read back before a bucket is named."""

from collections.abc import Callable
from typing import Any

import msgspec
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
    key,
    raw,
    responses,
    there,
    unprocessed,
    writer,
)

LOST = Fault("ConnectionLost", "reset")
BROKEN = Fault("InternalServerError", "", status=500)
FAILED_INSIDE = responses({"Error": {"Code": "InternalServerError", "Message": ""}})
CHECKED = Fault("ConditionalCheckFailedException", "no")
THROTTLED = Fault("ThrottlingException", "slow")
APPLYING = Work(Scope(TABLE), update=Expression("ADD #n :one", {"#n": "n"}, {":one": {"N": "1"}}))

STORED = {**key(0), "n": {"N": "5"}, "tags": {"SS": ["a", "b"]}}
WRITTEN_ANOTHER_WAY = {"tags": {"SS": ["b", "a"]}, "n": {"N": "5.0"}, **key(0)}
PUT = Put(raw(STORED), "absent")
UPDATE = Update(raw(key(0)), {"n": raw({"N": "5"}), "tags": raw({"SS": ["b", "a"]})}, ("old",))
OBSERVED = msgspec.structs.replace(UPDATE, observed={"v": raw({"N": "1"})})
DELETE = Delete(raw(key(0)))
OBSERVED_DELETE = Delete(raw(key(0)), {"v": None})


def send(wire: ScriptedWire, write: Write, work: Work = PLAIN, sequential: bool = False) -> Outcome:
    outcome = Outcome(acknowledged=[])
    writer(wire, work, sequential).write([write], lambda *_: None, outcome)
    assert outcome.processed == len(outcome.acknowledged or ())
    return outcome


def bucket_of(outcome: Outcome) -> str:
    """The one bucket that holds the one write."""
    counts = {
        "processed": outcome.processed,
        "skipped": len(outcome.skipped),
        "failed": len(outcome.failed),
        "conflicts": len(outcome.conflicts),
    }
    ((name, count),) = [(name, count) for name, count in counts.items() if count]
    assert count == 1
    return name


CASES = [
    (PUT, [WRITTEN_ANOTHER_WAY], "processed"),
    (PUT, [{**STORED, "n": {"N": "6"}}], "skipped"),
    (PUT, [{**STORED, "more": {"S": ""}}], "skipped"),
    (PUT, [], "skipped"),
    (UPDATE, [{**STORED, "more": {"S": ""}}], "processed"),
    (UPDATE, [{**STORED, "old": {"S": ""}}], "skipped"),
    (UPDATE, [{**STORED, "n": {"N": "4"}}], "skipped"),
    (UPDATE, [key(0)], "skipped"),
    (UPDATE, [], "skipped"),
    (OBSERVED, [WRITTEN_ANOTHER_WAY], "processed"),
    (OBSERVED, [{**STORED, "n": {"N": "4"}}], "conflicts"),
    (DELETE, [], "processed"),
    (DELETE, [key(0)], "skipped"),
    (OBSERVED_DELETE, [key(0)], "conflicts"),
]


@pytest.mark.parametrize(("write", "stored", "bucket"), CASES)
@pytest.mark.parametrize("before", [LOST, BROKEN, FAILED_INSIDE], ids=["reset", "500", "statement"])
def test_a_statement_that_is_refused_after_a_lost_answer(
    before: Script, write: Write, stored: list[Any], bucket: str
) -> None:
    wire = ScriptedWire(before, responses(REFUSED), there(*stored))
    assert bucket_of(send(wire, write, GUARDED)) == bucket
    assert wire.operations == ["BatchExecuteStatement", "BatchExecuteStatement", "BatchGetItem"]
    asked = wire.asked[2][1]["RequestItems"]["orders"]
    assert (asked["Keys"], asked["ConsistentRead"]) == ([key(0)], True)


@pytest.mark.parametrize(("write", "stored", "bucket"), CASES)
@pytest.mark.parametrize("before", [LOST, BROKEN], ids=["reset", "500"])
def test_a_single_request_that_is_refused_after_a_lost_answer(
    before: Script, write: Write, stored: list[Any], bucket: str
) -> None:
    wire = ScriptedWire(before, CHECKED, there(*stored))
    assert bucket_of(send(wire, write, GUARDED, sequential=True)) == bucket
    assert len(wire.asked) == 3


def test_only_what_was_in_doubt_is_read_back() -> None:
    broken = {"Error": {"Code": "InternalServerError", "Message": ""}}
    wire = ScriptedWire(responses(REFUSED, broken, {}), responses(REFUSED), there())
    outcome = Outcome()
    writes = [Delete(raw(key(number))) for number in range(3)]
    writer(wire, GUARDED).write(writes, lambda *_: None, outcome)
    assert wire.asked[2][1]["RequestItems"]["orders"]["Keys"] == [key(1)]
    assert (outcome.processed, len(outcome.skipped)) == (2, 1)


@pytest.mark.parametrize(("stored", "bucket"), [([WRITTEN_ANOTHER_WAY], "processed"), ([key(0)], "failed")])
def test_what_is_given_up_in_doubt_is_read_back_first(stored: list[Any], bucket: str) -> None:
    slow = responses({"Error": {"Code": "ThrottlingError", "Message": "slow"}})
    script = [LOST]

    def answer(request: dict[str, Any]) -> Any:
        return there(*stored) if "RequestItems" in request else script.pop() if script else slow

    outcome = send(ScriptedWire(answer), UPDATE)
    assert bucket_of(outcome) == bucket
    assert [failure.reason for failure in outcome.failed] == ["ThroughputExhausted"] * (bucket == "failed")


def test_a_statement_that_fails_inside_until_the_deadline_is_named_so() -> None:
    outcome = send(ScriptedWire(lambda request: there() if "RequestItems" in request else FAILED_INSIDE), UPDATE)
    assert [failure.reason for failure in outcome.failed] == ["InternalServerError"]


def test_read_back_units_are_read_units() -> None:
    back = {**there(STORED), "ConsumedCapacity": [{"TableName": "orders", "CapacityUnits": 3.0}]}
    outcome = send(ScriptedWire(LOST, {**responses(REFUSED, units=2)}, back), UPDATE)
    assert (outcome.units, outcome.read_units) == (2.0, 3.0)


def test_a_plain_batch_is_simply_sent_again() -> None:
    wire = ScriptedWire(LOST, BROKEN, unprocessed(0))
    assert bucket_of(send(wire, Put(raw(STORED)))) == "processed"
    assert wire.operations == ["BatchWriteItem"] * 3


# Expressions that must not run twice

AS_READ = Apply(raw(STORED))


@pytest.mark.parametrize("lost", [LOST, BROKEN], ids=["reset", "500"])
@pytest.mark.parametrize(
    ("answers", "bucket", "operations"),
    [
        ([there(WRITTEN_ANOTHER_WAY), {}], "processed", "UGU"),
        ([there(WRITTEN_ANOTHER_WAY), CHECKED], "skipped", "UGU"),
        ([there(WRITTEN_ANOTHER_WAY), THROTTLED, {}], "processed", "UGUU"),
        ([there(STORED), LOST, there({**STORED, "n": {"N": "6"}})], "failed", "UGUG"),
        ([there({**STORED, "n": {"N": "6"}})], "failed", "UG"),
        ([there()], "skipped", "UG"),
    ],
)
def test_an_applied_expression_is_sent_again_only_if_it_had_no_effect(
    lost: Fault, answers: list[Script], bucket: str, operations: str
) -> None:
    wire = ScriptedWire(lost, *answers)
    outcome = send(wire, AS_READ, APPLYING)
    assert bucket_of(outcome) == bucket
    assert "".join(operation.removeprefix("Batch")[0] for operation in wire.operations) == operations
    assert [failure.reason for failure in outcome.failed] == ["AnswerLost"] * (bucket == "failed")
    assert all("may have been applied" in failure.details for failure in outcome.failed)


def test_an_applied_expression_that_never_gets_through_ends_the_run() -> None:
    wire = ScriptedWire(lambda request: there(STORED) if "RequestItems" in request else LOST)
    with pytest.raises(errors.Exhausted):
        send(wire, AS_READ, APPLYING)


def test_what_could_not_be_sent_at_all_is_sent_again_without_a_look() -> None:
    wire = ScriptedWire(Fault("NoConnection", "refused"), {})
    assert bucket_of(send(wire, AS_READ, APPLYING)) == "processed"
    assert wire.operations == ["UpdateItem", "UpdateItem"]


# What a move finds at its destination


def stored_by(numbers: set[int], units: float = 0.5) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked = request["RequestItems"]["orders"]["Keys"]
        found = [{**each, "n": {"N": "1"}} for each in asked if int(each["key"]["S"][1:]) in numbers]
        return {**there(*found), "ConsumedCapacity": [{"TableName": "orders", "CapacityUnits": units * len(asked)}]}

    return answer


def test_puts_whose_item_is_there_already_are_found_a_hundred_keys_at_a_time() -> None:
    puts = [Put(raw({"n": {"N": "1.0" if number % 2 else "2"}, **key(number)})) for number in range(250)]
    wire, outcome = ScriptedWire(stored_by(set(range(100)))), Outcome()
    found = writer(wire, PLAIN).already_there(puts, outcome)
    assert found == [put for number, put in enumerate(puts) if number % 2 and number < 100]
    assert [len(request["RequestItems"]["orders"]["Keys"]) for _, request in wire.asked] == [100, 100, 50]
    assert outcome.read_units == 125.0


def test_a_key_is_asked_for_once() -> None:
    one, other = Put(raw({**key(1), "n": {"N": "1"}})), Put(raw({**key(1), "n": {"N": "2"}}))
    wire = ScriptedWire(stored_by({1}))
    assert writer(wire, PLAIN).already_there([one, other, one]) == [one, one]
    assert len(wire.asked[0][1]["RequestItems"]["orders"]["Keys"]) == 1


def test_unprocessed_keys_are_asked_for_again_with_backoff_until_the_deadline() -> None:
    rest = {"orders": {"Keys": [key(1)], "ConsistentRead": True}}
    nothing = {"Responses": {}, "UnprocessedKeys": rest}
    put = Put(raw({**key(1), "n": {"N": "1"}}))
    assert writer(ScriptedWire(nothing, stored_by({1})), PLAIN).already_there([put]) == [put]
    with pytest.raises(errors.Exhausted, match="outlasted every retry"):
        writer(ScriptedWire(nothing), PLAIN).already_there([put])


def test_after_a_lost_answer_a_throttled_deadline_looks_at_what_is_there() -> None:
    script: list[Fault] = [LOST]

    def answer(request: dict[str, Any]) -> Any:
        if "Keys" in str(request):
            return there(key(0))
        return script.pop() if script else THROTTLED

    outcome = Outcome()
    writer(ScriptedWire(answer), PLAIN).write([DELETE, Delete(raw(key(1)))], lambda *_: None, outcome)
    assert (outcome.processed, [failure.key for failure in outcome.failed]) == (1, [key(0)])
