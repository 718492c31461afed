"""The estimate against what DynamoDB meters, on small tables of every kind (issue 5, acceptance 1)."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest

from bulkexec.command import Command
from bulkexec.commands.delete import Delete
from bulkexec.cost import Terms, estimate
from bulkexec.describe import describe
from bulkexec.model import Estimate, Options, Scope, Table
from bulkexec.pricing import list_prices
from bulkexec.sample import take_sample
from bulkexec.wire import HttpWire, Refusals, Retrying

SEGMENTS = 16
RATES = Options(read_rate=6000, write_rate=2000)
"""What the command line takes for a new on-demand table: half of what each serves at once."""

Item = dict[str, Any]


def sized(number: int, size_bytes: int, **more: Any) -> Item:
    """An item of about that size; `state` is OLD for every third."""
    item: Item = {"pk": {"S": f"k{number:06d}"}, "state": {"S": "OLD" if number % 3 == 0 else "NEW"}}
    return item | more | {"filler": {"S": "x" * max(1, size_bytes - 30)}}


def mixed(number: int) -> Item:
    """Half of 100 bytes, half of 1,900 (case C085), and a few of 30 KB."""
    return sized(number, 30_000 if number % 40 == 7 else 100 if number % 2 else 1900)


def index(name: str, key: str, kind: str = "ALL", *included: str) -> dict[str, Any]:
    projection: dict[str, Any] = {"ProjectionType": kind}
    if included:
        projection["NonKeyAttributes"] = list(included)
    return {
        "IndexName": name,
        "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
        "Projection": projection,
    }


def with_indexes(*indexes: dict[str, Any]) -> dict[str, Any]:
    """Members of CreateTable for global indexes keyed by text attributes."""
    return {"GlobalSecondaryIndexes": list(indexes)}


@dataclass(frozen=True)
class Kind:
    """A kind of table."""

    items: list[Item]
    members: dict[str, Any] = field(default_factory=dict)
    stale: bool = False
    replicas: tuple[str, ...] = ()


SPARSE = [sized(n, 300, **({"due": {"S": f"d{n % 7}"}} if n % 5 == 0 else {})) for n in range(400)]
KINDS = {
    "tiny": Kind([sized(n, 80) for n in range(3)]),
    "mixed sizes": Kind([mixed(n) for n in range(600)]),
    "one index": Kind([sized(n, 900) for n in range(300)], with_indexes(index("by-state", "state"))),
    "three indexes": Kind(
        [sized(n, 1500, who={"S": f"w{n % 9}"}, due={"S": f"d{n % 4}"}) for n in range(300)],
        with_indexes(
            index("by-state", "state"), index("by-who", "who", "KEYS_ONLY"), index("by-due", "due", "INCLUDE", "who")
        ),
    ),
    "sparse": Kind(SPARSE, with_indexes(index("by-due", "due"))),
    "larger": Kind([sized(n, 200 + 37 * (n % 50)) for n in range(3000)]),
    "provisioned": Kind(
        [sized(n, 500) for n in range(200)],
        {"BillingMode": "PROVISIONED", "ProvisionedThroughput": {"ReadCapacityUnits": 900, "WriteCapacityUnits": 900}},
    ),
    "infrequent access": Kind([sized(n, 700) for n in range(200)], {"TableClass": "STANDARD_INFREQUENT_ACCESS"}),
    "replicas": Kind([sized(n, 700) for n in range(200)], replicas=("eu-west-1", "us-west-2")),
    "stale size": Kind([mixed(n) for n in range(300)], with_indexes(index("by-state", "state")), stale=True),
    "empty": Kind([]),
    "binary keys": Kind([{**sized(n, 400), "pk": {"B": n.to_bytes(4, "big") + b"\x00\xff"}} for n in range(300)]),
    "400 KB items": Kind([sized(n, 400_000 if n % 4 else 200_000) for n in range(24)]),
}


@pytest.fixture(scope="module")
def session(sandbox: Any) -> Iterator[boto3.Session]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sandbox.env().items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        yield boto3.Session(region_name="us-east-1")


def made(tables: Any, kind: Kind) -> str:
    """Make and fill it."""
    key_type = "B" if kind.items and "B" in kind.items[0]["pk"] else "S"
    indexed = [each["KeySchema"][0]["AttributeName"] for each in kind.members.get("GlobalSecondaryIndexes", ())]
    name = f"estimate-{uuid.uuid4().hex[:8]}"
    tables.client.create_table(
        **{
            "TableName": name,
            "AttributeDefinitions": [
                {"AttributeName": key, "AttributeType": key_type if key == "pk" else "S"} for key in ("pk", *indexed)
            ],
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "BillingMode": "PAY_PER_REQUEST",
            **kind.members,
        }
    )
    tables.client.update_continuous_backups(
        TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    tables.put(name, kind.items)
    return name


def estimated(session: boto3.Session, table: Table, command: Command, scope: Scope, sampled: bool) -> Estimate:
    """As a plan does it."""
    work = command.plan(scope)
    calls = Retrying(HttpWire(session, table.region, 4), Refusals(table.name, table.region))
    sample = take_sample(calls, work, command, SEGMENTS) if sampled else None
    prices = list_prices(table.table_class)
    return estimate(table, work, command.mutates, prices, SEGMENTS, None, RATES, Terms(sample=sample))


def facts(session: boto3.Session, name: str, kind: Kind) -> Table:
    """What DescribeTable says, or would say of a table filled within the last six hours."""
    table = describe(session, name)
    if kind.stale:
        young = tuple(replace(each, item_count=0, size_bytes=0) for each in table.indexes)
        table = replace(table, item_count=0, size_bytes=0, indexes=young)
    return replace(table, replicas=kind.replicas)


@pytest.mark.parametrize("name", KINDS)
def test_estimate_against_metered(name: str, tables: Any, session: boto3.Session, bulkexec: Any) -> None:
    # case C084 C085
    kind = KINDS[name]
    table = facts(session, made(tables, kind), kind)
    command = Delete(all=True)
    blind = estimated(session, table, command, Scope(table), sampled=False)
    found = estimated(session, table, command, Scope(table), sampled=True)
    report = bulkexec.json("delete", "--table", table.name, "--all", "--yes").report
    reads, writes = report["read_units"], report["write_units"]
    assert report["processed"] == len(kind.items)
    assert found.read_units == pytest.approx(reads, rel=0.05)
    assert found.expected_writes == pytest.approx(writes, rel=0.10)
    for each in [found] if kind.stale or not kind.items else [found, blind]:
        assert each.reads[0] <= reads <= each.reads[1]
        assert each.write_units[0] <= writes <= each.write_units[1]
