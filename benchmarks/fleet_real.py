"""The fleet's rate limit for real: 8 processes that write to a provisioned table of the sandbox for 30 seconds.

Each is a process of its own with bulkexec's writer and its lease of the job's budget in the control table. What the
table was charged is read from the sandbox, second by second.
"""

import subprocess
import sys
import time
import uuid
from typing import Any

import boto3
import msgspec

from bulkexec.budgets import TableBudgets
from bulkexec.control import create_table
from bulkexec.fleet import FleetBudget
from bulkexec.leases import LEASE_CLIENT, ControlTableLeaseStore
from bulkexec.model import KeyAttribute, Scope, Table, Work
from bulkexec.sandbox.process import Sandbox
from bulkexec.wire import HttpWire, Refusals, Retrying
from bulkexec.writer import Outcome, Writer
from bulkexec.writes import Put

PROCESSES, SECONDS, SETTLE_SECONDS = 8, 30, 3
RATE, PROVISIONED = 400.0, 1000
CONTROL, REGION = "bulkexec-control", "us-east-1"


def measure() -> dict[str, Any]:
    """Units a second of the whole fleet: the mean after settling, and the lowest and the highest second."""
    with Sandbox() as sandbox:
        dynamodb = sandbox.client("dynamodb")
        create_table(dynamodb, CONTROL)
        table, job_id = _table(dynamodb), uuid.uuid4().hex[:8]
        _store(dynamodb, job_id, table).open(RATE)
        arguments = [sys.executable, "-m", "benchmarks.fleet_real", table, job_id]
        workers = [subprocess.Popen([*arguments, str(n)], env=sandbox.env()) for n in range(PROCESSES)]
        for worker in workers:
            worker.wait()
        return _found(sandbox.control.units(table, "write"))


def _table(dynamodb: Any) -> str:
    name = f"fleet-{uuid.uuid4().hex[:8]}"
    dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 10, "WriteCapacityUnits": PROVISIONED},
    )
    return name


def _store(client: Any, job_id: str, table: str) -> ControlTableLeaseStore:
    return ControlTableLeaseStore(client, CONTROL, job_id, table, "write")


def _found(by_second: dict[int, float]) -> dict[str, Any]:
    first = min(by_second)
    steady = [by_second.get(second, 0.0) for second in range(first + SETTLE_SECONDS, first + SECONDS - 1)]
    return {
        "processes": PROCESSES,
        "target_units_per_second": RATE,
        "mean_units_per_second": sum(steady) / len(steady),
        "lowest_second": min(steady),
        "highest_second": max(by_second.values()),
        "first_full_second": by_second.get(first + 1, 0.0),
    }


def table_of(found: dict[str, Any]) -> str:
    """For people."""
    rows = [f"| {name.replace('_', ' ')} | {value:,.0f} |" for name, value in found.items()]
    return "\n".join(["| what | units/s |", "|---|--:|", *rows])


def work(table: str, job_id: str, number: str) -> None:
    """One worker: put items of one unit each, 25 in a request, as fast as its leases allow."""
    session = boto3.Session(region_name=REGION)
    client = session.client("dynamodb", config=LEASE_CLIENT)
    budget = TableBudgets(FleetBudget(_store(client, job_id, table), PROCESSES), {})
    facts = Table(table, "", REGION, "", (KeyAttribute("pk", "S"),), "ACTIVE", 0, 0, "provisioned")
    calls = Retrying(HttpWire(session, REGION, 2), Refusals(table, REGION))
    writer, end, sent = Writer(calls, Work(Scope(facts))), time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        permit = budget.reserve(25.0, lambda: time.monotonic() >= end)
        if permit is None:
            return
        outcome = Outcome()
        items = [msgspec.json.encode({"pk": {"S": f"{number}-{sent + n}"}}) for n in range(25)]
        writer.write([Put(msgspec.Raw(item)) for item in items], budget.throttled, outcome)
        permit.settle(outcome.consumed)
        sent += 25


if __name__ == "__main__":
    work(*sys.argv[1:])
