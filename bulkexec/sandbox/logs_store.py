"""The emulator's CloudWatch Logs from the inside: the one place that knows how ministack keeps log events.

ministack 1.5.33 holds a log group as `{"arn", "streams": {name: {"events": [...]}}}` with a stream's events in order
of time, and hands every accepted PutLogEvents batch to the sessions in `_live_tail_sessions`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from bulkexec.sandbox.options import SandboxOptions


class LogEvent(NamedTuple):
    """One stored event. Times are milliseconds since the epoch; the first four fields are its place in the order.

    `ordinal` counts the stream's events of the same two times, so that lines of one batch keep their order.
    """

    timestamp: int
    ingestion_time: int
    stream: str
    ordinal: int
    message: str
    event_id: str


class Inbox(Protocol):
    """Where a Live Tail session gets its batches."""

    def put_nowait(self, batch: tuple[list[dict[str, Any]], bool] | None) -> None:
        """Takes one batch of events in Live Tail's shape; None ends the session."""
        ...


def group_exists(options: SandboxOptions, group: str) -> bool:
    """Whether a log group exists in the sandbox's account and region."""
    return _group(options, group) is not None


def stream_names(options: SandboxOptions, group: str) -> list[str]:
    """The names of a group's streams, sorted."""
    return sorted((_group(options, group) or {"streams": {}})["streams"])


def events_from(options: SandboxOptions, group: str, streams: list[str], start: int) -> list[LogEvent]:
    """Events at or after `start`, oldest first. Late arrivals of the same millisecond come last."""
    from ministack.services import cloudwatch_logs

    found = []
    held = (_group(options, group) or {"streams": {}})["streams"]
    with cloudwatch_logs._log_events_lock:
        for name in streams:
            events = held[name]["events"] if name in held else []
            first = bisect_left(events, start, key=lambda event: event["timestamp"])
            found += _numbered(name, events[first:])
    return sorted(found)


def _numbered(stream: str, events: list[dict[str, Any]]) -> list[LogEvent]:
    seen: Counter[tuple[int, int]] = Counter()
    numbered = []
    for event in events:
        times = (event["timestamp"], event["ingestionTime"])
        numbered.append(LogEvent(*times, stream, seen[times], event["message"], event["eventId"]))
        seen[times] += 1
    return numbered


def _group(options: SandboxOptions, group: str) -> dict[str, Any] | None:
    from ministack.services import cloudwatch_logs

    found: dict[str, Any] | None = cloudwatch_logs._log_groups.get_scoped(options.account, options.region, group)
    return found


@contextmanager
def subscribed(options: SandboxOptions, session_id: str, groups: dict[str, str], inbox: Inbox) -> Iterator[int]:
    """Feeds everything that arrives in `groups` (name to ARN) into `inbox` for the length of a `with` block.

    Yields how many sessions are open, this one included.
    """
    from ministack.services import cloudwatch_logs

    cloudwatch_logs._live_tail_sessions[session_id] = {
        "account_id": options.account,
        "region": options.region,
        "group_names": set(groups),
        "identifiers_by_name": groups,
        "queue": inbox,
    }
    try:
        yield len(cloudwatch_logs._live_tail_sessions)
    finally:
        cloudwatch_logs._live_tail_sessions.pop(session_id, None)
