"""How a client bears with errors while a job runs: what passes is waited out, what does not is told with what goes on.

The job does not depend on its client. So an error here never says that the job failed, and none of it is worth giving
up at once: GetJobRun is throttled when many runs are watched, and networks come and go.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import botocore.exceptions

from bulkexec import errors
from bulkexec.describe import user_errors
from bulkexec.wire import THROTTLE_CODES

PATIENCE_SECONDS = 600.0
"""So long an outage is waited out."""
LONGEST_PAUSE_SECONDS = 20.0
AWS_ERRORS = (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError)
_NO_ANSWER = (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError)
_NOT_SENT = (botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectTimeoutError)

T = TypeVar("T")


def transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, botocore.exceptions.ClientError):
        return _throttled(error) or _status(error) >= 500
    return isinstance(error, _NO_ANSWER)


def unclear(error: Exception) -> bool:
    """Whether the request may have taken effect all the same."""
    if isinstance(error, botocore.exceptions.ClientError):
        return _status(error) >= 500 and not _throttled(error)
    return isinstance(error, _NO_ANSWER) and not isinstance(error, _NOT_SENT)


def _throttled(error: botocore.exceptions.ClientError) -> bool:
    return error.response.get("Error", {}).get("Code", "") in THROTTLE_CODES


def _status(error: botocore.exceptions.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class Patience:
    """Repeats what fails for a passing reason, for `seconds` in a row at most.

    `state` goes with every error that is raised. With `say`, errors are said, each once, and never raised.
    """

    def __init__(self, state: str, say: Callable[[str], None] | None = None, seconds: float = PATIENCE_SECONDS) -> None:
        self._state, self._say, self._seconds = state, say, seconds
        self._since, self._failures = 0.0, 0
        self._said: set[str] = set()

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next try; 0 after a success."""
        return min(2.0 ** (self._failures - 1), LONGEST_PAUSE_SECONDS) if self._failures else 0.0

    @contextmanager
    def trying(self, doing: str) -> Iterator[None]:
        """One try. It ends quietly when the next one may succeed, else in an error of ours."""
        try:
            yield
            self._failures = 0
        except AWS_ERRORS as error:
            self._failed(error, doing)

    def call(self, doing: str, work: Callable[[], T]) -> T:
        """Try until it succeeds."""
        done: list[T] = []
        while not done:
            time.sleep(self.pause_seconds)
            with self.trying(doing):
                done.append(work())
        return done[0]

    def _failed(self, error: Exception, doing: str) -> None:
        now = time.monotonic()
        self._since = self._since if self._failures else now
        self._failures += 1
        if self._say is not None:
            self._say_once(f"{doing}: {_in_words(error, doing).message}")
        elif not transient(error) or now - self._since > self._seconds:
            ours = _in_words(error, doing)
            raise type(ours)(ours.message, why=ours.why, fix=ours.fix, state=self._state) from error

    def _say_once(self, line: str) -> None:
        assert self._say is not None
        if line not in self._said:
            self._said.add(line)
            self._say(line)


def _in_words(error: Exception, doing: str) -> errors.BulkexecError:
    try:
        with user_errors(doing):
            raise error
    except errors.BulkexecError as ours:
        return ours
    except AWS_ERRORS as other:
        return errors.RequestRejected(f"cannot {doing}: {other}")
