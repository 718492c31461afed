"""What Glue accepts, by botocore's own model of the service, and the errors it answers with."""

import json
from functools import cache
from typing import Any

from bulkexec.sandbox.service import ServiceError

Request = dict[str, Any]

SESSION_POLICY_CHARACTERS = 2_048
"""Longest ExecutionRoleSessionPolicy (StartJobRun, API reference)."""

TIMEOUT_MINUTES = 10_080
"""Longest Timeout: 7 days (StartJobRun, API reference)."""

DPU = {
    "Standard": 1.0,
    "G.025X": 0.25,
    "G.1X": 1.0,
    "G.2X": 2.0,
    "G.4X": 4.0,
    "G.8X": 8.0,
    "G.12X": 12.0,
    "G.16X": 16.0,
    "R.1X": 1.0,
    "R.2X": 2.0,
    "R.4X": 4.0,
    "R.8X": 8.0,
}
"""Data processing units of each worker type (Glue developer guide, "Worker types")."""


def invalid(message: str) -> ServiceError:
    """The error for a request that is not acceptable."""
    return ServiceError("InvalidInputException", message)


def not_found(message: str) -> ServiceError:
    """The error for a job or a run that does not exist."""
    return ServiceError("EntityNotFoundException", message)


@cache
def _model() -> Any:
    import botocore.session

    return botocore.session.Session().get_service_model("glue")


def check(operation: str, request: Request) -> None:
    """Raises ServiceError InvalidInputException unless the request fits the model of the operation."""
    from botocore.validate import ParamValidator

    shape = _model().operation_model(operation).input_shape
    report = ParamValidator().validate(request, shape)
    if report.has_errors():
        raise invalid(report.generate_report())
    _check_enums(request, shape)


def _check_enums(request: Request, shape: Any) -> None:
    for name, value in request.items():
        member = shape.members[name]
        allowed = getattr(member, "enum", None)
        if allowed and value not in allowed:
            raise invalid(f"Value '{value}' at '{name}' must be one of {sorted(allowed)}")
        if member.type_name == "structure":
            _check_enums(value, member)


def check_capacity(request: Request) -> None:
    """Raises ServiceError unless WorkerType, NumberOfWorkers, MaxCapacity and Timeout go together."""
    if "MaxCapacity" in request and ("WorkerType" in request or "NumberOfWorkers" in request):
        raise invalid("Please do not set Max Capacity if using Worker Type and Number of Workers.")
    if ("WorkerType" in request) != ("NumberOfWorkers" in request):
        raise invalid("Please set both Worker Type and Number of Workers.")
    if request.get("NumberOfWorkers", 2) < 2:
        raise invalid("Number of Workers must be at least 2.")
    if not 1 <= request.get("Timeout", 1) <= TIMEOUT_MINUTES:
        raise invalid(f"Timeout must be between 1 and {TIMEOUT_MINUTES} minutes.")


def check_job(job: Request) -> None:
    """Raises ServiceError for a job that the sandbox cannot run as it says."""
    check_capacity(job)
    command = job["Command"]
    if command.get("Name") != "glueetl":
        raise invalid(f"the sandbox runs only glueetl commands, not {command.get('Name')}")
    if not str(command.get("ScriptLocation", "")).startswith("s3://"):
        raise invalid("ScriptLocation must be an s3:// location")
    if job.get("MaxRetries"):
        raise invalid("the sandbox does not retry job runs: leave out MaxRetries")


def check_session_policy(policy: str | None) -> None:
    """Raises ServiceError for an ExecutionRoleSessionPolicy that is too long or no JSON."""
    if policy is None:
        return
    if len(policy) > SESSION_POLICY_CHARACTERS:
        raise invalid(f"ExecutionRoleSessionPolicy is longer than {SESSION_POLICY_CHARACTERS} characters")
    try:
        json.loads(policy)
    except ValueError as error:
        raise invalid("ExecutionRoleSessionPolicy is not a JSON document") from error


def capacity(job: Request, request: Request) -> Request:
    """WorkerType, NumberOfWorkers and MaxCapacity (DPU) of a run: the request's, else the job's, else 10 DPU."""
    chosen = next((part for part in (request, job) if "WorkerType" in part or "MaxCapacity" in part), {})
    if "WorkerType" not in chosen:
        return {"MaxCapacity": float(chosen.get("MaxCapacity", 10.0))}
    worker_type, workers = chosen["WorkerType"], chosen["NumberOfWorkers"]
    return {
        "WorkerType": worker_type,
        "NumberOfWorkers": workers,
        "MaxCapacity": DPU[worker_type] * workers,
    }


def page(found: list[Any], request: Request, default: int = 100) -> tuple[list[Any], dict[str, str]]:
    """One page of a listing, and its NextToken member if there is more."""
    text = request.get("NextToken", "0")
    if not text.isdigit():
        raise invalid(f"NextToken {text} is not valid")
    end = int(text) + request.get("MaxResults", default)
    return found[int(text) : end], {"NextToken": str(end)} if end < len(found) else {}
