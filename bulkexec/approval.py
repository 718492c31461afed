"""Approve exactly what will run: a plan as a file, and whether it still fits the tables it was made for. No I/O.

What is written is the plan itself, a map's text included, with what makes it comparable later: the version that made
it, and where it was to run.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bulkexec import errors
from bulkexec.model import Table
from bulkexec.plan import Plan

FORMAT = 1


@dataclass(frozen=True)
class Approval:
    """A plan to be run later, made by version `bulkexec`.

    `runs_on` is where, in words that say all that matters; `keys_hash` is that of a list of keys, `limits` and
    `remarks` are for display. `plan_hash` is of all of them, so that what is shown and confirmed is what was planned.
    """

    bulkexec: str
    plan: Plan
    runs_on: str
    keys_hash: str = ""
    limits: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    format: int = FORMAT
    plan_hash: str = ""

    def to_json(self) -> bytes:
        """As a file, for people to read and for `read_approval`."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2) + b"\n"


def approve(
    version: str,
    plan: Plan,
    runs_on: str,
    keys_hash: str = "",
    limits: Iterable[tuple[str, str]] = (),
    remarks: Iterable[str] = (),
) -> Approval:
    """What is written for a plan by this `version`."""
    approval = Approval(version, plan, runs_on, keys_hash, tuple(limits), tuple(remarks))
    return replace(approval, plan_hash=plan_hash(approval))


def plan_hash(approval: Approval) -> str:
    """Of everything but the version: command, map, filter, tables, options, and what is shown of them."""
    data = msgspec.json.encode(replace(approval, bulkexec="", plan_hash=""))
    # Read back once, because 5 and 5.0 are the same rate and are not written the same.
    content = msgspec.json.encode(msgspec.json.decode(data, type=Approval), order="sorted")
    return hashlib.sha256(content).hexdigest()


def read_approval(data: bytes, name: str, version: str) -> Approval:
    """The inverse of `to_json`; `name` is the file's, `version` this one.

    Raises `errors.PlanStale` for anything that cannot be run here.
    """
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.PlanStale(
            f"{name} is no plan: {error}",
            fix="write one with: bulkexec plan COMMAND … -o plan.json",
            state="nothing done",
        ) from error
    if head.format != FORMAT or _major(head.bulkexec) != _major(version):
        raise _stale(f"{name} was made by bulkexec {head.bulkexec}, this is {version}")
    try:
        approval = msgspec.json.decode(data, type=Approval)
    except msgspec.ValidationError as error:
        raise _stale(f"{name} cannot be read by this version: {error}") from error
    if plan_hash(approval) != approval.plan_hash:
        raise _stale(f"{name} was changed after it was made: it is not what was planned")
    return approval


class _Head(msgspec.Struct):
    bulkexec: str
    format: int


def _major(version: str) -> str:
    """Before 1.0 every minor version may change what a plan means."""
    parts = version.split(".")
    return ".".join(parts[:2]) if parts[0] == "0" else parts[0]


def _stale(message: str) -> errors.PlanStale:
    return errors.PlanStale(message, fix="plan again: bulkexec plan COMMAND … -o plan.json", state="nothing done")


def tables_of(plan: Plan) -> tuple[Table, ...]:
    """Every table that a plan is about."""
    target = plan.work.target
    return (plan.work.scope.table,) if target is None else (plan.work.scope.table, target)


def require_unchanged(planned: Table, now: Table) -> None:
    """Raises `errors.PlanStale` when a table is not what it was when the plan was made. Sizes may differ."""
    differences = changes(planned, now)
    if differences:
        raise _stale(f"table {planned.name} is not what it was when the plan was made: {'; '.join(differences)}")


def changes(planned: Table, now: Table) -> list[str]:
    """What is different, in words."""
    found = []
    if planned.arn != now.arn:
        found.append(f"it was {planned.arn} and is {now.arn}")
    elif planned.id and now.id and planned.id != now.id:
        found.append("it was dropped and made again")
    if planned.keys != now.keys:
        found.append("its keys")
    found += _index_changes(planned, now)
    if planned.recovery and not now.recovery:
        found.append("point-in-time recovery is off")
    if planned.billing != now.billing:
        found.append(f"it was {planned.billing} and is {now.billing}")
    if set(planned.replicas) != set(now.replicas):
        found.append("its replicas")
    return found


def _index_changes(planned: Table, now: Table) -> list[str]:
    """Indexes that came, went, or have other keys or another projection."""
    before, after = ({index.name: _shape(index) for index in table.indexes} for table in (planned, now))
    words = [f"index {name} is gone" for name in before.keys() - after.keys()]
    words += [f"index {name} is new" for name in after.keys() - before.keys()]
    words += [f"index {name} was changed" for name in before.keys() & after.keys() if before[name] != after[name]]
    return sorted(words)


def _shape(index: Any) -> Any:
    return replace(index, item_count=0, size_bytes=0, read_capacity=0, write_capacity=0)
