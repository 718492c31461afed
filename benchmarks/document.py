"""What was measured, in files: JSON for programs, and sections of README.md between markers for people."""

import platform
import time
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
README = HERE / "README.md"


def write_json(name: str, value: Any) -> None:
    """Keep a result beside this file."""
    (HERE / name).write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")


def write_section(name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- /name -->`. Raises ValueError if they are not there."""
    whole = README.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in whole or end not in whole:
        raise ValueError(f"README.md has no section {name}")
    before, _, rest = whole.partition(begin)
    _, _, after = rest.partition(end)
    README.write_text(f"{before}{begin}{text}\n\n{_measured_on()}\n{end}{after}", encoding="utf-8")


def _measured_on() -> str:
    cpu = platform.processor() or platform.machine()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"Measured {day}, Python {platform.python_version()}, {cpu}."
