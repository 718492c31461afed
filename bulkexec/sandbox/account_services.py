"""What a client asks about its account: the Pricing API, Service Quotas and Application Auto Scaling."""

import base64
import binascii
import time
from collections.abc import Callable
from typing import Any

from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.price_list import as_text, products
from bulkexec.sandbox.service import ServiceError

Members = dict[str, Any]
Operation = Callable[[Members], Members]


def _operation(operations: dict[str, Operation], name: str, request: Members) -> Members:
    if name not in operations:
        raise ServiceError("UnknownOperationException", f"the sandbox does not answer {name}")
    return operations[name](request)


def paged(entries: list[Any], member: str, request: Members, default: int = 100) -> Members:
    """One page of entries, by MaxResults and NextToken. Raises ServiceError for a token it has not given."""
    start = 0
    if token := request.get("NextToken"):
        try:
            start = int(base64.b64decode(token, validate=True))
        except (binascii.Error, ValueError) as error:
            raise ServiceError("InvalidNextTokenException", "The pagination token is invalid.") from error
    end = start + request.get("MaxResults", default)
    answer = {member: entries[start:end]}
    return answer | {"NextToken": base64.b64encode(str(end).encode()).decode()} if end < len(entries) else answer


_MATCHES: dict[str, Callable[[str, str], bool]] = {
    "TERM_MATCH": lambda value, wanted: value == wanted,
    "EQUALS": lambda value, wanted: value == wanted,
    "CONTAINS": lambda value, wanted: wanted in value,
    "ANY_OF": lambda value, wanted: value in wanted.split(","),
    "NONE_OF": lambda value, wanted: value not in wanted.split(","),
}


class PricingService:
    """GetProducts and DescribeServices."""

    def handle(self, operation: str, request: Members) -> Members:
        """Answers one operation. Raises ServiceError."""
        return _operation({"GetProducts": self._products, "DescribeServices": self._services}, operation, request)

    def _products(self, request: Members) -> Members:
        found = [one for one in products() if one["serviceCode"] == request["ServiceCode"]]
        if not found:
            raise ServiceError("NotFoundException", f"no service {request['ServiceCode']}")
        wanted = [as_text(one) for one in found if _passes(one["product"], request.get("Filters") or [])]
        return {"FormatVersion": "aws_v1", **paged(wanted, "PriceList", request)}

    def _services(self, request: Members) -> Members:
        codes = sorted({one["serviceCode"] for one in products()})
        named = [code for code in codes if request.get("ServiceCode") in (None, code)]
        names = ["productFamily", "regionCode", "usagetype", "operation", "group"]
        services = [{"ServiceCode": code, "AttributeNames": names} for code in named]
        return {"FormatVersion": "aws_v1", **paged(services, "Services", request)}


def _passes(product: Members, filters: list[Members]) -> bool:
    values = {"productFamily": product["productFamily"], "sku": product["sku"], **product["attributes"]}
    return all(
        one["Field"] in values and _MATCHES[one["Type"]](values[one["Field"]], one["Value"])
        for one in filters
        if one["Field"].lower() != "servicecode"
    )


QUOTAS = {
    "L-F98FE922": ("Maximum number of tables", 2500.0),
    "L-CF0CBE56": ("Table-level read throughput limit", 40_000.0),
    "L-AB614373": ("Table-level write throughput limit", 40_000.0),
    "L-34F6A552": ("Account-level read throughput limit (Provisioned mode)", 80_000.0),
    "L-34F8CCC8": ("Account-level write throughput limit (Provisioned mode)", 80_000.0),
    "L-F7858A77": ("Global Secondary Indexes per table", 20.0),
}
"""DynamoDB's quotas: name and default by code (Service Quotas console)."""


class QuotasService:
    """Quotas of DynamoDB. An increase that is asked for is granted at once."""

    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._raised: dict[str, float] = {}

    def handle(self, operation: str, request: Members) -> Members:
        """Answers one operation. Raises ServiceError."""
        operations: dict[str, Operation] = {
            "GetServiceQuota": lambda r: {"Quota": self._quota(r["QuotaCode"], self._raised)},
            "GetAWSDefaultServiceQuota": lambda r: {"Quota": self._quota(r["QuotaCode"], {})},
            "ListServiceQuotas": lambda r: paged([self._quota(code, self._raised) for code in QUOTAS], "Quotas", r),
            "ListAWSDefaultServiceQuotas": lambda r: paged([self._quota(code, {}) for code in QUOTAS], "Quotas", r),
            "RequestServiceQuotaIncrease": self._raise,
        }
        if request.get("ServiceCode") != "dynamodb":
            raise ServiceError("NoSuchResourceException", f"The sandbox has no quotas of {request.get('ServiceCode')}.")
        return _operation(operations, operation, request)

    def _quota(self, code: str, raised: dict[str, float]) -> Members:
        if code not in QUOTAS:
            raise ServiceError("NoSuchResourceException", f"The request failed because {code} does not exist.")
        name, default = QUOTAS[code]
        return {
            "ServiceCode": "dynamodb",
            "ServiceName": "Amazon DynamoDB",
            "QuotaArn": f"arn:aws:servicequotas:{self._options.region}:{self._options.account}:dynamodb/{code}",
            "QuotaCode": code,
            "QuotaName": name,
            "Value": raised.get(code, default),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }

    def _raise(self, request: Members) -> Members:
        quota = self._quota(request["QuotaCode"], self._raised)
        if request["DesiredValue"] <= quota["Value"]:
            raise ServiceError("IllegalArgumentException", "The desired value must exceed the present one.")
        self._raised[request["QuotaCode"]] = request["DesiredValue"]
        asked = {name: quota[name] for name in ("ServiceCode", "ServiceName", "QuotaCode", "QuotaName", "QuotaArn")}
        return {
            "RequestedQuota": {**asked, "Id": "sandbox", "DesiredValue": request["DesiredValue"], "Status": "APPROVED"}
        }


class AutoScalingService:
    """Scalable targets and policies: they are registered and described, but nothing is ever scaled."""

    def __init__(self, options: SandboxOptions) -> None:
        self._prefix = f"arn:aws:application-autoscaling:{options.region}:{options.account}"
        self._targets: dict[tuple[str, ...], Members] = {}
        self._policies: dict[tuple[str, ...], Members] = {}

    def handle(self, operation: str, request: Members) -> Members:
        """Answers one operation. Raises ServiceError."""
        operations: dict[str, Operation] = {
            "RegisterScalableTarget": self._register,
            "DeregisterScalableTarget": self._deregister,
            "DescribeScalableTargets": lambda r: paged(_matching(self._targets, r), "ScalableTargets", r),
            "PutScalingPolicy": self._put_policy,
            "DeleteScalingPolicy": self._delete_policy,
            "DescribeScalingPolicies": lambda r: paged(_matching(self._policies, r), "ScalingPolicies", r),
        }
        return _operation(operations, operation, request)

    def _register(self, request: Members) -> Members:
        key = _target_key(request)
        known = self._targets.get(key, {})
        if not known and not {"MinCapacity", "MaxCapacity"} <= set(request):
            raise ServiceError("ValidationException", "MinCapacity and MaxCapacity are required for a new target")
        arn = known.get("ScalableTargetARN", f"{self._prefix}:scalable-target/{len(self._targets):012x}")
        role = f"arn:aws:iam::{arn.split(':')[4]}:role/aws-service-role/dynamodb.application-autoscaling.amazonaws.com"
        made = {"RoleARN": role, "CreationTime": time.time()}
        self._targets[key] = {**made, **known, **request, "ScalableTargetARN": arn}
        return {"ScalableTargetARN": arn}

    def _deregister(self, request: Members) -> Members:
        if self._targets.pop(_target_key(request), None) is None:
            raise ServiceError("ObjectNotFoundException", "No scalable target registered for it")
        return {}

    def _put_policy(self, request: Members) -> Members:
        if _target_key(request) not in self._targets:
            raise ServiceError("ObjectNotFoundException", "No scalable target registered for it")
        arn = f"{self._prefix}:scalingPolicy:{request['ResourceId']}:policyName/{request['PolicyName']}"
        made = {"PolicyType": "TargetTrackingScaling", "CreationTime": time.time(), "Alarms": []}
        self._policies[_policy_key(request)] = {**made, **request, "PolicyARN": arn}
        return {"PolicyARN": arn, "Alarms": []}

    def _delete_policy(self, request: Members) -> Members:
        if self._policies.pop(_policy_key(request), None) is None:
            raise ServiceError("ObjectNotFoundException", "No scaling policy found for it")
        return {}


def _target_key(request: Members) -> tuple[str, ...]:
    return request["ServiceNamespace"], request["ResourceId"], request["ScalableDimension"]


def _policy_key(request: Members) -> tuple[str, ...]:
    return *_target_key(request), request["PolicyName"]


def _matching(entries: dict[tuple[str, ...], Members], request: Members) -> list[Members]:
    resources = request.get("ResourceIds") or ([request["ResourceId"]] if "ResourceId" in request else None)
    return [
        one
        for one in entries.values()
        if one["ServiceNamespace"] == request["ServiceNamespace"]
        and (resources is None or one["ResourceId"] in resources)
        and request.get("ScalableDimension", one["ScalableDimension"]) == one["ScalableDimension"]
    ]
