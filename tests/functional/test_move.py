"""`bulkexec move` as a process: every item ends in exactly one place, whatever comes in between."""

from pathlib import Path
from typing import Any

import pytest

SAME = ("status", "scanned", "matched", "processed", "skipped", "failed", "conflicts", "cursor", "write_units")
TO_NEW = ("--swap-prefix", "pk:k:new#k")


@pytest.fixture
def move(verb: Any) -> Any:
    return verb("move")


def refused(outcome: Any, *words: str) -> None:
    assert (outcome.code, outcome.report["status"]) == (2, "refused"), outcome.stderr
    for word in words:
        assert word in " ".join(outcome.report["error"]), outcome.report


def writer(change: str, when: str) -> str:
    """A map to new keys; where `when` holds somebody else makes a change between an item's read and its put."""
    return f"""
import boto3, threading
done = set()
client = boto3.client("dynamodb")

def map_item(item):
    running = threading.current_thread().name.startswith("segment-worker")
    if running and ({when}) and item["pk"] not in done:
        done.add(item["pk"])
        key = {{"pk": {{"S": item["pk"]}}}}
        {change}
    return {{**item, "pk": "new#" + item["pk"]}}
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "change.py"
    path.write_text(text)
    return str(path)


def places(tables: Any, name: str) -> dict[str, dict[str, Any]]:
    return {item["pk"]["S"]: item for item in tables.read(name)}


@pytest.mark.soak  # test_runtimes_agree has a move on Spark
def test_both_runtimes_move_every_item_once(move: Any, deployed: str, tables: Any, items: Any) -> None:
    reports, contents = [], []
    for runtime in ("local", "glue"):
        name = tables.make(items(800, 90))
        outcome = move(name, "--where", "begins_with(pk, 'k') AND state = 'NEW'", *TO_NEW, "--runtime", runtime)
        assert outcome.code == 0, outcome.stderr
        reports.append({each: outcome.report[each] for each in SAME})
        contents.append(places(tables, name))
    assert reports[0] | {"scanned": 0} == reports[1] | {"scanned": 0}, "scanned may count outputs, which do not match"
    assert contents[0] == contents[1]
    assert set(contents[0]) == {f"{'new#' if n % 3 else ''}k{n:07d}" for n in range(800)}
    assert reports[0]["processed"] == reports[0]["matched"] == 533


@pytest.mark.parametrize("strategy", ["native", "sequential"])
def test_to_another_table(strategy: str, move: Any, tables: Any, items: Any) -> None:
    source, target = tables.make(items(60, 60)), tables.make()
    report = move(source, "--where", "state = 'OLD'", "--to", target, "--strategy", strategy).report
    assert report["processed"] == 20
    assert tables.keys(source) == {f"k{n:07d}" for n in range(60) if n % 3}
    assert tables.keys(target) == {f"k{n:07d}" for n in range(60) if n % 3 == 0}
    assert move(source, "--all", "--to", target, "--strategy", strategy).report["processed"] == 40
    assert (len(tables.read(source)), len(tables.read(target))) == (0, 60)


def test_what_is_there_stays_and_so_does_what_would_replace_it(move: Any, tables: Any, items: Any) -> None:
    source, target = tables.make(items(12, 60)), tables.make()
    same = items(12, 60)[3]  # as an earlier attempt left it that died before its delete
    tables.put(target, [{"pk": {"S": "k0000001"}, "mine": {"BOOL": True}}, same])
    report = move(source, "--all", "--to", target, "--if-not-exists").report
    assert (report["processed"], report["skipped"]) == (11, 1)
    assert tables.keys(source) == {"k0000001"}
    assert "mine" in places(tables, target)["k0000001"]
    assert len(tables.read(target)) == 12
    report = move(source, "--all", "--to", target, "--if-exists").report
    assert (report["processed"], len(tables.read(source))) == (1, 0)
    assert "mine" not in places(tables, target)["k0000001"]


@pytest.mark.parametrize("there", [(), ("--to",)])
def test_items_that_would_replace_each_other_are_not_moved(
    there: tuple[str, ...], move: Any, verb: Any, tables: Any, items: Any
) -> None:
    source, target = tables.make(items(12, 60)), tables.make()
    to = (*there, target) if there else ()
    one = ("--where", "begins_with(pk, 'k')", "--set", "pk=one")
    refused(move.tried(source, *one, *to), "BX100", "all but the last")
    refused(verb("edit").tried(source, *one, "--allow-key-change"), "BX100", "all but the last")
    assert len(tables.read(source)) == 12
    report = move(source, *one, *to, "--if-not-exists").report
    assert (report["processed"], report["skipped"]) == (1, 11)
    assert len(tables.read(source)) + len(tables.read(target)) == 12


def test_a_map_that_leaves_the_key_never_deletes(move: Any, tables: Any, items: Any, tmp_path: Path) -> None:
    name = tables.make(items(30, 60))
    text = "def map_item(item):\n    key = item['pk'] if item['n'] % 2 else 'new#' + item['pk']\n"
    path = write(tmp_path, text + "    return {**item, 'pk': key, 'seen': True}\n")
    outcome = move(name, "--where", "begins_with(pk, 'k')", "--map", path)
    assert (outcome.code, outcome.report["processed"], outcome.report["failed"]) == (3, 15, 15)
    assert {each["reason"] for each in outcome.report["failures"]} == {"KeyUnchanged"}
    assert tables.keys(name) == {f"{'' if n % 2 else 'new#'}k{n:07d}" for n in range(30)}


def test_a_number_key_that_only_looks_changed_is_not_lost(move: Any, tables: Any, tmp_path: Path) -> None:
    name = tables.make([{"pk": {"N": n}} for n in ("0.1", "0.5", "2", "7")], keys=(("pk", "N"),))
    text = "def map_item(item):\n    return {**item, 'pk': float(item['pk']) + (100 if item['pk'] == 7 else 0)}\n"
    outcome = move(name, "--where", "pk < 100", "--map", write(tmp_path, text))
    assert (outcome.report["processed"], outcome.report["failed"], outcome.report["skipped"]) == (1, 1, 2)
    assert sorted(item["pk"]["N"] for item in tables.read(name)) == ["0.1", "0.5", "107", "2"]


def test_guards(move: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(20, 60))
    arn = tables.client.describe_table(TableName=name)["Table"]["TableArn"]
    unsafe = tables.make(recovery=False)
    refused(move.tried(name, "--where", "n > 1"), "--to")
    refused(move.tried(name, "--all", "--to", name), "--to")
    refused(move.tried(name, "--all", "--to", arn), "--to")
    refused(move.tried(name, "--to", tables.make()), "BX102", "--all")
    refused(move.tried(name, "--where", "begins_with(pk, 'k')", "--swap-prefix", "pk:k:kk"), "OutputMatches")
    refused(
        move.tried(name, "--filter-expression", "attribute_exists(pk)", "--swap-prefix", "pk:k:kk"), "OutputMatches"
    )
    refused(move.tried(name, "--all", "--to", unsafe), "BX104", unsafe)
    refused(move.tried(unsafe, "--all", "--to", name), "BX104", unsafe)
    assert tables.keys(name) == {f"k{n:07d}" for n in range(20)}


@pytest.mark.parametrize("how", ["filter", "version"])
def test_what_changes_meanwhile_is_not_deleted(how: str, move: Any, tables: Any, items: Any, tmp_path: Path) -> None:
    # case C077 C079
    name = tables.make([item | {"v": {"N": "4"}} for item in items(12, 60)])
    change = (
        f'client.update_item(TableName="{name}", Key=key, UpdateExpression="SET #s = :s ADD v :one", '
        'ExpressionAttributeNames={"#s": "state"}, ExpressionAttributeValues={":s": {"S": "PAID"}, ":one": {"N": "1"}})'
    )
    path = write(tmp_path, writer(change, 'item["n"] in (3, 9)'))
    more = ("--version-field", "v") if how == "version" else ()
    outcome = move(name, "--where", "state = 'OLD' AND begins_with(pk, 'k')", "--map", path, *more)
    bucket = "conflicts" if how == "version" else "skipped"
    assert (outcome.report["processed"], outcome.report[bucket]) == (2, 2)
    found = places(tables, name)
    for key in ("k0000003", "k0000009"):
        assert found[key]["state"] == {"S": "PAID"}, "what somebody else wrote is still there"
    assert {"new#k0000000", "new#k0000006"} < set(found)
    assert not {"k0000000", "k0000006"} & set(found)


@pytest.mark.parametrize(("operation", "after"), [("BatchWriteItem", 3), ("BatchExecuteStatement", 1)])
def test_denied_in_the_middle_nothing_is_in_neither_place(
    operation: str, after: int, move: Any, bulkexec: Any, sandbox: Any, tables: Any, items: Any
) -> None:
    source, target = tables.make(items(150, 60)), tables.make()
    everything = tables.keys(source)
    rule = sandbox.control.faults.add("error", operation=operation, code="AccessDeniedException", after=after)
    try:
        outcome = move(source, "--where", "n >= 0", "--to", target, "--segments", "4")
    finally:
        sandbox.control.faults.remove(rule)
    assert (outcome.code, outcome.report["error"][0][:11]) == (1, "error BX301"), outcome.stderr
    assert tables.keys(source) | tables.keys(target) == everything
    assert outcome.report["processed"] == 150 - len(tables.read(source)), "all that was moved is counted"
    rest = bulkexec.json("resume", outcome.report["job_id"])
    assert (rest.code, rest.report["processed"]) == (0, 150), rest.stderr
    assert (tables.read(source), tables.keys(target)) == ([], everything)


@pytest.mark.parametrize("kind", ["lost_answer", "reset"])
def test_lost_answers_change_no_count(kind: str, move: Any, sandbox: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(120, 60))
    for operation in ("BatchWriteItem", "BatchExecuteStatement"):
        sandbox.control.faults.add(operation=operation, kind=kind, probability=0.3, seed=5)
    try:
        report = move(name, "--where", "begins_with(pk, 'k') AND state = 'OLD'", *TO_NEW, "--if-not-exists").report
    finally:
        sandbox.control.faults.clear()
    assert (report["processed"], report["skipped"], report["failed"], report["conflicts"]) == (40, 0, 0, 0)
    assert tables.keys(name) == {f"{'' if n % 3 else 'new#'}k{n:07d}" for n in range(120)}


def test_max_items_and_the_token(move: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(200, 60))
    options = ("--where", "begins_with(pk, 'k')", *TO_NEW)
    first = move(name, *options, "--max-items", "50", "--segments", "2")
    assert first.code == 4
    refused(move.tried(name, *options, "--if-not-exists", "--resume-token", first.report["cursor"]), "BX111")
    rest = move(name, *options, "--resume-token", first.report["cursor"])
    assert (rest.code, first.report["processed"] + rest.report["processed"]) == (0, 200)
    assert tables.keys(name) == {f"new#k{n:07d}" for n in range(200)}
