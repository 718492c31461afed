"""`bulkexec copy` as a process: byte for byte, to every kind of target, and never onto itself."""

import json
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

ALL_TYPES = {
    "pk": {"S": "odd"},
    "empty": {"S": ""},
    "big": {"N": "12345678901234567890123456789012345678"},
    "huge": {"N": "1E+100"},
    "tiny": {"N": "1E-130"},
    "unsigned": {"N": "11888647184542023637"},
    "money": {"N": "30.40"},
    "bytes": {"B": b"\x00\xff\x10"},
    "yes": {"BOOL": True},
    "nothing": {"NULL": True},
    "list": {"L": [{"S": "x"}, {"N": "9"}, {"BOOL": True}, {"NULL": True}, {"L": []}, {"M": {}}]},
    "nobody": {"L": []},
    "map": {"M": {"a.b": {"S": "dotted"}, "名前": {"S": "山田"}, "inner": {"M": {"set": {"NS": ["1", "2.5"]}}}}},
    "strings": {"SS": ["a", "b"]},
    "binaries": {"BS": [b"\x01", b"\x02"]},
    "full.name": {"S": 'Zoë "quoted" \n line'},
}
SAME = ("status", "scanned", "matched", "processed", "skipped", "failed", "conflicts", "cursor", "write_units")


@pytest.fixture
def copy(verb: Any) -> Any:
    return verb("copy")


def contents(items: list[dict[str, Any]], by_value: bool = False) -> list[str]:
    """Items in order, sets too; `by_value` calls 1E+2 and 100 the same."""

    def plain(value: Any) -> Any:
        match value:
            case {"N": text} if by_value:
                return ["N", str(Context(prec=40).normalize(Decimal(text)))]
            case {"SS": members} | {"NS": members} | {"BS": members}:
                return [next(iter(value)), sorted(map(repr, members))]
            case dict():
                return {name: plain(each) for name, each in sorted(value.items())}
            case list():
                return [plain(each) for each in value]
        return value

    return sorted(repr(plain(item)) for item in items)


def arn(tables: Any, name: str) -> str:
    return str(tables.client.describe_table(TableName=name)["Table"]["TableArn"])


def refused(outcome: Any, *words: str) -> None:
    assert (outcome.code, outcome.report["status"]) == (2, "refused"), outcome.stderr
    for word in words:
        assert word in " ".join(outcome.report["error"]), outcome.report


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "change.py"
    path.write_text(text)
    return str(path)


# Fidelity


def test_both_runtimes_copy_byte_for_byte(copy: Any, deployed: str, tables: Any, items: Any) -> None:
    # case C001 C002 C004 C007 C008 C011 C014 C015 C017 C018 C019
    given = [*items(700, 90), ALL_TYPES]
    name = tables.make(given, recovery=False)
    reports = []
    for runtime in ("local", "glue"):
        target = tables.make()
        outcome = copy(name, "--to", target, "--runtime", runtime)
        assert outcome.code == 0, outcome.stderr
        reports.append({each: outcome.report[each] for each in SAME})
        assert contents(tables.read(target)) == contents(tables.read(name))
        assert contents(tables.read(target), by_value=True) == contents(given, by_value=True)
    assert reports[0] == reports[1]
    assert reports[0]["processed"] == 701


def test_a_map_that_changes_nothing_changes_no_byte(copy: Any, tables: Any, tmp_path: Path) -> None:
    # case C001 C004 C015
    name, target = tables.make([ALL_TYPES], recovery=False), tables.make()
    assert copy(name, "--to", target, "--map", write(tmp_path, "def map_item(item):\n    return item\n")).code == 0
    assert contents(tables.read(target), by_value=True) == contents([ALL_TYPES], by_value=True)


def test_binary_and_number_keys(copy: Any, tables: Any) -> None:
    given = [{"b": {"B": bytes([n, 0, 255])}, "n": {"N": f"{n}.50"}, "x": {"NULL": True}} for n in range(30)]
    keys = (("b", "B"), ("n", "N"))
    name, target = tables.make(given, keys=keys, recovery=False), tables.make(keys=keys)
    assert copy(name, "--to", target, "--if-not-exists").report["processed"] == 30
    assert contents(tables.read(target)) == contents(tables.read(name))
    again = copy(name, "--to", target, "--if-not-exists").report
    assert (again["processed"], again["skipped"], again["write_units"]) == (0, 30, 30), "a refusal costs a unit"


# Conditions


@pytest.mark.parametrize("strategy", ["native", "sequential"])
@pytest.mark.parametrize(("option", "kept"), [("--if-not-exists", True), ("--if-exists", False)])
def test_what_is_there_decides(option: str, kept: bool, strategy: str, copy: Any, tables: Any, items: Any) -> None:
    # case C078 C080
    name, target = tables.make(items(40, 60), recovery=False), tables.make()
    tables.put(target, [{"pk": {"S": f"k{n:07d}"}, "mine": {"BOOL": True}} for n in range(0, 40, 4)])
    report = copy(name, "--to", target, option, "--strategy", strategy).report
    found = {item["pk"]["S"]: item for item in tables.read(target)}
    assert (report["processed"], report["skipped"]) == ((30, 10) if kept else (10, 30))
    assert len(found) == (40 if kept else 10)
    assert all(("mine" in found[f"k{n:07d}"]) == kept for n in range(0, 40, 4))


def test_both_conditions_at_once_are_an_error(copy: Any, tables: Any) -> None:
    refused(copy.tried(tables.make(), "--to", tables.make(), "--if-exists", "--if-not-exists"), "exclude each other")


# Targets


def test_a_target_in_another_region(copy: Any, sandbox: Any, tables: Any, items: Any) -> None:
    there = boto3.client(
        "dynamodb",
        endpoint_url=sandbox.env()["AWS_ENDPOINT_URL"],
        region_name="eu-west-1",
        aws_access_key_id="sandbox",
        aws_secret_access_key="sandbox",
        config=Config(proxies={}),
    )
    name = tables.make(items(60, 60), recovery=False)
    there.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    place = there.describe_table(TableName=name)["Table"]["TableArn"]
    assert ":eu-west-1:" in place
    refused(copy.tried(name, "--to", place), "BX104", "eu-west-1")
    there.update_continuous_backups(
        TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    outcome = copy(name, "--to", place)
    assert (outcome.code, outcome.report["processed"]) == (0, 60), outcome.stderr
    assert "eu-west-1" in next(line for line in outcome.stderr.splitlines() if line.startswith("  To "))
    assert contents(there.scan(TableName=name)["Items"]) == contents(tables.read(name))


def test_another_key_schema_needs_a_map(copy: Any, tables: Any, items: Any, tmp_path: Path) -> None:
    name, target = tables.make(items(30, 60), recovery=False), tables.make(keys=(("id", "N"), ("kind", "S")))
    refused(copy.tried(name, "--to", target), "id (N), kind (S)", "--map")
    path = write(tmp_path, "def map_item(item):\n    return {**item, 'id': item['n'], 'kind': item.pop('state')}\n")
    assert copy(name, "--to", target, "--map", path).report["processed"] == 30
    assert {(item["id"]["N"], item["kind"]["S"]) for item in tables.read(target)} == {
        (str(n), "NEW" if n % 3 else "OLD") for n in range(30)
    }


def test_an_item_that_has_no_key_there_fails_alone(copy: Any, tables: Any, items: Any, tmp_path: Path) -> None:
    # case C017: an empty text is no key
    name, target = tables.make(items(30, 60), recovery=False), tables.make(keys=(("id", "S"),))
    path = write(
        tmp_path, "def map_item(item):\n    n = int(item['n'])\n    return {**item, 'id': [str(n), '', n][n % 3]}\n"
    )
    outcome = copy(name, "--to", target, "--map", path)
    assert (outcome.code, outcome.report["processed"], outcome.report["failed"]) == (3, 10, 20)
    reasons = {each["reason"] for each in outcome.report["failures"]}
    assert reasons == {"KeyInvalid"}
    assert all("pk" in each["key"] for each in outcome.report["failures"]), "named by the key it was read under"


def test_recovery_of_the_target_is_what_counts(copy: Any, tables: Any, items: Any) -> None:
    # case C091
    source, unsafe = tables.make(items(9, 60), recovery=False), tables.make(recovery=False)
    refused(copy.tried(source, "--to", unsafe), "BX104", unsafe)
    assert copy(source, "--to", unsafe, "--dry-run").code == 0
    assert tables.read(unsafe) == []
    assert copy(source, "--to", tables.make()).report["processed"] == 9


def test_the_target_is_locked_and_the_source_is_not(
    copy: Any, bulkexec: Any, deployed: str, tables: Any, items: Any
) -> None:
    source, target = tables.make(items(900, 60)), tables.make()
    slow = ("--write-rate", "25", "--output", "json")
    process = bulkexec.start("copy", "--table", source, "--to", target, "--yes", *slow)
    for line in process.stderr:
        if line.startswith("job "):
            break
    for line in process.stderr:
        if "running" in line:
            break
    refused(copy.tried(tables.make(items(3, 60)), "--to", target), "BX108")
    assert bulkexec.json("edit", "--table", source, "--where", "n = 199", "--set", "a=1", "--yes").code == 0
    process.terminate()
    outcome = bulkexec.finish(process)
    assert outcome.code == 130, outcome.stderr
    assert copy(tables.make(items(3, 60)), "--to", target).code == 0, "the lock is given back"


@pytest.mark.alone
def test_the_write_rate_is_the_targets(copy: Any, tables: Any, items: Any) -> None:
    source, target = tables.make(items(120, 60)), tables.make()
    outcome = copy(source, "--to", target, "--write-rate", "30")
    assert "Target rate" in outcome.stderr
    assert outcome.report["write_units"] / outcome.report["duration_seconds"] <= 30 * 1.3


# Guards


def test_a_table_is_never_copied_onto_itself(copy: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(20, 60))
    before = contents(tables.read(name))
    for more in ((), ("--to", name), ("--to", arn(tables, name))):
        refused(copy.tried(name, *more), "onto itself")
    refused(copy.tried(arn(tables, name), "--to", name), "onto itself")
    assert contents(tables.read(name)) == before


def test_within_one_table_an_output_is_not_found_again(copy: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(300, 60))
    done = copy(name, "--where", "begins_with(pk, 'k')", "--swap-prefix", "pk:k:copy-of-k", "--to", name)
    assert (done.code, done.report["processed"]) == (0, 300), done.stderr
    assert tables.keys(name) == {f"{prefix}k{n:07d}" for n in range(300) for prefix in ("", "copy-of-")}
    refused(copy.tried(name, "--where", "begins_with(pk, 'k')", "--swap-prefix", "pk:k:kk"), "OutputMatches")
    assert len(tables.read(name)) == 600
    fresh = tables.make(items(30, 60))
    for selection in (("--filter-expression", "attribute_exists(pk)"), ()):
        refused(copy.tried(fresh, *selection, "--swap-prefix", "pk:k:kk"), "OutputMatches")
    assert len(tables.read(fresh)) == 30


# Parts of a table


def test_clauses_and_as_of(copy: Any, tables: Any, items: Any) -> None:
    given = [
        item | ({"at": {"N": str(int(item["n"]["N"]) * 10)}} if int(item["n"]["N"]) else {}) for item in items(40, 60)
    ]
    name = tables.make(given, recovery=False)
    target = tables.make()
    options = ("--filter", "state:eq:NEW", "--filter", "n:lt:30", "--as-of", "100")
    refused(copy.tried(name, "--to", target, *options), "BX115", "--created-at-field")
    report = copy(name, "--to", target, *options, "--created-at-field", "at").report
    assert (report["processed"], report["matched"]) == (7, 7)
    assert {item["n"]["N"] for item in tables.read(target)} == {"1", "2", "4", "5", "7", "8", "10"}


def index(name: str, hash_key: str, projection: str, range_key: str = "") -> dict[str, Any]:
    schema = [{"AttributeName": hash_key, "KeyType": "HASH"}]
    schema += [{"AttributeName": range_key, "KeyType": "RANGE"}] if range_key else []
    return {"IndexName": name, "KeySchema": schema, "Projection": {"ProjectionType": projection}}


@pytest.mark.parametrize("projection", ["ALL", "KEYS_ONLY"])
def test_a_sparse_index_as_the_source(
    projection: str, copy: Any, bulkexec: Any, sandbox: Any, tables: Any, items: Any
) -> None:
    # case C036
    given = [
        item | ({"due": {"S": f"d{int(item['n']['N']) % 4}"}} if int(item["n"]["N"]) % 2 else {})
        for item in items(60, 60)
    ]
    name = tables.make(
        given, recovery=False, indexed=(("due", "S"),), GlobalSecondaryIndexes=[index("by-due", "due", projection)]
    )
    whole, pinned = tables.make(), tables.make()
    report = copy(name, "--to", whole, "--index", "by-due").report
    assert (report["scanned"], report["processed"]) == (30, 30)
    assert contents(tables.read(whole)) == contents([item for item in given if "due" in item])
    before = sandbox.control.requests("Query")
    report = copy(name, "--to", pinned, "--index", "by-due", "--where", "due = 'd1'").report
    assert (report["scanned"], report["processed"]) == (15, 15)
    assert sandbox.control.requests("Query") > before
    assert contents(tables.read(pinned)) == contents([item for item in given if item.get("due") == {"S": "d1"}])
    if projection == "KEYS_ONLY":
        refused(copy.tried(name, "--to", whole, "--index", "by-due", "--where", "state = 'OLD'"), "BX103", "state")
    refused(copy.tried(name, "--to", whole, "--index", "other"), "no index 'other'", "by-due")


def test_a_local_index_and_a_pinned_key(copy: Any, sandbox: Any, tables: Any) -> None:
    given = [
        {"pk": {"S": f"p{n % 3}"}, "sk": {"N": str(n)}, "x": {"S": "y" * 20}}
        | ({"rank": {"N": str(-n)}} if n % 2 else {})
        for n in range(60)
    ]
    keys = (("pk", "S"), ("sk", "N"))
    name = tables.make(
        given,
        keys=keys,
        recovery=False,
        indexed=(("rank", "N"),),
        LocalSecondaryIndexes=[index("by-rank", "pk", "KEYS_ONLY", "rank")],
    )
    target = tables.make(keys=keys)
    report = copy(name, "--to", target, "--index", "by-rank", "--where", "pk = 'p1' AND rank > -30").report
    expected = [item for item in given if item["pk"]["S"] == "p1" and int(item.get("rank", {"N": "-99"})["N"]) > -30]
    assert (report["scanned"], report["processed"]) == (len(expected), len(expected))
    assert contents(tables.read(target)) == contents(expected)
    whole = tables.make(keys=keys)
    scans = sandbox.control.requests("Scan")
    assert copy(name, "--to", whole, "--where", "pk = 'p1' AND sk BETWEEN 10 AND 20").report["scanned"] == 4
    assert sandbox.control.requests("Scan") == scans
    assert {item["sk"]["N"] for item in tables.read(whole)} == {"10", "13", "16", "19"}


def test_the_alias_is_the_same_command(bulkexec: Any, tables: Any, items: Any) -> None:
    name, target = tables.make(items(5, 60), recovery=False), tables.make()
    outcome = bulkexec("clone", "--table", name, "--to", target, "--yes", "--output", "json")
    assert json.loads(outcome.stdout)["command"] == "copy"
    assert bulkexec.json("update", "--table", target, "--all", "--set", "a=1", "--yes").report["processed"] == 5
