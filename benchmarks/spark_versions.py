"""The same commands on the Spark of Glue 5.1 and on that of Glue 6.0: `python -m benchmarks.spark_versions PYTHON`.

PYTHON is that of an environment with pyspark 4.1; `make spark4` makes one and runs this. Each environment has a sandbox
of its own with the same items, its own client (the command line, run by its Python) and its own job runs. Every command
runs in this process and as a Glue job, in one environment right after the other. Counts, units and the bytes of all
tables have to be the same everywhere; but a page costs whole read units, and a job walks more segments than a process.
Writes spark_versions.json and spark_versions.md; exit code 1 when anything differs.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import document
from bulkexec.sandbox.process import Sandbox
from bulkexec.sandbox.seeding import Shape, fill

ITEMS = 4_000
RUNTIMES = ("local", "glue")
COMMANDS = {
    "count": ("--where", "created_at > 1715000000"),
    "find": ("--where", "begins_with(\"full.name\", 'Zoë 1')"),
    "edit": ("--where", "status = 'PENDING'", "--map", "map.py", "--yes"),
    "copy": ("--to", "copied-{runtime}", "--yes"),
    "delete": ("--where", "status = 'EXPIRED'", "--yes"),
}
MAP = """
def map_item(item):
    item["status"] = "ARCHIVED"
    item["size"] = item["size"] + 1
    return item
"""
COMPARED = ("scanned", "matched", "processed", "skipped", "failed", "conflicts", "read_units", "write_units")
VERSIONS = re.compile(r"(Spark|Python|pyarrow|pandas|numpy|boto3) ([0-9][\w.]*)")


@dataclass(frozen=True)
class Environment:
    """A Glue version, and the Python whose packages are those of it."""

    glue: str
    python: str


@dataclass(frozen=True)
class Step:
    """One command in one runtime: what it counted, how long the client and the job's own work took."""

    command: str
    runtime: str
    counts: dict[str, float]
    wall_seconds: float
    work_seconds: float

    @property
    def read_units(self) -> float:
        return self.counts["read_units"]

    @property
    def items(self) -> dict[str, float]:
        """All counts but the read units."""
        return {name: count for name, count in self.counts.items() if name != "read_units"}


@dataclass
class Outcome:
    """What one environment did. `versions` are those that its job runs logged, `tables` digests of all items."""

    glue: str
    versions: dict[str, str] = field(default_factory=dict)
    bootstrap_seconds: float = 0.0
    steps: list[Step] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)


class Smoke:
    """One environment's life: bootstrap, and every command in both runtimes."""

    def __init__(self, environment: Environment, sandbox: Sandbox, folder: Path) -> None:
        self._python, self._sandbox, self._folder = environment.python, sandbox, folder
        self._client = sandbox.client("dynamodb")
        self.outcome = Outcome(environment.glue)

    def bootstrap(self) -> None:
        began = time.monotonic()
        self._bulkexec("bootstrap", "--yes", "--glue-version", self.outcome.glue)
        self.outcome.bootstrap_seconds = round(time.monotonic() - began, 2)
        (self._folder / "map.py").write_text(MAP)
        for runtime in RUNTIMES:
            self._make(f"orders-{runtime}", ITEMS)
            self._make(f"copied-{runtime}", 0)

    def end(self) -> Outcome:
        """What is in the tables, and what the job runs logged."""
        for name in (f"{table}-{runtime}" for table in ("orders", "copied") for runtime in RUNTIMES):
            self.outcome.tables[name] = self._digest(name)
        self.outcome.versions = self._logged_versions()
        return self.outcome

    def _make(self, name: str, items: int) -> None:
        fill(self._client, Shape(name, items, item_bytes=500))
        self._client.update_continuous_backups(
            TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
        )

    def step(self, runtime: str, command: str) -> None:
        """One command; what it counted and how long it took."""
        arguments = ["--table", f"orders-{runtime}", *(each.format(runtime=runtime) for each in COMMANDS[command])]
        began = time.monotonic()
        report = self._bulkexec(command, *arguments, "--runtime", runtime, "--output", "json")
        seconds, counts = time.monotonic() - began, {name: report[name] for name in COMPARED}
        self.outcome.steps.append(
            Step(command, runtime, counts, round(seconds, 2), round(report["duration_seconds"], 2))
        )
        print(f"Glue {self.outcome.glue} {runtime} {command}: {counts['processed']:g} in {seconds:.1f} s", flush=True)

    def _bulkexec(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [self._python, "-m", "bulkexec", *arguments],
            env=self._sandbox.env() | {"BULKEXEC_STATE_DIR": str(self._folder / "state")},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"bulkexec {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        return answer

    def _digest(self, table: str) -> str:
        """Of all items, sorted, so that two tables with equal items have the same one."""
        pages = self._client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        lines = sorted(json.dumps(_plain(item), sort_keys=True) for page in pages for item in page["Items"])
        return f"{len(lines)} items, {hashlib.sha256(''.join(lines).encode()).hexdigest()[:16]}"

    def _logged_versions(self) -> dict[str, str]:
        pages = self._sandbox.client("logs").get_paginator("filter_log_events")
        answer = pages.paginate(logGroupName="/aws-glue/jobs/output", filterPattern="pyarrow")
        found = {
            tuple(VERSIONS.findall(line))
            for page in answer
            for event in page["events"]
            for line in event["message"].splitlines()
            if " runs on Spark " in line
        }
        (versions,) = found  # every run of one environment says the same
        return dict(versions)


def _plain(value: Any) -> Any:
    """Sets have no order, and bytes no place in JSON."""
    if isinstance(value, dict):
        return {k: sorted(map(str, v)) if k in ("SS", "NS", "BS") else _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


def differences(outcomes: list[Outcome]) -> list[str]:
    """What is not the same in every environment and runtime."""
    first, found = outcomes[0], []
    items = {step.command: step.items for step in first.steps}
    units = {(step.command, step.runtime): step.read_units for step in first.steps}
    for outcome in outcomes:
        for step in outcome.steps:
            if (step.items, step.read_units) != (items[step.command], units[step.command, step.runtime]):
                found.append(f"Glue {outcome.glue} {step.runtime} {step.command}: {step.counts}")
        for name, digest in outcome.tables.items():
            if digest != first.tables[f"{name.partition('-')[0]}-local"]:
                found.append(f"Glue {outcome.glue} {name}: {digest}")
    return found


def table(outcomes: list[Outcome]) -> str:
    """The comparison for people."""
    glue = [f"Glue {each.glue}" for each in outcomes]
    lines = [f"| | {' | '.join(glue)} |", "|---|" + "---|" * len(glue)]
    for name in outcomes[0].versions:
        lines.append(f"| {name} | {' | '.join(each.versions.get(name, 'none') for each in outcomes)} |")
    times = " | ".join(f"{each} s | of it work s" for each in glue)
    lines += [
        "",
        f"| command | runtime | processed | {times} | the same |",
        "|---|---|--:|" + "--:|--:|" * len(glue) + "---|",
    ]
    for steps in zip(*(each.steps for each in outcomes), strict=True):
        cells = " | ".join(f"{step.wall_seconds:.1f} | {step.work_seconds:.1f}" for step in steps)
        same = "yes" if all(step.counts == steps[0].counts for step in steps) else "**no**"
        counts = steps[0].counts
        done = counts["processed"] or counts["matched"]
        lines.append(f"| {steps[0].command} | {steps[0].runtime} | {done:g} | {cells} | {same} |")
    return "\n".join(lines)


HEADING = f"""# Spark 3.5 and Spark 4.1 side by side

Made by `make spark4`. Each environment has a sandbox of its own with the same {ITEMS:,} varied items of 500 bytes, a
client run by its own Python, and job runs on its own Spark; they take turns, command by command. Seconds are of the
whole command, of which *work* is what its report says; the rest is the start of the client, of the JVM and of Spark.
The versions are those that the job runs logged. *processed* is matched items for `count` and `find`. *the same*:
scanned, matched, processed, skipped, failed, conflicts, read and write units.

"""


def write(outcomes: list[Outcome], found: list[str]) -> None:
    """Both files."""
    equal = not found
    document.write_json(
        "spark_versions.json", {"items": ITEMS, "equal": equal, "outcomes": list(map(asdict, outcomes))}
    )
    verdict = "All counts, units and tables are equal, in both runtimes and environments.\n" if equal else ""
    lines = "".join(f"- differs: {each}\n" for each in found)
    day, load = time.strftime("%Y-%m-%d", time.gmtime()), os.getloadavg()[2]
    measured = (
        f"Measured {day} on {os.cpu_count()} cores, with a load average of {load:.1f} over its last 15 minutes.\n"
    )
    text = f"{HEADING}{table(outcomes)}\n\n{verdict}{lines}\n{measured}"
    (document.HERE / "spark_versions.md").write_text(text, encoding="utf-8")


def _begun(environment: Environment, glue6: str, stack: ExitStack) -> Smoke:
    sandbox = stack.enter_context(Sandbox(glue6_python=glue6))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    smoke = Smoke(environment, sandbox, folder)
    smoke.bootstrap()
    return smoke


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="the Python of an environment with pyspark 4.1")
    glue6 = str(Path(parser.parse_args().python).absolute())
    environments = (Environment("5.1", sys.executable), Environment("6.0", glue6))
    with ExitStack() as stack:
        smokes = [_begun(environment, glue6, stack) for environment in environments]
        for runtime, command in itertools.product(RUNTIMES, COMMANDS):
            for smoke in smokes:
                smoke.step(runtime, command)
        outcomes = [smoke.end() for smoke in smokes]
    found = differences(outcomes)
    write(outcomes, found)
    print(table(outcomes))
    print("\n".join(found) or "all the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
