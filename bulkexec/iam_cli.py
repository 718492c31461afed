"""`bulkexec iam`: which permissions whom, as policy documents."""

import click

from bulkexec.cli_options import names, places, role_arns
from bulkexec.iam import GRANTS, ROLES, Grant, Role, partition_of, policy

MANAGED_POLICY_CHARACTERS = 6_144
"""Longest managed policy, white space not counted (IAM quotas)."""


@click.group(name="iam")
def iam() -> None:
    """Which permissions bootstrap, the caller and the Glue job need, as policy documents."""


@iam.command()
@click.argument("role", type=click.Choice(ROLES))
@click.option("--tables", metavar="NAME,…", callback=names, help="Only these tables, by name or ARN; all if left out.")
@click.option("--account", default="ACCOUNT", help="Twelve digits; a word to replace if left out.")
@click.option("--region", default="REGION", help="AWS region; a word to replace if left out.")
@click.option("--bucket", default="", help="The bucket, if it is not the one that bootstrap makes.")
@click.option(
    "--results", metavar="S3-URI,…", callback=places, help="Further places where results may be written, and keys read."
)
@click.option(
    "--target-role",
    "target_roles",
    metavar="ARN,…",
    callback=role_arns,
    help="Roles that may be assumed for targets in other accounts.",
)
@click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="json: only the document."
)
def show(
    role: Role,
    tables: tuple[str, ...] | None,
    account: str,
    region: str,
    bucket: str,
    results: tuple[str, ...] | None,
    target_roles: tuple[str, ...] | None,
    output: str,
) -> None:
    """Print the policy document of a role; as text, with the reason for each action.

    \b
    bulkexec iam show caller --tables orders-prod --account 111122223333 --region eu-west-1 --output json
    """
    import json

    document = policy(
        role,
        tables=tables or (),
        partition=partition_of(region),
        region=region,
        account=account,
        bucket=bucket,
        places=results or (),
        target_roles=target_roles or (),
    )
    click.echo(json.dumps(document, indent=2))
    characters = len(json.dumps(document, separators=(",", ":")))
    if characters > MANAGED_POLICY_CHARACTERS:
        over = f"{characters:,} characters, more than the {MANAGED_POLICY_CHARACTERS:,} of a managed policy"
        click.echo(f"warning: {over}; name many tables at once ('orders-*'), or attach it in parts", err=True)
    if output == "text":
        click.echo("\nWhy:")
        for line in reasons(role):
            click.echo(f"  {line}")


def reasons(role: Role) -> list[str]:
    """A line for each action of a role."""
    mine = [grant for grant in GRANTS if role in grant.roles]
    width = max(len(grant.action) for grant in mine)
    return [f"{grant.action:<{width}}  {_reason(grant)}" for grant in mine]


def _reason(grant: Grant) -> str:
    on = f"{', '.join(grant.on)}: " if grant.on != ("anything",) else ""
    return f"{on}{grant.why}" + (f" (without: {grant.without})" if grant.without else "")
