"""Makes what jobs need in an account and region, and mends what has drifted; a plan of steps comes first."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bulkexec import errors, layout
from bulkexec.control import create_table
from bulkexec.runtimes.bucket import Bucket
from bulkexec.runtimes.deployment import CONTROL_TABLE, ERROR_LOGS, OUTPUT_LOGS
from bulkexec.runtimes.job_definition import (
    JOB_NAME,
    JobShape,
    definition,
    deployed_wheel,
    differences,
    job_script,
    script_place,
    shape_of,
    updated,
    wheel_place,
)
from bulkexec.runtimes.role import NO_LIMITS, ROLE_NAME, JobRole, Limits
from bulkexec.runtimes.steps import TAG, TAG_VALUE, TAGS, Site, Step, looked_at
from bulkexec.s3 import Location, Objects

TTL_ATTRIBUTE = "expires_at"
LOG_GROUP = "log group"
ROLE_SECONDS, ROLE_PAUSE_SECONDS = 60.0, 3.0
"""A new role is known to Glue some seconds after IAM has made it."""


@dataclass(frozen=True)
class Wishes:
    """What was asked for; None leaves it as it is, or takes the default where there is nothing yet."""

    bucket: str | None = None
    role: str | None = None
    glue_version: str | None = None
    worker_type: str | None = None
    workers: int | None = None
    limits: Limits = NO_LIMITS


def plan(site: Site, wishes: Wishes) -> list[Step]:
    """What there is to do, in the order in which it has to be done. Looks and changes nothing.

    Raises `errors.BadArgument` for a bucket or role that is of no use and for a job or table that is another's, and
    botocore's errors.
    """
    job = find_job(site)
    _require_ours(site, job)
    bucket = wishes.bucket or bucket_of(job) or default_bucket(site)
    role_arn, role_steps = JobRole(site, wishes.role or role_of(job), bucket, wishes.limits).steps()
    return [
        *Bucket(site, bucket).steps(named=bucket != default_bucket(site)),
        *table_steps(site),
        *role_steps,
        *(step for group in (OUTPUT_LOGS, ERROR_LOGS) for step in _log_steps(site, group)),
        *code_steps(site, bucket),
        _job_step(site, job, definition(bucket, role_arn, _shape(job, wishes))),
    ]


def default_bucket(site: Site) -> str:
    """The bucket that is made where none is named."""
    return f"bulkexec-{site.account}-{site.region}"


def find_job(site: Site) -> dict[str, Any] | None:
    """Glue's Job, None when there is none."""
    client = site.client("glue")
    try:
        found: dict[str, Any] = client.get_job(JobName=JOB_NAME)["Job"]
    except client.exceptions.EntityNotFoundException:
        return None
    return found


def _require_ours(site: Site, job: dict[str, Any] | None) -> None:
    script = (job or {}).get("Command", {}).get("ScriptLocation", "")
    if job is not None and not script.endswith("/bulk_job.py"):
        raise errors.BadArgument(
            f"Glue job {JOB_NAME} in {site.region} is not bulkexec's: its script is {script or 'none'}",
            fix=f"delete or rename Glue job {JOB_NAME}",
            state="nothing made",
        )


def bucket_of(job: dict[str, Any] | None) -> str | None:
    """The bucket that a job uses now."""
    place = (job or {}).get("Command", {}).get("ScriptLocation", "")
    return Location.parse(place).bucket if place.startswith("s3://") else None


def role_of(job: dict[str, Any] | None) -> str | None:
    """The role of somebody else that a job uses now."""
    role: str | None = (job or {}).get("Role")
    return role if role and role.rsplit("/", 1)[-1] != ROLE_NAME else None


def _shape(job: dict[str, Any] | None, wishes: Wishes) -> JobShape:
    now = JobShape() if job is None else shape_of(job)
    return JobShape(
        wishes.glue_version or now.glue_version,
        wishes.worker_type or now.worker_type,
        wishes.workers or now.workers,
        now.timeout_minutes,
    )


# -- control table -----------------------------------------------------------------------------------------------


def table_steps(site: Site) -> list[Step]:
    """The control table and its TTL. Raises `errors.BadArgument` for another table of that name."""
    client, what = site.client("dynamodb"), "control table"
    try:
        facts = client.describe_table(TableName=CONTROL_TABLE)["Table"]
    except client.exceptions.ResourceNotFoundException:
        make = partial(create_table, client, CONTROL_TABLE, TAGS)
        return [Step("make", what, CONTROL_TABLE, "on demand; records of jobs go after 30 days", make)]
    keys = [key["AttributeName"] for key in facts["KeySchema"]]
    if keys != ["pk", "sk"]:
        raise errors.BadArgument(
            f"table {CONTROL_TABLE} in {site.region} is not bulkexec's: its key is {', '.join(keys)}",
            fix=f"delete or rename table {CONTROL_TABLE}",
            state="nothing made",
        )
    return looked_at(what, CONTROL_TABLE, lambda: [_ttl_step(client, what)])


def _ttl_step(client: Any, what: str) -> Step:
    found = client.describe_time_to_live(TableName=CONTROL_TABLE)["TimeToLiveDescription"]
    state, attribute = found["TimeToLiveStatus"], found.get("AttributeName", TTL_ATTRIBUTE)
    if state in ("ENABLED", "ENABLING") and attribute == TTL_ATTRIBUTE:
        return Step("keep", what, CONTROL_TABLE)
    if state != "DISABLED":
        # DynamoDB allows one change of TTL an hour.
        return Step("warning", what, CONTROL_TABLE, f"TTL is {state} on {attribute}; turn it off and bootstrap again")
    wanted = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
    mend = partial(client.update_time_to_live, TableName=CONTROL_TABLE, TimeToLiveSpecification=wanted)
    return Step("mend", what, CONTROL_TABLE, f"turn TTL on ({TTL_ATTRIBUTE})", mend)


# -- log groups --------------------------------------------------------------------------------------------------


def log_steps(site: Site, name: str) -> list[Step]:
    """A log group is made only so that the first run can be followed; a retention that was chosen stays (C123)."""
    client = site.client("logs")

    def look() -> list[Step]:
        found = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        there = [group for group in found if group["logGroupName"] == name]
        if not there:
            return [_new_log_group(site, name, "never expires")]
        days = there[0].get("retentionInDays")
        return [Step("keep", LOG_GROUP, name, f"kept {days} days, as it is" if days else "never expires, as it is")]

    return looked_at(LOG_GROUP, name, look)


def _log_steps(site: Site, name: str) -> list[Step]:
    """The same where it may not be looked at: to make it, no look is needed (case C093)."""
    return [
        _new_log_group(site, name, f"if it is missing; {step.details}") if step.action == "warning" else step
        for step in log_steps(site, name)
    ]


def _new_log_group(site: Site, name: str, details: str) -> Step:
    return Step("make", LOG_GROUP, name, details, partial(_make_log_group, site.client("logs"), name), optional=True)


def _make_log_group(client: Any, name: str) -> None:
    try:
        client.create_log_group(logGroupName=name)
    except client.exceptions.ResourceAlreadyExistsException:
        return


# -- code and job ------------------------------------------------------------------------------------------------


def code_steps(site: Site, bucket: str) -> list[Step]:
    """What the job runs, by the hash of its content; nothing for what is there."""
    objects = Objects(site.session, site.region)
    content = (
        ("script", script_place(bucket), job_script),
        ("wheel", wheel_place(bucket), lambda: deployed_wheel().content),
    )
    return [
        Step(
            "make", what, place.key.split("/")[-2], f"s3://{bucket}/{layout.ROOT}", partial(_put, objects, place, data)
        )
        for what, place, data in content
        if not objects.exists(place)
    ]


def _put(objects: Objects, place: Location, data: Callable[[], bytes]) -> None:
    objects.put(place, data())


def _job_step(site: Site, job: dict[str, Any] | None, wanted: dict[str, Any]) -> Step:
    client, shape = site.client("glue"), shape_of(wanted).describe()
    if job is None:
        make = partial(client.create_job, Name=JOB_NAME, Tags={TAG: TAG_VALUE}, **wanted)
        return Step("make", "Glue job", JOB_NAME, shape, partial(_when_role_is_known, client, make))
    found = differences(job, wanted)
    if not found:
        return Step("keep", "Glue job", JOB_NAME, shape)
    mend = partial(client.update_job, JobName=JOB_NAME, JobUpdate=updated(job, wanted))
    return Step("mend", "Glue job", JOB_NAME, ", ".join(found), partial(_when_role_is_known, client, mend))


def _when_role_is_known(client: Any, change: Callable[[], Any]) -> None:
    """Repeat a change of the job until Glue can take on its role."""
    deadline = time.monotonic() + ROLE_SECONDS
    while True:
        try:
            change()
            return
        except client.exceptions.InvalidInputException as error:
            if "assume" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(ROLE_PAUSE_SECONDS)
