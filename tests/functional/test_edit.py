"""`bulkexec edit` as a process: every bucket, over HTTP, and what no interruption may lose."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import boto3
import pytest

from bulkexec.commands.edit import Edit
from bulkexec.engine import run_segments
from bulkexec.plan import Options
from bulkexec.planning import make_plan
from bulkexec.run import local_cap
from bulkexec.runtimes.assembly import MemoryCheckpoints, assemble
from bulkexec.runtimes.rates import local_budgets
from bulkexec.selection import Filter
from bulkexec.wire import HttpWire, Retry, Retrying

SAME = ("status", "scanned", "matched", "processed", "skipped", "failed", "conflicts", "cursor", "write_units")
CALM = """
def map_item(item):
    if item["n"] % 3 == 1:
        return None
    if item["n"] % 3 == 2:
        return item
    return {**item, "state": "DONE", "twice": item["n"] * 2}
"""


@pytest.fixture
def map_file(tmp_path: Path) -> Callable[..., str]:
    def write(text: str, name: str = "change.py") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def edit(verb: Any) -> Any:
    return verb("edit")


@contextmanager
def fault(sandbox: Any, kind: str, **members: Any) -> Iterator[int]:
    number = sandbox.control.faults.add(kind, **members)
    try:
        yield number
    finally:
        sandbox.control.faults.remove(number)


def by_key(tables: Any, name: str) -> dict[str, Any]:
    return {item["pk"]["S"]: item for item in tables.read(name)}


def writer(change: str, when: str = "True") -> str:
    """A map that sets `seen`; where `when` holds somebody else makes a change between its read and its write.

    Once for each item, and only in a run, whose segments have threads: the map is tried on a sample before that.
    """
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
    return {{**item, "seen": True}}
"""


def refused(outcome: Any, code: str, *words: str) -> None:
    assert outcome.code == 2, outcome.stderr
    assert outcome.report["error"][0].startswith(f"error {code}: "), outcome.report
    for word in words:
        assert word in " ".join(outcome.report["error"]), outcome.report


# The same everywhere


def test_both_runtimes_edit_alike_and_conflicts_are_finished_from_their_list(
    edit: Any, deployed: str, tables: Any, items: Any, map_file: Any
) -> None:
    """A third is let be; of what is changed, somebody else changes every tenth item in between."""
    reports, contents = [], []
    rest = ("--version-field", "v", "--set", "seen=true")
    for runtime in ("local", "glue"):
        name = tables.make([item | {"v": {"N": "7"}} for item in items(900, 80)])
        text = writer(BUMP.format(name=name, field="v"), 'item["n"] % 30 == 0')
        path = map_file(text.replace("    return {", "    if item['n'] % 3 == 1:\n        return None\n    return {"))
        outcome = edit(name, "--where", "n < 600", "--map", path, "--version-field", "v", "--runtime", runtime)
        assert outcome.code == 3, outcome.stderr
        again = edit(name, "--keys-from", f"{outcome.report['folder']}/conflicts", *rest)
        assert (again.code, again.report["processed"]) == (0, 20), again.stderr
        reports.append({each: outcome.report[each] for each in SAME})
        contents.append(by_key(tables, name))
    assert reports[0] == reports[1]
    assert contents[0] == contents[1]
    assert [reports[0][each] for each in ("matched", "processed", "skipped", "conflicts")] == [600, 380, 200, 20]
    assert reports[0]["write_units"] == 400, "what is let be costs nothing, a refusal costs a unit"
    assert {key for key, item in contents[0].items() if "theirs" in item} == {f"k{n:07d}" for n in range(0, 600, 30)}


@pytest.mark.parametrize("strategy", ["native", "sequential"])
def test_assignments_without_a_map(strategy: str, edit: Any, tables: Any, items: Any) -> None:
    name = tables.make([*items(60, 60), {"pk": {"S": "odd"}, "n": {"N": "3"}, "a.b": {"N": "1E+30"}}])
    report = edit(
        *(name, "--all", "--strategy", strategy, "--set", "state=DONE", "--set", "tags=[]", "--remove", "filler"),
        *("--add", "n=5", "--add", '"a.b"=1'),
    ).report
    assert report["processed"] == 61
    found = by_key(tables, name)
    assert found["k0000007"] == {
        "pk": {"S": "k0000007"},
        "n": {"N": "12"},
        "state": {"S": "DONE"},
        "tags": {"L": []},
        "a.b": {"N": "1"},
    }
    assert found["odd"]["a.b"] == {"N": "1000000000000000000000000000001"}


def test_ready_made_maps_follow_one_another(edit: Any, tables: Any) -> None:
    name = tables.make([{"pk": {"S": f"a{n}"}, "old": {"S": f"x-{n}"}} for n in range(4)])
    report = edit(name, "--all", "--rename", "old=new", "--swap-prefix", "new:x-:y-", "--set", "seen=true").report
    assert report["processed"] == 4
    assert by_key(tables, name)["a2"] == {"pk": {"S": "a2"}, "new": {"S": "y-2"}, "seen": {"BOOL": True}}


def test_an_update_expression_is_run_on_every_item(edit: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(30, 60))
    report = edit(
        *(name, "--where", "state = 'OLD'", "--update-expression", "SET #s = :s ADD n :one REMOVE filler"),
        *("--update-names", '{"#s": "state"}', "--update-values", '{":s": {"S": "DONE"}, ":one": {"N": "1"}}'),
    ).report
    assert report["processed"] == 10
    assert by_key(tables, name)["k0000009"] == {"pk": {"S": "k0000009"}, "n": {"N": "10"}, "state": {"S": "DONE"}}


# What is let be


@pytest.mark.parametrize("returned", ["item", "None", "False", "dict(item)", "{**item, 'n': float(item['n'])}"])
def test_what_the_map_lets_be_costs_nothing(returned: str, edit: Any, tables: Any, items: Any, map_file: Any) -> None:
    name = tables.make(items(12, 60))
    before = by_key(tables, name)
    report = edit(name, "--all", "--map", map_file(f"def map_item(item):\n    return {returned}\n")).report
    assert (report["processed"], report["skipped"], report["write_units"]) == (0, 12, 0)
    assert by_key(tables, name) == before


@pytest.mark.parametrize("strategy", ["native", "sequential"])
def test_an_item_deleted_meanwhile_never_comes_back(
    strategy: str, edit: Any, tables: Any, items: Any, map_file: Any
) -> None:
    # case C028 C030 C079
    name = tables.make(items(9, 60))
    path = map_file(writer(f'client.delete_item(TableName="{name}", Key=key)', 'item["n"] % 3 == 0'))
    report = edit(name, "--all", "--map", path, "--strategy", strategy).report
    assert (report["processed"], report["skipped"], report["conflicts"]) == (6, 3, 0)
    assert tables.keys(name) == {f"k{n:07d}" for n in range(9) if n % 3}


def test_an_item_that_does_not_match_any_more_is_let_be(edit: Any, tables: Any, items: Any, map_file: Any) -> None:
    # case C077
    name = tables.make(items(9, 60))
    change = (
        f'client.update_item(TableName="{name}", Key=key, UpdateExpression="SET #s = :s", '
        'ExpressionAttributeNames={"#s": "state"}, ExpressionAttributeValues={":s": {"S": "PAID"}})'
    )
    path = map_file(writer(change, 'item["n"] == 3'))
    report = edit(name, "--where", "state = 'OLD'", "--map", path).report
    assert (report["processed"], report["skipped"]) == (2, 1)
    found = by_key(tables, name)
    assert found["k0000003"]["state"] == {"S": "PAID"}
    assert "seen" not in found["k0000003"]


# Conflicts: no update is lost


BUMP = (
    'client.update_item(TableName="{name}", Key=key, UpdateExpression="SET theirs = :t ADD #v :one", '
    'ExpressionAttributeNames={{"#v": "{field}"}}, '
    'ExpressionAttributeValues={{":t": {{"S": "kept"}}, ":one": {{"N": "1"}}}})'
)


@pytest.mark.parametrize("strategy", ["native", "sequential"])
def test_no_update_is_lost_under_a_version(strategy: str, edit: Any, tables: Any, items: Any, map_file: Any) -> None:
    """Items 0 to 5 are legacy: they have no version until somebody else gives one to two of them meanwhile."""
    given = [item | ({"-v": {"N": "41"}} if int(item["n"]["N"]) > 5 else {}) for item in items(12, 60)]
    name = tables.make(given)
    path = map_file(writer(BUMP.format(name=name, field="-v"), 'item["n"] in (2, 5, 8, 11)'))
    options = ("--map", path, "--version-field", "-v", "--strategy", strategy)
    outcome = edit(name, "--all", *options)
    assert outcome.code == 3, "conflicts are left to do"
    assert (outcome.report["processed"], outcome.report["conflicts"], outcome.report["failed"]) == (8, 4, 0)
    assert {each["key"]["pk"]["S"] for each in outcome.report["conflict_keys"]} == {f"k{n:07d}" for n in (2, 5, 8, 11)}
    found = by_key(tables, name)
    assert [found[f"k{n:07d}"]["-v"]["N"] for n in (0, 2, 6, 8)] == ["1", "1", "42", "42"]
    assert "seen" not in found["k0000002"]
    again = edit(name, "--keys-from", f"{outcome.report['folder']}/conflicts", *options[2:], "--set", "seen=true")
    assert (again.code, again.report["processed"], again.report["scanned"]) == (0, 4, 4)
    found = by_key(tables, name)
    assert all(item["seen"] == {"BOOL": True} for item in found.values())
    assert {key for key, item in found.items() if "theirs" in item} == {f"k{n:07d}" for n in (2, 5, 8, 11)}
    assert [found[f"k{n:07d}"]["-v"]["N"] for n in (0, 2, 6, 8)] == ["1", "2", "42", "43"]


def test_no_addition_is_lost(edit: Any, sandbox: Any, bulkexec: Any, tables: Any) -> None:
    """What somebody else adds while the update is under way makes a conflict, and both sums count in the end."""
    name = tables.make([{"pk": {"S": f"k{n}"}, "hits=all": {"N": "10"}} for n in range(6)])
    options = ("--add", '"hits=all"=5', "--set", "seen=true")
    with fault(sandbox, "delay", operation="BatchExecuteStatement", delay_seconds=2.0):
        before = sandbox.control.requests("BatchExecuteStatement")
        process = bulkexec.start(
            "edit", "--table", name, "--all", *options, "--segments", "1", "--yes", "--output", "json"
        )
        while process.poll() is None and sandbox.control.requests("BatchExecuteStatement") == before:
            time.sleep(0.05)
        for n in (1, 4):
            tables.client.update_item(
                TableName=name,
                Key={"pk": {"S": f"k{n}"}},
                UpdateExpression="ADD #h :n",
                ExpressionAttributeNames={"#h": "hits=all"},
                ExpressionAttributeValues={":n": {"N": "100"}},
            )
        outcome = bulkexec.finish(process)
    assert (outcome.report["processed"], outcome.report["conflicts"]) == (4, 2), outcome.stderr
    again = edit(name, "--keys-from", f"{outcome.report['folder']}/conflicts", *options)
    assert again.report["processed"] == 2
    sums = {key: item["hits=all"]["N"] for key, item in by_key(tables, name).items()}
    assert sums == {"k0": "15", "k1": "115", "k2": "15", "k3": "15", "k4": "115", "k5": "15"}


@pytest.mark.parametrize("kind", ["lost_answer", "http500"])
@pytest.mark.parametrize("options", [("--add", "n=1"), ("--version-field", "v", "--set", "seen=true")])
def test_a_lost_answer_neither_applies_twice_nor_is_a_conflict(
    options: tuple[str, ...], kind: str, edit: Any, sandbox: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(50, 60))
    with fault(sandbox, kind, operation="BatchExecuteStatement", probability=0.5, seed=3):
        report = edit(name, "--all", *options).report
    assert (report["processed"], report["conflicts"], report["skipped"]) == (50, 0, 0)
    found = by_key(tables, name)
    if "--add" in options:
        assert sorted(int(item["n"]["N"]) for item in found.values()) == list(range(1, 51))
    else:
        assert {item["v"]["N"] for item in found.values()} == {"1"}


# What fails


def test_each_failure_is_of_one_item_and_says_why(
    edit: Any, sandbox: Any, tables: Any, items: Any, map_file: Any
) -> None:
    # case C032 C070 C072
    name = tables.make(items(14, 60))
    path = map_file("""
def map_item(item):
    n = int(item["n"])
    if n == 9:
        raise KeyError("no such\\nthing")
    if n == 10:
        return "text"
    if n == 11:
        return {**item, "value": object()}
    if n == 12:
        return {**item, "pk": "other"}
    if n == 13:
        return {name: value for name, value in item.items() if name != "pk"}
    if n == 8:
        return {**item, "big": "x" * 410_000}
    return {**item, "state": "DONE"}
""")
    seventh = {"TableName": name, "Key": {"pk": {"S": "k0000007"}}}
    with fault(sandbox, "error", operation="UpdateItem", code="ValidationException", match=seventh):
        outcome = edit(name, "--all", "--map", path, "--strategy", "sequential")
    report = outcome.report
    assert (outcome.code, report["processed"], report["failed"]) == (3, 7, 7), report
    said = {each["key"]["pk"]["S"]: (each["reason"], each["details"]) for each in report["failures"]}
    assert said["k0000009"] == ("MapRaised", "KeyError: 'no such\\nthing'")
    assert said["k0000010"][0] == "MapReturned"
    assert said["k0000011"][0] == "NotEncodable"
    assert "value" in said["k0000011"][1]
    assert said["k0000012"][0] == said["k0000013"][0] == "KeyChanged"
    assert said["k0000007"][0] == "ValidationException"
    assert said["k0000008"][0] in ("ValidationException", "ItemTooLarge")
    texts = [path.read_text() for path in Path(report["folder"]).rglob("failed/*")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    assert {line["Keys"]["pk"]["S"] for line in lines} == set(said)


@pytest.mark.parametrize("strategy", ["native", "sequential"])
def test_throttling_that_outlasts_every_retry_fails_its_items_only(
    strategy: Literal["native", "sequential"],
    sandbox: Any,
    tables: Any,
    items: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # case C065 C067: in this process, because two minutes of patience are too long for a test
    name = tables.make(items(30, 60))
    for variable, value in sandbox.env().items():
        monkeypatch.setenv(variable, value)
    session = boto3.Session()
    options = Options(strategy=strategy)
    plan = make_plan(session, Edit(all=True, set_values=("seen=true",)), name, Filter(), options, 4, 1).plan
    run = assemble(plan, session, MemoryCheckpoints(), local_cap(None), lambda: False, local_budgets(plan).budgets)
    wire, retry = HttpWire(session, "us-east-1", 8), Retry(0.2)
    run.writer = replace(run.writer, calls=Retrying(wire, run.writer.calls.refusals, retry), retry=retry)
    operation = "BatchExecuteStatement" if strategy == "native" else "UpdateItem"
    code = "ProvisionedThroughputExceededException"
    with fault(sandbox, "error", operation=operation, code=code, after=1):
        (record,) = run_segments(run, [0])
    done = 25 if strategy == "native" else 1
    assert (record.counts.processed, record.counts.failed) == (done, 30 - done)
    assert {each.reason for each in record.failures} == {"ThroughputExhausted"}


def test_max_failures_ends_a_run_that_can_be_resumed(
    edit: Any, bulkexec: Any, tables: Any, items: Any, map_file: Any
) -> None:
    name = tables.make(items(60, 60))
    path = map_file("def map_item(item):\n    assert item['n'] < 30, 'too late'\n    return {**item, 'seen': 1}\n")
    outcome = edit(name, "--all", "--map", path, "--max-failures", "3", "--segments", "1")
    assert outcome.code == 1
    assert outcome.report["error"][0].startswith("error BX308: ")
    assert outcome.report["cursor"]
    assert outcome.report["failed"] > 3
    whole = bulkexec.json("resume", outcome.report["job_id"])
    assert whole.report["matched"] == 60, "what was kept is not done again"


def test_map_failures_alone_end_no_run(edit: Any, tables: Any, items: Any, map_file: Any) -> None:
    name = tables.make(items(150, 60))
    path = map_file("""
import threading

def map_item(item):
    if threading.current_thread().name.startswith("segment-worker"):
        raise ValueError("not on the sample")
    return {**item, "seen": True}
""")
    outcome = edit(name, "--all", "--map", path, "--segments", "1")
    assert (outcome.code, outcome.report["status"], outcome.report["failed"]) == (3, "finished", 150)


@pytest.mark.parametrize(
    ("code", "error"), [("AccessDeniedException", "BX301"), ("ResourceNotFoundException", "BX101")]
)
def test_what_concerns_the_whole_table_ends_the_run_and_can_be_resumed(
    code: str, error: str, edit: Any, bulkexec: Any, sandbox: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(120, 60))
    with fault(sandbox, "error", operation="BatchExecuteStatement", code=code, after=2):
        outcome = edit(name, "--all", "--add", "n=1000", "--segments", "8")
    assert outcome.code == 1
    assert outcome.report["error"][0].startswith(f"error {error}: "), outcome.report["error"]
    assert outcome.report["cursor"]
    done = sum(int(item["n"]["N"]) >= 1000 for item in tables.read(name))
    assert 0 < done == outcome.report["processed"]
    token = outcome.report["cursor"]
    rest = edit(name, "--all", "--add", "n=1000", "--resume-token", token)
    assert rest.code == 0, rest.stderr
    assert all(int(item["n"]["N"]) >= 1000 for item in tables.read(name))
    assert rest.report["matched"] <= 120, "segments that were done are not done again"


# A change of keys


def test_a_changed_key_is_a_move_where_that_is_allowed(edit: Any, tables: Any, items: Any, map_file: Any) -> None:
    name = tables.make(items(30, 60))
    path = map_file("def map_item(item):\n    return {**item, 'pk': 'new#' + item['pk'], 'state': 'DONE'}\n")
    report = edit(name, "--where", "state = 'OLD'", "--map", path, "--allow-key-change").report
    assert (report["processed"], report["failed"]) == (10, 0)
    expected = {f"{'new#' if n % 3 == 0 else ''}k{n:07d}" for n in range(30)}
    assert tables.keys(name) == expected
    refused(edit.tried(name, "--all", "--map", path, "--allow-key-change"), "BX100", "OutputMatches")
    filler = edit(name, "--where", "attribute_exists(n)", "--map", path, "--allow-key-change")
    refused(filler, "BX100", "OutputMatches")
    assert tables.keys(name) == expected


def test_a_key_that_only_looks_changed_is_no_move(edit: Any, tables: Any, map_file: Any) -> None:
    """0.1 as a float is DynamoDB's 0.1: put under its own key and then deleted, the item would be gone."""
    name = tables.make([{"pk": {"N": n}, "a": {"S": "x"}} for n in ("0.1", "0.5", "2")], keys=(("pk", "N"),))
    path = map_file("def map_item(item):\n    return {**item, 'pk': float(item['pk']), 'a': 'y'}\n")
    report = edit(name, "--where", "a = 'x'", "--map", path, "--allow-key-change").report
    assert (report["processed"], report["failed"]) == (3, 0)
    assert sorted(item["pk"]["N"] for item in tables.read(name)) == ["0.1", "0.5", "2"]
    assert {item["a"]["S"] for item in tables.read(name)} == {"y"}


# Before anything starts


def test_a_map_is_tried_and_shown(edit: Any, bulkexec: Any, tables: Any, items: Any, map_file: Any) -> None:
    name = tables.make(items(40, 60), recovery=False)
    before = by_key(tables, name)
    path = map_file(CALM + "    # done\n")
    outcome = bulkexec("edit", "--table", name, "--where", "n = 9 OR n = 7", "--map", path, "--dry-run")
    assert outcome.code == 0, outcome.stderr
    for line in ("tried on 2 items: 1 changed, 1 let be, 0 failed", '      - state: "OLD"', '      + state: "DONE"'):
        assert line in outcome.stdout
    assert "      + twice: 18" in outcome.stdout
    assert "would be   changed: 1 items, skipped 1; nothing was written" in outcome.stdout
    shown = bulkexec("edit", "--table", name, "--all", "--map", path, "--dry-run").stdout
    assert "tried on 10 items" in shown
    assert by_key(tables, name) == before


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("import nowhere\n", "BX100", "nowhere"),
        ("def map_item(item:\n", "BX100", "line 1"),
        ("x = 1\n", "BX100", "has no function"),
        ("def map_item():\n    pass\n", "BX100", "does not take one item"),
        ("def map_item(item):\n    return item['none']\n", "BX100", "fails on all 10 items"),
    ],
)
def test_a_map_that_cannot_work_never_starts(
    text: str, code: str, word: str, edit: Any, tables: Any, items: Any, map_file: Any
) -> None:
    name = tables.make(items(20, 60))
    before = by_key(tables, name)
    refused(edit.tried(name, "--all", "--map", map_file(text)), code, word)
    assert by_key(tables, name) == before


def test_what_a_map_prints_is_not_on_stdout(bulkexec: Any, tables: Any, items: Any, map_file: Any) -> None:
    name = tables.make(items(20, 60))
    path = map_file(
        "print('imported')\ndef map_item(item):\n    print('mapping', item['pk'])\n    return {**item, 'a': 1}\n"
    )
    outcome = bulkexec("edit", "--table", name, "--all", "--map", path, "--yes", "--output", "json")
    assert json.loads(outcome.stdout)["processed"] == 20
    assert "mapping k0000003" in outcome.stderr


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--set", "a=1"), "BX102", "--all"),
        (("--all",), "BX100", "--map"),
        (("--all", "--set", "a=1", "--update-expression", "SET a = :a"), "BX100", "not both"),
        (("--all", "--set", "a=1", "--where", "n = 1"), "BX100", "contradict"),
        (
            ("--all", "--update-expression", "SET #a = :a", "--update-values", '{":a": {"N": "1"}}'),
            "BX100",
            "--update-names",
        ),
        (("--all", "--set", "a=1", "--update-names", '{"#a": "a"}'), "BX100", "there is none"),
        (("--all", "--update-expression", "REMOVE a", "--allow-key-change"), "BX100", "--allow-key-change"),
        (("--all", "--rename", "a"), "BX100", "OLD=NEW"),
        (("--all", "--swap-prefix", "a:b"), "BX100", "NAME:OLD:NEW"),
        (
            (
                "--all",
                "--update-expression",
                "ADD n :o",
                "--update-values",
                '{":o": {"N": "1"}}',
                "--version-field",
                "v",
            ),
            *("BX100", "leaves the version v"),
        ),
    ],
)
def test_options_that_contradict_each_other(
    options: tuple[str, ...], code: str, word: str, edit: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(3, 60))
    before = by_key(tables, name)
    refused(edit.tried(name, *options), code, word)
    assert by_key(tables, name) == before


# Tokens


def test_a_token_fits_the_same_map_only(edit: Any, bulkexec: Any, tables: Any, items: Any, map_file: Any) -> None:
    name, other = tables.make(items(200, 60)), tables.make(items(200, 60))
    path = map_file(CALM)
    first = edit(name, "--where", "n >= 0", "--map", path, "--max-items", "40", "--segments", "4")
    assert first.code == 4, first.stderr
    token = ("--resume-token", first.report["cursor"])
    changed = map_file(CALM.replace("* 2", "* 3"), "changed/change.py")
    again = (name, "--where", "n >= 0")
    for run in (
        (name, "--where", "n >= 1", "--map", path),
        (*again, "--map", changed),
        (*again, "--map", path, "--technical-prefix", "_"),
        (*again, "--map", path, "--dry-run"),
        (other, "--where", "n >= 0", "--map", path),
    ):
        refused(edit.tried(*run, *token), "BX111")
    moved = map_file(CALM, "elsewhere/under_another_name.py")
    rest = edit(*again, "--map", moved, *token)
    assert rest.code == 0, rest.stderr
    assert first.report["matched"] + rest.report["matched"] == 200
    found = by_key(tables, name)
    assert all(("twice" in item) == (int(item["n"]["N"]) % 3 == 0) for item in found.values())
