"""Policy documents from the table of grants."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from bulkexec import layout
from bulkexec.iam.grants import GRANTS, Grant, Resource, Role

Document = dict[str, Any]

SESSION_POLICY_CHARACTERS = 2_048
"""Longest ExecutionRoleSessionPolicy that StartJobRun takes (API reference of Glue)."""

VERSION = "2012-10-17"

GLUE = "glue.amazonaws.com"
"""Glue's service principal, in every partition the same."""


def partition_of(region: str) -> str:
    """The partition of a region: aws, aws-us-gov or aws-cn."""
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return "aws-cn" if region.startswith("cn-") else "aws"


@dataclass(frozen=True)
class Scope:
    """What the resources of a policy are called. `tables` are names or ARNs; none: every table of account and region.

    `places` are further S3 locations (bucket or bucket/prefix) where results may go and keys may come from, and
    `target_roles` the ARNs of roles that may be assumed for targets. `region` and `account` left as they are make a
    document to fill in.
    """

    tables: Sequence[str] = ()
    partition: str = "aws"
    region: str = "REGION"
    account: str = "ACCOUNT"
    bucket: str = ""
    control_table: str = "bulkexec-control"
    job: str = "bulkexec"
    job_role: str = "bulkexec-job"
    log_groups: tuple[str, ...] = ("/aws-glue/jobs/output", "/aws-glue/jobs/error")
    places: Sequence[str] = ()
    target_roles: Sequence[str] = ()

    @property
    def bucket_name(self) -> str:
        """The bucket given, or the one that bootstrap makes."""
        return self.bucket or f"bulkexec-{self.account}-{self.region}"

    def _arn(self, service: str, rest: str) -> str:
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{rest}"

    def _object(self, key: str) -> str:
        return f"arn:{self.partition}:s3:::{key}"

    def _tables(self, part: str = "") -> list[str]:
        names = self.tables or ("*",)
        arns = [name if name.startswith("arn:") else self._arn("dynamodb", f"table/{name}") for name in names]
        return [f"{arn}{part}" for arn in arns]

    def arns(self, resource: Resource) -> list[str]:
        """The ARNs of one kind of resource."""
        groups = [self._arn("logs", f"log-group:{name}") for name in self.log_groups]
        return {
            "table": self._tables(),
            "index": self._tables("/index/*"),
            "control table": [self._arn("dynamodb", f"table/{self.control_table}")],
            "bucket": [self._object(name) for name in self._buckets()],
            "script": [self._object(f"{self.bucket_name}/{layout.SCRIPTS}/*")],
            "wheel": [self._object(f"{self.bucket_name}/{layout.WHEELS}/*")],
            "job folder": [self._object(f"{self.bucket_name}/{layout.JOBS}/*")],
            "result": [self._object(f"{self.bucket_name}/{layout.RESULTS}/*"), *map(self._place, self.places)],
            "temporary file": [self._object(f"{self.bucket_name}/{layout.TEMP}/*")],
            "Glue job": [self._arn("glue", f"job/{self.job}")],
            "job role": [f"arn:{self.partition}:iam::{self.account}:role/{self.job_role}"],
            "target role": list(self.target_roles),
            # A policy cannot say "who this is attached to" of a role.
            "principal": [f"arn:{self.partition}:iam::{self.account}:{kind}/*" for kind in ("user", "role")],
            # Both spellings: the service takes the one for some operations and the other for the rest.
            "log group": [*groups, *(f"{group}:*" for group in groups)],
            "log stream": [f"{group}:log-stream:*" for group in groups],
            "anything": ["*"],
        }[resource]

    def folders(self) -> list[str]:
        """All objects that are ours, and all places for results and keys, each of which may be a single object."""
        single = [self._place(place).removesuffix("/*") for place in self.places if "/" in place.removeprefix("s3://")]
        return [self._object(f"{self.bucket_name}/{layout.ROOT}/*"), *map(self._place, self.places), *single]

    def _buckets(self) -> list[str]:
        others = (place.removeprefix("s3://").partition("/")[0] for place in self.places)
        return list(dict.fromkeys((self.bucket_name, *others)))

    def _place(self, place: str) -> str:
        return self._object(f"{place.removeprefix('s3://').strip('/')}/*")


class Names(TypedDict, total=False):
    """What a policy is made for, beside its tables: see `Scope`."""

    partition: str
    region: str
    account: str
    bucket: str
    control_table: str
    places: Sequence[str]
    target_roles: Sequence[str]


def policy(role: Role, *, tables: Sequence[str] = (), **names: Unpack[Names]) -> Document:
    """The policy document of a role; see `Scope` for the rest."""
    return document(grants_of(role), Scope(tables, **names))


def grants_of(role: Role) -> tuple[Grant, ...]:
    """The rows of one role."""
    return tuple(grant for grant in GRANTS if role in grant.roles)


def document(grants: Iterable[Grant], scope: Scope) -> Document:
    """A policy document that allows these grants and nothing else: one statement for each kind of resource there is."""
    statements: dict[tuple[str, str], set[str]] = {}
    for grant in grants:
        for resource in grant.on:
            statements.setdefault((resource, grant.passed_to), set()).add(grant.action)
    return {
        "Version": VERSION,
        "Statement": [
            _statement(resource, passed_to, sorted(actions), scope)  # type: ignore[arg-type]
            for (resource, passed_to), actions in statements.items()
            if scope.arns(resource)  # type: ignore[arg-type]
        ],
    }


def _statement(resource: Resource, passed_to: str, actions: list[str], scope: Scope) -> Document:
    name = "".join(word[0].upper() + word[1:] for word in resource.split())
    condition = {"Condition": {"StringEquals": {"iam:PassedToService": passed_to}}} if passed_to else {}
    sid = f"Pass{name}" if passed_to else name
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": scope.arns(resource), **condition}


def trust_policy(partition: str = "aws") -> Document:
    """Who may take on the job's role: Glue. The same in every partition."""
    if partition not in ("aws", "aws-us-gov", "aws-cn"):
        raise ValueError(f"{partition!r} is not a partition of AWS that has Glue")
    return {
        "Version": VERSION,
        "Statement": [{"Effect": "Allow", "Principal": {"Service": GLUE}, "Action": "sts:AssumeRole"}],
    }


def session_policy(tables: Sequence[str], *, mutates: bool = True, **names: Unpack[Names]) -> str | None:
    """An ExecutionRoleSessionPolicy that narrows the job's role for one run to these tables (ARNs or names).

    A run that changes nothing may only read. A session policy takes away and never gives: only tables, buckets and
    actions are narrowed here, so that it is short, and where in the bucket is left to the role's own policy. None when
    it is longer than Glue takes; then the role's own policy holds alone.
    """
    scope = Scope(tables, **names)
    grants = grants_of("job" if mutates else "job-read-only")
    statements = [
        _allow(_actions(grants, "table", "index"), scope.arns("table") + scope.arns("index")),
        _allow(_actions(grants, "control table"), scope.arns("control table")),
        _allow(_actions(grants, "script", "wheel", "job folder", "result"), scope.folders()),
        _allow(_actions(grants, "bucket"), scope.arns("bucket")),
        _allow(_actions(grants, "log group", "log stream"), ["*"]),
        _allow(_actions(grants, "target role"), scope.arns("target role")),
    ]
    text = json.dumps(
        {"Version": VERSION, "Statement": [each for each in statements if each["Resource"]]}, separators=(",", ":")
    )
    return text if len(text) <= SESSION_POLICY_CHARACTERS else None


def _actions(grants: Iterable[Grant], *resources: Resource) -> list[str]:
    return sorted({grant.action for grant in grants if set(grant.on) & set(resources)})


def _allow(actions: list[str], arns: list[str]) -> Document:
    return {"Effect": "Allow", "Action": actions, "Resource": arns}
