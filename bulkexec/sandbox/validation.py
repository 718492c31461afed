"""Requests held against botocore's service models: types, unknown members, required ones, limits and enumerations.

AWS checks a request's form before anything else; emulators read what they know and ignore the rest.
"""

import base64
import binascii
from collections.abc import Callable
from functools import cache
from typing import Any

from bulkexec.sandbox.service import ServiceError

Check = Callable[[Any, str], None]
"""Checks a value found at a path. Raises ServiceError."""

SERVICES = {
    "DynamoDB_20120810": "dynamodb",
    "AWSPriceListService": "pricing",
    "ServiceQuotasV20190624": "service-quotas",
    "AnyScaleFrontendService": "application-autoscaling",
}
"""botocore's name of a service by the prefix of X-Amz-Target. Glue checks its requests itself, with its own errors."""

_WORDS = {str: "STRING_VALUE", bool: "TRUE_VALUE", int: "NUMBER_VALUE", float: "DECIMAL_VALUE"}


def knows(target: str) -> bool:
    """Whether requests with that X-Amz-Target are checked here."""
    return target.partition(".")[0] in SERVICES


def validate(target: str, request: dict[str, Any]) -> None:
    """Checks a request by its X-Amz-Target.

    Raises ServiceError SerializationException, ValidationException or UnknownOperationException.
    """
    prefix, _, operation = target.rpartition(".")
    model = _model(SERVICES[prefix])
    if operation not in model.operation_names:
        raise ServiceError("UnknownOperationException", "")
    shape = model.operation_model(operation).input_shape
    if shape is not None:
        _check_of(SERVICES[prefix], shape.name)(request, "")


@cache
def _model(service: str) -> Any:
    import botocore.session

    return botocore.session.get_session().get_service_model(service)


@cache
def _check_of(service: str, shape_name: str) -> Check:
    if (service, shape_name) == ("dynamodb", "AttributeValue"):
        return check_attribute_value
    shape = _model(service).shape_for(shape_name)
    return _CHECKS.get(shape.type_name, _no_check)(service, shape)


def _structure(service: str, shape: Any) -> Check:
    members: dict[str, Check] = {}

    def check(value: Any, path: str) -> None:
        _want(value, dict, "Start of structure or map found where not expected.")
        for name in shape.required_members:
            if value.get(name) is None:
                raise _invalid(f"Value null at '{_joined(path, name)}'", "Member must not be null")
        for name, member in value.items():
            if name not in shape.members:
                raise ServiceError("SerializationException", f"Unrecognized member {name} in {shape.name}")
            if member is None:
                continue
            if name not in members:
                members[name] = _check_of(service, shape.members[name].name)
            members[name](member, _joined(path, name))

    return check


def _list(service: str, shape: Any) -> Check:
    member = _check_of_member(service, shape.member)
    size = _size_check(shape)

    def check(value: Any, path: str) -> None:
        _want(value, list, "Unexpected field type")
        size(value, path)
        for number, one in enumerate(value, 1):
            member(one, f"{path}.{number}.member")

    return check


def _map(service: str, shape: Any) -> Check:
    member = _check_of_member(service, shape.value)
    size = _size_check(shape)

    def check(value: Any, path: str) -> None:
        _want(value, dict, "Start of structure or map found where not expected.")
        size(value, path)
        for key, one in value.items():
            member(one, f"{path}.{key}.member")

    return check


def _check_of_member(service: str, shape: Any) -> Check:
    """The check of a list's or map's members, looked up late since shapes contain one another."""

    def check(value: Any, path: str) -> None:
        _check_of(service, shape.name)(value, path)

    return check


def _string(_: str, shape: Any) -> Check:
    allowed, size = shape.enum, _size_check(shape)

    def check(value: Any, path: str) -> None:
        _want(value, str, f"{_WORDS.get(type(value), 'Value')} cannot be converted to String")
        if allowed and value not in allowed:
            options = f"Member must satisfy enum value set: [{', '.join(allowed)}]"
            raise _invalid(f"Value '{value}' at '{path}'", options)
        size(value, path)

    return check


def _integer(_: str, shape: Any) -> Check:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")

    def check(value: Any, path: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ServiceError(
                "SerializationException", f"{_WORDS.get(type(value), 'Value')} cannot be converted to Integer"
            )
        if least is not None and value < least:
            raise _invalid(f"Value '{value}' at '{path}'", f"Member must have value greater than or equal to {least}")
        if most is not None and value > most:
            raise _invalid(f"Value '{value}' at '{path}'", f"Member must have value less than or equal to {most}")

    return check


def _boolean(_: str, __: Any) -> Check:
    return lambda value, _: _want(value, bool, f"{_WORDS.get(type(value), 'Value')} cannot be converted to Boolean")


def _number(_: str, __: Any) -> Check:
    def check(value: Any, _: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ServiceError(
                "SerializationException", f"{_WORDS.get(type(value), 'Value')} cannot be converted to Float"
            )

    return check


def _blob(_: str, __: Any) -> Check:
    return lambda value, _: _check_base64(value)


def _no_check(_: str, __: Any) -> Check:
    return lambda *_: None


_CHECKS: dict[str, Callable[[str, Any], Check]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
    "string": _string,
    "integer": _integer,
    "long": _integer,
    "boolean": _boolean,
    "float": _number,
    "double": _number,
    "blob": _blob,
}


def _size_check(shape: Any) -> Check:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")

    def check(value: Any, path: str) -> None:
        if least is not None and len(value) < least:
            raise _invalid(f"Value at '{path}'", f"Member must have length greater than or equal to {least}")
        if most is not None and len(value) > most:
            raise _invalid(f"Value at '{path}'", f"Member must have length less than or equal to {most}")

    return check


def _invalid(what: str, constraint: str) -> ServiceError:
    message = f"1 validation error detected: {what} failed to satisfy constraint: {constraint}"
    return ServiceError("ValidationException", message)


def _want(value: Any, kind: type, message: str) -> None:
    if not isinstance(value, kind):
        raise ServiceError("SerializationException", message)


def _joined(path: str, name: str) -> str:
    own = name[:1].lower() + name[1:]
    return f"{path}.{own}" if path else own


def check_attribute_value(value: Any, _: str = "") -> None:
    """Checks a typed DynamoDB value: one known tag, with content of its form. Raises ServiceError."""
    _want(value, dict, "Start of structure or map found where not expected.")
    if len(value) != 1:
        what = "is empty" if not value else "has more than one datatypes set"
        message = f"Supplied AttributeValue {what}, must contain exactly one of the supported datatypes"
        raise ServiceError("ValidationException", message)
    ((tag, content),) = value.items()
    if tag not in _CONTENTS:
        message = "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        raise ServiceError("ValidationException", message)
    _CONTENTS[tag](content)


def _check_text(content: Any) -> None:
    _want(content, str, f"{_WORDS.get(type(content), 'Value')} cannot be converted to String")


def _check_base64(content: Any) -> None:
    _check_text(content)
    try:
        base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        message = "Base64 encoded length is expected a multiple of 4 bytes or has illegal characters"
        raise ServiceError("SerializationException", message) from error


def _check_flag(content: Any) -> None:
    _want(content, bool, f"{_WORDS.get(type(content), 'Value')} cannot be converted to Boolean")


def _check_null(content: Any) -> None:
    _check_flag(content)
    if content is not True:
        message = "One or more parameter values were invalid: Null attribute value types must have the value of true"
        raise ServiceError("ValidationException", message)


def _check_list(content: Any) -> None:
    _want(content, list, "Unexpected field type")
    for one in content:
        check_attribute_value(one)


def _check_map(content: Any) -> None:
    _want(content, dict, "Start of structure or map found where not expected.")
    for one in content.values():
        check_attribute_value(one)


def _set_of(check: Callable[[Any], None]) -> Callable[[Any], None]:
    def check_set(content: Any) -> None:
        _want(content, list, "Unexpected field type")
        for one in content:
            check(one)

    return check_set


_CONTENTS: dict[str, Callable[[Any], None]] = {
    "S": _check_text,
    "N": _check_text,
    "B": _check_base64,
    "BOOL": _check_flag,
    "NULL": _check_null,
    "L": _check_list,
    "M": _check_map,
    "SS": _set_of(_check_text),
    "NS": _set_of(_check_text),
    "BS": _set_of(_check_base64),
}
