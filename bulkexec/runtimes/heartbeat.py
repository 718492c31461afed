"""What goes on beside the walk: the driver keeps the table's lock and says how it goes, workers ask whether to stop."""

import threading
import time
from collections.abc import Callable

from botocore.config import Config

from bulkexec import errors
from bulkexec.control import LOCK_RENEWAL_SECONDS, LOCK_SECONDS, ControlTable
from bulkexec.describe import user_errors
from bulkexec.runtimes.patience import AWS_ERRORS

RENEWAL_CONFIG = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
"""One renewal must not outlast the lock; this loop tries again itself."""
RETRY_SECONDS = 2.0
MARGIN_SECONDS = 10.0
"""So long before the lock lapses the run begins to stop: workers need a page's time."""
STOP_POLL_SECONDS = 1.0


class Background:
    """While entered, a thread runs `work(ended)`. An exception that leaves `work` goes to `failed`."""

    def __init__(self, work: Callable[[threading.Event], None], failed: Callable[[Exception], None]) -> None:
        self._ended, self._work, self._failed = threading.Event(), work, failed
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work(self._ended)
        except Exception as error:  # noqa: BLE001 - the thread's boundary: handed to who can report it
            self._failed(error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class LockKeeper:
    """Holds the table for one run of a job: taken by `take`, renewed by the thread that runs `keep`.

    When another job has the table, or the lock could not be renewed in time, `lost` is called with the reason, once.
    """

    def __init__(
        self,
        control: ControlTable,
        table_arn: str,
        job: tuple[str, int],
        lost: Callable[[errors.BulkexecError], None],
        log: Callable[[str], None],
    ) -> None:
        self._control, self._arn, (self._job_id, self._run_number) = control, table_arn, job
        self._lost, self._log = lost, log
        self._until = 0.0

    def take(self) -> None:
        """Take the lock. Raises `errors.TableLocked`, and botocore's errors."""
        self._until = self._control.lock(self._arn, self._job_id, self._run_number)

    def keep(self, ended: threading.Event) -> None:
        """Renew until `ended`."""
        pause = LOCK_RENEWAL_SECONDS
        while not ended.wait(pause):
            try:
                self.take()
                pause = LOCK_RENEWAL_SECONDS
            except errors.TableLocked as error:
                return self._lost(error)
            except AWS_ERRORS as error:
                self._log(f"the lock of the table could not be renewed: {error}")
                if time.time() > self._until - MARGIN_SECONDS:
                    return self._lost(self._lapsed(error))
                pause = RETRY_SECONDS
        return None

    def failed(self, error: Exception) -> None:
        """For `Background`: a lock that nobody renews is as good as lost."""
        self._lost(self._lapsed(error))

    def _lapsed(self, error: Exception) -> errors.TableLocked:
        return errors.TableLocked(
            f"the lock of the table could not be renewed for {LOCK_SECONDS:g} s, so the run stopped",
            why=str(error),
            fix=f"bulkexec resume {self._job_id}",
            state="everything acknowledged is counted",
        )


class ProgressLog:
    """Logs progress every `seconds`; less often when reading it takes long. An error is one line, and the next try."""

    def __init__(self, read: Callable[[], str], log: Callable[[str], None], seconds: float) -> None:
        self._read, self._log, self._seconds = read, log, seconds

    def keep(self, ended: threading.Event) -> None:
        """Log until `ended`."""
        took = 0.0
        while not ended.wait(max(self._seconds, 10 * took)):
            begun = time.monotonic()
            try:
                self._log(self._read())
            except AWS_ERRORS as error:
                self._log(f"progress cannot be read now: {error}")
            took = time.monotonic() - begun

    def failed(self, error: Exception) -> None:
        """For `Background`: progress is for people only."""
        self._log(f"progress is not logged any more: {error!r}")


class StopPoll:
    """Says whether a worker should stop: asks the control table once a second, from whichever thread comes first.

    A worker that cannot ask, for as long as the client's own retries last, stops: it may not know that it should.
    `error` is why.
    """

    def __init__(self, control: ControlTable, job_id: str, run_number: int, run_id: str) -> None:
        self._control, self._job_id, self._run = control, job_id, (run_number, run_id)
        self._lock, self._asked, self._reason = threading.Lock(), 0.0, ""
        self.error: errors.BulkexecError | None = None

    def __call__(self) -> bool:
        with self._lock:
            if not self._reason and time.monotonic() - self._asked > STOP_POLL_SECONDS:
                self._reason = self._ask()
                self._asked = time.monotonic()
            return bool(self._reason)

    def _ask(self) -> str:
        try:
            with user_errors(f"ask whether job {self._job_id} goes on"):
                return self._control.stop_reason(self._job_id, *self._run)
        except errors.BulkexecError as error:
            self.error = error
            return error.message
