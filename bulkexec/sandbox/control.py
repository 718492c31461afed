"""Control of a running sandbox: faults and statistics, over its own port."""

import json
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

_direct = build_opener(ProxyHandler({}))
"""No proxy has business between us and loopback."""


class SandboxControl:
    """Client of the control endpoint. Raises urllib.error.URLError when the sandbox is gone or refuses."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.faults = FaultControl(self)

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request to /_sandbox/<path>; the answer's JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._endpoint}/_sandbox/{path}", data=data, method=method)
        with _direct.open(request, timeout=10) as answer:
            return json.load(answer)

    def health(self) -> dict[str, Any]:
        """`{"status": "ok", "pid": …}`."""
        return dict(self.call("GET", "health"))

    def stats(self) -> dict[str, Any]:
        """Requests and errors per operation, units per table and epoch second."""
        return dict(self.call("GET", "stats"))

    def calls(self) -> list[dict[str, Any]]:
        """Every principal, IAM action and resource that was asked for, whether it was `allowed`, and the `count`.

        Empty unless the sandbox was started with iam="record" or "enforce".
        """
        return list(self.call("GET", "calls"))

    def forget_calls(self) -> None:
        """Begins a new record of calls."""
        self.call("DELETE", "calls")

    def reset_stats(self) -> None:
        """Starts counting anew."""
        self.call("DELETE", "stats")

    def requests(self, operation: str, service: str = "dynamodb") -> int:
        """How many requests of one operation have come."""
        return int(self.stats()["requests"].get(f"{service}.{operation}", 0))

    def units(self, resource: str, kind: str) -> dict[int, float]:
        """Units (`read` or `write`) of a table, or of an index as `table/index/name`, by epoch second."""
        seconds = self.stats()["units"].get(resource, {}).get(kind, {})
        return {int(second): float(units) for second, units in seconds.items()}


class FaultControl:
    """The rules in force."""

    def __init__(self, control: SandboxControl) -> None:
        self._control = control

    def add(self, kind: str, **members: Any) -> int:
        """Puts a rule in force (members as in `FaultRule`); returns its number."""
        return int(self._control.call("POST", "faults", {"kind": kind, **members})["id"])

    def remove(self, number: int) -> None:
        """Takes one rule out of force."""
        self._control.call("DELETE", f"faults?id={number}")

    def clear(self) -> None:
        """Takes all rules out of force."""
        self._control.call("DELETE", "faults")

    def listed(self) -> list[dict[str, Any]]:
        """All rules, with `seen` and `fired`."""
        return list(self._control.call("GET", "faults")["faults"])
