"""AWS Glue in the sandbox: jobs, and job runs that are real Spark processes.

Two arguments of a run are the sandbox's own and do not reach the script: `--sandbox-timeout-seconds` (a Timeout finer
than minutes) and `--sandbox-lines-per-event` (how many lines of output make one log event; 0, the default, is all that
came together, as Glue's log agent does it).
"""

import secrets
import threading
import time
from typing import Any

from bulkexec.sandbox.glue_request import (
    Request,
    capacity,
    check,
    check_capacity,
    check_job,
    check_session_policy,
    invalid,
    not_found,
    page,
)
from bulkexec.sandbox.glue_run import JobRun, RunSettings
from bulkexec.sandbox.glue_stage import Clients
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import ServiceError

Response = dict[str, Any]

DEFAULT_TIMEOUT_MINUTES = 480
DEFAULT_GLUE_VERSION = "5.1"
TIMEOUT_ARGUMENT = "--sandbox-timeout-seconds"
LINES_ARGUMENT = "--sandbox-lines-per-event"


class GlueService:
    """Jobs and their runs. `endpoint` is the sandbox's own, where runs find everything. Thread-safe."""

    def __init__(self, options: SandboxOptions, endpoint: str) -> None:
        self._options, self._clients = options, Clients(endpoint, options.region)
        self._lock = threading.RLock()
        self._jobs: dict[str, Request] = {}
        self._job_ids: dict[str, str] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._runs: dict[str, list[JobRun]] = {}
        self._detached: list[JobRun] = []
        self._operations = {
            "CreateJob": self._create_job,
            "UpdateJob": self._update_job,
            "GetJob": self._get_job,
            "GetJobs": self._get_jobs,
            "ListJobs": self._list_jobs,
            "DeleteJob": self._delete_job,
            "StartJobRun": self._start_job_run,
            "GetJobRun": self._get_job_run,
            "GetJobRuns": self._get_job_runs,
            "BatchStopJobRun": self._batch_stop_job_run,
            "TagResource": self._tag_resource,
            "GetTags": self._get_tags,
        }

    def handle(self, operation: str, request: Request) -> Response:
        """Answers one operation. Raises ServiceError for an answer that is an error."""
        answer = self._operations.get(operation)
        if answer is None:
            raise invalid(f"the sandbox's Glue has no operation {operation}")
        check(operation, request)
        with self._lock:
            return answer(request)

    def close(self) -> None:
        """Kills every process of every run."""
        with self._lock:
            runs = [*self._detached, *(run for runs in self._runs.values() for run in runs)]
        for run in runs:
            run.close()

    def _job(self, name: str) -> Request:
        if name not in self._jobs:
            raise not_found(f"Job {name} not found.")
        return self._jobs[name]

    def _create_job(self, request: Request) -> Response:
        name = request["Name"]
        if name in self._jobs:
            raise ServiceError("AlreadyExistsException", f"Job with name: '{name}' already submitted")
        check_job(request)
        self._jobs[name] = self._completed(request, time.time())
        self._job_ids[name] = f"j_{secrets.token_hex(32)}"
        self._runs[name] = []
        self._tags[self._arn(name)] = dict(request.get("Tags", {}))
        return {"Name": name}

    def _completed(self, job: Request, created: float) -> Request:
        """A job with the defaults that Glue fills in."""
        defaults = {
            "ExecutionProperty": {"MaxConcurrentRuns": 1},
            "MaxRetries": 0,
            "Timeout": DEFAULT_TIMEOUT_MINUTES,
            "GlueVersion": DEFAULT_GLUE_VERSION,
            "ExecutionClass": "STANDARD",
            "JobMode": "SCRIPT",
        }
        given = {name: value for name, value in job.items() if name != "Tags"}
        size = capacity(given, {})
        times = {"CreatedOn": created, "LastModifiedOn": time.time()}
        return {**defaults, **given, **size, "AllocatedCapacity": int(size["MaxCapacity"]), **times}

    def _update_job(self, request: Request) -> Response:
        """Replaces a definition: what JobUpdate leaves out goes back to its default."""
        name, update = request["JobName"], request["JobUpdate"]
        old = self._job(name)
        if "Role" not in update or "Command" not in update:
            raise invalid("Role and Command must be given in JobUpdate")
        check_job(update)
        self._jobs[name] = self._completed({**update, "Name": name}, old["CreatedOn"])
        return {"JobName": name}

    def _get_job(self, request: Request) -> Response:
        return {"Job": self._job(request["JobName"])}

    def _get_jobs(self, request: Request) -> Response:
        found, token = page([self._jobs[name] for name in sorted(self._jobs)], request)
        return {"Jobs": found, **token}

    def _list_jobs(self, request: Request) -> Response:
        wanted = request.get("Tags", {}).items()
        names = [name for name in sorted(self._jobs) if wanted <= self._tags[self._arn(name)].items()]
        found, token = page(names, request)
        return {"JobNames": found, **token}

    def _delete_job(self, request: Request) -> Response:
        """Deletes a definition; no error when there is none (API reference). Runs go on, and are no longer listed."""
        name = request["JobName"]
        self._jobs.pop(name, None)
        self._detached += self._runs.pop(name, [])
        self._tags.pop(self._arn(name), None)
        return {"JobName": name}

    def _start_job_run(self, request: Request) -> Response:
        name = request["JobName"]
        job = self._job(name)
        check_capacity(request)
        check_session_policy(request.get("ExecutionRoleSessionPolicy"))
        queued = request.get("JobRunQueuingEnabled", job.get("JobRunQueuingEnabled", False))
        free = len(self._active(name)) < _slots(job)
        if not free and not queued:
            raise ServiceError("ConcurrentRunsExceededException", f"Concurrent runs exceeded for {name}")
        settings = self._settings(job, request)
        record = self._record(job, request, "STARTING" if free else "WAITING")
        run = JobRun(record, settings, self._options, self._clients, self._admit)
        self._runs[name].insert(0, run)
        run.start()
        return {"JobRunId": run.id}

    def _active(self, name: str) -> list[JobRun]:
        return [run for run in self._runs.get(name, []) if not run.ended]

    def _admit(self, run: JobRun) -> bool:
        """Whether a run is among the oldest that its job's MaxConcurrentRuns lets run, or its job is gone."""
        with self._lock:
            active = self._active(run.job_name)
            return run not in active or run in active[-_slots(self._jobs[run.job_name]) :]

    def _settings(self, job: Request, request: Request) -> RunSettings:
        merged = {
            **job.get("DefaultArguments", {}),
            **request.get("Arguments", {}),
            **job.get("NonOverridableArguments", {}),
        }
        minutes: int = request["Timeout"] if "Timeout" in request else job["Timeout"]
        try:
            timeout = float(merged.pop(TIMEOUT_ARGUMENT, minutes * 60))
            lines = int(merged.pop(LINES_ARGUMENT, 0))
        except ValueError as error:
            raise invalid(f"{TIMEOUT_ARGUMENT} or {LINES_ARGUMENT}: {error}") from error
        script, job_id = job["Command"]["ScriptLocation"], self._job_ids[job["Name"]]
        policy = request.get("ExecutionRoleSessionPolicy")
        return RunSettings(job_id, script, job["Role"], merged, timeout, lines, policy)

    def _record(self, job: Request, request: Request, state: str) -> Request:
        now, size = time.time(), capacity(job, request)
        echoed = ("Arguments", "JobRunQueuingEnabled", "ExecutionRoleSessionPolicy", "SecurityConfiguration")
        return {
            "Id": f"jr_{secrets.token_hex(32)}",
            **self._attempt(job["Name"], request),
            "JobName": job["Name"],
            "JobMode": job["JobMode"],
            "StartedOn": now,
            "LastModifiedOn": now,
            "JobRunState": state,
            **{name: request[name] for name in echoed if name in request},
            "PredecessorRuns": [],
            "AllocatedCapacity": int(size["MaxCapacity"]),
            "ExecutionTime": 0,
            "Timeout": request.get("Timeout", job["Timeout"]),
            **size,
            "LogGroupName": "/aws-glue/jobs",
            "GlueVersion": job["GlueVersion"],
            "ExecutionClass": request.get("ExecutionClass", job["ExecutionClass"]),
        }

    def _attempt(self, name: str, request: Request) -> Request:
        """Attempt 0, or one more than the run that is repeated."""
        if "JobRunId" not in request:
            return {"Attempt": 0}
        previous = self._run(name, request["JobRunId"]).snapshot()
        return {"Attempt": previous["Attempt"] + 1, "PreviousRunId": previous["Id"]}

    def _run(self, name: str, run_id: str) -> JobRun:
        self._job(name)
        for run in self._runs[name]:
            if run.id == run_id:
                return run
        raise not_found(f"Job Run not found: {run_id} for job {name}.")

    def _get_job_run(self, request: Request) -> Response:
        return {"JobRun": self._run(request["JobName"], request["RunId"]).snapshot()}

    def _get_job_runs(self, request: Request) -> Response:
        self._job(request["JobName"])
        found, token = page(self._runs[request["JobName"]], request)
        return {"JobRuns": [run.snapshot() for run in found], **token}

    def _batch_stop_job_run(self, request: Request) -> Response:
        """Submits stops; what cannot be stopped is named in Errors. The runs end a little later."""
        name = request["JobName"]
        submitted, errors = [], []
        for run_id in request["JobRunIds"]:
            member: Request = {"JobName": name, "JobRunId": run_id}
            try:
                self._stop_run(name, run_id)
                submitted.append(member)
            except ServiceError as error:
                detail = {"ErrorCode": error.code, "ErrorMessage": error.message}
                errors.append({**member, "ErrorDetail": detail})
        return {"SuccessfulSubmissions": submitted, "Errors": errors}

    def _stop_run(self, name: str, run_id: str) -> None:
        run = self._run(name, run_id)
        if not run.request_stop():
            raise invalid(f"Job Run {run_id} is in the terminal state {run.state} and cannot be stopped.")

    def _arn(self, name: str) -> str:
        return f"arn:aws:glue:{self._options.region}:{self._options.account}:job/{name}"

    def _tagged(self, arn: str) -> dict[str, str]:
        if arn not in self._tags:
            raise not_found(f"Entity not found: {arn}")
        return self._tags[arn]

    def _tag_resource(self, request: Request) -> Response:
        self._tagged(request["ResourceArn"]).update(request["TagsToAdd"])
        return {}

    def _get_tags(self, request: Request) -> Response:
        return {"Tags": self._tagged(request["ResourceArn"])}


def _slots(job: Request) -> int:
    return int(job.get("ExecutionProperty", {}).get("MaxConcurrentRuns", 1))
