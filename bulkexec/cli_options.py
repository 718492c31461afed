"""The options that bulk commands have in common, as click takes them."""

import re
from collections import Counter
from math import isfinite

import click


class BulkCommand(click.Command):
    """A command each of whose options may be given once, but for those that are made to be given more often.

    click silently takes the last: a second --where would put the first one out of force.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See `click.Command.parse_args`. Raises `click.UsageError`."""
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        for each, times in Counter(given).items():
            if isinstance(each, click.Option) and times > 1 and not (each.multiple or each.is_flag):
                raise click.UsageError(f"{each.opts[0]} is given {times} times, and only one can hold", ctx)
        return super().parse_args(ctx, args)


ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/\S+")


def _listed(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, (part.strip() for part in text.split(","))))


def places(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """A list of S3 locations, None where it was not given."""
    found = _listed(text)
    for each in found or ():
        if not each.removeprefix("s3://").strip("/") or "*" in each:
            raise click.BadParameter(f"{each} is not a bucket, nor a place in one", param=parameter)
    return found


def role_arns(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """A list of roles, None where it was not given."""
    found = _listed(text)
    for each in found or ():
        if not ROLE_ARN.fullmatch(each) or "*" in each:
            raise click.BadParameter(f"{each} is not the ARN of a role", param=parameter)
    return found


def names(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """A list of names, None where it was not given. One that names nothing would not narrow anything."""
    found = _listed(text)
    if found == ():
        raise click.BadParameter("names nothing; leave the option out instead", param=parameter)
    return found


def _finite(_context: click.Context, parameter: click.Parameter, number: float | None) -> float | None:
    if number is not None and not isfinite(number):
        raise click.BadParameter(f"{number} is not a sum", param=parameter)
    return number


ACCOUNT = [
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

SELECTION = [
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

RUNNING = [
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
    click.Option(
        ["--max-cost"],
        type=click.FloatRange(0, min_open=True),
        callback=_finite,
        metavar="USD",
        help="Refuse to start when it costs more at the least, and stop when so much is spent; resumable.",
    ),
    click.Option(["--resume-token"], metavar="TOKEN", help="Go on where an earlier run stopped."),
]

MUTATING = [
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
    click.Option(
        ["--sample/--no-sample", "sampled"], default=True, help="Read some items to estimate from; it costs little."
    ),
    click.Option(["--dry-run"], is_flag=True, help="Do all but write; exact counts."),
    click.Option(["--yes"], is_flag=True, help="Do not ask for confirmation."),
]

TARGET = [
    click.Option(["--target-profile"], help="AWS profile for the target, where that is in another account."),
    click.Option(
        ["--target-role"],
        metavar="ARN",
        help="Role to assume for the target; a Glue job's role needs sts:AssumeRole on it.",
    ),
]

ROWS = [click.Option(["--results"], metavar="S3-URI", help="Write every match below this S3 location.")]
