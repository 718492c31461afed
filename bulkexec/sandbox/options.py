"""How one sandbox is set up."""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

DEFAULT_PORT = 4599
ENVIRONMENT_PREFIX = "BULKEXEC_SANDBOX_"
IAM_MODES = ("off", "record", "enforce")


def state_directory() -> Path:
    """Where sandboxes keep their state files and working directories: BULKEXEC_SANDBOX_DIR, or XDG_STATE_HOME."""
    if chosen := os.environ.get("BULKEXEC_SANDBOX_DIR"):
        return Path(chosen)
    if state_home := os.environ.get("XDG_STATE_HOME"):
        return Path(state_home) / "bulkexec" / "sandbox"
    return Path(tempfile.gettempdir()) / f"bulkexec-sandbox-{os.getuid()}"


@dataclass(frozen=True)
class SandboxOptions:
    """Everything that can be set about a sandbox; each field also through BULKEXEC_SANDBOX_<FIELD>.

    `stop_grace_seconds` is what a stopped Glue run gets between SIGTERM and SIGKILL; 0 is sudden death.
    `burst_seconds` is how much unused capacity a table keeps (AWS: up to 300; 1 makes limits sharp in tests).
    `size_age_seconds` is how old the counts and sizes of DescribeTable may be (AWS: six hours, and 0 until then; here
    0, so that they are always right).
    `live_tail_session_seconds` is how long a Live Tail session may last (AWS: 3 h).
    `iam` is "off" (any credentials may do anything), "record" (see `SandboxControl.calls`) or "enforce".
    `glue6_python` is the Python that runs jobs of Glue 6.0, with pyspark 4.1; empty: `python_executable` if it fits.
    `live_tail_buffer_updates` and `live_tail_buffer_events` are what a slow reader may lag behind.
    """

    port: int = DEFAULT_PORT
    region: str = "us-east-1"
    account: str = "111122223333"
    work_dir: Path = field(default_factory=state_directory)
    python_executable: str = sys.executable
    glue6_python: str = ""
    spark_master: str = "local[2]"
    stop_grace_seconds: float = 0.0
    live_tail_session_seconds: float = 10_800.0
    live_tail_update_events: int = 500
    live_tail_buffer_updates: int = 10
    live_tail_buffer_events: int = 5_000
    live_tail_sessions: int = 15
    burst_seconds: float = 1.0
    size_age_seconds: float = 0.0
    fault_seed: int = 0
    iam: str = "off"

    def __post_init__(self) -> None:
        if self.iam not in IAM_MODES:
            raise ValueError(f"iam is {self.iam!r}; it must be one of {', '.join(IAM_MODES)}")

    @property
    def endpoint(self) -> str:
        """The one URL under which every service answers."""
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], **overrides: Any) -> "SandboxOptions":
        """Options from BULKEXEC_SANDBOX_* variables; `overrides` win. Raises ValueError on a malformed number."""
        kinds = {"int": int, "float": float, "str": str, "Path": Path, int: int, float: float, str: str, Path: Path}
        found = {
            option.name: kinds[option.type](environment[name])
            for option in fields(cls)
            if (name := ENVIRONMENT_PREFIX + option.name.upper()) in environment
        }
        return cls(**{**found, **overrides})
