"""The generated policies are exactly what is needed: nothing is refused, nothing is left over, nothing can be missing.

One sandbox enforces IAM. An administrator with the policy `bootstrap`, a caller with `caller` and the job's role live a
whole life in it; every call is recorded, with who made it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from bulkexec import iam
from bulkexec.sandbox.process import Sandbox

REGION, ACCOUNT = "us-east-1", "111122223333"
HERE: dict[str, Any] = {"region": REGION, "account": ACCOUNT}
BUCKET, JOB_ROLE = f"bulkexec-{ACCOUNT}-{REGION}", "bulkexec-job"
KEYS, FOUND = "bulkexec/results/keys/0.json", "bulkexec/results/found"
Call = tuple[str, str, bool]
"""Action, resource, whether it was allowed."""

READS = {
    "count one": ["count", "--where", "pk = 'k01'"],
    "count in an index": ["count", "--index", "by-state", "--where", "pk <> 'k01'"],
    "count by keys": ["count", "--keys-from", f"s3://{BUCKET}/{KEYS}"],
    "find by an index": [
        "find",
        "--index",
        "by-state",
        "--where",
        "state = 'OLD'",
        "--results",
        f"s3://{BUCKET}/{FOUND}",
    ],
}
WRITES = {
    "edit": ["edit", "--set", "seen=1", "--where", "n < 3"],
    "edit one by one": ["edit", "--set", "seen=2", "--where", "n < 3", "--strategy", "sequential"],
    "copy the new": ["copy", "--to", "archive", "--where", "n < 5", "--if-not-exists"],
    "copy over": ["copy", "--to", "archive", "--where", "n < 5", "--if-exists"],
    "move": ["move", "--to", "archive", "--where", "n = 5"],
    "delete one by one": ["delete", "--where", "n = 7", "--strategy", "sequential"],
}
IN_GLUE = ["move", "--to", "archive", "--where", "n = 40", "--runtime", "glue"]
STEPS: dict[str, list[str]] = {**READS, **WRITES, "in Glue": IN_GLUE, "steady": ["count", "--where", "n > 3"]}

RARE = {
    ("caller", "glue:BatchStopJobRun", "Glue job"): "a second Ctrl-C: tests/functional/test_interrupts.py",
    (
        "caller",
        "servicequotas:GetAWSDefaultServiceQuota",
        "anything",
    ): "a quota that was never raised: test_ceilings.py",
    ("caller", "sts:AssumeRole", "target role"): "a role for the target: below",
    ("job", "sts:AssumeRole", "target role"): "the same",
    ("job-read-only", "sts:AssumeRole", "target role"): "the same",
    ("caller", "s3:PutObject", "wheel"): "a command of another package: tests/functional/test_plugin.py",
    ("job", "logs:CreateLogGroup", "log group"): "log groups that bootstrap was not allowed to make",
    ("job-read-only", "logs:CreateLogGroup", "log group"): "the same",
    ("bootstrap", "s3:DeleteBucketPolicy", "bucket"): "teardown of a bucket that bootstrap did not make",
}
"""What this life does not come across, and when it is needed."""


@dataclass(frozen=True)
class Outcome:
    code: int
    text: str


@dataclass(frozen=True)
class Principal:
    """Who runs a command line. `name` is the beginning of its ARN's last part."""

    name: str
    environment: dict[str, str]

    def run(self, *arguments: str) -> Outcome:
        command = [sys.executable, "-m", "bulkexec", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=180, check=False)
        return Outcome(done.returncode, done.stdout + done.stderr)


@dataclass
class Account:
    """One enforced account. `steps` are what was done as which role, and the calls that its principal made."""

    sandbox: Sandbox
    directory: Path
    steps: dict[tuple[str, str], tuple[Outcome, set[Call]]] = field(default_factory=dict)

    def user(self, name: str, document: dict[str, Any]) -> Principal:
        """A new user who is allowed this and nothing else."""
        client = self.sandbox.client("iam")
        client.create_user(UserName=name)
        made = client.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))["Policy"]["Arn"]
        client.attach_user_policy(UserName=name, PolicyArn=made)
        return self._principal(f"user/{name}", client.create_access_key(UserName=name)["AccessKey"])

    def role(self, name: str, document: dict[str, Any]) -> Principal:
        """A role with this policy, in this process instead of Glue."""
        client = self.sandbox.client("iam")
        arn = client.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(iam.trust_policy()))["Role"]["Arn"]
        client.put_role_policy(RoleName=name, PolicyName="job", PolicyDocument=json.dumps(document))
        answer = self.sandbox.client("sts").assume_role(RoleArn=arn, RoleSessionName="local")
        return self._principal(f"assumed-role/{name}/", answer["Credentials"])

    def root(self) -> Principal:
        return Principal("root", self.sandbox.env())

    def _principal(self, name: str, key: dict[str, Any]) -> Principal:
        variables = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        if "SessionToken" in key:
            variables["AWS_SESSION_TOKEN"] = key["SessionToken"]
        state = {"BULKEXEC_STATE_DIR": str(self.directory / name.replace("/", "-"))}
        return Principal(name, self.sandbox.env() | variables | state)

    def calls(self, name: str) -> dict[Call, int]:
        """How often whoever's name begins so has asked for what."""
        return {
            (each["action"], each["resource"], each["allowed"]): each["count"]
            for each in self.sandbox.control.calls()
            if each["principal"].split(":", 5)[-1].startswith(name)
        }

    def do(self, role: str, step: str, who: Principal, *arguments: str) -> Outcome:
        """Run one step and keep its calls."""
        before, outcome = self.calls(who.name), who.run(*arguments)
        calls = {call for call, count in self.calls(who.name).items() if count > before.get(call, 0)}
        self.steps[role, step] = outcome, calls
        return outcome

    def made(self, role: str) -> set[Call]:
        """All calls that were made as a role."""
        return set().union(*(calls for (who, _), (_, calls) in self.steps.items() if who == role))

    def on_tables(self, step: str, lane: str) -> list[str]:
        """A step's command line on the lane's own tables, which are as they were in the beginning."""
        client = self.sandbox.client("dynamodb")
        refill(client, f"{lane}-orders", range(50))
        refill(client, f"{lane}-archive", range(3))
        verb, *rest = STEPS[step]
        rest = [f"{lane}-archive" if word == "archive" else word for word in rest]
        table = "steady" if step == "steady" else f"{lane}-orders"
        return [verb, "--table", table, *rest, *(["--yes"] if verb not in ("count", "find") else [])]


def refill(client: Any, table: str, numbers: range) -> None:
    for each in client.scan(TableName=table)["Items"]:
        client.delete_item(TableName=table, Key={"pk": each["pk"]})
    for number in numbers:
        state = "OLD" if number % 3 == 0 else "NEW"
        item = {"pk": {"S": f"k{number:02d}"}, "n": {"N": str(number)}, "state": {"S": state}}
        client.put_item(TableName=table, Item=item)


def make_table(client: Any, name: str, capacity: dict[str, Any]) -> None:
    index = {
        "IndexName": "by-state",
        "KeySchema": [{"AttributeName": "state", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
        **capacity,
    }
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "state")],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[index],
        **(capacity or {"BillingMode": "PAY_PER_REQUEST"}),
    )
    on = {"PointInTimeRecoveryEnabled": True}
    client.update_continuous_backups(TableName=name, PointInTimeRecoverySpecification=on)


LANES = ("local", "glue", "job")


@contextmanager
def enforced(directory: Path) -> Iterator[Account]:
    with Sandbox(iam="enforce") as sandbox:
        client = sandbox.client("dynamodb")
        for name in (f"{lane}-{table}" for lane in LANES for table in ("orders", "archive")):
            make_table(client, name, {})
        make_table(client, "steady", {"ProvisionedThroughput": {"ReadCapacityUnits": 50, "WriteCapacityUnits": 50}})
        yield Account(sandbox, directory)


# -- the administrator's steps: what happens before, and the command -----------------------------------------------


def drift(account: Account) -> None:
    """Somebody else's hand on what bootstrap made."""
    nobody = {**iam.trust_policy(), "Statement": []}
    account.sandbox.client("iam").update_assume_role_policy(RoleName=JOB_ROLE, PolicyDocument=json.dumps(nobody))


def leftovers(account: Account) -> None:
    """A role with another policy, and files of every kind."""
    policy = "arn:aws:iam::aws:policy/ReadOnlyAccess"
    account.sandbox.client("iam").attach_role_policy(RoleName=JOB_ROLE, PolicyArn=policy)
    for key in ("bulkexec/temp/x", "bulkexec/jobs/00000000/plan.json", KEYS):
        account.sandbox.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"")


def emptied(account: Account) -> None:
    s3 = account.sandbox.client("s3")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for each in page.get("Contents", []):
            s3.delete_object(Bucket=BUCKET, Key=each["Key"])


ADMINISTRATION: dict[str, tuple[Callable[[Account], None], list[str]]] = {
    "bootstrap": (lambda _: None, ["bootstrap", "--yes"]),
    "mend": (drift, ["bootstrap", "--yes", "--workers", "3"]),
    "teardown": (leftovers, ["teardown", "--yes"]),
    "teardown again": (emptied, ["teardown", "--yes"]),
}


def administer(account: Account, who: Principal, *steps: str) -> None:
    for step in steps:
        before, command = ADMINISTRATION[step]
        before(account)
        account.do("bootstrap", step, who, *command)


def put_keys(account: Account) -> None:
    line = b'{"Keys":{"pk":{"S":"k20"}}}\n'
    account.sandbox.client("s3").put_object(Bucket=BUCKET, Key=KEYS, Body=line)


# -- the life ------------------------------------------------------------------------------------------------------


def live_locally(account: Account) -> None:
    caller = account.user("caller", iam.policy("caller", **HERE))
    for step in ("steady", *READS, *WRITES):
        account.do("caller", step, caller, *account.on_tables(step, "local"))
    account.do("caller", "doctor", caller, "doctor", "--table", "local-orders")


def live_in_glue(account: Account) -> None:
    """The answer to StartJobRun is lost, so the run that it started has to be looked for."""
    account.sandbox.control.faults.add("lost_answer", operation="StartJobRun", count=1)
    caller = account.user("glue-caller", iam.policy("caller", **HERE))
    outcome = account.do("caller", "in Glue", caller, *account.on_tables("in Glue", "glue"))
    account.steps["Glue", "in Glue"] = outcome, set(account.calls(f"assumed-role/{JOB_ROLE}/"))
    account.do("caller", "attach", caller, "attach", outcome.text.partition("\njob ")[2][:8])


def live_as_the_job(account: Account) -> None:
    local = [step for step in (*READS, *WRITES) if step != "move"]
    for role, steps in (("job", local), ("job-read-only", list(READS))):
        as_role = account.role(role, iam.policy(role, **HERE))  # type: ignore[arg-type]
        for step in steps:
            account.do(role, step, as_role, *account.on_tables(step, "job"))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An account in which everything was done once, and which was then set up anew."""
    with enforced(tmp_path_factory.mktemp("life")) as account:
        administrator = account.user("administrator", iam.policy("bootstrap", **HERE))
        administer(account, administrator, "bootstrap", "mend")
        put_keys(account)
        with ThreadPoolExecutor(3) as lanes:
            for done in [lanes.submit(live, account) for live in (live_in_glue, live_locally, live_as_the_job)]:
                done.result()
        administer(account, administrator, "teardown", "teardown again")
        account.root().run("bootstrap", "--yes")
        put_keys(account)
        yield account


def test_every_step_ends_well(life: Account) -> None:
    ended = {step: outcome for step, (outcome, _) in life.steps.items() if outcome.code}
    assert not ended, "\n".join(f"{step}: {outcome.code} {outcome.text[-800:]}" for step, outcome in ended.items())


@pytest.mark.parametrize("role", ["bootstrap", "caller", "Glue"])
def test_nothing_is_refused(life: Account, role: str) -> None:
    """The job's role in a caller's place is refused what only callers need; in Glue it is not."""
    assert life.made(role)
    assert not {call for call in life.made(role) if not call[2]}


# case C092 C094 C163
@pytest.mark.parametrize("role", iam.ROLES)
def test_every_call_is_in_the_policy_and_every_row_of_the_policy_is_needed(life: Account, role: iam.Role) -> None:
    scope = iam.Scope(**HERE)
    rows = {(grant.action, on, arn) for grant in iam.grants_of(role) for on in grant.on for arn in scope.arns(on)}

    def granted(calls: set[Call]) -> dict[Call, set[tuple[str, str]]]:
        return {call: {row[:2] for row in rows if row[0] == call[0] and fnmatchcase(call[1], row[2])} for call in calls}

    own = granted({call for call in life.made(role) if call[2]})
    assert not [call for call, found in own.items() if not found]
    # What Glue does with the job's role it does with the read-only one as well.
    in_glue = granted(life.made("Glue")) if role.startswith("job") else {}
    used = set().union(*own.values(), *in_glue.values())
    idle = {row[:2] for row in rows} - used - {row[1:] for row in RARE if row[0] == role}
    assert not idle


# -- a role for the target -----------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_targets_role_is_assumed_by_those_who_are_allowed_to(tmp_path: Path) -> None:
    """An enforced sandbox is one account, so the role is of this one; that of another is assumed in the same way."""
    role = f"arn:aws:iam::{ACCOUNT}:role/target"
    with enforced(tmp_path) as account:
        trusted = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
        document = json.dumps(iam.policy("job", tables=["glue-archive"], **HERE))
        client = account.sandbox.client("iam")
        client.create_role(RoleName="target", AssumeRolePolicyDocument=json.dumps({"Statement": [trusted]}))
        client.put_role_policy(RoleName="target", PolicyName="target", PolicyDocument=document)
        administrator = account.user("administrator", iam.policy("bootstrap", **HERE))
        administrator.run("bootstrap", "--yes")
        copy = [*account.on_tables("copy the new", "glue"), "--target-role", role, "--runtime", "glue"]
        says_so(account.user("other", iam.policy("caller", **HERE)).run(*copy), "sts:AssumeRole")
        caller = account.user("caller", iam.policy("caller", target_roles=[role], **HERE))
        says_so(caller.run(*copy), "sts:AssumeRole")  # the caller may, the job's role may not
        assert administrator.run("bootstrap", "--yes", "--target-role", role).code == 0
        again = administrator.run("bootstrap", "--yes", "--workers", "3")
        assert "permissions" not in again.text, "what was given before is kept"
        done = caller.run(*copy)
        assert done.code == 0, done.text


# -- one action taken away -----------------------------------------------------------------------------------------


def without(role: iam.Role, action: str) -> dict[str, Any]:
    """A role's policy, one action poorer."""
    return iam.document([grant for grant in iam.grants_of(role) if grant.action != action], iam.Scope(**HERE))


def first_step(life: Account, role: str, action: str) -> str:
    """The first step that needed an action."""
    return next(
        step for (who, step), (_, calls) in life.steps.items() if who == role and (action in {c[0] for c in calls})
    )


def says_so(outcome: Outcome, action: str) -> None:
    """One sentence names the action. Where nothing depends on it the command goes on, else it ends with an error."""
    lines = [line for line in outcome.text.splitlines() if action in line]
    assert lines, f"{action} is not named:\n{outcome.text[-1500:]}"
    assert "Traceback" not in outcome.text
    if outcome.code:
        assert any(line.startswith(("error BX", "  failed ")) for line in outcome.text.splitlines())


def cases(role: iam.Role, *few: str) -> list[Any]:
    """Every action of a role; all but a few in the long campaign only."""
    actions = dict.fromkeys(grant.action for grant in iam.grants_of(role))
    rare = {row[1] for row in RARE if row[0] == role}
    return [
        pytest.param(action, marks=() if action in few else pytest.mark.soak, id=action)
        for action in actions
        if action not in rare
    ]


@pytest.mark.parametrize("action", cases("caller", "dynamodb:Scan", "dynamodb:PartiQLDelete", "pricing:GetProducts"))
def test_a_caller_without_one_action_is_told_so(life: Account, action: str) -> None:
    step = first_step(life, "caller", action)
    unlock(life)
    if action == "glue:GetJobRuns":
        life.sandbox.control.faults.add("lost_answer", operation="StartJobRun", count=1)
    poorer = life.user(f"without-{action.replace(':', '-')}", without("caller", action))
    arguments = ["doctor", "--table", "local-orders"] if step == "doctor" else life.on_tables(step, "local")
    says_so(poorer.run(*arguments), action)


@pytest.mark.parametrize("action", cases("bootstrap", "iam:PassRole", "s3:PutBucketPolicy"))
def test_an_administrator_without_one_action_is_told_so(life: Account, tmp_path: Path, action: str) -> None:
    last = first_step(life, "bootstrap", action)
    with enforced(tmp_path) as fresh:
        poorer = fresh.user("poorer", without("bootstrap", action))
        for step, (before, command) in ADMINISTRATION.items():
            before(fresh)
            outcome = (poorer if step == last else fresh.root()).run(*command)
            if step == last:
                break
        says_so(outcome, action)


def unlock(account: Account) -> None:
    """A job that may not give its locks back holds them for a while."""
    client = account.sandbox.client("dynamodb")
    for each in client.scan(TableName="bulkexec-control")["Items"]:
        client.delete_item(TableName="bulkexec-control", Key={key: each[key] for key in ("pk", "sk")})


@pytest.mark.soak
@pytest.mark.parametrize("action", cases("job"))
def test_a_job_without_one_action_is_told_so(life: Account, action: str) -> None:
    """In Glue where the action is needed there, else with the job's role in this process."""
    unlock(life)
    if action not in {call[0] for call in life.made("Glue")}:
        step, name = first_step(life, "job", action), f"job-without-{action.replace(':', '-')}"
        says_so(life.role(name, without("job", action)).run(*life.on_tables(step, "job")), action)
        return
    client, whole = life.sandbox.client("iam"), json.dumps(iam.policy("job", **HERE))
    put = {"RoleName": JOB_ROLE, "PolicyName": f"bulkexec-{REGION}"}
    client.put_role_policy(**put, PolicyDocument=json.dumps(without("job", action)))
    try:
        caller = life.user(f"calls-without-{action.replace(':', '-')}", iam.policy("caller", **HERE))
        says_so(caller.run(*life.on_tables("in Glue", "glue")), action)
    finally:
        client.put_role_policy(**put, PolicyDocument=whole)
