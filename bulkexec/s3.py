"""The only S3 code: small objects, spilled rows, and the manifests of a DynamoDB export.

Layout of an export: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
"""

import base64
import gzip
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import boto3
import botocore.exceptions
import msgspec

from bulkexec import errors
from bulkexec.describe import user_errors
from bulkexec.model import DataFile, Table

SPILL_FILE_BYTES = 8 * 1024 * 1024
"""Compressed size at which a spilled file is closed; also what one segment may hold in memory."""

GZIP_LEVEL = 4


@dataclass(frozen=True)
class Location:
    """A bucket and a key or prefix in it, without a slash at either end."""

    bucket: str
    key: str

    @staticmethod
    def parse(uri: str) -> "Location":
        """Raises `errors.BadArgument` on anything but s3://bucket[/prefix]."""
        scheme, _, rest = uri.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme != "s3" or not bucket:
            raise errors.BadArgument(f"{uri!r} is not an S3 location", fix="write it as s3://bucket/prefix")
        return Location(bucket, key.strip("/"))

    def __truediv__(self, name: str) -> "Location":
        return Location(self.bucket, f"{self.key}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


class Objects:
    """Reads and writes whole objects."""

    def __init__(self, session: boto3.Session, region: str) -> None:
        self._client = session.client("s3", region_name=region)

    def put(self, place: Location, data: bytes) -> str:
        """Write an object; gives its ETag."""
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        answer = self._client.put_object(Bucket=place.bucket, Key=place.key, Body=data, ContentMD5=digest)
        return str(answer["ETag"]).strip('"')

    def get(self, place: Location) -> bytes | None:
        """An object's content, None when there is none."""
        try:
            body: bytes = self._client.get_object(Bucket=place.bucket, Key=place.key)["Body"].read()
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket", "404"):
                return None
            raise
        return body

    def exists(self, place: Location) -> bool:
        """Whether the object is there."""
        try:
            self._client.head_object(Bucket=place.bucket, Key=place.key)
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey", "NoSuchBucket"):
                return False
            raise
        return True

    def below(self, place: Location) -> Iterator[Location]:
        """The object of this name, or all those below it, in the order of their names."""
        for each in self._listed(place):
            yield Location(place.bucket, each["Key"])

    def fingerprint(self, place: Location) -> str:
        """Of the same objects: of their names and of what is in them, by the ETags of a listing."""
        listed = "".join(f"{each['Key']} {each['ETag']}\n" for each in self._listed(place))
        return hashlib.sha256(listed.encode()).hexdigest()

    def _listed(self, place: Location) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket, Prefix=place.key)
        for page in pages:
            for each in page.get("Contents", ()):
                if each["Key"] == place.key or each["Key"].startswith(f"{place.key}/" if place.key else ""):
                    yield each

    def bucket_exists(self, bucket: str) -> bool:
        """Whether this caller can use the bucket."""
        try:
            self._client.head_bucket(Bucket=bucket)
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchBucket", "403"):
                return False
            raise
        return True

    def require_writable(self, place: Location) -> None:
        """Raises `errors.ResultsUnusable` unless an object can be written below `place` (case C100)."""
        try:
            self._client.put_object(Bucket=place.bucket, Key=(place / "_started").key, Body=b"")
        except botocore.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            raise errors.ResultsUnusable(
                f"results cannot be written to {place}: {code}", fix="name a bucket that exists and that you may write"
            ) from error
        except botocore.exceptions.ParamValidationError as error:
            raise errors.ResultsUnusable(f"{place.bucket!r} cannot be the name of a bucket") from error


@dataclass
class Spill:
    """Collects the rows of one segment and closes a file whenever it is large enough. Not thread-safe: one a segment.

    Memory: one compressed file of `SPILL_FILE_BYTES` plus a page.
    """

    objects: Objects
    place: Location
    segment: int
    next_file: int = 0
    run_number: int = 1
    _buffer: io.BytesIO = field(default_factory=io.BytesIO)
    _gzip: gzip.GzipFile | None = None
    _items: int = 0

    def add(self, rows: Iterable[bytes]) -> None:
        """Append rows; each is one line's JSON."""
        if self._gzip is None:
            # mtime 0: the same rows give the same bytes, so a file written again after a crash is the same file.
            self._gzip = gzip.GzipFile(fileobj=self._buffer, mode="wb", compresslevel=GZIP_LEVEL, mtime=0)
        for row in rows:
            self._gzip.write(row)
            self._gzip.write(b"\n")
            self._items += 1

    @property
    def full(self) -> bool:
        """Whether it is time to close the file."""
        return self._buffer.tell() >= SPILL_FILE_BYTES

    def close_file(self) -> tuple[DataFile, ...]:
        """Write what was collected. Empty when nothing was."""
        if self._gzip is None or not self._items:
            return ()
        self._gzip.close()
        data = self._buffer.getvalue()
        run = f"-run{self.run_number}" if self.run_number > 1 else ""
        place = self.place / f"{self.segment:07d}-{self.next_file:04d}{run}.json.gz"
        with user_errors(f"write {place}"):
            etag = self.objects.put(place, data)
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        file = DataFile(place.key, self._items, md5, etag)
        self._buffer, self._gzip, self._items = io.BytesIO(), None, 0
        self.next_file += 1
        return (file,)


def item_line(item: bytes) -> bytes:
    """One line of an export's data file."""
    return b'{"Item":' + item + b"}"


def write_manifest(objects: Objects, place: Location, table: Table, files: Sequence[DataFile], started: float) -> None:
    """Write manifest-files.json and manifest-summary.json with their checksums below `place`."""
    lines = [
        {"itemCount": file.items, "md5Checksum": file.md5, "etag": file.etag, "dataFileS3Key": file.key}
        for file in files
    ]
    _checked(objects, place, "manifest-files", b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    _checked(objects, place, "manifest-summary", msgspec.json.encode(_summary(place, table, files, started)))


def _summary(place: Location, table: Table, files: Sequence[DataFile], started: float) -> dict[str, Any]:
    prefix, _, export_id = place.key.rpartition("AWSDynamoDB/")
    return {
        "version": "2020-06-30",
        "exportArn": f"{table.arn}/export/{export_id}",
        "startTime": _stamp(started),
        "endTime": _stamp(datetime.now(UTC).timestamp()),
        "tableArn": table.arn,
        "exportTime": _stamp(started),
        "s3Bucket": place.bucket,
        "s3Prefix": prefix.rstrip("/"),
        "s3SseAlgorithm": "AES256",
        "manifestFilesS3Key": (place / "manifest-files.json").key,
        "itemCount": sum(file.items for file in files),
        "outputFormat": "DYNAMODB_JSON",
    }


def _checked(objects: Objects, place: Location, name: str, data: bytes) -> None:
    objects.put(place / f"{name}.json", data)
    digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest())
    objects.put(place / f"{name}.checksum", digest)


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def first_rows(objects: Objects, bucket: str, files: Sequence[DataFile], limit: int) -> tuple[str, ...]:
    """The first rows of spilled files, for a preview; reads no more files than needed."""
    rows: list[str] = []
    for file in files:
        data = objects.get(Location(bucket, file.key))
        if data is None:
            continue
        lines = gzip.decompress(data).splitlines()
        rows += [msgspec.json.encode(msgspec.json.decode(line)["Item"]).decode() for line in lines[: limit - len(rows)]]
        if len(rows) >= limit:
            break
    return tuple(rows)
