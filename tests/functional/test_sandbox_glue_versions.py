"""Each version of Glue has a Spark of its own: which Python runs a job of 6.0, and what is said where there is none."""

import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

import pytest

from bulkexec.sandbox import glue_archive
from bulkexec.sandbox.glue_python import NoSpark, glue6, inspect, python_for
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.process import Sandbox

SCRIPT = "import sys; from importlib import metadata; print('RAN', sys.executable, metadata.version('pyspark'))"


def environment(folder: Path, spark: str | None) -> str:
    """An environment that says it has a version of Spark, and has the rest from this one; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    if spark is not None:
        (Path(site) / f"pyspark-{spark}.dist-info").mkdir()
        (Path(site) / f"pyspark-{spark}.dist-info" / "METADATA").write_text(f"Name: pyspark\nVersion: {spark}\n")
        (Path(site) / "this.pth").write_text(sysconfig.get_path("purelib"))
    return str(python)


@pytest.fixture(scope="module")
def spark_4(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment(tmp_path_factory.mktemp("spark4"), "4.1.1")


def run_of(sandbox: Sandbox, glue_version: str) -> tuple[dict[str, Any], list[str]]:
    """The end of one run of a job, and what it printed."""
    client, s3, name = sandbox.client("glue"), sandbox.client("s3"), f"versions-{glue_version}"
    s3.create_bucket(Bucket="versions")
    s3.put_object(Bucket="versions", Key="job.py", Body=SCRIPT)
    command = {"Name": "glueetl", "ScriptLocation": "s3://versions/job.py", "PythonVersion": "3"}
    client.create_job(Name=name, Role="job-role", Command=command, GlueVersion=glue_version)
    run_id = client.start_job_run(JobName=name)["JobRunId"]
    deadline = time.monotonic() + 60
    while "CompletedOn" not in (run := client.get_job_run(JobName=name, RunId=run_id)["JobRun"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    logs = (
        sandbox.client("logs").filter_log_events(logGroupName="/aws-glue/jobs/output")
        if "ErrorMessage" not in run
        else {}
    )
    return run, [line for event in logs.get("events", ()) for line in event["message"].splitlines()]


def test_a_job_of_glue_6_runs_in_the_other_environment_and_one_of_5_in_this_one(spark_4: str) -> None:
    with Sandbox(glue6_python=spark_4) as sandbox:
        run, printed = run_of(sandbox, "6.0")
        assert (run["JobRunState"], run["GlueVersion"], printed) == ("SUCCEEDED", "6.0", [f"RAN {spark_4} 4.1.1"])
        run, printed = run_of(sandbox, "5.1")
        own = inspect(sys.executable)
        assert (run["JobRunState"], printed[-1]) == ("SUCCEEDED", f"RAN {sys.executable} {own.spark}")


def test_a_job_of_glue_6_is_not_run_on_another_spark(sandbox: Sandbox) -> None:
    run, _ = run_of(sandbox, "6.0")
    assert run["JobRunState"] == "FAILED"
    assert "Glue 6.0 runs Spark 4.1, and this sandbox has 3." in run["ErrorMessage"]
    assert "--glue6-python" in run["ErrorMessage"]


def test_an_environment_that_has_spark_4_itself_runs_both(spark_4: str) -> None:
    options = SandboxOptions(python_executable=spark_4)
    assert {python_for(options, version).executable for version in ("5.1", "6.0")} == {spark_4}


def test_what_is_named_has_to_have_spark_4(tmp_path: Path) -> None:
    with pytest.raises(NoSpark, match=r"has pyspark 3\.\S+; Glue 6.0 runs 4.1"):
        glue6(sys.executable)
    with pytest.raises(NoSpark, match="cannot be run: No such file"):
        glue6(str(tmp_path / "nowhere"))
    with pytest.raises(NoSpark, match="has no pyspark"):
        glue6(environment(tmp_path / "empty", None))


def test_up_refuses_a_python_without_spark_4(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bulkexec",
        "sandbox",
        "up",
        "--port",
        "0",
        "--glue6-python",
        str(tmp_path / "nowhere"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path / 'nowhere'} cannot be run: No such file or directory\n"


def test_each_spark_has_a_class_archive_of_its_own(spark_4: str) -> None:
    archives = [glue_archive.archive_file(inspect(python)) for python in (spark_4, sys.executable)]
    assert archives[0].name.startswith("spark-4.1.1-")
    assert archives[0] != archives[1]
