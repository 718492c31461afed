"""What `from bulkexec import Table` adds to a process that has boto3 and a client, as a Lambda function's start does.

Each figure is the median over fresh processes, with compiled files in place as in a deployed package. The client is
made first, because a function that talks to DynamoDB pays for that anyway.
"""

import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

RUNS = 15
LIMIT_MS = 400
"""What the Python API may add, by issue 4."""
UNWANTED = ("sqlglot", "rich", "click", "boto3.dynamodb", "pyspark", "pyarrow", "pandas", "asyncio")

_PROBE = f"""
import json, sys, time
sys.modules["typing_extensions"] = None  # not in the base install; msgspec imports it where it is
began = time.perf_counter(), time.process_time()
import boto3
boto3.Session("a", "b", region_name="us-east-1").client("dynamodb")
between, known = (time.perf_counter(), time.process_time()), set(sys.modules)
from bulkexec import Table
ended = time.perf_counter(), time.process_time()
Table("t", session=boto3.Session("a", "b", region_name="us-east-1"))
print(json.dumps({{
    "boto3_ms": (between[0] - began[0]) * 1e3,
    "bulkexec_ms": (ended[0] - between[0]) * 1e3,
    "boto3_cpu_ms": (between[1] - began[1]) * 1e3,
    "bulkexec_cpu_ms": (ended[1] - between[1]) * 1e3,
    "modules": len(set(sys.modules) - known),
    "unwanted": [name for name in {UNWANTED!r} if name in sys.modules and name not in known],
}}))
"""


def _once(compiled: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = compiled
    command = [sys.executable, "-c", _PROBE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure() -> dict[str, Any]:
    """Medians in milliseconds, the slowest run, and what else was imported."""
    with tempfile.TemporaryDirectory() as compiled:
        _once(compiled)  # writes the compiled files
        runs = [_once(compiled) for _ in range(RUNS)]
    return {
        "boto3_and_client_ms": round(median(run["boto3_ms"] for run in runs)),
        "boto3_and_client_cpu_ms": round(median(run["boto3_cpu_ms"] for run in runs)),
        "bulkexec_ms": round(median(run["bulkexec_ms"] for run in runs)),
        "bulkexec_cpu_ms": round(median(run["bulkexec_cpu_ms"] for run in runs)),
        "slowest_ms": round(max(run["bulkexec_ms"] for run in runs)),
        "limit_ms": LIMIT_MS,
        "runs": RUNS,
        "modules": runs[0]["modules"],
        "unwanted": runs[0]["unwanted"],
    }


def table(found: dict[str, Any]) -> str:
    """The numbers for people, in Markdown."""
    return "\n".join(
        [
            f"| median of {found['runs']} | ms | CPU ms |",
            "|---|--:|--:|",
            f"| boto3 and a client of it | {found['boto3_and_client_ms']} | {found['boto3_and_client_cpu_ms']} |",
            f"| `from bulkexec import Table` after that | {found['bulkexec_ms']} | {found['bulkexec_cpu_ms']} |",
            f"| the slowest of these | {found['slowest_ms']} | |",
            f"| limit | {found['limit_ms']} | |",
        ]
    )
