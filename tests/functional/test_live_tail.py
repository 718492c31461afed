"""What is followed is the job; a lost, sampled or missing tail costs the user no data."""

from typing import Any

import pytest

from bulkexec.sandbox.process import Sandbox


def count(bulkexec: Any, table: str) -> Any:
    outcome = bulkexec("count", "--table", table, "--runtime", "glue")
    assert outcome.code == 0, outcome.stderr
    assert "200 items match" in outcome.stdout
    return outcome


@pytest.fixture(scope="module")
def table(tables: Any) -> str:
    return str(tables.make({"pk": {"S": str(n)}} for n in range(200)))


@pytest.mark.parametrize(
    "fault",
    [
        {"operation": "StartLiveTail", "kind": "error", "code": "AccessDeniedException"},
        {"operation": "StartLiveTail", "kind": "reset", "count": 2},
    ],
    ids=["denied", "lost"],
)
def test_without_a_tail_the_log_group_is_read(
    fault: dict[str, Any], bulkexec: Any, deployed: str, sandbox: Sandbox, table: str
) -> None:
    # case C114 C115 C120
    sandbox.control.faults.add(service="logs", **fault)
    try:
        outcome = count(bulkexec, table)
    finally:
        sandbox.control.faults.clear()
    for line in ("run 1 begins", "segments to walk", f"count {table}: finished"):
        assert outcome.stdout.count(line) == 1, outcome.stdout


def test_the_drivers_log_is_shown_once_and_nothing_of_the_executors(bulkexec: Any, deployed: str, table: str) -> None:
    # case C111 C116 C119
    lines = count(bulkexec, table).stdout.splitlines()
    assert sum("run 1 begins" in line for line in lines) == 1
    assert sum(f"count {table}: finished" in line for line in lines) == 1


def test_a_failing_job_is_one_sentence_and_exit_code_1(
    bulkexec: Any, deployed: str, sandbox: Sandbox, table: str
) -> None:
    # case C096 C102: the client's own reads pass, the job's are denied
    message = (
        "User: arn:aws:sts::1:assumed-role/bulkexec-job is not authorized to perform: dynamodb:Scan on resource: arn"
    )
    sandbox.control.faults.add(
        operation="Scan",
        kind="error",
        code="AccessDeniedException",
        message=message,
        after=1,
        match={"TableName": table},
    )
    try:
        outcome = bulkexec("count", "--table", table, "--runtime", "glue")
    finally:
        sandbox.control.faults.clear()
    assert outcome.code == 1
    assert "error BX301" in outcome.stdout
    assert "Traceback" not in outcome.stdout + outcome.stderr
