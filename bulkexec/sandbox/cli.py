"""`bulkexec sandbox`: an embedded AWS to try everything on."""

import os
import shlex
from typing import Any

import click

from bulkexec.sandbox.options import DEFAULT_PORT, SandboxOptions, state_directory

_port = click.option(
    "--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, envvar="BULKEXEC_SANDBOX_PORT", show_default=True
)


@click.group()
def sandbox() -> None:
    """An embedded AWS on loopback: DynamoDB, S3, Glue with real Spark runs, logs, pricing and faults."""


@sandbox.command()
@_port
@click.option("--foreground", is_flag=True, help="Stay attached; Ctrl-C ends it.")
@click.option(
    "--iam", is_flag=True, help="Enforce IAM: users, roles and their policies; the sandbox's own key may do all."
)
@click.option(
    "--glue6-python",
    metavar="PYTHON",
    help="Runs jobs of Glue 6.0: the Python of an environment with pyspark 4.1, as `make spark4` makes it.",
)
def up(port: int, foreground: bool, iam: bool, glue6_python: str | None) -> None:
    """Starts the sandbox and prints its endpoint once it answers. --port 0 takes a free port."""
    from bulkexec.sandbox import process

    if port and (running := process.find(port)):
        click.echo(f"already running (pid {running.pid})", err=True)
        click.echo(running.endpoint)
        return
    chosen = {"iam": "enforce"} if iam else {}
    if glue6_python is not None:
        chosen["glue6_python"] = _checked(glue6_python)
    options = SandboxOptions.from_environment(os.environ, port=port, work_dir=state_directory(), **chosen)
    if foreground:
        _stay(options)
        return
    running = _started(options)
    process.remember(running)
    click.echo(running.endpoint)


def _checked(glue6_python: str) -> str:
    """A whole path, since runs begin elsewhere."""
    from bulkexec.sandbox.glue_python import NoSpark, glue6

    try:
        return glue6(glue6_python).executable
    except NoSpark as error:
        raise click.ClickException(str(error)) from error


def _started(options: SandboxOptions) -> Any:
    from bulkexec.sandbox import process

    try:
        return process.start(options)
    except (OSError, process.SandboxError) as error:
        raise click.ClickException(f"the sandbox cannot start on port {options.port}: {error}") from error


def _stay(options: SandboxOptions) -> None:
    """Serves in this very process."""
    import asyncio

    from bulkexec.sandbox import process, server

    try:
        process.check_installed()
        listener = process.bind(options.port)
    except (OSError, process.SandboxError) as error:
        raise click.ClickException(f"the sandbox cannot start on port {options.port}: {error}") from error
    options = process.settled(options, listener)
    process.remember(process.Running(os.getpid(), options.port, options.region, ""))
    click.echo(options.endpoint)
    try:
        asyncio.run(server.serve(options, listener.detach()))
    finally:
        process.forget(options.port)


@sandbox.command()
@_port
def env(port: int) -> None:
    """Prints export lines for a shell: eval "$(bulkexec sandbox env)"."""
    from bulkexec.sandbox import process

    variables = process.environment(_running(port))
    click.echo(f"unset {' '.join(process.UNSET)}")
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@sandbox.command()
@_port
@click.option("--table", required=True, help="Name; the table is made if it is not there.")
@click.option("--items", type=click.IntRange(0), default=1_000, show_default=True)
@click.option("--item-bytes", type=click.IntRange(300, 400 * 1024), default=500, show_default=True)
@click.option("--key-type", type=click.Choice(["S", "N", "B"]), default="S", show_default=True)
@click.option("--sort-key", type=click.Choice(["S", "N", "B"]), help="Give the table a sort key of this type.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same items.")
def seed(port: int, table: str, items: int, item_bytes: int, key_type: str, sort_key: str | None, seed: int) -> None:
    """Fills a table with varied items of every type."""
    from botocore.exceptions import BotoCoreError, ClientError

    from bulkexec.sandbox import process, seeding

    shape = seeding.Shape(table, items, item_bytes, key_type, sort_key, seed)
    try:
        written = seeding.fill(process.client(_running(port), "dynamodb"), shape)
    except (BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{written} items in {table}")


@sandbox.command()
@_port
def down(port: int) -> None:
    """Ends the sandbox and every job it started. Its tables and objects are gone with it."""
    from bulkexec.sandbox import process

    running = process.find(port)
    if running is None:
        click.echo(f"no sandbox on port {port}", err=True)
        return
    process.stop(running)
    process.forget(port)
    click.echo(f"ended {running.endpoint}")


def _running(port: int) -> Any:
    from bulkexec.sandbox import process

    running = process.find(port)
    if running is None:
        raise click.ClickException(f"no sandbox on port {port}; start one with: bulkexec sandbox up --port {port}")
    return running
