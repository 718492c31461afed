"""Copies into another account and region by ARN, each side with credentials of its own."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest

from bulkexec.sandbox.process import Sandbox

OTHER = "444455556666"
ROLE = f"arn:aws:iam::{OTHER}:role/bulkexec-target"
REGION = "eu-west-1"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:root"}, "Action": "sts:AssumeRole"}
    ],
}


class There:
    """The other account, seen with its own credentials (in the sandbox an access key of 12 digits is an account's)."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        session = boto3.Session(aws_access_key_id=OTHER, aws_secret_access_key="there", region_name=REGION)
        self._client = session.client("dynamodb", endpoint_url=sandbox.endpoint)
        self.iam = session.client("iam", endpoint_url=sandbox.endpoint)
        facts = self._client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )["TableDescription"]
        self._name, self.arn = name, facts["TableArn"]
        self.recovery(True)

    def recovery(self, on: bool) -> None:
        self._client.update_continuous_backups(
            TableName=self._name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": on}
        )

    def read(self) -> list[dict[str, Any]]:
        pages = self._client.get_paginator("scan").paginate(TableName=self._name)
        return sorted((item for page in pages for item in page["Items"]), key=lambda item: str(item["pk"]["S"]))


@pytest.fixture
def profiles(sandbox: Sandbox, tmp_path: Path) -> dict[str, str]:
    """A configuration with a profile for the other account."""
    path = tmp_path / "config"
    path.write_text(f"[profile there]\naws_access_key_id = {OTHER}\naws_secret_access_key = there\n")
    return {"AWS_CONFIG_FILE": str(path)}


def ordered(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: str(item["pk"]["S"]))


def test_a_copy_by_arn_writes_with_the_targets_profile(
    bulkexec: Any, sandbox: Sandbox, tables: Any, items: Any, profiles: Any
) -> None:
    # case C141
    name = tables.make(items(60, 60))
    there = There(sandbox, name)  # of the same name: only account and region tell them apart
    assert there.arn == f"arn:aws:dynamodb:{REGION}:{OTHER}:table/{name}"
    copy = ("copy", "--table", name, "--to", there.arn)
    assert bulkexec(*copy, "--yes", env=profiles).code == 2, "without the credentials of the other account"
    done = bulkexec.json(*copy, "--target-profile", "there", "--yes", env=profiles)
    assert (done.code, done.report["processed"]) == (0, 60), done.stderr
    assert f"{OTHER} / {REGION} / {name}" in done.stderr
    assert there.read() == ordered(tables.read(name))


@pytest.mark.parametrize("runtime", ["local", "glue"])
def test_a_move_by_arn_assumes_the_targets_role(
    runtime: str, bulkexec: Any, deployed: str, sandbox: Sandbox, tables: Any, items: Any
) -> None:
    name = tables.make(items(60, 60))
    before, there = ordered(tables.read(name)), There(sandbox, name)
    with suppress(there.iam.exceptions.EntityAlreadyExistsException):  # made by the other case of this test
        there.iam.create_role(RoleName="bulkexec-target", AssumeRolePolicyDocument=json.dumps(TRUST))
    move = ("move", "--table", name, "--to", there.arn, "--all", "--target-role", ROLE, "--runtime", runtime, "--yes")
    there.recovery(False)
    refused = bulkexec(*move)
    assert (refused.code, "point-in-time recovery is off" in refused.stderr) == (2, True), refused.stderr
    there.recovery(True)
    done = bulkexec.json(*move)
    assert (done.code, done.report["processed"]) == (0, 60), done.stderr
    assert there.read() == before
    assert tables.read(name) == []


def test_two_credentials_for_one_target_are_refused(bulkexec: Any, tables: Any, sandbox: Sandbox) -> None:
    there = There(sandbox, tables.make())
    both = ("--target-role", ROLE, "--target-profile", "there")
    refused = bulkexec("copy", "--table", tables.make(), "--to", there.arn, "--yes", *both)
    assert (refused.code, "leave one of them out" in refused.stderr) == (2, True), refused.stderr


def test_a_glue_job_has_no_profiles(bulkexec: Any, deployed: str, sandbox: Sandbox, tables: Any, profiles: Any) -> None:
    name = tables.make()
    there = There(sandbox, name)
    arguments = ("--to", there.arn, "--target-profile", "there", "--runtime", "glue", "--yes")
    refused = bulkexec("copy", "--table", name, *arguments, env=profiles)
    assert refused.code == 2
    assert "--target-role" in refused.stderr


def test_two_endpoints_each_with_a_profile(
    bulkexec: Any, tables: Any, items: Any, sandbox: Sandbox, tmp_path: Path
) -> None:
    """Two clouds that know nothing of one another."""
    name = tables.make(items(40, 60))
    with Sandbox() as elsewhere:
        there = There(elsewhere, name)
        path = tmp_path / "both"
        path.write_text(
            f"[profile here]\nendpoint_url = {sandbox.endpoint}\naws_access_key_id = sandbox\n"
            f"aws_secret_access_key = sandbox\n"
            f"[profile there]\nendpoint_url = {elsewhere.endpoint}\naws_access_key_id = {OTHER}\n"
            f"aws_secret_access_key = there\n"
        )
        environment = {
            name: value
            for name, value in bulkexec.environment.items()
            if name not in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        }
        alone = type(bulkexec)(environment | {"AWS_CONFIG_FILE": str(path)})
        copy = ("copy", "--table", name, "--to", there.arn, "--profile", "here", "--target-profile", "there", "--yes")
        done = alone.json(*copy)
        assert (done.code, done.report["processed"]) == (0, 40), done.stderr
        assert there.read() == ordered(tables.read(name))
