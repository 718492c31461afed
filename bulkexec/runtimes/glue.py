"""The Glue runtime, seen from the client: upload plan and wheel, StartJobRun, follow, fetch the report.

The job goes on whatever happens to the client. State comes from GetJobRun, progress from the control table, the result
from report.json; the log is only shown.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version

import boto3
from botocore.config import Config

from bulkexec import errors, layout
from bulkexec.command import entry
from bulkexec.control import START_LOCK_SECONDS, ControlTable, Job, TakenOver
from bulkexec.cursor import Cursor
from bulkexec.describe import CLIENT_CONFIG, user_errors
from bulkexec.model import Counts, Table
from bulkexec.plan import Plan
from bulkexec.report import Report
from bulkexec.runtimes.assembly import first_failures, total
from bulkexec.runtimes.deployment import OUTPUT_LOGS, Deployment, find_deployment, require_fresh
from bulkexec.runtimes.live_tail import LogTail
from bulkexec.runtimes.narrowing import TOO_LONG, session_policy
from bulkexec.runtimes.patience import AWS_ERRORS, Patience, transient, unclear
from bulkexec.runtimes.wheel import command_wheel, own_wheel
from bulkexec.s3 import Location, Objects
from bulkexec.signals import DrainSignals

POLL_SECONDS = 1.0
PROGRESS_SHARE = 10
"""Progress is a Query over all segment records: it may take a tenth of the time, however many there are."""
START_ATTEMPTS = 4
START_PAUSE_SECONDS = 2.0
START_CONFIG = Config(connect_timeout=3, read_timeout=60, retries={"total_max_attempts": 1})
"""StartJobRun is not idempotent: after a lost answer botocore's own retry would start a second run."""
ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")


@dataclass(frozen=True)
class JobRun:
    """One Glue job run of a job."""

    id: str
    job_id: str
    number: int


class _Unclear(errors.Exhausted):
    """StartJobRun was never answered, so there may be a run or not."""


def _locked(plan: Plan) -> tuple[Table, ...]:
    """The tables that a run of the plan must have for itself."""
    return plan.work.changed if plan.mutates and not plan.options.dry_run else ()


class GlueRuntime:
    """Submits and follows jobs of one deployment."""

    def __init__(self, session: boto3.Session, deployment: Deployment) -> None:
        self._session, self.deployment = session, deployment
        self._glue = session.client("glue", region_name=deployment.region, config=CLIENT_CONFIG)
        self._starter = session.client("glue", region_name=deployment.region, config=START_CONFIG)
        self._control = ControlTable(session, deployment.region, deployment.control_table, config=CLIENT_CONFIG)
        self._objects = Objects(session, deployment.region)
        self._remarks: list[str] = []

    # -- start ---------------------------------------------------------------------------------------------------

    def submit(self, plan: Plan, job_id: str) -> JobRun:
        """Start a run of the job, new or continued.

        Raises `errors.TableLocked` while another job changes the table, or when another client has just started the
        next run of this one, and `errors.NotDeployed` when the deployment is stale. After an error the table is free
        and the job as it was before.
        """
        require_fresh(self.deployment)
        with user_errors("submit the job"):
            before = self._control.job(job_id)
            job = self._next(plan, job_id, before)
            # The record must be there before the run, which reads it; the run's id is known only after.
            self._control.put_job(job, after=0 if before is None else before.run_number)
            try:
                run_id = self._prepare_and_start(plan, job)
            except _Unclear:
                raise  # a run may be on its way: it needs record and lock
            except (errors.BulkexecError, *AWS_ERRORS):
                self._take_back(plan, job, before)
                raise
            return self._claim(JobRun(run_id, job_id, job.run_number))

    def _next(self, plan: Plan, job_id: str, before: Job | None) -> Job:
        return Job(
            job_id,
            str(self.deployment.job_folder(job_id) / "plan.json"),
            plan.work.scope.table.arn,
            plan.command,
            started=before.started if before is not None else time.time(),
            run_number=before.run_number + 1 if before is not None else 1,
            seconds=before.seconds if before is not None else 0.0,
        )

    def _prepare_and_start(self, plan: Plan, job: Job) -> str:
        for table in _locked(plan):
            self._control.lock(table.arn, job.id, job.run_number, START_LOCK_SECONDS)
        self._objects.put(self.deployment.job_folder(job.id) / "plan.json", plan.to_json())
        return self._start(plan, job.id, job.run_number)

    def _take_back(self, plan: Plan, job: Job, before: Job | None) -> None:
        """No run was started: its tables are free, and a job that had run before has its last run again."""
        for table in _locked(plan):
            self._control.unlock(table.arn, job.id, job.run_number)
        if before is not None:
            self._control.put_job(before, after=job.run_number)

    def _claim(self, run: JobRun) -> JobRun:
        """The Glue run that works on this run of the job: whichever of several came first."""
        try:
            self._control.set_run(run.job_id, run.number, run.id)
        except TakenOver:
            return self._at_work(run)
        return run

    def _at_work(self, run: JobRun) -> JobRun:
        job = self._control.job(run.job_id)
        other = job is not None and job.run_number == run.number and job.run_id
        return replace(run, id=str(other)) if other else run

    def _start(self, plan: Plan, job_id: str, number: int) -> str:
        """Start the Glue run; gives its id. A request without a clear answer is repeated only if it had no effect."""
        arguments = {
            "--job_id": job_id,
            "--run_number": str(number),
            "--bucket": self.deployment.bucket,
            "--control_table": self.deployment.control_table,
            "--region": self.deployment.region,
            "--additional-python-modules": ",".join(self._modules(plan)),
        }
        policy = session_policy(plan, self.deployment)
        self._remarks = [] if policy else [TOO_LONG]
        for attempt in range(START_ATTEMPTS):
            try:
                return self._start_once(arguments, policy)
            except AWS_ERRORS as error:
                if not transient(error):
                    raise
                time.sleep(START_PAUSE_SECONDS * (attempt + 1))
                found = self._find_run(job_id, number)
                if found:
                    return found
                last = error
        if not unclear(last):
            raise last
        raise _Unclear(
            "StartJobRun gave no answer", state=f"a run may have been started: bulkexec attach {job_id}"
        ) from last

    def _start_once(self, arguments: dict[str, str], policy: str | None) -> str:
        narrowed = {"ExecutionRoleSessionPolicy": policy} if policy else {}
        try:
            answer = self._starter.start_job_run(JobName=self.deployment.job_name, Arguments=arguments, **narrowed)
        except self._starter.exceptions.ConcurrentRunsExceededException as error:
            raise errors.Refused(
                "all concurrent runs of the Glue job are in use", fix="wait for one to end, then try again"
            ) from error
        return str(answer["JobRunId"])

    def _find_run(self, job_id: str, number: int) -> str:
        """The Glue run that was started with these arguments, or an empty string. The newest come first."""
        wanted = {("--job_id", job_id), ("--run_number", str(number))}
        for run in self._glue.get_job_runs(JobName=self.deployment.job_name, MaxResults=100)["JobRuns"]:
            if wanted <= set(run.get("Arguments", {}).items()):
                return str(run["Id"])
        return ""

    def _modules(self, plan: Plan) -> list[str]:
        """Wheels by the hash of their content, and what they need that Glue does not bring."""
        wheels = [own_wheel()]
        extra = command_wheel(entry(plan.command))
        modules = [f"msgspec=={version('msgspec')}"]
        if extra is not None:
            wheels.append(extra)
            modules += extra.requirements
        for wheel in wheels:
            place = Location(self.deployment.bucket, f"{layout.WHEELS}/{wheel.hash}/{wheel.filename}")
            if not self._objects.exists(place):
                self._objects.put(place, wheel.content)
            modules.append(str(place))
        return modules

    def alive(self, run: JobRun) -> bool:
        """Whether the run has not ended."""
        return bool(run.id) and self._state(run)[0] not in ENDED

    def _state(self, run: JobRun) -> tuple[str, str]:
        answer = self._glue.get_job_run(JobName=self.deployment.job_name, RunId=run.id)["JobRun"]
        return answer["JobRunState"], answer.get("ErrorMessage", "")

    # -- follow --------------------------------------------------------------------------------------------------

    def follow(
        self,
        plan: Plan,
        run: JobRun,
        signals: DrainSignals,
        show: Callable[[str, Counts, int], None],
        say: Callable[[str], None],
    ) -> Report:
        """Wait for the end of the run and give its report.

        The first signal sets the job's cancel mark, the second stops the run; either way this returns only when the
        run has ended. A failed run has a report too, summed from its checkpoints.

        Errors that pass are waited out. Any other one is raised and says that the job goes on. Raises
        `errors.UnknownJob` when no Glue run was ever started for this run of the job.
        """
        for remark in self._remarks:
            say(remark)
        patience, ended = Patience(_goes_on(run)), ""
        run = self._started(run, patience)
        while run.id != ended:
            arn = self.deployment.output_logs_arn
            with LogTail(self._session, self.deployment.region, OUTPUT_LOGS, arn, run.id, say):
                state, message = self._wait(run, signals, show, say)
            # A run that was started twice is worked on by one of the two; the other has ended at once.
            ended, run = run.id, patience.call("look up the job", lambda run=run: self._at_work(run))  # type: ignore[misc]
        return patience.call("read the report", lambda: self._report(plan, run, state, message))

    def _started(self, run: JobRun, patience: Patience) -> JobRun:
        run_id = run.id or patience.call("look for the job run", lambda: self._find_run(run.job_id, run.number))
        if not run_id:
            raise errors.UnknownJob(
                f"run {run.number} of job {run.job_id} was never started", fix=f"bulkexec resume {run.job_id}"
            )
        return replace(run, id=run_id)

    def _wait(
        self,
        run: JobRun,
        signals: DrainSignals,
        show: Callable[[str, Counts, int], None],
        say: Callable[[str], None],
    ) -> tuple[str, str]:
        """The final state and its message."""
        patience = Patience(_goes_on(run))
        state, message, stopper = "STARTING", "", _Stopper(self, run, signals)
        progress = _ProgressPoll(self._control, run.job_id, say)
        while True:
            with patience.trying("read the state of the job run"):
                state, message = self._state(run)
            counts, done = progress.read(now=state in ENDED)
            show(state, counts, done)
            if state in ENDED:
                return state, message
            with patience.trying("stop the job"):
                stopper.act()
            stopper.pause(max(POLL_SECONDS, patience.pause_seconds))

    def cancel(self, run: JobRun) -> None:
        """Ask the job's workers to stop at their next page boundary."""
        self._control.cancel(run.job_id, "the client was interrupted", run.number)

    def stop(self, run: JobRun) -> None:
        """Stop the run wherever it is."""
        self._glue.batch_stop_job_run(JobName=self.deployment.job_name, JobRunIds=[run.id])

    def _report(self, plan: Plan, run: JobRun, state: str, message: str) -> Report:
        place = self.deployment.job_folder(run.job_id) / f"runs/{run.number}/report.json"
        data = self._objects.get(place)
        if data is not None:
            return replace(Report.from_json(data), job_id=run.job_id)
        for table in _locked(plan):
            self._control.unlock(table.arn, run.job_id, run.number)
        return self._without_report(plan, run, state, message)

    def _without_report(self, plan: Plan, run: JobRun, state: str, message: str) -> Report:
        """What is known of a run that died: the sum of its checkpoints. No `folder`, as no report was written."""
        records = list(self._control.segments(run.job_id))
        if state == "STOPPED":
            error: errors.BulkexecError | None = None
        elif state == "SUCCEEDED":
            error = errors.ResultMissing(
                "the job run succeeded but left no report", fix=f"bulkexec resume {run.job_id}"
            )
        else:
            error = errors.JobRunFailed(
                f"Glue job run {run.id} ended {state}",
                why=message,
                # Glue's own words name neither the action nor the role.
                fix=f"give the job's role s3:GetObject there, then bulkexec resume {run.job_id}"
                if "Error downloading from S3" in message
                else f"bulkexec resume {run.job_id}",
                state="everything up to the last checkpoint is counted",
            )
        return Report(
            job_id=run.job_id,
            command=plan.command,
            table=plan.work.scope.table.name,
            status="cancelled" if error is None else "failed",
            counts=total(records),
            duration_seconds=self._control.seconds(run.job_id),
            cursor=Cursor(plan.fingerprint, plan.segments, job=run.job_id).encode(),
            results=plan.options.results or None,
            failures=first_failures(records),
            error=() if error is None else tuple(error.lines()),
        )


def _goes_on(run: JobRun) -> str:
    return f"the job goes on without this client, or has ended: bulkexec attach {run.job_id}"


class _Stopper:
    """What the signals ask for, done once each."""

    def __init__(self, runtime: GlueRuntime, run: JobRun, signals: DrainSignals) -> None:
        self._runtime, self._run, self._signals = runtime, run, signals
        self._cancelled = self._stopped = False

    def act(self) -> None:
        """Cancel after the first signal, stop after the second. What fails is done at the next call."""
        if self._signals.stopping.is_set() and not self._stopped:
            self._runtime.stop(self._run)
            self._stopped = True
        if self._signals.draining.is_set() and not self._cancelled:
            self._runtime.cancel(self._run)
            self._cancelled = True

    def pause(self, seconds: float) -> None:
        """Wait, but not past the next signal."""
        if not self._signals.draining.is_set():
            self._signals.draining.wait(seconds)
        elif not self._signals.stopping.is_set():
            self._signals.stopping.wait(seconds / 2)
        else:
            time.sleep(seconds / 2)


class _ProgressPoll:
    """The job's progress, read as often as its cost allows. It is only shown, so no error of it ends anything."""

    def __init__(self, control: ControlTable, job_id: str, say: Callable[[str], None]) -> None:
        self._control, self._job_id = control, job_id
        self._patience = Patience("", say)
        self._last, self._due = (Counts(), 0), 0.0

    def read(self, now: bool) -> tuple[Counts, int]:
        """(counts, segments done), at most one interval old; the last known ones while they cannot be read."""
        begun = time.monotonic()
        if now or begun >= self._due:
            with self._patience.trying("progress cannot be read"):
                self._last = self._control.progress(self._job_id)
            ended = time.monotonic()
            self._due = ended + max(POLL_SECONDS, PROGRESS_SHARE * (ended - begun), self._patience.pause_seconds)
        return self._last


JOB_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def open_job(session: boto3.Session, job_id: str) -> tuple[GlueRuntime, Plan, JobRun]:
    """A job by its id. Its run has no id when none was ever started. Raises `errors.UnknownJob`."""
    if not JOB_ID.fullmatch(job_id):
        raise errors.UnknownJob(f"{job_id[:40]!r} is not the id of a job")
    try:
        # A job that runs can be followed, slowed and stopped after an upgrade of the client; only a start needs more.
        deployment = find_deployment(session, session.region_name, stale_too=True)
    except errors.NotDeployed as error:
        raise _nowhere(job_id, error.message) from error
    runtime = GlueRuntime(session, deployment)
    with user_errors(f"look up job {job_id}"):
        if not runtime._control.exists():
            raise _nowhere(job_id, f"there is no control table {deployment.control_table} in {deployment.region}")
        job = runtime._control.job(job_id)
        data = runtime._objects.get(deployment.job_folder(job_id) / "plan.json") if job is not None else None
    if job is None or data is None:
        raise errors.UnknownJob(f"there is no job {job_id} here or in {deployment.region}", fix="check --region")
    return runtime, Plan.from_json(data), JobRun(job.run_id, job_id, job.run_number)


def _nowhere(job_id: str, why: str) -> errors.UnknownJob:
    return errors.UnknownJob(f"there is no job {job_id} here, and {why}", fix="check --region and --profile")
