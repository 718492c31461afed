"""What the codec makes of values, through DynamoDB's API and back."""

import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import boto3
import msgspec
import pytest
from boto3.dynamodb.types import TypeDeserializer
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec.changes import difference
from bulkexec.codec import BinarySet, NotEncodable, NumberSet, StringSet, from_python, to_python
from bulkexec.sandbox.process import Sandbox
from bulkexec.wire import Fault, HttpWire

Call = Callable[[str, dict[str, Any]], dict[str, Any]]

NUMBERS = st.one_of(
    st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    st.tuples(st.integers(-(10**37), 10**37), st.integers(-130, 88)).map(lambda pair: Decimal(pair[0]).scaleb(pair[1])),
    st.sampled_from(["1E+100", "1E-130", "9.99E+125", "30.40", "11888647184542023637"]).map(Decimal),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(
    TEXTS,
    NUMBERS,
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100, allow_subnormal=False).filter(
        lambda number: number == 0 or abs(number) > 1e-100
    ),
    st.integers(-(2**100), 2**100),
    st.binary(max_size=8),
    st.booleans(),
    st.none(),
    st.sets(TEXTS.filter(bool), min_size=1, max_size=3).map(StringSet),
    st.sets(NUMBERS, min_size=1, max_size=3).map(NumberSet),
    st.sets(st.binary(min_size=1, max_size=3), min_size=1, max_size=3).map(BinarySet),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(bool), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def call(sandbox: Sandbox) -> Iterator[Call]:
    """DynamoDB's API on a table of its own, as raw requests and answers."""
    table = f"codec-{uuid.uuid4().hex[:8]}"
    sandbox.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
    )
    answers = msgspec.json.Decoder(dict[str, msgspec.Raw])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sandbox.env().items():
            patch.setenv(name, value)
        wire = HttpWire(boto3.Session(region_name="us-east-1"), "us-east-1", 1)
        yield lambda operation, body: answers.decode(
            wire.call(operation, msgspec.json.encode({"TableName": table, **body}))
        )


def stored(call: Call, item: dict[str, Any]) -> msgspec.Raw:
    """The item as DynamoDB gives it back."""
    call("PutItem", {"Item": msgspec.Raw(from_python(item))})
    found: msgspec.Raw = call("GetItem", {"Key": {"pk": {"S": item["pk"]}}, "ConsistentRead": True})["Item"]
    return found


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_a_value_comes_back_as_it_was_stored(call: Call, value: Any) -> None:
    # case C001 C002 C004 C006 C007 C015 C017
    once = stored(call, {"pk": "a", "value": value})
    item = to_python(once)
    assert difference(item, {"pk": "a", "value": value}) == ({}, ())
    assert unordered(from_python(item)) == unordered(once)
    assert unordered(stored(call, item)) == unordered(once)


def unordered(raw: bytes | msgspec.Raw) -> Any:
    """Typed JSON, byte for byte but for the order of sets."""

    def ordered(value: Any) -> Any:
        if isinstance(value, list):
            return [ordered(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: sorted(each) if name in ("SS", "NS", "BS") else ordered(each) for name, each in value.items()}

    return ordered(msgspec.json.decode(raw))


@pytest.mark.parametrize(
    "number", ["1E+126", "1E-131", "1" * 39, "-9.99E+126", "0." + "1" * 39], ids=lambda number: number[:8]
)
def test_what_is_refused_here_dynamodb_refuses_too(call: Call, number: str) -> None:
    with pytest.raises(NotEncodable, match=r"^n: "):
        from_python({"pk": "a", "n": Decimal(number)})
    with pytest.raises(Fault) as caught:
        call("PutItem", {"Item": {"pk": {"S": "a"}, "n": {"N": number}}})
    assert caught.value.code == "ValidationException"


def test_boto3_reads_what_was_written(call: Call) -> None:
    item = {"pk": "b", "n": 0.1, "set": {1, 2}, "list": ("x", None, True), "bytes": bytearray(b"\x00")}
    read = msgspec.json.decode(stored(call, item))
    del read["bytes"]  # boto3 itself decodes base64 before its deserializer sees it
    found = {name: TypeDeserializer().deserialize(value) for name, value in read.items()}
    assert found == {"pk": "b", "n": Decimal("0.1"), "set": {Decimal(1), Decimal(2)}, "list": ["x", None, True]}
