"""The page pipeline on a scripted service behind the wire: its order, its checkpoints, its stops and its counts."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from bulkexec import errors
from bulkexec.budgets import TableBudgets
from bulkexec.command import Command
from bulkexec.commands.count import Count
from bulkexec.commands.delete import Delete
from bulkexec.commands.find import Find
from bulkexec.engine import PREVIEW_ROWS, Cap, Run, Spills, run_segment, run_segments
from bulkexec.model import Counts, Expression, KeyAttribute, Scope, Segment, SegmentRecord, Statement, Table
from bulkexec.plan import Options, Plan
from bulkexec.rate import Budget
from bulkexec.reader import Reader
from bulkexec.s3 import Location, Objects, Spill
from bulkexec.wire import Answering, Fault, Refusals, Retry, Retrying
from bulkexec.writer import Writer

FILTER = Expression("#n0 = :v0", {"#n0": "state"}, {":v0": {"S": "OLD"}})
TABLE = Table("orders", "arn:orders", "eu-west-1", "1", (KeyAttribute("pk", "S"),), "ACTIVE", 100, 819_200, "on-demand")
SCOPE = Scope(TABLE, filter=FILTER, guard=FILTER, guard_statement=Statement('"state" = ?', ({"S": "OLD"},)))
EVERY_PAGE, SELDOM = Options(checkpoint_seconds=0.0), Options(checkpoint_seconds=999.0)
PAGE_ITEMS = 2


class Clock:
    """Time that only sleeping moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Service:
    """A table cut into segments, behind `call(operation, body)`. Every request and every file goes into `log`.

    A page evaluates PAGE_ITEMS items, or Limit; those that are OLD match. `faults` are raised in turn by an operation;
    `refuse` says what becomes of a guarded delete; `before` is called before each answer.
    """

    segments: dict[int, list[dict[str, Any]]]
    log: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, list[Fault | None]] = field(default_factory=dict)
    refuse: Callable[[str], str] = lambda pk: ""
    before: Callable[[str, dict[str, Any]], None] = lambda operation, request: None
    clock: Clock = field(default_factory=Clock)

    def begin(self, operation: str, body: bytes) -> Answering:
        return partial(self.call, operation, body)

    def call(self, operation: str, body: bytes) -> bytes:
        request = msgspec.json.decode(body)
        self.log.append(operation)
        self.bodies.append(request)
        self.before(operation, request)
        faults = self.faults.get(operation, [])
        if faults and (fault := faults.pop(0)) is not None:
            raise fault
        return msgspec.json.encode(getattr(self, operation)(request))

    def Scan(self, request: dict[str, Any]) -> dict[str, Any]:
        items = self.segments[request["Segment"]]
        key = request.get("ExclusiveStartKey", {}).get("pk", {}).get("S")
        start = next((place + 1 for place, item in enumerate(items) if item["pk"]["S"] == key), 0)
        page = items[start : start + min(PAGE_ITEMS, request.get("Limit", PAGE_ITEMS))]
        matched = [item for item in page if item["state"]["S"] == "OLD"]
        answer: dict[str, Any] = {"Count": len(matched), "ScannedCount": len(page), "Items": matched}
        answer["ConsumedCapacity"] = {"CapacityUnits": 0.5}
        if start + len(page) < len(items):
            answer["LastEvaluatedKey"] = {"pk": page[-1]["pk"]}
        return answer

    def BatchExecuteStatement(self, request: dict[str, Any]) -> dict[str, Any]:
        codes = [self.refuse(each["Parameters"][0]["S"]) for each in request["Statements"]]
        answers = [{"Error": {"Code": code, "Message": "scripted"}} if code else {} for code in codes]
        return {"Responses": answers, "ConsumedCapacity": [{"CapacityUnits": float(len(codes))}]}

    def put_object(self, **request: Any) -> dict[str, Any]:
        self.log.append("put")
        return {"ETag": '"etag"'}


@dataclass
class Checkpoints:
    """Keeps every record that was ever saved, and says so in the service's log."""

    service: Service
    saved: list[SegmentRecord] = field(default_factory=list)
    before: dict[int, SegmentRecord] = field(default_factory=dict)

    def load(self, number: int) -> SegmentRecord | None:
        return self.before.get(number)

    def save(self, record: SegmentRecord) -> None:
        self.service.log.append("save")
        self.saved.append(record)


def items(segment: int, count: int, state: Callable[[int], str] = lambda number: "OLD") -> list[dict[str, Any]]:
    return [{"pk": {"S": f"{segment}-{n:03d}"}, "state": {"S": state(n)}} for n in range(count)]


def a_run(
    service: Service,
    command: Command | None = None,
    *,
    options: Options = EVERY_PAGE,
    cap: Cap | None = None,
    stop: Callable[[], bool] = lambda: False,
    threads: int = 1,
    before: dict[int, SegmentRecord] | None = None,
) -> tuple[Run, Checkpoints]:
    command, clock = command or Delete(), service.clock
    plan = Plan(command.name, {}, command.plan(SCOPE), len(service.segments), command.mutates, options)
    retry = Retry(60.0, clock, clock.sleep)
    calls = Retrying(service, Refusals("orders", "eu-west-1"), retry)
    checkpoints = Checkpoints(service, before=before or {})
    objects = Objects(SimpleNamespace(client=lambda *_, **__: service), "eu-west-1")  # type: ignore[arg-type]

    def spills(record: SegmentRecord) -> Spills:
        kept = Spill(objects, Location("bucket", "data"), record.number, len(record.files))
        return Spills(rows=kept) if command.keeps_rows else Spills()

    run = Run(
        plan=plan,
        command=command,
        reader=Reader(calls, plan.work),
        writer=Writer(calls, plan.work, False, retry),
        read_budget=Budget(options.read_rate, clock=clock, sleep=clock.sleep),
        write_budget=TableBudgets(Budget(options.write_rate, clock=clock, sleep=clock.sleep), {}),
        checkpoints=checkpoints,
        cap=cap or Cap(None, lambda handled: 0),
        stop=stop,
        spills=spills,
        threads=threads,
    )
    return run, checkpoints


def capped(max_items: int) -> Cap:
    handled = [0]

    def add(more: int) -> int:
        handled[0] += more
        return handled[0]

    return Cap(max_items, add)


# Order


def test_a_page_is_read_then_written_then_checkpointed() -> None:
    service = Service({0: items(0, 4)})
    run, checkpoints = a_run(service)
    record = run_segment(run, Segment(0, 1))
    assert service.log == ["Scan", "BatchExecuteStatement", "save"] * 2
    assert (record.done, record.counts.scanned, record.counts.processed) == (True, 4, 4)
    assert checkpoints.saved[-1] == record


def test_rows_are_in_s3_before_the_checkpoint_that_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkexec.engine.ROWS_CHECKPOINT_SECONDS", 0.0)
    service = Service({0: items(0, 6, lambda n: "OLD" if n % 2 else "NEW")})
    run, checkpoints = a_run(service, Find())
    run_segment(run, Segment(0, 1))
    assert service.log == ["Scan", "put", "save"] * 3
    for record in checkpoints.saved:
        assert sum(file.items for file in record.files) == record.counts.matched
    assert len({file.key for file in checkpoints.saved[-1].files}) == 3


def test_between_checkpoints_pages_go_on() -> None:
    service = Service({0: items(0, 8)})
    run_segment(a_run(service, options=SELDOM)[0], Segment(0, 1))
    assert service.log.index("save") == len(service.log) - 1


def test_a_segment_that_is_done_is_not_read_again() -> None:
    service = Service({0: items(0, 4)})
    done = SegmentRecord(0, Counts(scanned=4), done=True)
    assert run_segment(a_run(service, before={0: done})[0], Segment(0, 1)) == done
    assert service.log == []


def test_a_segment_goes_on_behind_its_checkpoint_and_adds_to_its_counts() -> None:
    service = Service({0: items(0, 5)})
    before = SegmentRecord(0, Counts(scanned=3, matched=3, processed=3), '{"pk":{"S":"0-002"}}')
    record = run_segment(a_run(service, before={0: before})[0], Segment(0, 1))
    assert service.bodies[0]["ExclusiveStartKey"] == {"pk": {"S": "0-002"}}
    assert (record.counts.scanned, record.counts.processed, record.done) == (5, 5, True)


# Checkpoints count what was acknowledged


@pytest.mark.parametrize("interval", [0.0, 999.0])
def test_writes_that_were_not_acknowledged_are_in_no_checkpoint(interval: float) -> None:
    service = Service({0: items(0, 6)})
    service.faults["BatchExecuteStatement"] = [None, Fault("AccessDeniedException", "no more")]
    run, checkpoints = a_run(service, options=Options(checkpoint_seconds=interval))
    with pytest.raises(errors.AccessDenied):
        run_segment(run, Segment(0, 1))
    last = checkpoints.saved[-1]
    assert (last.counts.scanned, last.counts.processed) == (2, 2)
    assert (last.last_evaluated_key, last.done) == ('{"pk":{"S":"0-001"}}', False)


def test_rows_that_could_not_be_kept_are_in_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkexec.engine.ROWS_CHECKPOINT_SECONDS", 0.0)
    service = Service({0: items(0, 6)})
    run, checkpoints = a_run(service, Find())
    puts = iter([{"ETag": '"etag"'}])
    monkeypatch.setattr(service, "put_object", lambda **_: next(puts))
    with pytest.raises(StopIteration):  # what S3 raises once it is gone
        run_segment(run, Segment(0, 1))
    assert [record.counts.matched for record in checkpoints.saved] == [2]


def test_progress_is_told_each_pages_counts_once() -> None:
    run, _ = a_run(Service({0: items(0, 5)}))
    told: list[Counts] = []
    run.progress = told.append
    record = run_segment(run, Segment(0, 1))
    assert len(told) == 3
    assert sum(told, Counts()) == record.counts


# Stops


def test_a_stop_finishes_the_page_that_was_begun() -> None:
    service = Service({0: items(0, 8)})
    run, checkpoints = a_run(service, stop=lambda: service.log.count("Scan") >= 2)
    record = run_segment(run, Segment(0, 1))
    assert service.log == ["Scan", "BatchExecuteStatement", "save"] * 2
    assert (record.counts.processed, record.done) == (4, False)
    assert checkpoints.saved[-1] == record


def test_a_stop_while_a_read_is_throttled_keeps_what_was_done() -> None:
    service = Service({0: items(0, 8)})
    service.faults["Scan"] = [None, *[Fault("ThrottlingException", "slow")] * 50]
    run, checkpoints = a_run(service, stop=lambda: service.log.count("Scan") >= 4)
    record = run_segment(run, Segment(0, 1))
    assert (record.counts.processed, record.done) == (2, False)
    assert checkpoints.saved[-1] == record
    assert service.log.count("Scan") == 4


@pytest.mark.parametrize(("command", "scanned"), [(Delete(), 4), (Find(), 4), (Count(), 4)])
def test_a_cap_stops_at_the_first_page_boundary_at_or_past_it(command: Command, scanned: int) -> None:
    service = Service({0: items(0, 20)})
    run, _ = a_run(service, command, cap=capped(3))
    record = run_segment(run, Segment(0, 1))
    assert (record.counts.scanned, record.done, run.cap.reached) == (scanned, False, True)


def test_a_small_cap_makes_small_pages() -> None:
    service = Service({0: items(0, 20)})
    record = run_segment(a_run(service, cap=capped(1))[0], Segment(0, 1))
    assert [body["Limit"] for body in service.bodies if "Segment" in body] == [1]
    assert record.counts.processed == 1


def test_a_cap_counts_what_is_handled_not_what_is_read() -> None:
    service = Service({0: items(0, 20, lambda n: "OLD" if n >= 10 else "NEW")})
    record = run_segment(a_run(service, cap=capped(4))[0], Segment(0, 1))
    assert (record.counts.scanned, record.counts.processed) == (14, 4)


def test_a_cap_is_of_all_segments_together() -> None:
    service = Service({number: items(number, 10) for number in range(4)})
    run, _ = a_run(service, cap=capped(6))
    assert sum(record.counts.processed for record in run_segments(run, range(4))) == 6


def test_a_dry_run_counts_and_writes_nothing() -> None:
    # case C152
    service = Service({0: items(0, 9, lambda n: "OLD" if n % 3 else "NEW")})
    record = run_segment(a_run(service, options=Options(dry_run=True))[0], Segment(0, 1))
    assert set(service.log) == {"Scan", "save"}
    assert record.counts == Counts(scanned=9, matched=6, read_units=2.5)


# Many segments


def test_every_segment_is_walked_once_whatever_the_threads() -> None:
    # case C011 C047
    service = Service({number: items(number, number) for number in range(9)})
    run, checkpoints = a_run(service, threads=4, options=SELDOM)
    records = run_segments(run, range(9))
    assert sorted(record.number for record in records) == list(range(9))
    assert sum(record.counts.processed for record in records) == sum(range(9))
    assert len(checkpoints.saved) == 9


def test_an_error_in_one_thread_stops_the_others_at_a_page_boundary_and_keeps_their_checkpoints() -> None:
    service = Service({0: items(0, 4), 1: items(1, 2000)})
    begun, failing = threading.Event(), threading.Event()

    def before(operation: str, request: dict[str, Any]) -> None:
        further = operation == "Scan" and "ExclusiveStartKey" in request
        if further and request["Segment"] == 0:
            assert begun.wait(10)
            failing.set()
            raise Fault("AccessDeniedException", "no more")
        if further:
            begun.set()
            assert failing.wait(10)
            time.sleep(0.005)

    service.before = before
    run, checkpoints = a_run(service, threads=2, options=SELDOM)
    with pytest.raises(errors.AccessDenied):
        run_segments(run, [0, 1, 2, 3])
    records = {record.number: record for record in checkpoints.saved}
    assert set(records) == {0, 1}
    assert records[0].counts.processed == 2
    assert not records[1].done
    deleted = sum(len(body["Statements"]) for body in service.bodies if "Statements" in body)
    assert sum(record.counts.processed for record in records.values()) == deleted


# Rates


@pytest.mark.parametrize(
    ("options", "limit"),
    [(Options(), None), (Options(read_rate=10), 5), (Options(write_rate=8), 1), (Options(read_rate=0.5), 1)],
)
def test_under_a_limit_a_page_is_about_a_second_of_one_threads_share(options: Options, limit: int) -> None:
    # 8 KiB an item: one read unit (eventually consistent), eight write units
    service = Service({0: items(0, 2)})
    run_segment(a_run(service, options=options, threads=2)[0], Segment(0, 1))
    assert service.bodies[0].get("Limit") == limit


def test_a_limit_holds_for_what_was_metered() -> None:
    # case C053: 60 deletes of one unit at 2 units a second cannot be over before 29 s
    service = Service({0: items(0, 60)})
    record = run_segment(a_run(service, options=Options(write_rate=2.0))[0], Segment(0, 1))
    assert record.counts.write_units == 60
    assert 60 / 2 * 1.05 + 2 > service.clock.now > 28


# What was read is what happened to it


def test_every_matched_item_is_processed_skipped_or_failed() -> None:
    fates = ["", "ConditionalCheckFailed", "ValidationError"]
    service = Service({0: items(0, 30, lambda n: "OLD" if n % 4 else "NEW")})
    service.refuse = lambda pk: fates[int(pk[-3:]) % 3]
    record = run_segment(a_run(service)[0], Segment(0, 1))
    counts = record.counts
    matching = [n for n in range(30) if n % 4]
    assert (counts.scanned, counts.matched) == (30, len(matching))
    assert counts.processed == sum(n % 3 == 0 for n in matching)
    assert counts.skipped == sum(n % 3 == 1 for n in matching)
    assert counts.failed == sum(n % 3 == 2 for n in matching)
    assert counts.matched == counts.processed + counts.skipped + counts.failed
    assert {failure.key["pk"]["S"] for failure in record.failures} == {f"0-{n:03d}" for n in matching if n % 3 == 2}


def test_a_record_names_only_the_first_failures() -> None:
    # case C076
    service = Service({0: items(0, 60)})
    service.refuse = lambda pk: "ValidationError"
    record = run_segment(a_run(service)[0], Segment(0, 1))
    assert (record.counts.failed, len(record.failures)) == (60, 20)


def test_the_preview_is_the_first_rows_and_bounded() -> None:
    run, _ = a_run(Service({0: items(0, 60)}), Find())
    run_segment(run, Segment(0, 1))
    assert [msgspec.json.decode(row) for row in run.preview.rows] == items(0, PREVIEW_ROWS)
