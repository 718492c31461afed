"""The Glue runtime, seen from the client: upload plan and wheel, StartJobRun, follow, fetch the report.

The job goes on whatever happens to the client. State comes from GetJobRun, progress from the control table, the result
from report.json; the log is only shown.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version

import boto3

from bulkexec import errors
from bulkexec.command import entry
from bulkexec.control import ControlTable, Job
from bulkexec.cursor import Cursor
from bulkexec.describe import user_errors
from bulkexec.model import Counts, Plan, Report
from bulkexec.runtimes.assembly import first_failures, total
from bulkexec.runtimes.deployment import OUTPUT_LOGS, Deployment, find_deployment
from bulkexec.runtimes.live_tail import LogTail
from bulkexec.runtimes.wheel import command_wheel, own_wheel
from bulkexec.s3 import Location, Objects
from bulkexec.signals import DrainSignals

POLL_SECONDS = 1.0
ENDED = ("SUCCEEDED", "FAILED", "STOPPED", "TIMEOUT", "ERROR", "EXPIRED")


@dataclass(frozen=True)
class JobRun:
    """One Glue job run of a job."""

    id: str
    job_id: str
    number: int


class GlueRuntime:
    """Submits and follows jobs of one deployment."""

    def __init__(self, session: boto3.Session, deployment: Deployment) -> None:
        self._session, self.deployment = session, deployment
        self._glue = session.client("glue", region_name=deployment.region)
        self._control = ControlTable(session, deployment.region, deployment.control_table)
        self._objects = Objects(session, deployment.region)

    def submit(self, plan: Plan, job_id: str) -> JobRun:
        """Start a run of the job, new or continued. Raises `errors.TableLocked` while another job changes the table."""
        with user_errors("submit the job"):
            before = self._control.job(job_id)
            number = before.run_number + 1 if before is not None else 1
            if plan.mutates and not plan.options.dry_run:
                self._control.lock(plan.work.scope.table.arn, job_id)
            place = self.deployment.job_folder(job_id) / "plan.json"
            self._objects.put(place, plan.to_json())
            job = Job(
                job_id,
                str(place),
                plan.work.scope.table.arn,
                plan.command,
                started=before.started if before is not None else time.time(),
                run_number=number,
                seconds=before.seconds if before is not None else 0.0,
            )
            # The record must be there before the run, which reads it; the run's id is known only after.
            self._control.put_job(job)
            run_id = self._start(plan, job_id, number)
            self._control.set_run(job_id, number, run_id)
        return JobRun(run_id, job_id, number)

    def _start(self, plan: Plan, job_id: str, number: int) -> str:
        arguments = {
            "--job_id": job_id,
            "--run_number": str(number),
            "--bucket": self.deployment.bucket,
            "--control_table": self.deployment.control_table,
            "--region": self.deployment.region,
            "--additional-python-modules": ",".join(self._modules(plan)),
        }
        try:
            answer = self._glue.start_job_run(JobName=self.deployment.job_name, Arguments=arguments)
        except self._glue.exceptions.ConcurrentRunsExceededException as error:
            raise errors.Refused(
                "all concurrent runs of the Glue job are in use", fix="wait for one to end, then try again"
            ) from error
        return str(answer["JobRunId"])

    def _modules(self, plan: Plan) -> list[str]:
        """Wheels by the hash of their content, and what they need that Glue does not bring."""
        wheels = [own_wheel()]
        extra = command_wheel(entry(plan.command))
        modules = [f"msgspec=={version('msgspec')}"]
        if extra is not None:
            wheels.append(extra)
            modules += extra.requirements
        for wheel in wheels:
            place = Location(self.deployment.bucket, f"wheels/{wheel.hash}/{wheel.filename}")
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
        """
        tail = LogTail(self._session, self.deployment.region, OUTPUT_LOGS, self.deployment.output_logs_arn, run.id, say)
        with tail:
            state, message = self._wait(run, signals, show)
        return self._report(plan, run, state, message)

    def _wait(self, run: JobRun, signals: DrainSignals, show: Callable[[str, Counts, int], None]) -> tuple[str, str]:
        cancelled = stopped = False
        while True:
            state, message = self._state(run)
            counts, done = self._control.progress(run.job_id)
            show(state, counts, done)
            if state in ENDED:
                return state, message
            if signals.draining.is_set() and not cancelled:
                self._control.cancel(run.job_id, "the client was interrupted")
                cancelled = True
            if signals.stopping.is_set() and not stopped:
                self._glue.batch_stop_job_run(JobName=self.deployment.job_name, JobRunIds=[run.id])
                stopped = True
            signals.draining.wait(POLL_SECONDS) if not cancelled else signals.stopping.wait(POLL_SECONDS / 2)

    def _report(self, plan: Plan, run: JobRun, state: str, message: str) -> Report:
        place = self.deployment.job_folder(run.job_id) / f"runs/{run.number}/report.json"
        data = self._objects.get(place)
        if data is not None:
            return replace(Report.from_json(data), job_id=run.job_id)
        job = self._control.job(run.job_id)
        if plan.mutates and job is not None:
            self._control.unlock(job.table_arn, run.job_id)
        return self._without_report(plan, run, state, message)

    def _without_report(self, plan: Plan, run: JobRun, state: str, message: str) -> Report:
        """What is known of a run that died: the sum of its checkpoints."""
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
                fix=f"bulkexec resume {run.job_id}",
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
            folder=str(self.deployment.job_folder(run.job_id)),
            failures=first_failures(records),
            error=() if error is None else tuple(error.lines()),
        )


def open_job(session: boto3.Session, job_id: str) -> tuple[GlueRuntime, Plan, JobRun]:
    """A job by its id. Raises `errors.UnknownJob`."""
    runtime = GlueRuntime(session, find_deployment(session, session.region_name))
    with user_errors(f"look up job {job_id}"):
        job = runtime._control.job(job_id)
        data = runtime._objects.get(runtime.deployment.job_folder(job_id) / "plan.json") if job is not None else None
    if job is None or data is None:
        raise errors.UnknownJob(
            f"there is no job {job_id} here or in {runtime.deployment.region}", fix="check --region"
        )
    return runtime, Plan.from_json(data), JobRun(job.run_id, job_id, job.run_number)
