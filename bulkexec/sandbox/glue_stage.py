"""Lays out a directory for a job run: the script, its modules, Spark's settings, the environment."""

import os
import shlex
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bulkexec.sandbox import glue_archive
from bulkexec.sandbox.glue_process import java_home
from bulkexec.sandbox.glue_python import NoSpark, SparkPython, python_for
from bulkexec.sandbox.options import SandboxOptions

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
MODULE_ARGUMENTS = ("--additional-python-modules", "--extra-py-files")

DRIVER_MEMORY = "1g"

LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %p %c{1}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
"""

SITE = """\
\"\"\"Runs at the start of every Python of this job run: driver, Spark's worker daemon and its workers.\"\"\"

import os
import shlex
import sys

# On Python 3.11 each Spark task drops all import caches, and then archives on sys.path are read again: 80 ms a task.
sys.path[:] = [entry for entry in sys.path if not entry.endswith((".jar", "pyspark.zip"))]


def _divert():
    for number, name in ((1, "executor.out"), (2, "executor.err")):
        target = os.open(
            os.path.join(os.environ["SANDBOX_GLUE_RUN_DIRECTORY"], name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        os.dup2(target, number)
        os.close(target)


# The daemon talks to Spark over its own stdout; only the workers it forks are the executor.
if "pyspark.daemon" in sys.orig_argv:
    os.register_at_fork(after_in_child=_divert)
"""


class LaunchError(Exception):
    """The run cannot be started; the message is the run's ErrorMessage."""


@dataclass(frozen=True)
class Clients:
    """boto3 clients of the sandbox's own endpoint, as the sandbox itself or with a role's credentials.

    `credentials` are environment variables, as `role_credentials` gives them.
    """

    endpoint: str
    region: str
    credentials: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def s3(self) -> Any:
        """Where scripts and modules are."""
        return self._client("s3")

    @cached_property
    def sts(self) -> Any:
        """Where a run gets its role's credentials."""
        return self._client("sts")

    @cached_property
    def logs(self) -> Any:
        """Where a run's output goes."""
        return self._client("logs")

    def acting_as(self, credentials: Mapping[str, str]) -> "Clients":
        """The same clients with the credentials of a role."""
        return replace(self, credentials=credentials)

    def _client(self, service: str) -> Any:
        import boto3
        from botocore.config import Config

        session = boto3.session.Session(
            aws_access_key_id=self.credentials.get("AWS_ACCESS_KEY_ID", "sandbox"),
            aws_secret_access_key=self.credentials.get("AWS_SECRET_ACCESS_KEY", "sandbox"),
            aws_session_token=self.credentials.get("AWS_SESSION_TOKEN"),
            region_name=self.region,
        )
        config = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5, read_timeout=30)
        return session.client(service, endpoint_url=self.endpoint, config=config)


@dataclass(frozen=True)
class Staged:
    """A run that can be launched: its directory, command line and whole environment."""

    directory: Path
    command: list[str]
    environment: dict[str, str]

    @property
    def error_file(self) -> Path:
        """Where glue_launch leaves the run's ErrorMessage."""
        return self.directory / "error"


def stage(
    options: SandboxOptions, clients: Clients, directory: Path, script: str, arguments: dict[str, str]
) -> "Layout":
    """Downloads everything a run needs. Raises LaunchError when something is missing."""
    layout = Layout(directory)
    for part in (layout.library, layout.site, directory / "tmp"):
        part.mkdir(parents=True)
    layout.script = _download(clients, script, directory)
    for entry in _modules(arguments):
        layout.add_module(entry, clients)
    (layout.site / "sitecustomize.py").write_text(SITE)
    layout.logging.write_text(LOGGING)
    return layout


def _modules(arguments: dict[str, str]) -> list[str]:
    named = ",".join(arguments.get(name, "") for name in MODULE_ARGUMENTS)
    return [entry.strip() for entry in named.split(",") if entry.strip()]


def _download(clients: Clients, location: str, directory: Path) -> Path:
    from botocore.exceptions import ClientError

    bucket, _, key = location.removeprefix("s3://").partition("/")
    target = directory / Path(key).name
    try:
        clients.s3.download_file(bucket, key, str(target))
    except ClientError as error:
        raise LaunchError(
            f"LAUNCH ERROR | Error downloading from S3 for bucket: {bucket}, key: {key}. {error}"
        ) from error
    return target


class Layout:
    """A run's directory while it is being filled."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.library, self.site, self.logging = directory / "lib", directory / "site", directory / "log4j2.properties"
        self.script = directory
        self.archives: list[Path] = []
        self.requirements: list[str] = []

    def add_module(self, entry: str, clients: Clients) -> None:
        """Adds one entry of --extra-py-files or --additional-python-modules.

        A wheel is unzipped, so that the code that runs is exactly what was uploaded and its metadata and entry points
        are found; a .py or .zip goes on the path as it is; anything else is a requirement that the environment has
        to fulfil already, as the sandbox installs nothing.
        """
        if not entry.startswith("s3://"):
            self.requirements.append(entry)
            return
        file = _download(clients, entry, self.library)
        if file.suffix == ".whl":
            self._unzip(file)
        elif file.suffix == ".zip":
            self.archives.append(file)
        elif file.suffix != ".py":
            raise LaunchError(f"LAUNCH ERROR | {entry} is neither a .whl, nor a .zip, nor a .py")

    def _unzip(self, wheel: Path) -> None:
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(self.library)
        except zipfile.BadZipFile as error:
            raise LaunchError(f"ERROR: {wheel.name} is not a valid wheel: {error}") from error
        wheel.unlink()

    def launch(
        self, options: SandboxOptions, glue_version: str, endpoint: str, credentials: dict[str, str], argv: list[str]
    ) -> Staged:
        """The command line and environment of the run. Raises LaunchError without Java, or without the right Spark."""
        python = _python(options, glue_version)
        launcher = Path(__file__).with_name("glue_launch.py")
        # -P: the launcher's own directory must not be importable by the script.
        command = [python.executable, "-u", "-P", str(launcher), str(self.script), *argv]
        environment = {
            **{name: os.environ[name] for name in INHERITED if name in os.environ},
            **_aws_environment(options, endpoint, credentials),
            **self._spark_environment(options, python),
            **self._sandbox_environment(),
        }
        return Staged(self.directory, command, environment)

    def _spark_environment(self, options: SandboxOptions, python: SparkPython) -> dict[str, str]:
        try:
            java = java_home()
        except FileNotFoundError as error:
            raise LaunchError(f"LAUNCH ERROR | {error}") from error
        path = [self.site, self.library, *self.archives, self.directory]
        return {
            "JAVA_HOME": str(java),
            "PYSPARK_PYTHON": python.executable,
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYSPARK_SUBMIT_ARGS": shlex.join(self._submit_arguments(options, python)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1",
            "TMPDIR": str(self.directory / "tmp"),
        }

    def _submit_arguments(self, options: SandboxOptions, python: SparkPython) -> list[str]:
        # Not by a spark-defaults.conf: its directory on the class path would make the JVM refuse the class archive.
        temporary = self.directory / "tmp"
        settings = {
            "spark.master": options.spark_master,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.driver.extraJavaOptions": shlex.join(
                [
                    f"-Djava.io.tmpdir={temporary}",
                    f"-Dlog4j2.configurationFile={self.logging}",
                    *glue_archive.java_options(python),
                ]
            ),
        }
        pairs = (("--conf", f"{name}={value}") for name, value in settings.items())
        return [*(word for pair in pairs for word in pair), "pyspark-shell"]

    def _sandbox_environment(self) -> dict[str, str]:
        return {
            "SANDBOX_GLUE_RUN_DIRECTORY": str(self.directory),
            "SANDBOX_GLUE_ERROR_FILE": str(self.directory / "error"),
            "SANDBOX_GLUE_PYTHON_MODULES": ",".join(self.requirements),
        }


def _python(options: SandboxOptions, glue_version: str) -> SparkPython:
    try:
        return python_for(options, glue_version)
    except NoSpark as error:
        raise LaunchError(f"LAUNCH ERROR | {error}") from error


def _aws_environment(options: SandboxOptions, endpoint: str, credentials: dict[str, str]) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": options.region,
        "AWS_DEFAULT_REGION": options.region,
        "AWS_DISABLE_HOST_PREFIX_INJECTION": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        **credentials,
    }


def role_credentials(clients: Clients, role: str, account: str, run_id: str, policy: str | None) -> dict[str, str]:
    """Credentials of the job's role, as environment variables. Raises LaunchError if it cannot be assumed."""
    from botocore.exceptions import ClientError

    arn = role if role.startswith("arn:") else f"arn:aws:iam::{account}:role/{role}"
    narrowed = {"Policy": policy} if policy else {}
    try:
        answer = clients.sts.assume_role(RoleArn=arn, RoleSessionName=f"GlueJobRunnerSession-{run_id[:12]}", **narrowed)
    except ClientError as error:
        raise LaunchError(f"LAUNCH ERROR | Failed to assume role {arn}: {error}") from error
    given = answer["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
        "AWS_SESSION_TOKEN": given["SessionToken"],
    }


if sys.platform == "win32":  # pragma: no cover - sessions and signals are POSIX
    raise ImportError("the sandbox's Glue needs a POSIX system")
