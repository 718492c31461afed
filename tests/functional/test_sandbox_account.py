"""Recovery, prices, quotas, scaling and identity, in the shapes of AWS."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bulkexec.sandbox.price_list import RATES
from bulkexec.sandbox.process import Sandbox


def prices(sandbox: Sandbox, service: str, **filters: str) -> list[dict[str, Any]]:
    wanted = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in filters.items()]
    pages = sandbox.client("pricing").get_paginator("get_products").paginate(ServiceCode=service, Filters=wanted)
    return [json.loads(entry) for page in pages for entry in page["PriceList"]]


def usd(product: dict[str, Any]) -> list[float]:
    (offer,) = product["terms"]["OnDemand"].values()
    return [float(band["pricePerUnit"]["USD"]) for band in offer["priceDimensions"].values()]


def test_recovery_is_off_until_it_is_turned_on(sandbox: Sandbox) -> None:
    dynamodb = sandbox.client("dynamodb")
    dynamodb.create_table(
        TableName="recovery",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )

    def state() -> dict[str, Any]:
        described = dynamodb.describe_continuous_backups(TableName="recovery")["ContinuousBackupsDescription"]
        assert described["ContinuousBackupsStatus"] == "ENABLED"
        return described["PointInTimeRecoveryDescription"]

    def turn(on: bool, **days: int) -> None:
        wanted = {"PointInTimeRecoveryEnabled": on, **days}
        dynamodb.update_continuous_backups(TableName="recovery", PointInTimeRecoverySpecification=wanted)

    assert state() == {"PointInTimeRecoveryStatus": "DISABLED"}
    turn(True)
    first = state()
    assert (first["PointInTimeRecoveryStatus"], first["RecoveryPeriodInDays"]) == ("ENABLED", 35)
    assert datetime.now(UTC) - first["EarliestRestorableDateTime"] < timedelta(seconds=10)
    turn(True, RecoveryPeriodInDays=7)
    assert state()["EarliestRestorableDateTime"] == first["EarliestRestorableDateTime"]
    turn(False)
    turn(True)
    assert state()["EarliestRestorableDateTime"] > first["EarliestRestorableDateTime"]
    with pytest.raises(dynamodb.exceptions.TableNotFoundException):
        dynamodb.describe_continuous_backups(TableName="nowhere")


def test_prices_have_the_shape_of_the_price_list(sandbox: Sandbox) -> None:
    (read,) = prices(sandbox, "AmazonDynamoDB", regionCode="us-east-1", usagetype="ReadRequestUnits")
    assert read["product"]["productFamily"] == "Amazon DynamoDB PayPerRequest Throughput"
    assert read["product"]["attributes"]["group"] == "DDB-ReadUnits"
    assert usd(read) == [0.125 / 1e6]
    (provisioned,) = prices(sandbox, "AmazonDynamoDB", regionCode="us-east-1", usagetype="WriteCapacityUnit-Hrs")
    assert usd(provisioned) == [0.0, 0.00065]
    jobs = prices(sandbox, "AWSGlue", regionCode="eu-west-1", operation="Jobrun")
    assert [(job["product"]["attributes"]["usagetype"], usd(job)) for job in jobs] == [("EU-ETL-DPU-Hour", [0.44])]


def test_some_products_have_no_group(sandbox: Sandbox) -> None:  # case C082
    products = prices(sandbox, "AmazonDynamoDB", regionCode="us-east-1")
    without = [p["product"]["attributes"]["usagetype"] for p in products if "group" not in p["product"]["attributes"]]
    assert "VectorWriteRequestBytes" in without
    assert len(products) == 1 + sum(rate.service == "AmazonDynamoDB" for rate in RATES)


def test_prices_come_in_pages(sandbox: Sandbox) -> None:
    pricing = sandbox.client("pricing")
    pages = list(
        pricing.get_paginator("get_products").paginate(ServiceCode="AmazonDynamoDB", PaginationConfig={"PageSize": 7})
    )
    assert {len(page["PriceList"]) for page in pages[:-1]} == {7}
    entries = [entry for page in pages for entry in page["PriceList"]]
    assert len(entries) == len(set(entries)) == len(prices(sandbox, "AmazonDynamoDB"))
    with pytest.raises(pricing.exceptions.InvalidNextTokenException):
        pricing.get_products(ServiceCode="AmazonDynamoDB", NextToken="?")


def test_quotas_and_a_raised_one(sandbox: Sandbox) -> None:  # case C058
    quotas = sandbox.client("service-quotas")
    code = {"ServiceCode": "dynamodb", "QuotaCode": "L-CF0CBE56"}
    assert quotas.get_aws_default_service_quota(**code)["Quota"]["Value"] == 40_000
    quotas.request_service_quota_increase(**code, DesiredValue=50_000)
    assert quotas.get_service_quota(**code)["Quota"]["Value"] == 50_000
    assert quotas.get_aws_default_service_quota(**code)["Quota"]["Value"] == 40_000
    listed = quotas.list_service_quotas(ServiceCode="dynamodb")["Quotas"]
    assert code["QuotaCode"] in {quota["QuotaCode"] for quota in listed}
    with pytest.raises(quotas.exceptions.NoSuchResourceException):
        quotas.get_service_quota(ServiceCode="dynamodb", QuotaCode="L-00000000")


def test_scalable_targets(sandbox: Sandbox) -> None:
    scaling = sandbox.client("application-autoscaling")
    target = {
        "ServiceNamespace": "dynamodb",
        "ResourceId": "table/orders",
        "ScalableDimension": "dynamodb:table:WriteCapacityUnits",
    }
    scaling.register_scalable_target(**target, MinCapacity=5, MaxCapacity=500)
    named = {"ServiceNamespace": "dynamodb", "ResourceIds": ["table/orders"]}
    (found,) = scaling.describe_scalable_targets(**named)["ScalableTargets"]
    assert (found["MinCapacity"], found["MaxCapacity"]) == (5, 500)
    scaling.deregister_scalable_target(**target)
    assert scaling.describe_scalable_targets(**named)["ScalableTargets"] == []


def test_identity_and_arns_are_of_the_sandboxs_account(sandbox: Sandbox) -> None:
    assert sandbox.client("sts").get_caller_identity()["Account"] == "111122223333"
    tables = sandbox.client("dynamodb")
    tables.create_table(
        TableName="identity",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    arn = tables.describe_table(TableName="identity")["Table"]["TableArn"]
    assert arn == "arn:aws:dynamodb:us-east-1:111122223333:table/identity"
    assert tables.scan(TableName=arn, ReturnConsumedCapacity="TOTAL")["ConsumedCapacity"]["TableName"] == arn
