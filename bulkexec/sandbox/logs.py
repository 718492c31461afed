"""CloudWatch Logs: FilterLogEvents as strict as the service, and the way a job run's output gets there."""

import base64
import json
import logging
import time
from collections.abc import Callable
from typing import Any

from bulkexec.sandbox import logs_store
from bulkexec.sandbox.logs_pattern import matcher
from bulkexec.sandbox.logs_store import LogEvent
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import ServiceError

logger = logging.getLogger(__name__)

PAGE_EVENTS = 10_000
PAGE_BYTES = 1_048_576
"""FilterLogEvents answers up to 1 MB or 10,000 events a page (API reference)."""

BATCH_EVENTS = 10_000
BATCH_BYTES = 1_048_576
EVENT_OVERHEAD_BYTES = 26
"""PutLogEvents takes up to 10,000 events, or 1,048,576 bytes counting 26 more for each event (API reference)."""

EVENT_BYTES = 32_768
"""Glue hands driver output over in events of up to 32 KB, several lines in one."""

FLUSH_SECONDS = 0.2


class LogsService:
    """The operations of CloudWatch Logs that the sandbox answers itself; the emulator has the others.

    ministack 1.5.33 never gives a nextToken and matches without regard to case. Here a page ends after 1 MB or
    10,000 events have been searched, matching or not, so that an empty page with a nextToken is met in tests.
    """

    operations = frozenset({"FilterLogEvents"})

    def __init__(self, options: SandboxOptions) -> None:
        self._options = options

    def handle(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answers FilterLogEvents. Raises ServiceError for an answer that is an error."""
        if operation not in self.operations:
            raise ServiceError("InvalidParameterException", f"the sandbox has no operation {operation}")
        return self._filter_log_events(request)

    def _filter_log_events(self, request: dict[str, Any]) -> dict[str, Any]:
        matches = matcher(request.get("filterPattern", ""))
        page: list[dict[str, Any]] = []
        token = last = None
        limit, searched_bytes = min(request.get("limit", PAGE_EVENTS), PAGE_EVENTS), 0
        for number, event in enumerate(self._candidates(request)):
            searched_bytes += len(event.message.encode()) + EVENT_OVERHEAD_BYTES
            if len(page) == limit or number == PAGE_EVENTS or (number and searched_bytes > PAGE_BYTES):
                token = last
                break
            last = _token(event)
            if matches(event.message):
                page.append(_filtered(event))
        answer: dict[str, Any] = {"events": page, "searchedLogStreams": []}
        return answer if token is None else {**answer, "nextToken": token}

    def _candidates(self, request: dict[str, Any]) -> list[LogEvent]:
        """What is left to search, oldest first."""
        group = self._group(request)
        after = _position(request.get("nextToken"))
        start = max(request.get("startTime", 0), after[0])
        end = request.get("endTime", float("inf"))
        events = logs_store.events_from(self._options, group, self._streams(group, request), start)
        return [event for event in events if event.timestamp <= end and event[:4] > after]

    def _group(self, request: dict[str, Any]) -> str:
        named = request.get("logGroupName") or request.get("logGroupIdentifier") or ""
        group: str = named.partition(":log-group:")[2].removesuffix(":*") or named
        if not logs_store.group_exists(self._options, group):
            raise ServiceError("ResourceNotFoundException", "The specified log group does not exist.")
        return group

    def _streams(self, group: str, request: dict[str, Any]) -> list[str]:
        names, prefix = request.get("logStreamNames"), request.get("logStreamNamePrefix")
        if names and prefix:
            raise ServiceError("InvalidParameterException", "logStreamNames and logStreamNamePrefix exclude each other")
        existing = logs_store.stream_names(self._options, group)
        if not set(names or ()) <= set(existing):
            raise ServiceError("ResourceNotFoundException", "The specified log stream does not exist.")
        return [name for name in existing if (name in names if names else name.startswith(prefix or ""))]


def _filtered(event: LogEvent) -> dict[str, Any]:
    return {
        "logStreamName": event.stream,
        "timestamp": event.timestamp,
        "message": event.message,
        "ingestionTime": event.ingestion_time,
        "eventId": event.event_id,
    }


def _token(event: LogEvent) -> str:
    return base64.urlsafe_b64encode(json.dumps(event[:4]).encode()).decode()


def _position(token: str | None) -> tuple[int, int, str, int]:
    if not token:
        return (-1, -1, "", -1)
    try:
        timestamp, ingestion_time, stream, ordinal = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise ServiceError("InvalidParameterException", "The specified nextToken is invalid.") from error
    return (timestamp, ingestion_time, stream, ordinal)


class LogStreamWriter:
    """One log stream that a job run writes. Not thread-safe; the caller's clock is the events' timestamp.

    `lines_per_event` 0 makes one event of all the lines that came together, cut at 32 KB, as Glue's agent does;
    any other number is the most lines an event may have. The stream and its group are made on the first line,
    or by `create`.
    """

    def __init__(self, client: Any, group: str, stream: str, lines_per_event: int = 0) -> None:
        self._client, self._group, self._stream, self._lines_per_event = client, group, stream, lines_per_event
        self._pending = bytearray()
        self._created = False
        self._flushed = 0.0

    def write(self, data: bytes) -> None:
        """Takes output as it comes; lines go out with the next flush that is due."""
        self._pending += data

    def flush(self, *, final: bool = False) -> None:
        """Sends whole lines (`final`: also an unfinished one), at most every 200 ms unless `final`."""
        if not self._pending or (not final and time.monotonic() - self._flushed < FLUSH_SECONDS):
            return
        self._flushed = time.monotonic()
        end = len(self._pending) if final else self._pending.rfind(b"\n") + 1
        if end == 0 and len(self._pending) >= EVENT_BYTES:
            end = EVENT_BYTES
        text = bytes(self._pending[:end]).decode("utf-8", errors="replace")
        del self._pending[:end]
        self._send(events_of(text, self._lines_per_event))

    def create(self) -> None:
        """Makes the stream, and the group where that is missing."""
        missing = self._client.exceptions.ResourceNotFoundException
        try:
            self._create_stream()
        except missing:
            self._unless_there(self._client.create_log_group, logGroupName=self._group)
            self._create_stream()
        self._created = True

    def _create_stream(self) -> None:
        names = {"logGroupName": self._group, "logStreamName": self._stream}
        self._unless_there(self._client.create_log_stream, **names)

    def _unless_there(self, make: Callable[..., Any], **names: str) -> None:
        try:
            make(**names)
        except self._client.exceptions.ResourceAlreadyExistsException:
            return

    def _send(self, messages: list[str]) -> None:
        if messages and not self._created:
            self.create()
        now = int(time.time() * 1000)
        for batch in batches_of(messages):
            self._client.put_log_events(
                logGroupName=self._group,
                logStreamName=self._stream,
                logEvents=[{"timestamp": now, "message": message} for message in batch],
            )


def events_of(text: str, lines_per_event: int = 0) -> list[str]:
    """Cuts output into event messages of at most 32 KB and, if not 0, `lines_per_event` lines. Empty lines are dropped.

    A line longer than 32 KB is cut.
    """
    events: list[str] = []
    lines: list[str] = []
    size = 0
    for line in _short_lines(text):
        full = lines_per_event and len(lines) == lines_per_event
        if lines and (full or size + len(line.encode()) + 1 > EVENT_BYTES):
            events.append("\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line.encode()) + 1
    return [*events, "\n".join(lines)] if lines else events


def _short_lines(text: str) -> list[str]:
    # A character has up to four bytes in UTF-8.
    width = EVENT_BYTES // 4 - 1
    whole = [line.rstrip("\r") for line in text.split("\n")]
    return [line[at : at + width] for line in whole if line for at in range(0, len(line), width)]


def batches_of(messages: list[str]) -> list[list[str]]:
    """Batches that PutLogEvents accepts."""
    batches: list[list[str]] = []
    size = BATCH_BYTES
    for message in messages:
        weight = len(message.encode()) + EVENT_OVERHEAD_BYTES
        if size + weight > BATCH_BYTES or len(batches[-1]) == BATCH_EVENTS:
            batches.append([])
            size = 0
        batches[-1].append(message)
        size += weight
    return batches
