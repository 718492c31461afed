"""New rates for a job that runs: through the control table for a fleet, through a file for a local run."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import msgspec

from bulkexec import errors
from bulkexec.describe import user_errors
from bulkexec.leases import LEASE_CLIENT, ControlTableLeaseStore, LeaseStoreDown, job_rates
from bulkexec.rate import Kind
from bulkexec.runtimes.rates import LocalBudgets

POLL_SECONDS = 0.3
TRIES = 5


@dataclass(frozen=True)
class NewRates:
    """Units a second for each budget by its resource; a budget that is not named stays as it is, 0 pauses."""

    reads: dict[str, float] = field(default_factory=dict)
    writes: dict[str, float] = field(default_factory=dict)


class LiveRates:
    """While entered, a local run obeys what `leave` puts into its file."""

    def __init__(self, path: Path, budgets: LocalBudgets) -> None:
        self._path, self._budgets, self._ended = path, budgets, threading.Event()
        self._thread = threading.Thread(target=self._loop, name="live-rates", daemon=True)

    def __enter__(self) -> "LiveRates":
        self._path.unlink(missing_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._path.unlink(missing_ok=True)

    def _loop(self) -> None:
        seen = b""
        while not self._ended.wait(POLL_SECONDS):
            try:
                found = self._path.read_bytes()
            except FileNotFoundError:
                continue
            if found != seen:
                seen = found
                self._obey(msgspec.json.decode(found, type=NewRates))

    def _obey(self, rates: NewRates) -> None:
        self._budgets.set_rates("read", rates.reads)
        self._budgets.set_rates("write", rates.writes)


def leave(path: Path, rates: NewRates) -> None:
    """Put new rates where a local run finds them, in one step."""
    scratch = path.with_suffix(".rates-writing")
    scratch.write_bytes(msgspec.json.encode(rates))
    scratch.replace(path)


def change_fleet(session: boto3.Session, control_table: str, job_id: str, region: str, rates: NewRates) -> list[str]:
    """Change the rates of a Glue job for all its workers; gives a line for each. Raises `errors.UnknownJob`."""
    client = session.client("dynamodb", region_name=region, config=LEASE_CLIENT)
    wanted: dict[tuple[str, Kind], float] = {(resource, "read"): rate for resource, rate in rates.reads.items()}
    wanted |= {(resource, "write"): rate for resource, rate in rates.writes.items()}
    before = job_rates(client, control_table, job_id)
    missing = [f"{kind} rate of {resource}" for resource, kind in wanted if (resource, kind) not in before]
    if missing:
        raise errors.BadArgument(f"job {job_id} has no {', no '.join(missing)} to change")
    lines = []
    for (resource, kind), rate in wanted.items():
        _set(ControlTableLeaseStore(client, control_table, job_id, resource, kind), rate)
        lines.append(f"{kind} {resource}: {rate:g} units/s, was {before[resource, kind].ceiling:g}")
    return lines


def _set(store: ControlTableLeaseStore, rate: float) -> None:
    for attempt in range(TRIES):
        try:
            with user_errors("change the rate"):
                store.set_ceiling(rate)
            return
        except LeaseStoreDown as down:
            if attempt == TRIES - 1:
                raise errors.Exhausted("the control table does not take the new rate", why=str(down)) from down
