"""The bucket: who may reach it and how, what is deleted from it by itself, what of it is ours."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import botocore.exceptions

from bulkexec import errors, layout
from bulkexec.runtimes.steps import TAGS, Site, Step, is_code, looked_at, tagged

BLOCKED = dict.fromkeys(("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True)
TLS_ONLY = "BulkexecTlsOnly"
TEMP_DAYS, JOB_DAYS = 7, 90
RULES = (
    {
        "ID": "bulkexec-temp",
        "Status": "Enabled",
        "Filter": {"Prefix": f"{layout.TEMP}/"},
        "Expiration": {"Days": TEMP_DAYS},
    },
    {
        "ID": "bulkexec-jobs",
        "Status": "Enabled",
        "Filter": {"Prefix": f"{layout.JOBS}/"},
        "Expiration": {"Days": JOB_DAYS},
    },
    {
        "ID": "bulkexec-uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": f"{layout.ROOT}/"},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": TEMP_DAYS},
    },
)
"""Results are kept. Records of jobs live 30 days in the control table; their files here, reports among them, longer."""

WHAT = "bucket"


class Bucket:
    """A bucket that is there, or is to be made."""

    def __init__(self, site: Site, name: str) -> None:
        self.name, self._site = name, site
        self._client = site.client("s3")

    # -- is it there ---------------------------------------------------------------------------------------------

    def exists(self, named: bool = True) -> bool:
        """Raises `errors.Refused` for one that is of no use: in another region, or not the caller's to use.

        Names of buckets can be guessed and are the whole world's. One that nobody has named must be of this account:
        in somebody else's our code and results would be in their hands.
        """
        owner = {} if named else {"ExpectedBucketOwner": self._site.account}
        try:
            answer = self._client.head_bucket(Bucket=self.name, **owner)
        except botocore.exceptions.ClientError as error:
            if is_code(error, "404", "NoSuchBucket"):
                return False
            if is_code(error, "403", "AccessDenied"):
                raise _not_ours(self.name) from error
            if is_code(error, "301", "PermanentRedirect"):
                raise _elsewhere(self.name, "another region", self._site.region) from error
            raise
        region = answer.get("BucketRegion") or self._site.region
        if region != self._site.region:
            raise _elsewhere(self.name, region, self._site.region)
        return True

    def made_by_us(self) -> bool:
        """Whether bootstrap made it."""
        return tagged(self._absent_as({}, self._client.get_bucket_tagging).get("TagSet"))

    def make(self) -> None:
        """Make it, tagged first: what has no tag is never removed."""
        placed: dict[str, Any] = {}
        if self._site.region != "us-east-1":
            placed["CreateBucketConfiguration"] = {"LocationConstraint": self._site.region}
        self._client.create_bucket(Bucket=self.name, **placed)
        self._client.put_bucket_tagging(Bucket=self.name, Tagging={"TagSet": TAGS})
        self.block()
        self.encrypt()
        self.require_tls()
        self.add_rules()

    def _absent_as(self, default: dict[str, Any], ask: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        """A setting's answer, or `default` where the bucket has no such setting."""
        try:
            return ask(Bucket=self.name)
        except botocore.exceptions.ClientError as error:
            if is_code(error, *_ABSENT):
                return default
            raise

    # -- settings ------------------------------------------------------------------------------------------------

    def blocked(self) -> bool:
        """Whether nothing in it can be made public."""
        answer = self._absent_as({}, self._client.get_public_access_block)
        return bool(answer.get("PublicAccessBlockConfiguration", {}) == BLOCKED)

    def block(self) -> None:
        """Keep everything in it from being made public."""
        self._client.put_public_access_block(Bucket=self.name, PublicAccessBlockConfiguration=BLOCKED)

    def encryption(self) -> str:
        """The default encryption: "AES256", "aws:kms", or empty."""
        answer = self._absent_as({}, self._client.get_bucket_encryption)
        rules = answer.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
        return next((r["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] for r in rules), "")

    def encrypt(self) -> None:
        """Encrypt by default, with S3's own keys."""
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        self._client.put_bucket_encryption(Bucket=self.name, ServerSideEncryptionConfiguration={"Rules": [rule]})

    def _policy(self) -> dict[str, Any]:
        text = self._absent_as({}, self._client.get_bucket_policy).get("Policy")
        document: dict[str, Any] = json.loads(text) if text else {"Version": "2012-10-17", "Statement": []}
        if isinstance(document["Statement"], dict):  # IAM takes one statement without its list
            document["Statement"] = [document["Statement"]]
        return document

    def tls_only(self) -> bool:
        """Whether plain HTTP is refused, by our statement or by another that says the same."""
        return any(_refuses_plain(statement, self._arns()) for statement in self._policy()["Statement"])

    def require_tls(self) -> None:
        """Refuse plain HTTP. Other statements stay."""
        document = self._policy()
        kept = [statement for statement in document["Statement"] if statement.get("Sid") != TLS_ONLY]
        self._put_policy({**document, "Statement": [*kept, _tls_statement(self._arns())]})

    def forget_tls(self) -> None:
        """Take our statement out again."""
        document = self._policy()
        kept = [statement for statement in document["Statement"] if statement.get("Sid") != TLS_ONLY]
        if kept:
            self._put_policy({**document, "Statement": kept})
        else:
            self._client.delete_bucket_policy(Bucket=self.name)

    def has_our_statement(self) -> bool:
        """Whether bootstrap has put its statement into the bucket's policy."""
        return any(statement.get("Sid") == TLS_ONLY for statement in self._policy()["Statement"])

    def _put_policy(self, document: dict[str, Any]) -> None:
        self._client.put_bucket_policy(Bucket=self.name, Policy=json.dumps(document))

    def _arns(self) -> list[str]:
        arn = self._site.arn("s3", self.name, region="")
        return [arn, f"{arn}/*"]

    def _rules(self) -> list[dict[str, Any]]:
        answer = self._absent_as({}, self._client.get_bucket_lifecycle_configuration)
        return list(answer.get("Rules", []))

    def missing_rules(self) -> list[str]:
        """The ids of our lifecycle rules that are not there, or not as they should be."""
        there = {rule.get("ID"): rule for rule in self._rules()}
        return [str(rule["ID"]) for rule in RULES if not _same_rule(there.get(rule["ID"]), rule)]

    def has_our_rules(self) -> bool:
        """Whether any rule is ours."""
        return any(rule.get("ID") in _OURS for rule in self._rules())

    def add_rules(self) -> None:
        """Put our rules in. S3 takes only the whole list, so every other rule is given back as it was."""
        self._put_rules([*self._foreign_rules(), *RULES])

    def forget_rules(self) -> None:
        """Take our rules out again."""
        foreign = self._foreign_rules()
        if foreign:
            self._put_rules(foreign)
        else:
            self._client.delete_bucket_lifecycle(Bucket=self.name)

    def _foreign_rules(self) -> list[dict[str, Any]]:
        return [_as_filter(rule) for rule in self._rules() if rule.get("ID") not in _OURS]

    def _put_rules(self, rules: list[dict[str, Any]]) -> None:
        now = self._absent_as({}, self._client.get_bucket_lifecycle_configuration)
        # Left out, it would be reset to S3's default, and with it what the others' rules move.
        kept = {name: now[name] for name in ("TransitionDefaultMinimumObjectSize",) if name in now}
        self._client.put_bucket_lifecycle_configuration(
            Bucket=self.name, LifecycleConfiguration={"Rules": rules}, **kept
        )

    # -- steps of bootstrap --------------------------------------------------------------------------------------

    def steps(self, named: bool) -> list[Step]:
        """What there is to do. A bucket that was `named` is somebody's: what is not ours in it is only reported."""
        if not self.exists(named):
            if named:
                raise errors.BadArgument(
                    f"there is no bucket {self.name} in {self._site.region}", fix="make it, or leave --bucket out"
                )
            details = "TLS only, no public access, encrypted; temporary files go after 7 days, jobs' after 90"
            return [Step("make", WHAT, self.name, details, self.make)]
        looks = (self._public_step, self._encryption_step, self._tls_step, self._rules_step)
        found = [step for look in looks for step in looked_at(WHAT, self.name, partial(look, named))]
        return found or [Step("keep", WHAT, self.name)]

    def _public_step(self, named: bool) -> list[Step]:
        if self.blocked():
            return []
        if named:
            return [Step("warning", WHAT, self.name, "public access is not blocked, left as it is")]
        return [Step("mend", WHAT, self.name, "block public access", self.block)]

    def _encryption_step(self, named: bool) -> list[Step]:
        found = self.encryption()
        if found.startswith("aws:kms"):
            return [Step("warning", WHAT, self.name, "encrypted with a KMS key: caller and job's role need it too")]
        if found or named:
            return []
        return [Step("mend", WHAT, self.name, "encrypt by default", self.encrypt)]

    def _tls_step(self, named: bool) -> list[Step]:
        if self.tls_only():
            return []
        return [Step("mend", WHAT, self.name, "refuse plain HTTP", self.require_tls, optional=named)]

    def _rules_step(self, named: bool) -> list[Step]:
        missing = self.missing_rules()
        if not missing:
            return []
        details = f"lifecycle rules {', '.join(missing)}"
        return [Step("mend", WHAT, self.name, details, self.add_rules, optional=named)]


_OURS = {rule["ID"] for rule in RULES}
_ABSENT = (
    "NoSuchTagSet",
    "NoSuchPublicAccessBlockConfiguration",
    "ServerSideEncryptionConfigurationNotFoundError",
    "NoSuchBucketPolicy",
    "NoSuchLifecycleConfiguration",
)
"""How S3 says that a bucket has no such setting."""


def _tls_statement(arns: list[str]) -> dict[str, Any]:
    return {
        "Sid": TLS_ONLY,
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": arns,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def _refuses_plain(statement: dict[str, Any], arns: list[str]) -> bool:
    wanted = _tls_statement(arns)
    principal, resources, actions = statement.get("Principal"), statement.get("Resource", []), statement.get("Action")
    return (
        statement.get("Effect") == "Deny"
        and principal in ("*", {"AWS": "*"}, {"AWS": ["*"]})
        and actions in ("s3:*", ["s3:*"], "*", ["*"])
        and (resources == "*" or set(arns) <= set([resources] if isinstance(resources, str) else resources))
        and str(statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")).lower()
        == wanted["Condition"]["Bool"]["aws:SecureTransport"]
        and list(statement["Condition"]) == ["Bool"]
    )


def _as_filter(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with its prefix where ours have it: S3 refuses a list that has the old place and the new one."""
    rest = {name: value for name, value in rule.items() if name != "Prefix"}
    return {**rest, "Filter": {"Prefix": rule["Prefix"]}} if "Prefix" in rule else rule


def _same_rule(there: dict[str, Any] | None, wanted: dict[str, Any]) -> bool:
    """S3 gives back more than it was given (defaults), and the prefix in its old place on old rules."""
    return there is not None and all(there.get(name) == value for name, value in wanted.items())


def _not_ours(name: str) -> errors.Refused:
    return errors.BadArgument(
        f"bucket {name} exists and may not be used by this caller, or belongs to another account",
        fix="name another with --bucket; for this one s3:ListBucket is needed",
        state="nothing made",
    )


def _elsewhere(name: str, region: str, wanted: str) -> errors.Refused:
    return errors.BadArgument(
        f"bucket {name} is in {region}, and the job will be in {wanted}", fix="name a bucket in the job's region"
    )
