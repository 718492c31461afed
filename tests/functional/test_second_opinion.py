"""The DynamoDB part on a second emulator, so that no emulator's habit becomes ours.

moto serves the same HTTP API. Where it differs from the service the test says how and skips.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.conftest import CommandLine, Tables


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto's own server, in a thread."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bulkexec(endpoint: str, sandbox: Any, tmp_path: Any) -> CommandLine:
    return CommandLine(sandbox.env() | {"AWS_ENDPOINT_URL": endpoint, "BULKEXEC_STATE_DIR": str(tmp_path / "state")})


@pytest.fixture
def tables(endpoint: str) -> Tables:
    import boto3

    keys = {"aws_access_key_id": "moto", "aws_secret_access_key": "moto", "region_name": "us-east-1"}
    return Tables(boto3.client("dynamodb", endpoint_url=endpoint, **keys))


def test_count_with_a_filter(bulkexec: Any, tables: Any, items: Any) -> None:
    # case C050
    name = tables.make(items(500, 100))
    report = bulkexec.json("count", "--table", name, "--where", "state = 'OLD' AND n BETWEEN 30 AND 299").report
    assert (report["scanned"], report["matched"]) == (500, 90)


def test_find_shows_what_is_there(bulkexec: Any, tables: Any, items: Any) -> None:
    outcome = bulkexec("find", "--table", tables.make(items(30, 60)), "--where", "n = 7", "--runtime", "local")
    assert '"k0000007"' in outcome.stdout


@pytest.mark.parametrize("options", [("--all",), ("--where", "state = 'OLD'", "--strategy", "sequential")])
def test_delete(options: tuple[str, ...], bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(200, 60))
    report = bulkexec.json("delete", "--table", name, "--yes", *options).report
    left = set() if options == ("--all",) else {f"k{n:07d}" for n in range(200) if n % 3}
    assert (report["processed"], tables.keys(name)) == (200 - len(left), left)


def test_guarded_batches(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(30, 60))
    statement = f'DELETE FROM "{name}" WHERE "pk" = ? AND "state" = ?'
    parameters = [{"S": "k0000001"}, {"S": "OLD"}]
    try:
        answer = tables.client.batch_execute_statement(Statements=[{"Statement": statement, "Parameters": parameters}])
    except tables.client.exceptions.ClientError as error:
        pytest.skip(f"moto refuses a DELETE statement with a condition: {error}")
    if "Error" not in answer["Responses"][0]:
        pytest.skip("moto deletes by a statement whose condition is false")
    report = bulkexec.json("delete", "--table", name, "--where", "state = 'OLD'", "--yes").report
    assert report["processed"] == 10


def test_the_gate_reads_motos_backup_settings(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(3, 60), recovery=False)
    assert bulkexec("delete", "--table", name, "--all", "--yes").stderr.startswith("error BX104")


def test_a_capped_run_goes_on(bulkexec: Any, tables: Any, items: Any) -> None:
    name = tables.make(items(300, 60))
    first = bulkexec.json("delete", "--table", name, "--all", "--yes", "--max-items", "60")
    assert first.code == 4
    left = first
    while left.code == 4:
        left = bulkexec.json("resume", first.report["job_id"])
    assert (left.code, left.report["processed"], len(tables.read(name))) == (0, 300, 0)
