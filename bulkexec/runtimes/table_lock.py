"""One mutating run a table: by a file among the runs of this machine, by the control table with all others."""

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import boto3
import botocore.exceptions

from bulkexec import errors
from bulkexec.control import LOCK_RENEWAL_SECONDS, LOCK_SECONDS, ControlTable
from bulkexec.describe import denied, user_errors, why_refused
from bulkexec.model import Table
from bulkexec.runtimes.deployment import CONTROL_TABLE
from bulkexec.runtimes.file_lock import FileLock


class TableLock:
    """While entered, no other mutating job has the table. Raises `errors.TableLocked` on entry when one has it.

    Where there is no control table, or the caller may not write it, runs on other machines cannot be kept away; those
    on this machine are. `ran_here` says whether a job was run by this machine: once its file is free it is dead, and
    need not be waited for. `lost` says why the lock is ours no longer: the run must stop.
    """

    def __init__(
        self,
        session: boto3.Session,
        table: Table,
        job_id: str,
        directory: Path,
        say: Callable[[str], None],
        renewal_seconds: float = LOCK_RENEWAL_SECONDS,
        ran_here: Callable[[str], bool] = lambda job_id: False,
    ) -> None:
        self._ran_here = ran_here
        self._table, self._job_id, self._say, self._renewal_seconds = table, job_id, say, renewal_seconds
        self._control = ControlTable(session, table.region, CONTROL_TABLE)
        self._file = FileLock(directory / f"{hashlib.sha256(table.arn.encode()).hexdigest()[:16]}.lock")
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost: errors.TableLocked | None = None

    def __enter__(self) -> "TableLock":
        holder = self._file.acquire(self._job_id)
        if holder is not None:
            raise errors.TableLocked(
                f"job {holder or 'of another process'} on this machine is changing {self._table.name}",
                fix="wait for its end",
                state="nothing written",
            )
        try:
            if self._take():
                self._thread = threading.Thread(target=self._renew, name="table lock", daemon=True)
                self._thread.start()
        except BaseException:
            self._file.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            # Threads may still be writing until the process has ended: both locks end by themselves after that.
            return
        if self._thread is not None:
            self._thread.join()
            if self.lost is None:
                self._give_back()
        self._file.release()

    def _take(self) -> bool:
        """Whether the control table has the lock. False where there is none, or where that is not permitted."""
        with user_errors(f"lock table {self._table.name}"):
            try:
                self._lock()
            except botocore.exceptions.ClientError as error:
                if error.response["Error"].get("Code", "") == "ResourceNotFoundException":
                    return False
                if not denied(error):
                    raise
                self._say(f"note: {why_refused(error)}; jobs elsewhere are not kept off the table")
                return False
        return True

    def _lock(self) -> None:
        """Take the table; from a job of this machine that died, for it can hold the lock's file no longer."""
        try:
            self._control.lock(self._table.arn, self._job_id)
        except errors.TableLocked as locked:
            if not self._ran_here(locked.holder):
                raise
            self._control.unlock(self._table.arn, locked.holder)
            self._control.lock(self._table.arn, self._job_id)
            self._say(f"note: job {locked.holder} of this machine died; its lock on the table is taken over")

    def _renew(self) -> None:
        renewed = time.monotonic()
        while not self._ended.wait(self._renewal_seconds):
            try:
                self._control.lock(self._table.arn, self._job_id)
                renewed = time.monotonic()
            except errors.TableLocked as error:
                self.lost = _lost(self._table, error.message)
                return
            except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
                if time.monotonic() - renewed > LOCK_SECONDS - 2 * self._renewal_seconds:
                    self.lost = _lost(self._table, f"it could not be renewed: {error}")
                    return

    def _give_back(self) -> None:
        try:
            self._control.unlock(self._table.arn, self._job_id)
        except botocore.exceptions.ClientError as error:
            self._left(why_refused(error))
        except botocore.exceptions.BotoCoreError as error:
            self._left(type(error).__name__)

    def _left(self, why: str) -> None:
        self._say(f"note: the table's lock ends by itself within {LOCK_SECONDS:g} s ({why})")


def _lost(table: Table, why: str) -> errors.TableLocked:
    return errors.TableLocked(
        f"the lock on table {table.name} was lost, so this job stopped",
        why=why,
        state="everything up to the last page is counted",
    )
