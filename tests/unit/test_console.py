"""What people read: plan, progress and report in the words, the width and the calm of a run; sums that add up."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.command import Command
from bulkexec.commands.copy import Copy
from bulkexec.commands.count import Count
from bulkexec.commands.delete import Delete
from bulkexec.commands.find import Find
from bulkexec.console import (
    WIDTH,
    Progress,
    Terminal,
    confirm,
    duration,
    money,
)
from bulkexec.cost import GlueShape, Prices, estimate
from bulkexec.model import Counts, Expression, Failure, Index, KeyAttribute, Scope, Table
from bulkexec.plan import Options, Plan
from bulkexec.plan_text import plan_rows, say_plan
from bulkexec.report import Report
from bulkexec.report_text import identity, say_report

PRICES = Prices("list prices of us-east-1", 0.125, 0.625, 0.7, 0.00013, 0.00065, 0.00065, 0.44, 0.29)
KEYS = (KeyAttribute("pk", "S"),)
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders-prod"
INDEXES = tuple(Index(f"by-{name}", "GSI", KEYS, "ALL", 10, 10) for name in ("day", "customer"))
ORDERS = Table(
    "orders-prod", ARN, "eu-west-1", "111122223333", KEYS, "ACTIVE", 184_200_000, 227_633_266_688, "on-demand"
)
ORDERS = replace(ORDERS, indexes=INDEXES, recovery=True, recovery_from="2026-10-26T10:00:00+00:00")
FILTER = Expression("#n0 = :v0", {"#n0": "status"}, {":v0": {"S": "EXPIRED"}})
COMMANDS: list[Command] = [Count(), Find(), Delete()]


def plan_of(command: Command, table: Table = ORDERS, segments: int = 200, **options: object) -> Plan:
    work = command.plan(Scope(table, filter=FILTER))
    plan = Plan(command.name, {}, work, segments, command.mutates, Options(**options), where="status = 'EXPIRED'")  # type: ignore[arg-type]
    cost = estimate(table, work, command.mutates, PRICES, segments, GlueShape("G.1X", 20), plan.options)
    return replace(plan, estimate=cost)


def report_of(command: Command, **members: object) -> Report:
    counts = Counts(184_200_117, 12_391_906, 12_391_408 if command.mutates else 0, 498, 0, 0, 27.8e6, 49.6e6)
    members = {"folder": "s3://ops/jobs/7f3a91c2", **members}
    report = Report("7f3a91c2", command.name, "orders-prod", "finished", counts, 25_080.0)
    return replace(report, **members)  # type: ignore[arg-type]


def plan_text(plan: Plan, capsys: pytest.CaptureFixture[str], remarks: tuple[str, ...] = ()) -> str:
    runs_on = "Glue 5.1, 20 x G.1X, stops at 10 h"
    say_plan(Terminal(), plan, plan_rows(plan, "role/data-platform-ops (profile prod)", runs_on, remarks))
    return capsys.readouterr().out


def report_text(command: Command, capsys: pytest.CaptureFixture[str], report: Report, plan: Plan | None = None) -> str:
    say_report(Terminal(), plan or plan_of(command), command, report, PRICES)
    return capsys.readouterr().out


def too_wide(text: str) -> list[str]:
    return [line for line in text.splitlines() if len(line) > WIDTH]


# Plan


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_plan_says_what_where_how_much_and_what_is_left_out(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    # case C084 C152
    plan = plan_of(command, read_rate=500.0, max_items=1000)
    text = plan_text(plan, capsys, ("a remark",))
    assert text.startswith(f"PLAN  {command.name}  orders-prod")
    for words in ("111122223333 / eu-west-1 / orders-prod", "status = 'EXPIRED'", "a remark", f"plan {plan.id}"):
        assert words in text
    for row in ("Table", "Where", "Size", "Reads", "Cost", "Left out", "Runs on"):
        assert re.search(rf"^  {row} +\S", text, re.MULTILINE), row
    assert ("Undo" in text) is command.mutates
    assert "\x1b" not in text


def test_a_plan_is_at_most_100_columns_wide(capsys: pytest.CaptureFixture[str]) -> None:
    tables = [ORDERS, replace(ORDERS, billing="provisioned", read_capacity=100, write_capacity=50, item_count=0)]
    remark = "status <> 'x' also matches items in which status is of another type, but not those that have no status"
    texts = [plan_text(plan_of(command, table), capsys, (remark,)) for command in COMMANDS for table in tables]
    assert [line for text in texts for line in too_wide(text)] == []


def test_a_dry_run_says_that_it_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = plan_text(plan_of(Delete(), replace(ORDERS, recovery=False), dry_run=True), capsys)
    assert "none: --dry-run" in text
    assert "PITR is off" in text


def test_a_size_that_is_not_known_is_not_called_zero(capsys: pytest.CaptureFixture[str]) -> None:
    # case C046 C057
    text = plan_text(plan_of(Delete(), replace(ORDERS, item_count=0, size_bytes=0)), capsys)
    assert "not known yet" in text
    assert "0 items," not in text.replace("says 0 items,", "")


def test_text_with_the_marks_of_a_console_library_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    plan = replace(plan_of(Count()), where="tag = '[red]:smile:[/red]'")
    assert "[red]:smile:[/red]" in plan_text(plan, capsys)


# Confirmation


@pytest.mark.parametrize(
    ("typed", "sure"), [("orders-prod", True), ("yes", False), ("", False), ("ORDERS-PROD", False), (ARN, False)]
)
def test_only_the_tables_name_confirms(typed: str, sure: bool, capsys: pytest.CaptureFixture[str]) -> None:
    # case C151
    assert confirm(Terminal(), ORDERS, lambda question: typed) is sure
    refusal = f'Not confirmed: got "{typed}", expected "orders-prod". Nothing was written.\n'
    assert capsys.readouterr().out == ("" if sure else refusal)


# Progress


@pytest.fixture
def line_after(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The last progress line after some updates of (counts, segments done)."""

    def line_after(plan: Plan, *updates: tuple[Counts, int]) -> str:
        with Progress(Terminal(), plan, "7f3a91c2", "deleted") as progress:
            for number, (counts, done) in enumerate(updates):
                progress.update(f"STATE{number}", counts, done)
        return capsys.readouterr().out.splitlines()[-1]

    return line_after


SMALL = replace(ORDERS, item_count=1000)


@pytest.mark.parametrize(
    ("scanned", "done", "percent", "known"),
    [
        (0, 0, "0.0%", False),
        (9, 0, "0.9%", False),
        (500, 2, "50.0%", True),
        (999, 199, "99.9%", True),
        (1000, 199, "99.9%", True),
        (5000, 0, "99.9%", True),  # more items than DescribeTable knew
        (5000, 200, "100.0%", True),
        (0, 200, "100.0%", True),
    ],
)
def test_time_left_is_unknown_below_1_percent_and_100_percent_is_the_end(
    line_after: Callable[..., str], scanned: int, done: int, percent: str, known: bool
) -> None:
    line = line_after(plan_of(Delete(), SMALL), (Counts(), 0), (Counts(scanned=scanned), done))
    assert f" {percent} " in line
    assert ("left=unknown" in line) is not known


def test_a_resumed_run_does_not_take_earlier_work_for_its_own_speed(line_after: Callable[..., str]) -> None:
    before = Counts(scanned=500, write_units=1e9)
    assert "left=unknown" in (line := line_after(plan_of(Delete(), SMALL), (before, 100)))
    assert "units/s=0" in line


def test_without_a_terminal_a_line_comes_on_each_change_of_state_only(capsys: pytest.CaptureFixture[str]) -> None:
    # case C154
    with Progress(Terminal(), plan_of(Delete()), "7f3a91c2", "deleted") as progress:
        for state in ["STARTING", "RUNNING", *["RUNNING"] * 50, "STOPPING"]:
            progress.update(state, Counts(58_023_000, 3_906_212, 3_906_000, 212), 63)
    text = capsys.readouterr().out
    assert [line.split()[1] for line in text.splitlines()][-2:] == ["running", "stopping"]
    assert len(text.splitlines()) <= 3
    assert "\x1b" not in text


def test_a_progress_line_is_at_most_100_columns_wide(line_after: Callable[..., str]) -> None:
    counts = Counts(58_023_000, 3_906_212, 3_906_000, 212)
    assert too_wide(line_after(plan_of(Delete(), write_rate=2000.0), (counts, 63))) == []


def test_json_output_keeps_text_off_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal(json_output=True)
    terminal.say("for people")
    terminal.complain("error BX100: no")
    terminal.document(b'{"a":1}')
    out, err = capsys.readouterr()
    assert out == '{"a":1}\n'
    assert err == "for people\nerror BX100: no\n"
    assert not terminal.interactive


# Report


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 10**9), st.integers(0, 10**9))
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_was_read_is_what_happened_to_it(
    command: Command, dry_run: bool, others: int, processed: int, skipped: int, failed: int
) -> None:
    matched = processed + skipped + failed
    writes = command.mutates and not dry_run
    outcome = {"processed": processed, "skipped": skipped, "failed": failed} if writes else {}
    line = identity(plan_of(command, dry_run=dry_run), command, Counts(others + matched, matched, **outcome))
    total, *parts = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", line))
    assert total == sum(parts) == others + matched


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_report_says_where_things_are(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    text = report_text(command, capsys, report_of(command))
    assert text.strip().startswith(f"DONE  {command.name} orders-prod   job 7f3a91c2   6 h 58 min")
    assert "s3://ops/jobs/7f3a91c2/report.json" in text
    assert "s3://ops/jobs/7f3a91c2/skipped/" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("command", [Find(), Delete()], ids=lambda command: command.name)
def test_long_keys_and_rows_are_cut(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    # case C076 C157
    rows = tuple('{"pk":{"S":"' + "x" * length + '"}}' for length in (5, 300, 40_000))
    failures = tuple(Failure({"pk": {"S": "ä" * 500}}, "ValidationError", "w" * 500) for _ in range(9))
    report = report_of(command, failures=failures, preview=rows if command.keeps_rows else ())
    text = report_text(command, capsys, report)
    assert [line for line in too_wide(text) if "xxx" in line or "äää" in line] == []
    assert text.count("ValidationError") <= 5, "the first few keys only"


def test_a_report_is_at_most_100_columns_wide(capsys: pytest.CaptureFixture[str]) -> None:
    assert too_wide(report_text(Delete(), capsys, report_of(Delete()))) == []


def test_a_preview_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    # case C153
    report = report_of(Find(), preview=("{}",) * 10, results=None)
    text = report_text(Find(), capsys, report)
    assert "12,391,896 more are not shown" in text


@pytest.mark.parametrize(
    ("status", "head"), [("failed", "FAILED"), ("cancelled", "STOPPED"), ("capped", "STOPPED AT CAP")]
)
def test_what_did_not_finish_says_how_to_go_on(status: str, head: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(Delete(), status=status, cursor="abc", error=("error BX303: gave up",))
    text = report_text(Delete(), capsys, report)
    assert text.strip().startswith(head)
    assert "bulkexec resume 7f3a91c2" in text
    assert "error BX303: gave up" in text


def test_a_finished_run_has_nothing_to_go_on_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert "resume" not in report_text(Delete(), capsys, report_of(Delete()))


def test_a_dry_run_says_what_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(Delete(), status="dry-run", counts=Counts(10, 4))
    text = report_text(Delete(), capsys, report, plan_of(Delete(), dry_run=True))
    assert re.search(r"would be +deleted: 4 items; nothing was written", text)


def test_a_dry_run_does_not_say_that_it_knows_which_keys_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    command = Copy(to="archive", if_not_exists=True)
    report = report_of(command, status="dry-run", counts=Counts(10, 9, skipped=2, failed=1))
    text = report_text(command, capsys, report, plan_of(command, dry_run=True))
    assert re.search(r"would be +copied: at most 6 items, skipped 2, failed 1 \(which keys are taken", text)


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0, "$0"), (0.00001, "under $0.0001"), (0.0123, "$0.0123"), (8.0, "$8.00"), (64.96, "$64.96"), (1234.5, "$1,234")],
)
def test_money(usd: float, text: str) -> None:
    assert money(usd) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (12.34, "12.3 s"), (243, "4 min 3 s"), (25_080, "6 h 58 min"), (90_000, "25 h 0 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_no_duration_is_rounded_up_to_sixty_seconds() -> None:
    assert duration(59.96) != "60.0 s"


@pytest.mark.parametrize("status", ["finished", "dry-run", "failed", "cancelled", "capped"])
def test_the_result_of_what_did_not_finish_is_so_far(status: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = report_text(Count(), capsys, report_of(Count(), status=status))
    assert ("items match so far" in text) is (status in ("failed", "cancelled", "capped"))


def test_after_a_token_plan_and_report_say_what_they_count(capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(Find(), results="s3://b/p/AWSDynamoDB/2")
    say_plan(Terminal(), plan, plan_rows(plan, "role/x", "this process", (), after_token=True))
    say_report(Terminal(), plan, Find(), report_of(Find()), PRICES, after_token=True)
    text = capsys.readouterr().out
    assert re.search(r"Results +s3://b/p/AWSDynamoDB/2\n +a second folder", text)
    assert re.search(r"Continues +where the resume token points", text)
    assert re.search(r"counts +of this call only", text)
    assert too_wide(text) == []
