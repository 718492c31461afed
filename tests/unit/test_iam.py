"""The one statement of permissions, and everything that is made from it."""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import botocore.session
import pytest
from click.testing import CliRunner

from bulkexec import iam
from bulkexec.iam.documents import generated
from bulkexec.iam_cli import iam as command
from bulkexec.runtimes import deployment

ROOT = Path(__file__).parents[2]
HERE = {"region": "eu-west-1", "account": "111122223333"}

OPERATIONS = {
    "s3:ListBucket": "ListObjectsV2",
    "s3:PutBucketPublicAccessBlock": "PutPublicAccessBlock",
    "s3:GetBucketPublicAccessBlock": "GetPublicAccessBlock",
    "s3:GetEncryptionConfiguration": "GetBucketEncryption",
    "s3:PutEncryptionConfiguration": "PutBucketEncryption",
    "s3:GetLifecycleConfiguration": "GetBucketLifecycleConfiguration",
    "s3:PutLifecycleConfiguration": "PutBucketLifecycleConfiguration",
    "iam:PassRole": "CreateRole",
    "dynamodb:PartiQLDelete": "BatchExecuteStatement",
    "dynamodb:PartiQLInsert": "BatchExecuteStatement",
    "dynamodb:PartiQLUpdate": "BatchExecuteStatement",
}
"""Actions that are named otherwise than the API's operation, or belong to several."""

MODELS = {"servicequotas": "service-quotas"}


def statements(document: dict[str, object]) -> list[dict[str, list[str]]]:
    found = document["Statement"]
    assert isinstance(found, list)
    return found


def allowed(document: dict[str, object]) -> set[tuple[str, str]]:
    """(action, resource) pairs."""
    return {(action, arn) for each in statements(document) for action in each["Action"] for arn in each["Resource"]}


@pytest.mark.parametrize("path", [path.relative_to(ROOT) for path, _ in generated(ROOT)], ids=str)
def test_generated_files_are_what_the_table_says(path: Path) -> None:
    content = {made.relative_to(ROOT): text for made, text in generated(ROOT)}[path]
    assert (ROOT / path).read_text(encoding="utf-8") == content, "run: make iam"


def test_the_folder_holds_nothing_else() -> None:
    made = {path for path, _ in generated(ROOT)}
    assert set((ROOT / "iam").iterdir()) <= made


@pytest.mark.parametrize("grant", iam.GRANTS, ids=lambda grant: f"{grant.action} {grant.on[0]}")
def test_each_action_is_a_real_one_and_has_a_reason(grant: iam.Grant) -> None:
    service, operation = grant.action.split(":")
    known = botocore.session.get_session().get_service_model(MODELS.get(service, service)).operation_names
    assert OPERATIONS.get(grant.action, operation) in known
    assert "*" not in grant.action
    assert grant.why
    assert not grant.why.endswith(".")
    assert grant.commands
    assert grant.roles


def test_no_row_says_twice_the_same() -> None:
    rows = [(role, grant.action, on) for grant in iam.GRANTS for role in grant.roles for on in grant.on]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("role", iam.ROLES)
@pytest.mark.parametrize(
    ("partition", "region"), [("aws", "eu-west-1"), ("aws-us-gov", "us-gov-west-1"), ("aws-cn", "cn-north-1")]
)
def test_every_resource_is_of_the_partition_and_as_narrow_as_the_service_allows(
    role: iam.Role, partition: str, region: str
) -> None:
    assert iam.partition_of(region) == partition
    document = iam.policy(role, tables=["orders"], partition=partition, region=region, account="111122223333")
    for each in statements(document):
        assert each["Effect"] == "Allow"
        for arn in each["Resource"]:
            if arn == "*":
                assert {action.split(":")[0] for action in each["Action"]} <= {
                    "pricing",
                    "servicequotas",
                    "application-autoscaling",
                    "logs",  # DescribeLogGroups
                }
                continue
            assert arn.startswith(f"arn:{partition}:")
            assert "REGION" not in arn
            assert "ACCOUNT" not in arn
            if re.search(r":(user|role)/\*$", arn):
                assert set(each["Action"]) == {"iam:SimulatePrincipalPolicy", "iam:GetRole"}  # which do nothing
                continue
            assert not re.search(r":table/\*|:job/\*|:::\*", arn), arn


@pytest.mark.parametrize("role", iam.ROLES)
def test_a_policy_fits_into_a_managed_policy(role: iam.Role) -> None:
    """IAM quotas: 6,144 characters a managed policy, white space not counted."""
    tables = [f"orders-of-the-year-{number}" for number in range(10)]
    assert len(json.dumps(iam.policy(role, tables=tables, **HERE), separators=(",", ":"))) < 6_144


def test_a_policy_names_the_tables_it_was_given_and_no_other() -> None:
    other = "arn:aws:dynamodb:eu-central-1:444455556666:table/archive"
    document = iam.policy("job", tables=["orders", other], **HERE)
    own = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
    control = "arn:aws:dynamodb:eu-west-1:111122223333:table/bulkexec-control"
    found = {arn for action, arn in allowed(document) if action.startswith("dynamodb:")}
    assert found == {own, f"{own}/index/*", other, f"{other}/index/*", control}


def test_the_read_only_job_is_the_job_without_what_changes_tables() -> None:
    tables = ["orders"]
    reads, whole = (allowed(iam.policy(role, tables=tables, **HERE)) for role in ("job-read-only", "job"))
    assert reads < whole
    table = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
    assert {action for action, arn in reads if arn.startswith(table)} == {
        "dynamodb:DescribeTable",
        "dynamodb:Scan",
        "dynamodb:Query",
        "dynamodb:BatchGetItem",
    }


def test_a_role_is_passed_to_glue_only() -> None:
    (passing,) = [each for each in statements(iam.policy("bootstrap", **HERE)) if "iam:PassRole" in each["Action"]]
    assert passing["Action"] == ["iam:PassRole"]
    assert passing["Resource"] == ["arn:aws:iam::111122223333:role/bulkexec-job"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "glue.amazonaws.com"}}


def test_places_for_results_are_added() -> None:
    document = iam.policy("job", places=["s3://exports/daily/", "archive"], **HERE)
    puts = {arn for action, arn in allowed(document) if action == "s3:PutObject"}
    assert {"arn:aws:s3:::exports/daily/*", "arn:aws:s3:::archive/*"} < puts


@pytest.mark.parametrize("role", ["caller", "job", "job-read-only"])
def test_roles_for_targets_may_be_assumed_where_they_are_named_and_no_others(role: iam.Role) -> None:
    there = "arn:aws:iam::444455556666:role/target"
    arguments = ["show", role, "--target-role", there, "--output", "json"]
    document = json.loads(CliRunner().invoke(command, arguments, catch_exceptions=False).stdout)
    assert {arn for action, arn in allowed(document) if action == "sts:AssumeRole"} == {there}
    assert "sts:AssumeRole" not in {action for action, _ in allowed(iam.policy(role))}


def test_a_session_policy_leaves_a_list_of_keys_that_is_one_object() -> None:
    text = iam.session_policy(["orders"], places=["s3://lists/today/keys.json"], **SESSION)
    assert text is not None
    wanted = {("s3:GetObject", "arn:aws:s3:::lists/today/keys.json"), ("s3:ListBucket", "arn:aws:s3:::lists")}
    assert reaches(text, wanted) == wanted
    assert not reaches(text, {("s3:GetObject", "arn:aws:s3:::lists/today/other.json")})


def test_a_session_policy_leaves_the_role_for_the_target() -> None:
    there = "arn:aws:iam::444455556666:role/target"
    text = iam.session_policy(["orders"], target_roles=[there], mutates=False, **SESSION)
    assert text is not None
    assert ("sts:AssumeRole", there) in allowed(json.loads(text))


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--results", "s3://"),
        ("--results", "*"),
        ("--target-role", "target"),
        ("--target-role", "arn:aws:iam::1:user/x"),
    ],
)
def test_what_would_make_a_policy_that_iam_does_not_take_is_refused(option: str, given: str) -> None:
    refused = CliRunner().invoke(command, ["show", "job", option, given])
    assert (refused.exit_code, f"{given} is not" in refused.output) == (2, True), refused.output


def test_a_policy_that_is_too_long_to_be_attached_is_warned_of() -> None:
    tables = ",".join(f"orders-{number}" for number in range(100))
    shown = CliRunner().invoke(command, ["show", "caller", "--tables", tables, "--output", "json"])
    assert "6,144" in shown.stderr
    assert json.loads(shown.stdout) == iam.policy("caller", tables=tables.split(","))


@pytest.mark.parametrize("given", ["", " , "])
def test_a_list_of_tables_that_is_empty_is_refused_and_does_not_mean_all(given: str) -> None:
    refused = CliRunner().invoke(command, ["show", "job", "--tables", given])
    assert (refused.exit_code, "names nothing" in refused.output) == (2, True)


def test_trust_is_in_glue_and_nobody_else() -> None:
    for partition in ("aws", "aws-us-gov", "aws-cn"):
        (only,) = statements(iam.trust_policy(partition))
        assert only["Principal"] == {"Service": "glue.amazonaws.com"}
    with pytest.raises(ValueError, match="aws-mars"):
        iam.trust_policy("aws-mars")


SESSION = {**HERE, "partition": "aws", "bucket": "ops", "control_table": "bulkexec-control"}


def reaches(session: str, wanted: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those (action, resource) pairs that a session policy leaves."""
    pairs = allowed(json.loads(session))
    return {(action, arn) for action, arn in wanted if any(action == a and fnmatchcase(arn, b) for a, b in pairs)}


@pytest.mark.parametrize(("mutates", "role"), [(True, "job"), (False, "job-read-only")])
def test_a_session_policy_leaves_of_the_role_what_is_about_these_tables(mutates: bool, role: iam.Role) -> None:
    """The role may work on all tables; for the run only on one is left, and writing only where something changes."""
    table = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
    text = iam.session_policy([table], mutates=mutates, **SESSION)
    assert text is not None
    assert " " not in text
    narrow, other = (iam.policy(role, tables=[name], bucket="ops", **HERE) for name in ("orders", "others"))
    assert reaches(text, allowed(narrow)) == allowed(narrow)
    assert not [pair for pair in reaches(text, allowed(other)) if "table/others" in pair[1]]
    writes = allowed(iam.policy("job", tables=["orders"], **HERE)) - allowed(
        iam.policy("job-read-only", tables=["orders"], **HERE)
    )
    assert writes
    assert reaches(text, writes) == (writes if mutates else set())


def test_a_session_policy_holds_two_tables_with_long_names_in_the_longest_partition() -> None:
    where = {"partition": "aws-us-gov", "region": "us-gov-west-1", "account": "111122223333"}
    tables = [f"arn:aws-us-gov:dynamodb:us-gov-west-1:111122223333:table/{'x' * 60}{number}" for number in range(2)]
    text = iam.session_policy(
        tables, bucket="bulkexec-111122223333-us-gov-west-1", control_table="bulkexec-control", **where
    )
    assert text is not None
    assert len(text) <= 2_048


def test_a_session_policy_that_is_too_long_is_none() -> None:
    assert iam.session_policy([letter * 255 for letter in "abc"], **SESSION) is None


def test_names_are_those_of_the_deployment() -> None:
    scope = iam.Scope()
    assert (scope.job, scope.control_table) == (deployment.JOB_NAME, deployment.CONTROL_TABLE)
    assert scope.log_groups == (deployment.OUTPUT_LOGS, deployment.ERROR_LOGS)


@pytest.mark.parametrize("role", iam.ROLES)
def test_show_prints_the_document_and_as_text_the_reasons(role: iam.Role) -> None:
    wanted = iam.policy(role, tables=["a", "b"], partition="aws-cn", region="cn-north-1", account="111122223333")
    arguments = ["show", role, "--tables", "a, b", "--region", "cn-north-1", "--account", "111122223333"]
    document = CliRunner().invoke(command, [*arguments, "--output", "json"], catch_exceptions=False)
    assert json.loads(document.stdout) == wanted
    text = CliRunner().invoke(command, arguments, catch_exceptions=False).stdout
    assert text.startswith(document.stdout)
    for grant in iam.grants_of(role):
        assert re.search(rf"{grant.action} .*{re.escape(grant.why)}", text)
