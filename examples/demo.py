"""The main job from beginning to end on the embedded sandbox; `make demo` runs it.

Every step is a command as a user would type it, run as a process of its own. What the commands did is checked with
plain boto3. Ends with a non-zero exit code at the first thing that is not as it should be.
"""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import boto3

TABLE, ITEMS = "orders-demo", 20_000
BULKEXEC = [sys.executable, "-m", "bulkexec"]
BEGAN = time.monotonic()
Item = dict[str, Any]


def say(text: str) -> None:
    sys.stdout.write(f"\n# {text}   [{time.monotonic() - BEGAN:.0f} s]\n")
    sys.stdout.flush()


def expect(what: str, actual: object, wanted: object) -> None:
    """Stop the demo unless it is so."""
    if actual != wanted:
        raise SystemExit(f"DEMO FAILED: {what}: expected {wanted!r}, got {actual!r}")
    sys.stdout.write(f"  ok: {what}: {wanted!r}\n")
    sys.stdout.flush()


def run(*arguments: str, code: int = 0, capture: bool = False) -> str:
    """Run one command, show it, and check its exit code."""
    sys.stdout.write(f"$ bulkexec {' '.join(arguments)}\n")
    sys.stdout.flush()
    done = subprocess.run([*BULKEXEC, *arguments], check=False, text=True, stdout=subprocess.PIPE if capture else None)
    if done.returncode != code:
        raise SystemExit(f"DEMO FAILED: exit code {done.returncode}, expected {code}")
    return done.stdout or ""


def scan(client: Any) -> dict[str, Item]:
    """The whole table by key, read the plain way."""
    pages = client.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
    return {item["pk"]["S"]: item for page in pages for item in page["Items"]}


def with_status(items: dict[str, Item], status: str) -> dict[str, Item]:
    return {key: item for key, item in items.items() if item["status"]["S"] == status}


def enter_sandbox(folder: Path) -> str:
    """Start a sandbox and point this process and its children at it; gives its port."""
    os.environ["BULKEXEC_SANDBOX_DIR"] = str(folder / "sandbox")
    os.environ["BULKEXEC_STATE_DIR"] = str(folder / "state")
    port = run("sandbox", "up", "--port", "0", capture=True).strip().rpartition(":")[2]
    for line in run("sandbox", "env", "--port", port, capture=True).splitlines():
        command, _, rest = line.partition(" ")
        if command == "unset":
            for name in rest.split():
                os.environ.pop(name, None)
        else:
            name, _, value = rest.partition("=")
            os.environ[name] = value.strip("'\"")
    return port


def delete_once(client: Any) -> None:
    say("A delete is refused while point-in-time recovery is off")
    expired = ["delete", "--table", TABLE, "--where", "status = 'EXPIRED'", "--runtime", "glue", "--yes"]
    run(*expired, code=2)
    say("Point-in-time recovery on; the same delete as a Glue run, its log tailed")
    client.update_continuous_backups(
        TableName=TABLE, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    before = scan(client)
    doomed = with_status(before, "EXPIRED")
    run(*expired)
    after = scan(client)
    expect("expired items left", len(with_status(after, "EXPIRED")), 0)
    expect("all other items are as they were", after == {k: v for k, v in before.items() if k not in doomed}, True)


def find_to_s3(client: Any) -> None:
    say("Find, with every match in S3")
    boto3.client("s3").create_bucket(Bucket="demo-results")
    where = "status = 'ACTIVE' AND created_at > 1720000000"
    found = run(
        *("find", "--table", TABLE, "--where", where, "--runtime", "glue"),
        *("--results", "s3://demo-results/active", "--output", "json"),
        capture=True,
    )
    report = json.loads(found)
    wanted = {
        key: item
        for key, item in scan(client).items()
        if item["status"]["S"] == "ACTIVE" and int(item["created_at"]["N"]) > 1_720_000_000
    }
    expect("matched", report["matched"], len(wanted))
    expect("items in S3, type by type", read_export(report["results"]) == plain(wanted), True)


def read_export(uri: str) -> dict[str, Item]:
    """Every item of an export, through its manifest."""
    s3, prefix = boto3.client("s3"), uri.removeprefix("s3://").partition("/")[2]

    def content(key: str) -> bytes:
        data: bytes = s3.get_object(Bucket="demo-results", Key=key)["Body"].read()
        return data

    files = [json.loads(line) for line in content(f"{prefix}/manifest-files.json").splitlines()]
    lines = [line for file in files for line in gzip.decompress(content(file["dataFileS3Key"])).splitlines()]
    items = [json.loads(line)["Item"] for line in lines]
    return {item["pk"]["S"]: canonical(item) for item in items}


def canonical(value: Any) -> Any:
    """Sets have no order."""
    if isinstance(value, dict):
        return {k: sorted(v) if k in ("SS", "NS", "BS") else canonical(v) for k, v in value.items()}
    return [canonical(each) for each in value] if isinstance(value, list) else value


def plain(items: dict[str, Item]) -> dict[str, Item]:
    """boto3 gives bytes where the wire has base64."""
    import base64

    text = json.dumps(items, default=lambda data: base64.b64encode(data).decode())
    return {key: canonical(item) for key, item in json.loads(text).items()}


def interrupted(client: Any) -> None:
    say("A second delete, interrupted with Ctrl-C half-way")
    before = scan(client)
    pending = with_status(before, "PENDING")
    arguments = ["delete", "--table", TABLE, "--where", "status = 'PENDING'", "--runtime", "glue", "--yes"]
    arguments += ["--write-rate", "400", "--output", "json"]
    sys.stdout.write(f"$ bulkexec {' '.join(arguments)}\n")
    sys.stdout.flush()
    process = subprocess.Popen([*BULKEXEC, *arguments], stdout=subprocess.PIPE, text=True)
    threading.Thread(target=interrupt_half_way, args=(client, process, len(pending)), daemon=True).start()
    report = json.loads(process.communicate()[0])
    expect("exit code of the interrupted run", process.returncode, 130)
    left = with_status(scan(client), "PENDING")
    expect("deletes counted are deletes done", report["processed"], len(pending) - len(left))
    expect("it stopped in the middle", 0 < len(left) < len(pending), True)
    say(f"Resume: {len(left)} items are left")
    run("resume", report["job_id"])
    expect("the table", scan(client) == {k: v for k, v in before.items() if k not in pending}, True)


def interrupt_half_way(client: Any, process: "subprocess.Popen[str]", total: int) -> None:
    while process.poll() is None:
        pages = client.get_paginator("scan").paginate(
            TableName=TABLE,
            Select="COUNT",
            FilterExpression="#s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": {"S": "PENDING"}},
        )
        left = sum(page["Count"] for page in pages)
        if left <= total / 2:
            process.send_signal(signal.SIGINT)
            return
        time.sleep(0.2)


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="bulkexec-demo-"))
    port = enter_sandbox(folder)
    try:
        say(f"{ITEMS:,} varied items")
        run("bootstrap", "--yes")
        run("sandbox", "seed", "--port", port, "--table", TABLE, "--items", str(ITEMS))
        client = boto3.client("dynamodb")
        delete_once(client)
        find_to_s3(client)
        interrupted(client)
        say(f"All as it should be, in {time.monotonic() - BEGAN:.0f} s")
    finally:
        run("sandbox", "down", "--port", port)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
