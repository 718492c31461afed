"""Mass operations in this process: call, look at the cursor, call again until it is absent.

`Table` has the same operations, filters, maps, limits and guarantees as the command line; see README, The Python API.
It needs no Spark, no Glue and no control table, so it suits a Lambda function, a task of Fargate or a laptop.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack

import boto3
import msgspec

from bulkexec import errors
from bulkexec.ceilings import Ceilings
from bulkexec.codec import NotEncodable, from_python, value_from_python, value_to_python
from bulkexec.command import Command, arguments_of
from bulkexec.commands.copy import Copy
from bulkexec.commands.delete import Delete
from bulkexec.commands.edit import Edit
from bulkexec.commands.move import Move
from bulkexec.cost import Prices
from bulkexec.cursor import Cursor, decode_cursor, require_same
from bulkexec.declarations import Declarations, declared, find_file
from bulkexec.given import GivenItems, PutItems
from bulkexec.keyed import KeyReader, segments_for, typed_key
from bulkexec.keywords import (
    Declaring,
    Key,
    ListOptions,
    PutKeysOptions,
    PutListOptions,
    PutOptions,
    Running,
    check,
    filter_of,
    in_python,
    in_python_terms,
    running_options,
)
from bulkexec.maps import Map, as_map
from bulkexec.model import Failure, KeyAttribute
from bulkexec.plan import Plan
from bulkexec.planning import AskedRates, Outline, Planned, limited, make_outline
from bulkexec.report import Report
from bulkexec.results import ConflictItem, FailedItem, MassOpResult
from bulkexec.runtimes.assembly import THREADS, Given, MemoryCheckpoints
from bulkexec.runtimes.local import Totals, run_in_process
from bulkexec.segments import total_segments
from bulkexec.selection import Filter
from bulkexec.table_under import SubtreeOperations

MapFunction = Callable[[dict[str, Any]], Mapping[str, Any] | Literal[False] | None]
"""From an item as Python values to another one; None or False leaves the item as it is. See `bulkexec.codec`."""

EVERYTHING = 1 << 62


class Table(SubtreeOperations):
    """A table to run mass operations on, by name or ARN.

    Declarations that are not given are taken from `bulkexec.toml`, if there is one: `keys` are checked against the
    table's own; `version_field` makes edits safe against others; `created_at_field` is what `as_of` compares;
    attributes that begin with `technical_prefix` are hidden from maps; `descriptor` is the key of a row that is no
    item; `searchable` are the fields of `search`.

    Every operation runs until its end or a stop (`max_items`, `stop`) and gives a `MassOpResult`; keyword arguments
    are those of `keywords.Selecting`, `Running` and `Putting`. Maps are called from several threads at once unless
    `segments=1`. There is no order among items, and no two writes are one transaction. When the process dies, what ran
    since the last cursor that it kept has to be run again, so maps should give the same for what they made themselves.

    Every operation raises `errors.Refused`, with nothing written, for what cannot begin: BadFilter, BadArgument,
    BadToken (the token is of another operation, table, filter, map or option), TableMissing, RecoveryOff,
    CreatedAtFieldNotDeclared and the like. An error that ends a run which has begun (AccessDenied, Exhausted,
    Unreachable, TooManyFailures, ...) has the `cursor` to go on from and the `result` so far; before that both are
    None. What is wrong with single items is no error but in `failed` and `conflicts`.
    """

    def __init__(self, name: str, *, session: boto3.Session | None = None, **declarations: Unpack[Declaring]) -> None:
        check("Table", declarations, Declaring)
        self.name, self._session = name, session or boto3.Session()
        given: dict[str, Any] = dict(declarations)
        given |= {each: tuple(given[each]) for each in ("keys", "searchable") if each in given}
        self.declarations: Declarations = declared(name.rpartition("/")[2], find_file()).overridden(**given)

    # -- items that are looked for -------------------------------------------------------------------------------

    def delete_list(self, *, all_items: bool = False, **options: Unpack[ListOptions]) -> MassOpResult:
        """Delete the items that are selected; every item only with `all_items`, else `errors.NoFilter`.

        The selection goes along with each delete: an item that does not match any more is skipped.
        """
        check("delete_list", options, ListOptions)
        return self._selected(lambda every: Delete(all=self._every("delete_list", every, all_items)), options)

    def clone_list(
        self, map_fn: Map | MapFunction | None = None, *, to: str = "", **options: Unpack[PutListOptions]
    ) -> MassOpResult:
        """Put what the map makes of each selected item into this table or into `to` (a name or an ARN).

        Without a map items go over byte for byte, to another table. Within one table a selection is needed that the
        output does not match; an output that does is failed (OutputMatches), since it would be found again.
        """
        check("clone_list", options, PutListOptions)
        return self._selected(lambda every: self._copy(map_fn, to, options), options)

    def move_list(
        self,
        map_fn: Map | MapFunction | None = None,
        *,
        to: str = "",
        all_items: bool = False,
        **options: Unpack[PutListOptions],
    ) -> MassOpResult:
        """Put what the map makes of each selected item, and delete the item once that is acknowledged.

        As `clone_list`, but every item of the table only with `all_items`. After a sudden death an item may be in both
        places, never in neither. `processed` counts items, not the two writes of each.
        """
        check("move_list", options, PutListOptions)
        return self._selected(
            lambda every: replace(self._move(map_fn, to, options), all=self._every("move_list", every, all_items)),
            options,
        )

    def edit_list(
        self, map_fn: Map | MapFunction, *, allow_key_change: bool = False, **options: Unpack[ListOptions]
    ) -> MassOpResult:
        """Write the difference that the map makes to each selected item, or to every item without a selection.

        An item that is gone, or that does not match any more, is skipped. With a declared `version_field` the version
        is counted up, and an item that somebody else changed in between is in `conflicts`, for `edit_by_keys`. A map
        that changes a key fails the item (KeyChanged); `allow_key_change` makes that a move.
        """
        check("edit_list", options, ListOptions)
        return self._selected(lambda every: replace(self._edit(map_fn, allow_key_change), all=every), options)

    # -- items that are given ------------------------------------------------------------------------------------

    def put_items(self, items: Iterable[Mapping[str, Any]], **options: Unpack[PutOptions]) -> MassOpResult:
        """Put the given items, as Python values.

        All are encoded before the first is sent, so they have to fit into memory; those that DynamoDB cannot hold are
        failed (NotEncodable, KeyInvalid). With a `resume_token` give the same items again. Give each key once: which of
        two would win is not said.
        """
        check("put_items", options, PutOptions)
        with in_python_terms():
            given = GivenItems(items)
            command = PutItems(options.get("if_not_exists", False), options.get("if_exists", False), given.fingerprint)
            outline = make_outline(self._session, command, self.name, Filter(keys="items"), running_options(options))
            rejected = [] if options.get("resume_token") else [_rejected(*each, outline) for each in given.rejected]
            try:
                result = self._run(outline, "items", options, Given(command, given.source), len(given.lines))
            except errors.BulkexecError as error:
                error.result = None if error.result is None else _with(error.result, rejected)
                raise
        return _with(result, rejected)

    def delete_by_keys(self, keys: Iterable[Key], **options: Unpack[Running]) -> MassOpResult:
        """Delete the items of these keys. Deleting an absent key is no error."""
        check("delete_by_keys", options, Running)
        return self._by_keys(keys, Delete(), options)

    def clone_by_keys(
        self,
        keys: Iterable[Key],
        map_fn: Map | MapFunction | None = None,
        *,
        to: str = "",
        **options: Unpack[PutKeysOptions],
    ) -> MassOpResult:
        """As `clone_list`, for the items of these keys. A key without an item is skipped."""
        check("clone_by_keys", options, PutKeysOptions)
        return self._by_keys(keys, self._copy(map_fn, to, options), options)

    def move_by_keys(
        self,
        keys: Iterable[Key],
        map_fn: Map | MapFunction | None = None,
        *,
        to: str = "",
        **options: Unpack[PutKeysOptions],
    ) -> MassOpResult:
        """As `move_list`, for the items of these keys. A key without an item is skipped."""
        check("move_by_keys", options, PutKeysOptions)
        return self._by_keys(keys, self._move(map_fn, to, options), options)

    def edit_by_keys(
        self,
        keys: Iterable[Key],
        map_fn: Map | MapFunction,
        *,
        allow_key_change: bool = False,
        **options: Unpack[Running],
    ) -> MassOpResult:
        """As `edit_list`, for the items of these keys; this is how conflicts are retried:

        `table.edit_by_keys([each["key"] for each in result.conflicts], map_fn)`. A key without an item is skipped.
        """
        check("edit_by_keys", options, Running)
        return self._by_keys(keys, self._edit(map_fn, allow_key_change), options)

    # -- commands ------------------------------------------------------------------------------------------------

    def _copy(self, map_fn: Map | MapFunction | None, to: str, options: Mapping[str, Any]) -> Copy:
        return Copy(
            transform=None if map_fn is None else _map(map_fn),
            technical_prefix=self.declarations.technical_prefix,
            to=to,
            if_not_exists=options.get("if_not_exists", False),
            if_exists=options.get("if_exists", False),
        )

    def _move(self, map_fn: Map | MapFunction | None, to: str, options: Mapping[str, Any]) -> Move:
        known = self.declarations
        return Move(
            transform=None if map_fn is None else _map(map_fn),
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
        return all_items

    # -- one run -------------------------------------------------------------------------------------------------

    @in_python_terms()
    def _selected(self, command: Callable[[bool], Command], options: Mapping[str, Any]) -> MassOpResult:
        chosen = filter_of(self.name, options, self.declarations)
        made = command(not chosen.narrows)
        outline = make_outline(self._session, made, self.name, chosen, running_options(options))
        return self._run(outline, chosen.text, options, Given(outline.command), None)

    @in_python_terms()
    def _by_keys(self, keys: Iterable[Key], command: Command, options: Mapping[str, Any]) -> MassOpResult:
        lines = [_key_line(key) for key in keys]
        listed = f"{len(lines)} keys {hashlib.sha256(b''.join(lines)).hexdigest()[:16]}"
        chosen = Filter(keys=listed, declared=self.declarations)
        outline = make_outline(self._session, command, self.name, chosen, running_options(options))
        _require_keys(lines, outline.selected.scope.table.keys)
        given = Given(outline.command, lambda calls: KeyReader(calls, outline.work, lambda: lines))
        return self._run(outline, chosen.text, options, given, len(lines))

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
        result = _result(report)
        if error is not None:
            error.cursor, error.result = report.cursor, result
            raise error
        return result

    def _plan(
        self, outline: Outline, where: str, options: Mapping[str, Any], listed: int | None, cursor: Cursor | None
    ) -> Plan:
        work, size = outline.work, outline.selected.scope.table.size_bytes
        asked = options.get("segments")
        segments = total_segments(size, THREADS, asked, pinned=work.scope.pinned)
        if listed is not None:
            segments = segments_for(listed, asked)
        elif work.phases:
            segments = len(work.phases)
        command = outline.command
        how = running_options(options)
        plan = Plan(command.name, arguments_of(command), work, segments, command.mutates, how, where=where)
        if cursor is not None:
            _require_here(cursor)
            require_same(cursor, plan.fingerprint)
            plan = replace(plan, segments=cursor.segments)
        rates = AskedRates(_rate(options.get("read_rate")), _rate(options.get("write_rate")))
        # Without the limits that take further permissions to read; what DescribeTable says is enough for a rate.
        there = None if work.target is None else Ceilings()
        return limited(Planned(plan, Prices("not asked"), asked=rates, target_ceilings=there), None).plan


def _require_here(cursor: Cursor) -> None:
    """The checkpoints of a job are not in its token, and without them the run would begin anew."""
    if cursor.job:
        raise errors.BadToken(f"the token is of job {cursor.job}", fix=f"bulkexec resume {cursor.job}")


def _map(map_fn: Map | MapFunction) -> Map:
    if not isinstance(map_fn, Map) and not callable(map_fn):
        raise TypeError(f"map_fn is {map_fn!r}, not a function of an item or one of bulkexec.maps")
    return as_map(map_fn)


def _rate(given: float | str | None) -> str | None:
    return None if given is None else str(given)


def _key_line(key: Key) -> bytes:
    if not isinstance(key, Mapping):
        raise errors.BadArgument(f"{key!r} is no key", fix='give a list: [{"pk": "a"}]', state="nothing written")
    typed = bool(key) and all(isinstance(value, dict) and len(value) == 1 for value in key.values())
    try:
        return msgspec.json.encode(key) if typed else from_python(key)
    except (NotEncodable, TypeError) as error:
        raise errors.BadArgument(f"the key {key!r} cannot be stored: {error}", state="nothing written") from error


def _require_keys(lines: Iterable[bytes], keys: tuple[KeyAttribute, ...]) -> None:
    for number, line in enumerate(lines):
        try:
            typed_key(line, keys)
        except ValueError as error:
            raise errors.BadArgument(
                f"number {number} of the keys is none of this table: {error}", state="nothing written"
            ) from error


def _result(report: Report) -> MassOpResult:
    counts = report.counts
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


def _failed(failure: Failure) -> FailedItem:
    ours = failure.reason != "MapRaised"
    details = in_python(failure.details) if ours else failure.details
    return FailedItem(key=_python_key(failure), reason=failure.reason, details=details)


def _python_key(failure: Failure) -> dict[str, Any]:
    return {name: value_to_python(value) for name, value in failure.key.items()}


def _with(result: MassOpResult, rejected: list[FailedItem]) -> MassOpResult:
    """Also with items that were rejected before the first was sent; only the first call says so."""
    return replace(result, failed=[*rejected, *result.failed], matched=result.matched + len(rejected))


def _rejected(item: Mapping[str, Any], why: str, outline: Outline) -> FailedItem:
    names = outline.selected.scope.table.key_names
    key = {name: item[name] for name in names if name in item and _encodable(item[name])}
    return FailedItem(key=key, reason="NotEncodable", details=why)


def _encodable(value: Any) -> bool:
    try:
        value_from_python(value)
    except NotEncodable:
        return False
    return True
