"""The same work through the Python API, the command line and the job's code on Spark: the same counts and tables."""

import json
import random
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest

from bulkexec import MassOpResult, Table, maps
from bulkexec.command import Command
from bulkexec.commands.copy import Copy
from bulkexec.commands.delete import Delete
from bulkexec.commands.edit import Edit
from bulkexec.commands.move import Move
from bulkexec.control import ControlTable, Job
from bulkexec.declarations import Declarations
from bulkexec.plan import Options
from bulkexec.planning import limited, make_plan
from bulkexec.report import Report
from bulkexec.runtimes.deployment import CONTROL_TABLE
from bulkexec.s3 import Location, Objects
from bulkexec.sandbox.glue_archive import java_options
from bulkexec.sandbox.glue_process import java_home
from bulkexec.sandbox.glue_python import inspect
from bulkexec.sandbox.process import Sandbox, environment
from bulkexec.selection import Filter
from tests.functional.conftest import CommandLine, Tables
from tests.functional.mass_model import contents

REGION = "us-east-1"
ITEMS = 150
KEYS = (("pk", "S"), ("sk", "N"))

MAP = """
def map_item(item):
    number = int(item.get("n", 0))
    if number == 3:
        raise ValueError("three is no number")
    if number == 4:
        return None
    if number == 5:
        return item | {"pk": "elsewhere"}
    if number == 6:
        return item | {"x": object()}
    return item | {"state": "DONE", "half": number / 2, "tags": {"b", "a"}}
"""


@dataclass(frozen=True)
class Work:
    """One operation in three languages. `{map}`, `{target}` and `{keys}` stand for names of this run."""

    api: Callable[[Table, "Places"], MassOpResult]
    command: Callable[["Places"], Command]
    chosen: Callable[["Places"], Filter]
    arguments: tuple[str, ...]
    declared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """A copy of the tables for one way of running, and the files that all share."""

    source: str
    target: str
    map: str
    keys: str
    named: tuple[dict[str, Any], ...]


def _said(**given: Any) -> Callable[[Places], Filter]:
    return lambda places: Filter(**given)


VERSION: dict[str, Any] = {"version_field": "-version"}
WORK = {
    "delete": Work(
        lambda table, places: table.delete_list(filter=["state:eq:OLD", "n:ge:2"]),
        lambda places: Delete(),
        _said(clauses=("state:eq:OLD", "n:ge:2")),
        ("delete", "--filter", "state:eq:OLD", "--filter", "n:ge:2"),
    ),
    "edit": Work(
        lambda table, places: table.edit_list(maps.load(places.map)),
        lambda places: Edit(map_file=places.map, all=True, version_field="-version"),
        _said(),
        ("edit", "--all", "--map", "{map}", "--version-field", "-version"),
        VERSION,
    ),
    "copy": Work(
        lambda table, places: table.clone_list(to=places.target, where="n < 6", if_not_exists=True),
        lambda places: Copy(to=places.target, if_not_exists=True),
        _said(where="n < 6"),
        ("copy", "--to", "{target}", "--where", "n < 6", "--if-not-exists"),
    ),
    "move": Work(
        lambda table, places: table.move_list(maps.swap_prefix("pk", "a", "moved#a"), where="begins_with(pk, 'a')"),
        lambda places: Move(swap_prefix=("pk=a>moved#a",)),
        _said(where="begins_with(pk, 'a')"),
        ("move", "--swap-prefix", "pk=a>moved#a", "--where", "begins_with(pk, 'a')"),
    ),
    "edit of keys": Work(
        lambda table, places: table.edit_by_keys(places.named, maps.overlay(seen=True)),
        lambda places: Edit(set_values=("seen=true",)),
        lambda places: Filter(keys=places.keys, declared=Declarations()),
        ("edit", "--keys-from", "{keys}", "--set", "seen=true"),
    ),
}


def items(seed: str) -> list[dict[str, Any]]:
    """Random items, the same for each way of running."""
    chance = random.Random(seed)
    values: list[dict[str, Any]] = [{"S": "日本"}, {"N": "1.5"}, {"B": b"\x00\xff"}, {"SS": ["x", "y"]}, {"NULL": True}]
    made = []
    for number in range(ITEMS):
        item: dict[str, Any] = {
            "pk": {"S": chance.choice(["a", "b", "é"]) + str(number % 20)},
            "sk": {"N": str(number)},
        }
        item |= {"state": {"S": chance.choice(["OLD", "NEW"])}} if chance.random() < 0.8 else {}
        item |= {"n": {"N": str(chance.randrange(9))}} if chance.random() < 0.8 else {}
        item |= {"-version": {"N": str(chance.randrange(3))}} if chance.random() < 0.5 else {}
        made.append(item | {"any": chance.choice(values)})
    return made


# -- the three ways ------------------------------------------------------------------------------------------------

SPARK = """
import json, sys
from pyspark.sql import SparkSession
from bulkexec.runtimes.spark import JobReference, run_job
spark = SparkSession.builder.getOrCreate()
for job in json.loads(sys.argv[1]):
    print(job, run_job(spark, JobReference(job, 1, *sys.argv[2:])), flush=True)
"""


def spark_environment() -> dict[str, str]:
    """A Spark that starts as fast as the sandbox's jobs do."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": shlex.join(java_options(inspect(sys.executable))),
    }
    pairs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*pairs, "pyspark-shell"]),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture(scope="module")
def session(sandbox: Sandbox) -> Iterator[boto3.Session]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(sandbox.running).items():
            patch.setenv(name, value)
        yield boto3.Session(region_name=REGION)


@pytest.fixture(scope="module")
def place(
    session: boto3.Session, tables: Tables, deployed: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Places]:
    """Makes the tables of one piece of work, for one way of running it."""
    folder = tmp_path_factory.mktemp("maps")
    (folder / "mapping.py").write_text(MAP)

    def make(name: str) -> Places:
        there = items(name)
        named = [{"pk": item["pk"], "sk": item["sk"]} for item in there[::3]] + [
            {"pk": {"S": "gone"}, "sk": {"N": "1"}}
        ]
        lines = "\n".join(json.dumps({"Keys": key}) for key in named).encode()
        keys = Location(deployed, f"keys/{name.replace(' ', '-')}.json")
        Objects(session, REGION).put(keys, lines)
        source, target = tables.make(there, keys=KEYS), tables.make(there[::4], keys=KEYS)
        return Places(source, target, str(folder / "mapping.py"), str(keys), tuple(named))

    return make


@pytest.fixture(scope="module")
def on_spark(
    session: boto3.Session, sandbox: Sandbox, deployed: str, place: Callable[[str], Places]
) -> dict[str, tuple[Report, Places]]:
    """Every piece of work as a job, all in one Spark session."""
    control, objects = ControlTable(session, REGION, CONTROL_TABLE), Objects(session, REGION)
    places = {name: place(name) for name in WORK}
    jobs = {name: f"agree{number}" for number, name in enumerate(WORK)}
    for name, job in jobs.items():
        work, there = WORK[name], places[name]
        planned = make_plan(session, work.command(there), there.source, work.chosen(there), Options(), 4, 4)
        plan = limited(planned, None).plan
        folder = Location(deployed, f"bulkexec/jobs/{job}")
        objects.put(folder / "plan.json", plan.to_json())
        control.put_job(Job(job, str(folder / "plan.json"), plan.work.scope.table.arn, plan.command, run_number=1))
    command = [sys.executable, "-c", SPARK, json.dumps(list(jobs.values())), deployed, CONTROL_TABLE, REGION]
    done = subprocess.run(command, env=sandbox.env() | spark_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reports = {}
    for name, job in jobs.items():
        data = objects.get(Location(deployed, f"bulkexec/jobs/{job}/report.json"))
        assert data is not None, done.stdout
        reports[name] = Report.from_json(data), places[name]
    return reports


def of_command_line(bulkexec: CommandLine, work: Work, places: Places) -> dict[str, Any]:
    names = {"map": places.map, "target": places.target, "keys": places.keys}
    verb, *arguments = (each.format(**names) for each in work.arguments)
    outcome = bulkexec.json(verb, "--table", places.source, *arguments, "--yes", "--runtime", "local")
    assert outcome.code == outcome.report["exit_code"], outcome.stderr
    return outcome.report


COUNTS = ("matched", "processed", "skipped", "failed", "conflicts")


@pytest.mark.parametrize("name", WORK)
def test_runtimes_agree(
    name: str,
    session: boto3.Session,
    bulkexec: CommandLine,
    tables: Tables,
    place: Callable[[str], Places],
    on_spark: dict[str, tuple[Report, Places]],
) -> None:
    work, here, there = WORK[name], place(name), place(name)
    result = work.api(Table(here.source, session=session, **work.declared), here)
    local = of_command_line(bulkexec, work, there)
    spark, in_job = on_spark[name]
    assert spark.status == local["status"] == "finished"
    assert spark.exit_code == local["exit_code"]
    assert result.cursor is None
    counts = {each: getattr(spark.counts, each) for each in COUNTS}
    assert {each: local[each] for each in COUNTS} == counts
    assert {
        each: len(getattr(result, each)) if each in ("failed", "conflicts") else getattr(result, each)
        for each in COUNTS
    } == counts
    assert counts["matched"] > 0
    assert result.scanned == local["scanned"] == spark.counts.scanned or name == "move"  # which may read what it made
    failed = {json.dumps(each["key"], sort_keys=True): each["reason"] for each in result.as_json()["failed"]}
    assert failed.items() >= {json.dumps(each.key, sort_keys=True): each.reason for each in spark.failures}.items()
    for side in ("source", "target"):
        found = [contents(tables.read(getattr(each, side))) for each in (here, there, in_job)]
        assert found[0] == found[1] == found[2]
