"""What was asked for, made ready: planned, priced for where it runs, within what it may cost, shown and confirmed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import boto3

from bulkexec import errors, layout
from bulkexec.command import Command, load
from bulkexec.console import Terminal, confirm
from bulkexec.cost_cap import require_affordable
from bulkexec.cursor import Cursor
from bulkexec.describe import who
from bulkexec.dollars import cost_limit
from bulkexec.plan import Options, Plan
from bulkexec.plan_text import plan_rows, say_plan
from bulkexec.planning import AskedRates, Planned, make_plan, price, sampled
from bulkexec.preview import say_trial
from bulkexec.runtimes import local
from bulkexec.runtimes.assembly import THREADS
from bulkexec.runtimes.deployment import Deployment, find_deployment
from bulkexec.s3 import Location
from bulkexec.segments import total_segments
from bulkexec.selection import Filter

LOCAL_BYTES = 256 * 1024 * 1024
"""Up to this size the in-process runtime ends before a Glue job has started: about a minute at 4 MB/s."""


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line, beyond the command's own arguments.

    `sampled` says whether items may be read to estimate from.
    """

    table: str
    filter: Filter
    options: Options
    runtime: str = "auto"
    segments: int | None = None
    resume_token: str | None = None
    yes: bool = False
    rates: AskedRates = field(default_factory=AskedRates)
    max_cost_usd: float | None = None
    sampled: bool = True


@dataclass(frozen=True)
class Caller:
    """Who runs it, where it is shown and how a question is answered. `region` is the one given by --region."""

    session: boto3.Session
    terminal: Terminal
    ask: Callable[[str], str]
    region: str | None = None


@dataclass(frozen=True)
class Ready:
    """A plan, priced for where it runs: `deployment`, or None for this process. `runs_on` says it in words."""

    planned: Planned
    deployment: Deployment | None
    runs_on: str

    @property
    def plan(self) -> Plan:
        """What will run."""
        return self.planned.plan


def plan_request(caller: Caller, command: Command, request: Request, job_id: str) -> Planned:
    """The plan of what was asked for, not priced yet for where it runs. Raises `errors.Refused`."""
    options = replace(request.options, results=results_folder(request.options.results, job_id))
    planned = make_plan(
        caller.session,
        command,
        request.table,
        request.filter,
        options,
        THREADS,
        request.segments,
        request.rates,
    )
    return sampled(caller.session, planned) if request.sampled else planned


def make_ready(caller: Caller, request: Request, planned: Planned, job_id: str, cursor: Cursor | None) -> Ready:
    """The plan for where it runs. Raises `errors.Refused`."""
    runtime, why = choose_runtime(request, planned.plan, cursor)
    if runtime == "glue":
        return ready_for_glue(caller, request, planned, job_id, why)
    local.require_state_directory()
    planned = replace(planned, plan=_local_results(caller, planned.plan, job_id))
    planned = within_cost(price(planned, None), request.max_cost_usd, None)
    return Ready(planned, None, f"this process, {THREADS} threads{why}")


def ready_for_glue(caller: Caller, request: Request, planned: Planned, job_id: str, why: str) -> Ready:
    """The plan for the Glue job that is deployed."""
    if planned.plan.options.target_profile:
        raise errors.BadArgument(
            "a Glue job has no profiles", fix="give --target-role with a role that the job's role may assume"
        )
    deployment = find_deployment(caller.session, planned.plan.work.scope.table.region)
    planned = price_for(_for_glue(planned, deployment, job_id, request), deployment)
    planned = within_cost(planned, request.max_cost_usd, deployment)
    return Ready(planned, deployment, f"{deployment.describe()}{why}")


def price_for(planned: Planned, deployment: Deployment) -> Planned:
    """The plan with its rates and its estimate in Glue."""
    planned = replace(planned, slots=deployment.slots)
    return price(planned, deployment.shape, deployment.timeout_minutes * 60)


def within_cost(planned: Planned, max_cost_usd: float | None, deployment: Deployment | None) -> Planned:
    """The plan with what it may cost. Whether that is too little is asked when it was shown."""
    if max_cost_usd is None:
        return planned
    shape = None if deployment is None else deployment.shape
    work, prices = planned.plan.work, planned.prices
    limit = cost_limit(max_cost_usd, work, prices, planned.target_prices, shape)
    if limit is None:
        require_affordable(None, None, max_cost_usd)
    return replace(planned, plan=planned.plan.with_options(cost_limit=limit))


def show(caller: Caller, ready: Ready, continues: bool = False) -> None:
    """The plan, and what it would do to a sample. Raises `errors.TooExpensive` when it costs more than it may."""
    plan, planned = ready.plan, ready.planned
    rows = plan_rows(plan, who(caller.session), ready.runs_on, planned.remarks, planned.limits, continues)
    say_plan(caller.terminal, plan, rows)
    say_trial(caller.terminal, planned.trial, plan.work.scope.table.key_names, plan.options.dry_run)
    if plan.options.cost_limit is not None:
        require_affordable(plan.estimate, plan.options.cost_limit, plan.options.cost_limit.usd)


def gate(caller: Caller, plan: Plan, yes: bool) -> None:
    """Confirmation of what mutates. Raises `errors.NotConfirmed`."""
    if not plan.mutates or plan.options.dry_run or yes:
        return
    if not caller.terminal.interactive:
        raise errors.NotConfirmed(
            "this changes the table and nobody is there to confirm it", fix="add --yes", state="nothing written"
        )
    if not confirm(caller.terminal, plan.work.changed[0], caller.ask):
        raise errors.NotConfirmed("not confirmed", state="nothing written")


def in_region(session: boto3.Session, region: str) -> boto3.Session:
    """The session, or one of the same profile in the region of the table."""
    if session.region_name == region:
        return session
    profile = session.profile_name
    return boto3.Session(profile_name=None if profile == "default" else profile, region_name=region)


def results_folder(results: str, job_id: str) -> str:
    """The folder of one export below what the user named; the id has the form of DynamoDB's own exports."""
    if not results:
        return ""
    return str(Location.parse(results) / f"AWSDynamoDB/{int(time.time() * 1000):014d}-{job_id}")


def choose_runtime(request: Request, plan: Plan, cursor: Cursor | None) -> tuple[str, str]:
    """(runtime, why it was chosen)."""
    table = plan.work.scope.table
    if cursor is not None:
        return "local", "   (the resume token is of a local run)"
    if plan.work.phases and request.runtime == "glue":
        raise errors.BadArgument(
            f"{plan.command} walks one item collection in its order, which a fleet would not do sooner",
            fix="leave --runtime out",
            state="nothing written",
        )
    if request.runtime != "auto":
        return request.runtime, ""
    if plan.work.scope.pinned:
        return "local", "   (one item collection is read)"
    if table.size_bytes <= LOCAL_BYTES:
        return "local", "   (small: over before a Glue job would have started; --runtime glue to force one)"
    return "glue", "   (more than 256 MiB; --runtime local to force this process)"


def _for_glue(planned: Planned, deployment: Deployment, job_id: str, request: Request) -> Planned:
    plan = planned.plan
    results = plan.options.results
    if not results and load(plan.command).keeps_rows:
        results = results_folder(f"s3://{deployment.bucket}/{layout.RESULTS}", job_id)
    if not plan.work.keys:
        segments = total_segments(
            plan.work.scope.table.size_bytes, deployment.slots, request.segments, pinned=plan.work.scope.pinned
        )
        plan = replace(plan, segments=segments)
    return replace(planned, plan=plan.with_options(results=results))


def _local_results(caller: Caller, plan: Plan, job_id: str) -> Plan:
    """Where there is a deployment, rows go to its bucket; without one there is only the preview."""
    if plan.options.results or not load(plan.command).keeps_rows:
        return plan
    try:
        deployment = find_deployment(caller.session, plan.work.scope.table.region, stale_too=True)
    except errors.BulkexecError:
        return plan
    return plan.with_options(results=results_folder(f"s3://{deployment.bucket}/{layout.RESULTS}", job_id))
