"""Places, spilled files and manifests; the S3 client is a recorder behind boto3's own interface."""

import base64
import gzip
import hashlib
from dataclasses import dataclass, field
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulkexec import errors
from bulkexec.model import DataFile, KeyAttribute, Table
from bulkexec.s3 import Location, Objects, Spill, first_rows, item_line, write_manifest

TABLE = Table(
    "orders",
    "arn:aws:dynamodb:eu-west-1:111122223333:table/orders",
    "eu-west-1",
    "111122223333",
    (KeyAttribute("pk", "S"),),
    "ACTIVE",
    2,
    100,
    "on-demand",
)
PLACE = Location("results", "mine/AWSDynamoDB/01700000000000-abcd1234")
names = st.text(st.sampled_from("abz09-._ü"), min_size=1, max_size=5)


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


@dataclass
class Bucket:
    """The S3 client: keeps what is put and refuses, as S3 does, a body that is not what its MD5 says."""

    there: dict[str, bytes] = field(default_factory=dict)
    error: str = ""

    def put_object(self, **request: Any) -> dict[str, str]:
        self._fail("PutObject")
        body = request["Body"]
        assert request.get("ContentMD5", md5(body)) == md5(body)
        self.there["{Bucket}/{Key}".format_map(request)] = body
        return {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}

    def get_object(self, **request: Any) -> dict[str, Any]:
        self._fail("GetObject")
        return {"Body": BytesIO(self.there["{Bucket}/{Key}".format_map(request)])}

    def head_object(self, **_: Any) -> None:
        self._fail("HeadObject")

    head_bucket = head_object

    def _fail(self, operation: str) -> None:
        if self.error:
            raise botocore.exceptions.ClientError({"Error": {"Code": self.error, "Message": ""}}, operation)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def objects(bucket: Bucket) -> Objects:
    return Objects(SimpleNamespace(client=lambda *_, **__: bucket), "eu-west-1")  # type: ignore[arg-type]


# Places


@given(names, st.lists(names, max_size=3), st.sampled_from(["", "/", "//"]))
def test_a_location_is_bucket_and_key_without_slashes_at_the_ends(bucket: str, parts: list[str], end: str) -> None:
    key = "/".join(parts)
    place = Location.parse(f"s3://{bucket}/{key}{end}")
    assert place == Location(bucket, key)
    assert Location.parse(str(place)) == place


def test_a_bucket_alone_is_a_location() -> None:
    assert Location.parse("s3://results") == Location("results", "")
    assert (Location("results", "") / "data").key == "data"
    assert (Location("results", "a/b") / "data").key == "a/b/data"


@pytest.mark.parametrize("uri", ["", "results", "s3:/results", "s3://", "s3:///key", "https://results/key", "S3://b/k"])
def test_what_is_no_location_is_refused(uri: str) -> None:
    # case C134 C149
    with pytest.raises(errors.BadArgument):
        Location.parse(uri)


# Spilled files

ROWS = [b'{"pk":{"S":"a"}}', '{"pk":{"S":"ä"},"n":{"N":"1E+100"}}'.encode(), b'{"pk":{"S":"c"}}']


def spilled(objects: Objects, *batches: list[bytes], segment: int = 3, next_file: int = 0) -> tuple[DataFile, ...]:
    spill = Spill(objects, PLACE / "data", segment, next_file)
    for batch in batches:
        spill.add(map(item_line, batch))
    return spill.close_file()


def test_a_file_holds_every_row_as_a_line_of_an_export(objects: Objects, bucket: Bucket) -> None:
    # case C001 C004: the bytes that came from the service, untouched
    (file,) = spilled(objects, ROWS[:1], ROWS[1:])
    data = bucket.there[f"results/{file.key}"]
    assert gzip.decompress(data).splitlines() == [b'{"Item":' + row + b"}" for row in ROWS]
    assert file == DataFile(file.key, 3, md5(data), hashlib.md5(data).hexdigest())


def test_the_same_rows_give_the_same_file_however_they_come(
    objects: Objects, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a file written again after a crash, at another time, must be the same file
    first, contents = spilled(objects, ROWS), dict(bucket.there)
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0)
    assert spilled(objects, ROWS[:2], ROWS[2:]) == first
    assert bucket.there == contents


def test_files_are_named_by_segment_and_number(objects: Objects) -> None:
    spill = Spill(objects, PLACE / "data", 12, 4)
    keys = []
    for _ in range(2):
        spill.add([b"{}"])
        keys += [file.key for file in spill.close_file()]
    assert keys == [f"{PLACE.key}/data/0000012-{number:04d}.json.gz" for number in (4, 5)]


def test_without_rows_there_is_no_file(objects: Objects, bucket: Bucket) -> None:
    assert spilled(objects) == ()
    assert spilled(objects, []) == ()
    spill = Spill(objects, PLACE, 0)
    spill.add([b"{}"])
    assert len(spill.close_file()) == 1
    assert spill.close_file() == ()
    assert len(bucket.there) == 1


def test_a_file_is_full_at_its_size(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkexec.s3.SPILL_FILE_BYTES", 10_000)
    spill, row = Spill(objects, PLACE, 0), hashlib.sha512
    added = 0
    while not spill.full:
        spill.add([row(str(added).encode()).hexdigest().encode()])
        added += 1
        assert added < 1000, "random text does not shrink below half"
    assert spill.close_file()[0].items == added
    assert not spill.full


# Manifests


def test_a_manifest_is_that_of_an_export(objects: Objects, bucket: Bucket) -> None:
    files = [*spilled(objects, ROWS), *spilled(objects, ROWS[:1], segment=4)]
    write_manifest(objects, PLACE, TABLE, files, 1_700_000_000.0)
    whole = {key.removeprefix(f"results/{PLACE.key}/"): data for key, data in bucket.there.items()}
    lines = [msgspec.json.decode(line) for line in whole["manifest-files.json"].splitlines()]
    assert lines == [
        {"itemCount": file.items, "md5Checksum": file.md5, "etag": file.etag, "dataFileS3Key": file.key}
        for file in files
    ]
    assert all(f"results/{line['dataFileS3Key']}" in bucket.there for line in lines)
    summary = msgspec.json.decode(whole["manifest-summary.json"])
    expected = {
        "version": "2020-06-30",
        "tableArn": TABLE.arn,
        "exportArn": f"{TABLE.arn}/export/01700000000000-abcd1234",
        "s3Bucket": "results",
        "s3Prefix": "mine",
        "manifestFilesS3Key": f"{PLACE.key}/manifest-files.json",
        "itemCount": 4,
        "outputFormat": "DYNAMODB_JSON",
        "startTime": "2023-11-14T22:13:20.000Z",
    }
    assert expected.items() <= summary.items()
    for name in ("manifest-files", "manifest-summary"):
        assert whole[f"{name}.checksum"].decode() == md5(whole[f"{name}.json"])


def test_an_export_at_the_root_of_a_bucket_has_its_own_id(objects: Objects, bucket: Bucket) -> None:
    write_manifest(objects, Location("results", "AWSDynamoDB/01-ab"), TABLE, [], 0.0)
    summary = msgspec.json.decode(bucket.there["results/AWSDynamoDB/01-ab/manifest-summary.json"])
    assert (summary["s3Prefix"], summary["exportArn"]) == ("", f"{TABLE.arn}/export/01-ab")


# Previews


def test_the_first_rows_come_from_as_few_files_as_needed(objects: Objects, bucket: Bucket) -> None:
    files = [*spilled(objects, ROWS), *spilled(objects, ROWS, segment=4)]
    assert first_rows(objects, "results", files, 4) == tuple(row.decode() for row in [*ROWS, ROWS[0]])
    del bucket.there[f"results/{files[1].key}"]
    assert first_rows(objects, "results", files, 3) == tuple(row.decode() for row in ROWS)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_row_may_hold_other_line_separators(objects: Objects, separator: str) -> None:
    row = msgspec.json.encode({"pk": {"S": f"a{separator}b"}})
    assert first_rows(objects, "results", spilled(objects, [row]), 1) == (row.decode(),)


# Errors


@pytest.mark.parametrize("code", ["NoSuchBucket", "AccessDenied", "PermanentRedirect"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    objects: Objects, bucket: Bucket, code: str
) -> None:
    # case C100 C134 C149
    bucket.error = code
    with pytest.raises(errors.ResultsUnusable, match=code):
        objects.require_writable(PLACE)


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchBucket", "404"])
def test_an_object_that_is_not_there_is_none(objects: Objects, bucket: Bucket, code: str) -> None:
    bucket.error = code
    assert objects.get(PLACE) is None
    assert not objects.exists(PLACE)


@pytest.mark.parametrize("code", ["AccessDenied", "SlowDown"])
def test_other_errors_are_not_taken_for_absence(objects: Objects, bucket: Bucket, code: str) -> None:
    bucket.error = code
    with pytest.raises(botocore.exceptions.ClientError):
        objects.get(PLACE)
    with pytest.raises(botocore.exceptions.ClientError):
        objects.exists(PLACE)
