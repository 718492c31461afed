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
    "temporary file",
    "Glue job",
    "job role",
    "target role",
    "principal",
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
        Grant(
            "sts:AssumeRole",
            ("target role",),
            _WORKERS,
            ("copy", "move"),
            "credentials for a target in another account; only where --target-role names roles",
        ),
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
        Grant("s3:ListBucket", ("bucket",), _JOBS, _READING, "finds the files of --keys-from"),
        Grant("s3:GetObject", ("wheel",), _CALL, _READING, "whether this version's code is there already"),
        Grant("s3:PutObject", ("wheel",), _CALL, _READING, "uploads the code that the job runs"),
        Grant("s3:PutObject", ("job folder",), _WORKERS, _READING, "plan, report, lists of skipped and failed keys"),
        Grant("s3:GetObject", ("job folder",), _WORKERS, _ALL, "plan and report"),
        Grant("s3:PutObject", ("result",), _WORKERS, ("find",), "writes matches and their manifest"),
        Grant(
            "s3:GetObject",
            ("result",),
            _WORKERS,
            ("find",),
            "reads matches back: the first for the report, all for --keys-from",
        ),
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
        Grant(
            "logs:CreateLogGroup",
            ("log group",),
            _JOBS,
            _READING,
            "Glue makes its log groups where bootstrap did not",
            without="nothing, where the log groups are there",
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


def _looks() -> tuple[Grant, ...]:
    """What `doctor` looks at beyond what runs need. All of it is reading, and what is refused is only not looked at."""
    bucket: tuple[Resource, ...] = ("bucket",)

    def look(action: str, on: tuple[Resource, ...], why: str) -> Grant:
        return Grant(action, on, _CALL, ("doctor",), why, without="doctor says that it may not look")

    return (
        look("iam:SimulatePrincipalPolicy", ("principal",), "whether caller and job's role have these permissions"),
        look("iam:GetRole", ("principal",), "whom the job's role trusts, and which role the caller is"),
        look("iam:GetRolePolicy", ("job role",), "whether the job's role has what this version needs"),
        look("dynamodb:DescribeTimeToLive", ("control table",), "whether records of jobs go by themselves"),
        look("logs:DescribeLogGroups", ("anything",), "whether Glue's log groups are there"),
        look("s3:GetObject", ("script",), "whether the job's script is there"),
        look("s3:GetBucketPublicAccessBlock", bucket, "whether the bucket can be made public"),
        look("s3:GetEncryptionConfiguration", bucket, "how the bucket is encrypted"),
        look("s3:GetBucketPolicy", bucket, "whether the bucket takes requests over TLS only"),
        look("s3:GetLifecycleConfiguration", bucket, "whether temporary files go by themselves"),
    )


def _making() -> tuple[Grant, ...]:
    """What bootstrap makes and mends, and teardown removes."""
    bucket: tuple[Resource, ...] = ("bucket",)
    code: tuple[Resource, ...] = ("script", "wheel")
    control: tuple[Resource, ...] = ("control table",)
    group: tuple[Resource, ...] = ("log group",)
    job: tuple[Resource, ...] = ("Glue job",)

    def boot(action: str, on: tuple[Resource, ...], why: str, **more: str) -> Grant:
        return Grant(action, on, _BOOT, ("bootstrap",), why, **more)

    return (
        boot("s3:ListBucket", bucket, "whether the bucket is there, and the code in it"),
        boot("s3:CreateBucket", bucket, "makes the bucket, unless --bucket names one"),
        boot("s3:PutBucketTagging", bucket, "marks a bucket that bootstrap made"),
        boot("s3:GetBucketTagging", bucket, "whether bootstrap made the bucket"),
        boot("s3:GetBucketPublicAccessBlock", bucket, "whether the bucket can be made public"),
        boot("s3:PutBucketPublicAccessBlock", bucket, "nothing in the bucket can be made public"),
        boot("s3:GetEncryptionConfiguration", bucket, "how the bucket is encrypted"),
        boot("s3:PutEncryptionConfiguration", bucket, "encrypts the bucket"),
        boot("s3:GetBucketPolicy", bucket, "what the bucket's policy says, so that the rest of it is kept"),
        boot("s3:PutBucketPolicy", bucket, "the bucket takes requests over TLS only"),
        boot("s3:GetLifecycleConfiguration", bucket, "which lifecycle rules there are, so that the others are kept"),
        boot("s3:PutLifecycleConfiguration", bucket, "temporary files and files of old jobs go by themselves"),
        boot("s3:GetObject", code, "whether this version's code is there already"),
        boot("s3:PutObject", code, "uploads the job's script and the code it runs"),
        boot("dynamodb:DescribeTable", control, "whether the control table is there"),
        boot("dynamodb:CreateTable", control, "makes the control table"),
        boot("dynamodb:TagResource", control, "marks the control table as made by bootstrap"),
        boot("dynamodb:DescribeTimeToLive", control, "whether records of jobs go by themselves"),
        boot("dynamodb:UpdateTimeToLive", control, "records of jobs go by themselves after 30 days"),
        *_role(),
        boot("logs:DescribeLogGroups", ("anything",), "whether Glue's log groups are there, and their retention"),
        boot("logs:CreateLogGroup", group, "makes Glue's log groups where they are missing"),
        boot("glue:GetJob", job, "whether the Glue job is there, and of which version"),
        boot("glue:CreateJob", job, "makes the Glue job"),
        boot("glue:TagResource", job, "marks the Glue job as made by bootstrap"),
        boot("glue:UpdateJob", job, "brings the Glue job up to date"),
    )


def _removing() -> tuple[Grant, ...]:
    """What teardown does beyond that: it removes what bootstrap made, and keeps results."""
    bucket: tuple[Resource, ...] = ("bucket",)
    control: tuple[Resource, ...] = ("control table",)
    role: tuple[Resource, ...] = ("job role",)
    job: tuple[Resource, ...] = ("Glue job",)
    ours: tuple[Resource, ...] = ("script", "wheel", "job folder", "temporary file")

    def down(action: str, on: tuple[Resource, ...], why: str) -> Grant:
        return Grant(action, on, _BOOT, ("teardown",), why)

    return (
        down("s3:DeleteObject", ours, "removes code, and files of jobs"),
        down("s3:DeleteBucketPolicy", bucket, "takes our statement out of the policy of a bucket that stays"),
        down("s3:DeleteBucket", bucket, "removes the bucket, if bootstrap made it and no results are in it"),
        down("dynamodb:Scan", control, "nothing is removed while a process elsewhere holds the lock of a table"),
        down("dynamodb:ListTagsOfResource", control, "whether bootstrap made the control table"),
        down("dynamodb:DeleteTable", control, "removes the control table"),
        down("iam:ListRolePolicies", role, "whether another region's deployment uses the role"),
        down("iam:DeleteRolePolicy", role, "takes this region's permissions from the role"),
        down("iam:ListAttachedRolePolicies", role, "a role with policies cannot be removed"),
        down("iam:DetachRolePolicy", role, "the same"),
        down("iam:DeleteRole", role, "removes the role"),
        down("glue:GetJobRuns", job, "nothing is removed while a job runs"),
        down("glue:GetTags", job, "whether bootstrap made the Glue job"),
        down("glue:DeleteJob", job, "removes the Glue job"),
    )


def _role() -> tuple[Grant, ...]:
    """The job's role, as bootstrap makes it and brings it up to date (case C094)."""
    role: tuple[Resource, ...] = ("job role",)

    def boot(action: str, why: str, **more: str) -> Grant:
        return Grant(action, role, _BOOT, ("bootstrap",), why, **more)

    return (
        boot("iam:GetRole", "whether the job's role is there, and whom it trusts"),
        boot("iam:CreateRole", "makes the job's role"),
        boot("iam:TagRole", "marks the role as made by bootstrap"),
        boot("iam:UpdateAssumeRolePolicy", "mends whom the role trusts"),
        boot("iam:GetRolePolicy", "what the role is allowed"),
        boot("iam:PutRolePolicy", "allows the role what the table says, when that changed as well"),
        boot("iam:PassRole", "hands the role to the Glue job", passed_to="glue.amazonaws.com"),
    )


GRANTS: tuple[Grant, ...] = (
    *_tables(),
    *_records(),
    *_objects(),
    *_runs(),
    *_facts(),
    *_looks(),
    *_making(),
    *_removing(),
)
"""The table."""

NEEDS_NO_PERMISSION = {"sts:GetCallerIdentity": "always allowed; says who the caller is, and in which account"}
"""What is called and needs no grant (API reference of STS)."""
