"""The writer over HTTP: whichever way writes go, and whatever happens on the way, each lands in the same bucket."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import boto3
import msgspec
import pytest

from bulkexec.model import Expression, KeyAttribute, Scope, Statement, Table, Work
from bulkexec.sandbox.process import Sandbox, environment
from bulkexec.wire import HttpWire, Refusals, Retrying
from bulkexec.writer import Outcome, Writer
from bulkexec.writes import Apply, Delete, Put, Update, Write

Item = dict[str, Any]
ITEMS = 40
GUARD = Expression("(#s = :old OR attribute_not_exists(#s))", {"#s": "state"}, {":old": {"S": "OLD"}})
GUARD_STATEMENT = Statement('"state" = ? OR "state" IS MISSING', ({"S": "OLD"},))
COUNT = Expression("ADD #n :one", {"#n": "n"}, {":one": {"N": "1"}})
OPERATIONS = ("BatchWriteItem", "BatchExecuteStatement", "PutItem", "UpdateItem", "DeleteItem")
WAYS = ("native", "no-statement", "sequential")
FAULTS: dict[str, dict[str, Any]] = {
    "quiet": {},
    "lost": {"kind": "lost_answer"},
    "broken": {"kind": "http500"},
    "throttled": {"kind": "error", "code": "RequestLimitExceeded"},  # case C056
}


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def key(number: int) -> Item:
    return {"pk": {"S": f"k'{number:03d}"}, 's"k': {"N": str(number)}}


def stored(number: int) -> Item:
    """An item as it is before: of three states, and with a version in two of three."""
    state: Item = {"state": {"S": ("OLD", "NEW")[number % 4 == 0]}} if number % 5 else {}
    version: Item = {"v": ({"N": f"{number}.50"}, {"NULL": True})[number % 6 == 0]} if number % 3 else {}
    return {**key(number), "n": {"N": str(number)}, "tags": {"SS": ["a", "b"]}, **state, **version}


def matches(item: Item) -> bool:
    return item.get("state") in ({"S": "OLD"}, None)


class Disturbance:
    """Makes write requests go wrong: the first two of each operation, and a fifth of the later ones."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        self._faults, self.name = sandbox.control.faults, name

    def begin(self) -> None:
        if rule := FAULTS[self.name]:
            for operation in OPERATIONS:
                self._faults.add(operation=operation, count=2, **rule)
                self._faults.add(operation=operation, probability=0.2, seed=7, after=2, count=8, **rule)

    def end(self) -> None:
        struck = sum(rule["fired"] for rule in self._faults.listed())
        self._faults.clear()
        assert bool(struck) is (self.name != "quiet")


@pytest.fixture(params=list(FAULTS))
def fault(request: Any, sandbox: Sandbox) -> Iterator[Disturbance]:
    """What goes wrong on the way."""
    yield Disturbance(sandbox, request.param)
    sandbox.control.faults.clear()


class Bench:
    """A table of half of all items, and what became of writes to it."""

    def __init__(self, sandbox: Sandbox, tables: Any, **settings: Any) -> None:
        self.tables = tables
        self.name = tables.make(map(stored, range(0, ITEMS, 2)), (("pk", "S"), ('s"k', "N")), False, **settings)
        keys = (KeyAttribute("pk", "S"), KeyAttribute('s"k', "N"))
        self.table = Table(self.name, "", "us-east-1", "1", keys, "ACTIVE", 0, 0, "on-demand")
        session = boto3.Session(region_name="us-east-1")
        self.calls = Retrying(HttpWire(session, "us-east-1", 2), Refusals(self.name, "us-east-1"))

    def send(
        self,
        writes: Sequence[Write],
        way: str,
        guarded: bool = False,
        update: Expression | None = None,
        fault: Disturbance | None = None,
    ) -> Outcome:
        statement = None if way == "no-statement" else GUARD_STATEMENT
        scope = Scope(self.table, guard=GUARD, guard_statement=statement)
        writer = Writer(self.calls, Work(scope, guarded=guarded, update=update), way == "sequential")
        outcome = Outcome(acknowledged=[])
        if fault:
            fault.begin()
        for batch in writer.batches(writes):
            writer.write(batch, lambda reasons: None, outcome)
        if fault:
            fault.end()
        assert outcome.processed == len(outcome.acknowledged or ())
        return outcome

    def read(self) -> dict[str, Item]:
        return {item["pk"]["S"]: item for item in self.tables.read(self.name)}


@pytest.fixture
def bench(sandbox: Sandbox, tables: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)
    return lambda **settings: Bench(sandbox, tables, **settings)


def numbers(keys: Sequence[Any]) -> set[int]:
    return {int((key if isinstance(key, dict) else msgspec.json.decode(key))['s"k']["N"]) for key in keys}


def buckets(outcome: Outcome) -> dict[str, set[int]]:
    """The items of each bucket; none in two."""
    acknowledged = [msgspec.json.decode(getattr(w, "item", None) or w.key) for w in outcome.acknowledged or ()]  # type: ignore[union-attr]
    found = {
        "processed": acknowledged,
        "skipped": outcome.skipped,
        "failed": [failure.key for failure in outcome.failed],
        "conflicts": outcome.conflicts,
    }
    sets = {name: numbers(keys) for name, keys in found.items()}
    assert sum(map(len, found.values())) == len(set().union(*sets.values()))
    return {name: members for name, members in sets.items() if members}


THERE, GONE = set(range(0, ITEMS, 2)), set(range(1, ITEMS, 2))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("when", ["absent", "present"])
def test_puts_on_a_condition(when: Any, way: str, fault: Disturbance, bench: Callable[..., Bench]) -> None:
    # case C078 C080
    place = bench()
    puts = [Put(raw({**key(number), "new": {"BOOL": True}}), when) for number in range(ITEMS)]
    written, refused = (GONE, THERE) if when == "absent" else (THERE, GONE)
    assert buckets(place.send(puts, way, fault=fault)) == {"processed": written, "skipped": refused}
    found = place.read()
    assert {int(item['s"k']["N"]) for item in found.values() if "new" in item} == written
    assert len(found) == (ITEMS if when == "absent" else ITEMS // 2)


@pytest.mark.parametrize("way", ["native", "sequential"])
def test_plain_puts_and_deletes(way: str, fault: Disturbance, bench: Callable[..., Bench]) -> None:
    # case C065 C069
    place = bench()
    puts = [Put(raw({**key(number), "new": {"BOOL": True}})) for number in range(ITEMS)]
    assert buckets(place.send(puts, way, fault=fault)) == {"processed": THERE | GONE}
    assert sum("new" in item for item in place.read().values()) == ITEMS
    deletes = [Delete(raw(key(number))) for number in range(0, 2 * ITEMS, 2)]
    assert buckets(place.send(deletes, way, fault=fault)) == {"processed": set(range(0, 2 * ITEMS, 2))}
    assert {int(item['s"k']["N"]) for item in place.read().values()} == GONE


def observed_of(number: int) -> dict[str, Any]:
    """What was seen: the version, or that there was none; wrong for every seventh item, nothing for every eighth."""
    if number % 8 == 0:
        return {}
    if number % 7 == 0:
        return {"v": raw({"N": "-1"})}
    version = stored(number).get("v")
    # The same number, written another way.
    same = {"N": version["N"].removesuffix("0")} if version and "N" in version else version
    return {"v": None if same is None else raw(same), "tags": raw({"SS": ["b", "a"]})}


def expected(guarded: bool, gone: str) -> dict[str, set[int]]:
    """The bucket of each write of `observed_of`, from the items as they were."""
    found: dict[str, set[int]] = {}
    for number in range(ITEMS):
        refused = "conflicts" if observed_of(number) else "skipped"
        if number in GONE:
            bucket = gone or refused
        elif (guarded and not matches(stored(number))) or (number % 7 == 0 and number % 8):
            bucket = refused
        else:
            bucket = "processed"
        found.setdefault(bucket, set()).add(number)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("guarded", [False, True])
def test_updates(guarded: bool, way: str, fault: Disturbance, bench: Callable[..., Bench]) -> None:
    # case C028 C077: none brings an item back, none writes over what has changed since
    place = bench()
    sets = {"v": raw({"N": "99"}), "state": raw({"S": "DONE"}), 'it\'s "new"': raw({"L": [{"NULL": True}]})}
    updates = [Update(raw(key(number)), sets, ("tags", "none"), observed_of(number)) for number in range(ITEMS)]
    wanted = expected(guarded, gone="")
    assert buckets(place.send(updates, way, guarded, fault=fault)) == wanted
    changed = {name: msgspec.json.decode(value) for name, value in sets.items()}
    for number in THERE:
        before = stored(number)
        after = {name: value for name, value in {**before, **changed}.items() if name != "tags"}
        item = place_item(place, number)
        assert item == (after if number in wanted["processed"] else before | {"tags": item["tags"]} | version_of(item))
    assert len(place.read()) == ITEMS // 2


def place_item(place: Bench, number: int) -> Item:
    item: Item = place.tables.client.get_item(TableName=place.name, Key=key(number), ConsistentRead=True)["Item"]
    return item


def version_of(item: Item) -> Item:
    """The service may write a number in another way."""
    return {"v": item["v"]} if "v" in item and item["v"] != {"N": "99"} else {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("guarded", [False, True])
def test_deletes_on_a_condition(guarded: bool, way: str, fault: Disturbance, bench: Callable[..., Bench]) -> None:
    # that an item is gone already is no error, in any way
    place = bench()
    deletes = [Delete(raw(key(number)), observed_of(number)) for number in range(ITEMS)]
    wanted = expected(guarded, gone="processed")
    assert buckets(place.send(deletes, way, guarded, fault=fault)) == wanted
    assert {int(item['s"k']["N"]) for item in place.read().values()} == THERE - wanted["processed"]


@pytest.mark.parametrize("guarded", [False, True])
def test_an_applied_expression_never_runs_twice(guarded: bool, fault: Disturbance, bench: Callable[..., Bench]) -> None:
    place = bench()
    applies: list[Write] = [Apply(raw(stored(number))) for number in range(ITEMS)]
    outcome = place.send(applies, "native", guarded, COUNT, fault)
    due = {number for number in THERE if not guarded or matches(stored(number))}
    found = buckets(outcome)
    assert found["skipped"] == (THERE | GONE) - due
    assert found["processed"] | found.get("failed", set()) == due
    assert bool(found.get("failed")) is (fault.name == "lost")
    assert {failure.reason for failure in outcome.failed} <= {"AnswerLost"}
    counted = {int(item['s"k']["N"]): int(item["n"]["N"]) for item in place.read().values()}
    assert counted == {number: number + (number in due) for number in THERE}


@pytest.mark.parametrize("way", ["native", "sequential"])
@pytest.mark.parametrize("when", ["", "absent", "present"])
def test_one_bad_item_fails_alone(when: Any, way: str, bench: Callable[..., Bench]) -> None:
    # case C032 C072
    place = bench()
    there = range(0, ITEMS, 2) if when == "present" else range(1, ITEMS, 2)
    puts = [Put(raw({**key(number), "new": {"BOOL": True}}), when) for number in there]
    bad: dict[str, Any] = {
        "an empty key": {"pk": {"S": ""}, 's"k': {"N": "1001"}},
        "a key of another type": {"pk": {"N": "1"}, 's"k': {"N": "1002"}},
        "an empty set": {**key(1003), "set": {"SS": []}},
        "a key that is too long": {"pk": {"S": "x" * 2049}, 's"k': {"N": "1004"}},
        "an item that is too large": {**key(1005), "payload": {"S": "x" * 410_000}},
    }
    for place_in_batch, item in enumerate(bad.values()):
        puts.insert(3 * place_in_batch, Put(raw(item), when))
    outcome = place.send(puts, way)
    assert buckets(outcome) == {"processed": set(there), "failed": set(range(1001, 1006))}
    assert all(failure.reason and failure.details for failure in outcome.failed)


@pytest.mark.parametrize("way", ["native", "sequential"])
def test_one_update_that_cannot_be_fails_alone(way: str, bench: Callable[..., Bench]) -> None:
    # case C032
    place = bench()
    sets = [{"n": raw({"N": "0"})} for _ in THERE]
    sets[3], sets[4], sets[5] = {"pk": raw({"S": "other"})}, {"set": raw({"NS": []})}, {}
    writes = [Update(raw(key(number)), change) for number, change in zip(sorted(THERE), sets, strict=True)]
    assert buckets(place.send(writes, way)) == {"processed": THERE - {6, 8, 10}, "failed": {6, 8, 10}}


def test_no_two_writes_of_one_key_meet_in_a_request(bench: Callable[..., Bench]) -> None:
    place = bench()
    twice = [Put(raw({**key(1), "n": {"N": str(number)}})) for number in range(5)]
    outcome = place.send([*twice, Put(raw(key(3)))], "native")
    assert (outcome.processed, outcome.failed) == (6, [])
    assert place_item(place, 1)["n"] == {"N": "4"}
    inserts = [Put(raw({**key(5), "n": {"N": str(number)}}), "absent") for number in range(3)]
    outcome = place.send(inserts, "native")
    assert (outcome.processed, len(outcome.skipped)) == (1, 2)
    assert place_item(place, 5)["n"] == {"N": "0"}


@pytest.mark.parametrize("when", ["", "absent"])
def test_a_table_with_little_capacity_takes_all_of_it_in_parts(when: Any, bench: Callable[..., Bench]) -> None:
    # case C060 C065 C070
    capacity = {"ReadCapacityUnits": 100, "WriteCapacityUnits": 15}
    place = bench(BillingMode="PROVISIONED", ProvisionedThroughput=capacity)
    puts = [Put(raw({**key(number), "new": {"BOOL": True}}), when) for number in range(100, 160)]
    outcome = place.send(puts, "native")
    assert buckets(outcome) == {"processed": set(range(100, 160))}
    assert outcome.units >= 60
    assert len(place.read()) == 60 + ITEMS // 2


def test_what_a_move_would_put_is_found_where_it_is_already(bench: Callable[..., Bench]) -> None:
    place = bench()
    puts = [Put(raw({**stored(number), "tags": {"SS": ["b", "a"]}})) for number in range(ITEMS)]
    puts[2] = Put(raw({**stored(2), "more": {"S": ""}}))
    outcome = Outcome()
    found = Writer(place.calls, Work(Scope(place.table))).already_there(puts, outcome)
    assert numbers([put.item for put in found]) == THERE - {2}
    assert outcome.read_units == ITEMS
