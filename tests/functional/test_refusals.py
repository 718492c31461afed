"""What is refused: one clear sentence, exit code 2, nothing touched. Acceptance 5 of the main job."""

from dataclasses import replace
from typing import Any

import pytest

from bulkexec.sandbox.process import Sandbox

WRITES = ("BatchWriteItem", "BatchExecuteStatement", "DeleteItem", "PutItem", "UpdateItem", "StartJobRun")


@pytest.fixture(scope="module")
def table(tables: Any, items: Any) -> str:
    return tables.make(items(30, 60))


def refused(outcome: Any, code: str, *words: str) -> None:
    """Exit code 2 and one sentence that holds all the words; no stack trace; nothing on stdout."""
    assert outcome.code == 2, outcome.stderr
    assert outcome.stdout == ""
    first = outcome.stderr.splitlines()[0]
    assert first.startswith(f"error {code}: "), outcome.stderr
    for word in words:
        assert word in outcome.stderr, outcome.stderr
    assert "Traceback" not in outcome.stderr


@pytest.fixture(autouse=True)
def nothing_touched(sandbox: Sandbox, tables: Any, table: str) -> Any:
    def writes() -> int:
        return sum(sandbox.control.requests(operation) for operation in WRITES)

    before, items = writes(), tables.read(table)
    yield
    assert writes() == before
    assert tables.read(table) == items


@pytest.mark.parametrize("runtime", ["local", "glue"])
def test_delete_without_a_filter(runtime: str, bulkexec: Any, deployed: str, table: str) -> None:
    refused(bulkexec("delete", "--table", table, "--runtime", runtime, "--yes"), "BX102", "--where", "--all", table)


@pytest.mark.parametrize("where", ["", "   "])
def test_delete_with_an_empty_filter(where: str, bulkexec: Any, table: str) -> None:
    refused(bulkexec("delete", "--table", table, "--where", where, "--yes"), "BX103", "--where is empty")


@pytest.mark.parametrize("runtime", ["local", "glue"])
def test_delete_without_recovery(runtime: str, bulkexec: Any, deployed: str, sandbox: Sandbox, tables: Any) -> None:
    # case C091
    name = "refused-no-recovery-" + runtime
    tables.client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    outcome = bulkexec("delete", "--table", name, "--all", "--runtime", runtime, "--yes")
    refused(outcome, "BX104", name, "aws dynamodb update-continuous-backups", "nothing written")


@pytest.mark.parametrize("command", ["count", "find", "delete"])
def test_a_missing_table(command: str, bulkexec: Any) -> None:
    refused(bulkexec(command, "--table", "no-such-table"), "BX101", "no-such-table", "us-east-1")


def test_a_misspelt_function(bulkexec: Any, table: str) -> None:
    outcome = bulkexec("delete", "--table", table, "--where", "begin_with(state, 'O')", "--yes")
    refused(outcome, "BX103", "begins_with")


def test_a_raw_expression_that_dynamodb_itself_refuses(bulkexec: Any, table: str) -> None:
    outcome = bulkexec(
        *("delete", "--table", table, "--filter-expression", "begin_with(#s, :s)", "--yes"),
        *("--expression-names", '{"#s": "state"}', "--expression-values", '{":s": {"S": "O"}}'),
    )
    refused(outcome, "BX103", "begin_with")


def test_no_credentials(bulkexec: Any, sandbox: Sandbox, table: str) -> None:
    without = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "")
    refused(bulkexec("delete", "--table", table, "--all", "--yes", env=without), "BX106", "credentials")


def test_an_unreachable_endpoint(bulkexec: Any, table: str) -> None:
    nowhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    refused(bulkexec("delete", "--table", table, "--all", "--yes", env=nowhere), "BX107", "127.0.0.1:9")


@pytest.mark.parametrize("cap", ["0", "-5"])
def test_a_cap_below_one(cap: str, bulkexec: Any, table: str) -> None:
    refused(bulkexec("delete", "--table", table, "--all", "--max-items", cap, "--yes"), "BX100", "--max-items")


def test_no_region_profile_or_confirmation(bulkexec: Any, table: str) -> None:
    unconfirmed = bulkexec("delete", "--table", table, "--all")
    refused(replace(unconfirmed, stdout=""), "BX105", "--yes")
    assert "PLAN  delete" in unconfirmed.stdout
    refused(bulkexec("count", "--table", table, "--profile", "nobody"), "BX100", "nobody")
    empty = {"AWS_REGION": "", "AWS_DEFAULT_REGION": ""}
    refused(bulkexec("count", "--table", table, env=empty), "BX100", "region")


@pytest.mark.parametrize("option", ["--where", "--table", "--max-items"])
def test_an_option_that_is_given_twice(option: str, bulkexec: Any, table: str) -> None:
    options = {"--table": table, "--where": "n = 1", "--max-items": "5"}
    said = [word for name, value in options.items() for word in (name, value)]
    outcome = bulkexec("delete", *said, option, options[option], "--yes", "--output", "json")
    assert (outcome.code, "Traceback" in outcome.stderr) == (2, False)
    assert f"{option} is given 2 times" in outcome.report["error"][0]


def test_contradictions(bulkexec: Any, table: str) -> None:
    refused(bulkexec("delete", "--table", table, "--all", "--where", "n = 1", "--yes"), "BX100", "--all")
    both = ("--where", "n = 1", "--filter-expression", "n = :n")
    refused(bulkexec("count", "--table", table, *both), "BX100", "exclude")
    refused(bulkexec("count", "--table", table, "--segments", "0"), "BX100", "segments")
    refused(bulkexec("count", "--table", table, "--read-rate", "fast"), "BX100", "--read-rate")


def test_unknown_jobs(bulkexec: Any, deployed: str) -> None:
    refused(bulkexec("resume", "00000000"), "BX112", "00000000")
    refused(bulkexec("attach", "00000000"), "BX112", "00000000")
    refused(bulkexec("resume", "../../etc/passwd"), "BX112")


def test_denied_expired_and_wrong_credentials(bulkexec: Any, sandbox: Sandbox, table: str) -> None:
    # case C096 C112
    answers = {
        "AccessDeniedException": (1, "BX301"),
        "ExpiredTokenException": (2, "BX106"),
        "UnrecognizedClientException": (2, "BX106"),
    }
    for code, (exit_code, error) in answers.items():
        sandbox.control.faults.add(operation="DescribeTable", kind="error", code=code)
        try:
            outcome = bulkexec("count", "--table", table)
        finally:
            sandbox.control.faults.clear()
        assert (outcome.code, outcome.stderr.split(":")[0]) == (exit_code, f"error {error}"), outcome.stderr
        assert "Traceback" not in outcome.stderr


def test_debug_shows_the_stack_of_a_users_error_too(bulkexec: Any) -> None:
    outcome = bulkexec("--debug", "count", "--table", "no-such-table")
    assert outcome.code == 2
    assert "Traceback" in outcome.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "--table is empty"),
        ("arn:foo", "arn:foo is not the ARN of a table"),
        ("arn:aws:dynamodb:us-east-1:111122223333:table/orders/index/by-day", "index of orders; give the table"),
        ("arn:aws:dynamodb:us-east-1:111122223333:table/orders/stream/2026", "stream of orders; give the table"),
    ],
)
def test_what_is_no_table(given: str, words: str, bulkexec: Any) -> None:
    refused(bulkexec("delete", "--table", given, "--all", "--yes"), "BX100", words)


def test_an_error_document_names_its_command(bulkexec: Any) -> None:
    document = bulkexec.json("count", "--table", "no-such-table").report
    assert (document["command"], document["status"], document["exit_code"]) == ("count", "refused", 2)
    assert "job_id" not in document
