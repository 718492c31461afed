"""The straight line of one run: plan, show the cost, confirm, run, report."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex

import boto3

from bulkexec import errors, layout
from bulkexec.command import Command, load, restore
from bulkexec.console import Progress, Terminal, confirm
from bulkexec.cost import Prices, metered_usd
from bulkexec.cursor import Cursor, decode_cursor, require_same
from bulkexec.describe import user_errors, who
from bulkexec.keyed import one_list
from bulkexec.model import Options, Plan
from bulkexec.plan_text import plan_rows, say_plan
from bulkexec.planning import AskedRates, Planned, make_plan, price
from bulkexec.preview import say_trial
from bulkexec.report import Report
from bulkexec.report_text import say_report
from bulkexec.runtimes import glue, local
from bulkexec.runtimes.assembly import THREADS
from bulkexec.runtimes.deployment import Deployment, find_deployment
from bulkexec.runtimes.table_lock import TableLock
from bulkexec.s3 import Location, Objects
from bulkexec.segments import total_segments
from bulkexec.selection import Filter
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
    rates: AskedRates = field(default_factory=AskedRates)


@dataclass(frozen=True)
class Caller:
    """Who runs it, where it is shown and how a question is answered. `region` is the one given by --region."""

    session: boto3.Session
    terminal: Terminal
    ask: Callable[[str], str]
    region: str | None = None


@dataclass(frozen=True)
class Launch:
    """A run about to start: its plan, priced, and where it runs. `cursor` is where it goes on, None from the start."""

    plan: Plan
    prices: Prices
    job_id: str
    deployment: Deployment | None
    cursor: Cursor | None


class StoppedNow(KeyboardInterrupt):
    """A local run that a second signal stopped; `report` is of what it had checkpointed."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


def launch(caller: Caller, command: Command, request: Request) -> Report:
    """Run one command. Raises `errors.BulkexecError`; what ends a run that has begun is in the report instead."""
    cursor = decode_cursor(request.resume_token) if request.resume_token is not None else None
    if cursor is not None:
        _require_fitting(cursor, request)
    job_id = token_hex(4)
    options = replace(request.options, results=results_folder(request.options.results, job_id))
    slots = THREADS
    planned = make_plan(
        caller.session,
        command,
        request.table,
        request.filter,
        options,
        slots,
        request.segments,
        request.rates,
    )
    if cursor is not None:
        require_same(cursor, planned.plan.fingerprint)
        if cursor.job:
            return _continue_in_glue(caller, request, planned, cursor)
        planned = replace(planned, plan=replace(planned.plan, segments=cursor.segments))
    return _go(caller, command, request, planned, job_id, cursor)


def _require_fitting(cursor: Cursor, request: Request) -> None:
    """Raises `errors.BadArgument` when the options ask for what the token rules out."""
    home, other = ("glue", "local") if cursor.job else ("local", "glue")
    if request.runtime == other:
        raise errors.BadArgument(
            f"the resume token is of a run with --runtime {home}, and cannot go on with --runtime {other}",
            fix="leave --runtime out",
        )
    if request.segments not in (None, cursor.segments):
        raise errors.BadArgument(
            f"the resume token is of a run with {cursor.segments} segments, not {request.segments}",
            fix="leave --segments out",
        )


def _continue_in_glue(caller: Caller, request: Request, planned: Planned, cursor: Cursor) -> Report:
    """Go on with a job by its token: planned, shown and confirmed like a new one, under the options given now."""
    table, asked, job_id = planned.plan.work.scope.table, request.options, job_id_of(cursor.job)
    service, plan, run = glue.open_job(in_region(caller.session, table.region), job_id)
    if service.alive(run):
        raise errors.JobRunning(f"job {job_id} is still running", fix=f"bulkexec attach {job_id}")
    if asked.results and not plan.options.results.startswith(f"{Location.parse(asked.results)}/"):
        raise errors.BadArgument(
            f"job {job_id} writes to {plan.options.results}, not to {asked.results}", fix="leave --results out"
        )
    continued = replace(planned.plan, segments=plan.segments).with_options(results=plan.options.results)
    deployment = service.deployment
    planned = price(replace(planned, plan=continued), deployment.shape, deployment.timeout_minutes * 60)
    continued = planned.plan
    runs_on = f"{service.deployment.describe()}   (job {job_id} goes on)"
    rows = plan_rows(continued, who(caller.session), runs_on, planned.remarks, planned.limits)
    say_plan(caller.terminal, continued, rows)
    _gate(caller, continued, request.yes)
    return submit(caller, Launch(continued, planned.prices, job_id, service.deployment, None), service)


def in_region(session: boto3.Session, region: str) -> boto3.Session:
    """The session, or one of the same profile in the region of the table."""
    if session.region_name == region:
        return session
    profile = session.profile_name
    return boto3.Session(profile_name=None if profile == "default" else profile, region_name=region)


def _go(
    caller: Caller, command: Command, request: Request, planned: Planned, job_id: str, cursor: Cursor | None
) -> Report:
    region = planned.plan.work.scope.table.region
    runtime, why = choose_runtime(request, planned.plan, cursor)
    deployment = None
    if runtime == "glue":
        if planned.plan.options.target_profile:
            raise errors.BadArgument(
                "a Glue job has no profiles", fix="give --target-role with a role that the job's role may assume"
            )
        deployment = find_deployment(caller.session, region)
        timeout_seconds = deployment.timeout_minutes * 60
        planned = price(_for_glue(planned, deployment, job_id, request), deployment.shape, timeout_seconds)
        runs_on = deployment.describe()
    else:
        local.require_state_directory()
        planned = replace(planned, plan=_local_results(caller, planned.plan, job_id))
        planned, runs_on = price(planned, None), f"this process, {THREADS} threads"
    plan, continues = planned.plan, cursor is not None
    rows = plan_rows(plan, who(caller.session), f"{runs_on}{why}", planned.remarks, planned.limits, continues)
    say_plan(caller.terminal, plan, rows)
    say_trial(caller.terminal, planned.trial, plan.work.scope.table.key_names, plan.options.dry_run)
    _gate(caller, plan, request.yes)
    begin = Launch(plan, planned.prices, job_id, deployment, cursor)
    if deployment is not None:
        with naming(job_id):
            begin = _with_keys_in_s3(caller.session, begin)
        return submit(caller, begin, glue.GlueRuntime(caller.session, deployment))
    return _run_local(caller, begin)


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


def _with_keys_in_s3(session: boto3.Session, begin: Launch) -> Launch:
    """The list of keys goes where the job's workers can read it."""
    plan, deployment = begin.plan, begin.deployment
    if not plan.work.keys or plan.work.keys.startswith("s3://") or deployment is None:
        return begin
    content, ending = one_list(Path(plan.work.keys))
    place = deployment.job_folder(begin.job_id) / f"keys{ending}"
    Objects(session, deployment.region).put(place, content)
    return replace(begin, plan=replace(plan, work=replace(plan.work, keys=str(place))))


def _local_results(caller: Caller, plan: Plan, job_id: str) -> Plan:
    """Where there is a deployment, rows go to its bucket; without one there is only the preview."""
    if plan.options.results or not load(plan.command).keeps_rows:
        return plan
    try:
        deployment = find_deployment(caller.session, plan.work.scope.table.region, stale_too=True)
    except errors.BulkexecError:
        return plan
    return plan.with_options(results=results_folder(f"s3://{deployment.bucket}/{layout.RESULTS}", job_id))


def _gate(caller: Caller, plan: Plan, yes: bool) -> None:
    """Confirmation of what mutates. Raises `errors.NotConfirmed`."""
    if not plan.mutates or plan.options.dry_run or yes:
        return
    if not caller.terminal.interactive:
        raise errors.NotConfirmed(
            "this changes the table and nobody is there to confirm it", fix="add --yes", state="nothing written"
        )
    if not confirm(caller.terminal, plan.work.changed[0], caller.ask):
        raise errors.NotConfirmed("not confirmed", state="nothing written")


@contextmanager
def naming(job_id: str) -> Iterator[None]:
    """Errors from here on are about this job, and say so."""
    try:
        with user_errors(f"run job {job_id}"):
            yield
    except errors.BulkexecError as error:
        error.job_id = job_id
        raise


def _finish(caller: Caller, begin: Launch, report: Report, after_token: bool = False) -> Report:
    plan = begin.plan
    metered = metered_usd(report.counts, plan.work.scope.table, begin.prices)
    estimated = plan.estimate.usd[1] if plan.estimate is not None and plan.estimate.usd is not None else None
    report = replace(report, metered_cost_usd=metered, estimated_cost_usd=estimated)
    command = restore(plan.command, plan.arguments)
    say_report(caller.terminal, plan, command, report, begin.prices, after_token=after_token)
    return report


# -- in this process ---------------------------------------------------------------------------------------------


def _run_local(caller: Caller, begin: Launch) -> Report:
    records = tuple(begin.cursor.records()) if begin.cursor is not None else ()
    job = local.JobFile(begin.job_id, begin.plan, time.time(), records=records, after_token=begin.cursor is not None)
    with naming(job.id), local.hold_job(job.id):
        return walk(caller, begin, job)


def walk(caller: Caller, begin: Launch, job: local.JobFile) -> Report:
    plan = begin.plan
    if not plan.mutates or plan.options.dry_run:
        report = _finish(caller, begin, _walk_held(caller, begin, job, []), job.after_token)
        local.keep_report(report)
        return report
    folder = local.state_directory().parent / "locks"
    with ExitStack() as held:
        locks = [
            held.enter_context(TableLock(caller.session, table, job.id, folder, caller.terminal.say))
            for table in plan.work.changed
        ]
        report = _walk_held(caller, begin, job, locks)
    report = _finish(caller, begin, report, job.after_token)
    local.keep_report(report)
    return report


def _walk_held(caller: Caller, begin: Launch, job: local.JobFile, locks: list[TableLock]) -> Report:
    """Walk with everything held that must be. Raises `StoppedNow` on a second signal."""
    checkpoints, totals = local.FileCheckpoints(job), local.Totals()
    checkpoints.write(0.0)
    # From here on the job can be resumed, so here its name is known.
    caller.terminal.say(f"job {job.id}")
    signals = DrainSignals(lambda count: _drain_words(caller.terminal, count, job.id))

    def broken() -> errors.BulkexecError | None:
        return next((lock.lost for lock in locks if lock.lost is not None), None)

    def stop() -> bool:
        return signals.draining.is_set() or broken() is not None

    began = time.monotonic()
    try:
        with signals, Progress(caller.terminal, begin.plan, job.id, load(begin.plan.command).verb) as progress:  # noqa: SIM117 - the watch writes to the progress
            with local.Watch(totals, checkpoints, progress.update):
                report = local.run_local(begin.plan, caller.session, job.id, checkpoints, stop, totals, broken=broken)
    except KeyboardInterrupt as error:
        report = local.stopped_report(begin.plan, job.id, checkpoints)
        raise StoppedNow(replace(report, duration_seconds=time.monotonic() - began + job.seconds)) from error
    return replace(report, duration_seconds=report.duration_seconds + job.seconds)


def _drain_words(terminal: Terminal, count: int, local_job: str) -> None:
    """What is said on a signal; `local_job` is empty for a job in Glue."""
    if count == 1:
        terminal.say("Draining: finishing what is in flight. Ctrl-C again stops the job now.")
    elif local_job:
        terminal.say("Stopped now; what was in flight is done again.")
        terminal.say(f"Continue: bulkexec resume {local_job}")
        raise KeyboardInterrupt
    else:
        terminal.say("Stopping the job run; waiting for STOPPED.")


# -- in Glue -----------------------------------------------------------------------------------------------------


def submit(caller: Caller, begin: Launch, service: glue.GlueRuntime) -> Report:
    # Said before anything is there that could go on alone.
    caller.terminal.say(f"job {begin.job_id}")
    return follow(caller, begin, service, lambda: service.submit(begin.plan, begin.job_id))


def follow(caller: Caller, begin: Launch, service: glue.GlueRuntime, start: Callable[[], glue.JobRun]) -> Report:
    """Start the run, or find it, and follow it to its end. A signal while it is being started cancels it after that."""
    job_id, terminal = begin.job_id, caller.terminal
    signals = DrainSignals(lambda count: _drain_words(terminal, count, ""))
    with naming(job_id), signals:
        run = start()
        if run.id:
            terminal.say(f"job {job_id} is job run {run.id}; it goes on if this client ends: bulkexec attach {job_id}")
        with _detaching(job_id), Progress(terminal, begin.plan, job_id, load(begin.plan.command).verb) as progress:
            report = service.follow(begin.plan, run, signals, progress.update, terminal.say)
    return _finish(caller, begin, report)


@contextmanager
def _detaching(job_id: str) -> Iterator[None]:
    """What goes wrong in following leaves the job as it is; that is no refusal and no end of the job."""
    try:
        with user_errors("follow the job"):
            yield
    except errors.UnknownJob:
        raise  # it was never started
    except errors.BulkexecError as error:
        raise errors.Detached(
            f"cannot follow job {job_id}: {error.message}",
            why=error.why,
            fix=f"bulkexec attach {job_id}",
            state="the job goes on without this client, or has ended",
        ) from error


def job_id_of(text: str) -> str:
    if re.fullmatch("[0-9a-f]{8}", text) is None:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise errors.UnknownJob(f"{shown!r} is not the id of a job", fix="it is 8 hexadecimal digits, e.g. 7f3a91c2")
    return text
