"""Reading price lists of the shape that GetProducts answers with."""

import json
from itertools import count

import boto3
import pytest

from bulkexec.pricing import fetch_prices, list_prices, read_prices

STANDARD, INFREQUENT = "STANDARD", "STANDARD_INFREQUENT_ACCESS"
ON_DEMAND = "Amazon DynamoDB PayPerRequest Throughput"
_sku = count(1)


def product(family, usagetype, *usd, **attributes):
    """A price list entry; several prices are bands, as with a free tier."""
    sku = f"SKU{next(_sku)}"
    bands = {
        f"{sku}.JRTCKXETXF.{number}": {"unit": "Units", "beginRange": str(number), "pricePerUnit": {"USD": price}}
        for number, price in enumerate(usd)
    }
    return json.dumps(
        {
            "product": {"productFamily": family, "sku": sku, "attributes": {"usagetype": usagetype, **attributes}},
            "serviceCode": "AmazonDynamoDB",
            "terms": {
                "OnDemand": {f"{sku}.JRTCKXETXF": {"sku": sku, "priceDimensions": bands, "termAttributes": {}}},
                "Reserved": {f"{sku}.X": {"priceDimensions": {"r": {"pricePerUnit": {"USD": "150.0"}}}}},
            },
            "version": "20261101000000",
        }
    )


IRELAND = [
    product(ON_DEMAND, "EU-ReadRequestUnits", "0.0000001415", group="DDB-ReadUnits"),
    product(ON_DEMAND, "EU-WriteRequestUnits", "0.0000007050", group="DDB-WriteUnits"),
    product(ON_DEMAND, "EU-ReplWriteRequestUnits", "0.0000007060", group="DDB-ReplicatedWriteUnits"),
    product(ON_DEMAND, "EU-IA-ReadRequestUnits", "0.0000001750", group="DDB-ReadUnitsIA"),
    product(ON_DEMAND, "EU-IA-WriteRequestUnits", "0.0000008800", group="DDB-WriteUnitsIA"),
    product("Provisioned IOPS", "EU-ReadCapacityUnit-Hrs", "0.0000000000", "0.000147", group="DDB-ReadUnits"),
    product("Provisioned IOPS", "EU-WriteCapacityUnit-Hrs", "0.0000000000", "0.000735", group="DDB-WriteUnits"),
    product("DDB-Operation-ReplicatedWrite", "EU-ReplWriteCapacityUnit-Hrs", "0.0", "0.000736"),
    product("Database Storage", "EU-TimedStorage-ByteHrs", "0.0", "0.283", volumeType="Amazon DynamoDB"),
]
GLUE_IRELAND = [
    product("AWS Glue", "EU-ETL-DPU-Hour", "0.44", operation="Jobrun"),
    product("AWS Glue", "EU-ETL-Flex-DPU-Hour", "0.29", operation="FlexJobrun"),
    product("AWS Glue", "EU-ETL-MemOptimized-DPU-Hour", "0.52", operation="Jobrun"),
    product("AWS Glue", "EU-ETL-DPU-Hour-Gen2", "0.99", operation="Jobrun"),
    product("AWS Glue", "EU-Crawler-DPU-Hour", "0.44", operation="CrawlerRun"),
]


class PriceList:
    """`get_products` over a fixed list, paged like the API."""

    def __init__(self, dynamodb, glue=(), page=100):
        self._services, self._page = {"AmazonDynamoDB": list(dynamodb), "AWSGlue": list(glue)}, page
        self.requests = []

    def __call__(self, **request):
        self.requests.append(request)
        begin = int(request.get("NextToken", "0"))
        entries = self._services[request["ServiceCode"]]
        answer = {"FormatVersion": "aws_v1", "PriceList": entries[begin : begin + self._page]}
        if begin + self._page < len(entries):
            answer["NextToken"] = str(begin + self._page)
        return answer


def test_reads_every_price_of_the_standard_class():
    prices = read_prices(PriceList(IRELAND, GLUE_IRELAND), "eu-west-1", STANDARD)
    assert prices.source == "Pricing API, eu-west-1"
    assert (prices.read_per_million, prices.write_per_million) == (0.1415, 0.705)
    assert prices.replicated_write_per_million == 0.706
    assert (prices.glue_per_dpu_hour, prices.glue_flex_per_dpu_hour) == (0.44, 0.29)


def test_skips_the_free_band():
    prices = read_prices(PriceList(IRELAND), "eu-west-1", STANDARD)
    assert (prices.read_per_unit_hour, prices.write_per_unit_hour) == (0.000147, 0.000735)
    assert prices.replicated_write_per_unit_hour == 0.000736


def test_infrequent_access_has_prices_of_its_own():
    prices = read_prices(PriceList(IRELAND, GLUE_IRELAND), "eu-west-1", INFREQUENT)
    assert (prices.read_per_million, prices.write_per_million) == (0.175, 0.88)
    assert prices.read_per_unit_hour is None
    assert prices.glue_per_dpu_hour == 0.44


@pytest.mark.parametrize("prefix", ["", "USE1-", "APN2-", "UGW1-"])
@pytest.mark.parametrize(("table_class", "infix"), [(STANDARD, ""), (INFREQUENT, "IA-")])
def test_knows_the_prefixes_of_regions(prefix, table_class, infix):
    entries = [
        product(ON_DEMAND, f"{prefix}{infix}ReadRequestUnits", "0.0000001"),
        product(ON_DEMAND, f"{prefix}{'' if infix else 'IA-'}ReadRequestUnits", "0.0000009"),
    ]
    assert read_prices(PriceList(entries), "x", table_class).read_per_million == pytest.approx(0.1)


def test_passes_over_products_it_does_not_know():
    # case C082: products without a group once crashed every command
    strange = [
        product("Vector Search", "EU-VectorReadRequestUnits", "0.5"),
        product(ON_DEMAND, "EU-ReadRequestUnits-Vector", "0.5", group="DDB-ReadUnits"),
        product(ON_DEMAND, "", "0.5", group="DDB-ReadUnits"),
        json.dumps({"product": {"sku": "A"}}),
        json.dumps({"product": {"attributes": {"usagetype": "EU-ReadRequestUnits"}}, "terms": {}}),
        json.dumps({"product": {"attributes": {"usagetype": 5}}, "terms": {"OnDemand": {"x": {}}}}),
        json.dumps({"product": [], "terms": None}),
        json.dumps([]),
        "{not json",
        product(ON_DEMAND, "EU-WriteRequestUnits", "free"),
        product(ON_DEMAND, "EU-WriteRequestUnits", "NaN"),
    ]
    prices = read_prices(PriceList([*strange, *IRELAND, *strange]), "eu-west-1", STANDARD)
    assert (prices.read_per_million, prices.write_per_million) == (0.1415, 0.705)


def test_what_is_not_in_the_list_is_not_known():
    # case C082: unknown, neither free nor a crash
    prices = read_prices(PriceList(IRELAND[:1]), "eu-west-1", STANDARD)
    assert prices.read_per_million == 0.1415
    assert (prices.write_per_million, prices.glue_per_dpu_hour) == (None, None)


def test_of_two_prices_for_one_thing_the_higher_counts():
    twice = [*IRELAND, product(ON_DEMAND, "EU-ReadRequestUnits", "0.0000002")]
    assert read_prices(PriceList(twice), "eu-west-1", STANDARD).read_per_million == 0.2


def test_reads_all_pages_of_one_region():
    prices = PriceList(IRELAND, GLUE_IRELAND, page=2)
    assert read_prices(prices, "eu-west-1", STANDARD) == read_prices(
        PriceList(IRELAND, GLUE_IRELAND), "eu-west-1", STANDARD
    )
    assert len(prices.requests) == 5 + 3
    expected = [{"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1"}]
    assert all(request["Filters"] == expected for request in prices.requests)


def test_a_region_without_prices_gets_list_prices_that_say_so():
    prices = read_prices(PriceList([]), "mars-north-1", STANDARD)
    assert prices.source == "list price us-east-1, not from the Pricing API (it has none for mars-north-1)"
    assert prices.read_per_million == 0.125


def test_list_prices_by_table_class():
    assert list_prices(STANDARD).write_per_million == 0.625
    assert list_prices(INFREQUENT).write_per_million == 0.78
    assert list_prices(STANDARD).source == "list price us-east-1, not from the Pricing API"


def test_no_network_gives_list_prices(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    session = boto3.Session("a", "b", region_name="eu-west-1")
    prices = fetch_prices(session, "eu-west-1", STANDARD)
    assert prices.source.endswith("not from the Pricing API (EndpointConnectionError)")


def test_no_credentials_gives_list_prices(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    prices = fetch_prices(boto3.Session(region_name="eu-west-1"), "eu-west-1", STANDARD)
    assert "NoCredentialsError" in prices.source
