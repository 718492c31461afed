"""A page's batches are begun before earlier ones are answered, and all that was sent is accounted for."""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from bulkexec import errors
from bulkexec.budgets import TableBudgets
from bulkexec.commands.delete import Delete as DeleteCommand
from bulkexec.engine import Cap, Run, Spills
from bulkexec.model import KeyAttribute, Scope, Table, Work
from bulkexec.plan import Plan
from bulkexec.rate import Budget
from bulkexec.reader import Reader
from bulkexec.sending import IN_FLIGHT_A_PAGE, Sending
from bulkexec.wire import Answering, Fault, Refusals, Retry, Retrying, Stopped
from bulkexec.writer import ITEM_LIMIT_BYTES, Writer
from bulkexec.writes import Delete, Put, Write

TABLE = Table("orders", "arn:orders", "eu-west-1", "1", (KeyAttribute("pk", "S"),), "ACTIVE", 10, 5000, "on-demand")
A_BATCH = 25


@dataclass
class Service:
    """Accepts every batch. `faults` are raised as the answers to requests by their number."""

    faults: dict[int, Fault] = field(default_factory=dict)
    requests: int = 0
    waiting: int = 0
    most_waiting: int = 0
    applied: list[str] = field(default_factory=list)
    at_begin: Callable[[int], None] = lambda number: None

    def begin(self, operation: str, body: bytes) -> Answering:
        self.at_begin(self.requests)
        number, self.requests, self.waiting = self.requests, self.requests + 1, self.waiting + 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        entries = msgspec.json.decode(body)["RequestItems"][TABLE.name]
        if number not in self.faults:
            self.applied += [next(iter(next(iter(entry.values())).values()))["pk"]["S"] for entry in entries]

        def answer() -> bytes:
            self.waiting -= 1
            if number in self.faults:
                raise self.faults[number]
            return msgspec.json.encode({"ConsumedCapacity": [{"CapacityUnits": float(len(entries))}]})

        return answer

    def call(self, operation: str, body: bytes) -> bytes:
        return self.begin(operation, body)()


def a_run(service: Service, stop: Callable[[], bool] = lambda: False, rate: float | None = None) -> Run:
    command, work = DeleteCommand(all=True), Work(Scope(TABLE))
    retry = Retry(60.0, sleep=lambda seconds: None)
    calls = Retrying(service, Refusals("orders", "eu-west-1"), retry)
    return Run(
        plan=Plan(command.name, {}, work, 1, True),
        command=command,
        reader=Reader(calls, work),
        writer=Writer(calls, work, False, retry),
        read_budget=Budget(None),
        write_budget=TableBudgets(Budget(rate), {}),
        checkpoints=None,  # type: ignore[arg-type]  # nothing here reaches a checkpoint
        cap=Cap(None, lambda handled: 0),
        stop=stop,
        spills=lambda record: Spills(),
        threads=1,
    )


def raw(number: int, more: str = "") -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"pk": {"S": str(number)}} | ({"more": {"S": more}} if more else {})))


def deletes(batches: int) -> list[Write]:
    return [Delete(raw(number)) for number in range(batches * A_BATCH)]


@pytest.mark.parametrize("kind", [Delete, Put])
def test_so_many_requests_wait_for_their_answers_and_no_more(kind: type[Delete] | type[Put]) -> None:
    service = Service()
    outcome, error = Sending(a_run(service), lambda throttle: throttle).page([kind(raw(n)) for n in range(500)])
    assert (outcome.processed, outcome.units, error) == (500, 500.0, None)
    assert service.most_waiting == IN_FLIGHT_A_PAGE
    assert service.applied == [str(number) for number in range(500)]


def test_a_throttled_or_lost_request_is_sent_again_and_the_others_are_not() -> None:
    service = Service({1: Fault("ThrottlingException", "slow"), 3: Fault("ConnectionLost", "gone")})
    throttled: list[object] = []
    sending = Sending(a_run(service), lambda throttle: throttled.append)
    outcome, error = sending.page(deletes(6))
    assert (outcome.processed, error, service.requests, len(throttled)) == (6 * A_BATCH, None, 8, 1)
    assert sorted(map(int, service.applied)) == list(range(6 * A_BATCH))


def test_an_error_ends_the_page_and_what_else_was_sent_counts() -> None:
    # case C096
    service = Service({2: Fault("AccessDeniedException", "no more")})
    run = a_run(service)
    outcome, error = Sending(run, lambda throttle: throttle).page(deletes(40))
    assert isinstance(error, errors.AccessDenied)
    assert service.waiting == 0, "every answer was looked at"
    assert service.requests < 40
    assert outcome.processed == len(service.applied) == (service.requests - 1) * A_BATCH
    assert run.write_budget.statistics().total_units == outcome.units, "what was reserved for the refused is given back"


def test_what_cannot_be_begun_leaves_the_others_counted_and_nothing_reserved() -> None:
    service = Service()

    def no_credentials(number: int) -> None:
        if number == 5:
            raise errors.NoCredentials("expired")

    service.at_begin = no_credentials
    run = a_run(service)
    outcome, error = Sending(run, lambda throttle: throttle).page(deletes(9))
    assert isinstance(error, errors.NoCredentials)
    assert (outcome.processed, service.waiting) == (5 * A_BATCH, 0)
    assert run.write_budget.statistics().total_units == 5 * A_BATCH


def test_a_stop_while_the_rate_is_0_counts_what_was_sent() -> None:
    service = Service()
    run = a_run(service, stop=lambda: service.requests >= 3)
    budget = Budget(1e9)
    run.write_budget = TableBudgets(budget, {})
    service.at_begin = lambda number: budget.set_rate(0) if number == 2 else None
    outcome, error = Sending(run, lambda throttle: throttle).page(deletes(9))
    assert isinstance(error, Stopped)
    assert (outcome.processed, service.requests, service.waiting) == (3 * A_BATCH, 3, 0)


def test_an_item_over_the_limit_fails_alone_and_all_others_are_put() -> None:
    # case C072
    service = Service()
    large = Put(raw(1000, "x" * ITEM_LIMIT_BYTES))
    puts = [*[Put(raw(number)) for number in range(60)], large, *[Put(raw(number)) for number in range(60, 99)]]
    outcome, error = Sending(a_run(service), lambda throttle: throttle).page(puts)
    assert (outcome.processed, [failure.reason for failure in outcome.failed], error) == (99, ["ItemTooLarge"], None)
    assert sorted(map(int, service.applied)) == list(range(99))
