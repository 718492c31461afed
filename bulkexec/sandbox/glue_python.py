"""Which Python runs a Glue job: each version of Glue has a Spark of its own, and an environment holds one."""

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bulkexec.sandbox.options import SandboxOptions

GLUE_6 = "6.0"
"""Spark 4.1.1, Scala 2.13, Python 3.13 (AWS Glue release notes); the versions before it run Spark 3."""

PROBE = """
import json, platform
from importlib import metadata
spark = metadata.distribution("pyspark")
print(json.dumps([platform.python_version(), spark.version, str(spark.locate_file(""))]))
"""


class NoSpark(Exception):
    """No Python with the Spark that is needed; the message says what to do."""


@dataclass(frozen=True)
class SparkPython:
    """An interpreter, its version, and the PySpark that it has. `library` is the folder that PySpark lies in."""

    executable: str
    python: str
    spark: str
    library: str

    @property
    def is_spark_4(self) -> bool:
        """Whether it can run what Glue 6.0 runs."""
        return int(self.spark.partition(".")[0]) >= 4


@cache
def inspect(executable: str) -> SparkPython:
    """What an interpreter is. Raises NoSpark when it cannot be run, or has no PySpark."""
    try:
        # -I: as in a job run, what the sandbox's own environment adds to the path does not count.
        done = subprocess.run([executable, "-I", "-c", PROBE], capture_output=True, text=True, check=True)  # noqa: S603 - what the user named
    except OSError as error:
        raise NoSpark(f"{executable} cannot be run: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise NoSpark(f"{executable} has no pyspark") from error
    return SparkPython(executable, *json.loads(done.stdout))


def python_for(options: SandboxOptions, glue_version: str) -> SparkPython:
    """The interpreter for the runs of a Glue version. Raises NoSpark when 6.0 is asked for and there is no Spark 4."""
    if glue_version != GLUE_6:
        return inspect(options.python_executable)
    if options.glue6_python:
        return glue6(options.glue6_python)
    own = inspect(options.python_executable)
    if not own.is_spark_4:
        raise NoSpark(
            f"Glue {GLUE_6} runs Spark 4.1, and this sandbox has {own.spark}: start it with --glue6-python, "
            "the Python of an environment that has pyspark 4.1 (`make spark4` makes one)"
        )
    return own


def glue6(executable: str) -> SparkPython:
    """The interpreter that was named for Glue 6.0. Raises NoSpark when it has no Spark 4."""
    # Not resolved: where a virtual environment's Python leads to is a Python without the environment.
    found = inspect(str(Path(executable).absolute()))
    if not found.is_spark_4:
        raise NoSpark(f"{executable} has pyspark {found.spark}; Glue {GLUE_6} runs 4.1")
    return found
