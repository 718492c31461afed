"""`bootstrap` as a process, in an account of its own: from nothing, again, after drift, with somebody else's parts."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pexpect
import pytest

from bulkexec import iam
from bulkexec.runtimes.bootstrap import Wishes, plan
from bulkexec.runtimes.bucket import Bucket
from bulkexec.runtimes.steps import carry_out, changes, open_site
from bulkexec.sandbox.process import Sandbox, environment

BUCKET = "bulkexec-111122223333-us-east-1"
TABLE, ROLE, POLICY = "bulkexec-control", "bulkexec-job", "bulkexec-us-east-1"
CHANGES = ("Create", "Put", "Update", "Delete", "Attach", "Detach", "Tag")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """An account that no other test bootstraps in."""
    with Sandbox() as running:
        yield running


@pytest.fixture(autouse=True)
def no_faults(sandbox: Sandbox) -> Iterator[None]:
    yield
    sandbox.control.faults.clear()


class Parts:
    """The parts of a deployment as plain boto3 sees them."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.s3, self.iam, self.glue = sandbox.client("s3"), sandbox.client("iam"), sandbox.client("glue")
        self.dynamodb, self.logs = sandbox.client("dynamodb"), sandbox.client("logs")

    def table(self, name: str) -> str:
        self.dynamodb.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        return name

    def job(self) -> dict[str, Any]:
        return dict(self.glue.get_job(JobName="bulkexec")["Job"])

    def trust(self, role: str = ROLE) -> dict[str, Any]:
        return dict(self.iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"])

    def policy(self) -> dict[str, Any]:
        return dict(self.iam.get_role_policy(RoleName=ROLE, PolicyName=POLICY)["PolicyDocument"])

    def ttl(self) -> dict[str, Any]:
        return dict(self.dynamodb.describe_time_to_live(TableName=TABLE)["TimeToLiveDescription"])

    def rules(self, bucket: str = BUCKET) -> dict[str, dict[str, Any]]:
        rules = self.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        return {rule["ID"]: rule for rule in rules}

    def statements(self, bucket: str = BUCKET) -> dict[str, dict[str, Any]]:
        policy = json.loads(self.s3.get_bucket_policy(Bucket=bucket)["Policy"])
        return {statement["Sid"]: statement for statement in policy["Statement"]}

    def blocked(self, bucket: str = BUCKET) -> bool:
        return all(self.s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())

    def changed(self) -> list[str]:
        """Operations since the last reset that are not mere looks."""
        names = [name.partition(".")[2] for name in self.sandbox.control.stats()["requests"]]
        return [name for name in names if name.startswith(CHANGES)]


@pytest.fixture(scope="module")
def parts(sandbox: Sandbox) -> Parts:
    return Parts(sandbox)


@pytest.fixture
def deployment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything as bootstrap makes it by default, whatever an earlier test has done to it."""
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)
    site = open_site(boto3.Session())
    steps = plan(site, Wishes(BUCKET, ROLE, "5.1", "G.1X", 2))
    assert len(list(carry_out(steps, "bootstrap"))) == len(changes(steps))
    sandbox.control.reset_stats()


def lines(report: dict[str, Any], action: str) -> str:
    return "\n".join(f"{s['what']} {s['name']} {s['details']}" for s in report["steps"] if s["action"] == action)


def test_nothing_is_made_before_somebody_says_yes(bulkexec: Any, sandbox: Sandbox, parts: Parts) -> None:
    sandbox.control.reset_stats()
    outcome = bulkexec("bootstrap")
    assert outcome.code == 2
    assert "error BX105" in outcome.stderr
    assert "--yes" in outcome.stderr
    for part in (BUCKET, TABLE, ROLE, "Glue job", "/aws-glue/jobs/output"):
        assert part in outcome.stdout
    assert parts.changed() == []


def test_from_nothing(bulkexec: Any, parts: Parts) -> None:
    outcome = bulkexec.json("bootstrap", "--yes")
    assert outcome.code == 0, outcome.stderr
    made = lines(outcome.report, "make")
    for part in (BUCKET, TABLE, ROLE, "Glue job bulkexec", "/aws-glue/jobs/output", "/aws-glue/jobs/error", "wheel"):
        assert part in made
    job = parts.job()
    assert job["MaxRetries"] == 0
    assert job["ExecutionProperty"]["MaxConcurrentRuns"] > 1
    assert parts.blocked()
    assert parts.trust() == iam.trust_policy("aws")
    assert parts.policy() == iam.policy("job", region="us-east-1", account="111122223333", bucket=BUCKET)
    assert parts.ttl() == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    assert all(rule["Filter"]["Prefix"].startswith("bulkexec/") for rule in parts.rules().values())
    assert "results" not in json.dumps(parts.rules()), "results never go by themselves"
    (statement,) = parts.statements().values()
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Effect"] == "Deny"
    for name in (job["Command"]["ScriptLocation"], job["DefaultArguments"]["--additional-python-modules"]):
        parts.s3.head_object(Bucket=BUCKET, Key=name.rpartition(f"s3://{BUCKET}/")[2])


def test_a_second_time_there_is_nothing_to_do(bulkexec: Any, deployment: None, parts: Parts) -> None:
    outcome = bulkexec("bootstrap")  # no --yes: nothing is to be confirmed
    assert outcome.code == 0, outcome.stderr
    assert "Nothing to do." in outcome.stdout
    assert parts.changed() == []


def drift_of_the_bucket(parts: Parts) -> None:
    parts.s3.delete_public_access_block(Bucket=BUCKET)
    ours = {"Sid": "Theirs", "Effect": "Deny", "Principal": "*", "Action": "s3:DeleteBucket"}
    policy = {"Version": "2012-10-17", "Statement": [{**ours, "Resource": f"arn:aws:s3:::{BUCKET}"}]}
    parts.s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))
    rule = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 3}}
    parts.s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    for entry in parts.s3.list_objects_v2(Bucket=BUCKET, Prefix="bulkexec/")["Contents"]:
        parts.s3.delete_object(Bucket=BUCKET, Key=entry["Key"])


def drift_of_the_role(parts: Parts) -> None:
    """A role as an older version had made it: other trust, fewer permissions (cases C094, C163)."""
    anyone = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    parts.iam.update_assume_role_policy(RoleName=ROLE, PolicyDocument=json.dumps({"Statement": [anyone]}))
    some = {"Effect": "Allow", "Action": ["dynamodb:Scan", "dynamodb:DeleteTable"], "Resource": ["*"]}
    parts.iam.put_role_policy(RoleName=ROLE, PolicyName=POLICY, PolicyDocument=json.dumps({"Statement": [some]}))
    own = {"Effect": "Allow", "Action": ["kms:Decrypt"], "Resource": ["*"]}
    parts.iam.put_role_policy(RoleName=ROLE, PolicyName="theirs", PolicyDocument=json.dumps({"Statement": [own]}))


def drift_of_the_rest(parts: Parts) -> None:
    off = {"Enabled": False, "AttributeName": "expires_at"}
    parts.dynamodb.update_time_to_live(TableName=TABLE, TimeToLiveSpecification=off)
    parts.logs.put_retention_policy(logGroupName="/aws-glue/jobs/output", retentionInDays=30)
    parts.glue.update_job(
        JobName="bulkexec",
        JobUpdate={
            "Role": ROLE,
            "Command": {
                "Name": "glueetl",
                "ScriptLocation": f"s3://{BUCKET}/bulkexec/scripts/0123456789ab/bulk_job.py",
                "PythonVersion": "3.9",
            },
            "GlueVersion": "4.0",
            "MaxCapacity": 2.0,
            "DefaultArguments": {"--enable-metrics": "true"},
            "Connections": {"Connections": ["vpc"]},
        },
    )


def test_what_drifted_is_mended_and_what_is_the_owners_stays(bulkexec: Any, deployment: None, parts: Parts) -> None:
    # case C094 C123 C163
    before = parts.job()
    for drift in (drift_of_the_bucket, drift_of_the_role, drift_of_the_rest):
        drift(parts)
    outcome = bulkexec.json("bootstrap", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert "+dynamodb:" in lines(outcome.report, "mend")
    assert "-dynamodb:DeleteTable" in lines(outcome.report, "mend")
    # mended
    assert parts.blocked()
    assert parts.trust() == iam.trust_policy("aws")
    assert parts.policy() == iam.policy("job", region="us-east-1", account="111122223333", bucket=BUCKET)
    assert parts.ttl()["TimeToLiveStatus"] == "ENABLED"
    after = parts.job()
    for name in ("Command", "GlueVersion", "WorkerType", "NumberOfWorkers", "MaxRetries", "ExecutionProperty"):
        assert after[name] == before[name], name
    assert after["DefaultArguments"] == {**before["DefaultArguments"], "--enable-metrics": "true"}
    # the owner's
    assert after["Connections"] == {"Connections": ["vpc"]}
    assert parts.rules()["theirs"]["Expiration"] == {"Days": 3}
    assert set(parts.rules()) > {"theirs"}
    assert set(parts.statements()) == {"Theirs", "BulkexecTlsOnly"}
    assert "theirs" in parts.iam.list_role_policies(RoleName=ROLE)["PolicyNames"]
    (group,) = parts.logs.describe_log_groups(logGroupNamePrefix="/aws-glue/jobs/output")["logGroups"]
    assert group["retentionInDays"] == 30
    # and that was all
    assert "Nothing to do." in bulkexec("bootstrap").stdout


def test_what_was_chosen_is_kept_until_something_else_is(bulkexec: Any, deployment: None, parts: Parts) -> None:
    outcome = bulkexec.json("bootstrap", "--yes", "--glue-version", "6.0", "--worker-type", "G.2X", "--workers", "5")
    assert "Glue 5.1 -> 6.0, worker type G.1X -> G.2X, workers 2 -> 5" in lines(outcome.report, "mend")
    assert "Nothing to do." in bulkexec("bootstrap").stdout
    job = parts.job()
    assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"]) == ("6.0", "G.2X", 5)
    assert job["Command"]["PythonVersion"] == "3"


def test_what_jobs_may_touch_is_limited_once_and_stays_so(bulkexec: Any, deployment: None, parts: Parts) -> None:
    def resources(kind: str) -> list[str]:
        (found,) = [each["Resource"] for each in parts.policy()["Statement"] if each["Sid"] == kind]
        return list(found)

    there = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
    limits = ("--tables", f"orders,{there}", "--results", "s3://lake/exports")
    assert bulkexec.json("bootstrap", "--yes", *limits).code == 0
    here = "arn:aws:dynamodb:us-east-1:111122223333:table/orders"
    assert resources("Table") == [here, there]
    assert "arn:aws:s3:::lake/exports/*" in resources("Result")
    assert "Nothing to do." in bulkexec("bootstrap").stdout
    assert bulkexec("bootstrap", "--yes", "--tables", "").code == 2, "an empty variable does not mean every table"
    many = ",".join(f"orders-of-customer-{number}" for number in range(200))
    refused = bulkexec("bootstrap", "--yes", "--tables", many)
    assert (refused.code, "10,240" in refused.stderr) == (2, True), refused.stderr
    assert resources("Table") == [here, there]
    wider = bulkexec.json("bootstrap", "--yes", "--tables", "*", "--results", "")
    assert (wider.code, f"+{here.removesuffix('orders')}*" in lines(wider.report, "mend")) == (0, True)
    assert resources("Table") == ["arn:aws:dynamodb:us-east-1:111122223333:table/*"]
    assert resources("Result") == [f"arn:aws:s3:::{BUCKET}/bulkexec/results/*"]


def test_an_optional_look_that_is_denied_is_only_a_warning(
    bulkexec: Any, deployment: None, sandbox: Sandbox, parts: Parts
) -> None:
    # case C093 C123
    parts.logs.put_retention_policy(logGroupName="/aws-glue/jobs/output", retentionInDays=14)
    for service, operation in (("logs", "DescribeLogGroups"), ("dynamodb", "DescribeTimeToLive")):
        denial = {"code": "AccessDeniedException", "status": 400, "message": f"not allowed: {operation}"}
        sandbox.control.faults.add("error", service=service, operation=operation, **denial)
    outcome = bulkexec.json("bootstrap", "--yes")
    assert outcome.code == 0, outcome.stderr
    assert "not allowed: DescribeTimeToLive" in lines(outcome.report, "warning")
    sandbox.control.faults.clear()
    (group,) = parts.logs.describe_log_groups(logGroupNamePrefix="/aws-glue/jobs/output")["logGroups"]
    assert group["retentionInDays"] == 14


def test_where_no_bucket_may_be_made_one_can_be_named(bulkexec: Any, deployment: None, parts: Parts) -> None:
    # case C098
    theirs = "somebodys-data-lake"
    parts.s3.create_bucket(Bucket=theirs)
    rule = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 3}}
    parts.s3.put_bucket_lifecycle_configuration(Bucket=theirs, LifecycleConfiguration={"Rules": [rule]})
    outcome = bulkexec.json("bootstrap", "--yes", "--bucket", theirs)
    assert outcome.code == 0, outcome.stderr
    assert f"bucket {theirs} public access is not blocked" in lines(outcome.report, "warning")
    assert parts.rules(theirs)["theirs"]["Expiration"] == {"Days": 3}
    assert "BulkexecTlsOnly" in parts.statements(theirs)
    with pytest.raises(parts.s3.exceptions.ClientError, match="NoSuchTagSet"):
        parts.s3.get_bucket_tagging(Bucket=theirs)
    job = parts.job()
    assert job["Command"]["ScriptLocation"].startswith(f"s3://{theirs}/bulkexec/")
    assert f"arn:aws:s3:::{theirs}/bulkexec/jobs/*" in json.dumps(parts.policy())
    assert "Nothing to do." in bulkexec("bootstrap").stdout, "the bucket that was named stays the bucket"


def test_a_bucket_that_cannot_be_made_is_the_users_error(bulkexec: Any) -> None:
    # case C098
    with Sandbox() as other:
        other.control.faults.add("error", service="s3", operation="CreateBucket", code="AccessDenied", status=403)
        outcome = bulkexec("bootstrap", "--yes", env=other.env())
        assert outcome.code == 1
        assert "error BX301" in outcome.stderr
        assert BUCKET in outcome.stderr
        assert "Traceback" not in outcome.stderr
        with pytest.raises(other.client("glue").exceptions.EntityNotFoundException):
            other.client("glue").get_job(JobName="bulkexec")


@pytest.mark.parametrize(
    ("service", "trusted", "words"),
    [("glue.amazonaws.com", True, "lacks"), ("ec2.amazonaws.com", False, "does not trust glue.amazonaws.com")],
)
def test_a_named_role_is_looked_at_and_never_altered(
    service: str, trusted: bool, words: str, bulkexec: Any, deployment: None, parts: Parts
) -> None:
    name = f"theirs-{trusted}".lower()
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    parts.iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
    outcome = bulkexec.json("bootstrap", "--yes", "--role", name)
    assert outcome.code == 0, outcome.stderr
    assert words in lines(outcome.report, "warning")
    assert "s3:PutObject" in lines(outcome.report, "warning")
    assert parts.job()["Role"].endswith(f":role/{name}")
    assert json.loads(document) == parts.trust(name)
    assert parts.iam.list_role_policies(RoleName=name)["PolicyNames"] == []
    assert not trusted or "Nothing to do." in bulkexec("bootstrap").stdout, "the role that was named stays the role"


def test_a_role_of_our_name_that_is_not_ours_is_not_altered_when_it_is_named(
    bulkexec: Any, deployment: None, parts: Parts
) -> None:
    bulkexec("teardown", "--yes")
    statement = {"Effect": "Allow", "Principal": {"Service": "glue.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = {"Version": "2012-10-17", "Statement": [statement, {**statement, "Sid": "Theirs"}]}
    parts.iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(document))
    try:
        refused = bulkexec("bootstrap", "--yes", "--role", ROLE)
        assert (refused.code, "was not made by it" in refused.stderr) == (2, True), refused.stderr
        assert parts.trust() == document
        assert parts.iam.list_role_policies(RoleName=ROLE)["PolicyNames"] == []
    finally:
        parts.iam.delete_role(RoleName=ROLE)


def test_what_else_a_bucket_has_for_its_lifecycle_is_given_back(deployment: None, parts: Parts) -> None:
    """The old place of a rule's prefix, and from which size on objects move to another class: S3 keeps them as put."""
    rule = {"ID": "old", "Status": "Enabled", "Prefix": "logs/", "Expiration": {"Days": 30}}
    parts.s3.create_bucket(Bucket="older")
    parts.s3.put_bucket_lifecycle_configuration(Bucket="older", LifecycleConfiguration={"Rules": [rule]})
    session = boto3.Session()
    there = {"Rules": [rule], "TransitionDefaultMinimumObjectSize": "varies_by_storage_class"}
    sent: list[dict[str, Any]] = []
    events = session.events
    events.register("after-call.s3.GetBucketLifecycleConfiguration", lambda parsed, **_: parsed.update(there))
    events.register(
        "before-parameter-build.s3.PutBucketLifecycleConfiguration", lambda params, **_: sent.append(params)
    )
    Bucket(open_site(session), "older").add_rules()
    (request,) = sent
    assert request["TransitionDefaultMinimumObjectSize"] == "varies_by_storage_class"
    (kept,) = [each for each in request["LifecycleConfiguration"]["Rules"] if each["ID"] == "old"]
    assert kept == {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}}


def test_a_role_that_is_not_there_is_refused(bulkexec: Any, deployment: None, parts: Parts) -> None:
    outcome = bulkexec("bootstrap", "--yes", "--role", "nobody")
    assert outcome.code == 2
    assert "there is no role nobody" in outcome.stderr
    assert parts.changed() == []


def test_a_stale_deployment_is_not_run_and_says_what_to_do(
    bulkexec: Any, deployment: None, sandbox: Sandbox, parts: Parts
) -> None:
    # case C161
    table = parts.table("stale-deployment")
    job = parts.job()
    old = f"s3://{BUCKET}/bulkexec/scripts/0123456789ab/bulk_job.py"
    changed = {name: job[name] for name in ("Role", "DefaultArguments", "GlueVersion", "WorkerType", "NumberOfWorkers")}
    parts.glue.update_job(
        JobName="bulkexec", JobUpdate={**changed, "Command": {**job["Command"], "ScriptLocation": old}}
    )
    outcome = bulkexec("count", "--table", table, "--runtime", "glue")
    assert outcome.code == 2
    assert "error BX110" in outcome.stderr
    assert "0123456789ab" in outcome.stderr
    assert "bulkexec bootstrap" in outcome.stderr
    assert sandbox.control.requests("StartJobRun", "glue") == 0
    assert bulkexec("attach", "0a1b2c3d").stderr.startswith("error BX112"), "jobs that run can be followed all the same"
    assert bulkexec("count", "--table", table).code == 0, "this process needs no deployment"
    outcome = bulkexec.json("bootstrap", "--yes")
    assert "0123456789ab" in lines(outcome.report, "mend")
    assert parts.job()["Command"] == job["Command"]


def test_a_person_is_shown_the_plan_and_asked(sandbox: Sandbox, deployment: None, parts: Parts) -> None:
    parts.s3.delete_public_access_block(Bucket=BUCKET)
    for answer, code, blocked in (("no", 2, False), ("yes", 0, True)):
        child = pexpect.spawn(sys.executable, ["-m", "bulkexec", "bootstrap"], env=sandbox.env(), encoding="utf-8")
        child.expect("block public access")
        child.expect("Type yes to go on")
        child.sendline(answer)
        child.expect(pexpect.EOF, timeout=60)
        child.close()
        assert child.exitstatus == code, child.before
        if blocked:
            assert parts.blocked()
        else:
            assert "nothing changed" in (child.before or "")
