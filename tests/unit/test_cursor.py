"""A resume token carries any walk there and back, and nothing but a whole token of ours is taken."""

import base64
import string
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec import errors
from bulkexec.cursor import VERSION, Cursor, decode_cursor, require_same
from bulkexec.model import Counts, SegmentRecord

texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
typed = (
    st.builds(lambda text: {"S": text}, texts)
    | st.builds(lambda raw: {"B": base64.b64encode(raw).decode()}, st.binary(max_size=9))
    | st.sampled_from([{"N": "1E+100"}, {"N": "-0.10"}, {"N": "11888647184542023637"}])
)
keys = st.dictionaries(texts, typed, min_size=1, max_size=2).map(lambda key: msgspec.json.encode(key).decode())
states = st.one_of(st.none(), st.just(""), keys)  # not begun, done, open at a key
walks = st.lists(states, min_size=1, max_size=30)
TOKEN = Cursor("f" * 16, 8, ((0, 2),), {5: '{"pk":{"S":"ä"}}'}).encode()


def records_of(walk: list[str | None]) -> list[SegmentRecord]:
    counts = Counts(scanned=5)
    return [
        SegmentRecord(number, counts, last_evaluated_key=state, done=not state)
        for number, state in enumerate(walk)
        if state is not None
    ]


def token_of(**members: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(members)).decode().rstrip("=")


@settings(max_examples=60, deadline=None)
@given(walks, st.randoms(use_true_random=False))
def test_a_walk_goes_on_exactly_where_it_was(walk: list[str | None], chance: object) -> None:
    records = records_of(walk)
    chance.shuffle(records)  # type: ignore[attr-defined]
    token = Cursor.of("print", len(walk), records).encode()
    assert set(token) <= set(string.ascii_letters + string.digits + "-_"), "opaque, and safe in a shell"
    again = decode_cursor(token)
    assert (again.fingerprint, again.segments, again.version) == ("print", len(walk), VERSION)
    found = {record.number: (record.last_evaluated_key, record.done) for record in again.records()}
    assert found == {record.number: (record.last_evaluated_key, record.done) for record in records}


def test_the_records_it_gives_count_nothing() -> None:
    records = records_of(["", '{"pk":{"S":"a"}}'])
    assert all(record.counts == Counts() for record in Cursor.of("f", 2, records).records())


def test_a_record_that_was_not_begun_is_left_out() -> None:
    assert Cursor.of("f", 1, [SegmentRecord(0)]).records() == []


def test_a_token_of_many_finished_segments_is_small() -> None:
    records = [SegmentRecord(number, done=True) for number in range(100_000) if number != 5000]
    assert len(Cursor.of("f" * 16, 100_000, records).encode()) < 300


def test_a_job_is_named_by_its_token() -> None:
    assert decode_cursor(Cursor("f", 8, job="7f3a91c2").encode()).job == "7f3a91c2"


@pytest.mark.parametrize("length", range(len(TOKEN)))
def test_a_token_that_was_cut_off_is_refused(length: int) -> None:
    # case C048
    with pytest.raises(errors.BadToken):
        decode_cursor(TOKEN[:length])


@pytest.mark.parametrize(
    "token",
    [
        "none",
        "{'pk': {'S': 'a'}}",
        "ä",
        "\ud800",
        "=",
        TOKEN + "A",
        TOKEN + "\n\n",
        TOKEN.swapcase(),
        base64.b64encode(b"\xff\xfe").decode(),
        token_of(),
        token_of(fingerprint=1),
        token_of(fingerprint="f", open={"x": "y"}),
        token_of(fingerprint="f", done=[[1]]),
        base64.b64encode(b"[]").decode(),
        base64.b64encode(b"null").decode(),
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(errors.BadToken) as caught:
        decode_cursor(token)
    assert caught.value.exit_code == 2


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_nothing_but_bad_token_comes_of_garbage(token: str) -> None:
    with pytest.raises(errors.BadToken):
        decode_cursor(token)


def test_a_token_of_a_later_version_is_refused_with_both_versions() -> None:
    with pytest.raises(errors.BadToken, match=rf"{VERSION + 1}.*up to {VERSION}"):
        decode_cursor(token_of(fingerprint="f", version=VERSION + 1))


def test_what_a_later_minor_version_adds_is_passed_over() -> None:
    assert decode_cursor(token_of(fingerprint="f", segments=3, new={"a": 1})) == Cursor("f", 3)


def test_what_an_earlier_minor_version_did_not_have_is_filled_in() -> None:
    assert decode_cursor(token_of(fingerprint="f", segments=3)) == Cursor("f", 3)


def test_a_token_of_another_operation_is_refused() -> None:
    require_same(Cursor("f"), "f")
    with pytest.raises(errors.BadToken) as caught:
        require_same(Cursor("f"), "g")
    assert caught.value.fix


@pytest.mark.parametrize(
    "members",
    [
        {"segments": 8, "done": [[0, 10**12]]},
        {"segments": 10**12, "done": [[0, 10**11]]},
        {"segments": 10**6, "done": [[0, 999_999]] * 1000},
        {"segments": 8, "done": [[3, 2]]},
        {"segments": 8, "done": [[-1, 2]]},
        {"segments": 8, "done": [[4, 5], [0, 1]]},
        {"segments": 8, "open": {"8": "{}"}},
        {"segments": 8, "open": {"-1": "{}"}},
        {"segments": -1, "job": "7f3a91c2"},
        {},
    ],
)
def test_what_no_walk_can_have_left_is_refused_without_being_unrolled(members: dict[str, object]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(errors.BadToken, match="no walk can have"):
            decode_cursor(token_of(fingerprint="f", **members))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_the_largest_walk_there_can_be_is_taken() -> None:
    assert decode_cursor(Cursor("f", 10**6, ((0, 999_998),), {999_999: "{}"}).encode()).segments == 10**6
