"""A sandbox as a process of its own: start, find, stop."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError

from bulkexec.sandbox.control import SandboxControl
from bulkexec.sandbox.options import SandboxOptions, state_directory

EMULATOR_VERSION = "1.5.33"
"""The ministack whose insides `emulated_dynamodb` and `logs_store` know."""

START_SECONDS = 30.0
STOP_SECONDS = 10.0

_children: dict[int, "subprocess.Popen[bytes]"] = {}
"""Sandboxes this process started: their exit has to be collected here."""


class SandboxError(RuntimeError):
    """The server's process ended, or does not answer."""


@dataclass(frozen=True)
class Running:
    """A sandbox that answers."""

    pid: int
    port: int
    region: str
    log: str

    @property
    def endpoint(self) -> str:
        """The one URL under which every service answers."""
        return f"http://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Whether the process that listens on the port is still this one."""
        try:
            return bool(SandboxControl(self.endpoint).health()["pid"] == self.pid)
        except (URLError, OSError, ValueError, KeyError):
            return False


def start(options: SandboxOptions) -> Running:
    """Starts a sandbox in the background and returns when it answers; port 0 takes a free one.

    Raises OSError when the port is taken, SandboxError when the process ends or stays silent or cannot be run at all.
    """
    check_installed()
    listener = bind(options.port)
    with listener:
        options = settled(options, listener)
        log = options.work_dir / "server.log"
        process = _spawn(options, listener.fileno(), log)
    _children[process.pid] = process
    running = Running(process.pid, options.port, options.region, str(log))
    _await_answer(process, running)
    return running


def check_installed() -> None:
    """Raises SandboxError unless the emulator is there, in the version that the sandbox is made for."""
    try:
        found = version("ministack")
    except PackageNotFoundError as error:
        raise SandboxError("ministack is not installed; run: pip install 'bulkexec[sandbox]'") from error
    if found != EMULATOR_VERSION:
        raise SandboxError(f"ministack {EMULATOR_VERSION} is needed, {found} is installed")


def bind(port: int) -> socket.socket:
    """A listening socket on loopback. Raises OSError when the port is taken."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(256)
    return listener


def settled(options: SandboxOptions, listener: socket.socket) -> SandboxOptions:
    """The options with the port that was given out, and with a work directory for it alone, which is made."""
    port = listener.getsockname()[1]
    directory = options.work_dir / str(port)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return replace(options, port=port, work_dir=directory)


def server_command(options: SandboxOptions, listening_fd: int) -> list[str]:
    """The command line of the server's process."""
    from bulkexec.sandbox.server import options_to_json

    return [sys.executable, "-m", "bulkexec.sandbox.server", options_to_json(options), str(listening_fd)]


def _spawn(options: SandboxOptions, listening_fd: int, log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            server_command(options, listening_fd),
            env=_importing_this_package(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[listening_fd],
            start_new_session=True,
        )


def _importing_this_package() -> dict[str, str]:
    """The environment, with this very package importable: a checkout works without being installed."""
    package_parent = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{package_parent}{os.pathsep}{inherited}" if inherited else package_parent}


def _await_answer(process: "subprocess.Popen[bytes]", running: Running) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not running.answers():
        if process.poll() is not None:
            raise SandboxError(f"the sandbox ended with code {process.returncode}; see {running.log}")
        if time.monotonic() > deadline:
            process.kill()
            raise SandboxError(f"the sandbox did not answer within {START_SECONDS:.0f} s; see {running.log}")
        time.sleep(0.05)


def stop(running: Running) -> None:
    """Ends a sandbox and the jobs it started: SIGTERM, and after 10 s SIGKILL."""
    try:
        os.kill(running.pid, signal.SIGTERM)
        if not _gone_within(running.pid, STOP_SECONDS):
            os.kill(running.pid, signal.SIGKILL)
            _gone_within(running.pid, STOP_SECONDS)
    except ProcessLookupError:
        return


def _gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if _gone(pid):
            return True
        time.sleep(0.02)
    return _gone(pid)


def _gone(pid: int) -> bool:
    if child := _children.get(pid):
        return child.poll() is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _state_file(port: int) -> Path:
    return state_directory() / f"{port}.json"


def remember(running: Running) -> None:
    """Notes a sandbox, so that later commands find it by its port."""
    _state_file(running.port).parent.mkdir(parents=True, exist_ok=True)
    _state_file(running.port).write_text(json.dumps(asdict(running)))


def find(port: int) -> Running | None:
    """The sandbox noted under a port, if it still answers; forgets one that does not."""
    try:
        running = Running(**json.loads(_state_file(port).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if running.answers():
        return running
    forget(port)
    return None


def forget(port: int) -> None:
    """Removes a note and the work directory that belongs to it."""
    _state_file(port).unlink(missing_ok=True)
    shutil.rmtree(state_directory() / str(port), ignore_errors=True)


def environment(running: Running) -> dict[str, str]:
    """What a process needs in its environment so that boto3 and the AWS CLI talk to a sandbox only.

    Live Tail is addressed by a host prefix, which loopback has no name for, so prefixes are off.
    """
    unproxied = ",".join(filter(None, (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1")))
    return {
        "AWS_ENDPOINT_URL": running.endpoint,
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_DEFAULT_REGION": running.region,
        "AWS_REGION": running.region,
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": unproxied,
        "no_proxy": unproxied,
    }


UNSET = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Variables that would lead boto3 elsewhere."""


def client(running: Running, service: str, **config: Any) -> Any:
    """A boto3 client of a sandbox, whatever the environment says; `config` as for botocore.config.Config."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        service,
        endpoint_url=running.endpoint,
        region_name=running.region,
        aws_access_key_id="sandbox",
        aws_secret_access_key="sandbox",  # noqa: S106 (the sandbox takes any)
        config=Config(**{"inject_host_prefix": False, "proxies": {}, "max_pool_connections": 32, **config}),
    )


class Sandbox:
    """A sandbox for the length of a `with` block, on a free port, with a directory of its own."""

    def __init__(self, **options: Any) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="bulkexec-sandbox-", ignore_cleanup_errors=True)
        self.options = SandboxOptions(**{"port": 0, "work_dir": Path(self._directory.name), **options})
        self._running: Running | None = None

    def __enter__(self) -> "Sandbox":
        self._running = start(self.options)
        self.options = replace(self.options, port=self._running.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> Running:
        """The process. Raises SandboxError before the start."""
        if self._running is None:
            raise SandboxError("not started")
        return self._running

    @property
    def endpoint(self) -> str:
        """The one URL under which every service answers."""
        return self.running.endpoint

    @property
    def control(self) -> SandboxControl:
        """Faults and statistics."""
        return SandboxControl(self.endpoint)

    def env(self) -> dict[str, str]:
        """A whole environment for a subprocess that talks to this sandbox."""
        inherited = {name: value for name, value in os.environ.items() if name not in UNSET}
        return inherited | environment(self.running)

    def client(self, service: str, **config: Any) -> Any:
        """A boto3 client of this sandbox; `config` as for botocore.config.Config."""
        return client(self.running, service, **config)

    def stop(self) -> None:
        """Ends the process and every job it started. More than once is fine."""
        if self._running is not None:
            stop(self._running)
            self._running = None
        self._directory.cleanup()
