"""Shows the driver's log while a job runs: CloudWatch Logs Live Tail, with FilterLogEvents where that is missing.

Live Tail samples above 500 events a second, drops what a slow reader does not take, ends after three hours and never
backfills. So every gap that is known (a sampled update, a new session) is filled from the log group, and what was shown
before is not shown again. Nothing but the screen depends on it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import botocore.exceptions
import urllib3.exceptions
from botocore.config import Config

from bulkexec.describe import why_refused

RECONNECT_SECONDS = 1.0
POLL_SECONDS = 2.0
SEEN_EVENTS = 20_000
BACKFILL_MS = 10_000
LINES_A_SECOND = 1_000
"""A terminal takes no more; the rest is counted and left in the log group (case C157)."""

Event = dict[str, Any]


class LogTail:
    """While entered, a thread gives each new line of one log stream to `say`."""

    def __init__(
        self, session: boto3.Session, region: str, group: str, group_arn: str, stream: str, say: Callable[[str], None]
    ) -> None:
        # boto3 would put "streaming-" before the host; only the real service has such a host.
        self._client = session.client(
            "logs", region_name=region, config=Config(read_timeout=5, retries={"total_max_attempts": 2})
        )
        self._group, self._arn, self._stream, self._say = group, group_arn, stream, say
        self._ended = threading.Event()
        self._began_ms = int(time.time() * 1000) - 5_000
        self._shown: dict[tuple[int, str], int] = {}
        self._tailed: dict[tuple[int, str], int] = {}
        self._second, self._lines, self._dropped = 0, 0, 0
        self._last_ms = self._began_ms
        self._said: set[str] = set()
        self._forget_at = SEEN_EVENTS
        self._open: Any = None
        self._thread = threading.Thread(target=self._run, name="live-tail", daemon=True)

    def __enter__(self) -> "LogTail":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The run has ended: show what came last, then stop."""
        self._ended.set()
        self._interrupt()
        self._thread.join(timeout=10)

    def _interrupt(self) -> None:
        """End the read that the thread is in; the next update may be long in coming.

        Closing the stream from here would wait for that read. urllib3's `shutdown` is made for this, and botocore's
        EventStream does not pass it on.
        """
        raw = getattr(self._open, "_raw_stream", None)
        if raw is None:
            return
        try:
            raw.shutdown()
        except (ValueError, RuntimeError, OSError):
            return  # the thread has just closed it

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._one_session()
            self._backfill()
            self._admit()
            self._say_if_silent()
            self._client.close()
        except botocore.exceptions.BotoCoreError as error:
            self._say(f"log: cannot be shown any more ({error}); it is in log group {self._group}")
        except botocore.exceptions.ClientError as error:
            self._say(f"log: cannot be shown ({why_refused(error)}); it is in log group {self._group}")

    def _one_session(self) -> None:
        try:
            answer = self._client.start_live_tail(logGroupIdentifiers=[self._arn], logStreamNamePrefixes=[self._stream])
            self._read(answer["responseStream"])
            self._backfill()
        except (
            botocore.exceptions.HTTPClientError,
            botocore.exceptions.ConnectionError,
            urllib3.exceptions.HTTPError,
            botocore.exceptions.EventStreamError,
        ):
            # A session that ended or a connection that was lost (cases C115 C119): fill the gap, begin a new one.
            if not self._ended.is_set():
                self._backfill()
            self._ended.wait(RECONNECT_SECONDS)
        except botocore.exceptions.ClientError as error:
            # No Live Tail here (case C120), or too many sessions: read the log group instead.
            self._backfill()
            self._say_once(f"log: Live Tail cannot be used ({why_refused(error)}); reading the log group instead")
            self._ended.wait(POLL_SECONDS)

    def _read(self, stream: Any) -> None:
        self._open = stream
        try:
            if self._ended.is_set():
                return
            for update in stream:
                self._take(update)
                if self._ended.is_set():
                    return
        finally:
            # Here and now: the garbage collector would close socket and response in the wrong order, with a trace.
            self._open = None
            stream.close()

    def _take(self, update: dict[str, Any]) -> None:
        session = update.get("sessionUpdate")
        if session is None:
            if "sessionStart" in update:
                self._backfill()
            return
        if session.get("sessionMetadata", {}).get("sampled"):
            self._backfill()
        for event in self._own(session["sessionResults"]):
            mark = (event["timestamp"], event["message"])
            self._tailed[mark] = self._tailed.get(mark, 0) + 1
            self._show(mark, self._tailed[mark])

    def _own(self, events: list[Event]) -> Iterator[Event]:
        """Only the driver's: executors' streams begin with the same id (case C116)."""
        return (event for event in events if event.get("logStreamName") == self._stream)

    def _backfill(self) -> None:
        """Read from the log group what the tail may have lost; an empty page with a token is not the end (C122)."""
        request: dict[str, Any] = {
            "logGroupName": self._group,
            "logStreamNames": [self._stream],
            "startTime": max(self._began_ms, self._last_ms - BACKFILL_MS),
        }
        found: dict[tuple[int, str], int] = {}
        try:
            for page in self._client.get_paginator("filter_log_events").paginate(**request):
                for event in page["events"]:
                    mark = (event["timestamp"], event["message"])
                    found[mark] = found.get(mark, 0) + 1
                    self._show(mark, found[mark])
        except self._client.exceptions.ResourceNotFoundException:
            return  # the stream is made with the first line

    def _show(self, mark: tuple[int, str], times: int) -> None:
        """Say a line that was seen `times` times by one way of reading, unless the other had shown it as often."""
        if times <= self._shown.get(mark, 0):
            return
        self._shown[mark] = times
        self._last_ms = max(self._last_ms, mark[0])
        for line in mark[1].splitlines():
            self._say_at_most(line)
        if len(self._shown) > self._forget_at:
            self._forget()

    def _forget(self) -> None:
        """Drop marks so old that no backfill reads them again."""
        recent = self._last_ms - 2 * BACKFILL_MS
        for marks in (self._shown, self._tailed):
            for mark in [mark for mark in marks if mark[0] < recent]:
                del marks[mark]
        # In a flood all of them are recent: looking again only when there are twice as many keeps this cheap.
        self._forget_at = max(SEEN_EVENTS, 2 * len(self._shown))

    def _say_at_most(self, line: str) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._admit()
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_A_SECOND:
            self._say(line)
        else:
            self._dropped += 1

    def _admit(self) -> None:
        if self._dropped:
            self._say(f"log: {self._dropped:,} more lines are not shown; they are in log group {self._group}")
            self._dropped = 0

    def _say_if_silent(self) -> None:
        """A driver always has something to say, so silence means that its log cannot be written."""
        if not self._shown:
            self._say(
                f"log: no line of this run has come to {self._group}; if it has worked, "
                "its role lacks logs:CreateLogStream or logs:PutLogEvents"
            )

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)
