"""Answers over real HTTP on loopback become faults; faults are retried, or become the errors a user reads."""

import binascii
import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest

from bulkexec import errors
from bulkexec.wire import (
    BACKOFF_BASE_SECONDS,
    BACKOFF_CAP_SECONDS,
    EXPIRED_ATTEMPTS,
    Answering,
    Fault,
    HttpWire,
    Refusals,
    Retry,
    Retrying,
    Stopped,
    access_sentence,
)

REFUSALS = Refusals("orders", "eu-west-1")
DENIED = (
    "User: arn:aws:sts::111122223333:assumed-role/bulkexec-job/s is not authorized to perform: dynamodb:Scan "
    "on resource: arn:aws:dynamodb:eu-west-1:111122223333:table/orders because no identity-based policy allows it"
)


# Over HTTP


@dataclass
class Endpoint:
    """What the loopback server answers, and what it was asked."""

    url: str
    status: int = 200
    body: bytes = b"{}"
    crc: int | None = None
    asked: list[tuple[str, bytes, str]] = field(default_factory=list)


@pytest.fixture(scope="module")
def server() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            there.asked.append((self.headers["X-Amz-Target"], body, self.headers.get("Authorization", "")))
            self.send_response(there.status)
            self.send_header("Content-Length", str(len(there.body)))
            self.send_header("x-amz-crc32", str(binascii.crc32(there.body) if there.crc is None else there.crc))
            self.end_headers()
            self.wfile.write(there.body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    there = Endpoint(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield there
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def endpoint(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server.status, server.body, server.crc, server.asked = 200, b"{}", None, []
    return server


def wire_to(url: str) -> HttpWire:
    """A wire, made while AWS_ENDPOINT_URL says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("NO_PROXY", "127.0.0.1")
        session = boto3.Session(aws_access_key_id="AKID", aws_secret_access_key="secret", region_name="eu-west-1")
        return HttpWire(session, "eu-west-1", 1)


@pytest.fixture(scope="module")
def wire(server: Endpoint) -> HttpWire:
    return wire_to(server.url)


def fault_of(wire: HttpWire, endpoint: Endpoint, status: int, body: bytes) -> Fault:
    endpoint.status, endpoint.body = status, body
    with pytest.raises(Fault) as caught:
        wire.call("Scan", b"{}")
    return caught.value


def test_a_request_is_the_operation_and_the_bytes_signed(wire: HttpWire, endpoint: Endpoint) -> None:
    endpoint.body = '{"Items":[{"pk":{"S":"ä"}}]}'.encode()
    assert wire.call("Scan", b'{"TableName":"orders"}') == endpoint.body
    ((target, body, authorization),) = endpoint.asked
    assert target == "DynamoDB_20120810.Scan"
    assert body == b'{"TableName":"orders"}'
    assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKID/")


def test_an_answer_that_was_damaged_on_the_way_is_not_taken(wire: HttpWire, endpoint: Endpoint) -> None:
    endpoint.body, endpoint.crc = b'{"Count":1}', binascii.crc32(b'{"Count":2}')
    with pytest.raises(Fault) as caught:
        wire.call("BatchWriteItem", b"{}")
    assert caught.value.again
    assert caught.value.lost, "the write may have had its effect"


@pytest.mark.parametrize(
    ("status", "code", "throttle", "again", "lost"),
    [
        (400, "ProvisionedThroughputExceededException", True, True, False),
        (400, "ThrottlingException", True, True, False),
        (400, "RequestLimitExceeded", True, True, False),  # case C056
        (500, "InternalServerError", False, True, True),
        (503, "ServiceUnavailable", False, True, True),
        (502, "SomethingNew", False, True, True),
        (400, "TransactionConflictException", False, True, False),
        (400, "ValidationException", False, False, False),
        (400, "ResourceNotFoundException", False, False, False),
        (400, "AccessDeniedException", False, False, False),
        (400, "ConditionalCheckFailedException", False, False, False),
        (400, "ItemCollectionSizeLimitExceededException", False, False, False),
    ],
)
def test_an_error_answer_says_whether_to_try_again_and_whether_it_may_have_had_its_effect(
    wire: HttpWire, endpoint: Endpoint, status: int, code: str, throttle: bool, again: bool, lost: bool
) -> None:
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "so it is"}
    fault = fault_of(wire, endpoint, status, json.dumps(body).encode())
    assert (fault.code, fault.message, fault.status) == (code, "so it is", status)
    assert (fault.throttle, fault.again, fault.lost) == (throttle, again, lost)


@pytest.mark.parametrize(
    ("status", "body", "code", "again"),
    [
        (500, b"<html>oops", "InternalServerError", True),
        (413, b"too large", "Http413", False),
        (400, b'{"__type":"com.amazon.coral.validate#ValidationException"}', "ValidationException", False),
        (400, b'{"__type":"a#AccessDeniedException","Message":"capital M"}', "AccessDeniedException", False),
    ],
)
def test_bodies_of_other_shapes_are_understood_too(
    wire: HttpWire, endpoint: Endpoint, status: int, body: bytes, code: str, again: bool
) -> None:
    fault = fault_of(wire, endpoint, status, body)
    assert (fault.code, fault.again) == (code, again)
    assert fault.message


def test_the_reasons_of_a_throttle_are_kept(wire: HttpWire, endpoint: Endpoint) -> None:
    body = {
        "__type": "x#ProvisionedThroughputExceededException",
        "message": "slow",
        "ThrottlingReasons": [{"reason": "TableReadKeyRangeThroughputExceeded", "resource": "arn"}],
    }
    assert fault_of(wire, endpoint, 400, json.dumps(body).encode()).reasons == ("TableReadKeyRangeThroughputExceeded",)


def test_a_connection_that_was_never_made_carried_nothing() -> None:
    with pytest.raises(Fault) as caught:
        wire_to("http://127.0.0.1:9").call("Scan", b"{}")
    assert not caught.value.lost
    assert caught.value.again
    assert isinstance(REFUSALS.error(caught.value), errors.Unreachable)


def test_without_credentials_nothing_is_sent(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    nobody = HttpWire(boto3.Session(region_name="eu-west-1"), "eu-west-1", 1)
    with pytest.raises(errors.NoCredentials):
        nobody.call("Scan", b"{}")
    assert endpoint.asked == []


# Retries, on a clock of their own


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now, self.naps = 1000.0, []  # type: tuple[float, list[float]]

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds

    def retry(self, chance: random.Random, deadline_seconds: float = 120.0) -> Retry:
        return Retry(deadline_seconds, lambda: self.now, self.sleep, chance)


class Highest(random.Random):
    """Always the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Answers:
    """A wire that gives each of the scripted answers once, and the last one for ever."""

    def __init__(self, *answers: bytes | str | Fault) -> None:
        self.answers, self.calls = list(answers), 0

    def begin(self, operation: str, body: bytes) -> Answering:
        return partial(self.call, operation, body)

    def call(self, operation: str, body: bytes) -> bytes:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, bytes):
            return answer
        raise Fault(answer, "scripted") if isinstance(answer, str) else answer


@pytest.fixture
def time() -> Time:
    return Time()


def retrying(time: Time, answers: Answers, **more: float) -> Retrying:
    return Retrying(answers, REFUSALS, time.retry(Highest(), **more))


def test_naps_are_full_jitter_under_a_doubling_ceiling(time: Time) -> None:
    attempts = time.retry(random.Random(7)).start()
    assert all(attempts.wait() for _ in range(20))
    ceilings = [min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**n) for n in range(20)]
    assert all(0 <= nap <= ceiling for nap, ceiling in zip(time.naps, ceilings, strict=True))
    assert min(time.naps[8:]) < BACKOFF_CAP_SECONDS / 4 < BACKOFF_CAP_SECONDS / 2 < max(time.naps[8:]), "spread out"
    time.naps.clear()
    highest = time.retry(Highest()).start()
    assert all(highest.wait() for _ in range(20))
    assert time.naps == ceilings


def test_the_deadline_is_of_the_time_without_progress(time: Time) -> None:
    attempts = time.retry(Highest(), 10.0).start()
    while attempts.wait():
        pass
    assert 10.0 < time.now - 1000.0 <= 10.0 + BACKOFF_CAP_SECONDS
    attempts.progress()
    time.naps.clear()
    assert attempts.wait()
    assert time.naps == [BACKOFF_BASE_SECONDS], "the backoff starts again too"


def test_what_goes_well_is_asked_once(time: Time) -> None:
    answers = Answers(b"good")
    assert retrying(time, answers).call("Scan", b"{}") == (b"good", False)
    assert (answers.calls, time.naps) == (1, [])


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "ThrottlingException", "InternalServerError"])
def test_what_may_succeed_later_is_asked_again(time: Time, code: str) -> None:
    # case C056
    answers = Answers(code, code, b"good")
    assert retrying(time, answers).call("Scan", b"{}")[0] == b"good"
    assert answers.calls == 3


def test_every_throttle_is_passed_on_and_nothing_else(time: Time) -> None:
    throttles: list[object] = []
    slow: Callable[..., None] = lambda *reasons: throttles.append(reasons)  # noqa: E731 - takes reasons or none
    answers = Answers("ThrottlingException", "InternalServerError", "ProvisionedThroughputExceededException", b"good")
    retrying(time, answers).call("Scan", b"{}", slow)
    assert len(throttles) == 2


@pytest.mark.parametrize(
    ("first", "lost"),
    [("ConnectionLost", True), ("ChecksumMismatch", True), ("NoConnection", False), ("ThrottlingException", False)],
)
def test_a_lost_answer_is_remembered(time: Time, first: str, lost: bool) -> None:
    assert retrying(time, Answers(first, b"good")).call("DeleteItem", b"{}") == (b"good", lost)


@pytest.mark.parametrize(("first", "lost"), [("ConnectionLost", True), ("ThrottlingException", False)])
def test_what_was_begun_is_the_first_attempt(time: Time, first: str, lost: bool) -> None:
    answers = Answers(first, b"good")
    calls = retrying(time, answers)
    assert calls.attempt("DeleteItem", b"{}", begun=calls.begin("DeleteItem", b"{}")) == (b"good", lost)
    assert answers.calls == 2


def test_a_fault_after_a_lost_answer_is_doubtful_too(time: Time) -> None:
    with pytest.raises(Fault) as caught:
        retrying(time, Answers("ConnectionLost", "ConditionalCheckFailedException")).attempt("DeleteItem", b"{}")
    assert caught.value.lost


def test_expired_tokens_are_refreshed_three_times_and_no_more(time: Time) -> None:
    # case C106 C112
    assert retrying(time, Answers(*["ExpiredTokenException"] * EXPIRED_ATTEMPTS, b"good")).call("Scan", b"{}")
    answers = Answers("ExpiredTokenException")
    with pytest.raises(errors.NoCredentials) as caught:
        retrying(time, answers).call("Scan", b"{}")
    assert answers.calls == EXPIRED_ATTEMPTS + 1
    assert "log in again" in caught.value.fix


def test_what_no_retry_mends_is_not_tried_again_after_an_expired_token(time: Time) -> None:
    answers = Answers("ExpiredTokenException", "AccessDeniedException")
    with pytest.raises(errors.AccessDenied):
        retrying(time, answers).call("Scan", b"{}")
    assert answers.calls == 2


def test_a_drain_gives_up_between_two_attempts(time: Time) -> None:
    answers = Answers("ThrottlingException")
    with pytest.raises(Stopped):
        retrying(time, answers).call("Scan", b"{}", stop=lambda: answers.calls == 2)
    assert answers.calls == 2


@pytest.mark.parametrize(
    ("code", "kind", "calls"),
    [
        ("AccessDeniedException", errors.AccessDenied, 1),
        ("ResourceNotFoundException", errors.TableMissing, 1),
        ("UnrecognizedClientException", errors.NoCredentials, 1),
        ("InvalidSignatureException", errors.NoCredentials, 1),
        ("ValidationException", errors.RequestRejected, 1),
        ("SomethingNewException", errors.RequestRejected, 1),
        ("ThrottlingException", errors.Exhausted, None),
        ("ConnectionLost", errors.Exhausted, None),
        ("NoConnection", errors.Unreachable, None),
    ],
)
def test_what_no_retry_mends_is_an_error_in_the_users_words(
    time: Time, code: str, kind: type[errors.BulkexecError], calls: int | None
) -> None:
    answers = Answers(code)
    with pytest.raises(kind) as caught:
        retrying(time, answers).call("Scan", b"{}")
    assert type(caught.value) is kind
    assert answers.calls == calls or (calls is None and answers.calls > 10)
    assert "\n" not in caught.value.message


def test_a_denial_is_one_sentence_naming_who_what_and_where() -> None:
    # case C096
    assert access_sentence(DENIED) == (
        "assumed-role/bulkexec-job/s lacks dynamodb:Scan on arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
    )
    assert str(REFUSALS.error(Fault("AccessDeniedException", DENIED))) == access_sentence(DENIED)


@pytest.mark.parametrize(
    ("rest", "what"),
    [
        ('s3:GetObject on resource: "arn:aws:s3:::b/k" because no', "s3:GetObject on arn:aws:s3:::b/k"),
        ("pricing:GetProducts because no identity-based policy", "pricing:GetProducts"),
        ("pricing:GetProducts on resource: * because no", "pricing:GetProducts"),
    ],
)
def test_a_denial_names_the_resource_where_there_is_one(rest: str, what: str) -> None:
    user = "arn:aws:iam::111122223333:user/ops"
    assert access_sentence(f"User: {user} is not authorized to perform: {rest}") == f"user/ops lacks {what}"


@pytest.mark.parametrize("message", ["", "Access to this resource is denied.", "is not authorized to perform: x"])
def test_a_denial_in_other_words_is_kept_as_it_is(message: str) -> None:
    assert access_sentence(message) == f"access denied: {message}"
