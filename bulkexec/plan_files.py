"""A plan that is approved first and run later: written to a file by `bulkexec plan`, run by `bulkexec apply`."""

import hashlib
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from bulkexec import __version__, errors
from bulkexec.accounts import session_for
from bulkexec.approval import Approval, approve, read_approval, require_unchanged, tables_of
from bulkexec.command import Command
from bulkexec.cost_cap import require_affordable
from bulkexec.describe import describe, recovery, user_errors, who
from bulkexec.launch import Launch, start
from bulkexec.model import Table
from bulkexec.plan import Plan
from bulkexec.plan_text import plan_rows, say_plan
from bulkexec.prepare import Caller, Ready, Request, gate, make_ready, plan_request, results_folder, show
from bulkexec.pricing import fetch_prices
from bulkexec.report import Report
from bulkexec.runtimes import local
from bulkexec.runtimes.deployment import Deployment, find_deployment
from bulkexec.s3 import Location, Objects

HERE = "this process"


def write_plan(caller: Caller, command: Command, request: Request, path: Path) -> Approval:
    """Plan, show, and write to a file; nothing else is done. Raises `errors.Refused`."""
    job_id = token_hex(4)
    ready = make_ready(caller, request, plan_request(caller, command, request, job_id), job_id, None)
    show(caller, ready)
    approval = _approved(caller, ready)
    try:
        path.write_bytes(approval.to_json())
    except OSError as error:
        raise errors.BadArgument(f"{path} cannot be written: {error.strerror}", fix="give another -o") from error
    caller.terminal.say(f"Nothing was done. Run exactly this: bulkexec apply {path}")
    return approval


def _approved(caller: Caller, ready: Ready) -> Approval:
    runs_on = HERE if ready.deployment is None else ready.deployment.describe()
    planned, keys = ready.planned, _keys_hash(caller, ready.plan)
    return approve(__version__, ready.plan, runs_on, keys, planned.limits, planned.remarks)


def apply_plan(caller: Caller, path: Path, yes: bool) -> Report:
    """Run a plan that was written before, with exactly its options. Raises `errors.PlanStale` where it does not fit."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise errors.BadArgument(f"{path} cannot be read: {error.strerror}", fix="bulkexec plan … -o FILE") from error
    approval = read_approval(data, str(path), __version__)
    plan = approval.plan
    _require_same_tables(caller, plan)
    if _keys_hash(caller, plan) != approval.keys_hash:
        raise errors.PlanStale(f"{plan.work.keys} is not what it was when the plan was made", fix="plan again")
    deployment = _deployment(caller, approval)
    job_id = token_hex(4)
    plan = _with_own_results(plan, job_id)
    _show(caller, approval, plan)
    gate(caller, plan, yes)
    table, target = plan.work.scope.table, plan.work.target
    prices = fetch_prices(caller.session, table.region, table.table_class)
    there = None if target is None else fetch_prices(caller.session, target.region, target.table_class)
    return start(caller, Launch(plan, prices, job_id, deployment, None, there))


def _show(caller: Caller, approval: Approval, plan: Plan) -> None:
    runs_on = f"{approval.runs_on}   (as planned before)"
    say_plan(caller.terminal, plan, plan_rows(plan, who(caller.session), runs_on, approval.remarks, approval.limits))
    if plan.options.cost_limit is not None:
        require_affordable(plan.estimate, plan.options.cost_limit, plan.options.cost_limit.usd)


def _require_same_tables(caller: Caller, plan: Plan) -> None:
    region = plan.work.scope.table.region
    if caller.region not in (None, region):
        raise errors.PlanStale(f"the plan is for a table in {region}, not in {caller.region}", fix="plan again")
    for table in tables_of(plan):
        require_unchanged(table, _now(caller, plan, table))


def _now(caller: Caller, plan: Plan, table: Table) -> Table:
    """The table as it is; its recovery only where the plan asked for it."""
    session = session_for(caller.session, table, plan.work, plan.options)
    now = describe(session, table.arn)
    return replace(now, recovery=recovery(session, now)[0]) if table.recovery else now


def _deployment(caller: Caller, approval: Approval) -> Deployment | None:
    """Where it runs. Raises `errors.PlanStale` when that is not what was planned for."""
    if approval.runs_on == HERE:
        local.require_state_directory()
        return None
    deployment = find_deployment(caller.session, approval.plan.work.scope.table.region)
    if deployment.describe() != approval.runs_on:
        raise errors.PlanStale(
            f"the plan is for {approval.runs_on}; deployed is {deployment.describe()}", fix="plan again"
        )
    return deployment


def _with_own_results(plan: Plan, job_id: str) -> Plan:
    """Results go below the same place, in a folder of this job's own: a plan may be run more than once."""
    base, found, _ = plan.options.results.partition("/AWSDynamoDB/")
    return plan.with_options(results=results_folder(base, job_id)) if found else plan


def _keys_hash(caller: Caller, plan: Plan) -> str:
    """Of a list of keys, here or in S3. Empty without one."""
    if not plan.work.keys:
        return ""
    if plan.work.keys.startswith("s3://"):
        with user_errors(f"look at {plan.work.keys}"):
            return Objects(caller.session, plan.work.scope.table.region).fingerprint(Location.parse(plan.work.keys))
    path = Path(plan.work.keys)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    try:
        return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()
    except OSError as error:
        raise errors.BadArgument(f"{path} cannot be read: {error.strerror}", fix="plan again") from error
