"""Where jobs run in one account and region: what bootstrap has made there, found and described."""

from dataclasses import dataclass
from typing import Any

import boto3

from bulkexec import errors, layout
from bulkexec.cost import DPUS, GlueShape
from bulkexec.describe import CLIENT_CONFIG, user_errors
from bulkexec.duration import in_words
from bulkexec.runtimes.job_definition import JOB_NAME, definition, script_of, shape_of, wheel_of
from bulkexec.runtimes.steps import open_site
from bulkexec.s3 import Location

CONTROL_TABLE = "bulkexec-control"
OUTPUT_LOGS, ERROR_LOGS = "/aws-glue/jobs/output", "/aws-glue/jobs/error"
CORES_PER_DPU = 4
THREADS_PER_CORE = 4


class OtherVersion(errors.NotDeployed):
    """There is a Glue job, made by another version of bulkexec."""


@dataclass(frozen=True)
class Deployment:
    """Where jobs run in one account and region."""

    region: str
    account: str
    partition: str
    bucket: str
    worker_type: str
    workers: int
    glue_version: str
    timeout_minutes: float
    job_name: str = JOB_NAME
    control_table: str = CONTROL_TABLE
    stale: str = ""
    """How the job differs from what this version of bulkexec needs; empty: it is ready."""
    other_code: str = ""
    """The hash of the wheel that bootstrap has left, when it is not this client's; runs get this client's anyway."""

    @property
    def shape(self) -> GlueShape:
        """For the estimate."""
        return GlueShape(self.worker_type, self.workers)

    @property
    def slots(self) -> int:
        """Segments that can be walked at the same time. One worker is the driver's."""
        return max(1, self.workers - 1) * int(DPUS.get(self.worker_type, 1) * CORES_PER_DPU) * THREADS_PER_CORE

    @property
    def output_logs_arn(self) -> str:
        """Of the log group that holds the job's own log."""
        return f"arn:{self.partition}:logs:{self.region}:{self.account}:log-group:{OUTPUT_LOGS}"

    def describe(self) -> str:
        """For the plan."""
        ends = in_words(self.timeout_minutes * 60)
        text = f"Glue {self.glue_version}, {self.workers} x {self.worker_type}, stops at {ends}"
        if not self.other_code:
            return text
        return f"{text}; with this client's code, the deployment's is {self.other_code} (bulkexec bootstrap updates it)"

    def job_folder(self, job_id: str) -> Location:
        """Plan, report and lists of one job."""
        return Location(self.bucket, f"{layout.JOBS}/{job_id}")


def find_deployment(session: boto3.Session, region: str | None, *, stale_too: bool = False) -> Deployment:
    """What `bootstrap` made here. Raises `errors.NotDeployed` when it is missing.

    One that is stale may be looked at (`stale_too`) and never started: raises `OtherVersion` (case C161).
    """
    with user_errors("find the Glue job"):
        client = session.client("glue", region_name=region, config=CLIENT_CONFIG)
        try:
            job = client.get_job(JobName=JOB_NAME)["Job"]
        except client.exceptions.EntityNotFoundException as error:
            raise errors.NotDeployed(
                f"there is no Glue job {JOB_NAME} in {client.meta.region_name}",
                fix="bulkexec bootstrap, or --runtime local",
                state="nothing written",
            ) from error
        site = open_site(session, region)
    bucket = Location.parse(job["Command"]["ScriptLocation"]).bucket
    found = Deployment(
        region=site.region,
        account=site.account,
        partition=site.partition,
        bucket=bucket,
        worker_type=job.get("WorkerType", ""),
        workers=job.get("NumberOfWorkers", 0),
        glue_version=job.get("GlueVersion", ""),
        timeout_minutes=job.get("Timeout", 0),
        stale=staleness(job),
        other_code=_other_code(job),
    )
    return found if stale_too else require_fresh(found)


def _other_code(job: dict[str, Any]) -> str:
    found = wheel_of(job)
    return "" if found == wheel_of(_wanted(job)) else found or "none"


def _wanted(job: dict[str, Any]) -> dict[str, Any]:
    bucket = Location.parse(job["Command"]["ScriptLocation"]).bucket
    return definition(bucket, job.get("Role", ""), shape_of(job))


def staleness(job: dict[str, Any]) -> str:
    """What about a job keeps this version of bulkexec from running on it; empty: nothing."""
    wanted = _wanted(job)
    if script_of(job) != script_of(wanted):
        return f"its script is {script_of(job) or 'of an older kind'}, this version's is {script_of(wanted)}"
    if job.get("Description") != wanted["Description"]:
        return "its role was set up for the permissions of another version"
    for name in ("GlueVersion", "WorkerType", "NumberOfWorkers", "MaxRetries"):
        if job.get(name) != wanted[name]:
            return f"its {name} is {job.get(name)}, which bulkexec cannot work with"
    return ""


def require_fresh(deployment: Deployment) -> Deployment:
    """The deployment. Raises `OtherVersion` for a stale one."""
    if not deployment.stale:
        return deployment
    raise OtherVersion(
        f"the Glue job {deployment.job_name} in {deployment.region} is not of this version of bulkexec",
        why=deployment.stale,
        fix="bulkexec bootstrap shows what it would change and asks; or --runtime local",
        state="nothing written",
    )
