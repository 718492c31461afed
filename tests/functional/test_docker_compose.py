"""The Docker stack: no engine runs here, so its file is checked, by Docker itself where `docker compose` exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
MOUNTED = "/home/hadoop/workspace"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    stack: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return dict(stack["services"])


def test_docker_compose_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("the command `docker compose` does not exist here")
    command = [docker, "compose", "--file", str(FILE), "--profile", "job", "config"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert set(yaml.safe_load(checked.stdout)["services"]) == {"dynamodb", "glue"}


def test_glue_runs_the_job_script_on_glues_own_image(services: dict[str, Any]) -> None:
    glue = services["glue"]
    assert glue["image"] == "public.ecr.aws/glue/aws-glue-libs:5"
    scripts = re.findall(rf"spark-submit {MOUNTED}/(\S+)", " ".join(glue["entrypoint"]))
    assert len(scripts) == 1
    assert (ROOT / scripts[0]).is_file()


def test_the_job_talks_to_the_emulator_and_waits_for_it(services: dict[str, Any]) -> None:
    endpoint = re.fullmatch(r"http://(\w+):(\d+)", services["glue"]["environment"]["AWS_ENDPOINT_URL"])
    assert endpoint is not None
    host, port = endpoint.groups()
    emulator = services[host]
    assert emulator["environment"]["GATEWAY_PORT"] == port
    assert services["glue"]["depends_on"][host] == {"condition": "service_healthy"}
    assert f":{port}/" in emulator["healthcheck"]["test"][-1]


def test_only_loopback_is_published_and_what_is_mounted_exists(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    mounts = [volume.split(":") for service in services.values() for volume in service.get("volumes", [])]
    assert [target for _source, target, _mode in mounts] == [MOUNTED]
    for source, _target, mode in mounts:
        assert (ROOT / source / "pyproject.toml").is_file()
        assert mode == "ro"


def test_the_shell_of_the_entrypoint_gets_the_arguments_of_the_run(services: dict[str, Any]) -> None:
    shell, options, script, name = services["glue"]["entrypoint"]
    # Compose reads $$ as $; pip and spark-submit are replaced by functions that show what they are called with.
    tried = 'python3() { :; }; exec() { echo "$@"; }; ' + script.replace("$$", "$")
    answer = subprocess.run(
        [shell, options.replace("l", ""), tried, name, "--job_id", "a b"], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip().endswith("bulk_job.py --JOB_NAME bulkexec --job_id a b")
