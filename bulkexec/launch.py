"""The straight line of one run: plan, show the cost, confirm, run, report."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import token_hex

import boto3

from bulkexec import errors
from bulkexec.command import Command, load, restore
from bulkexec.console import Progress, Terminal, confirm, plan_rows, say_plan, say_report
from bulkexec.cost import Prices, metered_usd
from bulkexec.cursor import Cursor, decode_cursor, require_same
from bulkexec.describe import recovery, require_recovery, who
from bulkexec.model import Options, Plan, Report
from bulkexec.planning import Filter, Planned, make_plan, price
from bulkexec.pricing import fetch_prices
from bulkexec.runtimes import glue, local
from bulkexec.runtimes.assembly import THREADS
from bulkexec.runtimes.deployment import Deployment, find_deployment
from bulkexec.s3 import Location
from bulkexec.segments import total_segments
from bulkexec.signals import DrainSignals

LOCAL_BYTES = 256 * 1024 * 1024
"""Up to this size the in-process runtime ends before a Glue job has started: about a minute at 4 MB/s."""


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line, beyond the command's own arguments."""

    table: str
    filter: Filter
    options: Options
    runtime: str = "auto"
    segments: int | None = None
    resume_token: str | None = None
    yes: bool = False


@dataclass(frozen=True)
class Caller:
    """Who runs it, where it is shown and how a question is answered."""

    session: boto3.Session
    terminal: Terminal
    ask: Callable[[str], str]


@dataclass(frozen=True)
class Launch:
    """A run about to start: its plan, priced, and where it runs. `cursor` is where it goes on, None from the start."""

    plan: Plan
    prices: Prices
    job_id: str
    deployment: Deployment | None
    cursor: Cursor | None


def launch(caller: Caller, command: Command, request: Request) -> Report:
    """Run one command. Raises `errors.BulkexecError`; what ends a run that has begun is in the report instead."""
    cursor = decode_cursor(request.resume_token) if request.resume_token else None
    job_id = (cursor.job if cursor is not None else "") or token_hex(4)
    options = replace(request.options, results=results_folder(request.options.results, job_id))
    slots = THREADS
    planned = make_plan(caller.session, command, request.table, request.filter, options, slots, request.segments)
    if cursor is not None:
        require_same(cursor, planned.plan.fingerprint)
        if cursor.job:
            return resume(caller, cursor.job)
        planned = replace(planned, plan=replace(planned.plan, segments=cursor.segments))
    return _go(caller, command, request, planned, job_id, cursor)


def _go(
    caller: Caller, command: Command, request: Request, planned: Planned, job_id: str, cursor: Cursor | None
) -> Report:
    region = planned.plan.work.scope.table.region
    runtime, why = choose_runtime(request, planned.plan, cursor)
    deployment = None
    if runtime == "glue":
        deployment = find_deployment(caller.session, region)
        plan, runs_on = price(_for_glue(planned, deployment, job_id, request), deployment.shape), deployment.describe()
    else:
        planned = replace(planned, plan=_local_results(caller, planned.plan, job_id))
        plan, runs_on = price(planned, None), f"this process, {THREADS} threads"
    say_plan(caller.terminal, plan, plan_rows(plan, who(caller.session), f"{runs_on}{why}", planned.remarks))
    _gate(caller, plan, request.yes)
    begin = Launch(plan, planned.prices, job_id, deployment, cursor)
    return _run_glue(caller, begin) if deployment is not None else _run_local(caller, begin)


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
        results = results_folder(f"s3://{deployment.bucket}/results", job_id)
    segments = total_segments(
        plan.work.scope.table.size_bytes, deployment.slots, request.segments, pinned=plan.work.scope.pinned
    )
    return replace(planned, plan=replace(plan.with_options(results=results), segments=segments))


def _local_results(caller: Caller, plan: Plan, job_id: str) -> Plan:
    """Where there is a deployment, rows go to its bucket; without one there is only the preview."""
    if plan.options.results or not load(plan.command).keeps_rows:
        return plan
    try:
        deployment = find_deployment(caller.session, plan.work.scope.table.region)
    except errors.BulkexecError:
        return plan
    return plan.with_options(results=results_folder(f"s3://{deployment.bucket}/results", job_id))


def _gate(caller: Caller, plan: Plan, yes: bool) -> None:
    """Confirmation of what mutates. Raises `errors.NotConfirmed`."""
    if not plan.mutates or plan.options.dry_run or yes:
        return
    if not caller.terminal.interactive:
        raise errors.NotConfirmed(
            "this changes the table and nobody is there to confirm it", fix="add --yes", state="nothing written"
        )
    if not confirm(caller.terminal, plan.work.scope.table, caller.ask):
        raise errors.NotConfirmed("not confirmed", state="nothing written")


def _finish(caller: Caller, begin: Launch, report: Report) -> Report:
    plan = begin.plan
    metered = metered_usd(report.counts, plan.work.scope.table, begin.prices)
    estimated = plan.estimate.usd[1] if plan.estimate is not None and plan.estimate.usd is not None else None
    report = replace(report, metered_cost_usd=metered, estimated_cost_usd=estimated)
    command = restore(plan.command, plan.arguments)
    say_report(caller.terminal, plan, command, report, begin.prices)
    return report


# -- in this process ---------------------------------------------------------------------------------------------


def _run_local(caller: Caller, begin: Launch, job: local.JobFile | None = None) -> Report:
    records = tuple(begin.cursor.records()) if begin.cursor is not None else ()
    job = job or local.JobFile(begin.job_id, begin.plan, time.time(), records=records)
    checkpoints = local.FileCheckpoints(job)
    checkpoints.write(0.0)
    totals = local.Totals()
    verb = load(begin.plan.command).verb
    signals = DrainSignals(lambda count: _drain_words(caller.terminal, count, local=True))
    with signals, Progress(caller.terminal, begin.plan, job.id, verb) as progress:
        watch = local.Watch(totals, checkpoints, progress.update)
        with watch:
            report = local.run_local(begin.plan, caller.session, job.id, checkpoints, signals.draining.is_set, totals)
    return _finish(caller, begin, replace(report, duration_seconds=report.duration_seconds + job.seconds))


def _drain_words(terminal: Terminal, count: int, local: bool) -> None:
    if count == 1:
        terminal.say("Draining: finishing what is in flight. Ctrl-C again stops the job now.")
    elif local:
        terminal.say("Stopped now; what was in flight is done again by: bulkexec resume")
        raise KeyboardInterrupt
    else:
        terminal.say("Stopping the job run; waiting for STOPPED.")


# -- in Glue -----------------------------------------------------------------------------------------------------


def _run_glue(caller: Caller, begin: Launch) -> Report:
    assert begin.deployment is not None
    service = glue.GlueRuntime(caller.session, begin.deployment)
    run = service.submit(begin.plan, begin.job_id)
    return _follow(caller, begin, service, run)


def _follow(caller: Caller, begin: Launch, service: glue.GlueRuntime, run: glue.JobRun) -> Report:
    verb = load(begin.plan.command).verb
    caller.terminal.say(
        f"job {begin.job_id} is job run {run.id}; it goes on if this client ends: bulkexec attach {begin.job_id}"
    )
    signals = DrainSignals(lambda count: _drain_words(caller.terminal, count, local=False))
    with signals, Progress(caller.terminal, begin.plan, begin.job_id, verb) as progress:
        report = service.follow(begin.plan, run, signals, progress.update, caller.terminal.say)
    return _finish(caller, begin, report)


def resume(caller: Caller, job_id: str) -> Report:
    """Continue a job where its checkpoints are; attach when it still runs. Raises `errors.UnknownJob`."""
    job = local.read_job(job_id)
    if job is not None:
        begin = _again(caller, job.plan, job_id, None)
        return _run_local(caller, begin, job)
    service, plan, run = glue.open_job(caller.session, job_id)
    begin = _again(caller, plan, job_id, service.deployment)
    if service.alive(run):
        caller.terminal.say(f"job {job_id} is still running; attached to it")
        return _follow(caller, begin, service, run)
    return _follow(caller, begin, service, service.submit(plan, job_id))


def attach(caller: Caller, job_id: str) -> Report:
    """Follow a Glue job that runs, or show the report of one that has ended."""
    service, plan, run = glue.open_job(caller.session, job_id)
    prices = fetch_prices(caller.session, plan.work.scope.table.region, plan.work.scope.table.table_class)
    return _follow(caller, Launch(plan, prices, job_id, service.deployment, None), service, run)


def _again(caller: Caller, plan: Plan, job_id: str, deployment: Deployment | None) -> Launch:
    table = plan.work.scope.table
    if plan.mutates and not plan.options.dry_run:
        require_recovery(table, recovery(caller.session, table)[0])
    prices = fetch_prices(caller.session, table.region, table.table_class)
    caller.terminal.say(f"RESUME  {plan.command}  {table.name}   job {job_id}   plan {plan.id}")
    return Launch(plan, prices, job_id, deployment, None)
