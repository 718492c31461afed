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
FIRST = (
    *("glue_runtime", "edit", "iam", "resume", "interrupts", "table", "acknowledged", "estimate", "max_cost"),
    *("runtimes_agree", "writer", "live_tail", "bootstrap", "doctor", "sandbox_glue", "subtree", "count", "find"),
    *("accounts", "plugin", "copy", "move", "delete", "teardown", "refusals", "examples", "mass_operations"),
)
"""Files that take longest begin first, so that no worker is left alone with one of them at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is long, before tests are chosen by their marks; begin with the files that take longest."""
    for item in items:
        if any(part in item.nodeid for part in LONG):
            item.add_marker(pytest.mark.soak)
    places = {name: place for place, name in enumerate(FIRST)}
    functional = Path(__file__).parent / "functional"

    def place(item: pytest.Item) -> int:
        name = item.path.stem.removeprefix("test_")
        return places.get(name, len(FIRST)) if item.path.parent == functional else len(FIRST)

    items.sort(key=place)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One embedded AWS for the whole test session; tests use tables of their own."""
    with Sandbox() as running:
        yield running
