"""`doctor` as a process: what is well, what is wrong, what to do; for callers who may look and for others."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from bulkexec import iam
from bulkexec.runtimes.bootstrap import Wishes, plan
from bulkexec.runtimes.steps import carry_out, open_site
from bulkexec.sandbox.process import Sandbox, environment

BUCKET = "bulkexec-111122223333-us-east-1"
ACCOUNT = {"partition": "aws", "region": "us-east-1", "account": "111122223333", "bucket": BUCKET}
DEPLOYMENT = ("Glue job", "role", "bucket", "control table", "log groups", "Live Tail")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """An account in which IAM is enforced; the sandbox's own credentials are its root."""
    with Sandbox(iam="enforce") as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(sandbox: Sandbox) -> Iterator[None]:
    yield
    sandbox.control.faults.clear()


@pytest.fixture
def well(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment with nothing wrong."""
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)
    list(carry_out(plan(open_site(boto3.Session()), Wishes()), "bootstrap"))


@pytest.fixture(scope="module")
def table(sandbox: Sandbox) -> str:
    client = sandbox.client("dynamodb")
    client.create_table(
        TableName="orders",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        ProvisionedThroughput={"ReadCapacityUnits": 400, "WriteCapacityUnits": 200},
    )
    client.update_continuous_backups(
        TableName="orders", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    return "orders"


@pytest.fixture
def doctor(bulkexec: Any) -> Callable[..., tuple[int, dict[str, list[dict[str, str]]]]]:
    """Exit code, and findings by what was looked at."""

    def run(*arguments: str, **env: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
        outcome = bulkexec("doctor", *arguments, "--output", "json", env=env)
        assert outcome.stdout.startswith("["), outcome.stderr
        found: dict[str, list[dict[str, str]]] = {}
        for finding in json.loads(outcome.stdout):
            found.setdefault(finding["check"], []).append(finding)
        assert "Traceback" not in outcome.stderr
        return outcome.code, found

    return run


@pytest.fixture
def someone(sandbox: Sandbox) -> Iterator[Callable[[dict[str, Any]], dict[str, str]]]:
    """Makes a user with one policy; gives what its environment needs."""
    client, name = sandbox.client("iam"), "someone"
    client.create_user(UserName=name)
    keys: list[str] = []

    def make(policy: dict[str, Any]) -> dict[str, str]:
        client.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
        key = client.create_access_key(UserName=name)["AccessKey"]
        keys.append(key["AccessKeyId"])
        return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    yield make
    for key in keys:
        client.delete_access_key(UserName=name, AccessKeyId=key)
    client.delete_user_policy(UserName=name, PolicyName="all")
    client.delete_user(UserName=name)


def states(found: dict[str, list[dict[str, str]]]) -> dict[str, set[str]]:
    return {check: {finding["state"] for finding in findings} for check, findings in found.items()}


def without(policy: dict[str, Any], *actions: str) -> dict[str, Any]:
    kept = [
        {**each, "Action": [name for name in each["Action"] if name not in actions]} for each in policy["Statement"]
    ]
    return {**policy, "Statement": [each for each in kept if each["Action"]]}


def test_before_bootstrap_the_first_thing_to_do_is_said(bulkexec: Any) -> None:
    outcome = bulkexec("doctor")
    assert outcome.code == 2
    assert "failed   Glue job       there is no Glue job bulkexec in us-east-1" in outcome.stdout
    assert "bulkexec bootstrap" in outcome.stdout
    assert outcome.stderr == ""


def test_all_is_well(doctor: Any, well: None, table: str) -> None:
    code, found = doctor("--table", table)
    assert code == 0
    assert {state for each in states(found).values() for state in each} == {"ok"}, found
    assert len(found["role"]) == 2, "its own state, and what it may do on the table"
    assert set(found) == {"credentials", "region", "permissions", "table", "recovery", "capacity", *DEPLOYMENT}
    assert "can be restored as it was at any time since 20" in found["recovery"][0]["text"]
    assert "200 read units/s = 50 % of 400" in found["capacity"][0]["text"]
    assert "pk (S)" in found["table"][0]["text"]


def test_each_thing_that_is_wrong_is_found_with_what_to_do(
    doctor: Any, well: None, sandbox: Sandbox, table: str
) -> None:
    # case C091 C094 C161
    off = {"PointInTimeRecoveryEnabled": False}
    sandbox.client("dynamodb").update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=off)
    ttl = {"Enabled": False, "AttributeName": "expires_at"}
    sandbox.client("dynamodb").update_time_to_live(TableName="bulkexec-control", TimeToLiveSpecification=ttl)
    sandbox.client("iam").delete_role_policy(RoleName="bulkexec-job", PolicyName="bulkexec-us-east-1")
    sandbox.client("s3").delete_public_access_block(Bucket=BUCKET)
    glue = sandbox.client("glue")
    job = glue.get_job(JobName="bulkexec")["Job"]
    command = {**job["Command"], "ScriptLocation": f"s3://{BUCKET}/bulkexec/scripts/0123456789ab/bulk_job.py"}
    glue.update_job(JobName="bulkexec", JobUpdate={"Role": job["Role"], "Command": command})
    code, found = doctor("--table", table)
    assert code == 2
    now = states(found)
    for check in ("Glue job", "role", "recovery"):
        assert now[check] == {"failed"}, found[check]
    for check in ("bucket", "control table"):
        assert now[check] == {"warning"}, found[check]
    assert "another version" in found["Glue job"][0]["text"]
    for check in ("Glue job", "role", "bucket", "control table"):
        assert found[check][0]["fix"] == "bulkexec bootstrap"
    assert "update-continuous-backups" in found["recovery"][0]["fix"]
    on = {"PointInTimeRecoveryEnabled": True}
    sandbox.client("dynamodb").update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=on)


def test_a_table_that_the_jobs_role_may_not_touch(doctor: Any, bulkexec: Any, well: None, table: str) -> None:
    assert bulkexec("bootstrap", "--yes", "--tables", "others").code == 0
    code, found = doctor("--table", table)
    assert code == 2
    own, on_table = found["role"]
    assert own["state"] == "ok", "that is how it was wanted"
    assert on_table["state"] == "failed"
    assert "dynamodb:Scan" in on_table["text"]
    assert "--tables" in on_table["fix"]
    assert bulkexec("bootstrap", "--yes", "--tables", "*").code == 0


def test_what_is_no_table_is_said_of_the_table(doctor: Any) -> None:
    code, found = doctor("--table", "arn:aws:s3:::orders")
    assert (code, states(found)) == (2, {"table": {"failed"}})


def test_a_table_that_is_not_there(doctor: Any, well: None) -> None:
    code, found = doctor("--table", "nowhere")
    assert code == 2
    assert found["table"][0]["text"] == "table nowhere does not exist in us-east-1"


@pytest.mark.parametrize("code", ["UnknownOperationException", "AccessDeniedException", "LimitExceededException"])
def test_without_live_tail_the_log_is_polled_and_that_is_said(
    code: str, doctor: Any, well: None, sandbox: Sandbox
) -> None:
    # case C120
    sandbox.control.faults.add("error", service="logs", operation="StartLiveTail", code=code)
    exit_code, found = doctor()
    assert exit_code == 0
    (finding,) = found["Live Tail"]
    assert finding["state"] == "warning"
    assert code in finding["text"]
    assert "read every 2 s instead" in finding["text"]


def test_credentials_that_have_expired(doctor: Any, well: None, sandbox: Sandbox) -> None:
    sandbox.control.faults.add("expired_token")
    code, found = doctor()
    assert code == 2
    assert list(found) == ["credentials"]
    assert found["credentials"][0]["state"] == "failed"
    assert "log in" in found["credentials"][0]["fix"]


def test_a_caller_with_the_generated_policy_lacks_nothing(doctor: Any, well: None, someone: Any, table: str) -> None:
    code, found = doctor("--table", table, **someone(iam.policy("caller", tables=[table], **ACCOUNT)))
    assert code == 0, found
    assert states(found)["permissions"] == {"ok"}, found["permissions"]
    assert {state for each in states(found).values() for state in each} == {"ok"}, found


def test_a_permission_that_is_needed_is_missed_and_a_spare_one_is_a_warning(
    doctor: Any, well: None, someone: Any, table: str
) -> None:
    policy = without(iam.policy("caller", tables=[table], **ACCOUNT), "glue:StartJobRun", "pricing:GetProducts")
    code, found = doctor("--table", table, **someone(policy))
    assert code == 2
    by_state = {finding["state"]: finding for finding in found["permissions"]}
    assert by_state["failed"]["text"] == "not allowed: glue:StartJobRun"
    assert "list prices of us-east-1" in by_state["warning"]["text"]
    assert f"bulkexec iam show caller --tables {table}" in by_state["failed"]["fix"]


def test_a_permission_on_some_resources_is_no_false_alarm(doctor: Any, well: None, someone: Any, table: str) -> None:
    # case C097
    policy = iam.policy("caller", tables=["orders"], **ACCOUNT)
    for statement in policy["Statement"]:
        if "servicequotas:GetServiceQuota" in statement["Action"]:
            names = [name for name in statement["Action"] if name.startswith("servicequotas:")]
            statement["Action"] = [name for name in statement["Action"] if name not in names]
            quotas = {"Effect": "Allow", "Action": names, "Resource": "arn:aws:servicequotas:*:*:dynamodb/*"}
    code, found = doctor(**someone({**policy, "Statement": [*policy["Statement"], quotas]}))
    assert code == 0, found
    assert states(found)["permissions"] == {"ok"}, found["permissions"]
    assert "--table" in found["permissions"][0]["text"], "nothing is said of tables that were not named"


def test_what_may_not_be_looked_at_is_a_warning_and_nothing_more(
    doctor: Any, well: None, someone: Any, table: str
) -> None:
    # case C093
    looks = [grant.action for grant in iam.grants_of("caller") if grant.commands == ("doctor",)]
    looks = [action for action in looks if action != "s3:GetObject"]
    policy = without(iam.policy("caller", tables=[table], **ACCOUNT), *looks)
    code, found = doctor("--table", table, **someone(policy))
    assert code == 0, found
    now = states(found)
    for check in ("permissions", "role", "bucket", "control table", "log groups"):
        assert now[check] == {"warning"}, found[check]
        assert "cannot be" in found[check][0]["text"]
    for check in ("Glue job", "Live Tail", "table", "recovery", "capacity"):
        assert now[check] == {"ok"}, found[check]
    assert len(found["bucket"]) == 1, "one line for all that may not be looked at"
