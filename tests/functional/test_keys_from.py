"""--keys-from: every kind of list, each key once, and what is no list refused by the number of its line."""

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def edit(verb: Any) -> Any:
    return verb("edit")


@pytest.fixture
def listed(tmp_path: Path) -> Callable[..., str]:
    def write(lines: list[Any], name: str = "keys.json") -> str:
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return str(path)

    return write


def key(number: int) -> dict[str, Any]:
    return {"pk": {"S": f"k{number:07d}"}}


def added(tables: Any, name: str) -> dict[str, str]:
    return {item["pk"]["S"]: item["hits"]["N"] for item in tables.read(name) if "hits" in item}


ADD = ("--add", "hits=1")


@pytest.mark.parametrize("name", ["keys.json", "keys.json.gz"])
def test_each_key_counts_once_however_it_is_written(name: str, edit: Any, tables: Any, items: Any, listed: Any) -> None:
    table = tables.make(items(300, 60))
    plain = [key(n) for n in range(240)]
    again = [{"Keys": key(n), "reason": "VersionConflict"} for n in range(200, 260)]
    whole = [{"Item": key(n) | {"n": {"N": "1"}}} for n in range(255, 270)]
    gone = [key(n) for n in range(1000, 1010)]
    report = edit(
        table, "--keys-from", listed([*plain, "", *again, "  ", *whole, *gone, *plain[:3]], name), *ADD
    ).report
    assert (report["scanned"], report["matched"]) == (280, 280)
    assert (report["processed"], report["skipped"]) == (270, 10), "what is gone is skipped"
    assert added(tables, table) == {f"k{n:07d}": "1" for n in range(270)}


def test_a_list_of_thousands_is_divided_and_each_key_counts_once(
    edit: Any, bulkexec: Any, tables: Any, listed: Any
) -> None:
    table = tables.make([{"pk": {"N": str(n)}, "hits": {"N": "0"}} for n in range(2500)], keys=(("pk", "N"),))
    lines = [{"pk": {"N": str(n)}} for n in range(2500)] + [{"pk": {"N": f"{n}.0"}} for n in range(0, 2500, 5)]
    path = listed(lines)
    outcome = edit(table, "--keys-from", path, *ADD, "--max-items", "1300")
    assert outcome.code == 4, outcome.stderr
    outcome = bulkexec.json("resume", outcome.report["job_id"])
    assert (outcome.report["processed"], outcome.report["matched"]) == (2500, 2500), outcome.stderr
    assert {item["hits"]["N"] for item in tables.read(table)} == {"1"}


def test_a_folder_is_a_list_and_a_relative_path_is_of_where_it_was_said(
    edit: Any, bulkexec: Any, tables: Any, items: Any, listed: Any, tmp_path: Path
) -> None:
    table = tables.make(items(300, 60))
    listed([key(n) for n in range(130)], "lists/a/0.json")
    listed([key(n) for n in range(100, 200)], "lists/b.json.gz")
    outcome = edit(table, "--keys-from", "lists", *ADD, "--max-items", "120", cwd=tmp_path)
    assert outcome.code == 4, outcome.stderr
    (tmp_path / "lists").rename(tmp_path / "away")
    gone = bulkexec.json("resume", outcome.report["job_id"], cwd="/")
    assert (gone.code, gone.report["status"]) == (2, "refused")
    assert "cannot be read" in gone.report["error"][0]
    (tmp_path / "away").rename(tmp_path / "lists")
    assert bulkexec.json("resume", outcome.report["job_id"], cwd="/").report["processed"] == 200
    assert added(tables, table) == {f"k{n:07d}": "1" for n in range(200)}


def test_a_checkpoint_is_a_place_in_one_list_and_in_no_other(
    edit: Any, bulkexec: Any, tables: Any, items: Any, listed: Any
) -> None:
    table = tables.make(items(300, 60))
    path = listed([key(n) for n in range(250)])
    stopped = edit(table, "--keys-from", path, *ADD, "--max-items", "100").report
    listed([key(n) for n in range(50, 250)])
    resumed = bulkexec.json("resume", stopped["job_id"])
    assert (resumed.code, resumed.report["status"]) == (2, "refused")
    assert "is not the list that job" in resumed.report["error"][0]
    with_token = edit.tried(table, "--keys-from", path, *ADD, "--resume-token", stopped["cursor"])
    assert (with_token.code, "BX111" in with_token.report["error"][0]) == (2, True)
    assert len(added(tables, table)) == 100
    listed([key(n) for n in range(250)])
    assert edit(table, "--keys-from", path, *ADD, "--resume-token", stopped["cursor"]).report["processed"] == 150
    assert added(tables, table) == {f"k{n:07d}": "1" for n in range(250)}


def test_deletes_by_key_need_no_read(verb: Any, tables: Any, items: Any, listed: Any) -> None:
    table = tables.make(items(30, 60))
    report = verb("delete")(table, "--keys-from", listed([key(n) for n in range(0, 40, 2)])).report
    assert (report["processed"], report["read_units"]) == (20, 0), "deleting what is not there is no error"
    assert tables.keys(table) == {f"k{n:07d}" for n in range(1, 30, 2)}


def test_lists_in_s3_for_a_job(edit: Any, deployed: str, sandbox: Any, tables: Any, items: Any, listed: Any) -> None:
    """One below a prefix read here, and a folder of this machine that a job reads from S3."""
    table = tables.make(items(60, 60))
    s3 = sandbox.client("s3")
    for name, numbers in (("one.json", range(10)), ("two.json.gz", range(5, 20)), ("-other.json", range(40, 60))):
        text = "\n".join(json.dumps(key(n)) for n in numbers).encode()
        s3.put_object(
            Bucket=deployed,
            Key=f"lists/{table}/{name}" if name[0] != "-" else f"lists/{table}{name}",
            Body=gzip.compress(text) if name.endswith(".gz") else text,
        )
    report = edit(table, "--keys-from", f"s3://{deployed}/lists/{table}", *ADD).report
    assert (report["processed"], set(added(tables, table))) == (20, {f"k{n:07d}" for n in range(20)})
    listed([key(n) for n in range(15, 30)], "some/keys.json")
    folder = str(Path(listed([key(n) for n in range(20, 25)], "some/more.json.gz")).parent)
    outcome = edit(table, "--keys-from", folder, *ADD, "--runtime", "glue")
    assert (outcome.code, outcome.report["processed"]) == (0, 15), outcome.stderr
    assert added(tables, table) == {f"k{n:07d}": "2" if 15 <= n < 20 else "1" for n in range(30)}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "line 3"),
        ('"text"', "line 3"),
        ('{"pk": "k1"}', "it has no pk of type S"),
        ('{"pk": {"N": "1"}}', "it has no pk of type S"),
        ('{"Keys": {"sk": {"S": "a"}}}', "it has no pk of type S"),
        ('{"pk": {"S": ""}}', "0 bytes"),
        (json.dumps({"pk": {"S": "x" * 2049}}), "2,049 bytes"),
    ],
)
def test_what_is_no_key_is_named_by_its_line(
    line: str, said: str, edit: Any, tables: Any, items: Any, listed: Any
) -> None:
    # case C075
    table = tables.make(items(5, 60))
    outcome = edit.tried(table, "--keys-from", listed([key(1), "", line, key(2)]), *ADD)
    assert (outcome.code, outcome.report["status"]) == (2, "refused")
    words = " ".join(outcome.report["error"])
    assert "line 3 of" in words, words
    assert said in words
    assert added(tables, table) == {}


def test_keys_of_other_types_are_checked_too(edit: Any, tables: Any, listed: Any) -> None:
    table = tables.make([{"b": {"B": b"\x00\xff"}, "n": {"N": "1.50"}}], keys=(("b", "B"), ("n", "N")))
    good = {"b": {"B": base64.b64encode(b"\x00\xff").decode()}, "n": {"N": "15e-1"}}
    for bad in ({"b": {"B": "no base64"}}, {"n": {"N": "NaN"}}, {"n": {"N": "1" * 39}}):
        assert "line 2" in edit.tried(table, "--keys-from", listed([good, good | bad]), *ADD).report["error"][0]
    assert edit(table, "--keys-from", listed([good, good]), *ADD).report["processed"] == 1


def test_what_is_no_list(edit: Any, tables: Any, items: Any, listed: Any, tmp_path: Path) -> None:
    table = tables.make(items(5, 60))
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"{}\n" * 1000)[:20])
    (tmp_path / "empty").mkdir()
    for source, said in (
        (str(tmp_path / "nowhere"), "cannot be read"),
        (listed(["", " "]), "has no keys"),
        (str(tmp_path / "empty"), "has no keys"),
        (str(broken), "cannot be read"),
        ("s3://no-such-bucket-here/x", "no-such-bucket-here"),
    ):
        outcome = edit.tried(table, "--keys-from", source, *ADD)
        assert outcome.code == 2, outcome.report
        assert said in " ".join(outcome.report["error"]), outcome.report
    both = edit.tried(table, "--keys-from", listed([key(1)]), "--where", "n = 1", *ADD)
    assert "--keys-from names the items" in both.report["error"][0]
