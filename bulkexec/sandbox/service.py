"""The seam between the sandbox's server and the services it answers itself."""

from typing import Any, Protocol


class ServiceError(Exception):
    """An error as an AWS JSON service reports it.

    `code` is the bare exception name, e.g. `EntityNotFoundException`. `status` is the HTTP status, 400 or 500.
    `details` are further members of the error's body, e.g. `ThrottlingReasons` or `CancellationReasons`.
    """

    def __init__(self, code: str, message: str, status: int = 400, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status
        self.details = details or {}


class Service(Protocol):
    """A JSON-protocol service. Handlers run in a thread pool and may block."""

    def handle(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answers one operation, e.g. `StartJobRun`. Raises ServiceError for an answer that is an error."""
        ...
