"""Checks of read expressions that DynamoDB makes before it looks at an item, the emulator only when it meets one."""

import re
from typing import Any

import ministack.services.dynamodb as emulated

from bulkexec.sandbox.capacity import Record, key_names
from bulkexec.sandbox.conditions import compile_condition
from bulkexec.sandbox.service import ServiceError


def check_expressions(request: dict[str, Any], table: Record) -> None:
    """Raises ServiceError ValidationException for a filter or projection that no item could make valid."""
    values, names = request.get("ExpressionAttributeValues") or {}, request.get("ExpressionAttributeNames") or {}
    if "ExclusiveStartKey" in request:
        _check_start(request, table)
    if "KeyConditionExpression" in request:
        _check_key_condition(request["KeyConditionExpression"])
    if "FilterExpression" in request:
        _check_filter(request["FilterExpression"], values, names)
        if "KeyConditionExpression" in request:
            _check_no_keys(request, names, table)
    if "ProjectionExpression" in request:
        wrong = emulated._validate_projection_expression_syntax(request["ProjectionExpression"])
        if wrong:
            raise ServiceError("ValidationException", wrong)


def check_placeholders(request: dict[str, Any]) -> None:
    """Raises ServiceError ValidationException for maps of names or values that are there but empty."""
    for member in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        if request.get(member) == {}:
            raise ServiceError("ValidationException", f"{member} must not be empty")


def _check_start(request: dict[str, Any], table: Record) -> None:
    """A start key has the keys of the table, and of the index that is read, in their types and nothing else."""
    index = emulated._index_def(table, request["IndexName"]) if "IndexName" in request else None
    names = {*key_names(table), *(key_names(index) if index else ())}
    types = {name: emulated._get_attr_type(table, name) for name in names}
    key = request["ExclusiveStartKey"]
    if {name: next(iter(value)) for name, value in key.items()} != types:
        message = "The provided starting key is invalid: The provided key element does not match the schema"
        raise ServiceError("ValidationException", message)


_NOT_FOR_KEYS = re.compile(r"<>|\b(?:OR|NOT|IN|contains|size|attribute_\w+)(?=\b)", re.IGNORECASE)


def _check_key_condition(text: str) -> None:
    if wrong := _NOT_FOR_KEYS.search(re.sub(r"[#:]\w+", "", text)):
        message = f"Invalid operator used in KeyConditionExpression: {wrong.group().upper()}"
        raise ServiceError("ValidationException", message)


def _check_filter(text: str, values: dict[str, Any], names: dict[str, str]) -> None:
    if not text.strip():
        raise ServiceError("ValidationException", "Invalid FilterExpression: The expression can not be empty;")
    try:
        compile_condition(text, values, names, "FilterExpression")
    except ValueError as error:
        raise ServiceError("ValidationException", str(error)) from error


def _check_no_keys(request: dict[str, Any], names: dict[str, str], table: Record) -> None:
    """A Query's filter may not look at the keys of what is queried."""
    index = emulated._index_def(table, request["IndexName"]) if "IndexName" in request else None
    words = re.findall(r"(?<![:#.\w])#?[A-Za-z_]\w*", request["FilterExpression"])
    for name in key_names(index or table):
        if name in {names.get(word, word) for word in words}:
            what = "Filter Expression can only contain non-primary key attributes"
            raise ServiceError("ValidationException", f"{what}: Primary key attribute: {name}")
