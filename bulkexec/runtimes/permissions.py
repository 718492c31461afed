"""What a caller or a role may do, asked of IAM's policy simulator."""

from collections.abc import Iterator
from typing import Any

import botocore.exceptions

from bulkexec.runtimes.steps import Site, is_code

ACTIONS_A_REQUEST = 50
ON_TABLES = ("Table", "Index")
"""The statements of our policies that are about the user's tables."""
SAMPLE = "bulkexec-check"
"""Stands for any name."""


def refused(site: Site, principal_arn: str, document: dict[str, Any]) -> list[str]:
    """The actions of a policy document that a user or role is not allowed on its resources, in order.

    A permission that is limited to some resources is asked for one of those and never for all (case C097). Service
    control policies and the policies of the resources are left out by the simulator.
    Raises botocore's ClientError where the caller may not simulate, or the principal cannot be simulated.
    """
    client, found = site.client("iam"), dict[str, None]()
    for statement in document["Statement"]:
        for spellings in _resources(site, statement["Resource"]):
            missing = set(statement["Action"])
            for resource in spellings:
                missing &= set(_refused(client, principal_arn, sorted(missing), resource, statement))
            found |= dict.fromkeys(sorted(missing))
    return list(found)


def _refused(
    client: Any, principal_arn: str, names: list[str], resource: str, statement: dict[str, Any]
) -> Iterator[str]:
    for begin in range(0, len(names), ACTIONS_A_REQUEST):
        request = {
            "PolicySourceArn": principal_arn,
            "ActionNames": names[begin : begin + ACTIONS_A_REQUEST],
            "ResourceArns": [resource],
            "ContextEntries": _context(statement),
        }
        for page in client.get_paginator("simulate_principal_policy").paginate(**request):
            for result in page["EvaluationResults"]:
                if result["EvalDecision"] != "allowed":
                    yield result["EvalActionName"]


def _resources(site: Site, arns: list[str]) -> list[list[str]]:
    """Each resource in the ways in which it may have been granted; one of them is enough."""
    found: dict[str, list[str]] = {}
    for arn in arns:
        if arn == "*":
            found["*"] = ["*", site.arn("servicequotas", "dynamodb/L-F98FE922")]
        else:
            # A log group is granted as it is, or with :* behind it.
            found.setdefault(arn.removesuffix(":*"), []).append(arn.replace("*", SAMPLE))
    return list(found.values())


def _context(statement: dict[str, Any]) -> list[dict[str, Any]]:
    """What a request of ours brings along, by the conditions under which we ask for the permission."""
    return [
        {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for key, value in statement.get("Condition", {}).get("StringEquals", {}).items()
    ]


def without_tables(document: dict[str, Any]) -> dict[str, Any]:
    """A policy without what it says of the user's tables: which may be used is not known before one is named."""
    return {**document, "Statement": [each for each in document["Statement"] if each["Sid"] not in ON_TABLES]}


def only_tables(document: dict[str, Any]) -> dict[str, Any]:
    """What a policy says of the user's tables."""
    return {**document, "Statement": [each for each in document["Statement"] if each["Sid"] in ON_TABLES]}


def simulated_principal(site: Site, caller_arn: str) -> str:
    """The user or role behind a caller's ARN, as the simulator takes it; empty for one that it cannot judge.

    A session's ARN leaves out the path of its role, so the role is looked up. Raises botocore's ClientError.
    """
    kind, _, rest = caller_arn.split(":", 5)[-1].partition("/")
    if kind == "user":
        return caller_arn
    if kind != "assumed-role":
        return ""  # root and federated users
    client, name = site.client("iam"), rest.split("/")[0]
    try:
        return str(client.get_role(RoleName=name)["Role"]["Arn"])
    except botocore.exceptions.ClientError as error:
        if is_code(error, "AccessDenied", "AccessDeniedException"):
            return site.arn("iam", f"role/{name}", region="")
        raise
