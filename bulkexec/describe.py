"""What a table is, from DescribeTable and DescribeContinuousBackups; and botocore's errors in the user's words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import botocore.exceptions
from botocore.config import Config

from bulkexec import errors
from bulkexec.model import Index, KeyAttribute, Table
from bulkexec.wire import CREDENTIAL_CODES, EXPIRED_CODES, THROTTLE_CODES, access_sentence

CLIENT_CONFIG = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
"""For calls a person waits for; botocore's default would try an unreachable endpoint for minutes."""

USABLE = ("ACTIVE", "UPDATING")

TABLE_ARN = re.compile(r"arn:[^:/]+:dynamodb:([^:/]+):\d*:table/([^/:]+)(?:/(\w+)(?:/.*)?)?", re.DOTALL)
"""Region, name and, where it is no table but a part of one, what it is."""


@contextmanager
def user_errors(doing: str) -> Iterator[None]:
    """Raises botocore's errors as ours, one sentence each; `doing` says what was tried ("describe table orders")."""
    try:
        yield
    except botocore.exceptions.ClientError as error:
        raise _of_client(error, doing) from error
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError) as error:
        raise errors.NoCredentials(
            "no AWS credentials were found", fix="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    except (
        botocore.exceptions.TokenRetrievalError,
        botocore.exceptions.CredentialRetrievalError,
        botocore.exceptions.SSOError,
    ) as error:
        raise errors.NoCredentials(f"the AWS login has expired: {error}", fix="log in again: aws sso login") from error
    except botocore.exceptions.NoRegionError as error:
        raise errors.BadArgument("no AWS region is set", fix="give --region or set AWS_REGION") from error
    except botocore.exceptions.ProfileNotFound as error:
        raise errors.BadArgument(str(error), fix="check --profile and AWS_PROFILE") from error
    except (botocore.exceptions.HTTPClientError, botocore.exceptions.ConnectionError) as error:
        endpoint = error.kwargs.get("endpoint_url", "the AWS endpoint")
        raise errors.Unreachable(
            f"cannot reach {endpoint} to {doing}", fix="check AWS_ENDPOINT_URL, the region and the network"
        ) from error
    except botocore.exceptions.ParamValidationError as error:
        raise errors.BadArgument(f"cannot {doing}: {_first_problem(error)}") from error
    except botocore.exceptions.BotoCoreError as error:
        raise errors.RequestRejected(f"cannot {doing}: {' '.join(str(error).split())}") from error


def _first_problem(error: botocore.exceptions.ParamValidationError) -> str:
    lines = str(error.kwargs.get("report", error)).strip().splitlines()
    return lines[-1].strip()


def _of_client(error: botocore.exceptions.ClientError, doing: str) -> errors.BulkexecError:
    code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
    if denied(error):
        return errors.AccessDenied(why_refused(error), why=f"needed to {doing}")
    if code in EXPIRED_CODES or code in CREDENTIAL_CODES:
        return errors.NoCredentials(f"AWS does not accept the credentials ({code})", fix="log in again")
    if code in THROTTLE_CODES:
        return errors.Exhausted(f"{error.operation_name} is throttled", why=message, fix="try again in a minute")
    return errors.RequestRejected(f"cannot {doing}: {message or code}", why=f"{error.operation_name} answered {code}")


HEAD_ACTIONS = {"HeadBucket": "s3:ListBucket", "HeadObject": "s3:GetObject"}
"""Answers to HEAD have no body that could say which action was refused; IAM's names differ from the operations'."""


def denied(error: botocore.exceptions.ClientError) -> bool:
    """Whether IAM refused the request."""
    code = error.response["Error"].get("Code", "")
    return "AccessDenied" in code or code in ("403", "UnauthorizedOperation")


def why_refused(error: botocore.exceptions.ClientError) -> str:
    """Who lacks which action on what, where IAM says so; else the error's code."""
    code, message = error.response["Error"].get("Code", "an error"), error.response["Error"].get("Message", "")
    if code == "403" and error.operation_name in HEAD_ACTIONS:
        return f"this caller lacks {HEAD_ACTIONS[error.operation_name]}"
    sentence = access_sentence(message) if denied(error) else ""
    return f"{code}: {message}" if sentence.startswith("access denied") else sentence or str(code)


def table_region(name_or_arn: str, default: str | None) -> str | None:
    """The region of a table given by ARN (case C141), else the default one."""
    return _region_and_name(name_or_arn)[0] or default


def _region_and_name(name_or_arn: str) -> tuple[str, str]:
    """(region or empty, name). Raises `errors.BadArgument` for an ARN that is not of a table."""
    if not name_or_arn.strip():
        raise errors.BadArgument("--table is empty", fix="give the table's name or ARN")
    if not name_or_arn.startswith("arn:"):
        return "", name_or_arn
    found = TABLE_ARN.fullmatch(name_or_arn)
    if found is None:
        raise errors.BadArgument(
            f"{name_or_arn} is not the ARN of a table", fix="arn:aws:dynamodb:REGION:ACCOUNT:table/NAME"
        )
    region, name, part = found.groups()
    if part is not None:
        article = "an" if part[0] in "aeiou" else "a"
        raise errors.BadArgument(f"that is {article} {part} of {name}; give the table", fix=f"--table {name}")
    return region, name


def describe(session: boto3.Session, name_or_arn: str) -> Table:
    """The facts of a table. Raises `errors.TableMissing`, `errors.TableUnusable`, and others by `user_errors`."""
    given, name = _region_and_name(name_or_arn)
    region = given or session.region_name
    if not region:
        raise errors.BadArgument("no AWS region is set", fix="give --region or set AWS_REGION")
    with user_errors(f"describe table {name}"):
        client = session.client("dynamodb", region_name=region, config=CLIENT_CONFIG)
        try:
            facts = client.describe_table(TableName=name)["Table"]
        except client.exceptions.ResourceNotFoundException as error:
            raise errors.TableMissing(
                f"table {name} does not exist in {client.meta.region_name}",
                fix="check the name, --region and --profile",
            ) from error
    if facts["TableStatus"] not in USABLE:
        raise errors.TableUnusable(f"table {name} is {facts['TableStatus']}", fix="wait until it is ACTIVE")
    if name_or_arn.startswith("arn:") and facts["TableArn"] != name_or_arn:
        raise errors.TableMissing(f"{name_or_arn} is not in this account: here it is {facts['TableArn']}")
    return _table(facts, client.meta.region_name)


def _table(facts: dict[str, Any], region: str) -> Table:
    types = {each["AttributeName"]: each["AttributeType"] for each in facts["AttributeDefinitions"]}
    throughput, on_demand = facts.get("ProvisionedThroughput", {}), facts.get("OnDemandThroughput", {})
    mode = facts.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    return Table(
        name=facts["TableName"],
        arn=facts["TableArn"],
        region=region,
        account=facts["TableArn"].split(":")[4],
        keys=_keys(facts["KeySchema"], types),
        status=facts["TableStatus"],
        item_count=facts.get("ItemCount", 0),
        size_bytes=facts.get("TableSizeBytes", 0),
        billing="on-demand" if mode == "PAY_PER_REQUEST" else "provisioned",
        table_class=facts.get("TableClassSummary", {}).get("TableClass", "STANDARD"),
        read_capacity=throughput.get("ReadCapacityUnits", 0),
        write_capacity=throughput.get("WriteCapacityUnits", 0),
        max_read_request_units=on_demand.get("MaxReadRequestUnits", -1),
        max_write_request_units=on_demand.get("MaxWriteRequestUnits", -1),
        indexes=_indexes(facts, types),
        replicas=tuple(replica["RegionName"] for replica in facts.get("Replicas", ())),
        id=_id(facts),
    )


def _id(facts: dict[str, Any]) -> str:
    """TableId; an engine that has none still knows when it made the table."""
    made = facts.get("CreationDateTime")
    return str(facts.get("TableId") or (made.isoformat() if made is not None else ""))


def require_same_table(session: boto3.Session, table: Table) -> Table:
    """The table as it is now, for a job that goes on.

    Raises `errors.TableMissing` when it is gone, and `errors.TableUnusable` when it is another one under the same
    name, has other keys or is in no usable state: checkpoints of the one say nothing about the other.
    """
    now = describe(session, table.arn)
    if (table.id and now.id and now.id != table.id) or now.keys != table.keys:
        raise errors.TableUnusable(
            f"table {table.name} was dropped and made again since the job began",
            why="the job's checkpoints are of the table that was there before",
            fix="start the command anew",
            state="nothing written to the new table",
        )
    return now


def _keys(schema: list[dict[str, str]], types: dict[str, Any]) -> tuple[KeyAttribute, ...]:
    ordered = sorted(schema, key=lambda part: part["KeyType"] != "HASH")
    return tuple(KeyAttribute(part["AttributeName"], types[part["AttributeName"]]) for part in ordered)


def _indexes(facts: dict[str, Any], types: dict[str, Any]) -> tuple[Index, ...]:
    kinds = (("GSI", "GlobalSecondaryIndexes"), ("LSI", "LocalSecondaryIndexes"))
    return tuple(
        Index(
            name=index["IndexName"],
            kind="GSI" if kind == "GSI" else "LSI",
            keys=_keys(index["KeySchema"], types),
            projection=index["Projection"]["ProjectionType"],
            item_count=index.get("ItemCount", 0),
            size_bytes=index.get("IndexSizeBytes", 0),
            # Tables on demand give no block here (case C145), or zeros.
            read_capacity=index.get("ProvisionedThroughput", {}).get("ReadCapacityUnits", 0),
            write_capacity=index.get("ProvisionedThroughput", {}).get("WriteCapacityUnits", 0),
            included=tuple(index["Projection"].get("NonKeyAttributes", ())),
        )
        for kind, member in kinds
        for index in facts.get(member, ())
    )


def recovery(session: boto3.Session, table: Table) -> tuple[bool, str]:
    """(whether point-in-time recovery is on, since when the table can be restored).

    ContinuousBackupsStatus ENABLED says nothing; PointInTimeRecoveryStatus does.
    """
    with user_errors(f"read the backup settings of {table.name}"):
        client = session.client("dynamodb", region_name=table.region, config=CLIENT_CONFIG)
        answer = client.describe_continuous_backups(TableName=table.name)["ContinuousBackupsDescription"]
    point = answer.get("PointInTimeRecoveryDescription", {})
    earliest = point.get("EarliestRestorableDateTime")
    return point.get("PointInTimeRecoveryStatus") == "ENABLED", earliest.isoformat() if earliest else ""


def require_recovery(table: Table, on: bool) -> None:
    """Raises `errors.RecoveryOff`; client and job both ask."""
    if on:
        return
    raise errors.RecoveryOff(
        f"point-in-time recovery is off on {table.name}",
        why="without it a wrong write could not be undone",
        fix=f"aws dynamodb update-continuous-backups --region {table.region} --table-name {table.name} "
        "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true",
        state="nothing written",
    )


def who(session: boto3.Session) -> str:
    """Who the caller is, for the plan; "unknown" where STS does not say."""
    try:
        arn: str = session.client("sts", config=CLIENT_CONFIG).get_caller_identity()["Arn"]
    except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError) as error:
        return f"unknown ({type(error).__name__})"
    profile = session.profile_name
    return arn.split(":", 5)[-1] + (f" (profile {profile})" if profile != "default" else "")
