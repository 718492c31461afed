"""Resident memory of the client and of Spark's Python workers, at a table size and at four times that.

Memory that does not grow with the table is the promise; the ratio of the two peaks shows it. The sandbox, bootstrap,
seeding and every command run as processes, as a user would start them.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from bulkexec.sandbox.process import Sandbox
from bulkexec.sandbox.seeding import Shape, fill

SMALL, LARGE, ITEM_BYTES = 25_000, 100_000, 500
SAMPLE_SECONDS = 0.2
RUNTIMES = ("local", "glue")
COMMANDS = {
    "count": ("--where", "status = 'ACTIVE'"),
    "find": ("--where", "status = 'ACTIVE'", "--results", "s3://memory-results/{table}-{runtime}"),
    "delete": ("--where", "status = 'EXPIRED'", "--yes"),
}
MIB = 1 << 20


@dataclass
class Peaks:
    """Highest resident memory seen, in bytes. `worker` is the largest of Spark's Python workers."""

    client: int = 0
    worker: int = 0

    def sample(self, client: psutil.Process, sandbox: psutil.Process) -> None:
        """Take in what there is now."""
        self.client = max(self.client, _resident(client))
        for process in _descendants(sandbox):
            if _is_worker(process):
                self.worker = max(self.worker, _resident(process))


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in process.cmdline()
    except psutil.Error:
        return False


@contextmanager
def _sampling(peaks: Peaks, client: psutil.Process, sandbox: psutil.Process) -> Iterator[None]:
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            peaks.sample(client, sandbox)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _run(sandbox: Sandbox, *arguments: str) -> Peaks:
    command = [sys.executable, "-m", "bulkexec", *arguments]
    process = subprocess.Popen(command, env=sandbox.env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peaks = Peaks()
    with _sampling(peaks, psutil.Process(process.pid), psutil.Process(sandbox.running.pid)):
        output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"bulkexec {' '.join(arguments)} ended with {process.returncode}:\n{output}")
    return peaks


def measure() -> list[dict[str, Any]]:
    """One entry a runtime and command. Takes some minutes."""
    with Sandbox() as sandbox:
        _run(sandbox, "bootstrap", "--yes")
        sandbox.client("s3").create_bucket(Bucket="memory-results")
        found = {}
        for items in (SMALL, LARGE):
            for runtime in RUNTIMES:
                table = f"memory-{runtime}-{items}"
                _make_table(sandbox, table, items)
                for name in COMMANDS:
                    found[runtime, name, items] = _peaks(sandbox, runtime, name, table)
        return [_entry(runtime, name, found) for runtime in RUNTIMES for name in COMMANDS]


def _make_table(sandbox: Sandbox, table: str, items: int) -> None:
    dynamodb = sandbox.client("dynamodb")
    fill(dynamodb, Shape(table, items, ITEM_BYTES))
    dynamodb.update_continuous_backups(
        TableName=table, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )


def _peaks(sandbox: Sandbox, runtime: str, name: str, table: str) -> Peaks:
    options = [option.format(table=table, runtime=runtime) for option in COMMANDS[name]]
    return _run(sandbox, name, "--table", table, "--runtime", runtime, *options)


def _entry(runtime: str, name: str, found: dict[tuple[str, str, int], Peaks]) -> dict[str, Any]:
    small, large = found[runtime, name, SMALL], found[runtime, name, LARGE]
    entry: dict[str, Any] = {"runtime": runtime, "command": name}
    for who in ("client", "worker"):
        less, more = getattr(small, who), getattr(large, who)
        if more:
            entry[f"{who}_mib"] = {str(SMALL): round(less / MIB), str(LARGE): round(more / MIB)}
            entry[f"{who}_ratio"] = round(more / less, 3)
    return entry


def table(entries: list[dict[str, Any]]) -> str:
    """The entries for people, in Markdown."""
    lines = [
        f"| runtime | command | process | MiB at {SMALL:,} items | MiB at {LARGE:,} | ratio |",
        "|---|---|---|--:|--:|--:|",
    ]
    for entry in entries:
        for who in ("client", "worker"):
            if f"{who}_mib" in entry:
                less, more = entry[f"{who}_mib"].values()
                ratio = f"{entry[f'{who}_ratio']:.2f}"
                lines.append(f"| {entry['runtime']} | {entry['command']} | {who} | {less} | {more} | {ratio} |")
    return "\n".join(lines)
