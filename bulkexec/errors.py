"""Every error a user can meet. One stable code each; `docs/errors.md` lists them.

BulkexecError                 exit code 1 unless a subclass says otherwise
├── Refused                   exit code 2: nothing was done
│   ├── BadArgument           BX100  an option is missing, malformed or contradicts another
│   ├── TableMissing          BX101  no such table in this account and region
│   ├── NoFilter              BX102  a mutating command without --where and without --all
│   ├── BadFilter             BX103  the filter cannot be parsed or pushed down
│   ├── RecoveryOff           BX104  point-in-time recovery is off
│   ├── NotConfirmed          BX105  the table's name was not typed and --yes was not given
│   ├── NoCredentials         BX106  no AWS credentials, or expired ones
│   ├── Unreachable           BX107  the endpoint does not answer
│   ├── TableLocked           BX108  another mutating job holds the table
│   ├── ResultsUnusable       BX109  --results cannot be written
│   ├── NotDeployed           BX110  bootstrap has not been run here, or is stale
│   ├── BadToken              BX111  a resume token of another operation, table or filter
│   ├── UnknownJob            BX112  no record of that job
│   ├── TableUnusable         BX113  the table exists but is not ACTIVE, or is not the one it was
│   ├── JobRunning            BX114  another process runs the job
│   ├── CreatedAtFieldNotDeclared BX115  --as-of without a declared created_at_field
│   ├── TooExpensive          BX116  the run costs more than --max-cost, or nobody can say what it costs
│   └── PlanStale             BX117  a plan made earlier does not fit its table or this version any more
├── AccessDenied              BX301  IAM refused an action
├── RequestRejected           BX302  the service refused a request as invalid
├── Exhausted                 BX303  throttling or server errors outlasted every retry
├── JobRunFailed              BX304  the Glue job run ended in anything but SUCCEEDED
├── ResultMissing             BX305  the job run succeeded but left no report
├── Detached                  BX306  the client can no longer follow a job that goes on
├── StateUnwritable           BX307  the file of a local job can no longer be written
└── TooManyFailures           BX308  more items failed than --max-failures allows
"""

from typing import Any, ClassVar


class BulkexecError(Exception):
    """What went wrong, why, how to mend it and what state things are in.

    `message` is one sentence; `why`, `fix` and `state` are optional further lines. `job_id` is the job it is about,
    once there is one.
    """

    code: ClassVar[str] = "BX000"
    exit_code: ClassVar[int] = 1
    cursor: str | None = None
    """Where a mass operation that this error ended goes on."""
    result: Any = None
    """What that operation acknowledged before, a `results.MassOpResult`; both are set by `table.Table` alone."""

    def __init__(self, message: str, *, why: str = "", fix: str = "", state: str = "") -> None:
        super().__init__(message)
        self.message, self.why, self.fix, self.state = message, why, fix, state
        self.job_id = ""

    def lines(self) -> list[str]:
        """The error as people read it (see docs/errors.md)."""
        rows = [f"error {self.code}: {self.message}"]
        details = (("why", self.why), ("fix", self.fix), ("state", self.state))
        return rows + [f"  {name:<6} {text}" for name, text in details if text]


class Refused(BulkexecError):
    """Nothing was done."""

    exit_code = 2


class BadArgument(Refused):
    """An option is missing, malformed or contradicts another."""

    code = "BX100"


class TableMissing(Refused):
    """No such table in this account and region."""

    code = "BX101"


class NoFilter(Refused):
    """A mutating command without a filter and without --all."""

    code = "BX102"


class BadFilter(Refused):
    """The filter cannot be parsed or cannot be pushed down to DynamoDB."""

    code = "BX103"


class RecoveryOff(Refused):
    """Point-in-time recovery is off, so a wrong write could not be undone."""

    code = "BX104"


class NotConfirmed(Refused):
    """The table's name was not typed and --yes was not given."""

    code = "BX105"


class NoCredentials(Refused):
    """No AWS credentials, or expired ones."""

    code = "BX106"


class Unreachable(Refused):
    """The endpoint does not answer."""

    code = "BX107"


class TableLocked(Refused):
    """Another mutating job holds the table: `holder`, where that is known."""

    code = "BX108"
    holder = ""


class ResultsUnusable(Refused):
    """The place for results cannot be written."""

    code = "BX109"


class NotDeployed(Refused):
    """The Glue job, bucket or control table is missing, or of another version."""

    code = "BX110"


class BadToken(Refused):
    """The resume token does not belong to this operation, table, filter or options."""

    code = "BX111"


class UnknownJob(Refused):
    """There is no record of that job."""

    code = "BX112"


class TableUnusable(Refused):
    """The table exists but cannot be worked on in its present state, or is not the table it was."""

    code = "BX113"


class JobRunning(Refused):
    """Another process runs the job."""

    code = "BX114"


class CreatedAtFieldNotDeclared(Refused):
    """`as_of` says nothing while it is not known which attribute tells when an item was created."""

    code = "BX115"


class TooExpensive(Refused):
    """The run costs more than `--max-cost`, or a price that is needed to say so is not known."""

    code = "BX116"


class PlanStale(Refused):
    """A plan that was made earlier does not fit its table, or this version of bulkexec, any more."""

    code = "BX117"


class AccessDenied(BulkexecError):
    """IAM refused an action; the message names action and resource."""

    code = "BX301"


class RequestRejected(BulkexecError):
    """The service refused a request as invalid."""

    code = "BX302"


class Exhausted(BulkexecError):
    """Throttling or server errors outlasted every retry."""

    code = "BX303"


class JobRunFailed(BulkexecError):
    """The Glue job run ended in anything but SUCCEEDED."""

    code = "BX304"


class ResultMissing(BulkexecError):
    """The job run succeeded but left no report."""

    code = "BX305"


class Detached(BulkexecError):
    """The client can no longer follow a job, which goes on without it."""

    code = "BX306"


class StateUnwritable(BulkexecError):
    """The file of a local job can no longer be written."""

    code = "BX307"


class TooManyFailures(BulkexecError):
    """More items failed than `--max-failures` allows."""

    code = "BX308"
