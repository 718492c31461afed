"""Signals of a real process: the first drains, the second stops, and afterwards all is as before."""

import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bulkexec.signals import SIGNALS, DrainSignals

PROGRAM = """
import sys, time
from bulkexec.signals import DrainSignals
say = lambda *words: print(*words, flush=True)
with DrainSignals(lambda count: say("signal", count)) as signals:
    say("ready")
    signals.draining.wait(20)
    say("draining", signals.stopping.is_set())
    signals.stopping.wait(20)
    say("stopping")
say("as before")
time.sleep(20)
"""


@contextmanager
def started(*prefix: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen([*prefix, sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert heard(process) == "ready"
            yield process
        finally:
            process.kill()


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    with started() as process:
        yield process


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("first", SIGNALS)
def test_the_first_drains_the_second_stops_and_a_third_kills(
    process: "subprocess.Popen[str]", first: signal.Signals
) -> None:
    process.send_signal(first)
    assert {heard(process), heard(process)} == {"signal 1", "draining False"}
    process.send_signal(signal.SIGINT)
    assert {heard(process), heard(process)} == {"signal 2", "stopping"}
    assert heard(process) == "as before"
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM


def test_two_different_signals_count_together(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGHUP)
    assert {heard(process), heard(process)} == {"signal 1", "draining False"}
    process.send_signal(signal.SIGTERM)
    assert {heard(process), heard(process)} == {"signal 2", "stopping"}


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    with started("sh", "-c", "trap '' HUP; exec \"$@\"", "sh") as process:
        process.send_signal(signal.SIGHUP)
        assert select.select([process.stdout], [], [], 0.3)[0] == []


def test_without_a_signal_nothing_is_set_and_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with DrainSignals() as signals:
        assert [signal.getsignal(number) for number in SIGNALS] != before
        assert not signals.draining.is_set()
        assert not signals.stopping.is_set()
    assert [signal.getsignal(number) for number in SIGNALS] == before
