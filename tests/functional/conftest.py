"""The command line as a process, on the sandbox."""

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bulkexec.main import cli
from bulkexec.sandbox.process import Sandbox

COMMAND = [sys.executable, "-m", "bulkexec"]
RUNTIMES = ("local", "glue")
Item = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, both streams, and the JSON document if there was one."""

    code: int
    stdout: str
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandLine:
    """Runs `bulkexec` as a user would."""

    environment: dict[str, str]

    def start(self, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*COMMAND, *arguments],
            env=self.environment | more.pop("env", {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            **more,
        )

    def finish(self, process: "subprocess.Popen[str]") -> Outcome:
        stdout, stderr = process.communicate(timeout=180)
        report = json.loads(stdout) if stdout.startswith("{") else {}
        return Outcome(process.returncode, stdout, stderr, report)

    def __call__(self, *arguments: str, **more: Any) -> Outcome:
        return self.finish(self.start(*arguments, **more))

    def json(self, *arguments: str, **more: Any) -> Outcome:
        """With --output json; stdout must hold the document and nothing else."""
        outcome = self(*arguments, "--output", "json", **more)
        assert outcome.report, outcome.stderr
        assert "Traceback" not in outcome.stderr, outcome.stderr
        return outcome


@pytest.fixture
def bulkexec(sandbox: Sandbox, tmp_path: Path) -> CommandLine:
    """The command line with a state directory of its own."""
    return CommandLine(sandbox.env() | {"BULKEXEC_STATE_DIR": str(tmp_path / "state")})


@dataclass(frozen=True)
class Verb:
    """One command, confirmed by --yes, with JSON. What comes of each item must add up."""

    name: str
    process: CommandLine
    invoke: Callable[..., Outcome]

    def __call__(self, table: str, *more: str, **how: Any) -> Outcome:
        outcome = self.process.json(self.name, "--table", table, "--yes", *more, **how)
        report = outcome.report
        if report["status"] == "finished":
            assert report["matched"] == sum(report[each] for each in ("processed", "skipped", "failed", "conflicts"))
        return outcome

    def tried(self, table: str, *more: str) -> Outcome:
        """In this process, which starts faster: for what is refused before anything runs."""
        return self.invoke(self.name, "--table", table, "--yes", "--output", "json", *more)


@pytest.fixture
def verb(bulkexec: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Makes a `Verb` of a command's name."""

    def invoke(*arguments: str) -> Outcome:
        for name, value in bulkexec.environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            cli(arguments, standalone_mode=False)
        said = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err, json.loads(said.out))

    return lambda name: Verb(name, bulkexec, invoke)


@pytest.fixture(scope="session")
def deployed(sandbox: Sandbox) -> str:
    """A sandbox in which Glue jobs can run; gives the bucket."""
    done = subprocess.run(
        [*COMMAND, "bootstrap", "--yes"], env=sandbox.env(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return "bulkexec-111122223333-us-east-1"


class Tables:
    """Makes tables with plain boto3 and reads them back the same way."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def make(
        self,
        items: Iterable[Item] = (),
        keys: tuple[tuple[str, str], ...] = (("pk", "S"),),
        recovery: bool = True,
        indexed: tuple[tuple[str, str], ...] = (),
        **more: Any,
    ) -> str:
        """A table of these items; `indexed` are the attributes that only its indexes have as keys."""
        name = f"t-{uuid.uuid4().hex[:10]}"
        settings = {"BillingMode": "PAY_PER_REQUEST", **more}
        self.client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in (*keys, *indexed)],
            KeySchema=[
                {"AttributeName": key, "KeyType": role} for (key, _), role in zip(keys, ("HASH", "RANGE"), strict=False)
            ],
            **settings,
        )
        if recovery:
            self.client.update_continuous_backups(
                TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
        self.put(name, items)
        return name

    def put(self, name: str, items: Iterable[Item]) -> None:
        batch: list[Item] = []
        for item in items:
            batch.append({"PutRequest": {"Item": item}})
            if len(batch) == 25:
                self._send(name, batch)
                batch = []
        if batch:
            self._send(name, batch)

    def _send(self, name: str, batch: list[Item]) -> None:
        request = {name: batch}
        while request:
            request = self.client.batch_write_item(RequestItems=request)["UnprocessedItems"]

    def read(self, name: str) -> list[Item]:
        pages = self.client.get_paginator("scan").paginate(TableName=name, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def keys(self, name: str) -> set[str]:
        """Partition keys of S tables."""
        return {item["pk"]["S"] for item in self.read(name)}


@pytest.fixture(scope="session")
def tables(sandbox: Sandbox) -> Tables:
    return Tables(sandbox.client("dynamodb"))


def numbered(count: int, size_bytes: int = 60) -> list[Item]:
    """Items pk=k0000000…, n, and every third with state OLD."""
    filler = "x" * max(1, size_bytes - 40)
    return [
        {
            "pk": {"S": f"k{number:07d}"},
            "n": {"N": str(number)},
            "state": {"S": "OLD" if number % 3 == 0 else "NEW"},
            "filler": {"S": filler},
        }
        for number in range(count)
    ]


@pytest.fixture(scope="session")
def items() -> Callable[[int, int], list[Item]]:
    return numbered
