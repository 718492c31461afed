"""`teardown` as a process, in accounts of their own: exactly what bootstrap made goes, and what jobs found stays."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from bulkexec.control import ControlTable
from bulkexec.runtimes.bootstrap import Wishes, plan
from bulkexec.runtimes.steps import carry_out, open_site
from bulkexec.sandbox.process import Sandbox, environment

BUCKET = "bulkexec-111122223333-us-east-1"
TABLE, ROLE = "bulkexec-control", "bulkexec-job"
LOGS = "/aws-glue/jobs/"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """An account that no other test bootstraps in."""
    with Sandbox() as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(sandbox: Sandbox) -> Iterator[None]:
    yield
    sandbox.control.faults.clear()


@pytest.fixture
def bootstrap(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)

    def run(region: str = "us-east-1", **wishes: Any) -> None:
        site = open_site(boto3.Session(region_name=region))
        list(carry_out(plan(site, Wishes(**wishes)), "bootstrap"))

    return run


class Parts:
    """What there is of a deployment, as plain boto3 sees it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.s3, self.iam, self.glue = sandbox.client("s3"), sandbox.client("iam"), sandbox.client("glue")
        self.dynamodb, self.logs = sandbox.client("dynamodb"), sandbox.client("logs")

    def left(self) -> set[str]:
        """Names of everything that bootstrap could have made and that is there."""
        return {
            *(bucket["Name"] for bucket in self.s3.list_buckets()["Buckets"]),
            *(role["RoleName"] for role in self.iam.list_roles()["Roles"]),
            *(f"job {name}" for name in self.glue.list_jobs()["JobNames"]),
            *self.dynamodb.list_tables()["TableNames"],
        }

    def put(self, key: str, bucket: str = BUCKET) -> None:
        self.s3.put_object(Bucket=bucket, Key=key, Body=b"x")

    def objects(self, bucket: str = BUCKET) -> set[str]:
        return {entry["Key"] for entry in self.s3.list_objects_v2(Bucket=bucket).get("Contents", ())}

    def rules(self, bucket: str) -> set[str]:
        try:
            rules = self.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except self.s3.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
                raise
            return set()
        return {rule["ID"] for rule in rules}

    def statements(self, bucket: str) -> set[str]:
        return {each["Sid"] for each in json.loads(self.s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]}


@pytest.fixture(scope="module")
def parts(sandbox: Sandbox) -> Parts:
    return Parts(sandbox)


def lines(report: dict[str, Any], action: str) -> str:
    return "\n".join(f"{s['what']} {s['name']} {s['details']}" for s in report["steps"] if s["action"] == action)


def test_where_there_is_nothing_that_is_said(bulkexec: Any, parts: Parts) -> None:
    outcome = bulkexec("teardown")
    assert outcome.code == 0, outcome.stderr
    assert "Nothing of bulkexec is here." in outcome.stdout
    assert parts.left() == set()


def test_everything_that_bootstrap_made_goes_and_the_logs_stay(
    bulkexec: Any, bootstrap: Callable[..., None], parts: Parts
) -> None:
    bootstrap()
    parts.put("bulkexec/jobs/7f3a91c2/plan.json")
    parts.put("bulkexec/jobs/7f3a91c2/runs/1/report.json")
    parts.put("bulkexec/temp/x")
    before = parts.left()
    assert before == {BUCKET, ROLE, "job bulkexec", TABLE}
    outcome = bulkexec("teardown")
    assert outcome.code == 2
    assert "error BX105" in outcome.stderr
    assert parts.left() == before, "nothing goes before somebody says yes"
    outcome = bulkexec.json("teardown", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert parts.left() == set()
    assert "log groups" in lines(outcome.report, "keep")
    assert len(parts.logs.describe_log_groups(logGroupNamePrefix=LOGS)["logGroups"]) == 2
    assert "Nothing of bulkexec is here." in bulkexec("teardown").stdout


def test_results_stay_and_the_bucket_with_them(bulkexec: Any, bootstrap: Callable[..., None], parts: Parts) -> None:
    bootstrap()
    result = "bulkexec/results/AWSDynamoDB/01700000000000-7f3a91c2/data/0000000-0000.json.gz"
    listed = {"bulkexec/jobs/7f3a91c2/failed/0000001.json.gz", "bulkexec/jobs/7f3a91c2/report.json"}
    for key in (result, *listed, "bulkexec/jobs/00000000/plan.json"):
        parts.put(key)
    outcome = bulkexec.json("teardown", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert parts.left() == {BUCKET}
    assert parts.objects() == {result, *listed}
    assert f"results are kept in s3://{BUCKET}/bulkexec/results" in lines(outcome.report, "keep")
    assert parts.rules(BUCKET) == set(), "what is kept does not expire"
    assert parts.statements(BUCKET) == {"BulkexecTlsOnly"}, "what is kept stays protected"
    # A bucket that was made once is ours again, and goes when it is empty at last.
    for key in parts.objects():
        parts.s3.delete_object(Bucket=BUCKET, Key=key)
    bootstrap()
    bulkexec("teardown", "--yes")
    assert parts.left() == set()


def test_what_is_somebody_elses_stays_as_it_was(bulkexec: Any, bootstrap: Callable[..., None], parts: Parts) -> None:
    parts.s3.create_bucket(Bucket="theirs")
    rule = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 3}}
    parts.s3.put_bucket_lifecycle_configuration(Bucket="theirs", LifecycleConfiguration={"Rules": [rule]})
    statement = {"Sid": "Theirs", "Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket"}
    policy = {"Version": "2012-10-17", "Statement": [{**statement, "Resource": "arn:aws:s3:::theirs"}]}
    parts.s3.put_bucket_policy(Bucket="theirs", Policy=json.dumps(policy))
    trust = {"Effect": "Allow", "Principal": {"Service": "glue.amazonaws.com"}, "Action": "sts:AssumeRole"}
    parts.iam.create_role(RoleName="theirs", AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    own = {"jobs/theirs.csv", "wheels/theirs.whl", "bulkexec/results/x", "bulkexec/scripts/theirs.py"}
    for key in own:
        parts.put(key, "theirs")
    bootstrap(bucket="theirs", role="theirs")
    assert parts.rules("theirs") > {"theirs"}
    outcome = bulkexec.json("teardown", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert parts.left() == {"theirs"}
    assert parts.objects("theirs") == own
    assert parts.rules("theirs") == {"theirs"}
    assert parts.statements("theirs") == {"Theirs"}
    assert [role["RoleName"] for role in parts.iam.list_roles()["Roles"]] == ["theirs"]
    assert "not made by bootstrap" in lines(outcome.report, "keep")
    parts.iam.delete_role(RoleName="theirs")


def test_a_table_that_bootstrap_did_not_make_stays(bulkexec: Any, bootstrap: Callable[..., None], parts: Parts) -> None:
    parts.dynamodb.create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        BillingMode="PAY_PER_REQUEST",
    )
    bootstrap()
    outcome = bulkexec.json("teardown", "--yes")
    assert f"control table {TABLE} not made by bootstrap" in lines(outcome.report, "keep")
    assert TABLE in parts.left()
    parts.dynamodb.delete_table(TableName=TABLE)


def test_a_role_that_another_region_uses_stays_for_it(
    bulkexec: Any, bootstrap: Callable[..., None], sandbox: Sandbox, parts: Parts
) -> None:
    """IAM is not of a region, so two deployments share the role."""
    bootstrap()
    policy = {"Statement": [{"Effect": "Allow", "Action": ["dynamodb:Scan"], "Resource": ["*"]}]}
    parts.iam.put_role_policy(RoleName=ROLE, PolicyName="bulkexec-eu-west-1", PolicyDocument=json.dumps(policy))
    outcome = bulkexec.json("teardown", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert f"role {ROLE} used in eu-west-1 too" in lines(outcome.report, "keep")
    assert parts.iam.list_role_policies(RoleName=ROLE)["PolicyNames"] == ["bulkexec-eu-west-1"]
    assert parts.left() - {"theirs"} == {ROLE}
    parts.iam.delete_role_policy(RoleName=ROLE, PolicyName="bulkexec-eu-west-1")
    bootstrap()
    bulkexec("teardown", "--yes")
    assert parts.left() - {"theirs"} == set(), "the last one takes the role along"


def test_nothing_goes_while_a_job_runs(
    bulkexec: Any, bootstrap: Callable[..., None], parts: Parts, sandbox: Sandbox
) -> None:
    bootstrap()
    before = parts.left()
    # The run has no plan and would end by itself; it is held up where it fetches its code.
    sandbox.control.faults.add("delay", operation="GetObject", delay_seconds=10.0)
    run_id = parts.glue.start_job_run(JobName="bulkexec", Arguments={"--job_id": "7f3a91c2"})["JobRunId"]
    outcome = bulkexec("teardown", "--yes")
    assert outcome.code == 2
    assert "error BX114" in outcome.stderr
    assert "job 7f3a91c2 is running" in outcome.stderr
    assert parts.left() == before
    parts.glue.batch_stop_job_run(JobName="bulkexec", JobRunIds=[run_id])
    sandbox.control.faults.clear()
    while parts.glue.get_job_run(JobName="bulkexec", RunId=run_id)["JobRun"]["JobRunState"] in (
        "STARTING",
        "RUNNING",
        "STOPPING",
    ):
        time.sleep(0.1)
    assert bulkexec("teardown", "--yes").code == 0


def test_nothing_goes_while_a_process_elsewhere_holds_a_table(
    bulkexec: Any, bootstrap: Callable[..., None], parts: Parts
) -> None:
    bootstrap()
    control, arn = ControlTable(boto3.Session(), "us-east-1", TABLE), "arn:aws:dynamodb:us-east-1:1:table/orders"
    control.lock(arn, "7f3a91c2")
    outcome = bulkexec("teardown", "--yes")
    assert outcome.code == 2
    assert "error BX114: job 7f3a91c2 is changing table orders" in outcome.stderr
    assert TABLE in parts.left()
    control.unlock(arn, "7f3a91c2")


def test_a_bucket_with_earlier_versions_stays(bulkexec: Any, bootstrap: Callable[..., None], parts: Parts) -> None:
    bootstrap()
    parts.s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    parts.put("bulkexec/jobs/7f3a91c2/plan.json")
    outcome = bulkexec.json("teardown", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert "earlier versions" in lines(outcome.report, "warning")
    assert BUCKET in parts.left()
    for kind in ("Versions", "DeleteMarkers"):
        for each in parts.s3.list_object_versions(Bucket=BUCKET).get(kind, ()):
            parts.s3.delete_object(Bucket=BUCKET, Key=each["Key"], VersionId=each["VersionId"])
    parts.s3.delete_bucket(Bucket=BUCKET)


def test_a_teardown_that_was_refused_half_way_can_be_run_again(
    bulkexec: Any, bootstrap: Callable[..., None], sandbox: Sandbox, parts: Parts
) -> None:
    bootstrap()
    number = sandbox.control.faults.add("error", service="iam", operation="DeleteRole", code="AccessDenied", status=403)
    outcome = bulkexec("teardown", "--yes")
    assert outcome.code == 1
    assert "error BX301" in outcome.stderr
    assert "removed  Glue job       bulkexec" in outcome.stdout, "what was done is said"
    sandbox.control.faults.remove(number)
    assert bulkexec("teardown", "--yes").code == 0
    assert parts.left() - {"theirs"} == set()
