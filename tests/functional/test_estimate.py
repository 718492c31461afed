"""The estimate against what DynamoDB meters, on small tables of every kind (issue 5, acceptance 1)."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from bulkexec.command import Command, restore
from bulkexec.commands.copy import Copy
from bulkexec.commands.delete import Delete
from bulkexec.commands.edit import Edit
from bulkexec.commands.move import Move
from bulkexec.cost import Terms, estimate
from bulkexec.describe import describe
from bulkexec.item_size import item_size_bytes
from bulkexec.keyed import KeyReader, file_lines
from bulkexec.model import Scope, Table
from bulkexec.plan import Estimate, Options
from bulkexec.planning import make_plan
from bulkexec.pricing import list_prices
from bulkexec.reader import Reader
from bulkexec.sample import look_at, read_whole, take_sample
from bulkexec.sandbox.process import Sandbox
from bulkexec.selection import Filter
from bulkexec.units import write_units
from bulkexec.volume import Kind
from bulkexec.wire import HttpWire, Refusals, Retrying
from tests.functional.conftest import Tables

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
class Sort:
    """A sort of table."""

    items: list[Item]
    members: dict[str, Any] = field(default_factory=dict)
    stale: bool = False
    replicas: tuple[str, ...] = ()


SPARSE = [sized(n, 300, **({"due": {"S": f"d{n % 7}"}} if n % 5 == 0 else {})) for n in range(400)]
KINDS = {
    "tiny": Sort([sized(n, 80) for n in range(3)]),
    "mixed sizes": Sort([mixed(n) for n in range(600)]),
    "one index": Sort([sized(n, 900) for n in range(300)], with_indexes(index("by-state", "state"))),
    "three indexes": Sort(
        [sized(n, 1500, who={"S": f"w{n % 9}"}, due={"S": f"d{n % 4}"}) for n in range(300)],
        with_indexes(
            index("by-state", "state"), index("by-who", "who", "KEYS_ONLY"), index("by-due", "due", "INCLUDE", "who")
        ),
    ),
    "sparse": Sort(SPARSE, with_indexes(index("by-due", "due"))),
    "larger": Sort([sized(n, 200 + 37 * (n % 50)) for n in range(3000)]),
    "provisioned": Sort(
        [sized(n, 500) for n in range(200)],
        {"BillingMode": "PROVISIONED", "ProvisionedThroughput": {"ReadCapacityUnits": 900, "WriteCapacityUnits": 900}},
    ),
    "infrequent access": Sort([sized(n, 700) for n in range(200)], {"TableClass": "STANDARD_INFREQUENT_ACCESS"}),
    "replicas": Sort([sized(n, 700) for n in range(200)], replicas=("eu-west-1", "us-west-2")),
    "stale size": Sort([mixed(n) for n in range(300)], with_indexes(index("by-state", "state")), stale=True),
    "empty": Sort([]),
    "binary keys": Sort([{**sized(n, 400), "pk": {"B": n.to_bytes(4, "big") + b"\x00\xff"}} for n in range(300)]),
    "400 KB items": Sort([sized(n, 400_000 if n % 4 else 200_000) for n in range(24)]),
}


@pytest.fixture(scope="module")
def session(sandbox: Any) -> Iterator[boto3.Session]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sandbox.env().items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        yield boto3.Session(region_name="us-east-1")


def made(tables: Any, kind: Sort) -> str:
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
    source, look = Reader(calls, read_whole(work)), look_at(calls, work.writes_to)
    sample = take_sample(source, work, command, SEGMENTS, look) if sampled else None
    prices = list_prices(table.table_class)
    return estimate(table, work, command.mutates, prices, SEGMENTS, None, RATES, Terms(sample=sample))


def planned(
    session: boto3.Session, command: Command, table: str, chosen: Filter, keys: int | None = None
) -> tuple[Estimate, Estimate]:
    """The estimate of a plan with a sample, and without."""
    plan = make_plan(session, command, table, chosen, RATES, 4).plan
    work, source = plan.work, plan.work.scope.table
    command = restore(plan.command, plan.arguments)
    calls = Retrying(HttpWire(session, source.region, 4), Refusals(source.name, source.region))
    reading = read_whole(work)
    pages = KeyReader(calls, reading, file_lines(work.keys)) if work.keys else Reader(calls, reading)
    sample = take_sample(pages, work, command, plan.segments, look_at(calls, work.writes_to), keys)
    kinds: dict[str, Kind] = {"delete": "delete", "edit": "update", "copy": "put", "move": "move"}
    found, blind = (
        estimate(
            source,
            work,
            True,
            list_prices(source.table_class),
            plan.segments,
            None,
            RATES,
            Terms(kinds[plan.command], 4, keys, each),
        )
        for each in (sample, None)
    )
    return found, blind


def holds(found: Estimate, blind: Estimate | None, report: dict[str, Any]) -> None:
    """Reads within 5 %, writes within 10 % where there was a sample; all in their range, also without."""
    reads, writes = report["read_units"], report["write_units"]
    assert found.read_units == pytest.approx(reads, rel=0.05)
    assert found.expected_writes == pytest.approx(writes, rel=0.10)
    for each in (found, blind):
        if each is not None:
            assert each.reads is not None
            assert each.reads[0] <= reads <= each.reads[1]
            assert each.write_units[0] <= writes <= each.write_units[1]


def facts(session: boto3.Session, name: str, kind: Sort) -> Table:
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
    assert report["processed"] == len(kind.items)
    holds(found, None if kind.stale or not kind.items else blind, report)


@pytest.fixture(scope="module")
def old_facts() -> Iterator[Sandbox]:
    """A sandbox whose DescribeTable is as old as AWS's: all of its tables were just made, so their sizes are 0."""
    with Sandbox(size_age_seconds=21_600.0) as running:
        yield running


OWNED = [sized(n, 300 + 20 * (n % 60), who={"S": f"w{n % 9}"}, due={"S": f"d{n % 4}"}) for n in range(2500)]
BY_OWNER = with_indexes(index("by-state", "state"), index("by-due", "due", "KEYS_ONLY"))


def test_an_edit_that_moves_entries_of_an_index(tables: Any, session: boto3.Session, bulkexec: Any) -> None:
    # case C084: a key of an index that changes costs its entry twice
    name = made(tables, Sort(OWNED, BY_OWNER))
    where, values = "state = 'OLD'", ("state=NEW",)
    found, blind = planned(session, Edit(set_values=values), name, Filter(where=where))
    report = bulkexec.json("edit", "--table", name, "--where", where, "--set", *values, "--yes").report
    assert report["processed"] == len([item for item in OWNED if item["state"]["S"] == "OLD"])
    holds(found, blind, report)


@pytest.mark.parametrize("condition", ["", "--if-not-exists"])
def test_a_copy_over_what_is_there(condition: str, tables: Any, session: boto3.Session, bulkexec: Any) -> None:
    # a put that is refused costs what is there; MASS_OPS.md, Money
    name = made(tables, Sort(OWNED))
    there = [{**item, "filler": {"S": "y" * 3000}} for item in OWNED[::2]]
    target = made(tables, Sort(there, with_indexes(index("by-who", "who"))))
    found, blind = planned(session, Copy(to=target, if_not_exists=bool(condition)), name, Filter())
    report = bulkexec.json("copy", "--table", name, "--to", target, "--yes", *condition.split()).report
    assert report["skipped"] == (len(there) if condition else 0)
    holds(found, blind, report)


def test_a_move_is_priced_on_both_sides(tables: Any, session: boto3.Session, bulkexec: Any) -> None:
    name, target = made(tables, Sort(OWNED[:600], BY_OWNER)), made(tables, Sort([]))
    found, blind = planned(session, Move(to=target, all=True), name, Filter())
    report = bulkexec.json("move", "--table", name, "--to", target, "--all", "--yes").report
    assert report["processed"] == 600
    holds(found, blind, report)


def test_reads_where_an_index_and_little_capacity_make_pages_small(tables: Any, bulkexec: Any, tmp_path: Any) -> None:
    capacity = {"ProvisionedThroughput": {"ReadCapacityUnits": 50, "WriteCapacityUnits": 20}}
    indexed = {**index("by-state", "state"), **capacity}
    items = [sized(n, 100) for n in range(60)]
    name = made(tables, Sort(items, {"BillingMode": "PROVISIONED", **capacity, **with_indexes(indexed)}))
    file = tmp_path / "plan.json"
    assert bulkexec("plan", "delete", "--table", name, "--all", "-o", str(file)).code == 0
    low, high = json.loads(file.read_bytes())["plan"]["estimate"]["reads"]
    report = bulkexec.json("apply", str(file), "--yes").report
    assert report["processed"] == len(items)
    assert low <= report["read_units"] <= high


def test_one_item_collection(tables: Any, session: boto3.Session, bulkexec: Any) -> None:
    items = [{**sized(n, 500), "pk": {"S": f"p{n % 3}"}, "sk": {"S": f"s{n:05d}"}} for n in range(600)]
    name = tables.make(items, keys=(("pk", "S"), ("sk", "S")))
    where = "pk = 'p1' AND sk < 's00400'"
    found, blind = planned(session, Delete(), name, Filter(where=where))
    report = bulkexec.json("delete", "--table", name, "--where", where, "--yes").report
    assert report["processed"] == 133
    holds(found, blind, report)


def test_a_list_of_keys(tables: Any, session: boto3.Session, bulkexec: Any, tmp_path: Path) -> None:
    name, keys = made(tables, Sort(OWNED, BY_OWNER)), tmp_path / "keys.jsonl"
    wanted = [{"pk": item["pk"]} for item in OWNED[::2]] + [{"pk": {"S": f"gone{n}"}} for n in range(200)]
    keys.write_text("".join(json.dumps(key) + "\n" for key in wanted))
    found, blind = planned(session, Delete(), name, Filter(keys=str(keys)), keys=len(wanted))
    report = bulkexec.json("delete", "--table", name, "--keys-from", str(keys), "--yes").report
    holds(found, blind, report)


def test_a_sparse_index_as_the_source(tables: Any, session: boto3.Session, bulkexec: Any) -> None:
    name = made(tables, Sort(SPARSE, with_indexes(index("by-due", "due"))))
    found, blind = planned(session, Edit(set_values=("seen=1",), all=True), name, Filter(index="by-due"))
    report = bulkexec.json("edit", "--table", name, "--index", "by-due", "--set", "seen=1", "--all", "--yes").report
    assert report["processed"] == 80
    holds(found, blind, report)


def test_a_table_younger_than_its_sizes(old_facts: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    # DescribeTable says 0 for up to six hours; how many items there are is seen from how many a segment has
    for name, value in old_facts.env().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    young = boto3.Session(region_name="us-east-1")
    name = made(Tables(old_facts.client("dynamodb")), Sort(OWNED, BY_OWNER))
    table = describe(young, name)
    assert (table.item_count, table.size_bytes, table.indexes[0].item_count) == (0, 0, 0)
    found = estimated(young, table, Delete(all=True), Scope(table), sampled=True)
    truth = 2 * sum(write_units(item_size_bytes(item)) for item in OWNED) + len(OWNED)
    assert found.matching is not None
    assert found.matching[0] <= len(OWNED) <= found.matching[1]
    assert found.write_units[0] <= truth <= found.write_units[1]
    assert found.write_units[1] < 2 * truth, "a range that says something"
    assert found.usd is not None


def test_a_sample_leaves_a_small_table_its_capacity(tables: Any, session: boto3.Session, sandbox: Sandbox) -> None:
    small = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 5}
    members = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": small}
    name = made(tables, Sort([sized(n, 2000) for n in range(30)], members))
    table = replace(describe(session, name), item_count=100_000, size_bytes=200_000_000)
    found = estimated(session, table, Delete(all=True), Scope(table), sampled=True)
    assert sum(sandbox.control.units(name, "read").values()) <= 5 * 4 + 1
    assert found.write_units[0] <= 2 * 100_000 <= found.write_units[1] * 1.01
