"""From a filter to a scope, and what is refused before anything is asked of AWS."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from bulkexec import errors
from bulkexec.commands.count import Count
from bulkexec.commands.delete import Delete
from bulkexec.cost import GlueShape, Prices
from bulkexec.model import KeyAttribute, Scope, Table, Work
from bulkexec.plan import Options, Plan
from bulkexec.planning import Planned, make_plan, price
from bulkexec.selection import Filter, Selected, select

KEYS = (KeyAttribute("hash", "S"), KeyAttribute("range", "N"))
TABLE = Table("orders", "arn:orders", "eu-west-1", "1", KEYS, "ACTIVE", 1000, 1_000_000, "on-demand")
PRICES = Prices("list prices", 0.125, 0.625, 0.7, 0.00013, 0.00065, 0.00065, 0.44, 0.29)


def nowhere() -> Any:
    """A session that must not be used."""

    def client(*_: Any, **__: Any) -> Any:
        raise AssertionError("AWS was asked")

    return SimpleNamespace(client=client, region_name="eu-west-1")


def scope(**members: str) -> Scope:
    return select(TABLE, Filter(**members)).scope


def test_without_a_filter_the_scope_is_the_table() -> None:
    assert select(TABLE, Filter()) == Selected(Scope(TABLE))


def test_a_filter_is_read_as_filter_and_sent_along_as_condition() -> None:
    found = scope(where="status = 'EXPIRED'")
    assert found.filter is not None
    assert found.filter == found.guard
    assert found.guard_statement is not None
    assert found.guard_statement.parameters == ({"S": "EXPIRED"},)
    assert not found.pinned


def test_no_attribute_stands_in_an_expression_by_its_own_name() -> None:
    # case C021 C023 C024
    found = scope(where="hash = 'a' AND metadata = 1 AND \"a.b\" = 2")
    for expression in (found.filter, found.key_condition, found.guard):
        assert expression is not None
        words = expression.text.replace("#", " #").split()
        assert not {"hash", "metadata", "a.b"} & set(words)
    assert found.key_condition is not None
    assert list(found.key_condition.names.values()) == ["hash"]


def test_a_pinned_partition_key_is_a_query_and_no_part_of_the_filter() -> None:
    # case C036
    found = scope(where="hash = 'a' AND range > 5 AND status = 'x'")
    assert found.pinned
    assert found.filter is not None
    assert "hash" not in found.filter.names.values()


def test_a_filter_on_keys_alone_needs_no_condition() -> None:
    assert scope(where="hash = 'a'").filter is None
    assert not Delete().plan(scope(where="hash = 'a'")).guarded


def test_a_raw_filter_is_taken_as_it_is() -> None:
    found = scope(expression="#s = :s", names='{"#s": "status"}', values='{":s": {"S": "EXPIRED"}}')
    assert found.filter is not None
    assert found.filter == found.guard
    assert found.guard_statement is None, "it goes item by item"
    assert (found.filter.names, found.filter.values) == ({"#s": "status"}, {":s": {"S": "EXPIRED"}})


@pytest.mark.parametrize(
    ("chosen", "kind"),
    [
        (Filter(where=""), errors.BadFilter),
        (Filter(where="   "), errors.BadFilter),
        (Filter(where="begins_wth(a, 'x')"), errors.BadFilter),
        (Filter(where="status ="), errors.BadFilter),
        (Filter(where="a = 1", expression="a = :a"), errors.BadArgument),
        (Filter(names="{}"), errors.BadArgument),
        (Filter(values="{}"), errors.BadArgument),
        (Filter(where="a = 1", values='{":a": {"S": "a"}}'), errors.BadArgument),
        (Filter(expression="", names="{}"), errors.Refused),
        (Filter(expression="#s = :s", names="{", values="{}"), errors.Refused),
    ],
)
def test_what_is_no_filter_is_refused(chosen: Filter, kind: type[errors.Refused]) -> None:
    with pytest.raises(kind) as caught:
        select(TABLE, chosen)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("max_items", [0, -1])
def test_a_cap_of_nothing_is_refused_before_aws_is_asked(max_items: int) -> None:
    with pytest.raises(errors.BadArgument, match="max-items"):
        make_plan(nowhere(), Count(), "orders", Filter(), Options(max_items=max_items), 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Filter(where="a = 1"), Filter(where="a = 2")),
        (Filter(expression="#a = :a", names='{"#a":"x"}'), Filter(expression="#a = :a", names='{"#a":"y"}')),
        (
            Filter(expression="a = :a", values='{":a":{"S":"1"}}'),
            Filter(expression="a = :a", values='{":a":{"N":"1"}}'),
        ),
        (Filter(), Filter(where="a = 1")),
    ],
)
def test_the_text_of_a_filter_tells_it_from_others(one: Filter, other: Filter) -> None:
    assert one.text != other.text


@pytest.mark.parametrize("glue", [None, GlueShape("G.1X", 3)])
def test_the_estimate_is_of_where_it_runs_and_changes_nothing_else(glue: GlueShape | None) -> None:
    plan = Plan("count", {}, Work(Scope(TABLE), count_only=True), 8, False)
    priced = price(Planned(plan, PRICES), glue).plan
    assert replace(priced, estimate=None, options=plan.options) == plan
    assert priced.options.read_rate is not None
    assert priced.estimate is not None
    assert priced.estimate.usd is not None
    assert priced.estimate.read_units == pytest.approx(1_000_000 / 8192, rel=0.05)
    assert any("Glue" in note for note in priced.estimate.notes) is (glue is not None)


def test_recovery_is_asked_of_mutating_commands_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # case C091: delete is refused where PITR is off, with nothing but questions asked
    asked: list[str] = []
    facts = {
        "TableName": "orders",
        "TableArn": "arn:aws:dynamodb:eu-west-1:1:table/orders",
        "TableStatus": "ACTIVE",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    }
    answers = {
        "DescribeTable": {"Table": facts},
        "DescribeContinuousBackups": {"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED"}},
    }

    def answer(model: Any, **_: Any) -> Any:
        asked.append(model.name)
        return SimpleNamespace(status_code=200), {"ResponseMetadata": {}, **answers[model.name]}

    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="eu-west-1")
    session.events.register("before-call.*.*", answer)
    with pytest.raises(errors.RecoveryOff):
        make_plan(session, Delete(all=True), "orders", Filter(), Options(), 4)
    assert asked == ["DescribeTable", "DescribeContinuousBackups"]
    asked.clear()
    with pytest.raises(errors.NoFilter):
        make_plan(session, Delete(), "orders", Filter(), Options(), 4)
    assert asked == ["DescribeTable"]
