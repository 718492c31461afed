"""What the sandbox has served: requests per operation, capacity units per table and second."""

import time
from collections import Counter, defaultdict
from typing import Any


class Stats:
    """Counts since the start or the last reset. Used by one event loop only."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._units: dict[str, dict[str, Counter[int]]] = {}
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self._requests, self._errors = Counter(), Counter()
        self._units = defaultdict(lambda: {"read": Counter(), "write": Counter()})

    def request(self, service: str, operation: str) -> None:
        """Counts a request."""
        self._requests[f"{service}.{operation}"] += 1

    def error(self, service: str, operation: str, status: int) -> None:
        """Counts an answer that was an error."""
        self._errors[f"{service}.{operation} {status}"] += 1

    def units(self, resource: str, kind: str, units: float) -> None:
        """Counts capacity units of a table, or of an index as `table/index/name`, in the present second."""
        self._units[resource][kind][int(time.time())] += units  # type: ignore[assignment]  # a Counter adds floats too

    def to_json(self) -> dict[str, Any]:
        """All counts; units by epoch second."""
        return {"requests": dict(self._requests), "errors": dict(self._errors), "units": self._units}
