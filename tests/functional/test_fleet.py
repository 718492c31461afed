"""The fleet's rate limit with real processes and the control table's item in the sandbox."""

import multiprocessing
import os
import signal
import threading
import time
import uuid
from dataclasses import dataclass
from decimal import Decimal

import pytest

from bulkexec import errors
from bulkexec.control import create_table
from bulkexec.fleet import FleetBudget
from bulkexec.leases import LEASE_CLIENT, ControlTableLeaseStore, LeaseStoreDown, job_rates
from bulkexec.sandbox.process import client as client_of

pytestmark = pytest.mark.alone

CONTROL = "fleet-control"
THREADS = 2
REQUEST_SECONDS = 0.005


def lease_client(sandbox):
    settings = {"connect_timeout": LEASE_CLIENT.connect_timeout, "read_timeout": LEASE_CLIENT.read_timeout}
    return client_of(sandbox.running, "dynamodb", retries={"mode": "standard", "total_max_attempts": 1}, **settings)


@pytest.fixture(scope="module")
def client(sandbox):
    made = lease_client(sandbox)
    create_table(made, CONTROL)
    return made


@pytest.fixture
def store(client):
    return ControlTableLeaseStore(client, CONTROL, uuid.uuid4().hex[:8], "orders", "write")


def work(sandbox, job_id, workers, units, seconds, log):
    """One process: threads that spend units; writes down when each request went."""
    budget = FleetBudget(ControlTableLeaseStore(lease_client(sandbox), CONTROL, job_id, "orders", "write"), workers)
    end, times = time.time() + seconds, log.open("a", buffering=1)

    def spend():
        while budget.acquire(units, lambda: time.time() >= end):
            times.write(f"{time.time()}\n")
            time.sleep(REQUEST_SECONDS)
            budget.settle(units, units)

    threads = [threading.Thread(target=spend) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class Fleet:
    """Processes that spend; `times` of all their requests, once they have ended."""

    processes: list
    logs: list

    def times(self):
        for process in self.processes:
            process.join()
        return sorted(float(line) for log in self.logs for line in log.read_text().splitlines())


@pytest.fixture
def fleet(sandbox, store, tmp_path):
    """Starts processes on a job's rate."""
    context, started = multiprocessing.get_context("fork"), []

    def start(workers, rate, units, seconds):
        store.open(rate)
        logs = [tmp_path / f"{number}.log" for number in range(workers)]
        arguments = (sandbox, store.job_id, workers, units, seconds)
        processes = [context.Process(target=work, args=(*arguments, log), daemon=True) for log in logs]
        started.extend(processes)
        for process in processes:
            process.start()
        return Fleet(processes, logs)

    yield start
    for process in started:
        process.kill()
        process.join()


def most_in_a_second(times, units):
    """Units in the highest 1 s window, without its last request."""
    first = most = 0
    for last, at in enumerate(times):
        while times[first] < at - 1:
            first += 1
        most = max(most, last - first)
    return most * units


def units_between(times, start, end, units):
    return units * sum(start <= at < end for at in times)


def test_six_processes_hold_one_rate(fleet):
    rate, units = 200.0, 2.0
    times = fleet(6, rate, units, seconds=6.5).times()
    start = times[0]
    assert units_between(times, start + 1, start + 6, units) == pytest.approx(5 * rate, rel=0.05)
    assert units_between(times, start, start + 1, units) <= 1.05 * rate + units
    assert most_in_a_second(times, units) <= 1.05 * rate + units


def test_a_killed_process_costs_one_lease(fleet):
    rate, units = 100.0, 2.0
    running = fleet(4, rate, units, seconds=5.5)
    time.sleep(2)
    os.kill(running.processes[0].pid, signal.SIGKILL)
    times = running.times()
    spent = units_between(times, times[0] + 1, times[0] + 5, units)
    assert 0.9 * 4 * rate <= spent <= 1.05 * 4 * rate  # without the others taking over it would be 0.8


def test_a_changed_rate_is_obeyed_within_3_seconds(fleet, store):
    running = fleet(4, 100.0, 1.0, seconds=18.5)
    changed = [time.time()]
    for rate in (30.0, 0.0, 100.0):
        time.sleep(4.5)
        store.set_ceiling(rate)
        changed.append(time.time())
    times = running.times()
    for at, rate in zip(changed, (100, 30, 0, 100), strict=True):
        seen = units_between(times, at + 3, at + 4.4, 1.0) / 1.4
        assert 0.75 * rate <= seen <= 1.05 * rate + 1  # a busy machine may be slower, never faster


def test_leases_add_up_exactly(store, client):
    """Microseconds in decimal: a thousand leases drift by nothing."""
    store.open(100.0)
    begin = store.lease(0.000001, 1_790_000_000.123456, True).shared.tat
    for number in range(60):
        assert store.lease(0.000701, begin + number * 0.000701, False).granted
    item = client.get_item(TableName=CONTROL, Key=store._key)["Item"]
    assert Decimal(item["tat"]["N"]) == Decimal("1790000000.123457") + 60 * Decimal("0.000701")


def test_the_item_says_who_may_lease(store):
    store.open(100.0)
    now = 1_790_000_000.0
    assert store.lease(1.0, now, True).granted
    refused = store.lease(1.0, now, False)
    assert not refused.granted
    assert refused.shared.tat == now + 1
    assert not store.lease(1.0, now, True).granted
    assert store.lease(1.0, now + 1, False).shared.tat == now + 2


def test_throttling_is_shared_and_happens_once_a_second(store):
    store.open(100.0)
    now = 1_790_000_000.0
    assert store.slow(70.0, now).slowed == 70
    assert store.slow(49.0, now + 0.5).slowed == 70
    assert store.slow(49.0, now + 1.0).slowed == 49
    store.open(100.0)
    assert store.read().rate(now) == 100


def test_long_debts_take_their_time_at_the_new_rate(store):
    store.open(1.0)
    now = 1_790_000_000.0
    store.lease(128.0, now, True)
    assert store.set_ceiling(64.0).tat == pytest.approx(now + 2)
    assert store.read().ceiling == 64


def test_rates_of_a_job_by_table_and_index(store, client):
    store.open(100.0)
    index = ControlTableLeaseStore(client, CONTROL, store.job_id, "orders/index/by-day", "write")
    index.open(20.0)
    rates = job_rates(client, CONTROL, store.job_id)
    assert {name: shared.ceiling for name, shared in rates.items()} == {
        ("orders", "write"): 100,
        ("orders/index/by-day", "write"): 20,
    }


def test_a_job_without_rates_is_unknown(store, client):
    with pytest.raises(errors.UnknownJob):
        store.read()
    with pytest.raises(errors.UnknownJob):
        store.set_ceiling(5.0)
    with pytest.raises(errors.UnknownJob):
        store.lease(1.0, 0.0, False)
    assert job_rates(client, CONTROL, store.job_id) == {}


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        ({"kind": "http500"}, LeaseStoreDown),
        ({"kind": "reset"}, LeaseStoreDown),
        ({"kind": "error", "code": "ProvisionedThroughputExceededException"}, LeaseStoreDown),
        ({"kind": "error", "code": "AccessDeniedException"}, errors.AccessDenied),
        ({"kind": "error", "code": "ResourceNotFoundException"}, errors.RequestRejected),
    ],
)
def test_tells_what_passes_from_what_a_user_must_mend(sandbox, store, fault, raised):
    store.open(100.0)
    number = sandbox.control.faults.add(service="dynamodb", operation="GetItem", match={"TableName": CONTROL}, **fault)
    try:
        with pytest.raises(raised):
            store.read()
    finally:
        sandbox.control.faults.remove(number)


def test_no_units_while_the_control_table_is_away_and_all_of_them_after(sandbox, store):
    store.open(1000.0)
    budget = FleetBudget(store)
    numbers = [
        sandbox.control.faults.add("http500", service="dynamodb", operation=operation, match={"TableName": CONTROL})
        for operation in ("GetItem", "UpdateItem")
    ]
    start = time.monotonic()
    try:
        assert not budget.acquire(1, lambda: time.monotonic() - start > 0.7)
    finally:
        for number in numbers:
            sandbox.control.faults.remove(number)
    assert budget.acquire(1, lambda: False)
