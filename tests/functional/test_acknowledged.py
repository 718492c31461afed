"""Counts are of what was acknowledged, also when an error ends a run in the middle of a page; caps and aliases hold."""

from typing import Any

import pytest

from bulkexec.sandbox.process import Sandbox

DENIED = "User: arn:aws:iam::1:user/ops is not authorized to perform: dynamodb:PartiQLDelete on resource: arn:aws:x"


@pytest.mark.parametrize("alias", ["#p0", "#p1", "#pp0", "#k0", "#n0"])
@pytest.mark.parametrize("options", [(), ("--unguarded",), ("--strategy", "sequential")])
def test_a_raw_filters_aliases_are_its_own(
    alias: str, options: tuple[str, ...], bulkexec: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(40, 60))
    raw = ("--filter-expression", f"{alias} <> :v", "--expression-names", f'{{"{alias}":"state"}}')
    raw += ("--expression-values", '{":v":{"S":"NEW"}}')
    assert bulkexec.json("count", "--table", name, *raw).report["matched"] == 14
    assert bulkexec.json("delete", "--table", name, *raw, "--dry-run").report["matched"] == 14
    report = bulkexec.json("delete", "--table", name, *raw, "--yes", *options).report
    assert (report["processed"], report["skipped"]) == (14, 0)
    assert tables.keys(name) == {f"k{n:07d}" for n in range(40) if n % 3}


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("BatchExecuteStatement", ("--where", "n >= 0")),
        ("BatchWriteItem", ("--all",)),
        ("DeleteItem", ("--where", "n >= 0", "--strategy", "sequential")),
    ],
)
@pytest.mark.parametrize("code", ["AccessDeniedException", "ExpiredTokenException"])
def test_an_error_in_the_middle_of_a_page_loses_no_count(
    code: str, operation: str, options: tuple[str, ...], bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any
) -> None:
    # case C067 C073
    name = tables.make(items(1000, 60))
    sandbox.control.faults.add(operation=operation, kind="error", code=code, message=DENIED, after=11)
    try:
        first = bulkexec.json("delete", "--table", name, "--yes", "--segments", "4", *options)
    finally:
        sandbox.control.faults.clear()
    assert first.code == 1
    left = len(tables.read(name))
    assert 0 < left < 1000
    assert first.report["processed"] == 1000 - left
    assert first.report["scanned"] == first.report["matched"] == first.report["processed"]
    whole = bulkexec.json("resume", first.report["job_id"])
    assert (whole.code, whole.report["processed"], len(tables.read(name))) == (0, 1000, 0)


@pytest.mark.parametrize(
    ("operation", "options"),
    [("BatchExecuteStatement", ()), ("UpdateItem", ("--strategy", "sequential"))],
)
def test_an_error_in_the_middle_of_an_edit_loses_no_count(
    operation: str, options: tuple[str, ...], bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any
) -> None:
    # case C067
    name = tables.make(items(400, 60))
    sandbox.control.faults.add(operation=operation, kind="error", code="AccessDeniedException", message=DENIED, after=5)
    try:
        first = bulkexec.json("edit", "--table", name, "--all", "--set", "state=DONE", "--yes", *options)
    finally:
        sandbox.control.faults.clear()
    assert first.code == 1
    done = sum(item["state"]["S"] == "DONE" for item in tables.read(name))
    assert 0 < done < 400
    assert first.report["processed"] == done
    whole = bulkexec.json("resume", first.report["job_id"])
    assert (whole.code, whole.report["processed"]) == (0, 400)
    assert all(item["state"]["S"] == "DONE" for item in tables.read(name))


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("BatchWriteItem", ()),
        ("BatchExecuteStatement", ("--if-not-exists",)),
        ("PutItem", ("--if-not-exists", "--strategy", "sequential")),
    ],
)
def test_an_error_in_the_middle_of_a_copy_loses_no_count(
    operation: str, options: tuple[str, ...], bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any
) -> None:
    # case C067 C078
    name, target = tables.make(items(400, 60)), tables.make()
    sandbox.control.faults.add(operation=operation, kind="error", code="AccessDeniedException", message=DENIED, after=5)
    try:
        first = bulkexec.json("copy", "--table", name, "--to", target, "--yes", *options)
    finally:
        sandbox.control.faults.clear()
    assert first.code == 1
    done = len(tables.read(target))
    assert 0 < done < 400
    assert first.report["processed"] == done
    whole = bulkexec.json("resume", first.report["job_id"])
    assert (whole.code, len(tables.read(target))) == (0, 400)
    if "--if-not-exists" in options:
        assert whole.report["processed"] == 400


@pytest.mark.parametrize(
    ("operation", "options"),
    [("BatchExecuteStatement", ()), ("DeleteItem", ("--strategy", "sequential"))],
)
def test_an_error_in_the_middle_of_a_move_loses_no_count(
    operation: str, options: tuple[str, ...], bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any
) -> None:
    # case C067
    name, target = tables.make(items(400, 60)), tables.make()
    sandbox.control.faults.add(operation=operation, kind="error", code="AccessDeniedException", message=DENIED, after=5)
    try:
        first = bulkexec.json("move", "--table", name, "--to", target, "--where", "n >= 0", "--yes", *options)
    finally:
        sandbox.control.faults.clear()
    left = len(tables.read(name))
    assert (first.code, first.report["processed"]) == (1, 400 - left)
    assert 0 < left < 400
    whole = bulkexec.json("resume", first.report["job_id"])
    assert (whole.code, whole.report["processed"]) == (0, 400)
    assert (len(tables.read(name)), len(tables.read(target))) == (0, 400)


@pytest.mark.parametrize("cap", [1, 10, 100])
def test_a_cap_is_passed_by_no_more_than_a_page(cap: int, bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(1200, 60))
    first = bulkexec.json("delete", "--table", name, "--where", "state = 'OLD'", "--max-items", str(cap), "--yes")
    assert first.code == 4
    assert cap <= first.report["processed"] <= cap * 1.5 + 1
    assert 400 - first.report["processed"] == sum(item["state"]["S"] == "OLD" for item in tables.read(name))


def test_a_dry_run_is_capped_too(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(1200, 60))
    outcome = bulkexec.json("delete", "--table", name, "--where", "state = 'OLD'", "--max-items", "20", "--dry-run")
    assert outcome.code == 4
    assert 20 <= outcome.report["matched"] <= 31


def test_a_cap_on_rare_matches_ends(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(3000, 60))
    outcome = bulkexec.json("count", "--table", name, "--where", "n = 1234", "--max-items", "1")
    assert outcome.report["matched"] == 1


def test_a_run_in_which_every_write_fails_ends_early(bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any) -> None:
    # case C032
    name = tables.make(items(2000, 60))
    sandbox.control.faults.add(operation="DeleteItem", kind="error", code="ValidationException", message="no such")
    try:
        outcome = bulkexec.json("delete", "--table", name, "--all", "--strategy", "sequential", "--yes")
    finally:
        sandbox.control.faults.clear()
    assert outcome.code == 1
    assert outcome.report["failed"] < 1000
    assert "no such" in " ".join(outcome.report["error"])
    assert len(tables.read(name)) == 2000
