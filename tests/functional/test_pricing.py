"""Prices read from a Pricing API over HTTP."""

import boto3
import pytest

from bulkexec.pricing import fetch_prices, list_prices


@pytest.fixture
def session(sandbox, monkeypatch):
    for name, value in sandbox.env().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return boto3.Session(region_name="eu-west-1")


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
@pytest.mark.parametrize("table_class", ["STANDARD", "STANDARD_INFREQUENT_ACCESS"])
def test_prices_come_from_the_api_whatever_else_its_list_holds(session, region, table_class):
    # case C082: the sandbox's list has a product without a group and one without terms
    prices = fetch_prices(session, region, table_class)
    expected = list_prices(table_class)
    assert prices.source == f"Pricing API, {region}"
    assert prices.read_per_million == pytest.approx(expected.read_per_million)
    assert prices.write_per_million == pytest.approx(expected.write_per_million)
    assert prices.read_per_unit_hour == expected.read_per_unit_hour
    assert prices.write_per_unit_hour == expected.write_per_unit_hour
    assert prices.glue_per_dpu_hour == expected.glue_per_dpu_hour
    assert prices.glue_flex_per_dpu_hour == expected.glue_flex_per_dpu_hour


def test_prices_of_replicated_writes(session):
    prices = fetch_prices(session, "eu-west-1", "STANDARD")
    assert prices.replicated_write_per_million == pytest.approx(0.625)
    assert prices.replicated_write_per_unit_hour == 0.00065


def test_a_region_the_api_does_not_know_gets_list_prices(session):
    prices = fetch_prices(session, "ap-southeast-7", "STANDARD")
    assert prices == list_prices("STANDARD", "it has none for ap-southeast-7")
