"""What a request has to be allowed: the IAM actions behind it, and the resources they are on.

Source: Service Authorization Reference. S3's and IAM's own tables are those of the emulator; the services whose
requests are JSON are read here, because the emulator does not know the actions of PartiQL, roles that are passed on,
log streams, and the services it does not have.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from bulkexec.sandbox.asgi import Request

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Check:
    """One action on one resource ("*" where IAM knows none). `passed_to` is the service that a role is handed to."""

    action: str
    resource: str
    passed_to: str = ""

    @property
    def context(self) -> dict[str, str]:
        """Condition keys of this service, in lower case."""
        return {"iam:passedtoservice": self.passed_to} if self.passed_to else {}


@dataclass(frozen=True)
class Home:
    """Where a request was sent."""

    region: str
    account: str

    def arn(self, service: str, rest: str) -> str:
        """The ARN of something of this account and region."""
        return f"arn:aws:{service}:{self.region}:{self.account}:{rest}"


def checks(request: Request, home: Home) -> list[Check]:
    """Everything that must be allowed for one request; nothing for what needs no permission."""
    if request.service == "s3":
        return list(_s3(request))
    if not request.target:
        return list(_query(request, home))
    body = request.json()
    read = _JSON.get(request.service)
    if read is None:
        return [Check(f"{request.service}:{request.operation}", "*")]
    return list(dict.fromkeys(read(request.operation, body, home)))


# -- DynamoDB ----------------------------------------------------------------------------------------------------

_STATEMENT = re.compile(
    r"""\s*(?P<verb>SELECT|INSERT|UPDATE|DELETE)\b
        (?:.*?\bFROM|\s+INTO)?\s+"?(?P<table>[A-Za-z0-9_.\-]+)"?(?:\."(?P<index>[A-Za-z0-9_.\-]+)")?""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_TRANSACTION = {
    "ConditionCheck": "ConditionCheckItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "Get": "GetItem",
}


def _dynamodb(operation: str, body: Body, home: Home) -> Iterator[Check]:
    if operation in ("ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"):
        for statement in statements(body):
            yield statement_check(statement, home)
    elif operation in ("TransactWriteItems", "TransactGetItems"):
        for member in body.get("TransactItems", ()):
            for kind, part in member.items():
                yield Check(f"dynamodb:{_TRANSACTION[kind]}", _table(part["TableName"], home))
    elif "RequestItems" in body:
        for name in body["RequestItems"]:
            yield Check(f"dynamodb:{operation}", _table(name, home))
    else:
        arn = _named_table(body, home)
        yield Check(f"dynamodb:{operation}", arn)
        if operation == "CreateTable" and body.get("Tags"):
            yield Check("dynamodb:TagResource", arn)


def statements(body: Body) -> list[str]:
    """The PartiQL statements of a request."""
    several = body.get("Statements") or body.get("TransactStatements") or [body]
    return [str(each.get("Statement", "")) for each in several]


def statement_check(statement: str, home: Home) -> Check:
    """PartiQL is authorised by the verb of each statement (developer guide, "IAM security policies with PartiQL")."""
    found = _STATEMENT.match(statement)
    if found is None:
        return Check("dynamodb:PartiQLSelect", "*")
    index = f"/index/{found['index']}" if found["index"] else ""
    return Check(f"dynamodb:PartiQL{found['verb'].capitalize()}", _table(found["table"], home) + index)


def _named_table(body: Body, home: Home) -> str:
    arn = body.get("ResourceArn") or body.get("TableArn") or body.get("ExportArn") or body.get("BulkOperationArn")
    if arn:
        return str(arn)
    if "TableName" not in body:
        return "*"
    index = f"/index/{body['IndexName']}" if "IndexName" in body else ""
    return _table(body["TableName"], home) + index


def _table(name: str, home: Home) -> str:
    return name if name.startswith("arn:") else home.arn("dynamodb", f"table/{name}")


# -- the other services that speak JSON --------------------------------------------------------------------------


def _glue(operation: str, body: Body, home: Home) -> Iterator[Check]:
    name = body.get("JobName") or body.get("Name")
    arn = body.get("ResourceArn") or (home.arn("glue", f"job/{name}") if name else "*")
    yield Check(f"glue:{operation}", arn)
    if operation == "CreateJob" and body.get("Tags"):
        yield Check("glue:TagResource", arn)
    role = (body if operation == "CreateJob" else body.get("JobUpdate", {})).get("Role")
    if role:
        arn = role if role.startswith("arn:") else f"arn:aws:iam::{home.account}:role/{role}"
        yield Check("iam:PassRole", arn, "glue.amazonaws.com")


def _logs(operation: str, body: Body, home: Home) -> Iterator[Check]:
    group = body.get("logGroupName") or body.get("logGroupIdentifier")
    stream = body.get("logStreamName")
    if operation == "StartLiveTail":
        for arn in body.get("logGroupIdentifiers", ()):
            yield Check("logs:StartLiveTail", arn)
    elif operation == "DescribeLogGroups" or not (group or "resourceArn" in body):
        yield Check(f"logs:{operation}", "*")
    elif stream and operation in ("CreateLogStream", "PutLogEvents", "GetLogEvents", "DeleteLogStream"):
        yield Check(f"logs:{operation}", home.arn("logs", f"log-group:{group}:log-stream:{stream}"))
    else:
        # A refusal names a group in this way, so a grant on the group's ARN needs :* behind it.
        yield Check(f"logs:{operation}", body.get("resourceArn") or home.arn("logs", f"log-group:{group}:log-stream:"))


def _servicequotas(operation: str, body: Body, home: Home) -> Iterator[Check]:
    code = body.get("QuotaCode")
    arn = home.arn("servicequotas", f"{body.get('ServiceCode')}/{code}") if code else "*"
    yield Check(f"servicequotas:{operation}", arn)


_JSON: dict[str, Callable[[str, Body, Home], Iterator[Check]]] = {
    "dynamodb": _dynamodb,
    "glue": _glue,
    "logs": _logs,
    "servicequotas": _servicequotas,
}


# -- S3, IAM and STS ---------------------------------------------------------------------------------------------


def _s3(request: Request) -> Iterator[Check]:
    from ministack.core import iam_actions

    bucket, _, key = request.path.lstrip("/").partition("/")
    if request.method == "POST" and "delete" in request.query:
        for arn, _version in iam_actions._s3_batch_delete_targets(bucket, request.body):
            yield Check("s3:DeleteObject", arn)
        return
    action = iam_actions._s3_action(request.method, request.path, dict(request.query)) or request.operation
    yield Check(f"s3:{action}", f"arn:aws:s3:::{bucket}{'/' if key else ''}{key}" if bucket else "*")
    if source := request.headers.get("x-amz-copy-source"):
        yield Check("s3:GetObject", f"arn:aws:s3:::{source.lstrip('/').partition('?')[0]}")


def _query(request: Request, home: Home) -> Iterator[Check]:
    from ministack.core import iam_actions

    if request.operation == "GetCallerIdentity":
        return  # nobody can be refused that (API reference of STS)
    parameters = parse_qs(request.body.decode("latin-1"))
    named = (parameters.get(name, [""])[0] for name in ("PolicySourceArn", "RoleArn"))
    arn = next(filter(None, named), "")
    if not arn:
        arn = iam_actions.extract_resource_arn(
            request.service, request.method, request.path, {}, b"", parameters, home.region, home.account
        )
    yield Check(f"{request.service}:{request.operation}", arn)
    if request.operation == "CreateRole" and "Tags.member.1.Key" in parameters:
        yield Check("iam:TagRole", arn)
