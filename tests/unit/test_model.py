"""Plans and reports survive JSON exactly; a fingerprint is of what may not change; exit codes."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec.model import (
    Counts,
    DataFile,
    Expression,
    Failure,
    Index,
    KeyAttribute,
    Scope,
    SegmentRecord,
    Statement,
    Table,
    Work,
)
from bulkexec.plan import Estimate, Options, Plan
from bulkexec.report import EXIT_CODES, Report, Status

KEYS = (KeyAttribute("pk", "S"), KeyAttribute("sk", "N"))
ORDERS = Table(
    "orders", "arn:aws:dynamodb:eu-west-1:1:table/orders", "eu-west-1", "1", KEYS, "ACTIVE", 10, 5000, "on-demand"
)
PLAN = Plan("delete", {"all": False}, Work(Scope(ORDERS)), 8, True, Options(), where="a = 1")
QUICK = settings(max_examples=40, deadline=None)
REPORT = Report("j1", "delete", "orders", "finished", Counts(), 1.0)

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
natural = st.integers(0, 10**15)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts
arguments = st.dictionaries(texts, scalars | st.lists(scalars, max_size=2), max_size=3)
values = st.recursive(
    st.builds(lambda text: {"S": text}, texts) | st.just({"N": "1E+100"}) | st.just({"B": "AP8="}),
    lambda inner: st.builds(lambda items: {"L": items}, st.lists(inner, max_size=2)),
    max_leaves=3,
)
expressions = st.builds(
    Expression, texts, st.dictionaries(texts, texts, max_size=2), st.dictionaries(texts, values, max_size=2)
)
keys = st.builds(KeyAttribute, texts, st.sampled_from("SNB"))
key_schemas = st.lists(keys, min_size=1, max_size=2).map(tuple)
indexes = st.builds(Index, texts, st.sampled_from(["GSI", "LSI"]), key_schemas, st.sampled_from(["ALL", "INCLUDE"]))
tables = st.builds(
    Table,
    name=texts,
    arn=texts,
    region=texts,
    account=texts,
    keys=key_schemas,
    status=texts,
    item_count=natural,
    size_bytes=natural,
    billing=st.sampled_from(["on-demand", "provisioned"]),
    read_capacity=finite,
    indexes=st.lists(indexes, max_size=2).map(tuple),
    replicas=st.lists(texts, max_size=2).map(tuple),
)
statements = st.builds(Statement, texts, st.lists(values, max_size=2).map(tuple))
scopes = st.builds(
    Scope, tables, st.none() | expressions, st.none() | expressions, st.none() | expressions, st.none() | statements
)
works = st.builds(Work, scopes, st.lists(texts, max_size=2).map(tuple), st.booleans(), st.booleans(), st.booleans())
options = st.builds(Options, st.none() | finite, st.none() | finite, st.none() | natural, st.booleans(), texts)
estimates = st.builds(Estimate, finite, st.tuples(finite, finite), st.none() | st.tuples(finite, finite))
plans = st.builds(
    Plan, texts, arguments, works, st.integers(1, 10**6), st.booleans(), options, st.none() | estimates, texts
)
counts = st.builds(Counts, *[natural] * 6, finite, finite, natural)
failures = st.builds(Failure, st.dictionaries(texts, values, min_size=1, max_size=2), texts, texts)
reports = st.builds(
    Report,
    texts,
    texts,
    texts,
    st.sampled_from(sorted(EXIT_CODES)),
    counts,
    finite,
    cursor=st.none() | texts,
    failures=st.lists(failures, max_size=2).map(tuple),
    preview=st.lists(texts, max_size=2).map(tuple),
    error=st.lists(texts, max_size=2).map(tuple),
)


@QUICK
@given(plans)
def test_a_plan_is_the_same_after_its_json(plan: Plan) -> None:
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.fingerprint == plan.fingerprint


def test_a_plan_has_the_same_name_when_it_is_resumed() -> None:
    assert Plan.from_json(PLAN.to_json()).id == PLAN.id


@QUICK
@given(reports)
def test_a_report_is_the_same_after_its_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report


def test_a_report_is_one_flat_object_with_the_members_that_scripts_read() -> None:
    flat = msgspec.json.decode(replace(REPORT, counts=Counts(scanned=9, matched=2, processed=2)).to_json())
    promised = (
        "job_id command status scanned matched processed skipped failed conflicts read_units write_units "
        "estimated_cost_usd duration_seconds cursor results exit_code"
    )
    assert set(promised.split()) <= set(flat)
    assert (flat["scanned"], flat["matched"], flat["exit_code"]) == (9, 2, 0)
    assert "counts" not in flat


@QUICK
@given(st.lists(st.builds(Counts, *[natural] * 6, st.integers(0, 10**6), st.integers(0, 10**6), natural), max_size=4))
def test_counts_add_up_in_every_member(several: list[Counts]) -> None:
    total = Counts()
    for each in several:
        total += each
    for name in Counts.__dataclass_fields__:
        assert getattr(total, name) == sum(getattr(each, name) for each in several), name


def test_handled_items_are_those_that_something_became_of() -> None:
    assert Counts(scanned=99, matched=50, processed=1, skipped=20, failed=300).handled == 321


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, command="count"),
        replace(PLAN, arguments={"all": True}),
        replace(PLAN, arguments={"all": False, "unguarded": False}),
        replace(PLAN, where="a = 2"),
        replace(PLAN, where=""),
        PLAN.with_options(dry_run=True),
        replace(PLAN, work=Work(Scope(replace(ORDERS, arn=ORDERS.arn.replace("eu-west-1", "eu-west-2"))))),
        replace(PLAN, work=Work(Scope(replace(ORDERS, keys=KEYS[:1])))),
        replace(PLAN, work=Work(Scope(replace(ORDERS, keys=(KEYS[0], KeyAttribute("sk", "S")))))),
    ],
    ids=["command", "argument", "more-arguments", "where", "no-where", "dry-run", "table", "key-schema", "key-type"],
)
def test_the_fingerprint_changes_with_what_makes_it_another_operation(other: Plan) -> None:
    assert other.fingerprint != PLAN.fingerprint


@pytest.mark.parametrize(
    "same",
    [
        PLAN.with_options(read_rate=5.0),
        PLAN.with_options(write_rate=0.0),
        PLAN.with_options(max_items=3),
        PLAN.with_options(strategy="sequential"),
        PLAN.with_options(checkpoint_seconds=1.0),
        PLAN.with_options(results="s3://elsewhere/AWSDynamoDB/1"),
        replace(PLAN, segments=16),
        replace(PLAN, estimate=Estimate(1.0, (0, 1), None)),
        replace(PLAN, work=Work(Scope(replace(ORDERS, item_count=99, size_bytes=1, status="UPDATING", recovery=True)))),
        replace(PLAN, work=Work(Scope(replace(ORDERS, billing="provisioned", read_capacity=7)))),
    ],
    ids=["read", "write", "cap", "strategy", "interval", "results", "segments", "estimate", "facts", "capacity"],
)
def test_the_fingerprint_stays_with_what_may_change_between_runs(same: Plan) -> None:
    assert same != PLAN
    assert same.fingerprint == PLAN.fingerprint


def test_the_order_of_arguments_does_not_matter() -> None:
    assert (
        replace(PLAN, arguments={"a": 1, "b": 2}).fingerprint == replace(PLAN, arguments={"b": 2, "a": 1}).fingerprint
    )


@pytest.mark.parametrize(
    ("status", "outcome", "code"),
    [
        ("finished", {}, 0),
        ("finished", {"skipped": 5}, 0),
        ("finished", {"failed": 1}, 3),
        ("finished", {"conflicts": 1}, 3),
        ("dry-run", {}, 0),
        ("dry-run", {"failed": 1}, 3),
        ("failed", {}, 1),
        ("failed", {"failed": 9}, 1),
        ("capped", {"failed": 9}, 4),
        ("cancelled", {"failed": 9}, 130),
    ],
)
def test_exit_codes(status: Status, outcome: dict[str, int], code: int) -> None:
    assert replace(REPORT, status=status, counts=Counts(**outcome)).exit_code == code


@pytest.mark.parametrize(
    ("record", "started"),
    [
        (SegmentRecord(1), False),
        (SegmentRecord(1, last_evaluated_key='{"pk":{"S":"a"}}'), True),
        (SegmentRecord(1, done=True), True),
    ],
)
def test_a_segment_has_started_once_a_page_was_acknowledged(record: SegmentRecord, started: bool) -> None:
    assert record.started is started


def test_a_segments_record_survives_json_with_files_and_failures() -> None:
    record = SegmentRecord(
        7,
        Counts(scanned=3, read_units=0.5),
        '{"pk":{"B":"AP8="},"ä":{"N":"1E+2"}}',
        True,
        (DataFile("data/0.json.gz", 3, "bWQ1", "etag"),),
        (Failure({"pk": {"S": "\u2028"}}, "ValidationError", "why"),),
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=SegmentRecord) == record


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"command":1}', PLAN.to_json()[:-1]])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Plan.from_json(data)


def test_key_names_come_partition_key_first() -> None:
    assert ORDERS.key_names == ("pk", "sk")


@pytest.mark.parametrize("condition", [None, Expression("#k = :k", {"#k": "pk"}, {":k": {"S": "a"}})])
def test_a_scope_is_pinned_by_its_key_condition(condition: Any) -> None:
    assert Scope(ORDERS, key_condition=condition).pinned is (condition is not None)


def test_the_fingerprint_changes_when_the_table_is_made_again() -> None:
    again = replace(PLAN, work=Work(Scope(replace(ORDERS, id="another"))))
    same = replace(PLAN, work=Work(Scope(replace(ORDERS))))
    assert again.fingerprint != same.fingerprint
