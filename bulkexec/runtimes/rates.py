"""The budgets of a run: in this process, or shared by the workers of a job through the control table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3

from bulkexec.budgets import TableBudgets
from bulkexec.fleet import FleetBudget
from bulkexec.leases import LEASE_CLIENT, ControlTableLeaseStore, LeaseStore, MemoryLeaseStore
from bulkexec.model import Table
from bulkexec.plan import Plan
from bulkexec.rate import Budget, Kind, Limiter


@dataclass(frozen=True)
class RunBudgets:
    """What a run may read of the table, and write to it, to its indexes and to the table that puts go to."""

    read: Limiter
    write: TableBudgets
    target: TableBudgets


@dataclass(frozen=True)
class LocalBudgets:
    """The budgets of a run in this process, and the stores that change them while it runs."""

    budgets: RunBudgets
    stores: Mapping[tuple[str, Kind], MemoryLeaseStore]

    def paused(self) -> bool:
        """Whether a rate is 0, so that the run waits."""
        return any(store.read().ceiling <= 0 for store in self.stores.values())

    def set_rates(self, kind: Kind, rates: Mapping[str, float]) -> None:
        """New rates for these resources; 0 pauses."""
        for (resource, each), store in self.stores.items():
            if each == kind and resource in rates:
                store.set_ceiling(rates[resource])


def _wanted(plan: Plan) -> dict[tuple[str, Kind], float]:
    """The rate of each budget, by resource: the table's name, or `<table>/index/<name>`."""
    table, options = plan.work.scope.table.name, plan.options
    wanted: dict[tuple[str, Kind], float] = {}
    if options.read_rate is not None:
        wanted[table, "read"] = options.read_rate
    if options.write_rate is not None and plan.mutates and not options.dry_run:
        wanted[table, "write"] = options.write_rate
        wanted |= {(index_resource(table, name), "write"): rate for name, rate in options.index_rates.items()}
    if options.target_write_rate is not None and plan.work.target is not None and not options.dry_run:
        target = target_resource(plan.work.target)
        wanted[target, "write"] = options.target_write_rate
        wanted |= {(index_resource(target, name), "write"): rate for name, rate in options.target_index_rates.items()}
    return wanted


def target_resource(table: Table) -> str:
    """How the budget of the table that puts go to is named; it may have the name of the one that is read."""
    return f"target/{table.name}"


def index_resource(table: str, index: str) -> str:
    """How a budget of an index is named."""
    return f"{table}/index/{index}"


def local_budgets(plan: Plan) -> LocalBudgets:
    """Budgets in memory: the same clock as a fleet's, with one worker."""
    stores = {place: MemoryLeaseStore(rate) for place, rate in _wanted(plan).items()}
    return LocalBudgets(_budgets(plan, stores, 1), stores)


def open_fleet(session: boto3.Session, plan: Plan, control_table: str, job_id: str) -> None:
    """Begin a run of a job: put its budgets into the control table. What an earlier run still owes stays owed."""
    client = _client(session, plan)
    for (resource, kind), rate in _wanted(plan).items():
        ControlTableLeaseStore(client, control_table, job_id, resource, kind).open(rate)


def fleet_budgets(session: boto3.Session, plan: Plan, control_table: str, job_id: str, workers: int) -> RunBudgets:
    """The budgets of one of a job's `workers`."""
    client = _client(session, plan)
    stores = {
        (resource, kind): ControlTableLeaseStore(client, control_table, job_id, resource, kind)
        for resource, kind in _wanted(plan)
    }
    return _budgets(plan, stores, workers)


def _client(session: boto3.Session, plan: Plan) -> Any:
    return session.client("dynamodb", region_name=plan.work.scope.table.region, config=LEASE_CLIENT)


def _budgets(plan: Plan, stores: Mapping[tuple[str, Kind], LeaseStore], workers: int) -> RunBudgets:
    table = plan.work.scope.table.name

    def budget(resource: str, kind: Kind) -> Limiter:
        store = stores.get((resource, kind))
        return Budget(None) if store is None else FleetBudget(store, workers)

    def writes(resource: str, index_rates: Mapping[str, float]) -> TableBudgets:
        has_write = (resource, "write") in stores
        indexes = {name: budget(index_resource(resource, name), "write") for name in index_rates if has_write}
        return TableBudgets(budget(resource, "write"), indexes)

    source, target = writes(table, plan.options.index_rates), plan.work.target
    other = source if target is None else writes(target_resource(target), plan.options.target_index_rates)
    return RunBudgets(budget(table, "read"), source, other)
