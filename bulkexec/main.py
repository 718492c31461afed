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

if TYPE_CHECKING:
    from bulkexec.command import Command
    from bulkexec.console import Terminal
    from bulkexec.declarations import Declarations


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


_ACCOUNT = [
    click.Option(["--profile"], help="AWS profile."),
    click.Option(["--region"], help="AWS region; an ARN's region wins."),
    click.Option(
        ["--output"],
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json: one JSON report on stdout, all text on stderr.",
    ),
]

_SELECTION = [
    click.Option(["--table"], required=True, metavar="NAME-or-ARN", help="The table."),
    click.Option(["--index"], metavar="NAME", help="Read an index instead of the table; a sparse one is shorter."),
    click.Option(
        ["--keys-from"], metavar="FILE-or-S3-URI", help="Take the items of these keys; a job's lists are such files."
    ),
    click.Option(
        ["--filter", "clauses"],
        multiple=True,
        metavar="FIELD:OP:VALUE",
        help="A clause of a filter; all must hold. eq ne lt le gt ge in btw beg ct ex nx.",
    ),
    click.Option(["--search"], metavar="TEXT", help="Items that have this text in a searchable field."),
    click.Option(["--searchable"], metavar="FIELD,…", help="The searchable fields, if not declared in bulkexec.toml."),
    click.Option(["--as-of"], metavar="MOMENT", help="Leave out what was created later; a date and time, or an epoch."),
    click.Option(["--created-at-field"], metavar="NAME", help="The attribute --as-of compares, if not declared."),
    click.Option(["--where"], help="Filter in SQL syntax, e.g. \"status = 'EXPIRED' AND size(tags) > 2\"."),
    click.Option(["--filter-expression"], help="Filter as a DynamoDB FilterExpression."),
    click.Option(["--expression-names"], metavar="JSON", help="ExpressionAttributeNames for --filter-expression."),
    click.Option(
        ["--expression-values"], metavar="JSON", help="ExpressionAttributeValues, typed, for --filter-expression."
    ),
]

_RUNNING = [
    click.Option(
        ["--runtime"],
        type=click.Choice(["auto", "local", "glue"]),
        default="auto",
        show_default=True,
        help="Where it runs; auto takes this process for small work.",
    ),
    click.Option(["--segments"], type=int, help="TotalSegments of the scan; chosen by the table's size if left out."),
    click.Option(
        ["--read-rate"],
        metavar="UNITS/S",
        help="Read units a second for the whole job, or a share of what the table has (30%). Half of it if left out.",
    ),
    click.Option(
        ["--max-items"], type=int, help="Stop at the first page boundary at or past so many items; resumable."
    ),
    click.Option(["--resume-token"], metavar="TOKEN", help="Go on where an earlier run stopped."),
]

_MUTATING = [
    click.Option(
        ["--write-rate"],
        metavar="UNITS/S",
        help="Write units a second for the whole job, or a share of what the table has (30%). Half of it if left out.",
    ),
    click.Option(
        ["--strategy"],
        type=click.Choice(["native", "sequential"]),
        default="native",
        show_default=True,
        help="Batches where conditions allow, or one request an item.",
    ),
    click.Option(
        ["--max-failures"], type=click.IntRange(0), metavar="N", help="Stop when more items than this have failed."
    ),
    click.Option(["--dry-run"], is_flag=True, help="Do all but write; exact counts."),
    click.Option(["--yes"], is_flag=True, help="Do not ask for confirmation."),
]

_TARGET = [
    click.Option(["--target-profile"], help="AWS profile for the target, where that is in another account."),
    click.Option(
        ["--target-role"],
        metavar="ARN",
        help="Role to assume for the target; a Glue job's role needs sts:AssumeRole on it.",
    ),
]

_ROWS = [click.Option(["--results"], metavar="S3-URI", help="Write every match below this S3 location.")]


def bulk_command(kind: "type[Command]") -> click.Command:
    """The command-line form of a bulk command: its fields, and what every bulk command has."""
    own = [_option(each) for each in fields(kind) if "flag" in each.metadata]
    selection = _SELECTION if kind.takes_filter else _SELECTION[:1]
    params = [*selection, *own, *(_ROWS if kind.keeps_rows else []), *_RUNNING]
    if any(each.name == "to" for each in fields(kind)):
        params += _TARGET
    params += [*(_MUTATING if kind.mutates else []), *_ACCOUNT]
    text = (kind.__doc__ or "").strip()
    return click.Command(
        kind.name,
        params=list(params),
        help=_kept_as_it_is(text),
        short_help=text.split("\n", 1)[0],
        callback=_runner(kind),
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


def _runner(kind: "type[Command]") -> Any:
    def callback(**given: Any) -> None:
        from bulkexec.console import Terminal

        own = {each.name: given.pop(each.name) for each in fields(kind) if "flag" in each.metadata}
        given = {**dict.fromkeys(each.name for each in _SELECTION if each.name), "clauses": (), **given}
        terminal = Terminal(given["output"] == "json")
        _finish(terminal, lambda caller: _launch(caller, kind, own, given), given)

    return callback


def _launch(caller: Any, kind: "type[Command]", own: dict[str, Any], given: dict[str, Any]) -> Any:
    from bulkexec.declarations import declared, find_file
    from bulkexec.launch import Request, launch
    from bulkexec.model import Options
    from bulkexec.planning import AskedRates

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
        given["resume_token"],
        given.get("yes", False),
        AskedRates(given["read_rate"], given.get("write_rate")),
    )
    return launch(caller, kind(**own), request)


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
        given["keys_from"] or "",
        declared=known,
    )


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
    from bulkexec.launch import Caller

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

    return click.Command(name, params=[click.Argument(["job"]), *_ACCOUNT], help=text, callback=callback)


cli.add_command(_job_command("resume", "Continue a job where its checkpoints are. Its report counts all of its runs."))
cli.add_command(_job_command("attach", "Follow a Glue job that goes on without its client, or show its report."))


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
