"""Change a table at a pace of its own: so many items a call, a pause, the next call.

`python examples/driver.py --table orders --where "status = 'EXPIRED'" --write-rate 50 --pause 2`

Ctrl-C ends it at a page boundary and prints the token that `--token` takes to go on. Counts are acknowledged writes.
"""

import argparse
import signal
import sys
import threading
from typing import Any

from bulkexec import MassOpResult, Table, errors

INTERRUPTED = 130


def archive(item: dict[str, Any]) -> dict[str, Any]:
    """The map: what becomes of an item."""
    item["status"] = "ARCHIVED"
    return item


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Archive the items that match, at a pace of its own.")
    parser.add_argument("--table", required=True, help="name or ARN")
    parser.add_argument("--where", required=True, help="SQL condition, such as: status = 'EXPIRED'")
    parser.add_argument("--items", type=int, default=5_000, help="a call ends at the first page boundary at or past it")
    parser.add_argument("--read-rate", help="units a second, or a share such as 30%%; half of the table's by default")
    parser.add_argument("--write-rate", help="the same for writes")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between calls")
    parser.add_argument("--token", help="go on where an earlier loop stopped")
    return parser.parse_args()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def one_call(asked: argparse.Namespace, token: str | None, stopping: threading.Event) -> MassOpResult:
    return Table(asked.table).edit_list(
        archive,
        where=asked.where,
        max_items=asked.items,
        resume_token=token,
        read_rate=asked.read_rate,
        write_rate=asked.write_rate,
        stop=stopping.is_set,
    )


def loop(asked: argparse.Namespace, stopping: threading.Event) -> str | None:
    """Call, look at the cursor, call again until it is absent. Gives the token to go on from; None: all is done."""
    done, token = MassOpResult(), asked.token
    while True:
        try:
            result = one_call(asked, token, stopping)
        except errors.BulkexecError as error:
            # An error that ends a call half-way has a cursor too; without one nothing was done in this call.
            say("\n".join(error.lines()))
            return error.cursor or token or ""
        done += result
        say(
            f"{done.processed} processed, {done.skipped} skipped, {len(done.failed)} failed, "
            f"{len(done.conflicts)} conflicts, {done.read_units:g} read units, {done.write_units:g} write units"
        )
        token = result.cursor
        if token is None or stopping.wait(asked.pause):
            return token


def main() -> int:
    asked, stopping = parse(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    token = loop(asked, stopping)
    if token is None:
        say("finished")
        return 0
    say(f"to go on: --token {token}" if token else "nothing was done")
    return INTERRUPTED if stopping.is_set() else 1


if __name__ == "__main__":
    sys.exit(main())
