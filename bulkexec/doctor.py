"""`doctor`: everything that a job needs, looked at one by one. Changes nothing.

"failed" is what will not work, "warning" what works less well or could not be looked at, each with what to do about it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import boto3
import botocore.exceptions
import urllib3.exceptions
from botocore.config import Config

from bulkexec import errors, iam
from bulkexec.ceilings import fetch_ceilings, resolve_rate
from bulkexec.describe import denied, describe, recovery, require_recovery, table_region, user_errors
from bulkexec.model import Table
from bulkexec.runtimes import bootstrap
from bulkexec.runtimes.bucket import Bucket
from bulkexec.runtimes.deployment import ERROR_LOGS, OUTPUT_LOGS, Deployment, find_deployment
from bulkexec.runtimes.permissions import only_tables, refused, simulated_principal, without_tables
from bulkexec.runtimes.role import JobRole
from bulkexec.runtimes.steps import UNSEEN, Site, Step, open_site

State = Literal["ok", "warning", "failed"]
BOOTSTRAP = "bulkexec bootstrap"
UNREACHABLE = (
    botocore.exceptions.HTTPClientError,
    botocore.exceptions.ConnectionError,
    botocore.exceptions.EventStreamError,
    urllib3.exceptions.HTTPError,
)
LIVE_TAIL_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 1})


@dataclass(frozen=True)
class Finding:
    """What was found about one thing, and what to do about it (`fix`)."""

    check: str
    state: State
    text: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


def examine(session: boto3.Session, table: str | None) -> Iterator[Finding]:
    """All findings, in the order in which one needs the other. What cannot be looked at is a finding, not an error."""
    try:
        region = table_region(table, session.region_name) if table else None
    except errors.BulkexecError as error:
        yield Finding("table", "failed", error.message, error.fix)
        return
    try:
        site = open_site(session, region)
        arn = _caller_arn(site)
    except errors.BulkexecError as error:
        yield Finding("credentials", "failed", error.message, error.fix)
        return
    yield Finding("credentials", "ok", _who(site, arn))
    yield Finding("region", "ok", f"{site.region} (partition {site.partition})")
    deployment = None
    for finding in _guarded("Glue job", partial(_deployment, site)):
        deployment = finding if isinstance(finding, Deployment) else deployment
        yield finding if isinstance(finding, Finding) else _job(finding)
    bucket = deployment.bucket if deployment is not None else bootstrap.default_bucket(site)
    yield from _guarded("permissions", partial(_permissions, site, arn, bucket, table))
    if deployment is not None:
        yield from _parts(site, bucket)
        yield from _guarded("Live Tail", partial(_live_tail, site))
    if table is not None:
        yield from _guarded("table", partial(_table, site, table))


def _guarded(check: str, look: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    """What `look` finds. An error is a finding as well: a denial only means that it cannot be told."""
    try:
        with user_errors(f"look at the {check}"):
            yield from look()
    except errors.AccessDenied as error:
        yield Finding(check, "warning", f"cannot be checked: {error.message}", "ask for this permission to check it")
    except errors.BulkexecError as error:
        yield Finding(check, "failed", error.message, error.fix)


# -- who and what ------------------------------------------------------------------------------------------------


def _caller_arn(site: Site) -> str:
    with user_errors("find out who the caller is"):
        return str(site.client("sts").get_caller_identity()["Arn"])


def _who(site: Site, arn: str) -> str:
    profile = site.session.profile_name
    return f"{arn.split(':', 5)[-1]} in account {site.account}" + (
        "" if profile == "default" else f" (profile {profile})"
    )


def _permissions(site: Site, arn: str, bucket: str, table: str | None) -> Iterator[Finding]:
    check, shown = "permissions", f"bulkexec iam show caller{f' --tables {table}' if table else ''}"
    if arn.endswith(":root"):
        yield Finding(check, "ok", "the account's root may do everything")
        return
    wanted = iam.policy(
        "caller",
        tables=[table] if table else [],
        partition=site.partition,
        region=site.region,
        account=site.account,
        bucket=bucket,
    )
    try:
        principal = simulated_principal(site, arn)
        lacking = refused(site, principal, wanted if table else without_tables(wanted)) if principal else None
    except botocore.exceptions.ClientError as error:
        if not denied(error):
            raise
        lacking = None
    if lacking is None:
        text = "cannot be simulated for this caller (iam:SimulatePrincipalPolicy), so a run may still be refused"
        yield Finding(check, "warning", text, f"compare with {shown}")
    else:
        yield from _lacking(check, lacking, shown, "" if table else "; give --table to check those on a table")


def _lacking(check: str, lacking: Sequence[str], shown: str, more: str) -> Iterator[Finding]:
    spare = {grant.action: grant.without for grant in iam.grants_of("caller") if grant.without}
    needed = [action for action in lacking if action not in spare]
    if needed:
        yield Finding(check, "failed", f"not allowed: {', '.join(needed)}", f"attach what {shown} prints")
    for action in lacking:
        if action in spare:
            yield Finding(check, "warning", f"not allowed: {action}; {spare[action]}", f"attach what {shown} prints")
    if not lacking:
        yield Finding(check, "ok", f"all that a caller needs is allowed{more}")


# -- the deployment ----------------------------------------------------------------------------------------------


def _deployment(site: Site) -> Iterator[Deployment]:
    yield find_deployment(site.session, site.region, stale_too=True)


def _job(found: Deployment) -> Finding:
    if found.stale:
        return Finding("Glue job", "failed", f"{found.job_name} is of another version: {found.stale}", BOOTSTRAP)
    return Finding(
        "Glue job",
        "warning" if found.other_code else "ok",
        f"{found.job_name}: {found.describe()}",
        BOOTSTRAP if found.other_code else "",
    )


def _parts(site: Site, bucket: str) -> Iterator[Finding]:
    """What bootstrap would do, seen as what is wrong."""
    job = bootstrap.find_job(site)
    looks: tuple[tuple[str, State, Callable[[], list[Step]]], ...] = (
        ("role", "failed", lambda: JobRole(site, bootstrap.role_of(job), bucket).steps()[1]),
        ("bucket", "warning", lambda: Bucket(site, bucket).steps(named=bucket != bootstrap.default_bucket(site))),
        ("code", "failed", lambda: bootstrap.code_steps(site, bucket)),
        ("control table", "warning", lambda: bootstrap.table_steps(site)),
        ("log groups", "warning", lambda: [s for g in (OUTPUT_LOGS, ERROR_LOGS) for s in bootstrap.log_steps(site, g)]),
    )
    for check, drifted, look in looks:
        yield from _guarded(check, partial(_of_steps, check, drifted, look))


def _of_steps(check: str, drifted: State, look: Callable[[], list[Step]]) -> Iterator[Finding]:
    steps = look()
    unseen = [step.details.removeprefix(UNSEEN) for step in steps if step.details.startswith(UNSEEN)]
    if unseen:
        yield Finding(
            check, "warning", f"{UNSEEN}{', '.join(unseen)}", "not needed for runs; an administrator can look"
        )
    yield from (_of_step(check, drifted, step) for step in steps if not step.details.startswith(UNSEEN))


def _of_step(check: str, drifted: State, step: Step) -> Finding:
    if step.action == "make":
        missing: State = "warning" if check == "log groups" else "failed"
        return Finding(check, missing, f"{step.what} {step.name} is missing", BOOTSTRAP)
    if step.action == "mend":
        return Finding(check, drifted, f"{step.name} has changed; bootstrap would mend: {step.details}", BOOTSTRAP)
    text = f"{step.name}: {step.details}" if step.details else step.name
    return Finding(check, "warning" if step.action == "warning" else "ok", text)


def _live_tail(site: Site) -> Iterator[Finding]:
    """Opens a session and closes it at once. Without Live Tail (case C120) a run's log is polled."""
    check, instead = "Live Tail", "the log group will be read every 2 s instead"
    client = site.session.client("logs", region_name=site.region, config=LIVE_TAIL_CONFIG)
    try:
        answer = client.start_live_tail(logGroupIdentifiers=[site.arn("logs", f"log-group:{OUTPUT_LOGS}")])
        with closing(answer["responseStream"]) as stream:
            next(iter(stream), None)
    except client.exceptions.ResourceNotFoundException:
        yield Finding(check, "warning", f"there is no log group {OUTPUT_LOGS} yet", BOOTSTRAP)
    except botocore.exceptions.ClientError as error:
        code = error.response["Error"].get("Code", "")
        yield Finding(check, "warning", f"answers {code}; {instead}", "nothing has to be done")
    except UNREACHABLE as error:
        yield Finding(check, "warning", f"cannot be reached ({type(error).__name__}); {instead}", "check the network")
    else:
        yield Finding(check, "ok", f"a session on {OUTPUT_LOGS} was opened and closed")


# -- the table ---------------------------------------------------------------------------------------------------


def _table(site: Site, name: str) -> Iterator[Finding]:
    table = describe(site.session, name if name.startswith("arn:") else site.arn("dynamodb", f"table/{name}"))
    items = f"{table.item_count:,} items, " if table.item_count else ""
    keys = ", ".join(f"{key.name} ({key.type})" for key in table.keys)
    yield Finding("table", "ok", f"{table.name} is {table.status}: {items}key {keys}, {len(table.indexes)} indexes")
    yield from _guarded("role", partial(_role_on, site, table))
    yield from _guarded("recovery", partial(_recovery, site, table))
    yield from _guarded("capacity", partial(_capacity, site, table))


def _role_on(site: Site, table: Table) -> Iterator[Finding]:
    """Whether the job may work on the table; bootstrap can limit that, and so can the owner of a role."""
    job = bootstrap.find_job(site)
    if job is None:
        return
    role = job["Role"] if job["Role"].startswith("arn:") else site.arn("iam", f"role/{job['Role']}", region="")
    wanted = iam.policy("job", tables=[table.arn])
    lacking = refused(site, role, only_tables(wanted))
    if lacking:
        text = f"{role.rsplit('/', 1)[-1]} is not allowed {', '.join(lacking)} on {table.name}"
        yield Finding("role", "failed", text, f"{BOOTSTRAP} --tables with {table.name} among them")
    else:
        yield Finding("role", "ok", f"{role.rsplit('/', 1)[-1]} may work on {table.name}")


def _recovery(site: Site, table: Table) -> Iterator[Finding]:
    on, since = recovery(site.session, table)
    if on:
        yield Finding(
            "recovery", "ok", f"PITR is on: the table can be restored as it was at any time since {since[:19]}Z"
        )
        return
    try:
        require_recovery(table, on=False)
    except errors.RecoveryOff as error:
        yield Finding("recovery", "failed", f"{error.message}: what changes the table is refused", error.fix)


def _capacity(site: Site, table: Table) -> Iterator[Finding]:
    facts = fetch_ceilings(site.session, table)
    said: set[str] = set()
    for kind in ("read", "write"):
        rate = resolve_rate(None, kind, table, facts)
        yield Finding("capacity", "ok", f"{table.billing}: {rate.source}")
        for warning in rate.warnings:
            if warning not in said:
                said.add(warning)
                yield Finding("capacity", "warning", warning)
