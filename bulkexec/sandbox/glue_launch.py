"""Runs one Glue script under plain PySpark: `python -P glue_launch.py SCRIPT ARGUMENT…`.

It is started as a file, never imported by the sandbox, and imports nothing of bulkexec: what the script imports must
be what the run was given. Only the parts of `awsglue` that need Glue's own JVM classes are replaced. Why the script
failed goes to the file SANDBOX_GLUE_ERROR_FILE as one line, and with its traceback to stderr.
"""

import logging
import os
import re
import runpy
import sys
import threading
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

REQUIREMENT = re.compile(r"^\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^]]*\])?\s*(?P<versions>.*)$")


def install_awsglue() -> None:
    """Replaces GlueContext's and Job's constructors, which call into Glue's jars."""
    from awsglue import context, job
    from pyspark.sql import SparkSession, SQLContext

    def glue_context(self: Any, spark_context: Any = None, **_options: Any) -> None:
        session = spark_context if isinstance(spark_context, SparkSession) else SparkSession.builder.getOrCreate()
        SQLContext.__init__(self, session.sparkContext, session)
        self._glue_scala_context = None
        self.spark_session = session

    def job_init(self: Any, _name: str, _arguments: Any = None) -> None:
        self._initialized = True

    context.GlueContext.__init__ = glue_context
    context.GlueContext.get_logger = lambda _self: logging.getLogger("glue")
    job.Job.__init__ = lambda self, _glue_context: setattr(self, "_initialized", False)
    job.Job.init = job_init
    job.Job.isInitialized = lambda self: self._initialized
    job.Job.commit = lambda _self: None


def missing_module(requirement: str) -> str | None:
    """What pip would say about a requirement that is not installed here, or None if it is."""
    match = REQUIREMENT.match(requirement)
    name, versions = (match["name"], match["versions"].strip()) if match else (requirement, "")
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"No matching distribution found for {requirement} (from versions: none)"
    if not versions or _satisfies(installed, versions):
        return None
    return f"No matching distribution found for {requirement} (from versions: {installed})"


def _satisfies(installed: str, versions: str) -> bool:
    if versions.startswith("==") and "," not in versions and "*" not in versions:
        return installed == versions[2:].strip() or installed.startswith(f"{versions[2:].strip()}.")
    from packaging.specifiers import SpecifierSet

    return installed in SpecifierSet(versions)


def end_with_the_sandbox() -> None:
    """Ends this process when the sandbox does, however that ends; Spark's JVM and workers then follow."""

    def wait() -> None:
        os.read(int(os.environ["SANDBOX_GLUE_LIFELINE"]), 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def report_error(message: str) -> None:
    """Leaves the run's ErrorMessage, one line, for the sandbox."""
    Path(os.environ["SANDBOX_GLUE_ERROR_FILE"]).write_text(message, encoding="utf-8")


def error_line(error: BaseException) -> str:
    """`ExceptionTypeName: first line of its message`."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def main() -> int:
    """Exit status of the script: what it exits with, 1 for an uncaught exception."""
    end_with_the_sandbox()
    for requirement in filter(None, os.environ.get("SANDBOX_GLUE_PYTHON_MODULES", "").split(",")):
        if problem := missing_module(requirement):
            report_error(problem)
            sys.stderr.write(f"ERROR: {problem}\n")
            return 1
    del sys.argv[0]
    install_awsglue()
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception as error:  # noqa: BLE001 - the process boundary: reported as the run's ErrorMessage
        report_error(error_line(error))
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
