"""The sandbox's IAM answers as AWS does: who is known, what is allowed, and how a refusal is said in each protocol."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from bulkexec.sandbox.process import Sandbox

ACCOUNT = "111122223333"
TABLE_ARN = f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/orders"
USER = f"arn:aws:iam::{ACCOUNT}:user/"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Sandbox]:
    with Sandbox(iam="enforce") as sandbox:
        sandbox.client("s3").create_bucket(Bucket="ops")
        for name in ("orders", "others"):
            sandbox.client("dynamodb").create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            )
        yield sandbox


def allow(actions: str | list[str], resources: str | list[str] = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources, **more}


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


class Person:
    """A user with an inline policy."""

    def __init__(self, sandbox: Sandbox, name: str, *statements: dict[str, Any]) -> None:
        self.sandbox, self.arn, client = sandbox, USER + name, sandbox.client("iam")
        client.create_user(UserName=name)
        if statements:
            client.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=policy(*statements))
        self.key = client.create_access_key(UserName=name)["AccessKey"]

    def client(self, service: str) -> Any:
        return client_of(self.sandbox, self.key, service)


def client_of(sandbox: Sandbox, key: dict[str, str], service: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=sandbox.endpoint,
        region_name="us-east-1",
        aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"],
        aws_session_token=key.get("SessionToken"),
        config=Config(retries={"total_max_attempts": 1}),
    )


def refusal(call: Any, **arguments: Any) -> tuple[str, str]:
    """(code, message) of the error that a call raises."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def sentence(person: Person, action: str, resource: str, kind: str = "identity-based") -> str:
    reason = f"because no {kind} policy allows the {action} action"
    return f"User: {person.arn} is not authorized to perform: {action} on resource: {resource} {reason}"


def test_each_service_refuses_in_its_own_form(guarded: Sandbox) -> None:
    nobody = Person(guarded, "nobody")
    assert refusal(nobody.client("dynamodb").scan, TableName="orders") == (
        "AccessDeniedException",
        sentence(nobody, "dynamodb:Scan", TABLE_ARN),
    )
    job = f"arn:aws:glue:us-east-1:{ACCOUNT}:job/x"
    assert refusal(nobody.client("glue").get_job, JobName="x") == (
        "AccessDeniedException",
        sentence(nobody, "glue:GetJob", job),
    )
    role = f"arn:aws:iam::{ACCOUNT}:role/x"
    assert refusal(nobody.client("iam").get_role, RoleName="x") == (
        "AccessDenied",
        sentence(nobody, "iam:GetRole", role),
    )
    assert refusal(nobody.client("s3").get_object, Bucket="ops", Key="a/b") == (
        "AccessDenied",
        sentence(nobody, "s3:GetObject", '"arn:aws:s3:::ops/a/b"'),
    )
    assert refusal(nobody.client("s3").head_bucket, Bucket="ops") == ("403", "Forbidden")
    for service, call, arguments in (
        ("pricing", "get_products", {"ServiceCode": "AWSGlue"}),
        ("service-quotas", "get_service_quota", {"ServiceCode": "dynamodb", "QuotaCode": "L-F98FE922"}),
        ("application-autoscaling", "describe_scalable_targets", {"ServiceNamespace": "dynamodb"}),
        ("logs", "describe_log_groups", {}),
    ):
        code, message = refusal(getattr(nobody.client(service), call), **arguments)
        assert (code, message.startswith(f"User: {nobody.arn} is not authorized")) == ("AccessDeniedException", True)


def test_everybody_may_ask_who_he_is(guarded: Sandbox) -> None:
    person = Person(guarded, "anonymous")
    assert person.client("sts").get_caller_identity()["Arn"] == person.arn


@pytest.mark.parametrize(
    ("service", "call", "arguments", "code"),
    [
        ("dynamodb", "list_tables", {}, "UnrecognizedClientException"),
        ("s3", "list_buckets", {}, "InvalidAccessKeyId"),
        ("sts", "assume_role", {"RoleArn": USER + "role", "RoleSessionName": "s1"}, "InvalidClientTokenId"),
    ],
)
def test_an_unknown_key_is_no_key(
    guarded: Sandbox, service: str, call: str, arguments: dict[str, str], code: str
) -> None:
    key = {"AccessKeyId": "AKIAUNKNOWN000000000", "SecretAccessKey": "x"}
    assert refusal(getattr(client_of(guarded, key, service), call), **arguments)[0] == code


def test_an_index_is_a_resource_of_its_own(guarded: Sandbox) -> None:
    person = Person(guarded, "table-only", allow("dynamodb:Scan", TABLE_ARN))
    person.client("dynamodb").scan(TableName="orders")
    answer = refusal(person.client("dynamodb").scan, TableName="orders", IndexName="by-state")
    assert answer[1] == sentence(person, "dynamodb:Scan", f"{TABLE_ARN}/index/by-state")


def test_an_explicit_deny_wins(guarded: Sandbox) -> None:
    denied = {**allow("dynamodb:PutItem", TABLE_ARN), "Effect": "Deny"}
    person = Person(guarded, "denied", allow("dynamodb:PutItem"), denied)
    person.client("dynamodb").put_item(TableName="others", Item={"pk": {"S": "a"}})
    code, message = refusal(person.client("dynamodb").put_item, TableName="orders", Item={"pk": {"S": "a"}})
    assert (code, message.endswith("with an explicit deny in an identity-based policy")) == (
        "AccessDeniedException",
        True,
    )


def test_statements_are_authorised_by_their_verbs_and_refused_one_by_one(guarded: Sandbox) -> None:
    person = Person(guarded, "partiql", allow("dynamodb:PartiQLDelete", TABLE_ARN))
    client = person.client("dynamodb")

    def batch(*texts: str) -> list[dict[str, Any]]:
        statements = [{"Statement": text, "Parameters": [{"S": "absent"}]} for text in texts]
        return [each.get("Error", {}) for each in client.batch_execute_statement(Statements=statements)["Responses"]]

    assert batch('DELETE FROM "orders" WHERE pk = ?') == [{}]
    (error,) = batch('UPDATE "orders" SET a = 1 WHERE pk = ?')
    assert error == {"Code": "AccessDenied", "Message": sentence(person, "dynamodb:PartiQLUpdate", TABLE_ARN)}
    (error,) = batch("INSERT INTO \"others\" VALUE {'pk': ?}")
    assert error["Message"].startswith(f"User: {person.arn} is not authorized to perform: dynamodb:PartiQLInsert on")


def test_a_transaction_needs_what_its_parts_need(guarded: Sandbox) -> None:
    person = Person(guarded, "transaction", allow("dynamodb:PutItem", TABLE_ARN))
    put = {"Put": {"TableName": "orders", "Item": {"pk": {"S": "t"}}}}
    person.client("dynamodb").transact_write_items(TransactItems=[put])
    delete = {"Delete": {"TableName": "orders", "Key": {"pk": {"S": "u"}}}}
    answer = refusal(person.client("dynamodb").transact_write_items, TransactItems=[put, delete])
    assert answer[1] == sentence(person, "dynamodb:DeleteItem", TABLE_ARN)


@pytest.mark.parametrize("lists", [True, False])
def test_a_missing_object_is_only_missing_to_who_may_list_the_bucket(guarded: Sandbox, lists: bool) -> None:
    more = [allow("s3:ListBucket", "arn:aws:s3:::ops")] if lists else []
    person = Person(guarded, f"reader-{lists}", allow("s3:GetObject", "arn:aws:s3:::ops/*"), *more)
    code, message = refusal(person.client("s3").get_object, Bucket="ops", Key="absent")
    if lists:
        assert code == "NoSuchKey"
    else:
        assert (code, message) == ("AccessDenied", sentence(person, "s3:ListBucket", '"arn:aws:s3:::ops"'))
    assert refusal(person.client("s3").head_object, Bucket="ops", Key="absent")[0] == ("404" if lists else "403")


JOB = {"Name": "guarded", "Command": {"Name": "glueetl", "ScriptLocation": "s3://ops/script.py"}}


def test_a_role_is_passed_to_the_service_that_the_policy_names(guarded: Sandbox) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/worker"

    def person(name: str, service: str) -> Person:
        condition = {"StringEquals": {"iam:PassedToService": service}}
        return Person(guarded, name, allow("glue:CreateJob"), allow("iam:PassRole", role, Condition=condition))

    to_lambda, to_glue = person("to-lambda", "lambda.amazonaws.com"), person("to-glue", "glue.amazonaws.com")
    answer = refusal(to_lambda.client("glue").create_job, Role=role, **JOB)
    assert answer == ("AccessDeniedException", sentence(to_lambda, "iam:PassRole", role))
    to_glue.client("glue").create_job(Role=role, **JOB)


TRUST = {"Effect": "Allow", "Principal": {"Service": "glue.amazonaws.com"}, "Action": "sts:AssumeRole"}
SCRIPT = b"""
import boto3, sys
client = boto3.client("dynamodb")
client.scan(TableName="orders")
client.scan(TableName="others")
"""


def test_a_run_has_what_both_its_role_and_its_session_policy_allow(guarded: Sandbox) -> None:
    """The role may scan everything, the session policy one table; scripts and logs are done with the role as well."""
    iam, glue = guarded.client("iam"), guarded.client("glue")
    arn = iam.create_role(RoleName="scanner", AssumeRolePolicyDocument=policy(TRUST))["Role"]["Arn"]
    iam.put_role_policy(
        RoleName="scanner", PolicyName="own", PolicyDocument=policy(allow(["dynamodb:Scan", "s3:GetObject"]))
    )
    guarded.client("s3").put_object(Bucket="ops", Key="script.py", Body=SCRIPT)
    glue.create_job(Role=arn, **JOB | {"Name": "scan"})
    narrow = policy(allow("dynamodb:Scan", TABLE_ARN), allow("s3:GetObject"))
    run = glue.start_job_run(JobName="scan", ExecutionRoleSessionPolicy=narrow)["JobRunId"]
    deadline = time.monotonic() + 60
    while (state := glue.get_job_run(JobName="scan", RunId=run)["JobRun"])["JobRunState"] in ("STARTING", "RUNNING"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    other = f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/others"
    assert state["JobRunState"] == "FAILED"
    assert f"dynamodb:Scan on resource: {other} because no session policy allows" in state["ErrorMessage"]
    calls = [each for each in guarded.control.calls() if "assumed-role/scanner/" in each["principal"]]
    made = {(each["action"], each["resource"], each["allowed"]) for each in calls}
    assert ("s3:GetObject", "arn:aws:s3:::ops/script.py", True) in made
    assert {call for call in made if call[0] == "dynamodb:Scan"} == {
        ("dynamodb:Scan", TABLE_ARN, True),
        ("dynamodb:Scan", other, False),
    }


def test_recording_alone_refuses_nothing() -> None:
    with Sandbox(iam="record") as sandbox:
        person = Person(sandbox, "nobody")
        person.client("dynamodb").list_tables()
        (call,) = [each for each in sandbox.control.calls() if each["principal"] == person.arn]
        assert call == {
            "principal": person.arn,
            "action": "dynamodb:ListTables",
            "resource": "*",
            "allowed": True,
            "count": 1,
        }
        sandbox.control.forget_calls()
        assert sandbox.control.calls() == []


def test_up_takes_iam(tmp_path: Path) -> None:
    environment = {**os.environ, "BULKEXEC_SANDBOX_DIR": str(tmp_path)}

    def bulkexec(*arguments: str) -> str:
        command = [sys.executable, "-m", "bulkexec", "sandbox", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    endpoint = bulkexec("up", "--port", "0", "--iam")
    port = endpoint.rpartition(":")[2]
    try:
        client = boto3.client(
            "dynamodb", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
        )
        assert refusal(client.list_tables)[0] == "UnrecognizedClientException"
    finally:
        bulkexec("down", "--port", port)
