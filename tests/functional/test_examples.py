"""The examples, each run against the sandbox as its README says."""

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bulkexec import decode_cursor, errors
from bulkexec.declarations import Declarations, declared
from bulkexec.iam.grants import GRANTS
from bulkexec.wire import Retry

EXAMPLES = Path(__file__).parents[2] / "examples"
HANDLER = EXAMPLES / "lambda_loop" / "handler.py"
EXPIRED = "status = 'EXPIRED'"
ROLE = "arn:aws:iam::111122223333:role/loop"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def orders(number: int) -> list[dict[str, Any]]:
    """Every third is EXPIRED."""
    return [
        {"pk": {"S": f"k{each:05d}"}, "status": {"S": "ACTIVE" if each % 3 else "EXPIRED"}, "n": {"N": str(each)}}
        for each in range(number)
    ]


def archived(number: int) -> list[dict[str, Any]]:
    return [{**each, "status": {"S": "ACTIVE" if int(each["n"]["N"]) % 3 else "ARCHIVED"}} for each in orders(number)]


def content(tables: Any, name: str) -> list[dict[str, Any]]:
    return sorted(tables.read(name), key=lambda item: item["pk"]["S"])


class Clock:
    """A Lambda context whose time runs out after so many questions."""

    invoked_function_arn = "arn:aws:lambda:us-east-1:111122223333:function:loop"

    def __init__(self, questions: int) -> None:
        self._left = questions

    def get_remaining_time_in_millis(self) -> int:
        self._left -= 1
        return 900_000 if self._left >= 0 else 1_000


@pytest.fixture
def in_sandbox(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in sandbox.env().items():
        monkeypatch.setenv(name, value)


# -- Lambda ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_sandbox")
def test_the_handler_works_until_its_time_is_short_and_calls_itself_with_the_cursor(
    tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, queue = tables.make(orders(300)), []
    loop = load(HANDLER)
    monkeypatch.setattr(loop, "invoke_again", lambda arn, event: queue.append((arn, json.dumps(event))))
    answer = loop.handler({"table": name, "where": EXPIRED}, Clock(questions=40))
    while queue:
        arn, event = queue.pop()
        assert arn == Clock.invoked_function_arn
        assert decode_cursor(json.loads(event)["cursor"]).segments > 1
        answer = loop.handler(json.loads(event), Clock(questions=40))
    assert (answer["cursor"], answer["calls"] > 1) == (None, True)
    assert {each: answer["totals"][each] for each in ("processed", "skipped", "failed", "conflicts")} == {
        "processed": 100,
        "skipped": 0,
        "failed": 0,
        "conflicts": 0,
    }
    assert content(tables, name) == archived(300)


@pytest.mark.usefixtures("in_sandbox")
def test_a_handler_without_time_for_a_page_does_not_call_itself_for_ever(
    tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, queue = tables.make(orders(3)), []
    loop = load(HANDLER)
    monkeypatch.setattr(loop, "invoke_again", lambda *call: queue.append(call))
    with pytest.raises(loop.NoProgress, match="not a page was read"):
        loop.handler({"table": name, "where": EXPIRED}, Clock(questions=0))
    with pytest.raises(loop.NoProgress, match="were not enough"):
        loop.handler({"table": name, "where": EXPIRED, "calls": loop.MOST_CALLS}, Clock(questions=9))
    assert (queue, content(tables, name)) == ([], orders(3))


@pytest.mark.usefixtures("in_sandbox")
def test_what_was_done_before_the_throttling_is_kept(
    sandbox: Any, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, loop = tables.make(orders(300)), load(HANDLER)
    monkeypatch.setattr(Retry.__init__, "__defaults__", (0.3, *Retry.__init__.__defaults__[1:]))
    event = {"table": name, "where": EXPIRED}
    code = "ProvisionedThroughputExceededException"
    number = sandbox.control.faults.add("error", operation="Scan", code=code, match={"TableName": name}, after=3)
    answer = loop.step(event, Clock(questions=1_000))
    assert (answer["totals"]["read_units"], 0 < answer["totals"]["processed"] < 100) == (1.5, True)
    with pytest.raises(errors.Exhausted):
        loop.step(answer, Clock(questions=1_000))
    sandbox.control.faults.remove(number)
    last = loop.step(answer, Clock(questions=1_000))
    assert (last["cursor"], last["totals"]["processed"], last["totals"]["read_units"]) == (None, 100, 8.0)
    assert content(tables, name) == archived(300)


def test_the_functions_policy_is_what_an_edit_needs() -> None:
    statements = json.loads((EXAMPLES / "lambda_loop" / "policy.json").read_text())["Statement"]
    wanted = {
        grant.action
        for grant in GRANTS
        if "caller" in grant.roles and "edit" in grant.commands and {"table", "index"} & set(grant.on)
    }
    assert set(statements[0]["Action"]) == wanted


@pytest.fixture
def function(sandbox: Any) -> Iterator[Callable[[str], str]]:
    """Deploys the handler to the sandbox's Lambda, which runs it in a process of its own; gives its ARN."""
    client, made = sandbox.client("lambda"), []

    def deploy(entry: str) -> str:
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.write(HANDLER, "handler.py")
        name = f"loop-{entry}"
        function: str = client.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler=f"handler.{entry}",
            Code={"ZipFile": package.getvalue()},
            Timeout=60,
            Environment={
                "Variables": {each: value for each, value in sandbox.env().items() if each.startswith("AWS_")}
            },
        )["FunctionArn"]
        made.append(name)
        return function

    yield deploy
    for name in made:
        client.delete_function(FunctionName=name)


def test_the_loop_as_a_deployed_function(sandbox: Any, tables: Any, function: Callable[[str], str]) -> None:
    name, arn = tables.make(orders(120)), function("handler")
    event = {"table": name, "where": EXPIRED, "max_items": 16}
    sandbox.client("lambda").invoke(FunctionName=arn, InvocationType="Event", Payload=json.dumps(event))
    deadline = time.monotonic() + 60
    while content(tables, name) != archived(120):
        assert time.monotonic() < deadline
        time.sleep(0.1)


# -- Step Functions ----------------------------------------------------------------------------------------------------


def definition(file: str) -> dict[str, Any]:
    return json.loads((EXAMPLES / "step_functions" / file).read_text())


def successors(state: dict[str, Any]) -> set[str]:
    parts = (state, *state.get("Choices", ()), *state.get("Catch", ()))
    named = {part[key] for part in parts for key in ("Next", "Default") if key in part}
    assert named or state.get("End") or state["Type"] in ("Succeed", "Fail")
    return named


@pytest.mark.parametrize("file", ["state_machine.asl.json", "many_tables.asl.json"])
def test_every_state_is_reached_and_leads_to_an_end(file: str) -> None:
    machines = [definition(file)]
    while machines:
        machine = machines.pop()
        states = machine["States"]
        machines += [state["ItemProcessor"] for state in states.values() if "ItemProcessor" in state]
        leads = {name: successors(state) for name, state in states.items()}
        reached, ends = {machine["StartAt"]}, {name for name, after in leads.items() if not after}
        assert ends
        for _ in states:
            reached |= {each for name in reached for each in leads[name]}
            ends |= {name for name, after in leads.items() if after & ends}
        assert reached == set(states) == ends


def test_what_is_tried_again_are_errors_that_the_handler_can_raise() -> None:
    retried = {
        name for rule in definition("state_machine.asl.json")["States"]["Edit"]["Retry"] for name in rule["ErrorEquals"]
    }
    ours = {name for name in retried if "." not in name}
    assert ours == {"Exhausted", "Unreachable"}
    assert all(issubclass(getattr(errors, name), errors.BulkexecError) for name in ours)


def execution(client: Any, arn: str, **request: Any) -> dict[str, Any]:
    started = client.start_execution(stateMachineArn=arn, input=json.dumps(request))["executionArn"]
    deadline = time.monotonic() + 60
    while (answer := client.describe_execution(executionArn=started))["status"] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return dict(answer)


@pytest.fixture
def machine(sandbox: Any) -> Iterator[Callable[..., str]]:
    """Makes a state machine of a file of the example; names in it are filled in as CloudFormation does."""
    client, made = sandbox.client("stepfunctions"), []

    def make(file: str, **substitutions: str) -> str:
        text = re.sub(r"\$\{(\w+)\}", lambda found: substitutions[found[1]], json.dumps(definition(file)))
        answer = client.create_state_machine(name=file.partition(".")[0], definition=text, roleArn=ROLE)
        made.append(answer["stateMachineArn"])
        return str(made[-1])

    yield make
    for arn in made:
        client.delete_state_machine(stateMachineArn=arn)


def test_the_state_machine_calls_until_there_is_no_cursor(
    sandbox: Any, tables: Any, function: Callable[[str], str], machine: Callable[..., str]
) -> None:
    client, step = sandbox.client("stepfunctions"), function("step")
    one = machine("state_machine.asl.json", StepFunctionArn=step)
    name = tables.make(orders(150))
    answer = execution(client, one, table=name, where=EXPIRED, max_items=25)
    output = json.loads(answer["output"])
    assert (answer["status"], output["cursor"], output["totals"]["processed"]) == ("SUCCEEDED", None, 50)
    assert output["calls"] > 1
    assert content(tables, name) == archived(150)
    failed = execution(client, one, table="not-there", where=EXPIRED)
    assert (failed["status"], json.loads(failed["cause"])["table"]) == ("FAILED", "not-there")
    assert "table not-there does not exist" in json.loads(failed["cause"])["error"]["Cause"]
    many = machine("many_tables.asl.json", LoopStateMachineArn=one)
    names = [tables.make(orders(15)) for _ in range(2)]
    events = [{"table": each, "where": EXPIRED, "max_items": 3} for each in names]
    answer = execution(client, many, tables=events)
    assert [each["totals"]["processed"] for each in json.loads(answer["output"])] == [5, 5]
    assert [content(tables, each) for each in names] == [archived(15)] * 2


# -- programs ----------------------------------------------------------------------------------------------------------


def started(sandbox: Any, program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), *arguments]
    return subprocess.Popen(command, env=sandbox.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_driver_stops_on_ctrl_c_with_a_token_and_goes_on(sandbox: Any, tables: Any) -> None:
    name = tables.make(orders(300))
    arguments = ["--table", name, "--where", EXPIRED, "--items", "20", "--write-rate", "200"]
    driver = started(sandbox, "driver.py", *arguments, "--pause", "30")
    assert driver.stdout is not None
    first = driver.stdout.readline()
    driver.send_signal(signal.SIGINT)
    rest, problems = driver.communicate(timeout=60)
    assert (driver.returncode, problems) == (130, "")
    before = int(first.split()[0])
    assert 0 < before < 100
    assert sum(item["status"]["S"] == "ARCHIVED" for item in tables.read(name)) == before
    token = rest.split("--token ")[1].strip()
    driver = started(sandbox, "driver.py", *arguments, "--token", token)
    output, problems = driver.communicate(timeout=60)
    assert (driver.returncode, problems, output.splitlines()[-1]) == (0, "", "finished")
    assert output.splitlines()[-2].startswith(f"{100 - before} processed, 0 skipped, 0 failed, 0 conflicts")
    assert content(tables, name) == archived(300)


@pytest.mark.usefixtures("in_sandbox")
def test_the_driver_says_why_it_ends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    driver = load(EXAMPLES / "driver.py")
    monkeypatch.setattr(sys, "argv", ["driver.py", "--table", "not-there", "--where", EXPIRED])
    assert driver.loop(driver.parse(), threading.Event()) == ""
    assert capsys.readouterr().out.startswith("error BX101: ")


def test_the_state_row_is_where_it_goes_on_after_a_kill(sandbox: Any, tables: Any) -> None:
    name, states = tables.make(orders(300)), tables.make(recovery=False)
    arguments = [
        "--table",
        name,
        "--where",
        EXPIRED,
        "--state-table",
        states,
        "--name",
        "a",
        "--items",
        "15",
    ]
    first = started(sandbox, "state_row.py", *arguments, "--write-rate", "30")
    assert first.stdout is not None
    first.stdout.readline()
    first.stdout.readline()
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    (row,) = tables.read(states)
    assert row["finished"] == {"BOOL": False}
    assert decode_cursor(row["cursor"]["S"]).segments > 1
    calls, processed = int(row["calls"]["N"]), int(row["processed"]["N"])
    second = started(sandbox, "state_row.py", *arguments)
    output, problems = second.communicate(timeout=60)
    assert (second.returncode, problems) == (0, "")
    assert output.startswith(f"call {calls + 1}: ")
    assert content(tables, name) == archived(300)
    (row,) = tables.read(states)
    assert (row["finished"], row["cursor"]) == ({"BOOL": True}, {"NULL": True})
    # No page was counted twice, and none but those of the call that was killed is missing among the writes.
    assert row["scanned"] == {"N": "300"}
    assert processed < int(row["processed"]["N"]) <= 100
    other = started(sandbox, "state_row.py", *arguments[:2], "--where", "status = 'ACTIVE'", *arguments[4:])
    _, problems = other.communicate(timeout=60)
    assert (other.returncode, problems) == (1, "the row is of another table or condition; take another --name\n")
    assert content(tables, name) == archived(300)


# -- declarations ------------------------------------------------------------------------------------------------------


def test_the_declarations_name_all_that_can_be_declared() -> None:
    path = EXAMPLES / "bulkexec.toml"
    sections = tomllib.loads(path.read_text())["tables"]
    assert set(sections["orders"]) == {each.name for each in fields(Declarations)}
    assert {name: declared(name, path).created_at_field for name in sections} == {
        "orders": "-created",
        "events.2026": "created_at",
    }
