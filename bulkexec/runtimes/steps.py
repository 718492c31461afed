"""What bootstrap and teardown will do, a line each, before any of it is done; and the account they do it in."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import boto3
import botocore.exceptions

from bulkexec import errors
from bulkexec.describe import CLIENT_CONFIG, denied, user_errors, why_refused

TAG, TAG_VALUE = "bulkexec", "deployment"
"""What bootstrap has made carries this tag, and teardown removes nothing that does not."""

UNSEEN = "cannot be checked: "
"""How the details of a step begin that stands for what the caller may not look at."""

Action = Literal["make", "mend", "keep", "remove", "warning"]


@dataclass(frozen=True)
class Site:
    """One account and region. `partition` is aws, aws-us-gov or aws-cn."""

    session: boto3.Session
    region: str
    account: str
    partition: str

    def client(self, service: str) -> Any:
        """A client of a service here."""
        return self.session.client(service, region_name=self.region, config=CLIENT_CONFIG)

    def arn(self, service: str, rest: str, region: str | None = None) -> str:
        """The ARN of something here; global services and S3 take an empty `region`."""
        region = self.region if region is None else region
        account = "" if service == "s3" else self.account
        return f"arn:{self.partition}:{service}:{region}:{account}:{rest}"


def open_site(session: boto3.Session, region: str | None = None) -> Site:
    """Where the caller is. Raises `errors.NoCredentials` and the like."""
    with user_errors("find out who the caller is"):
        client = session.client("sts", region_name=region, config=CLIENT_CONFIG)
        arn = client.get_caller_identity()["Arn"]
    return Site(session, client.meta.region_name, arn.split(":")[4], arn.split(":")[1])


@dataclass(frozen=True)
class Step:
    """One line of a plan: `action` on `name`, which is a `what`. `act` does it; None where there is nothing to do.

    A denial of a step that is `optional` is only warned of.
    """

    action: Action
    what: str
    name: str
    details: str = ""
    act: Callable[[], None] | None = field(default=None, compare=False)
    optional: bool = False

    def line(self) -> str:
        """For people."""
        text = f"{self.name}: {self.details}" if self.details else self.name
        return f"{self.action:<8} {self.what:<14} {text}"

    def to_json(self) -> dict[str, str]:
        """For programs."""
        return {"action": self.action, "what": self.what, "name": self.name, "details": self.details}


class LeftAlone(errors.BulkexecError):
    """A step that turned out to be better left undone; a warning, and the rest goes on."""


def changes(steps: Sequence[Step]) -> list[Step]:
    """The steps that do something."""
    return [step for step in steps if step.act is not None]


def carry_out(steps: Sequence[Step], doing: str) -> Iterator[Step]:
    """Do the steps that do something; gives each when it is done, or a warning in place of an optional one denied."""
    for step in changes(steps):
        assert step.act is not None
        try:
            with user_errors(f"{doing}: {step.action} {step.what} {step.name}"):
                step.act()
        except errors.AccessDenied as error:
            if not step.optional:
                raise
            yield replace(step, action="warning", details=f"not done, {error.message}", act=None)
        except LeftAlone as error:
            yield replace(step, action="warning", details=error.message, act=None)
        else:
            yield step


def looked_at(what: str, name: str, look: Callable[[], list[Step]]) -> list[Step]:
    """What `look` finds to do, or, where the caller may not look, a warning: the rest can be done without (C093)."""
    try:
        return look()
    except botocore.exceptions.ClientError as error:
        if not denied(error):
            raise
        return [Step("warning", what, name, f"{UNSEEN}{why_refused(error)}")]


def is_code(error: botocore.exceptions.ClientError, *codes: str) -> bool:
    """Whether a service answered one of these error codes."""
    return error.response["Error"].get("Code", "") in codes


def tagged(tags: Any) -> bool:
    """Whether bootstrap made it, by its tags: a list of Key and Value, or a mapping (Glue)."""
    pairs = tags.items() if isinstance(tags, dict) else [(tag["Key"], tag["Value"]) for tag in tags or ()]
    return (TAG, TAG_VALUE) in set(pairs)


TAGS = [{"Key": TAG, "Value": TAG_VALUE}]
