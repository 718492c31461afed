"""A plan as a file, and when it must not be run any more."""

from dataclasses import replace

import msgspec
import pytest

from bulkexec import __version__, errors
from bulkexec.approval import approve, changes, read_approval, require_unchanged, tables_of
from bulkexec.model import Expression, Index, KeyAttribute, Scope, Table, Work
from bulkexec.plan import CostLimit, Options, Plan

KEYS = (KeyAttribute("pk", "S"),)
BY_DATE = Index("by-date", "GSI", (KeyAttribute("date", "N"),), "INCLUDE", 10, 1000, included=("note",))
ORDERS = Table(
    "orders",
    "arn:aws:dynamodb:eu-west-1:1:table/orders",
    "eu-west-1",
    "1",
    KEYS,
    "ACTIVE",
    1000,
    1_000_000,
    "on-demand",
    indexes=(BY_DATE,),
    recovery=True,
    id="abc",
)
FILTER = Expression("#n0 = :v0", {"#n0": "status"}, {":v0": {"S": "EXPIRED"}})
PLAN = Plan(
    "delete",
    {"all": False},
    Work(Scope(ORDERS, filter=FILTER)),
    16,
    True,
    Options(read_rate=6000.0, write_rate=2000.0, max_items=7, cost_limit=CostLimit(5.0, 1e-7, 6e-7)),
    where="status = 'EXPIRED'",
)


def test_a_plan_comes_back_as_it_was():
    approval = approve(__version__, PLAN, "Glue 5.1, 2 x G.1X", "ab12", [("Write rate", "2,000")], ["a remark"])
    assert read_approval(approval.to_json(), "plan.json", __version__) == approval
    assert read_approval(approval.to_json(), "plan.json", __version__).plan.id == PLAN.id
    assert tables_of(PLAN) == (ORDERS,)


@pytest.mark.parametrize("data", [b"", b"no json", b"[]", b"{}", b'{"bulkexec": 1, "format": 1}', b"\xff\xfe"])
def test_what_is_no_plan_is_refused(data):
    with pytest.raises(errors.PlanStale, match=r"plan\.json is no plan") as caught:
        read_approval(data, "plan.json", __version__)
    assert caught.value.exit_code == 2


def changed(**members):
    document = msgspec.json.decode(approve(__version__, PLAN, "this process").to_json())
    return msgspec.json.encode(document | members)


@pytest.mark.parametrize("version", ["99.0.0", "0.99.0"])
def test_a_plan_of_another_major_version_is_refused(version):
    with pytest.raises(errors.PlanStale, match=f"made by bulkexec {version}"):
        read_approval(changed(bulkexec=version), "plan.json", __version__)
    later_patch = ".".join([*__version__.split(".")[:2], "999"])
    assert read_approval(changed(bulkexec=later_patch), "plan.json", __version__).plan == PLAN


def test_a_plan_of_another_format_or_shape_is_refused():
    with pytest.raises(errors.PlanStale):
        read_approval(changed(format=2), "plan.json", __version__)
    with pytest.raises(errors.PlanStale, match="cannot be read"):
        read_approval(changed(plan={"command": "delete"}), "plan.json", __version__)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("plan.arguments.all", True),
        ("plan.where", "status = 'NEW'"),
        ("plan.work.scope.filter.values", {":v0": {"S": "NEW"}}),
        ("plan.work.scope.table.name", "customers"),
        ("plan.options.write_rate", 9e9),
        ("plan.options.cost_limit", None),
        ("plan.mutates", False),
        ("runs_on", "Glue 5.1, 200 x G.1X"),
        ("limits", [["Write rate", "next to nothing"]]),
    ],
)
def test_a_plan_of_which_anything_was_changed_is_refused(path, value):
    document = msgspec.json.decode(approve(__version__, PLAN, "this process").to_json())
    *parents, last = path.split(".")
    inner = document
    for name in parents:
        inner = inner[name]
    assert inner[last] != value
    inner[last] = value
    with pytest.raises(errors.PlanStale, match="changed after it was made"):
        read_approval(msgspec.json.encode(document), "plan.json", __version__)


@pytest.mark.parametrize(
    ("now", "word"),
    [
        ({"arn": "arn:aws:dynamodb:us-east-1:1:table/orders"}, "us-east-1"),
        ({"arn": "arn:aws:dynamodb:eu-west-1:2:table/orders"}, "eu-west-1:2"),
        ({"id": "xyz"}, "dropped and made again"),
        ({"keys": (KeyAttribute("pk", "N"),)}, "keys"),
        ({"indexes": ()}, "index by-date is gone"),
        ({"indexes": (BY_DATE, replace(BY_DATE, name="new"))}, "index new is new"),
        ({"indexes": (replace(BY_DATE, projection="ALL"),)}, "index by-date was changed"),
        ({"indexes": (replace(BY_DATE, included=("note", "other")),)}, "index by-date was changed"),
        ({"recovery": False}, "point-in-time recovery is off"),
        ({"billing": "provisioned"}, "was on-demand and is provisioned"),
        ({"replicas": ("us-east-1",)}, "replicas"),
    ],
)
def test_a_table_that_changed_is_said_how(now, word):
    with pytest.raises(errors.PlanStale, match=word) as caught:
        require_unchanged(ORDERS, replace(ORDERS, **now))
    assert caught.value.exit_code == 2


def test_a_table_that_only_grew_is_the_same():
    grown = replace(ORDERS, item_count=9, size_bytes=9, indexes=(replace(BY_DATE, item_count=7, write_capacity=5),))
    assert changes(ORDERS, grown) == []
