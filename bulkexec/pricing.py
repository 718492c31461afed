"""Prices from the Pricing API (GetProducts), or us-east-1 list prices when it cannot be asked.

A price list holds many products and grows. Products are recognised by usage type, which is the region's prefix and a
fixed name (developer guide, "DynamoDB billing for usage types"); everything else is passed over.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from bulkexec.describe import why_refused
from bulkexec.dollars import Prices

INFREQUENT: Final = "STANDARD_INFREQUENT_ACCESS"
API_REGION: Final = "us-east-1"
"""The Pricing API has endpoints in few regions; each knows the prices of all."""

_MILLION: Final = 1_000_000
_DYNAMODB_FIELDS: Final = {
    "ReadRequestUnits": ("read_per_million", _MILLION),
    "WriteRequestUnits": ("write_per_million", _MILLION),
    "ReplWriteRequestUnits": ("replicated_write_per_million", _MILLION),
    "ReadCapacityUnit-Hrs": ("read_per_unit_hour", 1),
    "WriteCapacityUnit-Hrs": ("write_per_unit_hour", 1),
    "ReplWriteCapacityUnit-Hrs": ("replicated_write_per_unit_hour", 1),
}
_GLUE_FIELDS: Final = {
    "ETL-DPU-Hour": ("glue_per_dpu_hour", 1),
    "ETL-Flex-DPU-Hour": ("glue_flex_per_dpu_hour", 1),
}

GetProducts = Callable[..., dict[str, Any]]
"""`get_products` of a boto3 pricing client."""


def fetch_prices(session: boto3.Session, region: str, table_class: str) -> Prices:
    """Prices of DynamoDB for tables of `table_class`, and of Glue, in `region`.

    Never fails for want of permission, credentials or network: then these are list prices, and `source` says so.
    Takes at most about 15 s. What the API's answer does not hold is None.
    """
    config = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2})
    try:
        client = session.client("pricing", region_name=API_REGION, config=config)
        return read_prices(client.get_products, region, table_class)
    except ClientError as error:
        return list_prices(table_class, why_refused(error))
    except BotoCoreError as error:
        return list_prices(table_class, type(error).__name__)


def list_prices(table_class: str, reason: str = "") -> Prices:
    """Prices of us-east-1 in November 2026, with the reason why they have to do."""
    source = "list price us-east-1, not from the Pricing API" + (f" ({reason})" if reason else "")
    return replace(_LIST_PRICES[table_class == INFREQUENT], source=source)


def read_prices(get_products: GetProducts, region: str, table_class: str) -> Prices:
    """The same from the answers of `get_products`; list prices when there is none in them for this region."""
    infix = "IA-" if table_class == INFREQUENT else ""
    dynamodb = _found(_entries(get_products, "AmazonDynamoDB", region), infix, _DYNAMODB_FIELDS)
    glue = _found(_entries(get_products, "AWSGlue", region), "", _GLUE_FIELDS)
    if not dynamodb:
        return list_prices(table_class, f"it has none for {region}")
    return Prices(f"Pricing API, {region}", **dynamodb, **glue)


class _Product(msgspec.Struct):
    attributes: dict[str, Any] = {}


class _Dimension(msgspec.Struct):
    pricePerUnit: dict[str, str] = {}  # noqa: N815 - the API's name


class _Offer(msgspec.Struct):
    priceDimensions: dict[str, _Dimension] = {}  # noqa: N815 - the API's name


class _Terms(msgspec.Struct):
    OnDemand: dict[str, _Offer] = {}


class _Entry(msgspec.Struct):
    product: _Product = msgspec.field(default_factory=_Product)
    terms: _Terms = msgspec.field(default_factory=_Terms)


def _entries(get_products: GetProducts, service: str, region: str) -> Iterator[_Entry]:
    request = {
        "ServiceCode": service,
        "Filters": [{"Type": "TERM_MATCH", "Field": "regionCode", "Value": region}],
        "FormatVersion": "aws_v1",
        "MaxResults": 100,
    }
    while True:
        answer = get_products(**request)
        yield from filter(None, map(_entry, answer.get("PriceList", [])))
        if not answer.get("NextToken"):
            return
        request["NextToken"] = answer["NextToken"]


def _entry(text: str) -> _Entry | None:
    """A product of the price list; None for one of another shape, which cannot be one of those looked for."""
    try:
        return msgspec.json.decode(text, type=_Entry)
    except msgspec.MsgspecError:
        return None


def _found(entries: Iterable[_Entry], infix: str, fields: dict[str, tuple[str, int]]) -> dict[str, float]:
    """Price by field. Of several for one field the highest counts, so that an estimate is rather too high."""
    names = "|".join(map(re.escape, fields))
    usage = re.compile(rf"(?:(?!IA-)[A-Z0-9]+-)?{infix}({names})")
    found: dict[str, float] = {}
    for entry in entries:
        match = usage.fullmatch(str(entry.product.attributes.get("usagetype", "")))
        price = _usd(entry.terms) if match else None
        if match and price is not None:
            field, factor = fields[match.group(1)]
            found[field] = max(found.get(field, 0.0), float(price * factor))
    return found


def _usd(terms: _Terms) -> Decimal | None:
    """The price above the free band, which is listed as a band of its own at $0."""
    dimensions = [dimension for offer in terms.OnDemand.values() for dimension in offer.priceDimensions.values()]
    prices = [_decimal(dimension.pricePerUnit.get("USD", "")) for dimension in dimensions]
    return max((price for price in prices if price > 0), default=None)


def _decimal(text: str) -> Decimal:
    try:
        price = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return price if price.is_finite() else Decimal(0)


# DynamoDB and Glue pricing pages, us-east-1. Replicated writes cost what others do since November 2024.
_LIST_PRICES: Final = {
    False: Prices("", 0.125, 0.625, 0.625, 0.00013, 0.00065, 0.00065, 0.44, 0.29),
    True: Prices("", 0.155, 0.78, 0.78, 0.00016, 0.00081, 0.00081, 0.44, 0.29),
}
