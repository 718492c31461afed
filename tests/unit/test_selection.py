"""A filter as it is said and as it is asked: what names its fields, and what an index cannot be asked."""

from dataclasses import replace
from typing import Any

import pytest

from bulkexec import errors
from bulkexec.declarations import Declarations
from bulkexec.model import Index, KeyAttribute, Table
from bulkexec.selection import Filter, select, typed_descriptor

KEYS = (KeyAttribute("pk", "S"), KeyAttribute("sk", "N"))
SPARSE = Index("by-due", "GSI", (KeyAttribute("due", "S"),), "INCLUDE", included=("kind",))
TABLE = Table(
    "orders", "arn:orders", "eu-west-1", "1", KEYS, "ACTIVE", 10, 5000, "on-demand", indexes=(SPARSE,), id="7"
)


def test_the_text_tells_filters_apart_that_differ_in_what_is_declared_alone() -> None:
    known = Declarations(created_at_field="at", searchable=("a", "b"))
    chosen = Filter(search="x", as_of="2026-11-30", declared=known)
    others = (
        replace(known, created_at_field="made"),
        replace(known, searchable=("a",)),
        replace(known, descriptor={"pk": "#", "sk": 0}),
    )
    texts = {replace(chosen, declared=other).text for other in (known, *others)}
    assert len(texts) == 4
    assert chosen.text == "a or b has 'x' AND at up to 2026-11-30"


@pytest.mark.parametrize("where", ["due = 'a' AND kind = 1", "pk = 'a' OR sk > 1", "size(kind) > 1 AND NOT due = 'b'"])
def test_an_index_can_be_asked_for_what_it_has(where: str) -> None:
    assert select(TABLE, Filter(where=where, index="by-due")).index == SPARSE


@pytest.mark.parametrize("where", ["status = 'x'", "due = 'a' AND NOT (kind = 1 OR size(notes) > 3)", "a.b IS MISSING"])
def test_what_an_index_does_not_have_is_no_silence(where: str) -> None:
    with pytest.raises(errors.BadFilter, match="by-due does not have"):
        select(TABLE, Filter(where=where, index="by-due"))
    everything = replace(TABLE, indexes=(replace(SPARSE, projection="ALL"),))
    assert select(everything, Filter(where=where, index="by-due")).index is not None


def test_a_key_of_the_index_pins_a_query_and_still_guards_the_item() -> None:
    scope = select(TABLE, Filter(where="due = 'a' AND kind = 1", index="by-due")).scope
    assert scope.pinned
    assert scope.filter is not None
    assert scope.guard is not None
    assert set(scope.guard.names.values()) == {"due", "kind"}


@pytest.mark.parametrize(
    ("kind", "value", "typed"),
    [
        ("S", "a", "a"),
        ("S", 7, "7"),
        ("S", {"S": "a"}, "a"),
        ("N", 1.50, "1.5"),
        ("N", "1E+2", "100"),
        ("N", {"N": "7.0"}, "7"),
        ("B", b"\xff\x00", "/wA="),
        ("B", "/wA=", "/wA="),
        ("S", {"N": "7"}, None),
        ("S", True, None),
        ("S", None, None),
        ("N", "seven", None),
        ("B", 7, None),
    ],
)
def test_the_descriptor_is_written_as_dynamodb_writes_keys_or_refused(kind: Any, value: Any, typed: str | None) -> None:
    keys = (KeyAttribute("pk", kind),)
    if typed is None:
        with pytest.raises(errors.BadArgument, match=f"the key is of type {kind}"):
            typed_descriptor({"pk": value}, keys)
    else:
        assert typed_descriptor({"pk": value}, keys) == {"pk": {kind: typed}}
