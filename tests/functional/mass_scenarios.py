"""Random mass operations: tables, selections, maps, other writers, stops, small pages and troubles."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from boto3.dynamodb.conditions import And, Attr
from boto3.dynamodb.conditions import Key as KeyCondition
from hypothesis import strategies as st

from tests.functional.mass_model import (
    ACTIONS,
    COPY_MAPS,
    CREATED,
    EDIT_MAPS,
    NOT_IDEMPOTENT,
    VERSION,
    Condition,
    Item,
    Key,
    Shape,
    Step,
    rekeyed,
)

SHAPES = tuple(map(Shape, [("S",), ("N",), ("B",), ("S", "S"), ("S", "N"), ("N", "B"), ("B", "S")]))
OPERATIONS = (
    "delete_list",
    "clone_list",
    "move_list",
    "edit_list",
    "put_items",
    "delete_by_keys",
    "clone_by_keys",
    "move_by_keys",
    "edit_by_keys",
)
TROUBLES = ("lost", "throttled", "denied", "died before", "died after")
KEY_VALUES: dict[str, Sequence[Any]] = {
    "S": ["a", "b", "a#1", "a#2", "é", "日本", "it's", '"q"', "x.y", "#n0"],
    "N": [Decimal(text) for text in ("0", "1", "2", "-3", "10", "1.5", "1E+10", "0.1", "12345678901234567890.5")],
    "B": [b"a", b"\x00", b"\xff\xfe", b"ab", b"\x80"],
}
VALUES: Sequence[Any] = [
    "",
    "text 日本",
    Decimal("1.50"),
    Decimal("1E-20"),
    b"",
    b"\x00\xff",
    True,
    False,
    None,
    [],
    ["x", Decimal(1), [None]],
    {},
    {"a": {"b": [b"x", True]}},
    frozenset({"x", "y"}),
    frozenset({Decimal(1), Decimal("2.5")}),
    frozenset({b"\x01"}),
    "x" * 3000,
]
DAYS = [f"2026-01-0{day}T00:00:00.000Z" for day in range(1, 8)]


@dataclass(frozen=True)
class Pacing:
    """How a run is cut: pages of so many items, a cap, a stop after so many questions, segments."""

    page_items: int | None = None
    max_items: int | None = None
    stop_after: int | None = None
    segments: int | None = None


@dataclass(frozen=True)
class Scenario:
    """All of one example. `trouble` hits the request number `at`."""

    shape: Shape
    version_field: bool
    technical_prefix: str
    source: tuple[Item, ...]
    target: tuple[Item, ...]
    step: Step
    pacing: Pacing
    sequential: bool = False
    typed_keys: bool = False
    trouble: str = ""
    at: int = 0


@st.composite
def scenarios(draw: st.DrawFn, most_items: int = 16) -> Scenario:
    """One operation on two random tables."""
    shape = draw(st.sampled_from(SHAPES))
    source = draw(_items(shape, most_items))
    trouble = draw(st.just("") | st.sampled_from(TROUBLES))
    step = draw(_steps(shape, source, calm=bool(trouble)))
    source, target = _prior(draw, shape, source, step)
    return Scenario(
        shape,
        version_field=draw(st.booleans()),
        technical_prefix=draw(st.sampled_from(["", "", "_", "-"])),  # the last hides the version, too
        source=source,
        target=target,
        step=step,
        pacing=draw(_pacings),
        sequential=draw(st.sampled_from([False, False, True])),
        typed_keys=draw(st.booleans()),
        trouble=trouble,
        at=draw(st.integers(0, 6)) if trouble else 0,
    )


_pacings = st.builds(
    Pacing,
    page_items=st.none() | st.integers(1, 6),
    max_items=st.none() | st.integers(1, 20),
    stop_after=st.none() | st.integers(1, 6),
    segments=st.none() | st.integers(1, 4),
)

_attributes = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["OLD", "NEW", "DONE"]),
        "n": st.integers(0, 8).map(Decimal),
        "any": st.sampled_from(VALUES),
        CREATED: st.sampled_from(DAYS),
        VERSION: st.integers(0, 5).map(Decimal),
        "_hidden": st.sampled_from(VALUES),
    },
)


def _keys(shape: Shape) -> st.SearchStrategy[Key]:
    return st.tuples(*(st.sampled_from(KEY_VALUES[kind]) for kind in shape.kinds))


def _items(shape: Shape, most: int) -> st.SearchStrategy[tuple[Item, ...]]:
    one = st.builds(lambda key, rest: shape.named(key) | rest, _keys(shape), _attributes)
    return st.lists(one, max_size=most, unique_by=shape.key).map(tuple)


# -- operations ----------------------------------------------------------------------------------------------------


@st.composite
def _steps(draw: st.DrawFn, shape: Shape, source: tuple[Item, ...], calm: bool) -> Step:
    operation = draw(st.sampled_from(OPERATIONS))
    verb = operation.partition("_")[0]
    step = Step(operation)
    if operation == "put_items":
        return replace(step, items=_some_wrong(draw, draw(_items(shape, 12))), **draw(_put_conditions))
    if verb in ("clone", "move"):
        step = _copying(draw, step)
    elif verb == "edit":
        maps = [each for each in EDIT_MAPS if not (calm and each in NOT_IDEMPOTENT)]
        step = replace(step, map_fn=draw(st.sampled_from(maps)), allow_key_change=draw(st.booleans()))
    if step.by_keys:
        there = st.sampled_from([shape.key(each) for each in source]) if source else st.nothing()
        step = replace(step, keys=tuple(draw(st.lists(there | _keys(shape), max_size=12))))
    else:
        step = replace(step, conditions=_selection(draw, shape, source, step))
    if calm or not source:
        return step
    several = st.dictionaries(
        st.sampled_from([shape.key(each) for each in source]), st.sampled_from(ACTIONS), max_size=4
    )
    return replace(step, actions=draw(several))


_put_conditions = st.sampled_from([{}, {"if_not_exists": True}, {"if_exists": True}])


def _copying(draw: st.DrawFn, step: Step) -> Step:
    to_target = draw(st.booleans())
    maps = st.sampled_from(COPY_MAPS)
    return replace(
        step,
        to_target=to_target,
        map_fn=draw(st.none() | maps if to_target else maps),
        **draw(_put_conditions),
    )


def _some_wrong(draw: st.DrawFn, items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Some items that cannot be stored among them."""
    wrong = draw(st.dictionaries(st.integers(0, 11), st.sampled_from(["value", "key", "no key"]), max_size=2))
    made = []
    for number, item in enumerate(items):
        match wrong.get(number):
            case "value":
                made.append(item | {"x": object()})
            case "key":
                made.append(item | {"pk": True})
            case "no key":
                made.append({name: value for name, value in item.items() if name != "pk"})
            case _:
                made.append(item)
    return tuple(made)


def _selection(draw: st.DrawFn, shape: Shape, source: tuple[Item, ...], step: Step) -> tuple[Condition, ...]:
    within = (step.verb in ("clone", "move") and not step.to_target) or step.allow_key_change
    forms = ["text", "parts", "where"] + ([] if within else ["params"])
    terms = draw(st.lists(_term(forms), min_size=1 if within else 0, max_size=2))
    keyed = draw(st.lists(_key_term(shape, source, forms), max_size=1)) if source else []
    terms += [term for each in keyed for term in each]
    if any(term.form == "params" for term in terms):  # SQL and an expression of DynamoDB's exclude each other
        terms = [replace(term, form="parts") if term.form == "where" else term for term in terms]
    day = draw(st.none() | st.sampled_from(DAYS))
    return (*terms, *([] if day is None else [Condition("as_of", CREATED, "le", (day,))]))


def _term(forms: list[str]) -> st.SearchStrategy[Condition]:
    number = st.integers(0, 8).map(Decimal)
    state = st.sampled_from(["OLD", "NEW"])
    pairs = st.tuples(number, number).map(lambda pair: tuple(sorted(pair)))
    terms = st.one_of(
        st.tuples(st.just("state"), st.just("eq"), st.tuples(state)),
        st.tuples(st.just("state"), st.just("in"), st.just(("OLD", "NEW"))),
        st.tuples(st.just("state"), st.just("beg"), st.just(("O",))),
        st.tuples(st.just("n"), st.sampled_from(["ge", "gt", "le", "lt", "eq"]), st.tuples(number)),
        st.tuples(st.just("n"), st.just("btw"), pairs),
        st.tuples(st.sampled_from(["any", "state"]), st.just("ex"), st.just(())),
        st.tuples(st.just(CREATED), st.just("nx"), st.just(())),
    )
    return st.builds(lambda form, term: Condition(form, *term), st.sampled_from(forms), terms)


@st.composite
def _key_term(draw: st.DrawFn, shape: Shape, source: tuple[Item, ...], forms: list[str]) -> list[Condition]:
    """The partition key is one of those that are there; and sometimes a part of the sort key."""
    some = draw(st.sampled_from(source))
    form = draw(st.sampled_from([form for form in forms if form != "text"]))
    terms = [Condition(form, "pk", "eq", (some["pk"],))]
    if "sk" in some and draw(st.booleans()):
        terms.append(Condition(form, "sk", draw(st.sampled_from(["ge", "le", "eq"])), (some["sk"],)))
    return terms


def _prior(
    draw: st.DrawFn, shape: Shape, source: tuple[Item, ...], step: Step
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Both tables, with items where the operation will put some: the very same, or another one."""
    target = {shape.key(item): item for item in draw(_items(shape, 4))} if step.to_target else {}
    whole = {shape.key(item): item for item in source}
    if step.verb not in ("clone", "move"):
        return source, tuple(target.values())
    for item in source:
        how = draw(st.sampled_from(["", "", "same", "other"]))
        made = dict(item) if step.map_fn is None else rekeyed(dict(item))
        made = made if how != "other" else made | {"owner": "another"}
        if how and step.to_target:
            target[shape.key(made)] = made
        elif how and not step.by_keys and not all(each.holds(made) for each in step.conditions):
            whole[shape.key(made)] = made
    return tuple(whole.values()), tuple(target.values())


# -- as keyword arguments ------------------------------------------------------------------------------------------


def selecting(conditions: Sequence[Condition]) -> dict[str, Any]:
    """The selection as `Table` takes it."""
    said: dict[str, Any] = {}
    clauses = [_clause(each) for each in conditions if each.form in ("text", "parts")]
    sql = [_sql(each) for each in conditions if each.form == "where"]
    raw = [each for each in conditions if each.form == "params"]
    if clauses:
        said["filter"] = clauses
    if sql:
        said["where"] = " AND ".join(sql)
    if raw:
        said["params"] = _params(raw)
    for each in conditions:
        if each.form == "as_of":
            (said["as_of"],) = each.values
    return said


def _clause(condition: Condition) -> Any:
    if condition.form == "parts":
        return (condition.field, condition.op, *condition.values)
    values = ",".join(map(str, condition.values))
    return f"{condition.field}:{condition.op}" + (f":{values}" if values else "")


def _sql(condition: Condition) -> str:
    name, values = condition.field, [_literal(value) for value in condition.values]
    signs = {"eq": "=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    match condition.op:
        case "ex":
            return f"{name} IS NOT MISSING"
        case "nx":
            return f"{name} IS MISSING"
        case "in":
            return f"{name} IN ({', '.join(values)})"
        case "btw":
            return f"{name} BETWEEN {values[0]} AND {values[1]}"
        case "beg":
            return f"begins_with({name}, {values[0]})"
    return f"{name} {signs[condition.op]} {values[0]}"


def _literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else format(value, "f")


def _params(conditions: Sequence[Condition]) -> dict[str, Any]:
    keys = [_boto3(KeyCondition(each.field), each) for each in conditions if each.field in ("pk", "sk")]
    others = [_boto3(Attr(each.field), each) for each in conditions if each.field not in ("pk", "sk")]
    made = {}
    for name, terms in (("KeyConditionExpression", keys), ("FilterExpression", others)):
        if terms:
            whole = terms[0]
            for term in terms[1:]:
                whole = And(whole, term)
            made[name] = whole
    return made


def _boto3(attribute: Any, condition: Condition) -> Any:
    names = {
        "eq": "eq",
        "ge": "gte",
        "gt": "gt",
        "le": "lte",
        "lt": "lt",
        "btw": "between",
        "beg": "begins_with",
        "ex": "exists",
        "nx": "not_exists",
    }
    if condition.op == "in":
        return attribute.is_in(list(condition.values))
    return getattr(attribute, names[condition.op])(*condition.values)
