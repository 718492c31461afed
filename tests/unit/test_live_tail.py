"""A log is shown whole and once, whatever Live Tail does. The logs client is scripted below boto3's own interface."""

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.exceptions
import botocore.loaders
import botocore.session
import pytest
import urllib3.exceptions

from bulkexec.runtimes.live_tail import LogTail

GROUP, STREAM = "/aws-glue/jobs/output", "jr_1"
ARN = f"arn:aws:logs:eu-west-1:1:log-group:{GROUP}"
START = {"sessionStart": {}}


LOADER = botocore.loaders.create_loader()
"""Service models are read once for all tests."""


def offline_session(region: str | None) -> boto3.Session:
    core = botocore.session.Session()
    core.register_component("data_loader", LOADER)
    return boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name=region, botocore_session=core)


@dataclass
class Logs:
    """The service: a log group that FilterLogEvents reads, and scripted Live Tail sessions.

    A session is a list of updates; an exception in it is raised there, a callable is called. After the last session
    the tail stays open and silent. `denied` is answered to every StartLiveTail.
    """

    sessions: list[list[Any]] = field(default_factory=list)
    group: list[dict[str, Any]] = field(default_factory=list)
    denied: str = ""
    started: int = 0
    filtered: int = 0
    all_given: threading.Event = field(default_factory=threading.Event)

    def put(self, *lines: str, stream: str = STREAM, at_ms: int = 0) -> list[dict[str, Any]]:
        now = at_ms or int(time.time() * 1000) + len(self.group)
        events = [{"logStreamName": stream, "timestamp": now + n, "message": line} for n, line in enumerate(lines)]
        self.group += events
        return events

    def session(self) -> boto3.Session:
        session = offline_session("eu-west-1")
        session.events.register("provide-client-params.*.*", self._asked)
        session.events.register("before-call.*.*", self._answer)
        return session

    def _asked(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["asked"] = params

    def _answer(self, model: Any, context: dict[str, Any], **_: Any) -> Any:
        answer = getattr(self, model.name)(context["asked"])
        failed = "Error" in answer
        return SimpleNamespace(status_code=400 if failed else 200), {"ResponseMetadata": {}, **answer}

    def StartLiveTail(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked == {"logGroupIdentifiers": [ARN], "logStreamNamePrefixes": [STREAM]}
        self.started += 1
        if self.denied:
            self.all_given.set()
            return {"Error": {"Code": self.denied, "Message": "no"}}
        return {"responseStream": self._updates()}

    def _updates(self) -> Iterator[dict[str, Any]]:
        if not self.sessions:
            self.all_given.set()
            while True:
                time.sleep(0.01)
                yield {"sessionUpdate": {"sessionMetadata": {"sampled": False}, "sessionResults": []}}
        for update in self.sessions.pop(0):
            if isinstance(update, Exception):
                raise update
            yield update() if callable(update) else update

    def FilterLogEvents(self, asked: dict[str, Any]) -> dict[str, Any]:
        """First an empty page with a token, then a few pages of events."""
        self.filtered += 1
        assert (asked["logGroupName"], asked["logStreamNames"]) == (GROUP, [STREAM])
        if not self.group:
            return {"Error": {"Code": "ResourceNotFoundException", "Message": "no such stream"}}
        after = [e for e in self.group if e["logStreamName"] == STREAM and e["timestamp"] >= asked["startTime"]]
        size = max(2, len(after) // 3)
        begin = int(asked.get("nextToken", -size))
        token = {"nextToken": str(begin + size)} if begin + size < len(after) else {}
        return {"events": after[begin : begin + size] if begin >= 0 else [], **token}


def update(*events: dict[str, Any], sampled: bool = False) -> dict[str, Any]:
    return {"sessionUpdate": {"sessionMetadata": {"sampled": sampled}, "sessionResults": list(events)}}


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    for name in ("RECONNECT_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(f"bulkexec.runtimes.live_tail.{name}", 0.01)
    return Logs()


def shown(logs: Logs, meanwhile: Callable[[], Any] = lambda: None) -> list[str]:
    """All lines that are shown until the run has ended."""
    lines: list[str] = []
    with LogTail(logs.session(), "eu-west-1", GROUP, ARN, STREAM, lines.append):
        assert logs.all_given.wait(10)
        meanwhile()
    return lines


def test_lines_are_shown_once_and_in_order(logs: Logs) -> None:
    first, second = logs.put("one", "two"), logs.put("three\nfour")
    logs.sessions = [[START, update(*first), update(*second)]]
    assert shown(logs) == ["one", "two", "three", "four"]


def sampled_lines(logs: Logs) -> list[str]:
    """What is shown of 150 lines of which Live Tail gave every other one."""

    def sampled() -> dict[str, Any]:
        return update(*logs.put(*[f"line {n:03d}" for n in range(150)])[::2], sampled=True)

    logs.sessions = [[START, sampled]]
    return shown(logs)


def test_a_sampled_update_is_filled_from_the_log_group(logs: Logs) -> None:
    # case C113
    assert sorted(sampled_lines(logs)) == [f"line {n:03d}" for n in range(150)]


def test_the_lines_of_a_sampled_update_keep_their_order(logs: Logs) -> None:
    assert (lines := sampled_lines(logs)) == sorted(lines)


@pytest.mark.parametrize(
    "end",
    [
        [],
        [urllib3.exceptions.ReadTimeoutError(None, "", "read timed out")],  # type: ignore[arg-type]
        [urllib3.exceptions.ProtocolError("connection broken")],
        [botocore.exceptions.ReadTimeoutError(endpoint_url="https://logs")],
        [botocore.exceptions.EventStreamError({"Error": {"Code": "SessionTimeoutException"}}, "StartLiveTail")],
    ],
    ids=["ended", "read-timeout", "broken", "botocore-timeout", "three-hours"],
)
def test_between_two_sessions_no_line_is_lost_or_shown_twice(logs: Logs, end: list[Exception]) -> None:
    # case C114 C115 C119
    def before() -> dict[str, Any]:
        events = logs.put("before")
        logs.put("in the gap", "and another")
        return update(*events)

    logs.sessions = [[START, before, *end], [START, lambda: update(*logs.put("after"))]]
    assert shown(logs) == ["before", "in the gap", "and another", "after"]
    assert logs.started >= 3


def test_what_comes_after_the_last_update_is_shown_at_the_end(logs: Logs) -> None:
    logs.sessions = [[START, lambda: update(*logs.put("begin"))]]
    assert shown(logs, lambda: logs.put("the last words")) == ["begin", "the last words"]


def test_executors_are_not_spliced_in(logs: Logs) -> None:
    # case C116: their streams begin with the driver's name
    noise, mine = logs.put("noise", stream=f"{STREAM}_g-123"), logs.put("mine")
    logs.sessions = [[START, update(*noise, *mine)]]
    assert shown(logs) == ["mine"]


@pytest.mark.parametrize("code", ["AccessDeniedException", "LimitExceededException", "UnrecognizedClientException"])
def test_without_live_tail_the_log_group_is_read_and_that_is_said_once(logs: Logs, code: str) -> None:
    # case C120 C122
    logs.denied = code
    logs.put("one", "two", "three", "four", "five")

    def meanwhile() -> None:
        started = logs.started
        logs.put("later")
        while logs.started < started + 2:
            time.sleep(0.005)

    lines = shown(logs, meanwhile)
    remarks = [line for line in lines if line.startswith("log: ")]
    assert len(remarks) == 1
    assert code in remarks[0]
    assert [line for line in lines if line not in remarks] == ["one", "two", "three", "four", "five", "later"]


def test_a_stream_that_is_not_there_yet_is_waited_for(logs: Logs) -> None:
    logs.sessions = [[START], [START, lambda: update(*logs.put("at last"))]]
    assert shown(logs) == ["at last"]


def test_a_log_that_may_not_be_read_is_one_line_and_no_trace(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.denied = "AccessDeniedException"
    denied = {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
    monkeypatch.setattr(logs, "FilterLogEvents", lambda asked: denied)
    (line,) = shown(logs)
    assert GROUP in line


def test_the_end_of_a_run_ends_a_silent_tail_at_once(logs: Logs) -> None:
    # case C111
    begin = time.monotonic()
    shown(logs)
    assert time.monotonic() - begin < 3


def test_the_same_line_twice_in_one_millisecond_is_two_lines(logs: Logs) -> None:
    now = int(time.time() * 1000)
    events = logs.put("retrying", at_ms=now) + logs.put("retrying", at_ms=now)
    logs.sessions = [[START, update(*events)]]
    assert shown(logs) == ["retrying", "retrying"]


def test_a_flood_is_cut_for_the_terminal_and_said_so(logs: Logs) -> None:
    # case C157
    events = logs.put(*[f"line {n}" for n in range(5000)])
    logs.sessions = [[START, *[update(*events[n : n + 500]) for n in range(0, 5000, 500)]]]
    lines = shown(logs)
    assert len(lines) < 2500
    assert any(GROUP in line for line in lines)


def test_a_flood_of_recent_lines_is_not_searched_for_old_ones_at_each(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[int] = []
    forget = LogTail._forget
    monkeypatch.setattr("bulkexec.runtimes.live_tail.SEEN_EVENTS", 100)
    monkeypatch.setattr(LogTail, "_forget", lambda tail: (searches.append(len(tail._shown)), forget(tail)))
    events = logs.put(*[f"line {n}" for n in range(5000)])
    logs.sessions = [[START, *[update(*events[n : n + 500]) for n in range(0, 5000, 500)]]]
    shown(logs)
    assert 1 <= len(searches) <= 10


def test_old_marks_are_forgotten(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bulkexec.runtimes.live_tail.SEEN_EVENTS", 100)
    now = int(time.time() * 1000)
    old, recent = (logs.put(*[f"line {n}" for n in range(150)], at_ms=at) for at in (now - 60_000, now))
    with LogTail(logs.session(), "eu-west-1", GROUP, ARN, STREAM, lambda line: None) as tail:
        logs.sessions = [[update(*old, *recent)]]
        assert logs.all_given.wait(10)
    assert len(tail._shown) < 250


def test_every_stream_is_closed_by_the_thread_that_reads_it(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Iterator[Any]] = []
    updates = Logs._updates

    def kept(script: Logs) -> Iterator[dict[str, Any]]:
        opened.append(updates(script))
        return opened[-1]

    monkeypatch.setattr(Logs, "_updates", kept)
    logs.sessions = [[START, urllib3.exceptions.ProtocolError("broken")], [START]]
    shown(logs)
    assert len(opened) >= 3
    assert all(inspect.getgeneratorstate(stream) == inspect.GEN_CLOSED for stream in opened)  # type: ignore[arg-type]
