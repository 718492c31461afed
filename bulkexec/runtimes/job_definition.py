"""The Glue job as this version of bulkexec wants it, and how one that is there differs from that."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from bulkexec import iam, layout
from bulkexec.runtimes.wheel import Wheel, own_wheel
from bulkexec.s3 import Location

JOB_NAME = "bulkexec"
GLUE_VERSIONS = ("5.1", "6.0")
WORKER_TYPE, WORKERS = "G.1X", 2
TIMEOUT_MINUTES = 600
MAX_CONCURRENT_RUNS = 20
MODULES = "--additional-python-modules"

KEPT = (
    "NonOverridableArguments",
    "Connections",
    "SecurityConfiguration",
    "NotificationProperty",
    "ExecutionClass",
    "MaintenanceWindow",
    "JobRunQueuingEnabled",
)
"""What the owner of the account may have set. UpdateJob drops whatever it is not given again."""


@dataclass(frozen=True)
class JobShape:
    """What is left to choose about the job."""

    glue_version: str = GLUE_VERSIONS[0]
    worker_type: str = WORKER_TYPE
    workers: int = WORKERS
    timeout_minutes: int = TIMEOUT_MINUTES

    def describe(self) -> str:
        """ "Glue 5.1, 2 x G.1X"."""
        return f"Glue {self.glue_version}, {self.workers} x {self.worker_type}"


def shape_of(job: dict[str, Any]) -> JobShape:
    """What a job has now, with the defaults where that is nothing a run could be made of."""
    glue_version, kind = job.get("GlueVersion", ""), job.get("WorkerType", "")
    usable = kind[:2] in ("G.", "R.") and kind != "G.025X"  # G.025X is for streaming only
    return JobShape(
        glue_version if glue_version in GLUE_VERSIONS else GLUE_VERSIONS[0],
        kind if usable else WORKER_TYPE,
        max(2, job.get("NumberOfWorkers", WORKERS)) if usable else WORKERS,
        job.get("Timeout", TIMEOUT_MINUTES),
    )


def job_script() -> bytes:
    """The script that Glue runs."""
    return files("glue_jobs").joinpath("bulk_job.py").read_bytes()


@cache
def deployed_wheel() -> Wheel:
    """The code of this client, which the job has to run."""
    return own_wheel()


def permissions_hash() -> str:
    """Of what this version's job has to be allowed, whatever account it is in."""
    return hashlib.sha256(json.dumps(iam.policy("job"), sort_keys=True).encode()).hexdigest()[:12]


def script_place(bucket: str) -> Location:
    """Where the script lies, by the hash of its content."""
    return Location(bucket, f"{layout.SCRIPTS}/{hashlib.sha256(job_script()).hexdigest()[:12]}/bulk_job.py")


def wheel_place(bucket: str) -> Location:
    """Where the wheel lies, by the hash of its content."""
    wheel = deployed_wheel()
    return Location(bucket, f"{layout.WHEELS}/{wheel.hash}/{wheel.filename}")


def definition(bucket: str, role_arn: str, shape: JobShape) -> dict[str, Any]:
    """The job, as CreateJob takes it, but for its name."""
    return {
        # The role cannot be read by everyone who starts runs, so the job says for which permissions it was set up.
        "Description": f"bulkexec, permissions {permissions_hash()}",
        "Role": role_arn,
        "Command": {"Name": "glueetl", "ScriptLocation": str(script_place(bucket)), "PythonVersion": "3"},
        "DefaultArguments": {
            "--job-language": "python",
            "--TempDir": f"s3://{bucket}/{layout.TEMP}/",
            MODULES: f"msgspec=={version('msgspec')},{wheel_place(bucket)}",
        },
        "ExecutionProperty": {"MaxConcurrentRuns": MAX_CONCURRENT_RUNS},
        "GlueVersion": shape.glue_version,
        "WorkerType": shape.worker_type,
        "NumberOfWorkers": shape.workers,
        "Timeout": shape.timeout_minutes,
        # A resumed job goes on behind its checkpoints; a blind retry by Glue would hide what went wrong.
        "MaxRetries": 0,
    }


def updated(job: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The JobUpdate that makes a job what is wanted and leaves its owner's settings as they are."""
    kept = {name: job[name] for name in KEPT if name in job}
    arguments = {**job.get("DefaultArguments", {}), **wanted["DefaultArguments"]}
    return {**kept, **wanted, "DefaultArguments": arguments}


def differences(job: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What an update would change, in words: "code 1a2b… -> 3c4d…", "2 -> 5 workers"."""
    found = _code(job, wanted)
    if _role_name(job.get("Role", "")) != _role_name(wanted["Role"]):
        found.append(f"role {_role_name(job.get('Role', ''))} -> {_role_name(wanted['Role'])}")
    command, mine = dict(job.get("Command", {})), dict(wanted["Command"])
    if _without_place(command) != _without_place(mine):
        found.append("command")
    for name, words in _SETTINGS.items():
        if job.get(name) != wanted[name]:
            found.append(f"{words} {_plain(job.get(name))} -> {_plain(wanted[name])}")
    arguments = job.get("DefaultArguments", {})
    changed = [name for name, value in wanted["DefaultArguments"].items() if arguments.get(name) != value]
    return found + [f"argument {name}" for name in changed if name != MODULES or not found]


_SETTINGS = {
    "Description": "description",
    "GlueVersion": "Glue",
    "WorkerType": "worker type",
    "NumberOfWorkers": "workers",
    "Timeout": "timeout in minutes",
    "MaxRetries": "retries",
    "ExecutionProperty": "concurrent runs",
}


def _plain(value: Any) -> str:
    """A setting's value for people."""
    if isinstance(value, dict):
        value = value.get("MaxConcurrentRuns")
    return "none" if value is None else str(value)


def _code(job: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    pairs = (("script", script_of(job), script_of(wanted)), ("wheel", wheel_of(job), wheel_of(wanted)))
    return [f"{what} {now or 'none'} -> {then}" for what, now, then in pairs if now != then]


def script_of(job: dict[str, Any]) -> str:
    """The hash of a job's script; empty where it is none of ours."""
    return _hash_below(layout.SCRIPTS, job.get("Command", {}).get("ScriptLocation", ""))


def wheel_of(job: dict[str, Any]) -> str:
    """The hash of the wheel that a job has by default; empty where it has none of ours."""
    modules = job.get("DefaultArguments", {}).get(MODULES, "").split(",")
    return next(filter(None, (_hash_below(layout.WHEELS, each) for each in modules)), "")


def _hash_below(folder: str, uri: str) -> str:
    _, found, rest = uri.partition(f"/{folder}/")
    return rest.split("/")[0] if found else ""


def _without_place(command: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in command.items() if name != "ScriptLocation"}


def _role_name(role: str) -> str:
    """Glue takes a role by name or by ARN and gives back what it was given."""
    return role.rsplit("/", 1)[-1]
