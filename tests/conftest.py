"""Fixtures that every tier shares."""

from collections.abc import Iterator

import pytest

from bulkexec.sandbox.process import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One embedded AWS for the whole test session; tests use tables of their own."""
    with Sandbox() as running:
        yield running
