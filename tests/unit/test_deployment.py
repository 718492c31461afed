"""What a deployment is, how it is found, and what bootstrap leaves alone; AWS is scripted below boto3's interface."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.loaders
import botocore.session
import pytest

from bulkexec import errors
from bulkexec.runtimes.deployment import Deployment, bootstrap, find_deployment, job_script
from bulkexec.s3 import Location

HERE = Deployment("us-gov-west-1", "111122223333", "aws-us-gov", "ops", "G.1X", 3, "5.1", 600)
ARN = "arn:aws-us-gov:sts::111122223333:assumed-role/ops/me"
Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


LOADER = botocore.loaders.create_loader()
"""Service models are read once for all tests."""


def offline_session(region: str | None) -> boto3.Session:
    core = botocore.session.Session()
    core.register_component("data_loader", LOADER)
    return boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name=region, botocore_session=core)


def missing(code: str) -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": "not there"}}


class Account:
    """Gives each operation its scripted answer, an empty one by default, and keeps what was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.answers: dict[str, Answer] = {"GetCallerIdentity": {"Arn": ARN}, **answers}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.session = offline_session("us-gov-west-1")
        self.session.events.register("provide-client-params.*.*", self._params)
        self.session.events.register("before-call.*.*", self._answer)

    def _params(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["asked"] = params

    def _answer(self, model: Any, context: dict[str, Any], **_: Any) -> Any:
        self.asked.append((model.name, context["asked"]))
        given = self.answers.get(model.name, {})
        given = given(context["asked"]) if callable(given) else given
        return SimpleNamespace(status_code=404 if "Error" in given else 200), {"ResponseMetadata": {}, **given}

    def params(self, operation: str) -> list[dict[str, Any]]:
        return [params for name, params in self.asked if name == operation]


EMPTY: dict[str, Answer] = {
    "HeadBucket": missing("404"),
    "GetRole": missing("NoSuchEntity"),
    "CreateRole": {"Role": {"Arn": "arn:aws-us-gov:iam::111122223333:role/bulkexec-job"}},
    "DescribeTable": {"Table": {"TableStatus": "ACTIVE"}},
    "GetJob": missing("EntityNotFoundException"),
    "PutObject": {"ETag": '"e"'},
}
SET_UP: dict[str, Answer] = {
    "GetRole": EMPTY["CreateRole"],
    "CreateTable": missing("ResourceInUseException"),
    "CreateLogGroup": missing("ResourceAlreadyExistsException"),
    "PutObject": {"ETag": '"e"'},
    "GetJob": {"Job": {}},
}


@pytest.mark.parametrize(
    ("worker", "workers", "slots"), [("G.1X", 2, 16), ("G.1X", 1, 16), ("G.2X", 5, 128), ("?", 2, 16)]
)
def test_slots_are_threads_on_all_workers_but_the_drivers(worker: str, workers: int, slots: int) -> None:
    assert Deployment("r", "a", "aws", "b", worker, workers, "5.1", 600).slots == slots


def test_what_a_deployment_says_of_itself() -> None:
    assert HERE.describe() == "Glue 5.1, 3 x G.1X, stops at 10 h"
    assert HERE.job_folder("7f3a") == Location("ops", "bulkexec/jobs/7f3a")
    assert HERE.output_logs_arn == "arn:aws-us-gov:logs:us-gov-west-1:111122223333:log-group:/aws-glue/jobs/output"


def test_bootstrap_makes_everything_and_what_it_made_is_found() -> None:
    account = Account(**EMPTY)
    lines = list(bootstrap(account.session, worker_type="G.2X", workers=5))
    assert len(lines) == 6
    (bucket,) = account.params("CreateBucket")
    assert bucket["Bucket"] == "bulkexec-111122223333-us-gov-west-1"
    assert bucket["CreateBucketConfiguration"] == {"LocationConstraint": "us-gov-west-1"}
    (job,) = account.params("CreateJob")
    account.answers["GetJob"] = {"Job": job}
    found = find_deployment(account.session, None)
    assert found == Deployment(
        "us-gov-west-1", "111122223333", "aws-us-gov", bucket["Bucket"], "G.2X", 5, job["GlueVersion"], job["Timeout"]
    )
    script = Location.parse(job["Command"]["ScriptLocation"])
    assert (script.bucket, script.key) in [(put["Bucket"], put["Key"]) for put in account.params("PutObject")]
    assert not {"--conf", "--mode", "--debug", "--JOB_NAME"} & set(job["DefaultArguments"]), "Glue keeps these"


def test_bootstrap_again_mends_role_and_job_and_leaves_the_rest() -> None:
    # case C094 C123 C163
    account = Account(**SET_UP)
    list(bootstrap(account.session))
    names = [name for name, _ in account.asked]
    assert not {"CreateBucket", "CreateRole", "CreateJob", "PutRetentionPolicy", "PutPublicAccessBlock"} & set(names)
    assert {"PutRolePolicy", "AttachRolePolicy", "UpdateJob", "PutObject"} <= set(names)


def test_a_bucket_that_was_named_is_used_and_not_made() -> None:
    # case C098
    account = Account(**SET_UP)
    list(bootstrap(account.session, bucket="ours"))
    (update,) = account.params("UpdateJob")
    assert update["JobUpdate"]["Command"]["ScriptLocation"].startswith("s3://ours/bulkexec/scripts/")
    assert account.params("CreateBucket") == []


def test_the_roles_policy_names_this_partition_and_no_other_service() -> None:
    account = Account(**SET_UP)
    list(bootstrap(account.session))
    (policy,) = account.params("PutRolePolicy")
    statements = json.loads(policy["PolicyDocument"])["Statement"]
    assert all(statement["Resource"].startswith("arn:aws-us-gov:") for statement in statements)
    actions = {action for statement in statements for action in statement["Action"]}
    assert {action.split(":")[0] for action in actions} == {"dynamodb", "s3"}
    assert not [action for action in actions if "*" in action]


@pytest.mark.parametrize("operation", ["CreateBucket", "CreateRole", "CreateTable", "CreateLogGroup"])
def test_a_denial_is_the_users_error(operation: str) -> None:
    account = Account(**{**EMPTY, operation: missing("AccessDenied")})
    with pytest.raises(errors.AccessDenied):
        list(bootstrap(account.session))


def test_without_bootstrap_that_is_said() -> None:
    account = Account(GetJob=missing("EntityNotFoundException"))
    with pytest.raises(errors.NotDeployed) as caught:
        find_deployment(account.session, None)
    assert "bulkexec bootstrap" in caught.value.fix


def test_a_job_of_another_version_is_not_used() -> None:
    # case C161
    account = Account(
        GetJob={"Job": {"Command": {"ScriptLocation": "s3://ops/bulkexec/scripts/000000000000/bulk_job.py"}}}
    )
    with pytest.raises(errors.NotDeployed, match="another version"):
        find_deployment(account.session, None)


def test_the_jobs_script_is_a_program_without_logic() -> None:
    text = job_script().decode()
    compile(text, "bulk_job.py", "exec")
    assert len(text.splitlines()) < 60
