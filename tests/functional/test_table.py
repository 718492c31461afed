"""The Python API on the sandbox: options, refusals, buckets, cursors, errors."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key

from bulkexec import MassOpResult, Table, decode_cursor, errors, maps
from bulkexec.runtimes import assembly
from bulkexec.sandbox.process import Sandbox, environment
from bulkexec.wire import Retry
from bulkexec.writer import Writer
from tests.functional.conftest import Tables

REGION = "us-east-1"


@pytest.fixture(autouse=True)
def session(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)
    yield boto3.Session(region_name=REGION)
    sandbox.control.faults.clear()


@pytest.fixture
def name(tables: Tables) -> str:
    """Ten items k0 … k9 with n, version, created and a state that is OLD for the even ones."""
    return tables.make(rows(10))


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "pk": {"S": f"k{number}"},
            "n": {"N": str(number)},
            "state": {"S": "NEW" if number % 2 else "OLD"},
            "created": {"S": f"2026-01-{number + 1:02}T00:00:00.000Z"},
            "-version": {"N": "1"},
        }
        for number in range(count)
    ]


def state_of(tables: Tables, name: str) -> dict[str, str]:
    return {item["pk"]["S"]: item.get("state", {"S": ""})["S"] for item in tables.read(name)}


def done(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"state": "DONE"}


def to_copy(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"pk": f"copy#{item['pk']}", "state": "COPY"}


def keys(result: list[Any]) -> list[Any]:
    return sorted(each["key"]["pk"] for each in result)


# -- the form that the issue writes, and the loop ------------------------------------------------------------------


def test_call_look_at_the_cursor_call_again(name: str, tables: Tables) -> None:
    token, whole, calls = None, MassOpResult(), 0
    while True:
        result = Table(name, version_field="-version").edit_list(done, max_items=3, resume_token=token)
        whole, token, calls = whole + result, result.cursor, calls + 1
        if token is None:
            break
        assert result.processed >= 3
    assert (whole.processed, whole.skipped, whole.failed, whole.conflicts, whole.cursor) == (10, 0, [], [], None)
    assert 1 < calls <= 4
    assert set(state_of(tables, name).values()) == {"DONE"}
    assert {item["-version"]["N"] for item in tables.read(name)} == {"2"}


def test_a_stop_leaves_a_cursor(name: str) -> None:
    stopped = Table(name).edit_list(done, stop=lambda: True)
    assert (stopped.processed, stopped.matched) == (0, 0)
    assert stopped.cursor is not None
    assert Table(name).edit_list(done, resume_token=stopped.cursor).processed == 10


def test_a_dry_run_reads_and_maps_and_writes_nothing(name: str, tables: Tables) -> None:
    before = tables.read(name)
    result = Table(name).edit_list(lambda item: None if item["n"] < 4 else done(item), dry_run=True)
    assert (result.scanned, result.matched, result.processed, result.skipped, result.write_units) == (10, 10, 0, 4, 0)
    assert tables.read(name) == before


def test_a_map_runs_in_one_thread_with_one_segment(name: str) -> None:
    seen = set()

    def map_fn(item: dict[str, Any]) -> None:
        seen.add(threading.current_thread().name)

    Table(name).edit_list(map_fn, segments=1)
    assert len(seen) == 1


def test_nothing_is_written_after_an_interrupt(tables: Tables) -> None:
    name, interrupted = tables.make(rows(60)), list[bool]()

    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        if not interrupted:
            interrupted.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        return done(item)

    with pytest.raises(KeyboardInterrupt):
        Table(name).edit_list(map_fn, segments=40)
    told = state_of(tables, name)
    for each in threading.enumerate():
        if each.name.startswith(("segment-worker", "request")):
            each.join(10)
    assert state_of(tables, name) == told


def test_a_table_by_its_arn(name: str, tables: Tables) -> None:
    arn = tables.client.describe_table(TableName=name)["Table"]["TableArn"]
    assert Table(arn).delete_list(where="state = 'OLD'").processed == 5
    assert Table(arn).delete_list(params={"TableName": name, "FilterExpression": Attr("n").eq(1)}).processed == 1


# -- what is not taken ---------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[..., MassOpResult]] = {
    "delete_list": lambda table, **options: table.delete_list(**{"all_items": True} | options),
    "clone_list": lambda table, **options: table.clone_list(to_copy, **{"where": "state = 'OLD'"} | options),
    "move_list": lambda table, **options: table.move_list(to_copy, **{"where": "state = 'OLD'"} | options),
    "edit_list": lambda table, **options: table.edit_list(done, **options),
    "put_items": lambda table, **options: table.put_items([{"pk": "new"}], **options),
    "delete_by_keys": lambda table, **options: table.delete_by_keys([{"pk": "k1"}], **options),
    "clone_by_keys": lambda table, **options: table.clone_by_keys([{"pk": "k1"}], to_copy, **options),
    "move_by_keys": lambda table, **options: table.move_by_keys([{"pk": "k1"}], to_copy, **options),
    "edit_by_keys": lambda table, **options: table.edit_by_keys([{"pk": "k1"}], done, **options),
}
PUTS = ("clone_list", "move_list", "put_items", "clone_by_keys", "move_by_keys")
LISTS = ("delete_list", "clone_list", "move_list", "edit_list")


@pytest.fixture
def untouched(name: str, tables: Tables) -> Iterator[str]:
    before = tables.read(name)
    yield name
    assert tables.read(name) == before


@pytest.mark.parametrize("operation", CALLS)
def test_a_misspelt_keyword_is_no_keyword(operation: str, untouched: str) -> None:
    with pytest.raises(TypeError, match=rf"{operation}\(\) got an unexpected keyword argument 'max_item'"):
        CALLS[operation](Table(untouched), max_item=5)


@pytest.mark.parametrize(
    ("operation", "keyword"),
    [(each, "if_not_exists") for each in CALLS if each not in PUTS]
    + [(each, "where") for each in CALLS if each not in LISTS]
    + [("edit_list", "to"), ("clone_list", "all_items"), ("delete_list", "allow_key_change")],
)
def test_a_keyword_of_another_operation_is_no_keyword(operation: str, keyword: str, untouched: str) -> None:
    with pytest.raises(TypeError, match=keyword):
        CALLS[operation](Table(untouched), **{keyword: True})


def test_a_misspelt_declaration_is_none() -> None:
    with pytest.raises(TypeError, match="version_fields"):
        Table("t", version_fields="-version")  # type: ignore[call-arg]


@pytest.mark.parametrize("operation", PUTS)
def test_both_conditions_at_once_are_refused(operation: str, untouched: str) -> None:
    with pytest.raises(errors.BadArgument, match="if_not_exists and if_exists exclude each other"):
        CALLS[operation](Table(untouched), if_not_exists=True, if_exists=True)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"max_items": 0}, errors.BadArgument),
        ({"max_items": True}, errors.BadArgument),
        ({"max_items": "5"}, errors.BadArgument),
        ({"max_failures": -1}, errors.BadArgument),
        ({"segments": 0}, errors.BadArgument),
        ({"strategy": "fast"}, errors.BadArgument),
        ({"read_rate": "much"}, errors.BadArgument),
        ({"write_rate": -1}, errors.BadArgument),
        ({"resume_token": ""}, errors.BadToken),
        ({"resume_token": "bm9uZQ"}, errors.BadToken),
    ],
)
@pytest.mark.parametrize("operation", ["edit_list", "put_items", "delete_by_keys"])
def test_values_that_are_none(operation: str, options: dict[str, Any], wrong: type, untouched: str) -> None:
    with pytest.raises(wrong):
        CALLS[operation](Table(untouched), **options)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"filter": []}, errors.BadFilter),
        ({"filter": "state:eq:OLD"}, errors.BadFilter),
        ({"filter": ("state", "eq", "OLD")}, errors.BadFilter),
        ({"filter": [("state",)]}, errors.BadFilter),
        ({"filter": [5]}, errors.BadFilter),
        ({"filter": ["state:is:OLD"]}, errors.BadFilter),
        ({"filter": [("state", "is", "OLD")]}, errors.BadFilter),
        ({"where": ""}, errors.BadFilter),
        ({"where": "  "}, errors.BadFilter),
        ({"search": ""}, errors.BadFilter),
        ({"as_of": ""}, errors.BadArgument),
        ({"as_of": "yesterday"}, errors.BadArgument),
        ({"params": {"FilterExpression": ""}}, errors.BadFilter),
        ({"params": {"Limit": 5}}, errors.BadArgument),
        ({"params": {"TableName": "another", "FilterExpression": "n = n"}}, errors.BadArgument),
        ({"params": {"IndexName": "none"}}, errors.BadArgument),
        ({"params": {"ExpressionAttributeValues": {":a": 1}}}, errors.BadArgument),
        ({"params": {"FilterExpression": Attr("n").eq(1)}, "where": "n = 1"}, errors.BadArgument),
    ],
)
@pytest.mark.parametrize("operation", ["delete_list", "edit_list"])
def test_selections_that_are_none(operation: str, options: dict[str, Any], wrong: type, untouched: str) -> None:
    with pytest.raises(wrong):
        CALLS[operation](Table(untouched, searchable=["state"], created_at_field="created"), **options)


@pytest.mark.parametrize("operation", LISTS)
def test_as_of_without_its_field_is_never_ignored(operation: str, untouched: str) -> None:
    with pytest.raises(errors.CreatedAtFieldNotDeclared, match="as_of needs to know"):
        CALLS[operation](Table(untouched), as_of="2026-01-03")


def test_all_items_have_to_be_meant(untouched: str) -> None:
    for call in (Table(untouched).delete_list, partial(Table(untouched).move_list, to_copy)):
        with pytest.raises(errors.NoFilter, match="all_items=True"):
            call()
        with pytest.raises(errors.BadArgument, match="all_items and a filter contradict each other"):
            call(all_items=True, where="state = 'OLD'")


def test_a_table_is_not_copied_onto_itself(untouched: str, tables: Tables) -> None:
    arn = tables.client.describe_table(TableName=untouched)["Table"]["TableArn"]
    for to in ("", untouched, arn):
        with pytest.raises(errors.BadArgument, match="onto itself"):
            Table(untouched).clone_list(to=to)
        with pytest.raises(errors.BadArgument):
            Table(untouched).move_list(to=to, all_items=True)


@pytest.mark.parametrize("map_fn", [None, "done", 5])
def test_a_map_that_is_none(map_fn: Any, untouched: str) -> None:
    with pytest.raises(TypeError, match="map_fn"):
        Table(untouched).edit_list(map_fn)


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(errors.TableMissing) as caught:
        Table("none").edit_list(done)
    assert caught.value.cursor is None
    assert caught.value.result is None


def test_a_table_without_recovery(tables: Tables) -> None:
    with pytest.raises(errors.RecoveryOff):
        Table(tables.make(rows(1), recovery=False)).edit_list(done)


@pytest.mark.parametrize("key", [{}, {"pk": 5}, {"sk": "a"}, {"pk": ""}, {"pk": object()}, {"pk": {"N": "1"}}])
def test_keys_that_are_none(key: dict[str, Any], untouched: str) -> None:
    with pytest.raises(errors.BadArgument, match="key"):
        Table(untouched).delete_by_keys([{"pk": "k1"}, key])


# -- every row of the table of errors ------------------------------------------------------------------------------


def test_an_item_that_is_too_large_or_invalid_is_failed(name: str, tables: Tables) -> None:
    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        wrong = {"k1": {"x": "x" * 420_000}, "k2": {"x": object()}, "k3": {"x": float("inf")}}
        return done(item) | wrong.get(item["pk"], {})

    result = Table(name).edit_list(map_fn)
    assert (result.processed, keys(result.failed)) == (7, ["k1", "k2", "k3"])
    reasons = {each["key"]["pk"]: each["reason"] for each in result.failed}
    assert reasons["k2"] == reasons["k3"] == "NotEncodable"
    assert reasons["k1"] == "ValidationException"
    again = Table(name).edit_by_keys([each["key"] for each in result.failed], done)
    assert again.processed == 3
    assert set(state_of(tables, name).values()) == {"DONE"}


def test_given_items_that_cannot_be_stored_are_failed(name: str, tables: Tables) -> None:
    large = {"pk": "large", "x": "x" * 420_000}
    wrong: list[dict[str, Any]] = [{"pk": object()}, {"pk": "a", "x": object()}, {"pk": 5}, {"x": 1}, {"pk": ""}, large]
    result = Table(name).put_items([{"pk": "good"}, *wrong, {"pk": "fine"}])
    assert (result.processed, result.matched) == (2, 8)
    assert sorted(each["reason"] for each in result.failed) == [
        "ItemTooLarge",
        "KeyInvalid",
        "KeyInvalid",
        "NotEncodable",
        "NotEncodable",
        "ValidationException",
    ]
    assert {"good", "fine"} <= tables.keys(name)
    json.dumps(result.as_json())


def test_what_was_rejected_is_also_in_the_result_of_an_error(name: str, sandbox: Sandbox) -> None:
    items = [{"pk": f"new{number}"} for number in range(250)]
    wrong = [{"pk": "wrong", "x": object()}]
    sandbox.control.faults.add(
        "error", service="dynamodb", operation="BatchWriteItem", code="AccessDeniedException", after=4
    )
    with pytest.raises(errors.AccessDenied) as caught:
        Table(name).put_items(items + wrong)
    sandbox.control.faults.clear()
    first: MassOpResult = caught.value.result
    assert keys(first.failed) == ["wrong"]
    assert first.matched == first.processed + 1 > 1
    rest = Table(name).put_items(items + wrong, resume_token=caught.value.cursor)
    assert (rest.failed, rest.cursor) == ([], None)
    assert first.processed + rest.processed >= 250


def test_throughput_that_stays_exhausted_is_failed(
    name: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "Writer", partial(Writer, retry=Retry(deadline_seconds=0.3)))
    real = assembly.Retrying
    monkeypatch.setattr(assembly, "Retrying", lambda *given: real(*given, Retry(deadline_seconds=0.3)))
    code = "ProvisionedThroughputExceededException"
    sandbox.control.faults.add("error", service="dynamodb", operation="BatchExecuteStatement", code=code)
    result = Table(name).edit_list(done)
    assert (result.processed, len(result.failed)) == (0, 10)
    assert {each["reason"] for each in result.failed} == {"ThroughputExhausted"}
    assert result.cursor is None
    sandbox.control.faults.clear()
    assert Table(name).edit_by_keys([each["key"] for each in result.failed], done).processed == 10


@pytest.mark.parametrize(("condition", "processed"), [("if_not_exists", 6), ("if_exists", 4), (None, 10)])
def test_a_condition_on_the_key_that_fails_is_skipped(condition: str | None, processed: int, tables: Tables) -> None:
    source, target = tables.make(rows(10)), tables.make(rows(4))
    options: Any = {condition: True} if condition else {}
    result = Table(source).clone_list(done, to=target, **options)
    assert (result.processed, result.skipped, result.failed) == (processed, 10 - processed, [])
    states = state_of(tables, target)
    assert sorted(states.values()).count("DONE") == processed


def other_writer(tables: Tables, name: str, key: str) -> None:
    """Somebody else: changes an item and counts its version up."""
    tables.client.update_item(
        TableName=name,
        Key={"pk": {"S": key}},
        UpdateExpression="ADD #v :one, seen :one SET writer = :w",
        ExpressionAttributeNames={"#v": "-version"},
        ExpressionAttributeValues={":one": {"N": "1"}, ":w": {"S": "another"}},
    )


def test_conflicts_lose_no_update_and_their_keys_finish_the_work(name: str, tables: Tables) -> None:
    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        if item["pk"] in ("k3", "k7") and "writer" not in item:
            other_writer(tables, name, item["pk"])
        return item | {"total": item["n"] + 1, "seen": item.get("seen", 0)}

    table = Table(name, version_field="-version")
    result = table.edit_list(map_fn)
    assert (result.processed, keys(result.conflicts)) == (8, ["k3", "k7"])
    assert {each["reason"] for each in result.conflicts} == {"VersionConflict"}
    again = table.edit_by_keys([each["key"] for each in result.conflicts], map_fn)
    assert (again.processed, again.conflicts) == (2, [])
    found = {item["pk"]["S"]: item for item in tables.read(name)}
    assert all(int(item["total"]["N"]) == int(item["n"]["N"]) + 1 for item in found.values())
    assert [found[key]["writer"]["S"] for key in ("k3", "k7")] == ["another"] * 2
    assert [found[key]["-version"]["N"] for key in ("k3", "k7", "k1")] == ["3", "3", "2"]


def test_an_item_that_is_deleted_meanwhile_is_skipped_and_never_a_stub(name: str, tables: Tables) -> None:
    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        if item["pk"] == "k5":
            tables.client.delete_item(TableName=name, Key={"pk": {"S": "k5"}})
        return done(item)

    result = Table(name).edit_list(map_fn)
    assert (result.processed, result.skipped, result.failed, result.conflicts) == (9, 1, [], [])
    assert "k5" not in tables.keys(name)


@pytest.mark.parametrize("map_fn", [lambda item: item, lambda item: None, lambda item: False, dict])
def test_a_map_that_changes_nothing_writes_nothing(map_fn: Any, name: str) -> None:
    result = Table(name, version_field="-version").edit_list(map_fn)
    assert (result.processed, result.skipped, result.write_units) == (0, 10, 0)


def test_a_changed_key_fails_the_item_or_moves_it(name: str, tables: Tables) -> None:
    where = "state = 'OLD'"
    result = Table(name).edit_list(to_copy, where=where)
    assert (result.processed, len(result.failed)) == (0, 5)
    assert {each["reason"] for each in result.failed} == {"KeyChanged"}
    assert "allow_key_change" in result.failed[0]["details"]
    assert "--" not in result.failed[0]["details"]
    moved = Table(name).edit_list(to_copy, where=where, allow_key_change=True)
    assert (moved.processed, moved.failed) == (5, [])
    assert tables.keys(name) == {f"k{number}" for number in (1, 3, 5, 7, 9)} | {f"copy#k{n}" for n in (0, 2, 4, 6, 8)}


def test_a_map_that_raises_fails_the_item_and_the_run_goes_on(name: str, tables: Tables) -> None:
    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        return done(item) | {"ratio": 10 / item["n"]}

    result = Table(name).edit_list(map_fn)
    assert (result.processed, keys(result.failed)) == (9, ["k0"])
    assert "division" in result.failed[0]["details"].lower()


def test_max_failures_end_the_run_with_a_cursor(name: str) -> None:
    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no")

    with pytest.raises(errors.TooManyFailures, match="more than max_failures 2") as caught:
        Table(name).edit_list(map_fn, max_failures=2, segments=8)
    assert caught.value.cursor is not None
    assert len(caught.value.result.failed) > 2
    assert caught.value.result.cursor == caught.value.cursor


FAULTS: dict[str, tuple[dict[str, Any], type[errors.BulkexecError]]] = {
    "denied": ({"kind": "error", "code": "AccessDeniedException"}, errors.AccessDenied),
    "missing": ({"kind": "error", "code": "ResourceNotFoundException"}, errors.TableMissing),
    "credentials": ({"kind": "error", "code": "UnrecognizedClientException"}, errors.NoCredentials),
    "expired": ({"kind": "expired_token"}, errors.NoCredentials),
    "network": ({"kind": "reset"}, errors.Exhausted),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("operation", ["Scan", "BatchExecuteStatement"])
def test_an_error_that_ends_the_run_has_a_cursor_that_finishes_it(
    fault: str, operation: str, tables: Tables, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = assembly.Retrying
    monkeypatch.setattr(assembly, "Retrying", lambda *given: real(*given, Retry(deadline_seconds=0.2)))
    name = tables.make(rows(40))
    settings, wanted = FAULTS[fault]
    sandbox.control.faults.add(service="dynamodb", operation=operation, after=2, **settings)
    with pytest.raises(wanted) as caught:
        Table(name).edit_list(done, segments=8)
    sandbox.control.faults.clear()
    first = caught.value.result
    assert first.cursor == caught.value.cursor is not None
    assert 0 < first.processed < 40
    second = Table(name).edit_list(done, segments=8, resume_token=caught.value.cursor)
    assert second.cursor is None
    assert first.processed + second.processed == 40
    assert set(state_of(tables, name).values()) == {"DONE"}


# -- cursors -------------------------------------------------------------------------------------------------------


def other(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"state": "OTHER"}


DECLARED: dict[str, Any] = {"created_at_field": "created", "searchable": ["state"]}
CHANGES: dict[str, Callable[[str, str], Any]] = {
    "the operation": lambda name, token: Table(name, **DECLARED).move_list(
        to_copy, where="n < 8", as_of="2026-02-01", search="NEW", resume_token=token
    ),
    "the map": lambda name, token: edit(name, token, map_fn=other),
    "the filter": lambda name, token: edit(name, token, where="n < 9"),
    "the clauses": lambda name, token: edit(name, token, filter=["n:lt:9"]),
    "one clause more": lambda name, token: edit(name, token, filter=[("n", "lt", 9)]),
    "params": lambda name, token: edit(name, token, where=None, params={"FilterExpression": Attr("n").lt(8)}),
    "as of": lambda name, token: edit(name, token, as_of="2026-02-02"),
    "no as of": lambda name, token: edit(name, token, as_of=None),
    "what as of compares": lambda name, token: edit(name, token, declared=DECLARED | {"created_at_field": "made"}),
    "the search": lambda name, token: edit(name, token, search="OLD"),
    "where it searches": lambda name, token: edit(name, token, declared=DECLARED | {"searchable": ["pk", "state"]}),
    "the version": lambda name, token: edit(name, token, declared=DECLARED | {"version_field": "-version"}),
    "the prefix": lambda name, token: edit(name, token, declared=DECLARED | {"technical_prefix": "_"}),
    "the descriptor": lambda name, token: edit(name, token, declared=DECLARED | {"descriptor": {"pk": "k1"}}),
    "key changes": lambda name, token: edit(name, token, allow_key_change=True),
    "a dry run": lambda name, token: edit(name, token, dry_run=True),
    "keys": lambda name, token: Table(name).edit_by_keys([{"pk": "k1"}], done, resume_token=token),
}


def edit(name: str, token: str | None, declared: Any = DECLARED, map_fn: Any = done, **options: Any) -> MassOpResult:
    selection = {"where": "n < 8", "as_of": "2026-02-01", "search": "NEW"}
    return Table(name, **declared).edit_list(map_fn, **selection | {"resume_token": token} | options)


@pytest.fixture(scope="module")
def stopped(tables: Tables, sandbox: Sandbox) -> tuple[str, str]:
    """A table, and the cursor of an edit of it that was stopped at once."""
    name = tables.make(rows(10))
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environment(sandbox.running).items():
            patch.setenv(variable, value)
        cursor = edit(name, None, stop=lambda: True).cursor
    assert cursor is not None
    return name, cursor


@pytest.mark.parametrize("change", CHANGES)
def test_a_token_is_refused_when_something_else_is_asked(change: str, stopped: tuple[str, str]) -> None:
    with pytest.raises(errors.BadToken):
        CHANGES[change](*stopped)


def test_a_token_of_another_table_is_refused(stopped: tuple[str, str], tables: Tables) -> None:
    with pytest.raises(errors.BadToken):
        edit(tables.make(rows(10)), stopped[1])


def test_a_token_of_a_job_is_refused_and_says_where_to_go(stopped: tuple[str, str]) -> None:
    from bulkexec.cursor import Cursor

    name, token = stopped
    job = Cursor(decode_cursor(token).fingerprint, 4, job="abc123")
    with pytest.raises(errors.BadToken, match="abc123") as caught:
        edit(name, job.encode())
    assert caught.value.fix == "bulkexec resume abc123"


def test_a_token_goes_on_at_another_pace(tables: Tables) -> None:
    name = tables.make(rows(10))
    first = edit(name, None, max_items=1, segments=6)
    assert first.cursor is not None
    rest = edit(name, first.cursor, max_items=50, segments=2, strategy="sequential", write_rate=500, max_failures=5)
    assert (first.processed + rest.processed, rest.cursor) == (4, None)


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        ("put_items", lambda table, token: table.put_items([{"pk": "other"}], resume_token=token)),
        ("put_items", lambda table, token: table.put_items([{"pk": "new"}], if_exists=True, resume_token=token)),
        ("delete_by_keys", lambda table, token: table.delete_by_keys([{"pk": "k2"}], resume_token=token)),
        ("clone_by_keys", lambda table, token: table.clone_by_keys([{"pk": "k1"}], done, resume_token=token)),
        ("clone_list", lambda table, token: table.clone_list(to_copy, where="n = 1", resume_token=token)),
        ("move_list", lambda table, token: table.move_list(to_copy, all_items=True, resume_token=token)),
    ],
)
def test_a_token_is_of_the_items_the_keys_and_the_conditions(operation: str, changed: Any, untouched: str) -> None:
    token = CALLS[operation](Table(untouched), stop=lambda: True).cursor
    with pytest.raises((errors.BadToken, errors.BadArgument)):
        changed(Table(untouched), token)


def test_a_token_of_given_items_goes_on_with_the_same_ones(name: str, tables: Tables) -> None:
    items = [{"pk": f"new{number}"} for number in range(300)]
    wrong = [{"pk": "wrong", "x": object()}]
    first = Table(name).put_items(items + wrong, max_items=100)
    assert (len(first.failed), first.matched) == (1, first.processed + 1)
    whole, token = first, first.cursor
    while token is not None:
        more = Table(name).put_items(items + wrong, max_items=100, resume_token=token)
        whole, token = whole + more, more.cursor
    assert (whole.processed, len(whole.failed), whole.matched) == (300, 1, 301)
    assert len(tables.keys(name)) == 310


SCRIPT = """
import json, sys
from bulkexec import Table, maps

LIMIT = 5

def scaled(factor):
    return lambda item: item | {"scaled": item["n"] * factor}

class Adder:
    def __init__(self, step):
        self.step = step
    def __call__(self, item):
        return item | {"added": item["n"] + self.step}

chain = maps.compose(scaled(3), Adder(4), maps.overlay(done=True, tags={"b", "a", "c"}))
result = Table(sys.argv[1]).edit_list(chain, max_items=3, resume_token=sys.argv[2] or None)
print(json.dumps(result.as_json()))
"""


def test_a_function_is_known_again_in_another_process(name: str, tables: Tables, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(SCRIPT)

    def call(token: str, seed: str) -> dict[str, Any]:
        command = [sys.executable, str(tmp_path / "loop.py"), name, token]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    processed, token = 0, ""
    for seed in ("1", "2", "3", "4", "5"):
        result = call(token, seed)
        processed, token = processed + result["processed"], result["cursor"]
        if token is None:
            break
    assert processed == 10
    assert all({"scaled", "added", "done", "tags"} <= item.keys() for item in tables.read(name))


def test_a_cursor_can_be_looked_into(tables: Tables) -> None:
    name = tables.make(
        [{"pk": {"B": bytes([number, 255])}, "sk": {"S": "日本"}} for number in range(12)],
        keys=(("pk", "B"), ("sk", "S")),
    )
    cursor = Table(name).edit_list(done, max_items=2, segments=1).cursor
    assert cursor is not None
    assert cursor.isascii()
    found = decode_cursor(cursor)
    assert (found.version, found.segments, found.done, found.job) == (1, 1, (), "")
    assert json.loads(found.open[0])["sk"] == {"S": "日本"}
    with pytest.raises(errors.BadToken):
        decode_cursor(cursor[:-3])


# -- results -------------------------------------------------------------------------------------------------------


def test_a_result_goes_through_json(tables: Tables) -> None:
    name = tables.make(
        [{"pk": {"B": b"\xff\x00"}, "sk": {"N": "1.50"}, "-version": {"N": "1"}}], keys=(("pk", "B"), ("sk", "N"))
    )

    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no")

    failed = Table(name).edit_list(map_fn)
    assert failed.failed[0]["key"] == {"pk": b"\xff\x00", "sk": Decimal("1.50")}
    document = json.loads(json.dumps(failed.as_json()))
    (shown,) = document["failed"]
    assert shown["key"]["pk"] == {"B": "/wA="}
    assert Decimal(shown["key"]["sk"]["N"]) == Decimal("1.5")
    assert (document["processed"], document["matched"], document["cursor"]) == (0, 1, None)
    # Typed keys are taken as they come back out of JSON, Python ones as they are in the result.
    assert Table(name).edit_by_keys([shown["key"]], done).processed == 1
    assert Table(name).edit_by_keys([failed.failed[0]["key"]], other).processed == 1


@pytest.mark.parametrize("operation", ["delete_by_keys", "put_items"])
def test_one_key_or_item_in_the_place_of_a_list_is_refused(operation: str, untouched: str) -> None:
    with pytest.raises(errors.BadArgument, match="'pk' is no"):
        getattr(Table(untouched), operation)({"pk": "k1"})


def test_no_keys_and_no_items_are_nothing_to_do(untouched: str) -> None:
    assert Table(untouched).edit_by_keys([], done) == MassOpResult()
    assert Table(untouched).put_items([]) == MassOpResult()


def test_keys_count_once_and_what_is_gone_is_skipped(name: str) -> None:
    keys = [{"pk": "k1"}, {"pk": {"S": "k1"}}, {"pk": "gone"}, {"pk": "k2", "n": 5}]
    result = Table(name).edit_by_keys(keys, done)
    assert (result.processed, result.skipped, result.matched) == (2, 1, 3)
    assert Table(name).delete_by_keys(keys).processed == 3


# -- declarations --------------------------------------------------------------------------------------------------


def test_declarations_come_from_the_file_and_keywords_win(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bulkexec.toml").write_text(
        f'[tables.{name}]\nversion_field = "-version"\ncreated_at_field = "created"\nsearchable = ["state"]\n'
        'descriptor = {pk = "k0"}\n'
    )
    monkeypatch.chdir(tmp_path)
    table = Table(name)
    assert (table.declarations.version_field, Table(name, version_field="v").declarations.version_field) == (
        "-version",
        "v",
    )
    assert table.edit_list(done, as_of="2026-01-04", search="OLD").processed == 1  # k2; k0 is the descriptor
    assert table.edit_list(other, as_of="2026-01-04", include_descriptor=True).processed == 3
    assert table.delete_list(all_items=True).processed == 9


def test_hidden_attributes_are_not_shown_and_stay(tables: Tables) -> None:
    name = tables.make([{"pk": {"S": "a"}, "_ttl": {"N": "5"}, "n": {"N": "1"}}])
    seen: list[dict[str, Any]] = []

    def map_fn(item: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(item))
        return {"pk": item["pk"], "new": True}

    assert Table(name, technical_prefix="_").edit_list(map_fn).processed == 1
    assert seen == [{"pk": "a", "n": Decimal(1)}]
    assert tables.read(name) == [{"pk": {"S": "a"}, "_ttl": {"N": "5"}, "new": {"BOOL": True}}]


def test_an_index_can_be_the_source(tables: Tables) -> None:
    index = {
        "IndexName": "by-owner",
        "KeySchema": [{"AttributeName": "owner", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    owned = [item | ({"owner": {"S": "ada"}} if number in (2, 5) else {}) for number, item in enumerate(rows(10))]
    name = tables.make(owned, GlobalSecondaryIndexes=[index], indexed=(("owner", "S"),))
    params = {"IndexName": "by-owner", "KeyConditionExpression": Key("owner").eq("ada")}
    result = Table(name).edit_list(done, params=params)
    assert (result.scanned, result.processed) == (2, 2)
    assert {key for key, state in state_of(tables, name).items() if state == "DONE"} == {"k2", "k5"}
    assert all("n" in item for item in tables.read(name))
    assert Table(name).delete_list(params={"IndexName": "by-owner"}, all_items=True).processed == 2
    assert len(tables.read(name)) == 8


def test_ready_made_maps(name: str, tables: Tables) -> None:
    chain = maps.compose(maps.rename("state", "status"), maps.drop("created"), maps.overlay(checked=True))
    assert Table(name).edit_list(chain).processed == 10
    assert all({"status", "checked"} <= item.keys() and "created" not in item for item in tables.read(name))
    moved = Table(name).move_list(maps.swap_prefix("pk", "k", "item#"), where="begins_with(pk, 'k')")
    assert moved.processed == 10
    assert tables.keys(name) == {f"item#{number}" for number in range(10)}


# -- outputs under keys of items that are worked on, too -----------------------------------------------------------


def onward(item: dict[str, Any]) -> dict[str, Any] | None:
    """To the key of the next item, once."""
    return None if item["state"] == "MOVED" else item | {"pk": f"k{item['n'] + 1}", "state": "MOVED"}


ONWARD: dict[str, Callable[[Table], MassOpResult]] = {
    "move": lambda table: table.move_list(onward, all_items=True, segments=1),
    "edit": lambda table: table.edit_list(onward, allow_key_change=True, segments=1),
}


@pytest.mark.parametrize("how", sorted(ONWARD))
def test_an_output_is_not_deleted_in_the_place_of_the_item_it_replaced(how: str, name: str, tables: Tables) -> None:
    result = ONWARD[how](Table(name))
    assert (result.matched, result.processed, keys(result.conflicts)) == (10, 1, [f"k{n}" for n in range(1, 10)])
    assert {item["pk"]["S"]: item["n"]["N"] for item in tables.read(name)} == {f"k{n + 1}": f"{n}" for n in range(10)}


LISTED: dict[str, Callable[..., MassOpResult]] = {
    "move": lambda table, keys, map_fn: table.move_by_keys(keys, map_fn),
    "edit": lambda table, keys, map_fn: table.edit_by_keys(keys, map_fn, allow_key_change=True),
    "clone": lambda table, keys, map_fn: table.clone_by_keys(keys, map_fn),
}


@pytest.mark.parametrize("how", sorted(LISTED))
def test_an_output_under_a_key_of_the_list_is_failed(how: str, name: str, tables: Tables) -> None:
    def swapped(item: dict[str, Any]) -> dict[str, Any]:
        return item | {"pk": {"k1": "k2", "k2": "k1"}.get(item["pk"], f"other#{item['pk']}")}

    before = tables.read(name)
    result = LISTED[how](Table(name), [{"pk": f"k{n}"} for n in range(1, 4)], swapped)
    assert (result.processed, keys(result.failed)) == (1, ["k1", "k2"])
    assert {each["reason"] for each in result.failed} == {"OutputMatches"}
    after = {item["pk"]["S"]: item for item in tables.read(name)}
    assert all(after[item["pk"]["S"]] == item for item in before if item["pk"]["S"] != "k3")
    assert after["other#k3"]["n"]["N"] == "3"
