"""`bulkexec sandbox` as processes: up, env, seed, down."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bulkexec.sandbox.control import SandboxControl

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return inherited | {"BULKEXEC_SANDBOX_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}


def run(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bulkexec.sandbox", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def port(environment: dict[str, str]) -> Iterator[str]:
    started = run(environment, "up", "--port", "0")
    assert started.returncode == 0, started.stderr
    number = started.stdout.strip().rpartition(":")[2]
    yield number
    run(environment, "down", "--port", number)


def test_up_returns_when_it_answers(environment: dict[str, str], port: str) -> None:
    assert SandboxControl(f"http://127.0.0.1:{port}").health()["status"] == "ok"


def test_a_second_up_reports_the_first(environment: dict[str, str], port: str) -> None:
    again = run(environment, "up", "--port", port)
    assert (again.returncode, again.stdout.strip()) == (0, f"http://127.0.0.1:{port}")
    assert "already running" in again.stderr


def test_env_makes_plain_boto3_work(environment: dict[str, str], port: str) -> None:
    seeded = run(environment, "seed", "--port", port, "--table", "orders", "--items", "130", "--sort-key", "N")
    assert seeded.stdout == "130 items in orders\n"
    script = "import boto3; print(boto3.client('dynamodb').scan(TableName='orders', Select='COUNT')['Count'])"
    shell = f'eval "$({sys.executable} -m bulkexec.sandbox env --port {port})" && {sys.executable} -c "{script}"'
    misled = environment | {"AWS_PROFILE": "nobody", "AWS_SESSION_TOKEN": "old"}
    found = subprocess.run(["bash", "-c", shell], env=misled, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "130\n", found.stderr


def test_down_ends_it(environment: dict[str, str], port: str) -> None:
    pid = SandboxControl(f"http://127.0.0.1:{port}").health()["pid"]
    assert run(environment, "down", "--port", port).returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "no sandbox" in run(environment, "down", "--port", port).stderr
    refused = run(environment, "env", "--port", port)
    assert refused.returncode == 1
    assert f"bulkexec sandbox up --port {port}" in refused.stderr


def test_a_port_that_is_taken_is_one_sentence(environment: dict[str, str], port: str, tmp_path: Path) -> None:
    elsewhere = environment | {"BULKEXEC_SANDBOX_DIR": str(tmp_path / "other")}
    taken = run(elsewhere, "up", "--port", port)
    assert taken.returncode == 1
    assert taken.stderr.startswith(f"Error: the sandbox cannot start on port {port}: ")
    assert taken.stderr.count("\n") == 1


def test_foreground_ends_with_its_terminal(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "bulkexec.sandbox", "up", "--port", "0", "--foreground"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        await_answer(endpoint)
        process.terminate()
        assert process.wait(10) == 0


def await_answer(endpoint: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            SandboxControl(endpoint).health()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"{endpoint} does not answer")


def test_importing_the_command_is_cheap(environment: dict[str, str]) -> None:
    script = (
        "import sys, bulkexec.sandbox.cli; print([m for m in ('ministack', 'pyspark', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
