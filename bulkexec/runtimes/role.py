"""The job's role: ours, brought to what it should be, or one that was named, which is looked at and never altered.

IAM is not of a region. So the role is shared by the deployments of all regions, and each has an inline policy of its
own in it; the last that is torn down takes the role along.
"""

import json
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import botocore.exceptions

from bulkexec import errors, iam, layout
from bulkexec.describe import denied
from bulkexec.runtimes.permissions import refused, without_tables
from bulkexec.runtimes.steps import TAGS, Site, Step, looked_at, tagged

ROLE_NAME = "bulkexec-job"
WHAT = "role"
POLICY_CHARACTERS = 10_240
"""Of all inline policies of a role together, white space not counted (IAM quotas)."""


@dataclass(frozen=True)
class Limits:
    """What jobs may touch: tables by name or ARN ("*": all of account and region), further places for results and keys,
    roles (ARNs) to assume for targets in other accounts.

    None leaves what the role has; a new one has all tables, no further place and no such role.
    """

    tables: tuple[str, ...] | None = None
    places: tuple[str, ...] | None = None
    target_roles: tuple[str, ...] | None = None

    def or_else(self, kept: "Limits") -> "Limits":
        """These limits, and those `kept` where there are none."""
        pairs = ((getattr(self, each.name), getattr(kept, each.name)) for each in fields(self))
        return Limits(*(there if given is None else given for given, there in pairs))


NO_LIMITS = Limits()


def policy_name(region: str) -> str:
    """Of the inline policy of one region's deployment."""
    return f"bulkexec-{region}"


def _statements(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = document.get("Statement", [])
    return [found] if isinstance(found, dict) else list(found)


def _listed(one_or_more: Any) -> list[str]:
    """IAM takes a single resource without its list."""
    return [one_or_more] if isinstance(one_or_more, str) else list(one_or_more)


def _limits_of(document: dict[str, Any] | None) -> Limits:
    """The limits that a policy of ours was made with."""
    resources = {each.get("Sid"): _listed(each.get("Resource", [])) for each in _statements(document or {})}
    places = [arn.split(":::", 1)[-1].removesuffix("/*") for arn in resources.get("Result", [])]
    return Limits(
        tuple(resources.get("Table", [])),
        tuple(place for place in places if not place.endswith(f"/{layout.RESULTS}")),
        tuple(resources.get("TargetRole", [])),
    )


def trusts_glue(document: dict[str, Any]) -> bool:
    """Whether Glue may take on a role with this trust policy."""

    def allows(statement: dict[str, Any]) -> bool:
        principals = statement.get("Principal", {})
        services = principals.get("Service", []) if isinstance(principals, dict) else []
        actions = statement.get("Action", [])
        return (
            statement.get("Effect") == "Allow"
            and "glue.amazonaws.com" in ([services] if isinstance(services, str) else services)
            and "sts:AssumeRole" in ([actions] if isinstance(actions, str) else actions)
        )

    return any(allows(statement) for statement in _statements(document))


class JobRole:
    """The role named `name`; None is our own."""

    def __init__(self, site: Site, name: str | None, bucket: str, limits: Limits = NO_LIMITS) -> None:
        self.name = ROLE_NAME if name is None else name.rsplit("/", 1)[-1]
        self.ours = self.name == ROLE_NAME
        self._given, self._site, self._bucket, self._limits = name or "", site, bucket, limits
        self._client = site.client("iam")

    def find(self) -> dict[str, Any] | None:
        """IAM's Role, None when there is none."""
        try:
            found: dict[str, Any] = self._client.get_role(RoleName=self.name)["Role"]
        except self._client.exceptions.NoSuchEntityException:
            return None
        return found

    def arn(self, found: dict[str, Any] | None) -> str:
        """The role's ARN, also of one that is still to be made or may not be looked at."""
        if found is not None:
            return str(found["Arn"])
        if self._given.startswith("arn:"):
            return self._given
        return self._site.arn("iam", f"role/{self._given or self.name}", region="")

    def wanted(self, now: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a job's role has to be allowed; what is not limited anew is limited as in the policy it has `now`."""
        site, limits = self._site, self._limits.or_else(_limits_of(now))
        return iam.policy(
            "job",
            tables=limits.tables or (),
            places=limits.places or (),
            target_roles=limits.target_roles or (),
            partition=site.partition,
            region=site.region,
            account=site.account,
            bucket=self._bucket,
        )

    def policy(self) -> dict[str, Any] | None:
        """The inline policy of this region, None when there is none."""
        try:
            answer = self._client.get_role_policy(RoleName=self.name, PolicyName=policy_name(self._site.region))
        except self._client.exceptions.NoSuchEntityException:
            return None
        document: dict[str, Any] = answer["PolicyDocument"]
        return document

    # -- steps of bootstrap --------------------------------------------------------------------------------------

    def steps(self) -> tuple[str, list[Step]]:
        """The role's ARN, and what there is to do."""
        if not self.ours:
            return self._named()
        found = self.find()
        arn = self.arn(found)
        self._require_ours(found)
        if found is None:
            _require_short(self.wanted())
            return arn, [Step("make", WHAT, self.name, "trusts Glue; permissions: bulkexec iam show job", self._make)]
        steps = self._trust_step(found) + self._policy_step()
        return arn, steps or [Step("keep", WHAT, self.name)]

    def _require_ours(self, found: dict[str, Any] | None) -> None:
        """A role that was named is never altered, and ours is. So one of our name may be named only if we made it."""
        if self._given and found is not None and not tagged(found.get("Tags")):
            raise errors.BadArgument(
                f"role {self.name} has the name of the role that bootstrap makes and alters, but was not made by it",
                fix="leave --role out to let bootstrap alter it, or give --role one of another name",
                state="nothing made",
            )

    def _trust_step(self, found: dict[str, Any]) -> list[Step]:
        if found["AssumeRolePolicyDocument"] == iam.trust_policy(self._site.partition):
            return []
        return [Step("mend", WHAT, self.name, "trust: Glue and nobody else", self._put_trust)]

    def _policy_step(self) -> list[Step]:
        now = self.policy()
        wanted = self.wanted(now)
        if now == wanted:
            return []
        _require_short(wanted)
        put = partial(self._put_policy, wanted)
        added, taken = actions(wanted) - actions(now or {}), actions(now or {}) - actions(wanted)
        words = [f"{sign}{name}" for sign, names in (("-", taken), ("+", added)) for name in sorted(names)]
        listed = " ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")
        return [Step("mend", WHAT, self.name, f"permissions: {listed or _other_resources(now or {}, wanted)}", put)]

    def _make(self) -> None:
        trust = json.dumps(iam.trust_policy(self._site.partition))
        self._client.create_role(RoleName=self.name, AssumeRolePolicyDocument=trust, Tags=TAGS)
        self._put_policy(self.wanted())

    def _put_trust(self) -> None:
        trust = json.dumps(iam.trust_policy(self._site.partition))
        self._client.update_assume_role_policy(RoleName=self.name, PolicyDocument=trust)

    def _put_policy(self, document: dict[str, Any]) -> None:
        self._client.put_role_policy(
            RoleName=self.name, PolicyName=policy_name(self._site.region), PolicyDocument=json.dumps(document)
        )

    def _named(self) -> tuple[str, list[Step]]:
        """A role of somebody else: reported, never altered."""
        try:
            found = self.find()
        except botocore.exceptions.ClientError as error:
            if not denied(error):
                raise
            return self.arn(None), [
                Step("warning", WHAT, self.name, "may not be looked at (iam:GetRole), used as it is")
            ]
        if found is None:
            raise errors.BadArgument(
                f"there is no role {self.name} in account {self._site.account}", fix="check --role"
            )
        arn = self.arn(found)
        return arn, self._problems(found, arn) or [Step("keep", WHAT, self.name, "yours, never altered")]

    def _problems(self, found: dict[str, Any], arn: str) -> list[Step]:
        steps = []
        if not trusts_glue(found["AssumeRolePolicyDocument"]):
            text = "does not trust glue.amazonaws.com (sts:AssumeRole), so no job can run with it"
            steps.append(Step("warning", WHAT, self.name, text))
        return steps + looked_at(WHAT, self.name, lambda: self._lacking(arn))

    def _lacking(self, arn: str) -> list[Step]:
        lacking = refused(self._site, arn, without_tables(self.wanted()))
        if not lacking:
            return []
        return [Step("warning", WHAT, self.name, f"lacks {', '.join(lacking)}; see bulkexec iam show job")]

    # -- steps of teardown ---------------------------------------------------------------------------------------

    def removal(self) -> list[Step]:
        """Our policy goes; the role too, if bootstrap made it and no other region's deployment needs it."""
        found = self.find()
        if found is None:
            return []
        names = self._client.list_role_policies(RoleName=self.name)["PolicyNames"]
        mine = policy_name(self._site.region)
        others = [name for name in names if name.startswith("bulkexec-") and name != mine]
        if tagged(found.get("Tags")) and not others:
            return [Step("remove", WHAT, self.name, "with its policies", lambda: self._remove(names))]
        why = (
            f"used in {', '.join(each.removeprefix('bulkexec-') for each in others)} too"
            if others
            else "not made by bootstrap"
        )
        kept = [Step("keep", WHAT, self.name, why)]
        if mine in names:
            forget = Step("remove", "role policy", f"{self.name}/{mine}", "", lambda: self._forget(mine))
            return [forget, *kept]
        return kept

    def _forget(self, policy: str) -> None:
        self._client.delete_role_policy(RoleName=self.name, PolicyName=policy)

    def _remove(self, inline: list[str]) -> None:
        for name in inline:
            self._forget(name)
        for each in self._client.list_attached_role_policies(RoleName=self.name)["AttachedPolicies"]:
            self._client.detach_role_policy(RoleName=self.name, PolicyArn=each["PolicyArn"])
        self._client.delete_role(RoleName=self.name)


def _require_short(document: dict[str, Any]) -> None:
    characters = len(json.dumps(document, separators=(",", ":")))
    if characters > POLICY_CHARACTERS:
        raise errors.BadArgument(
            f"the permissions of jobs are {characters:,} characters long; IAM takes {POLICY_CHARACTERS:,} in a role",
            fix="name fewer tables with --tables, or many at once: 'orders-*'",
            state="nothing made",
        )


def _other_resources(now: dict[str, Any], wanted: dict[str, Any]) -> str:
    """What is allowed anew (+) and no more (-), of which a few are enough to see what it is about."""
    before, after = (
        dict.fromkeys(arn for each in _statements(document) for arn in _listed(each.get("Resource", [])))
        for document in (now, wanted)
    )
    words = [f"+{arn}" for arn in after if arn not in before] + [f"-{arn}" for arn in before if arn not in after]
    return " ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def actions(document: dict[str, Any]) -> set[str]:
    """All actions that a policy document names."""
    named = [statement.get("Action", []) for statement in _statements(document)]
    return {action for each in named for action in ([each] if isinstance(each, str) else each)}
