"""Point-in-time recovery: its state per table. Off until it is turned on; turning it off and on starts a new window."""

import time
from typing import Any

from bulkexec.sandbox.capacity import Record
from bulkexec.sandbox.emulated_dynamodb import Answer, answer, table_name, table_of
from bulkexec.sandbox.metering import Handler, Request
from bulkexec.sandbox.service import ServiceError

LONGEST_WINDOW_DAYS = 35
LATEST_LAG_SECONDS = 300
"""How far behind the present the latest restorable moment is."""


class Recovery:
    """Windows of the tables that have recovery on, as (start, days)."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}

    def describe(self, _: Handler, request: Request) -> Answer:
        """DescribeContinuousBackups."""
        return answer({"ContinuousBackupsDescription": self._description(_existing(request))})

    def update(self, _: Handler, request: Request) -> Answer:
        """UpdateContinuousBackups."""
        table = _existing(request)
        wanted = request["PointInTimeRecoverySpecification"]
        days = wanted.get("RecoveryPeriodInDays", LONGEST_WINDOW_DAYS)
        if not 1 <= days <= LONGEST_WINDOW_DAYS:
            raise ServiceError(
                "ValidationException", f"RecoveryPeriodInDays must be 1 to {LONGEST_WINDOW_DAYS}: {days}"
            )
        if not wanted["PointInTimeRecoveryEnabled"]:
            self._windows.pop(table["TableId"], None)
        else:
            start, _ = self._windows.get(table["TableId"], (time.time(), days))
            self._windows[table["TableId"]] = (start, days)
        return answer({"ContinuousBackupsDescription": self._description(table)})

    def _description(self, table: Record) -> dict[str, Any]:
        recovery: dict[str, Any] = {"PointInTimeRecoveryStatus": "DISABLED"}
        if table["TableId"] in self._windows:
            start, days = self._windows[table["TableId"]]
            recovery = {
                "PointInTimeRecoveryStatus": "ENABLED",
                "RecoveryPeriodInDays": days,
                "EarliestRestorableDateTime": max(start, time.time() - days * 86_400),
                "LatestRestorableDateTime": max(start, time.time() - LATEST_LAG_SECONDS),
            }
        return {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": recovery}


def _existing(request: Request) -> Record:
    table = table_of(request.get("TableName"))
    if table is None:
        name = table_name(request.get("TableName"))
        raise ServiceError("TableNotFoundException", f"Table not found: {name}")
    return table
