"""What must be in an account before a Glue job can run: bucket, role, control table, log groups, the job itself."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import boto3
import botocore.exceptions

from bulkexec import errors, layout
from bulkexec.control import create_table
from bulkexec.cost import DPUS, GlueShape
from bulkexec.describe import CLIENT_CONFIG, user_errors
from bulkexec.s3 import Location, Objects

JOB_NAME = "bulkexec"
CONTROL_TABLE = "bulkexec-control"
ROLE_NAME = "bulkexec-job"
OUTPUT_LOGS, ERROR_LOGS = "/aws-glue/jobs/output", "/aws-glue/jobs/error"
GLUE_VERSION = "5.1"
WORKER_TYPE, WORKERS = "G.1X", 2
TIMEOUT_MINUTES = 600
MAX_CONCURRENT_RUNS = 20
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
        return (
            f"Glue {self.glue_version}, {self.workers} x {self.worker_type}, stops at {self.timeout_minutes / 60:g} h"
        )

    def job_folder(self, job_id: str) -> Location:
        """Plan, report and lists of one job."""
        return Location(self.bucket, f"{layout.JOBS}/{job_id}")


def job_script() -> bytes:
    """The script that Glue runs."""
    return files("glue_jobs").joinpath("bulk_job.py").read_bytes()


def _script_key() -> str:
    return f"{layout.SCRIPTS}/{hashlib.sha256(job_script()).hexdigest()[:12]}/bulk_job.py"


def _identity(session: boto3.Session, region: str | None) -> tuple[str, str]:
    """(account, partition)."""
    arn = session.client("sts", region_name=region, config=CLIENT_CONFIG).get_caller_identity()["Arn"]
    return arn.split(":")[4], arn.split(":")[1]


def find_deployment(session: boto3.Session, region: str | None) -> Deployment:
    """What `bootstrap` made here. Raises `errors.NotDeployed` when it is missing or of another version."""
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
        if not job["Command"]["ScriptLocation"].endswith(_script_key()):
            raise OtherVersion("the Glue job is of another version of bulkexec", fix="bulkexec bootstrap")
        account, partition = _identity(session, region)
    return Deployment(
        region=client.meta.region_name,
        account=account,
        partition=partition,
        bucket=Location.parse(job["Command"]["ScriptLocation"]).bucket,
        worker_type=job["WorkerType"],
        workers=job["NumberOfWorkers"],
        glue_version=job["GlueVersion"],
        timeout_minutes=job["Timeout"],
    )


def bootstrap(
    session: boto3.Session, *, worker_type: str = WORKER_TYPE, workers: int = WORKERS, bucket: str | None = None
) -> Iterator[str]:
    """Make what is missing and mend what differs; gives one line for each step. Safe to run again."""
    with user_errors("set up bulkexec"):
        region = session.client("sts", config=CLIENT_CONFIG).meta.region_name
        account, partition = _identity(session, region)
        name = bucket or f"bulkexec-{account}-{region}"
        yield f"bucket         {name}: {_make_bucket(session, name, region)}"
        create_table(session.client("dynamodb", region_name=region), CONTROL_TABLE)
        yield f"control table  {CONTROL_TABLE}: there"
        role_arn = _make_role(session, partition)
        yield f"role           {role_arn}: there"
        for group in (OUTPUT_LOGS, ERROR_LOGS):
            yield f"log group      {group}: {_make_log_group(session, region, group)}"
        Objects(session, region).put(Location(name, _script_key()), job_script())
        yield f"job            {JOB_NAME}: {_make_job(session, region, name, role_arn, worker_type, workers)}"


def _make_bucket(session: boto3.Session, name: str, region: str) -> str:
    client = session.client("s3", region_name=region)
    try:
        client.head_bucket(Bucket=name)
        return "there"
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchBucket"):
            raise
    placed: dict[str, Any] = {} if region == "us-east-1" else {"LocationConstraint": region}
    client.create_bucket(Bucket=name, **({"CreateBucketConfiguration": placed} if placed else {}))
    client.put_public_access_block(
        Bucket=name,
        PublicAccessBlockConfiguration={
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": True,
            "RestrictPublicBuckets": True,
        },
    )
    return "made"


def _make_role(session: boto3.Session, partition: str) -> str:
    client = session.client("iam")
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "glue.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
    try:
        arn: str = client.get_role(RoleName=ROLE_NAME)["Role"]["Arn"]
    except client.exceptions.NoSuchEntityException:
        arn = client.create_role(RoleName=ROLE_NAME, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    client.attach_role_policy(
        RoleName=ROLE_NAME, PolicyArn=f"arn:{partition}:iam::aws:policy/service-role/AWSGlueServiceRole"
    )
    client.put_role_policy(RoleName=ROLE_NAME, PolicyName="bulkexec", PolicyDocument=json.dumps(_job_policy(partition)))
    return arn


def _job_policy(partition: str) -> dict[str, Any]:
    """What the job does: tables of the user and the control table, and objects of the bucket and of result places."""
    tables = [
        "Scan",
        "Query",
        "BatchWriteItem",
        "DeleteItem",
        "PartiQLDelete",
        "BatchGetItem",
        "GetItem",
        "PutItem",
        "UpdateItem",
        "DescribeTable",
        "DescribeContinuousBackups",
    ]
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [f"dynamodb:{action}" for action in tables],
                "Resource": f"arn:{partition}:dynamodb:*:*:table/*",
            },
            {
                "Effect": "Allow",
                "Action": ["s3:GetObject", "s3:PutObject"],
                "Resource": f"arn:{partition}:s3:::*/*",
            },
        ],
    }


def _make_log_group(session: boto3.Session, region: str, name: str) -> str:
    client = session.client("logs", region_name=region)
    try:
        client.create_log_group(logGroupName=name)
    except client.exceptions.ResourceAlreadyExistsException:
        return "there, its retention is left as it is"
    return "made"


def _make_job(session: boto3.Session, region: str, bucket: str, role_arn: str, worker_type: str, workers: int) -> str:
    client = session.client("glue", region_name=region)
    definition: dict[str, Any] = {
        "Role": role_arn,
        "Command": {
            "Name": "glueetl",
            "ScriptLocation": f"s3://{bucket}/{_script_key()}",
            "PythonVersion": "3",
        },
        "DefaultArguments": {"--job-language": "python", "--TempDir": f"s3://{bucket}/{layout.TEMP}/"},
        "ExecutionProperty": {"MaxConcurrentRuns": MAX_CONCURRENT_RUNS},
        "GlueVersion": GLUE_VERSION,
        "WorkerType": worker_type,
        "NumberOfWorkers": workers,
        "Timeout": TIMEOUT_MINUTES,
        # A resumed job goes on behind its checkpoints; a blind retry by Glue would hide what went wrong.
        "MaxRetries": 0,
    }
    try:
        client.get_job(JobName=JOB_NAME)
    except client.exceptions.EntityNotFoundException:
        client.create_job(Name=JOB_NAME, **definition)
        return "made"
    client.update_job(JobName=JOB_NAME, JobUpdate=definition)
    return "brought up to date"
