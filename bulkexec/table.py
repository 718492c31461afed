"""Mass operations in this process: call, look at the cursor, call again until it is absent.

`Table` has the same operations, filters, maps, limits and guarantees as the command line; see README, The Python API.
It needs no Spark, no Glue and no control table, so it suits a Lambda function, a task of Fargate or a laptop.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack

import boto3
import msgspec

from bulkexec import errors
from bulkexec.ceilings import Ceilings
from bulkexec.codec import NotEncodable, from_python, value_to_python
from bulkexec.command import Command, arguments_of
from bulkexec.commands.copy import Copy
from bulkexec.commands.delete import Delete
from bulkexec.commands.edit import Edit
from bulkexec.commands.move import Move
from bulkexec.cost import Prices
from bulkexec.cursor import Cursor, decode_cursor, require_same
from bulkexec.declarations import Declarations, declared, find_file
from bulkexec.given import GivenItems, PutItems
from bulkexec.keyed import KeyReader, segments_for
from bulkexec.maps import Map, as_map
from bulkexec.model import Failure, Options, Plan
from bulkexec.planning import AskedRates, Outline, Planned, check_options, limited, make_outline
from bulkexec.query_parameters import with_parameters
from bulkexec.results import ConflictItem, FailedItem, MassOpResult
from bulkexec.runtimes.assembly import THREADS, Given, MemoryCheckpoints
from bulkexec.runtimes.local import Totals, run_in_process
from bulkexec.segments import total_segments
from bulkexec.selection import Filter
from bulkexec.where import Node, clause

MapFunction = Callable[[dict[str, Any]], Mapping[str, Any] | Literal[False] | None]
Key = Mapping[str, Any]
"""A key as Python values, or as typed ones ({"S": "a"})."""

Clause = str | Sequence[Any]
"""`"status:eq:ACTIVE"`, or field, operator and values: `("total", "ge", Decimal("9.5"))`."""

EVERYTHING = 1 << 62


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
    """Which items, for operations that look for them.

    `params` is what a boto3 Scan or Query takes; `where` is SQL; the `filter` clauses must all hold; `search` is a part
    of a searchable field; `as_of` leaves out what was created later.
    """

    params: Mapping[str, Any] | None
    where: str | None
    filter: Sequence[Clause] | None
    search: str | None
    as_of: datetime | str | float | None
    include_descriptor: bool


class Running(TypedDict, total=False):
    """How to run: the cap, where to go on, how fast (units a second or a share, "30%"), and when to stop.

    `stop` is asked at page boundaries; a run that it stops has a cursor.
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


class ListOptions(Selecting, Running, total=False):
    """Which items, and how to run."""


class PutOptions(ListOptions, total=False):
    """Also: the condition of every put, and credentials for a target in another account."""

    if_not_exists: bool
    if_exists: bool
    target_role: str
    target_profile: str


class Table:
    """A table to run mass operations on, by name or ARN.

    What is not given is taken from `bulkexec.toml`, if there is one. `version_field` makes edits safe against others;
    `created_at_field` is what `as_of` compares; attributes that begin with `technical_prefix` are hidden from maps;
    `descriptor` is the key of a row that is no item; `searchable` are the fields of `search`. Raises
    `errors.BulkexecError`; one that ends a run which has begun has the `cursor` to go on from, None if there is none.
    """

    def __init__(self, name: str, *, session: boto3.Session | None = None, **declarations: Unpack[Declaring]) -> None:
        self.name, self._session = name, session or boto3.Session()
        given: dict[str, Any] = dict(declarations)
        given |= {each: tuple(given[each]) for each in ("keys", "searchable") if each in given}
        self.declarations: Declarations = declared(name.rpartition("/")[2], find_file()).overridden(**given)

    # -- items that are looked for -------------------------------------------------------------------------------

    def delete_list(self, *, all_items: bool = False, **options: Unpack[ListOptions]) -> MassOpResult:
        """Delete the items that are selected; every item only with `all_items`. Deleting an absent key is no error."""
        return self._selected(lambda every: Delete(all=self._every("delete_list", every, all_items)), options)

    def clone_list(
        self, map_fn: Map | MapFunction | None = None, *, to: str = "", **options: Unpack[PutOptions]
    ) -> MassOpResult:
        """Put what the map makes of each selected item into this table or into `to` (a name or an ARN)."""
        return self._selected(lambda every: self._copy(map_fn, to, options), options)

    def move_list(
        self,
        map_fn: Map | MapFunction | None = None,
        *,
        to: str = "",
        all_items: bool = False,
        **options: Unpack[PutOptions],
    ) -> MassOpResult:
        """Put what the map makes of each selected item, and delete the item once that is acknowledged."""
        return self._selected(
            lambda every: replace(self._move(map_fn, to, options), all=self._every("move_list", every, all_items)),
            options,
        )

    def edit_list(
        self, map_fn: Map | MapFunction, *, allow_key_change: bool = False, **options: Unpack[ListOptions]
    ) -> MassOpResult:
        """Write the difference that the map makes to each selected item, or to every item without a selection."""
        return self._selected(lambda every: replace(self._edit(map_fn, allow_key_change), all=every), options)

    # -- items that are given ------------------------------------------------------------------------------------

    def put_items(self, items: Iterable[Mapping[str, Any]], **options: Unpack[PutOptions]) -> MassOpResult:
        """Put the given items, as Python values."""
        given = GivenItems(items)
        command = PutItems(options.get("if_not_exists", False), options.get("if_exists", False), given.fingerprint)
        outline = make_outline(self._session, command, self.name, Filter(keys="items"), _how(options))
        result = self._run(outline, "items", options, Given(command, given.source), len(given.lines))
        if options.get("resume_token"):
            return result  # the first call has said it
        rejected = [_rejected(item, why, outline) for item, why in given.rejected]
        return replace(result, failed=[*rejected, *result.failed], matched=result.matched + len(rejected))

    def delete_by_keys(self, keys: Iterable[Key], **options: Unpack[Running]) -> MassOpResult:
        """Delete the items of these keys. Deleting an absent key is no error."""
        return self._by_keys(keys, Delete(), options)

    def clone_by_keys(
        self,
        keys: Iterable[Key],
        map_fn: Map | MapFunction | None = None,
        *,
        to: str = "",
        **options: Unpack[PutOptions],
    ) -> MassOpResult:
        """As `clone_list`, for the items of these keys."""
        return self._by_keys(keys, self._copy(map_fn, to, options), options)

    def move_by_keys(
        self,
        keys: Iterable[Key],
        map_fn: Map | MapFunction | None = None,
        *,
        to: str = "",
        **options: Unpack[PutOptions],
    ) -> MassOpResult:
        """As `move_list`, for the items of these keys."""
        return self._by_keys(keys, self._move(map_fn, to, options), options)

    def edit_by_keys(
        self,
        keys: Iterable[Key],
        map_fn: Map | MapFunction,
        *,
        allow_key_change: bool = False,
        **options: Unpack[Running],
    ) -> MassOpResult:
        """As `edit_list`, for the items of these keys; this is how conflicts are retried."""
        return self._by_keys(keys, self._edit(map_fn, allow_key_change), options)

    # -- commands ------------------------------------------------------------------------------------------------

    def _copy(self, map_fn: Map | MapFunction | None, to: str, options: Mapping[str, Any]) -> Copy:
        return Copy(
            transform=_map(map_fn),
            technical_prefix=self.declarations.technical_prefix,
            to=to,
            if_not_exists=options.get("if_not_exists", False),
            if_exists=options.get("if_exists", False),
        )

    def _move(self, map_fn: Map | MapFunction | None, to: str, options: Mapping[str, Any]) -> Move:
        known = self.declarations
        return Move(
            transform=_map(map_fn),
            technical_prefix=known.technical_prefix,
            to=to,
            version_field=known.version_field,
            if_not_exists=options.get("if_not_exists", False),
            if_exists=options.get("if_exists", False),
        )

    def _edit(self, map_fn: Map | MapFunction, allow_key_change: bool) -> Edit:
        known = self.declarations
        return Edit(
            transform=_map(map_fn),
            technical_prefix=known.technical_prefix,
            allow_key_change=allow_key_change,
            version_field=known.version_field,
        )

    @staticmethod
    def _every(operation: str, every: bool, all_items: bool) -> bool:
        if every and not all_items:
            raise errors.NoFilter(
                f"{operation} needs a selection, or all_items=True for every item of the table", state="nothing written"
            )
        return every

    # -- one run -------------------------------------------------------------------------------------------------

    def _selected(self, command: Callable[[bool], Command], options: Mapping[str, Any]) -> MassOpResult:
        chosen = self._filter(options)
        made = command(not chosen.narrows)
        outline = make_outline(self._session, made, self.name, chosen, _how(options))
        return self._run(outline, chosen.text, options, Given(outline.command), None)

    def _filter(self, options: Mapping[str, Any]) -> Filter:
        known = self.declarations
        if options.get("include_descriptor", False):
            known = replace(known, descriptor=None)
        given = options.get("filter") or ()
        chosen = Filter(
            where=options.get("where"),
            clauses=tuple(each for each in given if isinstance(each, str)),
            nodes=tuple(_node(each) for each in given if not isinstance(each, str)),
            search=options.get("search"),
            as_of=options.get("as_of"),
            declared=known,
        )
        return with_parameters(chosen, options.get("params") or {})

    def _by_keys(self, keys: Iterable[Key], command: Command, options: Mapping[str, Any]) -> MassOpResult:
        lines = [_key_line(key) for key in keys]
        where = f"{len(lines)} keys {hashlib.sha256(b''.join(lines)).hexdigest()[:16]}"
        chosen = Filter(keys=where, declared=self.declarations)
        outline = make_outline(self._session, command, self.name, chosen, _how(options))
        given = Given(outline.command, lambda calls: KeyReader(calls, outline.work, lambda: lines))
        return self._run(outline, where, options, given, len(lines))

    def _run(
        self, outline: Outline, where: str, options: Mapping[str, Any], given: Given, listed: int | None
    ) -> MassOpResult:
        token = options.get("resume_token")
        cursor = decode_cursor(token) if token is not None else None
        plan = self._plan(outline, where, options, listed, cursor)
        checkpoints = MemoryCheckpoints(cursor.records() if cursor is not None else ())
        stop = options.get("stop") or (lambda: False)
        given = replace(given, failures_kept=EVERYTHING)
        report, error = run_in_process(plan, self._session, "", checkpoints, stop, Totals(), given=given)
        counts = report.counts
        if error is not None:
            error.cursor = report.cursor
            raise error
        return MassOpResult(
            counts.processed,
            counts.skipped,
            [_failed(each) for each in report.failures],
            [ConflictItem(key=_python_key(each), reason=each.reason) for each in report.conflict_keys],
            report.cursor,
            counts.scanned,
            counts.matched,
            counts.read_units,
            counts.write_units,
        )

    def _plan(
        self, outline: Outline, where: str, options: Mapping[str, Any], listed: int | None, cursor: Cursor | None
    ) -> Plan:
        work, size = outline.work, outline.selected.scope.table.size_bytes
        asked = options.get("segments")
        segments = (
            segments_for(listed)
            if listed is not None
            else total_segments(size, THREADS, asked, pinned=work.scope.pinned)
        )
        how = _how(options)
        check_options(how)
        command = outline.command
        plan = Plan(command.name, arguments_of(command), work, segments, command.mutates, how, where=where)
        if cursor is not None:
            require_same(cursor, plan.fingerprint)
            plan = replace(plan, segments=cursor.segments)
        rates = AskedRates(_rate(options.get("read_rate")), _rate(options.get("write_rate")))
        # Without the limits that take further permissions to read; what DescribeTable says is enough for a rate.
        there = None if work.target is None else Ceilings()
        return limited(Planned(plan, Prices("not asked"), asked=rates, target_ceilings=there), None).plan


def _how(options: Mapping[str, Any]) -> Options:
    return Options(
        max_items=options.get("max_items"),
        dry_run=options.get("dry_run", False),
        strategy=options.get("strategy", "native"),
        max_failures=options.get("max_failures"),
        target_role=options.get("target_role", ""),
        target_profile=options.get("target_profile", ""),
    )


def _map(map_fn: Map | MapFunction | None) -> Map | None:
    return None if map_fn is None else as_map(map_fn)


def _rate(given: float | str | None) -> str | None:
    return None if given is None else str(given)


def _node(each: Sequence[Any]) -> Node:
    field, operator, *values = each
    return clause(field, operator, *values)


def _key_line(key: Key) -> bytes:
    typed = all(isinstance(value, dict) and len(value) == 1 for value in key.values())
    try:
        return msgspec.json.encode(key) if typed else from_python(key)
    except NotEncodable as error:
        raise errors.BadArgument(f"a key cannot be stored: {error}") from error


def _python_key(failure: Failure) -> dict[str, Any]:
    return {name: value_to_python(value) for name, value in failure.key.items()}


def _failed(failure: Failure) -> FailedItem:
    return FailedItem(key=_python_key(failure), reason=failure.reason, details=failure.details)


def _rejected(item: Mapping[str, Any], why: str, outline: Outline) -> FailedItem:
    key = {name: item[name] for name in outline.selected.scope.table.key_names if name in item}
    return FailedItem(key=key, reason="NotEncodable", details=why)
