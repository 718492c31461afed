"""The console script: command line in, exit code out."""

import os
import sys
import traceback
from contextlib import nullcontext, redirect_stdout
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from bulkexec import __version__, errors
from bulkexec.cli_options import ACCOUNT, MUTATING, ROWS, RUNNING, SELECTION, TARGET, BulkCommand

if TYPE_CHECKING:
    from bulkexec.command import Command
    from bulkexec.console import Terminal
    from bulkexec.declarations import Declarations
    from bulkexec.prepare import Request


ALIASES = {"update": "edit", "clone": "copy"}
"""What other tools call these commands."""


class Commands(click.Group):
    """Built-in subcommands, and every bulk command that is installed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        from bulkexec import account_cli, command

        return sorted({*super().list_commands(ctx), "iam", "sandbox", *account_cli.NAMES, *command.names()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Made when asked for, so that start-up stays fast."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        if cmd_name == "sandbox":
            from bulkexec.sandbox.cli import sandbox

            return sandbox
        if cmd_name == "iam":
            from bulkexec.iam_cli import iam

            return iam
        from bulkexec import account_cli, command

        if cmd_name in account_cli.NAMES:
            return account_cli.command(cmd_name, _as_caller)
        name = ALIASES.get(cmd_name, cmd_name)
        return bulk_command(command.load(name)) if name in command.names() else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="bulkexec")
@click.option("--debug", is_flag=True, help="Show a stack trace for every error, also for those of the user.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Bulk operations on Amazon DynamoDB tables: planned, priced, rate-limited, resumable."""
    ctx.ensure_object(dict)["debug"] = debug


def bulk_command(kind: "type[Command]", to_file: bool = False) -> click.Command:
    """The command-line form of a bulk command: its fields, and what every bulk command has.

    `to_file`: it is only planned, and the plan written.
    """
    own = [_option(each) for each in fields(kind) if "flag" in each.metadata]
    selection = SELECTION if kind.takes_filter else SELECTION[:1]
    params = [*selection, *own, *(ROWS if kind.keeps_rows else []), *RUNNING]
    if any(each.name == "to" for each in fields(kind)):
        params += TARGET
    params += [*(MUTATING if kind.mutates else []), *ACCOUNT]
    if to_file:
        params = [each for each in params if each.name not in ("yes", "resume_token")]
        params.append(click.Option(["-o", "--out"], required=True, metavar="FILE", help="Where the plan is written."))
    text = (kind.__doc__ or "").strip()
    return BulkCommand(
        kind.name,
        params=list(params),
        help=_kept_as_it_is(text),
        short_help=text.split("\n", 1)[0],
        callback=_runner(kind, to_file),
    )


def _kept_as_it_is(text: str) -> str:
    """click rewraps paragraphs unless they begin with \\b; ours are laid out by hand."""
    import inspect

    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(f"\b\n{paragraph}" for paragraph in paragraphs)


def _option(each: Any) -> click.Option:
    flag, default = each.metadata["flag"], each.default
    more: dict[str, Any] = {"help": each.metadata["help"], "required": default is MISSING}
    if each.metadata["choices"]:
        more["type"] = click.Choice(each.metadata["choices"])
    elif isinstance(default, bool):
        more["is_flag"] = True
    elif isinstance(default, tuple):
        more["multiple"] = True
    elif isinstance(default, int | float):
        more["type"] = type(default)
    if default is not MISSING:
        more["default"] = default
    return click.Option([flag, each.name], **more)


def _runner(kind: "type[Command]", to_file: bool) -> Any:
    def callback(**given: Any) -> None:
        from bulkexec.console import Terminal

        own = {each.name: given.pop(each.name) for each in fields(kind) if "flag" in each.metadata}
        given = {**dict.fromkeys(each.name for each in SELECTION if each.name), "clauses": (), **given}
        terminal = Terminal(given["output"] == "json")
        if to_file:
            _write_plan(terminal, kind, own, given)
        else:
            _finish(terminal, lambda caller: _launch(caller, kind, own, given), given)

    return callback


def _write_plan(terminal: "Terminal", kind: "type[Command]", own: dict[str, Any], given: dict[str, Any]) -> None:
    from pathlib import Path

    def work(caller: Any) -> Any:
        from bulkexec.plan_files import write_plan

        return write_plan(caller, *_request(kind, own, given), Path(given["out"]))

    approval = _as_caller(terminal, work, given["profile"], given["region"])
    if terminal.json_output:
        terminal.document(approval.to_json())


def _launch(caller: Any, kind: "type[Command]", own: dict[str, Any], given: dict[str, Any]) -> Any:
    from bulkexec.launch import launch

    return launch(caller, *_request(kind, own, given))


def _request(kind: "type[Command]", own: dict[str, Any], given: dict[str, Any]) -> "tuple[Command, Request]":
    from bulkexec.declarations import declared, find_file
    from bulkexec.plan import Options
    from bulkexec.planning import AskedRates
    from bulkexec.prepare import Request

    known = declared(given["table"].rpartition("/")[2], find_file()).overridden(
        created_at_field=given["created_at_field"], searchable=_names(given["searchable"])
    )
    # What is declared for the table stands where the command was not given it.
    own |= {name: getattr(known, name) for name in ("version_field", "technical_prefix") if own.get(name) == ""}
    own |= {"separator": known.separator or None} if own.get("separator", "") is None else {}
    options = Options(
        max_items=given["max_items"],
        dry_run=given.get("dry_run", False),
        results=given.get("results") or "",
        strategy=given.get("strategy", "native"),
        max_failures=given.get("max_failures"),
        target_role=given.get("target_role") or "",
        target_profile=given.get("target_profile") or "",
    )
    request = Request(
        given["table"],
        _filter(given, known),
        options,
        given["runtime"],
        given["segments"],
        given.get("resume_token"),
        given.get("yes", False),
        AskedRates(given["read_rate"], given.get("write_rate")),
        given["max_cost"],
        given.get("sampled", True),
    )
    return kind(**own), request


def _filter(given: dict[str, Any], known: "Declarations") -> Any:
    from bulkexec.selection import Filter

    return Filter(
        given["where"],
        given["filter_expression"],
        given["expression_names"],
        given["expression_values"],
        given["clauses"],
        given["search"],
        given["as_of"],
        given["index"] or "",
        _absolute(given["keys_from"] or ""),
        declared=known,
    )


def _absolute(keys: str) -> str:
    """A list's place as it can be found from anywhere, for `bulkexec resume`."""
    from pathlib import Path

    return keys if not keys or keys.startswith("s3://") else str(Path(keys).absolute())


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _finish(terminal: "Terminal", work: Any, given: dict[str, Any]) -> None:
    """Do the work, put out its report and leave with its exit code."""
    from bulkexec.launch import StoppedNow

    try:
        report = _as_caller(terminal, work, given["profile"], given["region"])
    except StoppedNow as stopped:
        if terminal.json_output:
            terminal.document(stopped.report.to_json())
        raise
    if terminal.json_output:
        terminal.document(report.to_json())
    sys.exit(report.exit_code)


def _as_caller(terminal: "Terminal", work: Any, profile: str | None, region: str | None) -> Any:
    """Do the work as this caller. A user's error is said in its words and ends with its exit code."""
    import boto3

    from bulkexec.describe import user_errors
    from bulkexec.prepare import Caller

    try:
        # With --output json stdout is for one document; a map of the user's may print.
        quiet = redirect_stdout(sys.stderr) if terminal.json_output else nullcontext()
        with user_errors("talk to AWS"), quiet:
            session = boto3.Session(profile_name=profile, region_name=region)
            return work(Caller(session, terminal, _ask, region))
    except errors.BulkexecError as error:
        _say_error(terminal, error, click.get_current_context().find_root().obj["debug"])
        sys.exit(error.exit_code)


def _ask(question: str) -> str:
    return str(click.prompt(question.rstrip(), default="", show_default=False, prompt_suffix=" ", err=True))


def _say_error(terminal: "Terminal", error: errors.BulkexecError, debug: bool) -> None:
    for line in error.lines():
        terminal.complain(line)
    if debug:
        terminal.complain("".join(traceback.format_exception(error)))
    if terminal.json_output:
        click.echo(_error_document(error, click.get_current_context().info_name))


def _error_document(error: errors.BulkexecError, command: str | None) -> str:
    """What stands on stdout instead of a report; a member that is not known is left out."""
    import json

    status = "refused" if isinstance(error, errors.Refused) else "failed"
    known = {"job_id": error.job_id, "command": command, "status": status}
    document = {name: text for name, text in known.items() if text}
    return json.dumps({**document, "error": error.lines(), "exit_code": error.exit_code}, indent=2)


def _job_command(name: str, text: str) -> click.Command:
    def callback(**given: Any) -> None:
        from bulkexec import jobs
        from bulkexec.console import Terminal

        work = getattr(jobs, name)
        _finish(Terminal(given["output"] == "json"), lambda caller: work(caller, given["job"]), given)

    return click.Command(name, params=[click.Argument(["job"]), *ACCOUNT], help=text, callback=callback)


cli.add_command(_job_command("resume", "Continue a job where its checkpoints are. Its report counts all of its runs."))
cli.add_command(_job_command("attach", "Follow a Glue job that goes on without its client, or show its report."))


class Plans(click.Group):
    """The bulk commands again, to be planned only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        from bulkexec import command

        return command.names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Made when asked for."""
        from bulkexec import command

        name = ALIASES.get(cmd_name, cmd_name)
        return bulk_command(command.load(name), to_file=True) if name in command.names() else None


@cli.group(name="plan", cls=Plans)
def plan_group() -> None:
    """Write a plan to a file, to be approved and run later: bulkexec plan COMMAND … -o plan.json."""


def _apply(**given: Any) -> None:
    from pathlib import Path

    from bulkexec.console import Terminal

    def work(caller: Any) -> Any:
        from bulkexec.plan_files import apply_plan

        return apply_plan(caller, Path(given["file"]), given["yes"])

    _finish(Terminal(given["output"] == "json"), work, given)


cli.add_command(
    click.Command(
        "apply",
        params=[
            click.Argument(["file"]),
            click.Option(["--yes"], is_flag=True, help="Do not ask for confirmation."),
            *ACCOUNT,
        ],
        help="Run a plan that was written before, with exactly its options, if its tables are still what they were.",
        callback=_apply,
    )
)


@cli.command(name="rate")
@click.argument("job")
@click.option("--read-rate", metavar="UNITS/S", help="Read units a second, or a share (30%); 0 pauses.")
@click.option("--write-rate", metavar="UNITS/S", help="Write units a second, or a share (30%); 0 pauses.")
@click.option("--profile", help="AWS profile.")
@click.option("--region", help="AWS region.")
def rate_command(
    job: str, read_rate: str | None, write_rate: str | None, profile: str | None, region: str | None
) -> None:
    """Change the rate of a running job, for all of its workers, within 3 seconds."""
    from bulkexec.console import Terminal
    from bulkexec.jobs import change_rate

    terminal = Terminal()

    def work(caller: Any) -> None:
        for line in change_rate(caller, job, read_rate, write_rate):
            terminal.say(line)

    _as_caller(terminal, work, profile, region)


def run() -> None:
    """Entry point of the console script."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if _json_wanted(sys.argv[1:]):
            context = error.ctx if isinstance(error, click.UsageError) else None
            called = context.info_name if context is not None and context.parent is not None else None
            click.echo(_error_document(errors.BadArgument(error.format_message()), called))
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        # Threads may still wait for an answer; what they had acknowledged is in the checkpoints.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)


def _json_wanted(arguments: list[str]) -> bool:
    """Whether a command line that could not be parsed asks for JSON."""
    return "--output=json" in arguments or ("--output", "json") in pairwise(arguments)
