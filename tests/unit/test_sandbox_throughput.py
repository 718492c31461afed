"""Token buckets with a clock of their own."""

from typing import Any

import pytest

from bulkexec.sandbox.capacity import Charge
from bulkexec.sandbox.service import ServiceError
from bulkexec.sandbox.throughput import Throughput

ARN = "arn:aws:dynamodb:us-east-1:111122223333:table/t"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def table(read: int = 10, write: int = 10, **more: Any) -> dict[str, Any]:
    return {
        "TableArn": ARN,
        "TableId": "one",
        "BillingModeSummary": {"BillingMode": "PROVISIONED"},
        "ProvisionedThroughput": {"ReadCapacityUnits": read, "WriteCapacityUnits": write},
        **more,
    }


def index(name: str, write: int) -> dict[str, Any]:
    units = {"ReadCapacityUnits": 1, "WriteCapacityUnits": write}
    return {"IndexName": name, "IndexArn": f"{ARN}/index/{name}", "ProvisionedThroughput": units}


def admits(throughput: Throughput, record: dict[str, Any], charge: Charge) -> bool:
    try:
        throughput.check(record, charge)
    except ServiceError:
        return False
    throughput.spend(record, charge)
    return True


def test_consumption_follows_the_rate(clock: Clock) -> None:
    throughput, record, consumed = Throughput(1.0, clock), table(write=50), 0
    for step in range(10_000):
        clock.now = step / 1000
        consumed += 3 * admits(throughput, record, Charge("write", 3))
    assert 50 * 10 <= consumed <= 50 * 11 + 3


def test_an_overdrawn_bucket_waits_until_the_debt_is_paid(clock: Clock) -> None:
    throughput, record = Throughput(1.0, clock), table(write=10)
    assert admits(throughput, record, Charge("write", 45))
    for now, admitted in ((1.0, False), (3.4, False), (3.6, True)):
        clock.now = now
        assert admits(throughput, record, Charge("write", 1)) is admitted


def test_burst_is_what_was_left_unused(clock: Clock) -> None:
    throughput, record = Throughput(300.0, clock), table(read=10)
    assert admits(throughput, record, Charge("read", 10))
    assert not admits(throughput, record, Charge("read", 1))
    clock.now = 1000.0
    consumed = 0
    while admits(throughput, record, Charge("read", 1)):
        consumed += 1
    assert consumed == 3000


def test_reads_and_writes_are_apart(clock: Clock) -> None:
    throughput, record = Throughput(1.0, clock), table()
    assert admits(throughput, record, Charge("write", 100))
    assert admits(throughput, record, Charge("read", 1))


def test_a_changed_rate_holds_at_once(clock: Clock) -> None:
    throughput = Throughput(1.0, clock)
    assert admits(throughput, table(write=1), Charge("write", 10))
    clock.now = 0.5
    assert not admits(throughput, table(write=10), Charge("write", 1))
    clock.now = 1.5
    assert admits(throughput, table(write=10), Charge("write", 1))


def test_every_exceeded_limit_is_named(clock: Clock) -> None:
    throughput = Throughput(1.0, clock)
    record = table(GlobalSecondaryIndexes=[index("a", 1), index("b", 1000)])
    charge = Charge("write", 100, {"a": 2, "b": 2})
    throughput.spend(record, charge)
    with pytest.raises(ServiceError) as caught:
        throughput.check(record, charge)
    assert caught.value.code == "ProvisionedThroughputExceededException"
    assert caught.value.details["ThrottlingReasons"] == [
        {"reason": "TableWriteProvisionedThroughputExceeded", "resource": ARN},
        {"reason": "IndexWriteProvisionedThroughputExceeded", "resource": f"{ARN}/index/a"},
    ]
    throughput.check(record, Charge("write", 0, {"b": 2}))


def test_local_indexes_live_on_the_table(clock: Clock) -> None:
    throughput, record = Throughput(1.0, clock), table(write=10)
    throughput.spend(record, Charge("write", 5, {}, {"local": 5}))
    with pytest.raises(ServiceError):
        throughput.check(record, Charge("write", 1))


def test_on_demand_has_no_limit_unless_one_is_set(clock: Clock) -> None:
    throughput = Throughput(1.0, clock)
    free = table(BillingModeSummary={"BillingMode": "PAY_PER_REQUEST"})
    assert not throughput.limited(free)
    assert all(admits(throughput, free, Charge("write", 1000)) for _ in range(100))
    capped = free | {"OnDemandThroughput": {"MaxWriteRequestUnits": 5, "MaxReadRequestUnits": -1}}
    assert throughput.limited(capped)
    assert admits(throughput, capped, Charge("write", 6))
    with pytest.raises(ServiceError) as caught:
        throughput.check(capped, Charge("write", 1))
    assert caught.value.code == "ThrottlingException"
    assert caught.value.details["throttlingReasons"][0]["reason"] == "TableWriteMaxOnDemandThroughputExceeded"
    assert admits(throughput, capped, Charge("read", 1000))


def test_a_table_made_anew_starts_anew(clock: Clock) -> None:
    throughput = Throughput(1.0, clock)
    assert admits(throughput, table(), Charge("write", 1000))
    assert not admits(throughput, table(), Charge("write", 1))
    assert admits(throughput, table(TableId="two"), Charge("write", 1))
