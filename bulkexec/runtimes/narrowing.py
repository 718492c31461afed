"""The session policy of one Glue run: the job's role, narrowed to what the plan is about."""

from bulkexec import iam
from bulkexec.plan import Plan
from bulkexec.runtimes.deployment import Deployment

TOO_LONG = (
    f"the names of this plan do not fit into a session policy of {iam.SESSION_POLICY_CHARACTERS:,} characters: "
    "this run has all that the job's role is allowed"
)


def session_policy(plan: Plan, deployment: Deployment) -> str | None:
    """ExecutionRoleSessionPolicy of a run: its tables and places only, and reading only unless something is changed.

    None when it would be longer than Glue takes.
    """
    work = plan.work
    tables = dict.fromkeys((work.scope.table.arn, work.writes_to.arn))
    places = [place for place in (plan.options.results, work.keys) if place.startswith("s3://")]
    own = f"s3://{deployment.bucket}/"
    return iam.session_policy(
        list(tables),
        partition=deployment.partition,
        region=deployment.region,
        account=deployment.account,
        bucket=deployment.bucket,
        control_table=deployment.control_table,
        mutates=plan.mutates and not plan.options.dry_run,
        places=[place for place in places if not place.startswith(own)],
        target_roles=[plan.options.target_role] if plan.options.target_role else [],
    )
