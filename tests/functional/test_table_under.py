"""Subtrees in the Python API: call, look at the cursor, call again."""

from decimal import Decimal
from typing import Any

import boto3
import pytest

from bulkexec import Table, errors
from bulkexec.results import MassOpResult

TREE = ("doc", "doc/1", "doc/1/a", "doc/1/b", "doc/2")
BESIDE = ("doc!", "doc2", "z")


@pytest.fixture
def files(sandbox: Any, tables: Any, monkeypatch: pytest.MonkeyPatch) -> Table:
    for name, value in sandbox.env().items():
        monkeypatch.setenv(name, value)
    items = [{"pk": {"N": "1"}, "sk": {"S": name}, "of": {"S": name}} for name in (*TREE, *BESIDE)]
    table = tables.make(items, keys=(("pk", "N"), ("sk", "S")))
    return Table(table, session=boto3.Session(), separator="/")


def names(tables: Any, files: Table, partition: str = "1") -> set[str]:
    return {item["sk"]["S"] for item in tables.read(files.name) if item["pk"]["N"] == partition}


def buckets(result: MassOpResult) -> tuple[int, int, int, int]:
    return result.processed, result.skipped, len(result.failed), len(result.conflicts)


def test_every_operation(files: Table, tables: Any) -> None:
    copied = files.clone_all_under(1, "doc", lambda item: {**item, "seen": True}, to_partition=Decimal(2))
    assert (buckets(copied), copied.cursor) == ((5, 0, 0, 0), None)
    assert names(tables, files, "2") == set(TREE)
    again = files.clone_all_under(1, "doc", to_partition=2, if_not_exists=True)
    assert buckets(again) == (0, 5, 0, 0)
    assert buckets(files.delete_all_under(1, "doc/1")) == (3, 0, 0, 0)
    image = files.clone_with_overwrite(1, "doc", to_partition=2)
    assert buckets(image) == (2 + 3, 0, 0, 0)
    assert names(tables, files, "2") == {"doc", "doc/2"}
    assert buckets(files.rename(1, "doc", "papers")) == (2, 0, 0, 0)
    assert buckets(files.move_all_under(1, "papers", to_prefix="old/papers", to_partition=3)) == (2, 0, 0, 0)
    assert names(tables, files) == set(BESIDE)
    assert names(tables, files, "3") == {"old/papers", "old/papers/2"}


def test_a_move_goes_on_by_its_cursor(files: Table, tables: Any) -> None:
    total, token, calls = [0, 0, 0, 0], None, 0
    while token is not None or not calls:
        result = files.move_all_under(1, "doc", to_prefix="new", max_items=1, resume_token=token)
        total = [one + other for one, other in zip(total, buckets(result), strict=True)]
        token, calls = result.cursor, calls + 1
    assert (total, calls > 5) == ([5, 0, 0, 0], True)
    assert names(tables, files) == {*BESIDE, *(f"new{name[3:]}" for name in TREE)}


def test_what_cannot_be_put_is_named_by_its_source(files: Table, sandbox: Any, tables: Any) -> None:
    sandbox.control.faults.add(kind="error", operation="PutItem", code="ValidationException", count=1)
    try:
        result = files.clone_all_under(1, "doc", to_partition=2, strategy="sequential")
    finally:
        sandbox.control.faults.clear()
    assert buckets(result) == (4, 0, 1, 0)
    assert result.failed[0]["key"] == {"pk": 1, "sk": "doc"}
    assert names(tables, files, "2") == set(TREE) - {"doc"}


def test_refusals_speak_of_keywords(files: Table, tables: Any) -> None:
    with pytest.raises(errors.BadArgument, match="overlap") as refused:
        files.move_all_under(1, "doc", to_prefix="doc/1")
    assert "to_prefix" in refused.value.fix
    with pytest.raises(errors.BadArgument, match="of type N"):
        files.delete_all_under("one", "doc")
    with pytest.raises(TypeError, match="unexpected keyword"):
        files.delete_all_under(1, "doc", to_prefix="x")  # type: ignore[call-arg]
    with pytest.raises(errors.BadArgument, match="what separates"):
        Table(files.name, session=boto3.Session()).delete_all_under(1, "doc")
    assert names(tables, files) == {*TREE, *BESIDE}


def test_the_image_of_nothing_is_refused(files: Table, tables: Any) -> None:
    """A mistyped source would delete all of the destination."""
    before = names(tables, files)
    for partition, prefix in ((7, "doc"), (1, "dok")):
        with pytest.raises(errors.BadArgument, match="there is nothing at"):
            files.clone_with_overwrite(partition, prefix, to_partition=1, to_prefix="doc")
    assert names(tables, files) == before
