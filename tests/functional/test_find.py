"""`bulkexec find` as a process, in both runtimes."""

import gzip
import json
import re
from typing import Any

import pytest

ODD = {
    "pk": {"S": "odd"},
    "S": {"S": ""},
    "big": {"N": "12345678901234567890123456789012345678"},
    "huge": {"N": "1E+100"},
    "unsigned": {"N": "11888647184542023637"},
    "money": {"N": "30.4"},
    "bytes": {"B": b"\x00\xff\x10"},
    "yes": {"BOOL": True},
    "nothing": {"NULL": True},
    "list": {"L": [{"S": "x"}, {"N": "9"}, {"BOOL": True}, {"NULL": True}, {"L": []}]},
    "empty": {"L": []},
    "map": {"M": {"a.b": {"S": "dotted"}, "名前": {"S": "山田"}, "inner": {"M": {}}}},
    "strings": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2.5"]},
    "binaries": {"BS": [b"\x01", b"\x02"]},
    "full.name": {"S": 'Zoë "quoted" \n line'},
    "size": {"N": "3"},
    "hash": {"S": "reserved"},
}


def read_export(sandbox: Any, uri: str) -> list[dict[str, Any]]:
    """Every item through the manifest, with the manifest's own numbers checked."""
    s3 = sandbox.client("s3")
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")

    def content(key: str) -> bytes:
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    summary = json.loads(content(f"{prefix}/manifest-summary.json"))
    files = [json.loads(line) for line in content(summary["manifestFilesS3Key"]).splitlines()]
    items = []
    for file in files:
        lines = gzip.decompress(content(file["dataFileS3Key"])).splitlines()
        assert len(lines) == file["itemCount"]
        items += [json.loads(line)["Item"] for line in lines]
    assert summary["itemCount"] == len(items)
    assert summary["outputFormat"] == "DYNAMODB_JSON"
    return items


def as_boto3(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Typed JSON with bytes for base64, and sets in order."""
    import base64

    def value(tagged: dict[str, Any]) -> dict[str, Any]:
        ((tag, content),) = tagged.items()
        if tag == "B":
            return {"B": content if isinstance(content, bytes) else base64.b64decode(content)}
        if tag == "BS":
            return {"BS": sorted(each if isinstance(each, bytes) else base64.b64decode(each) for each in content)}
        if tag in ("SS", "NS"):
            return {tag: sorted(content)}
        if tag == "L":
            return {"L": [value(each) for each in content]}
        if tag == "M":
            return {"M": {name: value(each) for name, each in content.items()}}
        return tagged

    return sorted(({n: value(v) for n, v in item.items()} for item in items), key=repr)


@pytest.mark.parametrize("runtime", ["local", "glue"])
def test_every_type_survives_to_s3(
    runtime: str, bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    # case C001 C002 C003 C004 C007 C008 C011 C014 C015 C017 C018 C019
    name = tables.make([*items(40, 60), ODD])
    report = bulkexec.json(
        "find", "--table", name, "--runtime", runtime, "--results", f"s3://{deployed}/mine/{name}"
    ).report
    assert report["matched"] == 41
    assert report["results"].startswith(f"s3://{deployed}/mine/{name}/AWSDynamoDB/")
    assert as_boto3(read_export(sandbox, report["results"])) == as_boto3(tables.read(name))


@pytest.mark.parametrize(
    ("keys", "make"),
    [
        ((("hash", "S"),), lambda n: {"hash": {"S": f"é{n}"}}),
        ((("key", "N"), ("size", "S")), lambda n: {"key": {"N": f"{n}.5"}, "size": {"S": f"v#{n}"}}),
        (
            (("user.id", "B"), ("名前", "B")),
            lambda n: {"user.id": {"B": bytes([n])}, "名前": {"B": b"\xff" + bytes([n])}},
        ),
    ],
)
def test_keys_of_every_type_and_name_are_found_and_deleted(
    keys: Any, make: Any, bulkexec: Any, deployed: str, tables: Any, sandbox: Any
) -> None:
    # case C021 C023 C024
    rows = [make(n) | {"status": {"S": "OLD" if n % 2 else "NEW"}} for n in range(30)]
    name = tables.make(rows, keys=keys)
    found = bulkexec.json("find", "--table", name, "--where", "status = 'OLD'").report
    wanted = [row for row in rows if row["status"]["S"] == "OLD"]
    assert as_boto3(read_export(sandbox, found["results"])) == as_boto3(wanted)
    gone = bulkexec.json("delete", "--table", name, "--where", "status = 'OLD'", "--yes").report
    assert gone["processed"] == 15
    assert as_boto3(tables.read(name)) == as_boto3([row for row in rows if row["status"]["S"] == "NEW"])


def test_the_console_shows_ten_and_says_where_the_rest_is(
    bulkexec: Any, deployed: str, tables: Any, items: Any
) -> None:
    # case C124 C153
    outcome = bulkexec("find", "--table", tables.make(items(50, 60)))
    assert outcome.stdout.count('"pk"') == 10
    assert re.search(r"40 more\s+are not shown; all of them in\s+s3://", outcome.stdout)


def test_a_place_that_cannot_be_written_is_refused_before_the_start(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C100 C134 C149
    name = tables.make(items(5, 60))
    for place in ("s3://no-such-bucket-here/x", "https://example.com/x", "s3://"):
        refused = bulkexec.json("find", "--table", name, "--results", place)
        assert refused.code == 2, place
        assert len(refused.report["error"][0].splitlines()) == 1


def test_a_find_that_was_stopped_goes_on_and_every_match_is_there_once(
    bulkexec: Any, deployed: str, sandbox: Any, tables: Any, items: Any
) -> None:
    name = tables.make(items(800, 200))
    first = bulkexec.json("find", "--table", name, "--max-items", "100", "--runtime", "local")
    assert first.code == 4
    whole = bulkexec.json("resume", first.report["job_id"])
    assert whole.code in (0, 4)
    while whole.code == 4:
        whole = bulkexec.json("resume", first.report["job_id"])
    assert whole.report["matched"] == 800
    keys = [item["pk"]["S"] for item in read_export(sandbox, whole.report["results"])]
    assert sorted(keys) == sorted(tables.keys(name))
