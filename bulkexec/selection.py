"""Which items a run is about, as the user says it, and as DynamoDB is asked for it."""

import base64
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from bulkexec import errors, where
from bulkexec.declarations import NOTHING, Declarations
from bulkexec.model import Index, KeyAttribute, Scope, Table, Work
from bulkexec.where import Node
from bulkexec.where.portable import to_portable
from bulkexec.where.raw_tree import tree_of
from bulkexec.where.tree import is_number

Moment = datetime | str | int | float
"""A point in time as `as_of` takes it: a datetime, an ISO 8601 text, or an epoch number as the table has it."""


@dataclass(frozen=True)
class Filter:
    """The filter as the user gave it: SQL, or a raw expression with its names and values as JSON; and what goes along.

    `clauses` are `field:op:value`, all of which must hold; `search` is a part of any searchable field; `as_of` keeps
    what was created later out. `index` is where it is looked for, `keys` the list of keys that takes a filter's place.
    `key_expression` is a KeyConditionExpression that shares names and values with the other; `nodes` are clauses
    already parsed. `declared` is what is known of the table beyond what DynamoDB says.
    """

    where: str | None = None
    expression: str | None = None
    names: str | None = None
    values: str | None = None
    clauses: tuple[str, ...] = ()
    search: str | None = None
    as_of: Moment | None = None
    index: str = ""
    keys: str = ""
    nodes: tuple[Node, ...] = ()
    key_expression: str | None = None
    consistent: bool = False
    declared: Declarations = NOTHING

    @property
    def text(self) -> str:
        """For people and for the plan's fingerprint."""
        raw = (self.key_expression, self.expression, self.names, self.values)
        parts = [self.where or "", " ".join(part for part in raw if part)]
        parts += [*self.clauses, *(msgspec.json.encode(to_portable(node)).decode() for node in self.nodes)]
        declared = self.declared
        parts += [f"{' or '.join(declared.searchable)} has {self.search!r}"] if self.search is not None else []
        parts += [f"{declared.created_at_field} up to {self.as_of}"] if self.as_of is not None else []
        parts += [f"index {self.index}"] if self.index else []
        parts += [f"keys from {self.keys}"] if self.keys else []
        parts += ["without the descriptor row"] if declared.descriptor is not None else []
        return " AND ".join(part for part in parts if part)

    @property
    def narrows(self) -> bool:
        """Whether it says anything about items' attributes."""
        given = (self.where, self.expression, self.key_expression, self.search, self.as_of)
        return bool(self.clauses or self.nodes) or any(each is not None for each in given)


@dataclass(frozen=True)
class Selected:
    """A filter compiled for a table: its scope, its tree (None for no filter, or one that is no tree), and remarks."""

    scope: Scope
    node: Node | None = None
    index: Index | None = None
    remarks: tuple[str, ...] = ()


def select(table: Table, chosen: Filter) -> Selected:
    """What a filter selects from a table.

    Raises `errors.BadFilter`, `errors.BadArgument`, and `errors.CreatedAtFieldNotDeclared` for an `as_of` that says
    nothing about this table.
    """
    _check(chosen)
    _check_keys(table, chosen.declared)
    index = _index(table, chosen.index)
    if chosen.keys:
        return Selected(Scope(table, listed=True))
    node = where.conjunction(list(_nodes(table, chosen)))
    if chosen.expression is not None or chosen.key_expression is not None:
        scope = _raw_scope(table, node, chosen)
        return Selected(scope, _raw_node(scope), index)
    if node is None:
        return Selected(Scope(table), None, index)
    if index is not None:
        _check_projected(table, node, index)
    return Selected(_scope(table, node, index), node, index, where.notes(node, table.keys))


def _scope(table: Table, node: Node, index: Index | None) -> Scope:
    pinned, rest = where.split_key(node, table.keys if index is None else index.keys)
    guard = where.guard_of(node, table.keys)
    return Scope(
        table,
        filter=None if rest is None else where.compile_filter(rest, table.keys),
        key_condition=None if pinned is None else where.compile_key_condition(pinned),
        guard=None if guard is None else where.compile_filter(guard, table.keys),
        guard_statement=None if guard is None else where.compile_statement(guard, table.keys),
    )


def _raw_scope(table: Table, node: Node | None, chosen: Filter) -> Scope:
    """From expressions in DynamoDB's own syntax, and clauses besides."""
    key, names, values = chosen.key_expression, chosen.names, chosen.values
    both = None if node is None else where.compile_filter(node, table.keys)
    if chosen.expression is not None:
        if key is not None:
            names, values = where.used(chosen.expression, names), where.used(chosen.expression, values)
        raw = where.from_raw(chosen.expression, names, values)
        both = raw if both is None else where.merge(raw, both)
    if key is None:
        return Scope(table, filter=both, guard=both)
    pinned = where.from_raw(key, where.used(key, chosen.names), where.used(key, chosen.values))
    # Names and values of the two may be shared; in a request each has aliases of its own.
    both = None if both is None else where.realiased(both, ("n", "v"))
    return Scope(table, filter=both, key_condition=where.realiased(pinned, ("k", "k")), guard=both)


def _raw_node(scope: Scope) -> Node | None:
    """What expressions select, as a tree; None unless all of it can be one."""
    trees = [tree_of(each) for each in (scope.key_condition, scope.filter) if each is not None]
    return None if None in trees else where.conjunction([tree for tree in trees if tree is not None])


def _check(chosen: Filter) -> None:
    if chosen.where is not None and chosen.expression is not None:
        raise errors.BadArgument("--where and --filter-expression exclude each other", fix="give one of them")
    if (
        chosen.expression is None
        and chosen.key_expression is None
        and (chosen.names is not None or chosen.values is not None)
    ):
        raise errors.BadArgument("--expression-names and --expression-values go with --filter-expression")
    if chosen.keys and (chosen.narrows or chosen.index):
        raise errors.BadArgument(
            "--keys-from names the items; it goes with no filter and no index", fix="give one of them"
        )


def _check_keys(table: Table, declared: Declarations) -> None:
    if declared.keys and declared.keys != table.key_names:
        raise errors.BadArgument(
            f"{table.name} is declared with the keys {', '.join(declared.keys)}, but has {', '.join(table.key_names)}",
            fix="mend bulkexec.toml",
        )


def _index(table: Table, name: str) -> Index | None:
    if not name:
        return None
    for index in table.indexes:
        if index.name == name:
            return index
    there = ", ".join(index.name for index in table.indexes) or "none"
    raise errors.BadArgument(f"{table.name} has no index {name!r}", fix=f"it has: {there}")


def _check_projected(table: Table, node: Node, index: Index) -> None:
    """In the entries of an index what is not projected is missing, so a filter on it would silently match nothing."""
    if index.projection == "ALL":
        return
    there = {*table.key_names, *(key.name for key in index.keys), *index.included}
    asked = dict.fromkeys(str(path.parts[0]) for leaf in where.leaves(node) for path in where.paths(leaf))
    missing = [name for name in asked if name not in there]
    if missing:
        raise errors.BadFilter(
            f"the index {index.name} does not have {', '.join(missing)}, so it cannot be filtered by that",
            why=f"it has {', '.join(sorted(there))}",
            fix="leave --index out, or filter by what it has",
        )


def _nodes(table: Table, chosen: Filter) -> list[Node]:
    declared = chosen.declared
    nodes: list[Node] = [] if chosen.where is None else [where.parse_where(chosen.where)]
    nodes += [*chosen.nodes, *(where.parse_clause(text, table.keys) for text in chosen.clauses)]
    if chosen.search is not None:
        if not declared.searchable:
            raise errors.BadArgument(
                "no searchable fields are declared", fix="name them with --searchable or in bulkexec.toml"
            )
        nodes.append(where.search_node(chosen.search, declared.searchable))
    if chosen.as_of is not None:
        if not declared.created_at_field:
            raise errors.CreatedAtFieldNotDeclared(
                "--as-of needs to know which attribute says when an item was created",
                fix="name it with --created-at-field or in bulkexec.toml",
            )
        nodes.append(where.as_of_node(declared.created_at_field, chosen.as_of))
    return nodes


def narrowed(work: Work, selected: Selected, chosen: Filter) -> Work:
    """A command's work with where its pages come from, and without the row that is no item."""
    index, whole = selected.index, not work.projection and not work.count_only
    work = replace(
        work,
        index="" if index is None else index.name,
        lookup=index is not None and index.projection != "ALL" and whole,
        keys=chosen.keys,
        consistent=work.consistent or chosen.consistent,
        selects=None if selected.node is None else to_portable(selected.node),
    )
    if chosen.declared.descriptor is None:
        return work
    names = selected.scope.table.key_names
    hidden = typed_descriptor(chosen.declared.descriptor, selected.scope.table.keys)
    if work.count_only:
        return replace(work, hidden=hidden, count_only=False, projection=names)
    return replace(work, hidden=hidden)


def typed_descriptor(descriptor: dict[str, Any], keys: tuple[KeyAttribute, ...]) -> dict[str, Any]:
    """The descriptor's key as typed JSON; plain values take the types of the key. Raises `errors.BadArgument`."""
    if set(descriptor) != {key.name for key in keys}:
        raise errors.BadArgument(
            f"the descriptor has {', '.join(descriptor)}, but the key is {', '.join(key.name for key in keys)}",
            fix="mend bulkexec.toml",
        )
    return {key.name: {key.type: _descriptor_text(key, descriptor[key.name])} for key in keys}


def _descriptor_text(key: KeyAttribute, value: Any) -> str:
    """As DynamoDB itself writes it. What no item's key can equal would hide nothing, so it is refused."""
    text = value.get(key.type) if isinstance(value, dict) else value
    if key.type == "B" and isinstance(text, bytes):
        return base64.b64encode(text).decode()
    if key.type == "N" and is_number(str(text)):
        return format(Decimal(str(text)).normalize(), "f")
    if key.type != "N" and (isinstance(text, str) or (key.type == "S" and type(text) is int)):
        return str(text)
    raise errors.BadArgument(
        f"the descriptor's {key.name} is {value!r}, but the key is of type {key.type}", fix="mend the descriptor"
    )
