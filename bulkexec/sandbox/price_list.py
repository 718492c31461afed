"""Products of the price list in the shape of GetProducts: list prices of us-east-1, November 2026, for every region."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

REGIONS = {
    "us-east-1": ("USE1-", "US East (N. Virginia)"),
    "us-east-2": ("USE2-", "US East (Ohio)"),
    "us-west-2": ("USW2-", "US West (Oregon)"),
    "eu-west-1": ("EU-", "EU (Ireland)"),
    "eu-central-1": ("EUC1-", "EU (Frankfurt)"),
}
"""Prefix of usage types and location by region; DynamoDB has no prefix in us-east-1, Glue has."""

OFFER_TERM = "JRTCKXETXF"
RATE = "6YS6EN2CT7"
FREE_RATE = "D42MF2PVJS"

ON_DEMAND = "Amazon DynamoDB PayPerRequest Throughput"
PROVISIONED = "Provisioned IOPS"
STORAGE = "Database Storage"


@dataclass(frozen=True)
class Rate:
    """A product: USD for each `unit`, after a free band of `free_units` a month. `group` is empty for some products."""

    service: str
    family: str
    usage_type: str
    operation: str
    unit: str
    usd: str
    group: str = ""
    free_units: int = 0


def _dynamodb(family: str, usage_type: str, unit: str, usd: str, group: str = "", free_units: int = 0) -> Rate:
    operations = {ON_DEMAND: "PayPerRequestThroughput", PROVISIONED: "CommittedThroughput", STORAGE: "StandardStorage"}
    return Rate("AmazonDynamoDB", family, usage_type, operations.get(family, ""), unit, usd, group, free_units)


RATES = (
    _dynamodb(ON_DEMAND, "ReadRequestUnits", "ReadRequestUnits", "0.0000001250", "DDB-ReadUnits"),
    _dynamodb(ON_DEMAND, "WriteRequestUnits", "WriteRequestUnits", "0.0000006250", "DDB-WriteUnits"),
    _dynamodb(
        ON_DEMAND, "ReplWriteRequestUnits", "ReplicatedWriteRequestUnits", "0.0000006250", "DDB-ReplicatedWriteUnits"
    ),
    _dynamodb(ON_DEMAND, "IA-ReadRequestUnits", "ReadRequestUnits", "0.0000001550", "DDB-ReadUnitsIA"),
    _dynamodb(ON_DEMAND, "IA-WriteRequestUnits", "WriteRequestUnits", "0.0000007800", "DDB-WriteUnitsIA"),
    _dynamodb(PROVISIONED, "ReadCapacityUnit-Hrs", "ReadCapacityUnit-Hrs", "0.0001300000", "DDB-ReadUnits", 18_600),
    _dynamodb(PROVISIONED, "WriteCapacityUnit-Hrs", "WriteCapacityUnit-Hrs", "0.0006500000", "DDB-WriteUnits", 18_600),
    _dynamodb(PROVISIONED, "IA-ReadCapacityUnit-Hrs", "ReadCapacityUnit-Hrs", "0.0001600000", "DDB-ReadUnitsIA"),
    _dynamodb(PROVISIONED, "IA-WriteCapacityUnit-Hrs", "WriteCapacityUnit-Hrs", "0.0008100000", "DDB-WriteUnitsIA"),
    _dynamodb(
        PROVISIONED,
        "ReplWriteCapacityUnit-Hrs",
        "ReplicatedWriteCapacityUnit-Hrs",
        "0.0006500000",
        "DDB-ReplicatedWriteUnits",
    ),
    _dynamodb(STORAGE, "TimedStorage-ByteHrs", "GB-Mo", "0.2500000000", free_units=25),
    _dynamodb(STORAGE, "IA-TimedStorage-ByteHrs", "GB-Mo", "0.1000000000"),
    _dynamodb("Amazon DynamoDB PITR Backup Storage", "TimedPITRStorage-ByteHrs", "GB-Mo", "0.2000000000"),
    _dynamodb("Amazon DynamoDB Export Data Size", "ExportDataSize-Bytes", "GB", "0.1000000000"),
    _dynamodb("Amazon DynamoDB Import Data Size", "ImportDataSize-Bytes", "GB", "0.1500000000"),
    Rate("AWSGlue", "AWS Glue", "ETL-DPU-Hour", "Jobrun", "DPU-Hour", "0.4400000000", "ETL Job run"),
    Rate("AWSGlue", "AWS Glue", "ETL-Flex-DPU-Hour", "FlexJobrun", "DPU-Hour", "0.2900000000", "ETL Flex Job run"),
    Rate("AWSGlue", "AWS Glue", "Crawler-DPU-Hour", "CrawlerRun", "DPU-Hour", "0.4400000000"),
)

UNPRICED = Rate("AmazonDynamoDB", "Amazon DynamoDB Vector Throughput", "VectorWriteRequestBytes", "Vector", "GB", "")
"""A product of the kind that appears without notice: no group, and no on-demand terms."""


def products() -> list[dict[str, Any]]:
    """All products of all regions."""
    rates = (*RATES, UNPRICED)
    return [_product(rate, region) for region in REGIONS for rate in rates]


def _product(rate: Rate, region: str) -> dict[str, Any]:
    attributes = _attributes(rate, region)
    sku = hashlib.sha256(f"{region}/{rate.usage_type}/{rate.service}".encode()).hexdigest()[:16].upper()
    return {
        "product": {"productFamily": rate.family, "attributes": attributes, "sku": sku},
        "serviceCode": rate.service,
        "terms": {"OnDemand": {f"{sku}.{OFFER_TERM}": _offer(rate, sku)}} if rate.usd else {},
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
    }


def _attributes(rate: Rate, region: str) -> dict[str, str]:
    prefix, location = REGIONS[region]
    bare = rate.service == "AmazonDynamoDB" and region == "us-east-1"
    attributes = {
        "servicecode": rate.service,
        "servicename": {"AmazonDynamoDB": "Amazon DynamoDB"}.get(rate.service, "AWS Glue"),
        "usagetype": rate.usage_type if bare else prefix + rate.usage_type,
        "operation": rate.operation,
        "regionCode": region,
        "location": location,
        "locationType": "AWS Region",
    }
    return attributes | {"group": rate.group, "groupDescription": rate.unit} if rate.group else attributes


def _offer(rate: Rate, sku: str) -> dict[str, Any]:
    free = str(rate.free_units)
    bands = [(FREE_RATE, "0", free, "0.0000000000")] if rate.free_units else []
    bands.append((RATE, free, "Inf", rate.usd))
    return {
        "offerTermCode": OFFER_TERM,
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "termAttributes": {},
        "priceDimensions": {f"{sku}.{OFFER_TERM}.{band[0]}": _dimension(rate, sku, *band) for band in bands},
    }


def _dimension(rate: Rate, sku: str, code: str, begin: str, end: str, usd: str) -> dict[str, Any]:
    return {
        "rateCode": f"{sku}.{OFFER_TERM}.{code}",
        "unit": rate.unit,
        "beginRange": begin,
        "endRange": end,
        "description": f"${usd} per {rate.unit}",
        "appliesTo": [],
        "pricePerUnit": {"USD": usd},
    }


def as_text(product: dict[str, Any]) -> str:
    """A product as an entry of PriceList."""
    return json.dumps(product, separators=(",", ":"))
