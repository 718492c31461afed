"""The order of a scan: by keys alone, and cut into segments without gaps."""

import base64
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec.sandbox.shelf import HASH_SPACE, Place, Shelf, place_of, segment_of, sortable

TABLE_KEYS = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]

keys = st.tuples(st.text(min_size=1, max_size=3), st.integers(-5, 50))


def item_of(key: tuple[str, int]) -> dict[str, Any]:
    return {"pk": {"S": key[0]}, "sk": {"N": str(key[1])}}


def put(table: dict[str, Any], shelf: Shelf | None, key: tuple[str, int]) -> None:
    item = item_of(key)
    row = table["items"].setdefault(key[0], {})
    table["ItemCount"] += str(key[1]) not in row
    row[str(key[1])] = item
    if shelf is not None:
        shelf.add(key[0], str(key[1]), item)


def delete(table: dict[str, Any], key: tuple[str, int]) -> None:
    row = table["items"].get(key[0], {})
    table["ItemCount"] -= row.pop(str(key[1]), None) is not None


def made(wanted: set[tuple[str, int]]) -> dict[str, Any]:
    table: dict[str, Any] = {"items": {}, "KeySchema": TABLE_KEYS, "ItemCount": 0}
    for key in wanted:
        put(table, None, key)
    return table


def walked(shelf: Shelf, *arguments: Any) -> list[tuple[str, int]]:
    return [(one.item["pk"]["S"], int(one.item["sk"]["N"])) for one in shelf.walk(*arguments)]


@settings(max_examples=60)
@given(st.sets(keys, max_size=40), st.integers(1, 12))
def test_segments_are_disjoint_and_complete(wanted: set[tuple[str, int]], total: int) -> None:
    shelf = Shelf(made(wanted))
    found = [key for segment in range(total) for key in walked(shelf, segment, total)]
    assert sorted(found) == sorted(wanted)
    assert found == walked(shelf)


@settings(max_examples=60)
@given(st.sets(keys, min_size=2, max_size=40), st.sets(keys, max_size=20), st.data())
def test_going_on_from_a_key_sees_what_follows_it_whatever_happens(
    wanted: set[tuple[str, int]], written: set[tuple[str, int]], data: st.DataObject
) -> None:
    table = made(wanted)
    shelf = Shelf(table)
    order = walked(shelf)
    at = data.draw(st.integers(0, len(order) - 1))
    deleted = data.draw(st.sets(st.sampled_from(order)))
    for key in deleted:
        delete(table, key)
    for key in written:
        put(table, shelf, key)
    after = place_of(table, table, item_of(order[at]))
    rest = walked(shelf, 0, 1, after)
    kept = [key for key in order[at + 1 :] if key not in deleted or key in written]
    assert [key for key in rest if key in set(order)] == kept
    assert len(rest) == len(set(rest))


@settings(max_examples=60)
@given(st.integers(0, HASH_SPACE - 1), st.integers(1, 1_000_000))
def test_every_hash_lies_in_one_segment(place: int, total: int) -> None:
    segment = segment_of(Place(place, "", ""), total)
    assert 0 <= segment < total
    assert -(-segment * HASH_SPACE // total) <= place < -(-(segment + 1) * HASH_SPACE // total)


def test_sort_keys_sort_as_dynamodb_sorts() -> None:
    assert [sortable({"N": n}) for n in ("-1", "0.5", "9", "1E+1")] == sorted(
        sortable({"N": n}) for n in ("9", "1E+1", "-1", "0.5")
    )
    binary = [{"B": base64.b64encode(raw).decode()} for raw in (b"\x00", b"\x00\x01", b"\x7f", b"\xff")]
    assert sorted(binary, key=sortable) == binary
    texts = [{"S": text} for text in ("Z", "a", "é", "\uffff", "\U0001f600")]
    assert sorted(texts, key=sortable) == texts


def test_numbers_written_differently_have_one_place() -> None:
    table = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}
    places = {place_of(table, table, {"pk": {"N": text}}) for text in ("1", "1.0", "1E0", "0.1E+1")}
    assert len(places) == 1
