"""The straight line of one run: plan, show the cost, confirm, run, report."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

import boto3

from bulkexec import errors
from bulkexec.command import Command, load, restore
from bulkexec.console import Progress, Terminal
from bulkexec.cursor import Cursor, decode_cursor, require_same
from bulkexec.describe import user_errors
from bulkexec.dollars import Prices, run_usd
from bulkexec.keyed import one_list
from bulkexec.plan import Plan
from bulkexec.planning import Planned
from bulkexec.prepare import (
    Caller,
    Ready,
    Request,
    gate,
    in_region,
    make_ready,
    plan_request,
    price_for,
    show,
    within_cost,
)
from bulkexec.report import Report
from bulkexec.report_text import say_report
from bulkexec.runtimes import glue, local
from bulkexec.runtimes.deployment import Deployment
from bulkexec.runtimes.table_lock import TableLock
from bulkexec.s3 import Location, Objects
from bulkexec.signals import DrainSignals


@dataclass(frozen=True)
class Launch:
    """A run about to start: its plan, priced, and where it runs. `cursor` is where it goes on, None from the start.

    `target_prices` are those of the table that puts go to, where it has others.
    """

    plan: Plan
    prices: Prices
    job_id: str
    deployment: Deployment | None
    cursor: Cursor | None
    target_prices: Prices | None = None


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
    planned = plan_request(caller, command, request, job_id)
    if cursor is not None:
        require_same(cursor, planned.plan.fingerprint)
        if cursor.job:
            return _continue_in_glue(caller, request, planned, cursor)
        planned = replace(planned, plan=replace(planned.plan, segments=cursor.segments))
    ready = make_ready(caller, request, planned, job_id, cursor)
    show(caller, ready, cursor is not None)
    gate(caller, ready.plan, request.yes)
    target_prices = ready.planned.target_prices
    return start(caller, Launch(ready.plan, planned.prices, job_id, ready.deployment, cursor, target_prices))


def start(caller: Caller, begin: Launch) -> Report:
    """Run what is planned, shown and confirmed."""
    deployment = begin.deployment
    if deployment is None:
        return _run_local(caller, begin)
    with naming(begin.job_id):
        begin = _with_keys_in_s3(caller.session, begin)
    return submit(caller, begin, glue.GlueRuntime(caller.session, deployment))


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
    planned = within_cost(price_for(replace(planned, plan=continued), deployment), request.max_cost_usd, deployment)
    ready = Ready(replace(planned, trial=()), deployment, f"{deployment.describe()}   (job {job_id} goes on)")
    show(caller, ready)
    gate(caller, ready.plan, request.yes)
    begin = Launch(ready.plan, planned.prices, job_id, deployment, None, planned.target_prices)
    return submit(caller, begin, service)


def _with_keys_in_s3(session: boto3.Session, begin: Launch) -> Launch:
    """The list of keys goes where the job's workers can read it."""
    plan, deployment = begin.plan, begin.deployment
    if not plan.work.keys or plan.work.keys.startswith("s3://") or deployment is None:
        return begin
    content, ending = one_list(Path(plan.work.keys))
    place = deployment.job_folder(begin.job_id) / f"keys{ending}"
    Objects(session, deployment.region).put(place, content)
    return replace(begin, plan=replace(plan, work=replace(plan.work, keys=str(place))))


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
    metered = run_usd(report.counts, plan.work, begin.prices, begin.target_prices)
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
            held.enter_context(
                TableLock(caller.session, table, job.id, folder, caller.terminal.say, ran_here=local.is_known)
            )
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
