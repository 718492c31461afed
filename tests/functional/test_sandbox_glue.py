"""Glue in the sandbox, driven through boto3: the runs are real processes, and real Spark where a test says so."""

import io
import json
import os
import signal
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from bulkexec.sandbox.process import Sandbox

ENDED = ("STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR")
Run = dict[str, Any]

SPARK_SCRIPT = """
import importlib.metadata, json, sys
import bulkexec, iniconfig, helper_module
from awsglue.context import GlueContext
from awsglue.job import Job
from awsglue.utils import getResolvedOptions
from pyspark.context import SparkContext

options = getResolvedOptions(sys.argv, ["JOB_NAME", "table"])
glue = GlueContext(SparkContext.getOrCreate())
job = Job(glue)
job.init(options["JOB_NAME"], options)
seen = {
    "argv": sys.argv, "options": options, "helper": helper_module.__file__, "wheel": bulkexec.__file__,
    "outranked": iniconfig.__file__, "version": importlib.metadata.version("bulkexec"),
    "entry_points": [point.value for point in importlib.metadata.entry_points(group="bulkexec.commands")],
    "spark": glue.spark_session.version,
}
print("SEEN " + json.dumps(seen), flush=True)
print("to the driver's stderr", file=sys.stderr, flush=True)

def put(batches):
    import boto3
    print("from a worker", flush=True)
    print("error of a worker", file=sys.stderr, flush=True)
    dynamodb = boto3.client("dynamodb")
    for batch in batches:
        for number in batch.column("id").to_pylist():
            dynamodb.put_item(TableName=options["table"], Item={"pk": {"S": str(number)}})
        yield batch

print("COUNT", glue.spark_session.range(4, numPartitions=2).mapInArrow(put, "id long").count())
job.commit()
"""

SLEEPING_SPARK_SCRIPT = """
import time
from pyspark.sql import SparkSession

def sleep(batches):
    for batch in batches:
        print("asleep", flush=True)
        time.sleep(120)
        yield batch

SparkSession.builder.getOrCreate().range(2, numPartitions=2).mapInArrow(sleep, "id long").count()
"""


class Glue:
    """A bucket of its own on a sandbox, and the calls that every test makes."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.client = sandbox, sandbox.client("glue")
        self.bucket = f"glue-{uuid.uuid4().hex[:12]}"
        self.s3 = sandbox.client("s3")
        self.s3.create_bucket(Bucket=self.bucket)

    def upload(self, name: str, body: bytes | str) -> str:
        self.s3.put_object(Bucket=self.bucket, Key=name, Body=body)
        return f"s3://{self.bucket}/{name}"

    def job(self, script: str, **changes: Any) -> str:
        """Creates a job for a script's text, or for a location; its name."""
        name = f"job-{uuid.uuid4().hex[:12]}"
        location = script if script.startswith("s3://") else self.upload(f"{name}/job.py", script)
        command = {"Name": "glueetl", "ScriptLocation": location, "PythonVersion": "3"}
        size = {"WorkerType": "G.1X", "NumberOfWorkers": 2}
        self.client.create_job(**{"Name": name, "Role": "job-role", "Command": command, **size, **changes})
        return name

    def start(self, job: str, **arguments: Any) -> str:
        return str(self.client.start_job_run(JobName=job, **arguments)["JobRunId"])

    def run(self, job: str, run_id: str) -> Run:
        found: Run = self.client.get_job_run(JobName=job, RunId=run_id)["JobRun"]
        return found

    def until(self, job: str, run_id: str, *states: str, within_seconds: float = 60) -> Run:
        deadline = time.monotonic() + within_seconds
        while (run := self.run(job, run_id))["JobRunState"] not in (states or ENDED):
            assert time.monotonic() < deadline, run
            assert run["JobRunState"] not in ENDED, run
            time.sleep(0.05)
        return run

    def finished(self, script: str, arguments: dict[str, str] | None = None, **job: Any) -> Run:
        """The end of one run of a script."""
        name = self.job(script, **job)
        return self.until(name, self.start(name, Arguments=arguments or {}))

    def lines(self, group: str, stream: str) -> list[str]:
        logs = self.sandbox.client("logs")
        try:
            pages = list(logs.get_paginator("filter_log_events").paginate(logGroupName=group, logStreamNames=[stream]))
        except logs.exceptions.ResourceNotFoundException:
            return []
        return [line for page in pages for event in page["events"] for line in event["message"].splitlines()]

    def until_logged(self, group: str, stream: str, text: str, within_seconds: float = 60) -> None:
        deadline = time.monotonic() + within_seconds
        while text not in self.lines(group, stream):
            assert time.monotonic() < deadline, f"no {text!r} in {group} {stream}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def glue(sandbox: Sandbox) -> Glue:
    return Glue(sandbox)


def processes_of(run_id: str) -> list[psutil.Process]:
    """Live processes whose environment names a run."""
    found = []
    for process in psutil.process_iter():
        try:
            directory = process.environ().get("SANDBOX_GLUE_RUN_DIRECTORY", "")
            if run_id in directory and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def until_dead(run_id: str, within_seconds: float = 5) -> None:
    deadline = time.monotonic() + within_seconds
    while alive := processes_of(run_id):
        assert time.monotonic() < deadline, alive
        time.sleep(0.02)


def wheel(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def test_a_run_is_real_spark_on_the_uploaded_wheel(glue: Glue) -> None:
    uploaded = wheel(
        {
            "bulkexec/__init__.py": "",
            # Installed in this environment too, where the wheel has to come first.
            "iniconfig.py": "",
            "bulkexec-99.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: bulkexec\nVersion: 99.0\n",
            "bulkexec-99.0.dist-info/entry_points.txt": "[bulkexec.commands]\nmine = mine:Mine\n",
        }
    )
    table = f"glue-{uuid.uuid4().hex[:8]}"
    dynamodb = glue.sandbox.client("dynamodb")
    key = {"KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}]}
    attributes = [{"AttributeName": "pk", "AttributeType": "S"}]
    dynamodb.create_table(TableName=table, AttributeDefinitions=attributes, BillingMode="PAY_PER_REQUEST", **key)
    modules = f"{glue.upload('bulkexec-99.0-py3-none-any.whl', uploaded)},pytest=={pytest.__version__}"
    defaults = {
        "--table": "overridden",
        "--additional-python-modules": modules,
        "--extra-py-files": glue.upload("helper_module.py", ""),
    }
    job = glue.job(SPARK_SCRIPT, DefaultArguments=defaults)

    run_id = glue.start(job, Arguments={"--table": table})
    run = glue.until(job, run_id)

    assert run["JobRunState"] == "SUCCEEDED", run
    assert "ErrorMessage" not in run
    assert run["StartedOn"] < run["CompletedOn"] == run["LastModifiedOn"]
    assert 1 <= run["ExecutionTime"] <= (run["CompletedOn"] - run["StartedOn"]).total_seconds() + 1
    assert (run["Attempt"], run["MaxCapacity"], run["GlueVersion"]) == (0, 2.0, "5.1")
    assert dynamodb.scan(TableName=table)["Count"] == 4

    output = glue.lines("/aws-glue/jobs/output", run_id)
    assert "COUNT 4" in output
    seen = json.loads(output[0].removeprefix("SEEN "))
    argv = dict(zip(seen["argv"][1::2], seen["argv"][2::2], strict=True))
    assert (argv["--JOB_NAME"], argv["--JOB_RUN_ID"], argv["--table"]) == (job, run_id, table)
    assert argv["--JOB_ID"].startswith("j_")
    assert seen["options"]["table"] == table
    for name in ("wheel", "outranked", "helper"):
        assert f"/{run_id}/lib/" in seen[name], name
    assert (seen["version"], seen["entry_points"]) == ("99.0", ["mine:Mine"])
    assert seen["spark"].startswith("3.5.")

    # case C116: executors write to streams of their own
    streams = glue.sandbox.client("logs").describe_log_streams(
        logGroupName="/aws-glue/jobs/output", logStreamNamePrefix=f"{run_id}_g-"
    )["logStreams"]
    assert len(streams) == 1
    executor = streams[0]["logStreamName"]
    assert set(glue.lines("/aws-glue/jobs/output", executor)) == {"from a worker"}
    assert "from a worker" not in output
    assert set(glue.lines("/aws-glue/jobs/error", executor)) == {"error of a worker"}
    assert "to the driver's stderr" in glue.lines("/aws-glue/jobs/error", run_id)
    until_dead(run_id)


# case C110: a stop is confirmed, and nothing of the run is left
def test_stopped_and_killed_runs_leave_no_process(glue: Glue) -> None:
    job = glue.job(SLEEPING_SPARK_SCRIPT, ExecutionProperty={"MaxConcurrentRuns": 2})
    stopped, killed = glue.start(job), glue.start(job)
    for run_id in (stopped, killed):
        executor = f"{run_id}_g-{run_id[-40:]}"
        glue.until_logged("/aws-glue/jobs/output", executor, "asleep")
        # The driver, the JVM, Python's daemon and at least one worker.
        assert len(processes_of(run_id)) >= 4

    answer = glue.client.batch_stop_job_run(JobName=job, JobRunIds=[stopped])
    assert answer["SuccessfulSubmissions"] == [{"JobName": job, "JobRunId": stopped}]
    assert answer["Errors"] == []
    driver = next(process for process in processes_of(killed) if "glue_launch.py" in " ".join(process.cmdline()))
    driver.kill()

    assert glue.until(job, stopped)["JobRunState"] == "STOPPED"
    run = glue.until(job, killed)
    assert (run["JobRunState"], run["ErrorMessage"]) == ("FAILED", "Command failed with exit code 137")
    until_dead(stopped)
    until_dead(killed)

    (error,) = glue.client.batch_stop_job_run(JobName=job, JobRunIds=[stopped])["Errors"]
    assert error["JobRunId"] == stopped
    assert "terminal state STOPPED" in error["ErrorDetail"]["ErrorMessage"]


# case C102: a failed job is never a success
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise ValueError('no\\nsecond line')", "ValueError: no"),
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("import sys; sys.exit(3)", "Command failed with exit code 3"),
        ("import sys; sys.exit('bad input')", "Command failed with exit code 1"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "Command failed with exit code 137"),
    ],
)
def test_a_failure_is_reported_as_glue_does(glue: Glue, script: str, message: str) -> None:
    run = glue.finished(script)
    assert (run["JobRunState"], run["ErrorMessage"]) == ("FAILED", message)


def test_an_uncaught_exception_leaves_its_traceback_in_the_error_log(glue: Glue) -> None:
    run = glue.finished("def broken():\n    raise ValueError('why')\n\nbroken()\n")
    log = glue.lines("/aws-glue/jobs/error", run["Id"])
    assert log[0].startswith("Traceback")
    assert log[-1] == "ValueError: why"


@pytest.mark.parametrize("script", ["", "import sys; sys.exit(0)", "import sys; sys.exit()"])
def test_a_script_that_ends_without_an_error_succeeds(glue: Glue, script: str) -> None:
    assert glue.finished(script)["JobRunState"] == "SUCCEEDED"


def test_what_cannot_be_launched_fails_with_a_reason(glue: Glue) -> None:
    run = glue.finished(f"s3://{glue.bucket}/missing.py")
    assert run["JobRunState"] == "FAILED"
    assert run["ErrorMessage"].startswith(f"LAUNCH ERROR | Error downloading from S3 for bucket: {glue.bucket}")
    run = glue.finished("", {"--additional-python-modules": "no-such-module==1.0"})
    assert "No matching distribution found for no-such-module==1.0" in run["ErrorMessage"]
    run = glue.finished("", {"--additional-python-modules": glue.upload("broken.whl", "no zip")})
    assert "broken.whl is not a valid wheel" in run["ErrorMessage"]


# case C103: the timeout that was asked for is the one that counts
def test_a_run_over_its_timeout_is_killed(glue: Glue) -> None:
    run = glue.finished("import time; time.sleep(60)", {"--sandbox-timeout-seconds": "0.5"})
    assert run["JobRunState"] == "TIMEOUT"
    until_dead(run["Id"])


def test_concurrent_runs_are_limited_or_wait(glue: Glue) -> None:
    job = glue.job("import time; time.sleep(60)")
    first = glue.start(job)
    glue.until(job, first, "RUNNING")
    with pytest.raises(glue.client.exceptions.ConcurrentRunsExceededException):
        glue.start(job)
    queued = glue.start(job, JobRunQueuingEnabled=True)
    assert glue.run(job, queued)["JobRunState"] == "WAITING"
    assert [run["Id"] for run in glue.client.get_job_runs(JobName=job)["JobRuns"]] == [queued, first]

    glue.client.batch_stop_job_run(JobName=job, JobRunIds=[first])
    glue.until(job, first)
    glue.until(job, queued, "RUNNING")
    glue.client.batch_stop_job_run(JobName=job, JobRunIds=[queued])
    assert glue.until(job, queued)["JobRunState"] == "STOPPED"


def test_a_stop_with_grace_lets_the_script_clean_up() -> None:
    script = (
        "import signal, sys, time\n"
        "def leave(*_):\n    print('leaving', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    with Sandbox(stop_grace_seconds=10) as sandbox:
        glue = Glue(sandbox)
        job = glue.job(script)
        run_id = glue.start(job)
        glue.until_logged("/aws-glue/jobs/output", run_id, "ready")
        glue.client.batch_stop_job_run(JobName=job, JobRunIds=[run_id])
        assert glue.until(job, run_id)["JobRunState"] == "STOPPED"
        assert glue.lines("/aws-glue/jobs/output", run_id)[-1] == "leaving"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_runs_die_with_the_sandbox(end: signal.Signals) -> None:
    with Sandbox() as sandbox:
        glue = Glue(sandbox)
        job = glue.job("import time; print('ready', flush=True); time.sleep(60)")
        run_id = glue.start(job)
        glue.until_logged("/aws-glue/jobs/output", run_id, "ready")
        assert processes_of(run_id)
        os.kill(sandbox.running.pid, end)
        until_dead(run_id)


@pytest.fixture
def refused(glue: Glue) -> Iterator[Callable[..., None]]:
    def refused(code: str, operation: str, **request: Any) -> None:
        with pytest.raises(ClientError) as error:
            getattr(glue.client, operation)(**request)
        assert error.value.response["Error"]["Code"] == code

    return refused


def test_requests_are_checked_as_glue_checks_them(glue: Glue, refused: Callable[..., None]) -> None:
    job = glue.job("")
    command = {"Name": "glueetl", "ScriptLocation": "s3://b/k.py"}
    refused("EntityNotFoundException", "get_job", JobName="nobody")
    refused("EntityNotFoundException", "start_job_run", JobName="nobody")
    refused("EntityNotFoundException", "get_job_run", JobName=job, RunId="jr_0")
    refused("EntityNotFoundException", "get_job_runs", JobName="nobody")
    refused("AlreadyExistsException", "create_job", Name=job, Role="r", Command=command)
    refused("InvalidInputException", "create_job", Name="x", Role="r", Command={**command, "Name": "pythonshell"})
    refused("InvalidInputException", "create_job", Name="x", Role="r", Command=command, MaxRetries=1)
    refused("InvalidInputException", "start_job_run", JobName=job, ExecutionClass="CHEAP")
    refused("InvalidInputException", "start_job_run", JobName=job, ExecutionRoleSessionPolicy='"' + "x" * 2_048 + '"')
    refused("InvalidInputException", "get_crawlers")
    with pytest.raises(ParamValidationError):
        glue.client.start_job_run(JobName=job, Timeout=0.5)
    (error,) = glue.client.batch_stop_job_run(JobName=job, JobRunIds=["jr_0"])["Errors"]
    assert error["ErrorDetail"]["ErrorCode"] == "EntityNotFoundException"


def test_jobs_are_kept_listed_updated_and_deleted(glue: Glue) -> None:
    job = glue.job("", Tags={"owner": "tests"}, GlueVersion="5.0", Timeout=7)
    stored = glue.client.get_job(JobName=job)["Job"]
    assert (stored["GlueVersion"], stored["Timeout"], stored["MaxCapacity"]) == ("5.0", 7, 2.0)
    assert stored["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
    command = stored["Command"]
    glue.client.update_job(JobName=job, JobUpdate={"Role": "other", "Command": command})
    updated = glue.client.get_job(JobName=job)["Job"]
    assert (updated["Role"], updated["Timeout"], updated["CreatedOn"]) == ("other", 480, stored["CreatedOn"])

    pages = glue.client.get_paginator("get_jobs").paginate(PaginationConfig={"PageSize": 1})
    assert job in [found["Name"] for page in pages for found in page["Jobs"]]
    assert glue.client.list_jobs(Tags={"owner": "tests"})["JobNames"] == [job]
    region, account = glue.sandbox.options.region, glue.sandbox.options.account
    arn = f"arn:aws:glue:{region}:{account}:job/{job}"
    glue.client.tag_resource(ResourceArn=arn, TagsToAdd={"cost": "none"})
    assert glue.client.get_tags(ResourceArn=arn)["Tags"] == {"owner": "tests", "cost": "none"}

    glue.client.delete_job(JobName=job)
    assert glue.client.delete_job(JobName=job)["JobName"] == job
    with pytest.raises(glue.client.exceptions.EntityNotFoundException):
        glue.client.get_job(JobName=job)


def test_a_flexible_run_has_its_metered_dpu_seconds(glue: Glue) -> None:
    run = glue.finished("", None, ExecutionClass="FLEX")
    assert (run["ExecutionClass"], run["DPUSeconds"]) == ("FLEX", 2.0 * 60)


def test_a_run_has_the_credentials_of_its_role_and_nothing_of_ours(glue: Glue, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os, boto3, sys\n"
        "print(boto3.client('sts').get_caller_identity()['Arn'])\n"
        "print(sorted(name for name in os.environ if name in ('AWS_PROFILE', 'VIRTUAL_ENV', 'PYTEST_CURRENT_TEST')))\n"
        "print(sys.executable)\n"
    )
    run = glue.finished(script)
    arn, leaked, executable = glue.lines("/aws-glue/jobs/output", run["Id"])
    assert f":{glue.sandbox.options.account}:assumed-role/job-role/" in arn
    assert (leaked, executable) == ("[]", sys.executable)
