"""Subtrees through the command line: what goes where, what is refused, stops, faults and sudden death."""

import json
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import boto3
import pytest

from bulkexec.commands.move_under import MoveUnder
from bulkexec.cursor import decode_cursor
from bulkexec.plan import Options
from bulkexec.planning import make_plan
from bulkexec.report import Report
from bulkexec.runtimes.assembly import MemoryCheckpoints
from bulkexec.runtimes.local import Totals, run_in_process
from bulkexec.selection import Filter

KEYS = (("pk", "S"), ("sk", "S"))
TREE = ("doc", "doc|1", "doc|1|a", "doc|1|b", "doc|2", "doc|3|deep|er")
BESIDE = ("do", "doc!", "doc2", "doc2|7", "dock|1", "z")
SEPARATED = ("--separator", "|", "--yes")


def made_of(names: Iterable[str], partition: str = "p", **more: Any) -> list[dict[str, Any]]:
    return [{"pk": {"S": partition}, "sk": {"S": name}, "of": {"S": name}, "n": {"N": "1"}, **more} for name in names]


def table_of(tables: Any, *more: dict[str, Any]) -> str:
    return str(tables.make([*made_of((*TREE, *BESIDE)), *more], keys=KEYS))


def there(tables: Any, table: str) -> set[tuple[str, str]]:
    return {(item["pk"]["S"], item["sk"]["S"]) for item in tables.read(table)}


def at(names: Iterable[str], partition: str = "p", prefix: str = "doc") -> set[tuple[str, str]]:
    return {(partition, prefix + name[3:] if name.startswith("doc") else name) for name in names}


def buckets(report: dict[str, Any]) -> tuple[int, int, int, int]:
    return report["matched"], report["processed"], report["skipped"], report["failed"]


def test_the_life_of_a_subtree(bulkexec: Any, tables: Any) -> None:
    table = table_of(tables)
    where = ("--table", table, "--partition", "p", *SEPARATED)
    copied = bulkexec.json("copy-under", *where, "--under", "doc", "--to-partition", "q", "--set", "seen=true")
    assert buckets(copied.report) == (6, 6, 0, 0)
    moved = bulkexec.json("move-under", *where, "--under", "doc", "--to-prefix", "x")
    assert buckets(moved.report) == (6, 6, 0, 0)
    renamed = bulkexec.json("rename", *where, "--under", "x", "--to-prefix", "y|sub")
    assert buckets(renamed.report) == (6, 6, 0, 0)
    assert there(tables, table) == at(BESIDE) | at(TREE, prefix="y|sub") | at(TREE, "q")
    for item in tables.read(table):
        assert item["n"] == {"N": "1"}
        assert (item.get("seen") == {"BOOL": True}) == (item["pk"]["S"] == "q")
    deleted = bulkexec.json("delete-under", *where, "--under", "y")
    assert buckets(deleted.report) == (6, 6, 0, 0)
    assert there(tables, table) == at(BESIDE) | at(TREE, "q")


def test_what_is_taken_by_another_item_stays_with_all_above_it(bulkexec: Any, tables: Any, tmp_path: Path) -> None:
    taken = {"pk": {"S": "p"}, "sk": {"S": "new|1|a"}, "of": {"S": "somebody"}}
    equal = made_of(["doc|2"])[0] | {"sk": {"S": "new|2"}}
    table = table_of(tables, taken, equal)
    names = ("--table", table, "--partition", "p", "--under", "doc", "--to-prefix", "new", *SEPARATED)
    outcome = bulkexec.json("rename", *names)
    assert buckets(outcome.report) == (6, 3, 3, 0)
    stays = ("doc", "doc|1", "doc|1|a")
    assert at(stays) <= there(tables, table)
    assert there(tables, table) == at(stays) | at(BESIDE) | at(TREE, prefix="new")
    assert taken in tables.read(table)
    lines = [
        json.loads(line) for file in (tmp_path / "state").rglob("skipped/*") for line in file.read_text().splitlines()
    ]
    reasons = {line["Keys"]["sk"]["S"]: line.get("reason", "") for line in lines}
    assert reasons == {"doc|1|a": "", "doc|1": "ChildRemains", "doc": "ChildRemains"}
    tables.client.delete_item(TableName=table, Key={name: taken[name] for name in ("pk", "sk")})
    assert buckets(bulkexec.json("rename", *names).report) == (3, 3, 0, 0)
    assert there(tables, table) == at(BESIDE) | at(TREE, prefix="new")


def test_an_overwritten_copy_in_another_table_is_an_image_of_the_source(bulkexec: Any, tables: Any) -> None:
    source = table_of(tables)
    image = [*made_of(["img", "img|1|a", "img|9", "img|9|k", "img|2"], "q", old={"S": "x"}), *made_of(["img2"], "q")]
    target = tables.make(image, keys=KEYS)
    map_file = "def kept(item):\n    return None if item['sk'] == 'doc|2' else {**item, 'seen': True}\n"
    path = Path(bulkexec.environment["BULKEXEC_STATE_DIR"]).parent / "kept.py"
    path.write_text(map_file)
    arguments = ("--table", source, "--partition", "p", "--under", "doc", "--to", target, "--to-partition", "q")
    arguments = (*arguments, "--to-prefix", "img", "--overwrite", "--map", f"{path}:kept", *SEPARATED)
    dry = bulkexec.json("copy-under", *arguments, "--dry-run")
    assert (dry.report["matched"], dry.report["skipped"]) == (9, 1)
    outcome = bulkexec.json("copy-under", *arguments)
    assert buckets(outcome.report) == (9, 8, 1, 0), "6 read, one let be by the map, 3 without a source"
    found = {item["sk"]["S"]: item for item in tables.read(target)}
    assert set(found) == {"img2", *(f"img{name.removeprefix('doc')}" for name in TREE if name != "doc|2")}
    assert all(item["seen"] == {"BOOL": True} and "old" not in item for name, item in found.items() if name != "img2")
    assert there(tables, source) == at((*TREE, *BESIDE))


def test_a_move_goes_on_by_its_token_from_every_page(
    sandbox: Any, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in sandbox.env().items():
        monkeypatch.setenv(name, value)
    table = table_of(tables)
    command = MoveUnder(partition="p", under="doc", to_partition="q", separator="|")
    total, token, calls = [0, 0, 0, 0], None, 0
    while token is not None or not calls:
        report = called(command, table, token)
        counts, token, calls = report.counts, report.cursor, calls + 1
        found = counts.matched, counts.processed, counts.skipped, counts.failed
        total = [one + other for one, other in zip(total, found, strict=True)]
        assert {name for _, name in there(tables, table)} == {*TREE, *BESIDE}, "never in neither place"
    assert (total, calls >= 12) == ([6, 6, 0, 0], True)
    assert there(tables, table) == at(BESIDE) | at(TREE, "q")


def called(command: MoveUnder, table: str, token: str | None) -> Report:
    """One call of at most one item."""
    session, options = boto3.Session(), Options(max_items=1)
    plan = make_plan(session, command, table, Filter(), options, 1).plan
    records = decode_cursor(token).records() if token is not None else []
    report, error = run_in_process(plan, session, "", MemoryCheckpoints(records), lambda: False, Totals())
    assert error is None
    return report


def test_a_child_that_fails_keeps_its_parents(bulkexec: Any, sandbox: Any, tables: Any) -> None:
    table = table_of(tables)
    key = {"pk": {"S": "p"}, "sk": {"S": "doc|1|a"}}
    names = ("--table", table, "--partition", "p", "--under", "doc", *SEPARATED, "--strategy", "sequential")
    sandbox.control.faults.add(
        kind="error", operation="DeleteItem", code="ValidationException", match={"Key": key, "TableName": table}
    )
    try:
        outcome = bulkexec.json("delete-under", *names)
    finally:
        sandbox.control.faults.clear()
    assert buckets(outcome.report) == (6, 3, 2, 1)
    assert there(tables, table) == at(BESIDE) | at(("doc", "doc|1", "doc|1|a"))
    assert buckets(bulkexec.json("delete-under", *names).report) == (3, 3, 0, 0)
    assert there(tables, table) == at(BESIDE)


MOVES = {
    "move-under": ("--partition", "p", "--under", "doc", "--to-partition", "q", "--separator", "|"),
    "rename": ("--partition", "p", "--under", "doc", "--to-prefix", "new", "--separator", "|"),
    "move": ("--where", "begins_with(sk, 'doc')", "--swap-prefix", "sk:doc:new", "--segments", "2"),
}


def safe(tables: Any, table: str, names: Iterable[str]) -> bool:
    """Whether every item is where it was or where it goes."""
    found = {(item["pk"]["S"], item["sk"]["S"]): item["of"]["S"] for item in tables.read(table)}
    places = {name: (("p", name), ("q", name), ("p", name.replace("doc", "new"))) for name in names}
    return all(any(found.get(place) == name for place in places[name]) for name in names)


@pytest.mark.parametrize("again", ["rerun", "resume"])
@pytest.mark.parametrize("command", MOVES)
def test_a_move_killed_at_any_request_loses_nothing(
    command: str, again: str, bulkexec: Any, sandbox: Any, tables: Any, tmp_path: Path
) -> None:
    # A random request is the last one that is heard; its answer, if it had an effect, is lost.
    many = [*TREE, *(f"doc|4|{number:03d}" for number in range(60)), *(f"doc|5|{n}|x" for n in range(30))]
    kind = random.choice(["http500", "lost_answer"])
    table = tables.make(made_of(many), keys=KEYS)
    arguments = (command, "--table", table, *MOVES[command], "--yes")
    last = random.randint(6, 14 if command == "move" else 26)
    if kind == "lost_answer":
        sandbox.control.faults.add(kind=kind, service="dynamodb", after=last, count=1)
    rule = sandbox.control.faults.add(kind="http500", service="dynamodb", after=last)
    process = bulkexec.start(*arguments)
    try:
        await_fault(sandbox, rule, process)
        process.kill()
        process.communicate()
    finally:
        sandbox.control.faults.clear()
    assert safe(tables, table, many), (kind, last)
    jobs = sorted((tmp_path / "state" / "jobs").glob("*.json"), key=lambda path: path.stat().st_mtime)
    mine = [path.stem for path in jobs if table in path.read_text()]
    outcome = bulkexec.json("resume", mine[-1]) if again == "resume" and mine else bulkexec.json(*arguments)
    assert outcome.code == 0, outcome.stderr
    left = {name for partition, name in there(tables, table) if partition == "p" and name.startswith("doc")}
    assert (left, len(tables.read(table))) == (set(), len(many)), (kind, last)
    assert safe(tables, table, many)


def await_fault(sandbox: Any, rule: int, process: Any) -> None:
    """Until a request has met the rule, or the process has ended before."""
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        if any(each["id"] == rule and each["fired"] for each in sandbox.control.faults.listed()):
            return
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--separator", "|", "--runtime", "glue"), "a fleet would not"),
        (("--separator", "|", "--where", "n = 1"), "No such option"),
    ],
)
def test_what_is_no_subtree_is_refused(arguments: tuple[str, ...], words: str, bulkexec: Any, tables: Any) -> None:
    table = table_of(tables)
    outcome = bulkexec("delete-under", "--table", table, "--partition", "p", "--under", "doc", "--yes", *arguments)
    assert (outcome.code, words in outcome.stderr) == (2, True), outcome.stderr
    assert there(tables, table) == at((*TREE, *BESIDE))


def test_the_separator_may_be_declared(bulkexec: Any, tables: Any, tmp_path: Path) -> None:
    table = table_of(tables)
    config = tmp_path / "bulkexec.toml"
    config.write_text(f'[tables.{table}]\nseparator = "|"\n')
    names = ("--table", table, "--partition", "p", "--under", "doc")
    outcome = bulkexec.json("delete-under", *names, "--yes", env={"BULKEXEC_CONFIG": str(config)})
    assert buckets(outcome.report) == (6, 6, 0, 0)
    everything = bulkexec.json("delete-under", *names, "--separator", "", "--yes")
    assert buckets(everything.report) == (4, 4, 0, 0), "without a separator what only begins so is below, too"
    assert there(tables, table) == at(("do", "z"))


def test_a_target_with_another_key_is_refused(bulkexec: Any, tables: Any) -> None:
    source, target = table_of(tables), tables.make(keys=(("pk", "S"), ("other", "S")))
    names = ("--table", source, "--partition", "p", "--under", "doc", "--to", target, *SEPARATED)
    outcome = bulkexec("copy-under", *names)
    assert (outcome.code, "other key attributes" in outcome.stderr) == (2, True)
