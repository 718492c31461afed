"""Live Tail and the reading of logs in the sandbox, through boto3."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError

from bulkexec.sandbox.process import Sandbox

Update = dict[str, Any]


class LogGroup:
    """A log group with one stream, and the calls that every test makes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.client = sandbox.client("logs")
        self.tails: list[Any] = []
        self.name, self.stream = f"/tests/{uuid.uuid4().hex[:12]}", "driver"
        self.client.create_log_group(logGroupName=self.name)
        self.client.create_log_stream(logGroupName=self.name, logStreamName=self.stream)
        self.arn = f"arn:aws:logs:{sandbox.options.region}:{sandbox.options.account}:log-group:{self.name}"

    def put(self, messages: list[str], stream: str = "", timestamp: int | None = None) -> None:
        at = int(time.time() * 1000) if timestamp is None else timestamp
        events = [{"timestamp": at, "message": message} for message in messages]
        self.client.put_log_events(logGroupName=self.name, logStreamName=stream or self.stream, logEvents=events)

    def tail(self, **request: Any) -> Iterator[dict[str, Any]]:
        answer = self.client.start_live_tail(logGroupIdentifiers=[self.arn], **request)
        self.tails.append(answer["responseStream"])
        return iter(answer["responseStream"])

    def close(self) -> None:
        for tail in self.tails:
            tail.close()

    def pages(self, **request: Any) -> list[dict[str, Any]]:
        return list(self.client.get_paginator("filter_log_events").paginate(logGroupName=self.name, **request))


@pytest.fixture
def group(sandbox: Sandbox) -> Iterator[LogGroup]:
    with closing(LogGroup(sandbox)) as group:
        yield group


def started(tail: Iterator[dict[str, Any]]) -> dict[str, Any]:
    start: dict[str, Any] = next(tail)["sessionStart"]
    return start


def shown(tail: Iterator[dict[str, Any]], most_updates: int = 5) -> Update:
    """The next update with events in it."""
    for _ in range(most_updates):
        update: Update = next(tail)["sessionUpdate"]
        if update["sessionResults"]:
            return update
    raise AssertionError("no events")


def test_a_tail_shows_what_arrives_while_it_is_open(group: LogGroup) -> None:
    group.put(["before"])
    tail = group.tail(logStreamNames=[group.stream])
    start = started(tail)
    assert start["logGroupIdentifiers"] == [group.arn]
    assert start["logStreamNames"] == [group.stream]
    assert len(start["sessionId"]) == len(start["requestId"]) == 36
    group.put(["one\ntwo", "three"])
    update = shown(tail)
    assert update["sessionMetadata"] == {"sampled": False}
    assert [event["message"] for event in update["sessionResults"]] == ["one\ntwo", "three"]
    event = update["sessionResults"][0]
    assert (event["logStreamName"], event["logGroupIdentifier"]) == (group.stream, group.arn)
    assert 0 <= event["ingestionTime"] - event["timestamp"] < 60_000


# case C116: a subscription by exact stream is not mixed with executors'
def test_a_tail_is_narrowed_by_stream_prefix_and_pattern(group: LogGroup) -> None:
    for stream in ("driver_g-1", "other"):
        group.client.create_log_stream(logGroupName=group.name, logStreamName=stream)
    exact, prefixed = group.tail(logStreamNames=["driver"]), group.tail(logStreamNamePrefixes=["driver"])
    filtered = group.tail(logEventFilterPattern="ERROR -retry")
    for tail in (exact, prefixed, filtered):
        started(tail)
    for stream in ("driver", "driver_g-1", "other"):
        group.put([f"{stream} ERROR", f"{stream} ERROR retry", f"{stream} fine"], stream)
    assert {event["logStreamName"] for event in shown(exact)["sessionResults"]} == {"driver"}
    assert {event["logStreamName"] for event in shown(prefixed)["sessionResults"]} == {"driver", "driver_g-1"}
    messages = [event["message"] for event in shown(filtered)["sessionResults"]]
    assert messages == ["driver ERROR", "driver_g-1 ERROR", "other ERROR"]


# case C113
def test_more_than_500_events_a_second_are_sampled_and_flagged(group: LogGroup) -> None:
    tail = group.tail()
    started(tail)
    group.put([f"line {number}" for number in range(3_000)])
    update = shown(tail)
    assert (len(update["sessionResults"]), update["sessionMetadata"]["sampled"]) == (500, True)
    # Nothing is lost where it counts: the group has every line.
    assert sum(len(page["events"]) for page in group.pages()) == 3_000


# case C119: a session ends by itself. case C114: what arrives between two sessions is shown in neither
def test_a_session_ends_and_a_new_one_does_not_backfill() -> None:
    with Sandbox(live_tail_session_seconds=1.5) as sandbox, closing(LogGroup(sandbox)) as group:
        tail = group.tail()
        started(tail)
        with pytest.raises(EventStreamError, match="SessionTimeoutException"):
            list(tail)
        group.put(["in the gap"])
        tail = group.tail()
        started(tail)
        group.put(["after"])
        assert [event["message"] for event in shown(tail)["sessionResults"]] == ["after"]
        gap = [event["message"] for page in group.pages() for event in page["events"]]
        assert gap == ["in the gap", "after"]


# case C119: the buffer of a reader that does not read is bounded, and what overflows it is lost with no flag
def test_a_reader_that_is_slow_loses_the_oldest_updates() -> None:
    with Sandbox(live_tail_buffer_updates=1) as sandbox, closing(LogGroup(sandbox)) as group:
        tail = group.tail()
        started(tail)
        # 24 MB, more than the buffers of both sockets ever hold, so that the sender is held up.
        for second in range(6):
            for _ in range(4):
                group.put([f"{second} " + "x" * 10_000] * 100)
            time.sleep(1)
        group.put(["the end"])
        seen: list[str] = []
        while "the" not in seen:
            update = next(tail)["sessionUpdate"]
            assert not update["sessionMetadata"]["sampled"]
            seen += [event["message"].split()[0] for event in update["sessionResults"]]
        assert seen[0] == "0"
        assert len(set(seen)) < 7


def test_sessions_are_limited_and_end_with_their_reader() -> None:
    with Sandbox(live_tail_sessions=1) as sandbox, closing(LogGroup(sandbox)) as group:
        answer = group.client.start_live_tail(logGroupIdentifiers=[group.arn])
        started(iter(answer["responseStream"]))
        with pytest.raises(group.client.exceptions.LimitExceededException):
            group.client.start_live_tail(logGroupIdentifiers=[group.arn])
        answer["responseStream"].close()
        deadline = time.monotonic() + 5
        while True:
            try:
                started(group.tail())
                break
            except group.client.exceptions.LimitExceededException:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_requests_for_a_tail_are_checked(group: LogGroup) -> None:
    arn = group.arn
    for code, request in (
        ("InvalidParameterException", {"logGroupIdentifiers": [f"{arn}:*"]}),
        ("InvalidParameterException", {"logGroupIdentifiers": [group.name]}),
        ("ResourceNotFoundException", {"logGroupIdentifiers": [f"{arn}-missing"]}),
        ("InvalidParameterException", {"logGroupIdentifiers": [arn, arn], "logStreamNames": ["a"]}),
        ("InvalidParameterException", {"logGroupIdentifiers": [arn, arn], "logStreamNamePrefixes": ["a"]}),
        ("InvalidParameterException", {"logGroupIdentifiers": [arn], "logEventFilterPattern": "{ $.a = 1 }"}),
        (
            "InvalidParameterException",
            {"logGroupIdentifiers": [arn], "logStreamNamePrefixes": ["a"], "logStreamNames": ["a"]},
        ),
    ):
        with pytest.raises(ClientError) as error:
            group.client.start_live_tail(**request)
        assert error.value.response["Error"]["Code"] == code, request


# case C122: one page is not all, and an empty page with a nextToken is not the end
def test_reading_back_goes_over_empty_pages(group: LogGroup) -> None:
    for start in range(0, 12_000, 4_000):
        group.put([f"row {number:05}" for number in range(start, start + 4_000)])
    group.put(["needle"])
    pages = group.pages(filterPattern="needle")
    assert [len(page["events"]) for page in pages] == [0, 1]
    assert "nextToken" in pages[0]
    rows = [event["message"] for page in group.pages(filterPattern="row") for event in page["events"]]
    assert rows == [f"row {number:05}" for number in range(12_000)]


def test_reading_back_ends_a_page_at_a_megabyte_or_a_limit(group: LogGroup) -> None:
    for _ in range(3):
        group.put(["x" * 30_000] * 20)
    assert [len(page["events"]) for page in group.pages()] == [34, 26]
    first = group.client.filter_log_events(logGroupName=group.name, limit=7)
    rest = group.client.filter_log_events(logGroupName=group.name, nextToken=first["nextToken"])
    assert (len(first["events"]), len(rest["events"])) == (7, 34)


def test_reading_back_is_bounded_by_time_and_stream(group: LogGroup) -> None:
    group.client.create_log_stream(logGroupName=group.name, logStreamName="late")
    now = int(time.time() * 1000)
    group.put(["b"], timestamp=now)
    group.put(["a"], "late", timestamp=now - 1_000)
    group.put(["c"], "late", timestamp=now + 1_000)

    def found(**request: Any) -> list[str]:
        return [event["message"] for page in group.pages(**request) for event in page["events"]]

    assert found() == ["a", "b", "c"]
    assert found(startTime=now) == ["b", "c"]
    assert found(endTime=now) == ["a", "b"]
    assert found(logStreamNames=["late"]) == ["a", "c"]
    assert found(logStreamNamePrefix="dr") == ["b"]
    with pytest.raises(group.client.exceptions.ResourceNotFoundException):
        group.client.filter_log_events(logGroupName="/none")
    with pytest.raises(group.client.exceptions.ResourceNotFoundException):
        group.client.filter_log_events(logGroupName=group.name, logStreamNames=["none"])
    with pytest.raises(group.client.exceptions.InvalidParameterException):
        group.client.filter_log_events(logGroupName=group.name, nextToken="x")


def test_one_stream_is_read_to_its_end_by_get_log_events(group: LogGroup) -> None:
    group.put([f"{number}" for number in range(25)])
    seen, token = [], ""
    while True:
        request = {"nextToken": token} if token else {"startFromHead": True}
        page = group.client.get_log_events(logGroupName=group.name, logStreamName=group.stream, limit=10, **request)
        seen += [event["message"] for event in page["events"]]
        if page["nextForwardToken"] == token:
            break
        token = page["nextForwardToken"]
    assert seen == [f"{number}" for number in range(25)]
    described = group.client.describe_log_groups(logGroupNamePrefix=group.name)["logGroups"]
    assert [found["logGroupArn"] for found in described] == [group.arn]


def test_a_tail_follows_a_job_run_while_it_runs(sandbox: Sandbox) -> None:
    script = (
        "import time\n"
        "time.sleep(0.5)\n"
        "for number in range(5):\n"
        "    print('line', number, flush=True)\n"
        "    time.sleep(0.3)\n"
        "for number in range(2_000):\n    print('fast', number)\n"
    )
    s3, glue, logs = sandbox.client("s3"), sandbox.client("glue"), sandbox.client("logs")
    name = f"tail-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="job.py", Body=script)
    command = {"Name": "glueetl", "ScriptLocation": f"s3://{name}/job.py"}
    glue.create_job(Name=name, Role="job-role", Command=command)
    group = "/aws-glue/jobs/output"
    if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        logs.create_log_group(logGroupName=group)
    arn = f"arn:aws:logs:{sandbox.options.region}:{sandbox.options.account}:log-group:{group}"
    run_id = glue.start_job_run(JobName=name, Arguments={"--sandbox-lines-per-event": "1"})["JobRunId"]
    answer = logs.start_live_tail(logGroupIdentifiers=[arn], logStreamNames=[run_id])
    states: list[str] = []
    sampled, lines = False, []
    closing = threading.Timer(20, answer["responseStream"].close)
    closing.start()
    for event in answer["responseStream"]:
        update = event.get("sessionUpdate", {"sessionResults": [], "sessionMetadata": {"sampled": False}})
        states.append(glue.get_job_run(JobName=name, RunId=run_id)["JobRun"]["JobRunState"])
        lines += [(result["message"], states[-1]) for result in update["sessionResults"]]
        sampled |= update["sessionMetadata"]["sampled"]
        if states[-1] == "SUCCEEDED" and not update["sessionResults"]:
            break
    closing.cancel()
    answer["responseStream"].close()
    assert ("line 0", "RUNNING") in lines
    assert sampled
    assert len([line for line, _state in lines if line.startswith("fast")]) < 2_000
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group, logStreamNames=[run_id])
    assert len([event for page in pages for event in page["events"]]) == 2_005
