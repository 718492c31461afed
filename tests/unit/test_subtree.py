"""Subtrees: what is above what, the order of writes, what is held, and that no death at any request loses an item."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec import errors
from bulkexec.budgets import TableBudgets
from bulkexec.command import arguments_of
from bulkexec.commands.copy_under import CopyUnder
from bulkexec.commands.delete_under import DeleteUnder
from bulkexec.commands.move_under import MoveUnder
from bulkexec.commands.rename import Rename
from bulkexec.cursor import Cursor, decode_cursor
from bulkexec.engine import Run, Spills, run_segments
from bulkexec.model import Counts, KeyAttribute, Scope, SegmentRecord, Table
from bulkexec.nodes import Subtree
from bulkexec.phases import PhaseReader
from bulkexec.plan import Options, Plan
from bulkexec.rate import Budget
from bulkexec.run import local_cap
from bulkexec.subtree import Held, above, contains, overlap, waves
from bulkexec.under import Under
from bulkexec.wire import Answering, Refusals, Retry, Retrying
from bulkexec.writer import Writer

KEYS = (KeyAttribute("pk", "S"), KeyAttribute("sk", "S"))
TABLE = Table("docs", "arn:docs", "eu-west-1", "1", KEYS, "ACTIVE", 100, 10_000, "on-demand")
OPTIONS = Options(checkpoint_seconds=0.0)

separators = st.sampled_from(["|", "", "||", "#"])
paths = st.text("ab|!#", min_size=1, max_size=6)
trees = st.sets(paths, max_size=16)


def is_above(one: str, other: str, separator: str) -> bool:
    return one != other and other.startswith(one + separator)


# Paths


@given(paths, paths, separators)
def test_above_is_what_a_key_goes_on_from_with_a_separator(one: str, other: str, separator: str) -> None:
    found = above(other, separator)
    assert (one in found) == is_above(one, other, separator)
    assert found == sorted(set(found), key=len, reverse=True)
    assert above(other, separator, 3) == [each for each in found if len(each) >= 3]


@given(trees, separators, st.booleans())
def test_a_wave_has_nothing_above_another_and_waves_go_one_way(
    tree: set[str], separator: str, descending: bool
) -> None:
    keys = sorted(tree, reverse=descending)
    found = waves(keys, separator, descending)
    assert sorted(number for wave in found for number in wave) == list(range(len(keys)))
    rank = {keys[number]: place for place, wave in enumerate(found) for number in wave}
    for one in tree:
        for other in tree:
            if is_above(one, other, separator):
                assert (rank[one] > rank[other]) if descending else (rank[one] < rank[other])


def test_a_wide_tree_has_as_many_waves_as_levels() -> None:
    leaves = [f"root|{parent}|{child}" for parent in range(50) for child in range(20)]
    keys = sorted(["root", *(f"root|{parent}" for parent in range(50)), *leaves])
    assert [len(wave) for wave in waves(keys, "|", False)] == [1, 50, 1000]
    assert [len(wave) for wave in waves(keys[::-1], "|", True)] == [1000, 50, 1]


@given(trees, st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15)), separators)
def test_what_is_held_is_known_behind_every_stop(
    tree: set[str], stuck: set[int], stops: set[int], separator: str
) -> None:
    keys = sorted(tree, reverse=True)
    subtree = Subtree({"S": "p"}, "", separator)
    remaining: list[str] = []
    held = Held(subtree)
    for number, key in enumerate(keys):
        assert (key in held) == any(is_above(key, each, separator) for each in remaining)
        if number in stuck or key in held:
            remaining.append(key)
            held.remains(key)
        if number in stops:
            held = Held(subtree, held.ahead(key))


def test_what_is_remembered_is_one_key_unless_nodes_interleave() -> None:
    held = Held(Subtree({"S": "p"}, "x", "|"))
    for key in ("x|9|1", "x|9|2|3"):
        held.remains(key)
    assert held.ahead("x|9|0") == ("x|9",)
    assert held.ahead("x|8") == ("x",)
    crossed = Held(Subtree({"S": "p"}, "x", "|"))
    for key in ("x|1", "xy|1"):
        crossed.remains(key)
    assert crossed.ahead("xy|0") == ("xy", "x")


@given(paths, paths, separators, trees)
def test_subtrees_overlap_where_a_key_can_be_in_both(one: str, other: str, separator: str, tree: set[str]) -> None:
    here, there = (Subtree({"S": "p"}, prefix, separator) for prefix in (one, other))
    candidates = [*tree, one, other, here.beginning, there.beginning, f"{here.beginning}a", f"{there.beginning}a"]
    candidates += [max(here.beginning, there.beginning, key=len) + "a"]
    in_both = any(contains(here, key) and contains(there, key) for key in candidates)
    assert overlap(here, there) == overlap(there, here) == in_both


# Runs on one item collection, by a service that can be killed at any request


class Dead(BaseException):
    """The process has died: nothing it does later takes effect."""


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Service:
    """One table behind `call(operation, body)`. `stuck` sort keys are never written.

    With `dies_at` that request is the last one that is heard, and `heard` says whether it takes effect. `before` is
    called with every write.
    """

    items: dict[tuple[str, str], dict[str, Any]]
    page_items: int = 3
    stuck: frozenset[str] = frozenset()
    dies_at: int | None = None
    heard: bool = False
    before: "Callable[[Service, str, tuple[str, str]], None]" = lambda service, kind, key: None
    requests: int = 0
    clock: Clock = field(default_factory=Clock)

    def call(self, operation: str, body: bytes) -> bytes:
        self.requests += 1
        dying = self.dies_at is not None and self.requests >= self.dies_at
        if dying and (not self.heard or self.requests > (self.dies_at or 0)):
            raise Dead
        answer = msgspec.json.encode(getattr(self, operation)(msgspec.json.decode(body)))
        if dying:
            raise Dead
        return answer

    def begin(self, operation: str, body: bytes) -> Answering:
        answer = self.call(operation, body)
        return lambda: answer

    def Query(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["ConsistentRead"]
        values = [value["S"] for value in request["ExpressionAttributeValues"].values()]
        begins = "begins_with" in request["KeyConditionExpression"]
        forward = request.get("ScanIndexForward", True)
        keys = sorted((key for key in self.items if key[0] == values[0]), reverse=not forward)
        keys = [key for key in keys if (key[1].startswith(values[1]) if begins else key[1] == values[1])]
        start = request.get("ExclusiveStartKey", {}).get("sk", {}).get("S")
        keys = [key for key in keys if start is None or (key[1] > start if forward else key[1] < start)]
        page = keys[: min(self.page_items, request.get("Limit", self.page_items))]
        found = [self.items[key] for key in page]
        answer: dict[str, Any] = {"Items": found, "Count": len(page), "ScannedCount": len(page)}
        answer["ConsumedCapacity"] = {"CapacityUnits": 1.0}
        if len(page) < len(keys):
            answer["LastEvaluatedKey"] = {name: found[-1][name] for name in ("sk", "pk")}
        return answer

    def BatchWriteItem(self, request: dict[str, Any]) -> dict[str, Any]:
        back = []
        for each in request["RequestItems"]["docs"]:
            ((kind, content),) = each.items()
            written = content.get("Item") or content["Key"]
            key = (written["pk"]["S"], written["sk"]["S"])
            if key[1] in self.stuck:
                back.append(each)
                continue
            self.before(self, kind, key)
            if kind == "PutRequest":
                self.items[key] = written
            else:
                self.items.pop(key, None)
        left = {"docs": back} if back else {}
        return {"UnprocessedItems": left, "ConsumedCapacity": [{"CapacityUnits": 1.0}]}

    def BatchGetItem(self, request: dict[str, Any]) -> dict[str, Any]:
        keys = [(key["pk"]["S"], key["sk"]["S"]) for key in request["RequestItems"]["docs"]["Keys"]]
        found = [self.items[key] for key in keys if key in self.items]
        return {"Responses": {"docs": found}, "ConsumedCapacity": [{"CapacityUnits": 1.0}]}


@dataclass
class Checkpoints:
    """Records by segment. What is saved after the service was killed was saved by nobody."""

    service: Service
    records: dict[int, SegmentRecord] = field(default_factory=dict)

    def load(self, number: int) -> SegmentRecord | None:
        return self.records.get(number)

    def save(self, record: SegmentRecord) -> None:
        if self.service.dies_at is None or self.service.requests < self.service.dies_at:
            self.records[record.number] = record


def plan_of(command: Under, max_items: int | None = None, dry_run: bool = False) -> Plan:
    work = command.plan(Scope(TABLE))
    command.check(work)
    options = Options(checkpoint_seconds=0.0, max_items=max_items, dry_run=dry_run)
    return Plan(command.name, arguments_of(command), work, len(work.phases), True, options)


def walk(service: Service, command: Under, plan: Plan, checkpoints: Checkpoints) -> bool:
    """One call of a plan; whether it came to the end."""
    retry = Retry(60.0, service.clock, service.clock.sleep)
    calls = Retrying(service, Refusals("docs", "eu-west-1"), retry)
    run = Run(
        plan=plan,
        command=command,
        reader=PhaseReader(calls, calls, plan.work, command.makes),
        writer=Writer(calls, plan.work, False, retry),
        read_budget=Budget(None, clock=service.clock, sleep=service.clock.sleep),
        write_budget=TableBudgets(Budget(None, clock=service.clock, sleep=service.clock.sleep), {}),
        checkpoints=checkpoints,
        cap=local_cap(plan.options.max_items),
        stop=lambda: False,
        spills=lambda record: Spills(),
        threads=4,
    )
    done = {number for number, record in checkpoints.records.items() if record.done}
    run_segments(run, [number for number in range(plan.segments) if number not in done])
    return len(checkpoints.records) == plan.segments and all(each.done for each in checkpoints.records.values())


def total(checkpoints: Checkpoints) -> Counts:
    return sum((record.counts for record in checkpoints.records.values()), Counts())


def by_tokens(service: Service, command: Under, max_items: int) -> Counts:
    """Call, look at the cursor, call again until it is absent; the sum of all calls."""
    plan, counts, token = plan_of(command, max_items), Counts(), ""
    for _ in range(200):
        records = decode_cursor(token).records() if token else []
        checkpoints = Checkpoints(service, {record.number: record for record in records})
        finished = walk(service, command, plan, checkpoints)
        counts += total(checkpoints)
        if finished:
            return counts
        token = Cursor.of(plan.fingerprint, plan.segments, checkpoints.records.values()).encode()
    raise AssertionError("it never ends")


def collection(tree: set[str], partition: str = "p") -> dict[tuple[str, str], dict[str, Any]]:
    return {(partition, key): {"pk": {"S": partition}, "sk": {"S": key}, "of": {"S": key}} for key in sorted(tree)}


def prefixes(tree: set[str], separator: str) -> st.SearchStrategy[str]:
    some = [key[:end] for key in sorted(tree) for end in range(1, len(key) + 1)] or ["a"]
    return st.sampled_from(some).filter(lambda prefix: not (separator and prefix.endswith(separator)))


@settings(max_examples=150, deadline=None)
@given(
    trees, separators, st.sets(st.integers(0, 15), max_size=4), st.integers(1, 4), st.sampled_from([None, 1]), st.data()
)
def test_no_parent_goes_before_its_children_nor_while_one_remains(
    tree: set[str], separator: str, stuck: set[int], page_items: int, cap: int | None, data: Any
) -> None:
    tree = tree or {"a"}
    prefix = data.draw(prefixes(tree, separator))
    keys = sorted(tree)
    root = Subtree({"S": "p"}, prefix, separator)
    inside = {key for key in tree if contains(root, key)}
    failing = {key for number, key in enumerate(keys) if number in stuck} & inside

    def childless(service: Service, kind: str, key: tuple[str, str]) -> None:
        assert not any(is_above(key[1], other, separator) for _, other in service.items), key

    service = Service(collection(tree), page_items, frozenset(failing), before=childless)
    command = DeleteUnder(partition="p", under=prefix, separator=separator)
    if cap is None:
        checkpoints = Checkpoints(service)
        assert walk(service, command, plan_of(command), checkpoints)
        counts = total(checkpoints)
    else:
        counts = by_tokens(service, command, cap)
    kept = {key for key in inside if any(is_above(key, each, separator) for each in failing)}
    failing -= kept  # what is held is not even tried
    assert {key for _, key in service.items} == (tree - inside) | failing | kept
    assert (counts.scanned, counts.matched) == (len(inside), len(inside))
    assert (counts.failed, counts.skipped) == (len(failing), len(kept))
    assert counts.processed == len(inside) - len(failing) - len(kept)


SMALL = {"a", "a|1", "a|1|x", "a|1|y", "a|2", "a|4|z", "ab", "a!", "a2|7"}
INSIDE = {"a", "a|1", "a|1|x", "a|1|y", "a|2", "a|4|z"}
MOVES = [
    MoveUnder(partition="p", under="a", to_prefix="z", separator="|"),
    MoveUnder(partition="p", under="a", to_partition="q", separator="|"),
    MoveUnder(partition="p", under="a", to_prefix="z", separator="|", set_values=("seen=true",)).prepare(),
]


def original(service: Service, key: str) -> bool:
    """Whether an item is where it was or where it goes."""
    places = [("p", key), ("p", f"z{key[1:]}"), ("q", key)]
    return any(place in service.items and service.items[place]["of"]["S"] == key for place in places)


def ordered(service: Service, kind: str, key: tuple[str, str]) -> None:
    """Parents are put first and deleted last."""
    if kind == "DeleteRequest":
        assert not any(place == key[0] and is_above(key[1], other, "|") for place, other in service.items)
        return
    for parent in above(key[1], "|"):
        source = f"a{parent[1:]}"
        assert source not in INSIDE or (key[0], parent) in service.items, (key, parent)


def deaths() -> Iterator[tuple[int, bool]]:
    for request in range(1, 200):
        yield request, False
        yield request, True


@pytest.mark.parametrize("command", MOVES, ids=["prefix", "partition", "map"])
@pytest.mark.parametrize("again", ["rerun", "resume"])
def test_a_move_killed_at_any_request_loses_nothing_and_ends_right(command: MoveUnder, again: str) -> None:
    plan = plan_of(command)
    for request, heard in deaths():
        service = Service(collection(SMALL), 2, dies_at=request, heard=heard, before=ordered)
        checkpoints = Checkpoints(service)
        try:
            finished = walk(service, command, plan, checkpoints)
        except Dead:
            finished = False
        assert all(original(service, key) for key in SMALL), (request, heard)
        if service.requests < request:
            assert finished
            assert request > 15, "it has died at every request of the whole run"
            return
        service.dies_at = None
        kept = checkpoints.records if again == "resume" else {}
        assert walk(service, command, plan, Checkpoints(service, dict(kept)))
        there = {key for _, key in service.items if original(service, key) or key.startswith("z")}
        assert len(service.items) == len(SMALL)
        assert {key for place, key in service.items if (place, key) == ("p", key) and key in INSIDE} == set(), there
        assert all(original(service, key) for key in SMALL)
    raise AssertionError("the run never ends")


@pytest.mark.parametrize("cap", [1, 2, 100])
def test_a_move_stopped_at_every_page_counts_each_item_once(cap: int) -> None:
    asked: list[str] = []

    def before(service: Service, kind: str, key: tuple[str, str]) -> None:
        asked.append(kind)
        ordered(service, kind, key)

    service = Service(collection(SMALL), before=before)
    counts = by_tokens(service, MOVES[0], cap)
    assert (counts.matched, counts.processed, counts.skipped) == (6, 6, 0)
    assert {key for _, key in service.items} == (SMALL - INSIDE) | {f"z{key[1:]}" for key in INSIDE}
    assert asked == ["PutRequest"] * 6 + ["DeleteRequest"] * 6, "constructive before destructive, each once"


@pytest.mark.parametrize("cap", [None, 1])
def test_what_cannot_be_put_stays_with_all_above_it(cap: int | None) -> None:
    service = Service(collection(SMALL), stuck=frozenset({"z|1|x"}), before=lambda *_: None)
    if cap is None:
        checkpoints = Checkpoints(service)
        assert walk(service, MOVES[0], plan_of(MOVES[0]), checkpoints)
        counts = total(checkpoints)
    else:
        counts = by_tokens(service, MOVES[0], cap)
    stays = {"a", "a|1", "a|1|x"}
    assert {key for _, key in service.items if key in INSIDE} == stays
    assert {key for _, key in service.items if key[0] == "z"} == {"z", "z|1", "z|1|y", "z|2", "z|4|z"}
    assert (counts.processed, counts.failed, counts.skipped) == (3, 1, 2)


def test_a_dry_run_counts_exactly_and_writes_nothing() -> None:
    for command in (MOVES[0], DeleteUnder(partition="p", under="a", separator="|")):
        service = Service(collection(SMALL))
        checkpoints = Checkpoints(service)
        assert walk(service, command, plan_of(command, dry_run=True), checkpoints)
        assert (total(checkpoints).matched, total(checkpoints).processed) == (6, 0)
        assert {key for _, key in service.items} == SMALL


def test_a_copy_takes_what_a_map_lets_through_and_prunes_the_rest() -> None:
    image = {"z", "z|1", "z|9", "z|9|k", "zz"}
    service = Service(collection(SMALL | image), before=lambda *_: None)
    command = CopyUnder(partition="p", under="a", to_prefix="z", separator="|", overwrite=True)
    checkpoints = Checkpoints(service)
    assert walk(service, command, plan_of(command), checkpoints)
    found = {key for _, key in service.items}
    assert found == SMALL | {"zz"} | {f"z{key[1:]}" for key in INSIDE}
    assert total(checkpoints).processed == len(INSIDE) + 2
    assert total(checkpoints).matched == len(INSIDE) + 2


# What is refused


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (DeleteUnder(partition="p", under="a"), "needs to know what separates"),
        (DeleteUnder(partition="p", under="", separator="|"), "--under is empty"),
        (DeleteUnder(partition="", under="a", separator="|"), "of type S"),
        (DeleteUnder(partition="p", under="a|", separator="|"), "ends with the separator"),
        (CopyUnder(partition="p", under="a", separator="|"), "overlap"),
        (CopyUnder(partition="p", under="a", to_prefix="a|x", separator="|"), "overlap"),
        (MoveUnder(partition="p", under="a|x", to_prefix="a", separator="|"), "overlap"),
        (MoveUnder(partition="p", under="a", to_prefix="ab", separator=""), "overlap"),
        (Rename(partition="p", under="a", to_partition="", separator="|"), "--to-partition"),
        (
            CopyUnder(partition="p", under="a", to_prefix="z", separator="|", if_not_exists=True, overwrite=True),
            "contra",
        ),
        (
            MoveUnder(partition="p", under="a", to_prefix="z", separator="|", if_exists=True, if_not_exists=True),
            "exclu",
        ),
    ],
)
def test_arguments_that_name_no_subtree_or_itself_are_refused(command: Under, words: str) -> None:
    with pytest.raises(errors.BadArgument, match=words):
        plan_of(command)


def test_a_table_without_a_sort_key_of_text_has_no_subtrees() -> None:
    for keys in ((KEYS[0],), (KEYS[0], KeyAttribute("sk", "N"))):
        table = Table("docs", "arn", "r", "1", keys, "ACTIVE", 0, 0, "on-demand")
        with pytest.raises(errors.BadArgument, match="no sort key of type S"):
            DeleteUnder(partition="p", under="a", separator="|").plan(Scope(table))


def test_a_partition_key_takes_the_type_of_the_schema() -> None:
    for kind, text, typed in (("N", "-1.50", {"N": "-1.50"}), ("B", "X'00fF'", {"B": "AP8="})):
        table = Table("docs", "arn", "r", "1", (KeyAttribute("pk", kind), KEYS[1]), "ACTIVE", 0, 0, "on-demand")  # type: ignore[arg-type]
        assert DeleteUnder(partition=text, under="a", separator="|").source(table).partition == typed
        with pytest.raises(errors.BadArgument, match=f"of type {kind}"):
            DeleteUnder(partition="one", under="a", separator="|").source(table)
