"""Tables from DescribeTable's documents; AWS is scripted below boto3's own interface."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.exceptions
import botocore.loaders
import botocore.session
import pytest

from bulkexec import errors
from bulkexec.describe import describe, recovery, require_recovery, require_same_table, table_region, user_errors
from bulkexec.model import Index, KeyAttribute, Table

ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
KEY_SCHEMA = [{"AttributeName": "pk", "KeyType": "HASH"}]
FACTS: dict[str, Any] = {
    "TableName": "orders",
    "TableArn": ARN,
    "TableStatus": "ACTIVE",
    "ItemCount": 10,
    "TableSizeBytes": 5000,
    "KeySchema": KEY_SCHEMA,
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "day")],
    "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
}
GSI: dict[str, Any] = {
    "IndexName": "by-day",
    "KeySchema": [{"AttributeName": "day", "KeyType": "HASH"}],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
    "ItemCount": 4,
    "IndexSizeBytes": 90,
}
Account = Callable[..., tuple[boto3.Session, list[tuple[str, dict[str, Any]]]]]


LOADER = botocore.loaders.create_loader()
"""Service models are read once for all tests."""


def offline_session(region: str | None) -> boto3.Session:
    core = botocore.session.Session()
    core.register_component("data_loader", LOADER)
    return boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name=region, botocore_session=core)


@pytest.fixture
def account() -> Account:
    """A session on which each operation gives a fixed answer, and the list of what was asked in which region."""

    def account(region: str | None = "us-east-1", **answers: dict[str, Any]) -> Any:
        session = offline_session(region)
        asked: list[tuple[str, dict[str, Any]]] = []

        def answer(model: Any, context: dict[str, Any], **_: Any) -> Any:
            asked.append((context["client_region"], context["asked"]))
            given = answers[model.name]
            return SimpleNamespace(status_code=400 if "Error" in given else 200), {"ResponseMetadata": {}, **given}

        session.events.register("provide-client-params.*.*", lambda params, context, **_: context.update(asked=params))
        session.events.register("before-call.*.*", answer)
        return session, asked

    return account


def table_from(account: Account, **facts: Any) -> Table:
    return describe(account(DescribeTable={"Table": {**FACTS, **facts}})[0], "orders")


def test_the_plain_facts(account: Account) -> None:
    assert table_from(account) == Table(
        "orders", ARN, "us-east-1", "111122223333", (KeyAttribute("pk", "S"),), "ACTIVE", 10, 5000, "on-demand"
    )


def test_an_index_without_a_throughput_block_has_no_capacity(account: Account) -> None:
    # case C145
    (index,) = table_from(account, GlobalSecondaryIndexes=[GSI]).indexes
    assert index == Index("by-day", "GSI", (KeyAttribute("day", "S"),), "KEYS_ONLY", 4, 90, 0, 0)


def test_on_demand_reports_zero_capacity_and_its_caps(account: Account) -> None:
    # case C057
    zero = {"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}
    table = table_from(account, ProvisionedThroughput=zero, OnDemandThroughput={"MaxWriteRequestUnits": 500})
    assert (table.billing, table.read_capacity, table.write_capacity) == ("on-demand", 0, 0)
    assert (table.max_read_request_units, table.max_write_request_units) == (-1, 500)


def test_provisioned_capacity_of_table_and_index(account: Account) -> None:
    # case C146: no billing summary means provisioned
    throughput = {"ReadCapacityUnits": 7, "WriteCapacityUnits": 3}
    index = {**GSI, "ProvisionedThroughput": {"ReadCapacityUnits": 2, "WriteCapacityUnits": 1}}
    table = table_from(account, BillingModeSummary={}, ProvisionedThroughput=throughput, GlobalSecondaryIndexes=[index])
    assert (table.billing, table.read_capacity, table.write_capacity) == ("provisioned", 7, 3)
    assert (table.indexes[0].read_capacity, table.indexes[0].write_capacity) == (2, 1)


def test_the_partition_key_comes_first_whatever_the_order_of_the_answer(account: Account) -> None:
    schema = [{"AttributeName": "sk", "KeyType": "RANGE"}, {"AttributeName": "pk", "KeyType": "HASH"}]
    types = [{"AttributeName": "pk", "AttributeType": "B"}, {"AttributeName": "sk", "AttributeType": "N"}]
    table = table_from(account, KeySchema=schema, AttributeDefinitions=types)
    assert table.keys == (KeyAttribute("pk", "B"), KeyAttribute("sk", "N"))


def test_table_class_replicas_and_local_indexes(account: Account) -> None:
    table = table_from(
        account,
        TableClassSummary={"TableClass": "STANDARD_INFREQUENT_ACCESS"},
        Replicas=[{"RegionName": "us-west-2"}],
        LocalSecondaryIndexes=[{**GSI, "IndexName": "local"}],
    )
    assert (table.table_class, table.replicas) == ("STANDARD_INFREQUENT_ACCESS", ("us-west-2",))
    assert [(index.name, index.kind) for index in table.indexes] == [("local", "LSI")]


def test_the_region_of_an_arn_wins(account: Account) -> None:
    # case C141
    session, asked = account("us-east-1", DescribeTable={"Table": FACTS})
    assert describe(session, ARN).region == "eu-west-1"
    assert asked == [("eu-west-1", {"TableName": "orders"})]
    assert table_region("orders", "us-east-1") == "us-east-1"


def test_an_arn_of_another_account_is_not_taken_for_the_table_of_that_name_here(account: Account) -> None:
    session, _ = account(DescribeTable={"Table": FACTS})
    with pytest.raises(errors.TableMissing, match="not in this account"):
        describe(session, ARN.replace("1111", "9999"))


def test_without_a_region_that_is_said(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(errors.BadArgument, match="region"):
        describe(account(None)[0], "orders")


@pytest.mark.parametrize("status", ["CREATING", "DELETING", "ARCHIVED", "INACCESSIBLE_ENCRYPTION_CREDENTIALS"])
def test_a_table_that_cannot_be_worked_on_is_refused(account: Account, status: str) -> None:
    with pytest.raises(errors.TableUnusable, match=status):
        table_from(account, TableStatus=status)


def test_a_table_that_is_being_updated_can_be_worked_on(account: Account) -> None:
    assert table_from(account, TableStatus="UPDATING").status == "UPDATING"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceNotFoundException", errors.TableMissing),
        ("AccessDeniedException", errors.AccessDenied),
        ("ExpiredTokenException", errors.NoCredentials),
        ("UnrecognizedClientException", errors.NoCredentials),
        ("ThrottlingException", errors.Exhausted),
        ("ValidationException", errors.RequestRejected),
    ],
)
def test_errors_are_the_users(account: Account, code: str, kind: type[errors.BulkexecError]) -> None:
    session, _ = account(DescribeTable={"Error": {"Code": code, "Message": "so it is"}})
    with pytest.raises(kind):
        describe(session, "orders")


@pytest.mark.parametrize("name", ["x", "o rders", "", "a/b"])
def test_a_name_that_no_table_can_have_is_one_sentence(account: Account, name: str) -> None:
    # case C149
    session, _ = account(DescribeTable={"Error": {"Code": "ValidationException", "Message": "bad name"}})
    with pytest.raises(errors.BulkexecError) as caught:
        describe(session, name)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (botocore.exceptions.NoCredentialsError(), errors.NoCredentials),
        (botocore.exceptions.PartialCredentialsError(provider="env", cred_var="x"), errors.NoCredentials),
        (botocore.exceptions.TokenRetrievalError(provider="sso", error_msg="expired"), errors.NoCredentials),
        (botocore.exceptions.NoRegionError(), errors.BadArgument),
        (botocore.exceptions.ProfileNotFound(profile="x"), errors.BadArgument),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="http://x"), errors.Unreachable),
        (botocore.exceptions.ConnectTimeoutError(endpoint_url="http://x"), errors.Unreachable),
        (botocore.exceptions.DataNotFoundError(data_path="x"), errors.RequestRejected),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_botocores_errors_are_the_users_too(error: Exception, kind: type[errors.BulkexecError]) -> None:
    with pytest.raises(kind), user_errors("describe table orders"):
        raise error


@pytest.mark.parametrize(
    "error",
    [botocore.exceptions.SSOTokenLoadError(error_msg="none"), botocore.exceptions.UnauthorizedSSOTokenError()],
    ids=lambda each: type(each).__name__,
)
def test_an_sso_login_that_is_missing_or_expired_is_the_users_too(error: Exception) -> None:
    # case C112
    with pytest.raises(errors.NoCredentials), user_errors("describe table orders"):
        raise error


# Point-in-time recovery


def backups(point: dict[str, Any] | None) -> dict[str, Any]:
    more = {} if point is None else {"PointInTimeRecoveryDescription": point}
    return {"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED", **more}}


@pytest.mark.parametrize("point", [None, {}, {"PointInTimeRecoveryStatus": "DISABLED"}])
def test_continuous_backups_alone_are_not_recovery(account: Account, point: dict[str, Any] | None) -> None:
    # case C091
    session, _ = account(DescribeTable={"Table": FACTS}, DescribeContinuousBackups=backups(point))
    table = describe(session, "orders")
    assert recovery(session, table) == (False, "")
    with pytest.raises(errors.RecoveryOff) as caught:
        require_recovery(table, False)
    assert f"--region {table.region} --table-name orders" in caught.value.fix


def test_recovery_that_is_on_says_since_when(account: Account) -> None:
    since = datetime(2026, 10, 26, tzinfo=UTC)
    point = {"PointInTimeRecoveryStatus": "ENABLED", "EarliestRestorableDateTime": since}
    session, _ = account(DescribeTable={"Table": FACTS}, DescribeContinuousBackups=backups(point))
    assert recovery(session, describe(session, "orders")) == (True, since.isoformat())
    require_recovery(describe(session, "orders"), True)


# What is no table, and what is no longer the same one


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "--table is empty"),
        ("  ", "--table is empty"),
        ("arn:foo", "arn:foo is not the ARN of a table"),
        ("arn:aws:s3:::bucket", "not the ARN of a table"),
        ("arn:aws:dynamodb:eu-west-1:111122223333:table/", "not the ARN of a table"),
        (f"{ARN}/index/by-day", "that is an index of orders; give the table"),
        (f"{ARN}/stream/2026-10-26T10:00:00.000", "that is a stream of orders; give the table"),
        (f"{ARN}/backup/01", "that is a backup of orders; give the table"),
    ],
)
def test_what_is_no_table_is_said_before_aws_is_asked(account: Account, given: str, words: str) -> None:
    session, asked = account(DescribeTable={"Table": FACTS})
    with pytest.raises(errors.BadArgument) as caught:
        describe(session, given)
    assert words in caught.value.message
    assert asked == []


def test_a_table_is_known_by_its_id_or_else_by_when_it_was_made(account: Account) -> None:
    made = datetime(2026, 10, 26, tzinfo=UTC)
    assert table_from(account, TableId="one", CreationDateTime=made).id == "one"
    assert table_from(account, CreationDateTime=made).id == made.isoformat()
    assert table_from(account).id == ""


@pytest.mark.parametrize(
    "now",
    [
        {"TableId": "two"},
        {"TableId": "one", "KeySchema": [*KEY_SCHEMA, {"AttributeName": "day", "KeyType": "RANGE"}]},
    ],
)
def test_a_table_of_another_id_or_other_keys_is_not_gone_on_with(account: Account, now: dict[str, Any]) -> None:
    before = table_from(account, TableId="one")
    session, _ = account(DescribeTable={"Table": {**FACTS, **now}})
    with pytest.raises(errors.TableUnusable, match="dropped and made again") as caught:
        require_same_table(session, before)
    assert caught.value.exit_code == 2


def test_the_same_table_may_have_grown(account: Account) -> None:
    before = table_from(account, TableId="one")
    session, _ = account(DescribeTable={"Table": {**FACTS, "TableId": "one", "ItemCount": 99}})
    assert require_same_table(session, before).item_count == 99


def test_a_table_in_no_usable_state_is_not_gone_on_with(account: Account) -> None:
    session, _ = account(DescribeTable={"Table": {**FACTS, "TableStatus": "DELETING"}})
    with pytest.raises(errors.TableUnusable, match="DELETING"):
        require_same_table(session, table_from(account))
