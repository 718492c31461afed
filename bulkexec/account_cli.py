"""`bootstrap`, `doctor` and `teardown`: the commands about an account rather than about a table."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from bulkexec import errors
from bulkexec.cli_options import names, places, role_arns

if TYPE_CHECKING:
    from bulkexec.console import Terminal
    from bulkexec.doctor import Finding
    from bulkexec.runtimes.steps import Site, Step

AsCaller = Callable[["Terminal", Callable[[Any], Any], str | None, str | None], Any]
"""(terminal, work, profile, region): does the work as that caller; a user's error ends the process with its code."""

NAMES = ("bootstrap", "doctor", "teardown")


def command(name: str, as_caller: AsCaller) -> click.Command:
    """One of `NAMES`."""
    return {"bootstrap": _bootstrap, "doctor": _doctor, "teardown": _teardown}[name](as_caller)


def _common() -> list[click.Parameter]:
    return [
        click.Option(["--profile"], help="AWS profile."),
        click.Option(["--region"], help="AWS region."),
        click.Option(
            ["--output"],
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="json: one JSON document on stdout, all text on stderr.",
        ),
    ]


_YES = "Do not ask. Needed without a terminal."


def _wishes() -> list[click.Parameter]:
    from bulkexec.cost import DPUS
    from bulkexec.runtimes.job_definition import GLUE_VERSIONS

    return [
        click.Option(["--bucket"], help="An existing bucket; one is made if left out."),
        click.Option(["--role"], help="An existing role for the job, by name or ARN; it is never altered."),
        click.Option(["--glue-version"], type=click.Choice(GLUE_VERSIONS), help="Of the job; 5.1 for a new one."),
        click.Option(
            ["--worker-type"],
            type=click.Choice([kind for kind in DPUS if kind != "G.025X"]),
            metavar="TYPE",
            help="Glue worker type; G.1X for a new job.",
        ),
        click.Option(["--workers"], type=click.IntRange(2), help="Workers, the driver's included; 2 for a new job."),
        click.Option(
            ["--tables"],
            metavar="NAME,…",
            callback=names,
            help="Tables that jobs may touch, by name or ARN, of other regions too; every table of account and region"
            " for a new role, and with '*'.",
        ),
        click.Option(
            ["--results", "places"],
            metavar="S3-URI,…",
            callback=places,
            help="Further places where jobs may write results and read keys.",
        ),
        click.Option(
            ["--target-role", "target_roles"],
            metavar="ARN,…",
            callback=role_arns,
            help="Roles that jobs may assume for targets in other accounts.",
        ),
        click.Option(["--yes"], is_flag=True, help=_YES),
    ]


def _bootstrap(as_caller: AsCaller) -> click.Command:
    text = """Make or mend what jobs need: bucket, control table, role, log groups, Glue job.

    Shows what it would make, mend and leave alone, and asks. Safe to run again: what is as it should be stays as it is,
    and so does what was chosen before and is not given now.
    """
    return click.Command(
        "bootstrap", params=[*_wishes(), *_common()], help=text, callback=_changing(as_caller, _to_make)
    )


def _teardown(as_caller: AsCaller) -> click.Command:
    text = """Remove what bootstrap made, and keep what jobs found.

    Shows what it would remove and asks. Refuses while a job runs. Results stay, and the bucket with them; so do lists
    of skipped and failed keys, and Glue's log groups, which other jobs of the account share.
    """
    params = [click.Option(["--yes"], is_flag=True, help=_YES), *_common()]
    return click.Command("teardown", params=params, help=text, callback=_changing(as_caller, _to_remove))


def _to_make(site: "Site", given: dict[str, Any]) -> "list[Step]":
    from bulkexec.runtimes.bootstrap import Wishes, plan
    from bulkexec.runtimes.role import Limits

    limits = Limits(given.pop("tables"), given.pop("places"), given.pop("target_roles"))
    return plan(site, Wishes(**given, limits=limits))


def _to_remove(site: "Site", _given: dict[str, Any]) -> "list[Step]":
    from bulkexec.runtimes.teardown import plan

    return plan(site)


def _changing(as_caller: AsCaller, plan: "Callable[[Site, dict[str, Any]], list[Step]]") -> Callable[..., None]:
    """A command that shows its steps, asks, and does them."""

    def callback(*, yes: bool, profile: str | None, region: str | None, output: str, **given: Any) -> None:
        from bulkexec.console import Terminal

        terminal, name = Terminal(output == "json"), str(click.get_current_context().info_name)

        def work(caller: Any) -> dict[str, Any]:
            from bulkexec.describe import user_errors
            from bulkexec.runtimes.steps import open_site

            site = open_site(caller.session)
            with user_errors(f"plan {name}"):
                steps = plan(site, given)
            terminal.say(f"PLAN  {name}  {site.account} / {site.region}")
            _say_steps(terminal, steps)
            return _document(site, name, _change(terminal, name, steps, None if yes else caller.ask))

        document = as_caller(terminal, work, profile, region)
        if terminal.json_output:
            terminal.document(json.dumps(document, indent=2).encode())

    return callback


def _change(terminal: "Terminal", name: str, steps: "list[Step]", ask: Callable[[str], str] | None) -> "list[Step]":
    """Do the steps, once they are confirmed; gives what was done, then what was left alone."""
    from bulkexec.runtimes.steps import carry_out, changes

    if not changes(steps):
        terminal.say("Nothing to do." if steps else "Nothing of bulkexec is here.")
        return steps
    _gate(terminal, ask)
    done = []
    for step in carry_out(steps, name):
        terminal.say(f"  {_DONE[step.action]:<8} {step.what:<14} {step.name}{_why(step)}")
        done.append(step)
    terminal.say()
    terminal.say(f"DONE  {name}" + ("   bulkexec doctor looks whether all is well" if name == "bootstrap" else ""))
    return [*done, *(step for step in steps if step.act is None)]


_DONE = {"make": "made", "mend": "mended", "remove": "removed", "warning": "warning", "keep": "kept"}


def _why(step: "Step") -> str:
    return f": {step.details}" if step.action in ("warning", "mend") else ""


def _say_steps(terminal: "Terminal", steps: "Sequence[Step]") -> None:
    from bulkexec.console import folded

    terminal.say()
    for step in steps:
        text = f"{step.what:<14} {step.name}{f': {step.details}' if step.details else ''}"
        for line in folded(step.action, text, 8):
            terminal.say(line)
    terminal.say()


def _gate(terminal: "Terminal", ask: Callable[[str], str] | None) -> None:
    """Raises `errors.NotConfirmed`."""
    if ask is None:
        return
    if not terminal.interactive:
        raise errors.NotConfirmed(
            "this changes the account and nobody is there to confirm it", fix="add --yes", state="nothing changed"
        )
    typed = ask("Nothing has been changed. Type yes to go on (Return cancels):")
    if typed.strip().lower() != "yes":
        raise errors.NotConfirmed(f'not confirmed: got "{typed}", expected "yes"', state="nothing changed")


def _document(site: "Site", name: str, steps: "Sequence[Step]") -> dict[str, Any]:
    members = {"command": name, "status": "finished", "account": site.account, "region": site.region}
    return {**members, "steps": [step.to_json() for step in steps], "exit_code": 0}


# -- doctor ------------------------------------------------------------------------------------------------------


def _doctor(as_caller: AsCaller) -> click.Command:
    text = """Look at everything that a job needs, and say what to do where something is missing.

    Changes nothing. Exit code 0 when nothing that is needed is missing (there may be warnings), else 2.
    With --output json stdout holds a list of findings: check, state (ok, warning or failed), text and fix.
    """
    params = [click.Option(["--table"], metavar="NAME-or-ARN", help="Look at this table too."), *_common()]

    def callback(*, table: str | None, profile: str | None, region: str | None, output: str) -> None:
        from bulkexec.console import Terminal
        from bulkexec.doctor import examine

        terminal = Terminal(output == "json")
        found = as_caller(terminal, lambda caller: list(examine(caller.session, table)), profile, region)
        _say_findings(terminal, found)
        sys.exit(2 if any(each.state == "failed" for each in found) else 0)

    return click.Command("doctor", params=params, help=text, callback=callback)


def _say_findings(terminal: "Terminal", found: "Sequence[Finding]") -> None:
    from bulkexec.console import folded

    terminal.say("DOCTOR")
    terminal.say()
    for each in found:
        for line in folded(each.state, f"{each.check:<14} {each.text}", 8):
            terminal.say(line)
        if each.fix:
            for line in folded("", f"{'fix':<14} {each.fix}", 8):
                terminal.say(line)
    count = {state: sum(each.state == state for each in found) for state in ("failed", "warning")}
    terminal.say()
    terminal.say(f"{count['failed']} failed, {count['warning']} warnings" if any(count.values()) else "All is well.")
    if terminal.json_output:
        terminal.document(json.dumps([each.to_json() for each in found], indent=2).encode())
