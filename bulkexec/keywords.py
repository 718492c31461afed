"""The keyword arguments of `table.Table`'s operations: which there are, what they mean, and checks of their values."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypedDict

from bulkexec import errors
from bulkexec.declarations import Declarations
from bulkexec.plan import Options
from bulkexec.query_parameters import with_parameters
from bulkexec.selection import Filter
from bulkexec.where import clause

Key = Mapping[str, Any]
"""A key as Python values, or as typed ones ({"pk": {"S": "a"}})."""

Clause = str | Sequence[Any]
"""`"status:eq:ACTIVE"`, or field, operator and values: `("total", "ge", Decimal("9.5"))`."""


class Declaring(TypedDict, total=False):
    """What is known of a table, see `declarations.Declarations`."""

    keys: Sequence[str]
    version_field: str
    created_at_field: str
    technical_prefix: str
    descriptor: Key | None
    searchable: Sequence[str]
    separator: str


class Selecting(TypedDict, total=False):
    """Which items, for operations that look for them. What is None is not given; all that is given must hold.

    `params` is what a boto3 Scan or Query takes, as far as it selects: IndexName, FilterExpression,
    KeyConditionExpression (texts or `boto3.dynamodb.conditions`), names, values, ConsistentRead. `where` is SQL;
    `filter` are clauses; `search` is a part of any searchable field; `as_of` (a datetime, ISO text or epoch number)
    leaves out what was created later, and what does not say when it was. `include_descriptor` lets the descriptor row
    through. A selection that is given but empty is an error: it would mean every item.
    """

    params: Mapping[str, Any] | None
    where: str | None
    filter: Sequence[Clause] | None
    search: str | None
    as_of: datetime | str | float | None
    include_descriptor: bool


class Running(TypedDict, total=False):
    """How to run.

    `max_items` is a soft cap: the run stops at the first page boundary at or past it. `resume_token` is the cursor of
    an earlier result of the same operation. `read_rate` and `write_rate` are units a second, or a share ("30%") of what
    the tables can take. More than `max_failures` failed items end the run. `segments` are the parts of the table that
    are walked, four at a time, each in a thread of its own: with 1 the map is called in one thread. `dry_run` reads and
    maps, and writes nothing. `stop` is asked at page boundaries, from any thread; a run that it stops has a cursor.
    `strategy` "sequential" sends each write in a request of its own.
    """

    max_items: int | None
    resume_token: str | None
    strategy: Literal["native", "sequential"]
    max_failures: int | None
    read_rate: float | str | None
    write_rate: float | str | None
    segments: int | None
    dry_run: bool
    stop: Callable[[], bool]


class Putting(TypedDict, total=False):
    """The condition of every put: an item is skipped when its key is there already, or when it is not there yet."""

    if_not_exists: bool
    if_exists: bool


class Targeting(TypedDict, total=False):
    """Credentials for a target in another account: a role (an ARN) that is assumed, or a profile."""

    target_role: str
    target_profile: str


class ListOptions(Selecting, Running, total=False):
    """Which items, and how to run."""


class PutOptions(Running, Putting, total=False):
    """How to run, and the condition of every put."""


class PutKeysOptions(PutOptions, Targeting, total=False):
    """How to run, the condition of every put, and the credentials for another account."""


class PutListOptions(Selecting, PutKeysOptions, total=False):
    """Which items, how to run, the condition of every put, and the credentials for another account."""


def check(operation: str, given: Mapping[str, Any], known: type) -> None:
    """Raises TypeError for a keyword that an operation does not take: a misspelt cap or filter must not be ignored."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"{operation}() got an unexpected keyword argument {name!r}")


def filter_of(table_name: str, options: Mapping[str, Any], known: Declarations) -> Filter:
    """What the options select. Raises `errors.BadFilter` for a selection that is given but empty."""
    if options.get("include_descriptor", False):
        known = replace(known, descriptor=None)
    clauses = _clauses(options.get("filter"))
    chosen = Filter(
        where=options.get("where"),
        clauses=tuple(each for each in clauses if isinstance(each, str)),
        nodes=tuple(clause(field, operator, *values) for field, operator, *values in _parts(clauses)),
        search=options.get("search"),
        as_of=options.get("as_of"),
        declared=known,
    )
    return with_parameters(chosen, _params(table_name, options.get("params") or {}))


def _params(table_name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the table's name, which may be said again. Raises `errors.BadArgument` for another one."""
    named = given.get("TableName", table_name)
    if named.rpartition("/")[2] != table_name.rpartition("/")[2]:
        raise errors.BadArgument(f"params has TableName {named}, but the table is {table_name}")
    return {name: value for name, value in given.items() if name != "TableName"}


def _clauses(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise errors.BadFilter(f"filter is {given!r}, not a list of clauses", fix=f"filter=[{given!r}]")
    if not given:
        raise errors.BadFilter("filter is an empty list", fix="leave it out where every item is meant")
    return given


def _parts(clauses: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for each in clauses:
        if isinstance(each, str):
            continue
        if not isinstance(each, Sequence) or len(each) < 2:
            raise errors.BadFilter(
                f"{each!r} is no clause", fix='("total", "ge", Decimal("9.5")), or as text "total:ge:9.5"'
            )
        yield each


def running_options(given: Mapping[str, Any]) -> Options:
    """The options of a plan. Raises `errors.BadArgument`."""
    strategy = given.get("strategy", "native")
    if strategy not in ("native", "sequential"):
        raise errors.BadArgument(f"there is no strategy {strategy!r}", fix="native or sequential")
    for name, least in (("max_items", 1), ("max_failures", 0), ("segments", 1)):
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise errors.BadArgument(f"{name} is {value!r}", fix=f"a whole number from {least} on, or None")
    return Options(
        max_items=given.get("max_items"),
        dry_run=bool(given.get("dry_run", False)),
        strategy=strategy,
        max_failures=given.get("max_failures"),
        target_role=given.get("target_role", ""),
        target_profile=given.get("target_profile", ""),
    )


_OPTION = re.compile(r"(?<![\w-])--([a-z]+(?:-[a-z]+)*)")
_NAMES = {
    "all": "all_items",
    "map": "map_fn",
    "keys-from": "a list of keys",
    "filter-expression": "FilterExpression",
    "expression-names": "ExpressionAttributeNames",
    "expression-values": "ExpressionAttributeValues",
}


@contextmanager
def in_python_terms() -> Iterator[None]:
    """While entered, errors name keyword arguments where they would name options of the command line."""
    try:
        yield
    except errors.BulkexecError as error:
        error.message, error.why, error.fix = map(in_python, (error.message, error.why, error.fix))
        error.args = (error.message,)
        raise


def in_python(text: str) -> str:
    """A sentence that names options of the command line, with keywords in their place."""
    return _OPTION.sub(lambda found: _NAMES.get(found[1], found[1].replace("-", "_")), text)
