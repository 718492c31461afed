"""What a table has, as the sandbox's DynamoDB, Application Auto Scaling and Service Quotas say it."""

import boto3
import pytest

from bulkexec.ceilings import fetch_ceilings, resolve_rate
from bulkexec.describe import describe
from bulkexec.sandbox.process import environment


@pytest.fixture
def session(sandbox, monkeypatch):
    for name, value in environment(sandbox.running).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return boto3.Session()


def with_index(write_capacity):
    throughput = {"ReadCapacityUnits": 5, "WriteCapacityUnits": write_capacity}
    return {
        "GlobalSecondaryIndexes": [
            {
                "IndexName": "by-pk",
                "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
                "ProvisionedThroughput": throughput,
            }
        ]
    }


def provisioned(tables, write_capacity=100, **more):
    throughput = {"ReadCapacityUnits": 10, "WriteCapacityUnits": write_capacity}
    return tables.make(BillingMode="PROVISIONED", ProvisionedThroughput=throughput, **more)


def test_auto_scaling_of_table_and_index(sandbox, session, tables):
    name = provisioned(tables, **with_index(20))
    scaling = sandbox.client("application-autoscaling")
    for resource, dimension, most in ((f"table/{name}", "table", 1000), (f"table/{name}/index/by-pk", "index", 60)):
        scaling.register_scalable_target(
            ServiceNamespace="dynamodb",
            ResourceId=resource,
            ScalableDimension=f"dynamodb:{dimension}:WriteCapacityUnits",
            MinCapacity=5,
            MaxCapacity=most,
        )
    table = describe(session, name)
    facts = fetch_ceilings(session, table)
    assert facts.auto_scaling == {("", "write"): 1000, ("by-pk", "write"): 60}
    assert facts.warnings == ()
    resolved = resolve_rate("50%", "write", table, facts)
    assert resolved.units_per_second == 500
    assert resolved.indexes == {"by-pk": 60}


def test_quota_and_warm_throughput_of_an_on_demand_table(sandbox, session, tables):
    # case C058
    quotas = sandbox.client("service-quotas")
    quotas.request_service_quota_increase(ServiceCode="dynamodb", QuotaCode="L-AB614373", DesiredValue=90_000)
    table = describe(session, tables.make())
    facts = fetch_ceilings(session, table)
    assert facts.quota["write"] == 90_000
    assert facts.quota["read"] >= 40_000
    assert facts.warnings == ()
    assert resolve_rate(None, "write", table, facts).units_per_second > 0


def test_on_demand_maximum(session, tables):
    # case C057
    name = tables.make(OnDemandThroughput={"MaxReadRequestUnits": 300, "MaxWriteRequestUnits": 200})
    table = describe(session, name)
    resolved = resolve_rate(None, "write", table, fetch_ceilings(session, table))
    assert resolved.source == "100 write units/s = 50 % of 200, its on-demand maximum; the default"


@pytest.mark.parametrize(
    ("billing", "operation", "sentence"),
    [
        (
            "provisioned",
            "DescribeScalableTargets",
            "cannot read the table's auto scaling (AccessDeniedException: injected by the sandbox)",
        ),
        (
            "on-demand",
            "GetServiceQuota",
            "cannot read the account's quota, so 40,000 is taken (AccessDeniedException: injected by the sandbox)",
        ),
    ],
)
def test_a_denied_question_is_a_warning(sandbox, session, tables, billing, operation, sentence):
    # case C093, case C097
    name = provisioned(tables) if billing == "provisioned" else tables.make()
    table = describe(session, name)
    number = sandbox.control.faults.add("error", operation=operation, code="AccessDeniedException")
    try:
        facts = fetch_ceilings(session, table)
    finally:
        sandbox.control.faults.remove(number)
    assert facts.warnings == (sentence,)
    resolved = resolve_rate(None, "write", table, facts)
    assert resolved.units_per_second > 0
    assert sentence in resolved.warnings
