"""A Lambda function that changes a table of any size, in as many calls as it takes.

`handler` works until its time is nearly over and then invokes itself with the cursor in its event. `step` is one call
alone, for a caller that has the loop: see `../step_functions`. What is done to an item is `archive`.

The event, and the answer, which is the event of the next call:
    table             name or ARN
    where             SQL condition; should not match an item that is done
    max_items         optional: at most about so many items a call
    reserve_seconds   optional: what a call keeps back to end its pages; more than a page takes at the table's rate
    cursor, totals, calls   absent at first; the end is reached when the cursor is null
"""

import json
import logging
from typing import Any

import boto3

from bulkexec import MassOpResult, Table, errors

Event = dict[str, Any]

RESERVE_SECONDS = 30.0
MOST_CALLS = 10_000
"""A loop that is longer has gone wrong, and would cost money until somebody notices."""

logger = logging.getLogger()
logger.setLevel(logging.INFO)


class NoProgress(Exception):
    """The call could not read a single page, so the next one would be the same."""


def archive(item: dict[str, Any]) -> dict[str, Any]:
    """The map: what becomes of an item. Given its own output it has to give the same."""
    item["status"] = "ARCHIVED"
    return item


def handler(event: Event, context: Any) -> Event:
    """One call, and the start of the next one unless this was the last."""
    answer = step(event, context)
    if answer["cursor"] is not None:
        invoke_again(context.invoked_function_arn, answer)
    return answer


def invoke_again(function_arn: str, event: Event) -> None:
    """Queue the next call; it begins when there is room for it."""
    boto3.client("lambda").invoke(FunctionName=function_arn, InvocationType="Event", Payload=json.dumps(event))


def step(event: Event, context: Any) -> Event:
    """One call. Raises NoProgress, `errors.Exhausted` when throttled all the time, and what else ends a run."""
    calls = event.get("calls", 0) + 1
    if calls > MOST_CALLS:
        raise NoProgress(f"{MOST_CALLS} calls were not enough; the last cursor was {event.get('cursor')}")
    result = _until_time_is_short(event, context)
    if result.cursor is not None and not result.read_units:
        raise NoProgress("not a page was read: give the function more time, or the event less reserve_seconds")
    _log(calls, result)
    totals = event.get("totals", {})
    added = {name: totals.get(name, 0) + count for name, count in _counts(result).items()}
    return {**event, "cursor": result.cursor, "totals": added, "calls": calls}


def _until_time_is_short(event: Event, context: Any) -> MassOpResult:
    reserve = 1000 * event.get("reserve_seconds", RESERVE_SECONDS)
    try:
        return Table(event["table"]).edit_list(
            archive,
            where=event["where"],
            max_items=event.get("max_items"),
            resume_token=event.get("cursor"),
            stop=lambda: context.get_remaining_time_in_millis() < reserve,
        )
    except errors.Exhausted as error:
        done: MassOpResult | None = error.result
        if done is None or not done.read_units:
            raise  # nothing is lost by beginning this call again, later
        return done  # with its cursor: what was done before the throttling is kept


def _counts(result: MassOpResult) -> dict[str, float]:
    return {
        "processed": result.processed,
        "skipped": result.skipped,
        "failed": len(result.failed),
        "conflicts": len(result.conflicts),
        "read_units": result.read_units,
        "write_units": result.write_units,
    }


def _log(calls: int, result: MassOpResult) -> None:
    """Counts go on in the event, which has to stay small; the keys of what was not written are in the log alone."""
    logger.info("call %s: %s", calls, json.dumps(_counts(result)))
    answer = result.as_json()
    for each in (*answer["failed"], *answer["conflicts"]):
        logger.warning("not written: %s", json.dumps(each))
