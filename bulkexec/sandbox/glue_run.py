"""One Glue job run: a real Spark driver in a process session of its own, and the thread that watches it."""

import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bulkexec.sandbox.glue_output import RunOutput
from bulkexec.sandbox.glue_process import kill_session, terminate_session
from bulkexec.sandbox.glue_stage import Clients, LaunchError, Staged, role_credentials, stage
from bulkexec.sandbox.options import SandboxOptions

logger = logging.getLogger(__name__)

ENDED = frozenset({"STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR"})
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class RunSettings:
    """What a run is started with. `arguments` are merged; `timeout_seconds` counts from RUNNING."""

    job_id: str
    script: str
    role: str
    arguments: dict[str, str]
    timeout_seconds: float
    lines_per_event: int
    session_policy: str | None = None


class JobRun:
    """A job run from STARTING (or WAITING for a slot) to its end. `record` is Glue's JobRun structure.

    Thread-safe: any thread may look or ask it to stop, only its own thread changes its state.
    """

    def __init__(
        self,
        record: dict[str, Any],
        settings: RunSettings,
        options: SandboxOptions,
        clients: Clients,
        admitted: Callable[["JobRun"], bool],
    ) -> None:
        self.id: str = record["Id"]
        self.job_name: str = record["JobName"]
        self._record, self._settings, self._options, self._clients = record, settings, options, clients
        self._admitted = admitted
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._closed = threading.Event()
        self._session: int | None = None
        self._began: float | None = None
        self._kill_at: float | None = None
        self._timed_out = False
        self._thread = threading.Thread(target=self._drive, name=f"glue-{self.id[:12]}", daemon=True)

    def start(self) -> None:
        """Starts the run's thread."""
        self._thread.start()

    @property
    def state(self) -> str:
        """Its JobRunState."""
        with self._lock:
            return str(self._record["JobRunState"])

    @property
    def ended(self) -> bool:
        """Whether its state is final."""
        return self.state in ENDED

    def snapshot(self) -> dict[str, Any]:
        """Glue's JobRun structure as of now."""
        with self._lock:
            record = dict(self._record)
        if record["JobRunState"] not in ENDED:
            record["ExecutionTime"] = int(self._running_seconds())
        return record

    def request_stop(self) -> bool:
        """Asks the run to end; False when it has ended already."""
        with self._lock:
            if self._record["JobRunState"] in ENDED:
                return False
            self._record.update(JobRunState="STOPPING", LastModifiedOn=time.time())
        self._stop.set()
        return True

    def close(self) -> None:
        """Kills every process of the run at once, and leaves its record as it is."""
        self._closed.set()
        self._stop.set()
        if self._session is not None:
            kill_session(self._session)

    def _update(self, **members: Any) -> None:
        with self._lock:
            self._record.update(members, LastModifiedOn=time.time())

    def _advance(self, state: str) -> None:
        """On to the next state, unless a stop has been asked for."""
        with self._lock:
            if self._record["JobRunState"] != "STOPPING":
                self._record.update(JobRunState=state, LastModifiedOn=time.time())

    def _drive(self) -> None:
        directory = self._options.work_dir / "glue" / self.id
        try:
            state, message = self._run(directory)
        except LaunchError as error:
            state, message = "FAILED", str(error)
        except Exception as error:  # the thread's boundary: reported as the run's error
            logger.exception("job run %s", self.id)
            state, message = "ERROR", f"Internal service error: {error}"
        self._end(state, message)
        shutil.rmtree(directory, ignore_errors=True)

    def _run(self, directory: Path) -> tuple[str, str]:
        while not self._admitted(self):
            if self._stop.wait(POLL_SECONDS):
                return "STOPPED", ""
        self._advance("STARTING")
        staged = self._stage(directory)
        if self._stop.is_set():
            return "STOPPED", ""
        return self._verdict(self._execute(staged), staged)

    def _stage(self, directory: Path) -> Staged:
        settings = self._settings
        credentials = role_credentials(
            self._clients, settings.role, self._options.account, self.id, settings.session_policy
        )
        # From here on, as in Glue, everything is done with the job's role: fetching the script, writing the log.
        self._clients = self._clients.acting_as(credentials)
        layout = stage(self._options, self._clients, directory, settings.script, settings.arguments)
        version = self._record["GlueVersion"]
        return layout.launch(self._options, version, self._clients.endpoint, credentials, self._argv())

    def _argv(self) -> list[str]:
        names = {"--JOB_NAME": self._record["JobName"], "--JOB_ID": self._settings.job_id, "--JOB_RUN_ID": self.id}
        return [word for pair in {**names, **self._settings.arguments}.items() for word in pair]

    def _execute(self, staged: Staged) -> int:
        """Runs the driver to its end; its exit code, negative for a signal."""
        lifeline, held = os.pipe()
        try:
            process = _launched(staged, lifeline)
            self._session, self._began = process.pid, time.monotonic()
            self._advance("RUNNING")
            self._watch(process, staged)
        finally:
            os.close(lifeline)
            os.close(held)
        return process.returncode

    def _watch(self, process: "subprocess.Popen[bytes]", staged: Staged) -> None:
        executor = f"g-{self.id[-40:]}"
        output = RunOutput(
            self._clients.logs, self.id, executor, process, staged.directory, self._settings.lines_per_event
        )
        while process.poll() is None:
            output.pump(POLL_SECONDS)
            self._enforce(process.pid)
        # The JVM and its Python workers can outlive a driver that was killed.
        kill_session(process.pid)
        self._update(ExecutionTime=round(self._running_seconds()))
        if not self._closed.is_set():
            output.drain()

    def _running_seconds(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _enforce(self, session: int) -> None:
        """Ends the run when it was asked to stop or has run out of time."""
        now = time.monotonic()
        if self._stop.is_set() and self._kill_at is None:
            self._kill_at = now + self._options.stop_grace_seconds
            if self._options.stop_grace_seconds:
                terminate_session(session)
        if self._kill_at is None and self._running_seconds() > self._settings.timeout_seconds:
            self._timed_out, self._kill_at = True, now
        if self._kill_at is not None and now >= self._kill_at:
            kill_session(session)

    def _verdict(self, exit_code: int, staged: Staged) -> tuple[str, str]:
        if self._timed_out:
            return "TIMEOUT", "Job run timed out"
        if self._stop.is_set():
            return "STOPPED", ""
        if exit_code == 0:
            return "SUCCEEDED", ""
        if staged.error_file.exists():
            return "FAILED", staged.error_file.read_text(encoding="utf-8")
        # As a shell reports a process that a signal ended.
        code = exit_code if exit_code > 0 else 128 - exit_code
        return "FAILED", f"Command failed with exit code {code}"

    def _end(self, state: str, message: str) -> None:
        with self._lock:
            if self._record["JobRunState"] == "STOPPING" and state not in ("SUCCEEDED", "FAILED"):
                state = "STOPPED"
            now = time.time()
            self._record.update(JobRunState=state, CompletedOn=now, LastModifiedOn=now)
            if message:
                self._record["ErrorMessage"] = message
            if self._record.get("ExecutionClass") == "FLEX":
                self._record["DPUSeconds"] = self._record["MaxCapacity"] * max(self._record["ExecutionTime"], 60.0)


def _launched(staged: Staged, lifeline: int) -> "subprocess.Popen[bytes]":
    """The driver, in a session of its own. It ends itself when the other end of `lifeline` closes with the sandbox."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and launcher; the script is the user's purpose
        staged.command,
        env={**staged.environment, "SANDBOX_GLUE_LIFELINE": str(lifeline)},
        cwd=staged.directory / "tmp",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[lifeline],
        start_new_session=True,
    )
