"""One request to DynamoDB and its answer, as bytes: signing, HTTP, CRC, error classes, retry of a whole request.

botocore gives credentials and their refresh, region, endpoint, proxies, CA bundle and the lists of retryable codes;
its parser is not used, because it builds a dict for every item. `Wire.call` is the seam that tests and faster
transports stand behind.
"""

import binascii
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, Protocol
from urllib.parse import urlsplit

import boto3
import botocore.exceptions
import msgspec
from botocore.awsrequest import AWSPreparedRequest, HeadersDict
from botocore.config import Config
from botocore.httpsession import URLLib3Session, get_cert_path
from botocore.utils import get_environ_proxies

from bulkexec import errors
from bulkexec.sigv4 import Credentials, Signer
from bulkexec.transport import (
    CONNECT_TIMEOUT_SECONDS,
    READ_TIMEOUT_SECONDS,
    Answer,
    Damaged,
    Lost,
    NotSent,
    Transport,
    TransportError,
)

BACKOFF_BASE_SECONDS = 0.05
BACKOFF_CAP_SECONDS = 5.0

THROTTLE_CODES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "ThrottlingException",
        "ThrottlingError",
        "Throttling",
        "RequestLimitExceeded",
    }
)
"""Codes that mean "slower"; both the exception names and their per-statement spellings (case C056)."""

TRANSIENT_CODES = frozenset(
    {
        "InternalServerError",
        "InternalFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)
NO_CONNECTION = "NoConnection"
LOST_CODES = frozenset({"ConnectionLost", "ChecksumMismatch", NO_CONNECTION})
_TRANSPORT_CODES: dict[type[TransportError], str] = {
    NotSent: NO_CONNECTION,
    Lost: "ConnectionLost",
    Damaged: "ChecksumMismatch",
}
EXPIRED_ATTEMPTS = 3
EXPIRED_CODES = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
CREDENTIAL_CODES = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidSignatureException",
        "IncompleteSignatureException",
        "MissingAuthenticationTokenException",
        "InvalidClientTokenId",
    }
)


class Fault(Exception):
    """An error answer, or none at all (`code` "ConnectionLost"). `lost` says that the request may have taken effect."""

    def __init__(self, code: str, message: str, *, status: int = 400, reasons: tuple[str, ...] = ()) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status, self.reasons = code, message, status, reasons
        self.lost = (code in LOST_CODES and code != NO_CONNECTION) or status >= 500

    @property
    def throttle(self) -> bool:
        """Whether the service asks for a slower pace."""
        return self.code in THROTTLE_CODES

    @property
    def expired(self) -> bool:
        """Whether fresh credentials would help."""
        return self.code in EXPIRED_CODES

    @property
    def again(self) -> bool:
        """Whether the same request may succeed later."""
        return self.throttle or self.code in TRANSIENT_CODES or self.code in LOST_CODES or self.status >= 500


Answering = Callable[[], bytes]
"""Waits for the answer to a request that was sent, and gives its body."""


class Wire(Protocol):
    """Sends one request and gives the answer's body. Raises `Fault`."""

    def call(self, operation: str, body: bytes) -> bytes:
        """The answer to `operation` ("Scan") with this JSON body."""

    def begin(self, operation: str, body: bytes) -> Answering:
        """Send it without waiting for the answer, which the function gives, or raises `Fault`; call that once."""


class _ErrorBody(msgspec.Struct):
    type: str = msgspec.field(name="__type", default="")
    message: str = ""
    Message: str = ""
    ThrottlingReasons: list[dict[str, Any]] = []


class HttpWire:
    """The real thing: one pool of kept-alive connections to one endpoint. Thread-safe."""

    def __init__(self, session: boto3.Session, region: str, connections: int = 32) -> None:
        client = session.client("dynamodb", region_name=region, config=Config(max_pool_connections=connections))
        self._url = client.meta.endpoint_url.rstrip("/") + "/"
        self._session = session
        self._signer = Signer(urlsplit(self._url).netloc, region, self._credentials)
        core = session._session  # boto3 has no public way to the botocore session that carries the configuration
        ca_bundle = core.get_config_variable("ca_bundle") or get_cert_path(True)
        proxies = client.meta.config.proxies or get_environ_proxies(self._url)
        self._http = (
            _Proxied(self._url, ca_bundle, proxies, connections)
            if proxies
            else Transport(self._url, ca_bundle=ca_bundle, idle_connections=connections)
        )

    def _credentials(self) -> Credentials:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise errors.NoCredentials("no AWS credentials were found", fix="set a profile or AWS_ACCESS_KEY_ID")
        frozen = credentials.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def call(self, operation: str, body: bytes) -> bytes:
        """See `Wire.call`."""
        return self.begin(operation, body)()

    def begin(self, operation: str, body: bytes) -> Answering:
        """See `Wire.begin`."""
        return partial(self._content, self._http.begin(self._signer.headers(operation, body), body))

    def _content(self, receive: Callable[[], Answer]) -> bytes:
        try:
            answer = receive()
        except TransportError as error:
            raise Fault(_TRANSPORT_CODES[type(error)], str(error)) from error
        if answer.status == 200:
            return answer.content
        fault = _fault(answer.status, answer.content)
        if fault.code in EXPIRED_CODES:
            self._signer.forget()
        raise fault


class _Proxied:
    """botocore's own HTTP, for an endpoint behind a proxy; raises what `Transport` raises."""

    def __init__(self, url: str, ca_bundle: str, proxies: Mapping[str, str], connections: int) -> None:
        self._url = url
        self._http = URLLib3Session(
            verify=ca_bundle,
            proxies=proxies,
            timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
            max_pool_connections=connections,
        )
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="proxied")

    def begin(self, headers: Mapping[str, str], body: bytes) -> Callable[[], Answer]:
        """See `Transport.begin`."""
        return self._threads.submit(self.post, headers, body).result

    def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """See `Transport.post`."""
        try:
            answer = self._http.send(AWSPreparedRequest("POST", self._url, HeadersDict(headers), body, False))
            content = bytes(answer.content)
        except (botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectTimeoutError) as error:
            raise NotSent(str(error)) from error  # a connection that could not be made carried nothing
        except (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError) as error:
            raise Lost(str(error)) from error
        expected = answer.headers.get("x-amz-crc32")
        if (
            expected is not None
            and "content-encoding" not in answer.headers
            and int(expected) != binascii.crc32(content)
        ):
            raise Damaged("the answer's CRC32 does not match its body")
        return Answer(answer.status_code, content)


def _fault(status: int, content: bytes) -> Fault:
    try:
        body = msgspec.json.decode(content, type=_ErrorBody)
    except msgspec.DecodeError:
        body = _ErrorBody()
    code = body.type.rsplit("#", 1)[-1] or ("InternalServerError" if status >= 500 else f"Http{status}")
    reasons = tuple(str(reason.get("reason", "")) for reason in body.ThrottlingReasons)
    return Fault(code, body.message or body.Message or f"HTTP {status}", status=status, reasons=reasons)


@dataclass
class Retry:
    """Full-jitter exponential backoff until a deadline without progress.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("full jitter").
    """

    deadline_seconds: float = 120.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.Random)

    def start(self) -> "Attempts":
        """A fresh series of attempts."""
        return Attempts(self, self.clock())


class Attempts:
    """The attempts at one piece of work. `wait` before each further one; `progress` restarts the deadline."""

    def __init__(self, retry: Retry, started: float) -> None:
        self._retry, self._started, self.number = retry, started, 0

    def progress(self) -> None:
        """Something was acknowledged: the deadline and the backoff start again."""
        self._started, self.number = self._retry.clock(), 0

    def wait(self) -> bool:
        """Sleep before the next attempt. False once the deadline has passed."""
        if self._retry.clock() - self._started > self._retry.deadline_seconds:
            return False
        ceiling = min(BACKOFF_CAP_SECONDS, BACKOFF_BASE_SECONDS * 2**self.number)
        self.number += 1
        self._retry.sleep(self._retry.chance.uniform(0, ceiling))
        return True


@dataclass
class Refusals:
    """Turns a fault that no retry mends into the error a user reads. `what` names the table."""

    what: str
    region: str

    def raise_for(self, fault: Fault) -> NoReturn:
        """Raise the error class of this fault."""
        raise self.error(fault) from fault

    def error(self, fault: Fault) -> errors.BulkexecError:
        """The error of this fault."""
        if fault.code == "AccessDeniedException":
            return errors.AccessDenied(
                access_sentence(fault.message), fix="bulkexec doctor; grant the action named above"
            )
        if fault.code == "ResourceNotFoundException":
            return errors.TableMissing(f"table {self.what} does not exist in {self.region}")
        if fault.code in EXPIRED_CODES or fault.code in CREDENTIAL_CODES:
            return errors.NoCredentials(
                f"AWS does not accept the credentials ({fault.code})", fix="log in again, then resume"
            )
        if fault.code == NO_CONNECTION:
            return errors.Unreachable(f"cannot connect to DynamoDB in {self.region}", why=fault.message)
        if fault.again:
            return errors.Exhausted(f"{self.what}: {fault.code} outlasted every retry", why=fault.message)
        return errors.RequestRejected(f"DynamoDB refused a request on {self.what}: {fault.message}", why=fault.code)


def access_sentence(message: str) -> str:
    """IAM's own sentence without its prefix: who lacks which action on what (case C096)."""
    head, separator, rest = message.partition(" is not authorized to perform: ")
    who = head.removeprefix("User: ").split(":", 5)[-1]
    if not separator:
        return f"access denied: {message}"
    action, _, resource = rest.partition(" on resource: ")
    # Some services name no resource, S3 quotes it, and "*" says nothing.
    named = resource.split(" ", 1)[0].strip('"')
    return f"{who} lacks {action.split(' ', 1)[0]}" + (f" on {named}" if named not in ("", "*") else "")


OnThrottle = Callable[[Sequence[str]], None]
"""Called for each throttled request with its ThrottlingReasons, if it gave any."""


class Retrying:
    """Calls through a wire and tries whole requests again while that can help. Every throttle goes to `on_throttle`."""

    def __init__(self, wire: Wire, refusals: Refusals, retry: Retry | None = None) -> None:
        self._wire, self.refusals, self.retry = wire, refusals, retry or Retry()

    def begin(self, operation: str, body: bytes) -> Answering:
        """Send the first attempt at a request; give it to `attempt`, which sees it through."""
        return self._wire.begin(operation, body)

    def call(
        self,
        operation: str,
        body: bytes,
        on_throttle: OnThrottle = lambda reasons: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[bytes, bool]:
        """(answer, lost); lost: an earlier attempt may have had its effect. Raises `Stopped`, else a user's error."""
        try:
            return self.attempt(operation, body, on_throttle, stop)
        except Fault as fault:
            self.refusals.raise_for(fault)

    def attempt(
        self,
        operation: str,
        body: bytes,
        on_throttle: OnThrottle = lambda reasons: None,
        stop: Callable[[], bool] = lambda: False,
        resend_lost: bool = True,
        begun: Answering | None = None,
    ) -> tuple[bytes, bool]:
        """As `call`, but the fault that no retry mends is raised as it is, `lost` set if any attempt's answer was.

        `begun` is the first attempt, if that was sent already (see `begin`).
        Without `resend_lost` a lost answer is such a fault, for requests that must not take effect twice.
        """
        attempts, lost, expired = self.retry.start(), False, 0
        while True:
            try:
                return (begun() if begun is not None else self._wire.call(operation, body)), lost
            except Fault as fault:
                begun = None
                expired += fault.expired
                lost = fault.lost = lost or fault.lost
                if fault.throttle:
                    on_throttle(fault.reasons)
                if not (fault.again or (fault.expired and expired <= EXPIRED_ATTEMPTS)):
                    raise
                if lost and not resend_lost:
                    raise
                if stop():
                    raise Stopped from fault
                if not attempts.wait():
                    raise


class Stopped(Exception):
    """A read was given up between two attempts because the run is draining."""
