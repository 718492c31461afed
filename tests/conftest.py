"""Fixtures that every tier shares, and which tests are too long for `make test`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bulkexec.sandbox.process import Sandbox

LONG = tuple(
    line
    for line in (Path(__file__).parent / "long_tests.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long, before tests are chosen by their marks."""
    for item in items:
        if any(part in item.nodeid for part in LONG):
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One embedded AWS for the whole test session; tests use tables of their own."""
    with Sandbox() as running:
        yield running
