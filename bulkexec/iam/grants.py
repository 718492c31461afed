"""The one statement of permissions: each API action, who needs it, on what, for which commands and why.

Policy documents (`iam/*.json`, `bulkexec iam show`), the roles that `bootstrap` makes, the checks of `doctor` and the
README's section are all made from it. Actions are IAM's, which are not always the names of the API's operations:
HeadObject is `s3:GetObject`, BatchExecuteStatement is `dynamodb:PartiQL…`. No row has a wildcard for its action.
Source: https://docs.aws.amazon.com/service-authorization/latest/reference/
"""

from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal["bootstrap", "caller", "job", "job-read-only"]
ROLES: tuple[Role, ...] = get_args(Role)

Resource = Literal[
    "table",
    "index",
    "control table",
    "bucket",
    "script",
    "wheel",
    "job folder",
    "result",
    "Glue job",
    "job role",
    "log group",
    "log stream",
    "anything",
]
"""What an action is allowed on. "anything" is for actions that IAM knows no resource for."""

_JOBS: tuple[Role, ...] = ("job", "job-read-only")
_WORKERS: tuple[Role, ...] = ("caller", *_JOBS)
_WRITERS: tuple[Role, ...] = ("caller", "job")
_BOOT: tuple[Role, ...] = ("bootstrap",)
_CALL: tuple[Role, ...] = ("caller",)

_READING = ("count", "find", "delete", "edit", "copy", "move")
_MUTATING = ("delete", "edit", "copy", "move")
_ALL = (*_READING, "resume", "attach", "rate")


@dataclass(frozen=True)
class Grant:
    """One row: `roles` may do `action` on each of `on`, which `commands` need, and `why` (a clause, no full stop).

    `passed_to` is the only service a role may be handed to. `without` says what happens where the action is missing;
    empty: the command is refused or the run fails.
    """

    action: str
    on: tuple[Resource, ...]
    roles: tuple[Role, ...]
    commands: tuple[str, ...]
    why: str
    passed_to: str = ""
    without: str = ""

    @property
    def service(self) -> str:
        """The prefix of the action."""
        return self.action.partition(":")[0]


def _tables() -> tuple[Grant, ...]:
    """The user's tables. They are read and written by the caller in the local runtime, by the job's role in Glue."""
    read: tuple[Resource, ...] = ("table", "index")
    table: tuple[Resource, ...] = ("table",)
    return (
        Grant("dynamodb:DescribeTable", table, _WORKERS, _ALL, "keys, indexes, size and state of the table"),
        Grant(
            "dynamodb:DescribeContinuousBackups",
            table,
            _WRITERS,
            _MUTATING,
            "nothing is changed unless point-in-time recovery is on; client and job both look",
        ),
        Grant("dynamodb:Scan", read, _WORKERS, _READING, "reads the segments of the table, or of an index"),
        Grant("dynamodb:Query", read, _WORKERS, _READING, "reads one item collection when the filter pins its key"),
        Grant(
            "dynamodb:BatchGetItem",
            table,
            _WORKERS,
            _READING,
            "fetches items by key: those of an index's entries or of a list, and those whose write was not answered",
        ),
        Grant("dynamodb:BatchWriteItem", table, _WRITERS, _MUTATING, "puts and deletes that need no condition"),
        Grant("dynamodb:PartiQLDelete", table, _WRITERS, ("delete", "move"), "deletes under the filter, in batches"),
        Grant("dynamodb:PartiQLUpdate", table, _WRITERS, ("edit",), "updates under the filter, in batches"),
        Grant("dynamodb:PartiQLInsert", table, _WRITERS, ("copy", "move"), "puts of items not yet there, in batches"),
        Grant(
            "dynamodb:DeleteItem", table, _WRITERS, ("delete", "move"), "deletes where PartiQL cannot say the filter"
        ),
        Grant("dynamodb:UpdateItem", table, _WRITERS, ("edit",), "updates where PartiQL cannot say the change"),
        Grant("dynamodb:PutItem", table, _WRITERS, ("copy", "move"), "puts where PartiQL cannot say the condition"),
    )


def _records() -> tuple[Grant, ...]:
    """The control table."""
    control: tuple[Resource, ...] = ("control table",)
    return (
        Grant("dynamodb:GetItem", control, _WORKERS, _ALL, "reads a job's record, its cancel mark and its rates"),
        Grant("dynamodb:Query", control, _WORKERS, _ALL, "reads a job's checkpoints: progress, report, resume"),
        Grant("dynamodb:PutItem", control, _WORKERS, _ALL, "writes a job's record and its checkpoints"),
        Grant("dynamodb:UpdateItem", control, _WORKERS, _ALL, "leases of the rate, the table's lock, cancel"),
        Grant("dynamodb:DeleteItem", control, _WRITERS, _MUTATING, "gives the table's lock back"),
        Grant("dynamodb:DescribeTable", control, _CALL, ("resume", "attach", "rate"), "tells a job that is unknown"),
    )


def _objects() -> tuple[Grant, ...]:
    """The bucket."""
    return (
        Grant(
            "s3:ListBucket",
            ("bucket",),
            _CALL,
            _ALL,
            "without it S3 answers 403 where an object is missing, so no report could be told from a refusal",
        ),
        Grant("s3:GetObject", ("wheel",), _CALL, _READING, "whether this version's code is there already"),
        Grant("s3:PutObject", ("wheel",), _CALL, _READING, "uploads the code that the job runs"),
        Grant("s3:PutObject", ("job folder",), _WORKERS, _READING, "plan, report, lists of skipped and failed keys"),
        Grant("s3:GetObject", ("job folder",), _WORKERS, _ALL, "plan and report"),
        Grant("s3:PutObject", ("result",), _WORKERS, ("find",), "writes matches and their manifest"),
        Grant("s3:GetObject", ("result",), _WORKERS, ("find",), "reads the first matches back for the report"),
        Grant("s3:GetObject", ("script",), _JOBS, _READING, "Glue fetches the job's script with the job's role"),
        Grant("s3:GetObject", ("wheel",), _JOBS, _READING, "Glue installs the code with the job's role"),
    )


def _runs() -> tuple[Grant, ...]:
    """The Glue job and its log."""
    job: tuple[Resource, ...] = ("Glue job",)
    return (
        Grant("glue:GetJob", job, _CALL, _ALL, "finds the deployment: bucket, workers, version"),
        Grant("glue:StartJobRun", job, _CALL, (*_READING, "resume"), "starts the run"),
        Grant("glue:GetJobRun", job, _CALL, (*_READING, "resume", "attach"), "follows the run to its end"),
        Grant("glue:GetJobRuns", job, _CALL, (*_READING, "attach"), "finds the run after a start with no answer"),
        Grant("glue:BatchStopJobRun", job, _CALL, _READING, "a second Ctrl-C stops the run"),
        Grant(
            "logs:StartLiveTail",
            ("log group",),
            _CALL,
            (*_READING, "resume", "attach"),
            "shows the job's log while it runs",
            without="the log group is read instead, and it is said",
        ),
        Grant(
            "logs:FilterLogEvents",
            ("log group",),
            _CALL,
            (*_READING, "resume", "attach"),
            "fills what Live Tail left out",
            without="the log is not shown, and it is said",
        ),
        Grant("logs:CreateLogStream", ("log stream",), _JOBS, _READING, "Glue opens the run's log with the job's role"),
        Grant("logs:PutLogEvents", ("log stream",), _JOBS, _READING, "Glue writes the run's log with the job's role"),
    )


def _facts() -> tuple[Grant, ...]:
    """What is asked of the account for rates and prices. IAM knows no resource for these."""
    anything: tuple[Resource, ...] = ("anything",)
    default = "a documented default is taken, and the plan warns"
    return (
        Grant(
            "pricing:GetProducts",
            anything,
            _CALL,
            _READING,
            "the estimate in dollars",
            without="list prices of us-east-1 are shown, and the plan says so",
        ),
        Grant(
            "application-autoscaling:DescribeScalableTargets",
            anything,
            _CALL,
            _READING,
            "the most that auto scaling can give the table",
            without=default,
        ),
        Grant(
            "servicequotas:GetServiceQuota",
            anything,
            _CALL,
            _READING,
            "the account's throughput quota",
            without=default,
        ),
        Grant(
            "servicequotas:GetAWSDefaultServiceQuota",
            anything,
            _CALL,
            _READING,
            "the same where it was never raised",
            without=default,
        ),
    )


def _making() -> tuple[Grant, ...]:
    """What bootstrap makes."""
    bucket: tuple[Resource, ...] = ("bucket",)
    control: tuple[Resource, ...] = ("control table",)
    role: tuple[Resource, ...] = ("job role",)
    job: tuple[Resource, ...] = ("Glue job",)
    boot = ("bootstrap",)
    return (
        Grant("s3:ListBucket", bucket, _BOOT, boot, "whether the bucket is there"),
        Grant("s3:CreateBucket", bucket, _BOOT, boot, "makes the bucket, unless --bucket names one"),
        Grant("s3:PutBucketPublicAccessBlock", bucket, _BOOT, boot, "nothing in the bucket can be made public"),
        Grant("s3:PutObject", ("script",), _BOOT, boot, "uploads the job's script"),
        Grant("dynamodb:CreateTable", control, _BOOT, boot, "makes the control table"),
        Grant("dynamodb:DescribeTable", control, _BOOT, boot, "waits until the control table is there"),
        Grant("dynamodb:UpdateTimeToLive", control, _BOOT, boot, "records of jobs go by themselves after 30 days"),
        Grant("iam:GetRole", role, _BOOT, boot, "whether the job's role is there"),
        Grant("iam:CreateRole", role, _BOOT, boot, "makes the job's role"),
        Grant("iam:PutRolePolicy", role, _BOOT, boot, "gives the job's role its permissions"),
        Grant("iam:PassRole", role, _BOOT, boot, "hands the role to the Glue job", passed_to="glue.amazonaws.com"),
        Grant("logs:CreateLogGroup", ("log group",), _BOOT, boot, "makes Glue's log groups where they are missing"),
        Grant("glue:GetJob", job, _BOOT, boot, "whether the Glue job is there, and of which version"),
        Grant("glue:CreateJob", job, _BOOT, boot, "makes the Glue job"),
        Grant("glue:UpdateJob", job, _BOOT, boot, "brings the Glue job up to date"),
    )


GRANTS: tuple[Grant, ...] = (*_tables(), *_records(), *_objects(), *_runs(), *_facts(), *_making())
"""The table."""

NEEDS_NO_PERMISSION = {"sts:GetCallerIdentity": "always allowed; says who the caller is, and in which account"}
"""What is called and needs no grant (API reference of STS)."""
