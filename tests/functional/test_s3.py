"""Objects, spilled files and manifests on the sandbox's S3, read back with plain boto3."""

import base64
import gzip
import hashlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.exceptions
import pytest

from bulkexec import errors
from bulkexec.model import KeyAttribute, Table
from bulkexec.s3 import Location, Objects, Spill, first_rows, item_line, write_manifest
from bulkexec.sandbox.process import Sandbox, environment

ARN = "arn:aws:dynamodb:us-east-1:111122223333:table/orders"
TABLE = Table("orders", ARN, "us-east-1", "111122223333", (KeyAttribute("pk", "S"),), "ACTIVE", 2, 100, "on-demand")


@pytest.fixture(scope="module")
def session(sandbox: Sandbox) -> Iterator[boto3.Session]:
    """A session that talks to the sandbox, as the command line's does."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(sandbox.running).items():
            patch.setenv(name, value)
        yield boto3.Session(region_name="us-east-1")


@pytest.fixture(scope="module")
def objects(session: boto3.Session) -> Objects:
    return Objects(session, "us-east-1")


@pytest.fixture(scope="module")
def bucket(sandbox: Sandbox) -> str:
    name = f"results-{uuid.uuid4().hex[:8]}"
    sandbox.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def place(bucket: str) -> Location:
    return Location(bucket, f"{uuid.uuid4().hex[:6]}/AWSDynamoDB/01700000000000-abcd1234")


def test_an_object_is_read_back_and_its_etag_is_told(objects: Objects, place: Location, sandbox: Sandbox) -> None:
    data = "ä\n".encode() * 1000
    etag = objects.put(place / "one", data)
    assert objects.get(place / "one") == data
    assert objects.exists(place / "one")
    head = sandbox.client("s3").head_object(Bucket=place.bucket, Key=(place / "one").key)
    assert head["ETag"].strip('"') == etag == hashlib.md5(data).hexdigest()


def test_what_is_not_there_is_none(objects: Objects, place: Location) -> None:
    assert objects.get(place / "nothing") is None
    assert not objects.exists(place / "nothing")
    nowhere = Location("no-such-bucket-at-all", "key")
    assert objects.get(nowhere) is None
    assert not objects.exists(nowhere)
    assert not objects.bucket_exists(nowhere.bucket)
    assert objects.bucket_exists(place.bucket)


def test_a_place_that_can_be_written_is_tried_out(objects: Objects, place: Location, sandbox: Sandbox) -> None:
    objects.require_writable(place)
    listed = sandbox.client("s3").list_objects_v2(Bucket=place.bucket, Prefix=place.key)["Contents"]
    assert [entry["Size"] for entry in listed] == [0]


@pytest.mark.parametrize("name", ["no-such-bucket-at-all", "a", "UPPER_case!", "x" * 300])
def test_a_bucket_that_is_not_there_is_one_sentence(objects: Objects, name: str) -> None:
    # case C100 C134 C149
    with pytest.raises(errors.ResultsUnusable) as caught:
        objects.require_writable(Location(name, "prefix"))
    assert "\n" not in caught.value.message
    assert name[:20] in caught.value.message


def test_a_bucket_that_may_not_be_written_is_one_sentence(objects: Objects, place: Location, sandbox: Sandbox) -> None:
    # case C100
    sandbox.control.faults.add("error", service="s3", operation="PutObject", code="AccessDenied", status=403)
    try:
        with pytest.raises(errors.ResultsUnusable, match="AccessDenied"):
            objects.require_writable(place)
        with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
            objects.put(place / "one", b"x")
    finally:
        sandbox.control.faults.clear()
    assert objects.get(place / "one") is None


ITEMS: list[dict[str, Any]] = [
    {"pk": {"S": "ä"}, "n": {"N": "1E+100"}, "none": {"NULL": True}, "empty": {"S": ""}, "list": {"L": []}},
    {"pk": {"S": "b"}, "ss": {"SS": ["a"]}, "ns": {"NS": ["11888647184542023637", "1.0"]}, "bs": {"BS": ["AP8="]}},
    {"pk": {"S": "c"}, "map": {"M": {"a.b": {"L": [{"BOOL": False}, {"M": {}}]}}}},
]


def test_spilled_rows_and_their_manifest_are_an_export(objects: Objects, place: Location, sandbox: Sandbox) -> None:
    # case C001 C004 C015 C017: what a reader of exports finds, by the manifest alone
    files = []
    for segment, items in enumerate((ITEMS[:2], [], ITEMS[2:])):
        spill = Spill(objects, place / "data", segment)
        spill.add(item_line(json.dumps(item, ensure_ascii=False).encode()) for item in items)
        files += spill.close_file()
    write_manifest(objects, place, TABLE, files, 1_700_000_000.0)
    client, found = sandbox.client("s3"), []

    def get(key: str) -> bytes:
        return bytes(client.get_object(Bucket=place.bucket, Key=key)["Body"].read())

    summary = json.loads(get(f"{place.key}/manifest-summary.json"))
    assert (summary["itemCount"], summary["tableArn"], summary["s3Bucket"]) == (3, ARN, place.bucket)
    for line in get(summary["manifestFilesS3Key"]).splitlines():
        entry = json.loads(line)
        data = get(entry["dataFileS3Key"])
        assert base64.b64encode(hashlib.md5(data).digest()).decode() == entry["md5Checksum"]
        assert client.head_object(Bucket=place.bucket, Key=entry["dataFileS3Key"])["ETag"].strip('"') == entry["etag"]
        rows = [json.loads(row)["Item"] for row in gzip.decompress(data).decode().split("\n") if row]
        assert len(rows) == entry["itemCount"]
        found += rows
    assert found == ITEMS
    assert [json.loads(row) for row in first_rows(objects, place.bucket, files, 2)] == ITEMS[:2]


def test_a_file_written_again_after_a_crash_is_the_same_file(objects: Objects, place: Location) -> None:
    files = []
    for _ in range(2):
        spill = Spill(objects, place / "data", 7, 3)
        spill.add(item_line(json.dumps(item).encode()) for item in ITEMS)
        files += spill.close_file()
    assert files[0] == files[1]


def test_a_files_key_in_the_preview_may_be_gone(objects: Objects, place: Location) -> None:
    spill = Spill(objects, place / "data", 0)
    spill.add([item_line(b"{}")])
    (file,) = spill.close_file()
    assert first_rows(objects, place.bucket, [file], 0) == ()
    assert first_rows(objects, "no-such-bucket-at-all", [file], 5) == ()
