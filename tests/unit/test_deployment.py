"""What a deployment is, how it is found, and what bootstrap asks for where the sandbox cannot go: other partitions,
other regions' buckets, roles that Glue does not know yet. AWS is scripted below boto3's interface."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.loaders
import botocore.session
import pytest

from bulkexec import errors
from bulkexec.runtimes import bootstrap
from bulkexec.runtimes.bootstrap import Wishes
from bulkexec.runtimes.deployment import Deployment, OtherVersion, find_deployment
from bulkexec.runtimes.job_definition import MODULES, JobShape, definition, differences, job_script, shape_of, updated
from bulkexec.runtimes.steps import Step, carry_out, open_site
from bulkexec.s3 import Location

HERE = Deployment("us-gov-west-1", "111122223333", "aws-us-gov", "ops", "G.1X", 3, "5.1", 600)
ARN = "arn:aws-us-gov:sts::111122223333:assumed-role/ops/me"
ROLE = "arn:aws-us-gov:iam::111122223333:role/bulkexec-job"
Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


LOADER = botocore.loaders.create_loader()
"""Service models are read once for all tests."""


def offline_session(region: str | None) -> boto3.Session:
    core = botocore.session.Session()
    core.register_component("data_loader", LOADER)
    return boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name=region, botocore_session=core)


def error(code: str, message: str = "not there") -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": message}}


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

    def plan(self, **wishes: Any) -> list[Step]:
        return bootstrap.plan(open_site(self.session), Wishes(**wishes))

    def bootstrap(self, **wishes: Any) -> list[Step]:
        return list(carry_out(self.plan(**wishes), "bootstrap"))


EMPTY: dict[str, Answer] = {
    "HeadBucket": error("404"),
    "HeadObject": error("404"),
    "GetBucketPolicy": error("NoSuchBucketPolicy"),
    "GetBucketLifecycleConfiguration": error("NoSuchLifecycleConfiguration"),
    "GetRole": error("NoSuchEntity"),
    "DescribeTable": error("ResourceNotFoundException"),
    "DescribeLogGroups": {"logGroups": []},
    "GetJob": error("EntityNotFoundException"),
    "PutObject": {"ETag": '"e"'},
}


def empty(**answers: Answer) -> Account:
    """An account with nothing in it. The control table is there as soon as it has been made."""
    account = Account(**{**EMPTY, **answers})

    def create(_: dict[str, Any]) -> dict[str, Any]:
        account.answers["DescribeTable"] = {"Table": {"TableStatus": "ACTIVE"}}
        return {}

    if "CreateTable" not in answers:
        account.answers["CreateTable"] = create
    return account


@pytest.mark.parametrize(
    ("worker", "workers", "slots"), [("G.1X", 2, 16), ("G.1X", 1, 16), ("G.2X", 5, 128), ("?", 2, 16)]
)
def test_slots_are_threads_on_all_workers_but_the_drivers(worker: str, workers: int, slots: int) -> None:
    assert Deployment("r", "a", "aws", "b", worker, workers, "5.1", 600).slots == slots


def test_what_a_deployment_says_of_itself() -> None:
    assert HERE.describe() == "Glue 5.1, 3 x G.1X, stops at 10 h"
    assert replace(HERE, timeout_minutes=2).describe().endswith("stops at 2 min")
    assert replace(HERE, timeout_minutes=90).describe().endswith("stops at 1 h 30 min")
    assert HERE.job_folder("7f3a") == Location("ops", "bulkexec/jobs/7f3a")
    assert HERE.output_logs_arn == "arn:aws-us-gov:logs:us-gov-west-1:111122223333:log-group:/aws-glue/jobs/output"


def test_in_another_partition_and_region_everything_is_named_for_it_and_then_found() -> None:
    account = empty()
    steps = account.bootstrap(worker_type="G.2X", workers=5)
    assert {step.action for step in steps} == {"make"}
    (bucket,) = account.params("CreateBucket")
    assert bucket["Bucket"] == "bulkexec-111122223333-us-gov-west-1"
    assert bucket["CreateBucketConfiguration"] == {"LocationConstraint": "us-gov-west-1"}
    (job,) = account.params("CreateJob")
    assert job["Role"] == ROLE
    account.answers["GetJob"] = {"Job": job}
    found = find_deployment(account.session, None)
    assert found == Deployment(
        "us-gov-west-1", "111122223333", "aws-us-gov", bucket["Bucket"], "G.2X", 5, job["GlueVersion"], job["Timeout"]
    )
    put = [(each["Bucket"], each["Key"]) for each in account.params("PutObject")]
    wheel = Location.parse(job["DefaultArguments"][MODULES].split(",")[-1])
    script = Location.parse(job["Command"]["ScriptLocation"])
    assert put == [(script.bucket, script.key), (wheel.bucket, wheel.key)]
    assert not {"--conf", "--mode", "--debug", "--JOB_NAME"} & set(job["DefaultArguments"]), "Glue keeps these"
    policies = [account.params("PutRolePolicy")[0]["PolicyDocument"], account.params("PutBucketPolicy")[0]["Policy"]]
    resources = [arn for text in policies for each in json.loads(text)["Statement"] for arn in each["Resource"]]
    assert all(arn.startswith("arn:aws-us-gov:") for arn in resources)


def test_everything_that_can_be_is_tagged_when_it_is_made() -> None:
    account = empty()
    account.bootstrap()
    tag = {"Key": "bulkexec", "Value": "deployment"}
    assert account.params("PutBucketTagging")[0]["Tagging"] == {"TagSet": [tag]}
    assert account.params("CreateRole")[0]["Tags"] == [tag]
    assert account.params("CreateTable")[0]["Tags"] == [tag]
    assert account.params("CreateJob")[0]["Tags"] == {"bulkexec": "deployment"}


@pytest.mark.parametrize("operation", ["CreateBucket", "CreateRole", "CreateTable", "CreateJob"])
def test_a_denial_of_what_is_needed_is_the_users_error(operation: str) -> None:
    account = empty(**{operation: error("AccessDenied")})
    with pytest.raises(errors.AccessDenied):
        account.bootstrap()


def test_glue_may_not_know_a_new_role_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ROLE_PAUSE_SECONDS", 0.0)
    unknown = error("InvalidInputException", "Role should be given assume role permissions for Glue Service.")
    answers = [unknown, unknown, {"Name": "bulkexec"}]
    account = empty(CreateJob=lambda _: answers.pop(0))
    account.bootstrap()
    assert len(account.params("CreateJob")) == 3


def test_what_glue_refuses_for_another_reason_is_not_repeated() -> None:
    account = empty(CreateJob=error("InvalidInputException", "Timeout is too long"))
    with pytest.raises(errors.RequestRejected, match="Timeout is too long"):
        account.bootstrap()
    assert len(account.params("CreateJob")) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error("403"), "may not be used by this caller"),
        (error("301"), "in another region"),
        ({"BucketRegion": "us-gov-east-1"}, "in us-gov-east-1"),
        (error("404"), "there is no bucket ours"),
    ],
)
def test_a_bucket_of_no_use_is_refused_before_anything_is_made(answer: dict[str, Any], words: str) -> None:
    # case C098
    account = empty(HeadBucket=answer)
    with pytest.raises(errors.BadArgument, match=words):
        account.plan(bucket="ours")
    assert not [name for name, _ in account.asked if name.startswith(("Create", "Put", "Update"))]


def test_a_bucket_that_nobody_named_must_be_of_this_account() -> None:
    """Its name can be guessed, and somebody else may have taken it to get our code and results."""
    account = empty(HeadBucket=error("403"))
    with pytest.raises(errors.BadArgument, match="belongs to another account"):
        account.plan()
    account.answers["HeadBucket"] = {}
    account.plan(bucket="ours")
    assert [params.get("ExpectedBucketOwner") for params in account.params("HeadBucket")] == ["111122223333", None]


def test_another_table_of_the_control_tables_name_is_refused_before_anything_is_made() -> None:
    account = empty(DescribeTable={"Table": {"TableStatus": "ACTIVE", "KeySchema": [{"AttributeName": "id"}]}})
    with pytest.raises(errors.BadArgument, match="its key is id"):
        account.plan()
    assert not [name for name, _ in account.asked if name.startswith(("Create", "Put", "Update"))]


def test_another_job_of_that_name_is_refused_before_anything_is_made() -> None:
    theirs = {"Name": "bulkexec", "Role": "r", "Command": {"Name": "glueetl", "ScriptLocation": "s3://theirs/etl.py"}}
    account = empty(GetJob={"Job": theirs})
    with pytest.raises(errors.BadArgument, match="its script is s3://theirs/etl"):
        account.plan()
    assert [name for name, _ in account.asked] == ["GetCallerIdentity", "GetJob"]


def test_a_role_that_may_not_be_looked_at_is_used_as_it_was_named() -> None:
    # case C093
    arn = "arn:aws-us-gov:iam::111122223333:role/team/etl"
    account = empty(GetRole=error("AccessDenied"))
    (role,) = [step for step in account.plan(role=arn) if step.what == "role"]
    assert role.action == "warning"
    account.bootstrap(role=arn)
    assert account.params("CreateJob")[0]["Role"] == arn
    assert not account.params("CreateRole")


def test_without_bootstrap_that_is_said() -> None:
    account = Account(GetJob=error("EntityNotFoundException"))
    with pytest.raises(errors.NotDeployed) as caught:
        find_deployment(account.session, None)
    assert "bulkexec bootstrap" in caught.value.fix


WANTED = definition("ops", ROLE, JobShape())
OLD = "s3://ops/bulkexec/scripts/000000000000/bulk_job.py"


@pytest.mark.parametrize(
    "change",
    [
        {"Command": {**WANTED["Command"], "ScriptLocation": OLD}},
        {"Command": {**WANTED["Command"], "ScriptLocation": "s3://ops/scripts/000000000000/bulk_job.py"}},
        {"GlueVersion": "4.0"},
        {"WorkerType": "G.025X"},
        {"MaxRetries": 2},
        {"Description": "bulkexec, permissions 000000000000"},
    ],
    ids=["script", "place", "Glue", "workers", "retries", "permissions"],
)
def test_a_job_of_another_version_is_found_and_not_used(change: dict[str, Any]) -> None:
    # case C161
    account = Account(GetJob={"Job": {**WANTED, **change}})
    with pytest.raises(OtherVersion) as caught:
        find_deployment(account.session, None)
    assert caught.value.fix.startswith("bulkexec bootstrap")
    assert find_deployment(account.session, None, stale_too=True).stale == caught.value.why != ""


@pytest.mark.parametrize(
    "change", [{"GlueVersion": "6.0"}, {"WorkerType": "R.4X", "NumberOfWorkers": 40}, {"Timeout": 9}]
)
def test_what_the_owner_may_choose_makes_no_job_stale_and_is_kept(change: dict[str, Any]) -> None:
    job = {**WANTED, **change}
    account = Account(GetJob={"Job": job})
    assert find_deployment(account.session, None).stale == ""
    assert differences(job, definition("ops", ROLE, shape_of(job))) == []


def test_other_code_is_said_in_the_plan_and_replaced_by_the_next_bootstrap() -> None:
    # case C161: the client sends its own wheel along, so what runs is never older than what was asked
    job = {**WANTED, "DefaultArguments": {**WANTED["DefaultArguments"], MODULES: "s3://ops/bulkexec/wheels/0123/b.whl"}}
    found = find_deployment(Account(GetJob={"Job": job}).session, None)
    assert "with this client's code, the deployment's is 0123 (bulkexec bootstrap" in found.describe()
    assert found.stale == ""
    assert differences(job, WANTED)[0].startswith("wheel 0123 -> ")


def test_an_update_leaves_the_owners_settings_in_the_job() -> None:
    job = {
        **WANTED,
        "Connections": {"Connections": ["vpc"]},
        "SecurityConfiguration": "kms",
        "DefaultArguments": {"--enable-metrics": "true", "--TempDir": "s3://else/"},
        "MaxCapacity": 2.0,
        "AllocatedCapacity": 2,
        "CreatedOn": 1,
    }
    update = updated(job, WANTED)
    assert update["Connections"] == job["Connections"]
    assert update["SecurityConfiguration"] == "kms"
    assert update["DefaultArguments"] == {"--enable-metrics": "true", **WANTED["DefaultArguments"]}
    assert not {"MaxCapacity", "AllocatedCapacity", "CreatedOn"} & set(update)


def test_the_jobs_script_is_a_program_without_logic() -> None:
    text = job_script().decode()
    compile(text, "bulk_job.py", "exec")
    assert len(text.splitlines()) < 60
