"""Lists of keys: what a line may be, and how a list is divided among segments."""

from collections.abc import Sequence

import msgspec
import pytest

from bulkexec.keyed import KeyReader, segments_for, typed_key
from bulkexec.model import KeyAttribute, Scope, Segment, Table, Work
from tests.unit.scripted import ScriptedWire, calls

KEYS = (KeyAttribute("Keys", "S"), KeyAttribute("n", "N"))
TABLE = Table("orders", "arn:orders", "eu-west-1", "1", KEYS, "ACTIVE", 10, 5000, "on-demand")
KEY = {"Keys": {"S": "é"}, "n": {"N": "1"}}


@pytest.mark.parametrize("whole", [KEY, {"Keys": KEY, "reason": "x"}, {"Item": KEY | {"z": {"L": []}}}])
def test_the_key_of_a_line_even_where_an_attribute_is_called_keys(whole: object) -> None:
    assert msgspec.json.decode(typed_key(msgspec.json.encode(whole), KEYS)) == KEY


@pytest.mark.parametrize("line", [b"[]", b"null", b"{", b"\xff", b'{"Keys":null}', b'{"Keys":{"S":1},"n":{"N":"1"}}'])
def test_what_is_no_key(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        typed_key(line, KEYS)


def walked(lines: Sequence[bytes], total: int, limit: int) -> list[list[bytes]]:
    """The keys of each segment, each page read by a reader that knows nothing of the page before."""
    work = Work(Scope(TABLE, listed=True), projection=TABLE.key_names)
    found = []
    for number in range(total):
        keys: list[bytes] = []
        start: bytes | None = None
        while start is not None or not keys:
            reader = KeyReader(calls(ScriptedWire()), work, lambda: lines)
            page = reader.page(Segment(number, total), start, limit, lambda reasons: None, lambda: False)
            keys += map(bytes, page.items)
            start = page.last_evaluated_key
            if start is None:
                break
        found.append(keys)
    return found


@pytest.mark.parametrize(("total", "limit"), [(1, 7), (3, 100), (5, 1)])
def test_every_key_is_of_one_segment_and_there_once(total: int, limit: int) -> None:
    numbers = [*range(40), *range(20), *range(40)]
    spelled = [f"{n}.0" if place % 2 else f"{n}" for place, n in enumerate(numbers)]
    lines = [msgspec.json.encode({"Keys": {"S": "a"}, "n": {"N": text}}) for text in spelled]
    keys = [key for segment in walked([*lines, b"", b" \n"], total, limit) for key in segment]
    assert sorted(int(float(msgspec.json.decode(key)["n"]["N"])) for key in keys) == list(range(40))


def test_few_keys_are_one_segment() -> None:
    assert [segments_for(keys) for keys in (1, 999, 2500, 10**7)] == [1, 1, 2, 16]
    assert [segments_for(10**7, most) for most in (None, 1, 3, 100)] == [16, 1, 3, 16], "with 1 a map has one thread"
