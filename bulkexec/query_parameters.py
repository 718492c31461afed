"""What a boto3 Scan or Query takes, as far as it selects items, in the terms of a `Filter`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from bulkexec import errors
from bulkexec.codec import NotEncodable, value_from_python
from bulkexec.selection import Filter

KNOWN = frozenset(
    {
        "IndexName",
        "FilterExpression",
        "KeyConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ConsistentRead",
    }
)
TYPES = frozenset({"S", "N", "B", "SS", "NS", "BS", "M", "L", "NULL", "BOOL"})


def with_parameters(chosen: Filter, params: Mapping[str, Any]) -> Filter:
    """The filter, and what `params` select. Expressions are texts, or conditions of boto3.dynamodb.conditions.

    Values are Python values or typed ones ({"S": "a"}). Raises `errors.BadArgument`.
    """
    unknown = sorted(set(params) - KNOWN)
    if unknown:
        raise errors.BadArgument(
            f"params has {', '.join(unknown)}, which a mass operation does not take",
            fix=f"one of: {', '.join(sorted(KNOWN))}",
        )
    expression, key, names, values = _expressions(params)
    return replace(
        chosen,
        index=params.get("IndexName") or chosen.index,
        expression=expression,
        key_expression=key,
        names=msgspec.json.encode(names).decode() if names else None,
        values=msgspec.json.encode({alias: _typed(alias, value) for alias, value in values.items()}).decode()
        if values
        else None,
        consistent=bool(params.get("ConsistentRead", False)),
    )


def _expressions(params: Mapping[str, Any]) -> tuple[str | None, str | None, dict[str, str], dict[str, Any]]:
    names = dict(params.get("ExpressionAttributeNames") or {})
    values = dict(params.get("ExpressionAttributeValues") or {})
    given = [params.get("FilterExpression"), params.get("KeyConditionExpression")]
    if all(each is None or isinstance(each, str) for each in given):
        return given[0], given[1], names, values
    from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

    builder, texts = ConditionExpressionBuilder(), list[str | None]()
    for place, each in enumerate(given):
        if isinstance(each, ConditionBase):
            built = builder.build_expression(each, is_key_condition=place == 1)
            names |= built.attribute_name_placeholders
            values |= built.attribute_value_placeholders
            texts.append(built.condition_expression)
        else:
            texts.append(each)
    return texts[0], texts[1], names, values


def _typed(alias: str, value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in TYPES:
        return value
    try:
        return value_from_python(value)
    except NotEncodable as error:
        raise errors.BadArgument(f"the value of {alias} cannot be stored: {error}") from error
