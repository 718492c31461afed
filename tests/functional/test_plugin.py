"""A command of another package, found through the entry point, in both runtimes. Acceptance 7 of the main job."""

from pathlib import Path
from typing import Any

import pytest

SOURCE = '''
"""Delete the items whose number is even: something no filter expression can say."""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from bulkexec.command import Command, argument
from bulkexec.model import Page, PageResult, Scope, Work
from bulkexec.writes import Delete


class Row(msgspec.Struct):
    pk: msgspec.Raw
    n: dict[str, str]


@dataclass(frozen=True)
class DropMultiples(Command):
    """Delete the items whose number is a multiple of --of."""

    name: ClassVar[str] = "drop-multiples"
    mutates: ClassVar[bool] = True
    verb: ClassVar[str] = "dropped"

    of: int = argument("--of", "The divisor.", default=2)

    def plan(self, scope: Scope) -> Work:
        return Work(scope, projection=("pk", "n"))

    def page(self, page: Page, work: Work) -> PageResult:
        rows = [msgspec.json.decode(item, type=Row) for item in page.items]
        hits = [row for row in rows if int(row.n["N"]) % self.of == 0]
        writes = [Delete(msgspec.Raw(b'{"pk":' + bytes(row.pk) + b"}")) for row in hits]
        return PageResult(writes=writes, skipped=len(rows) - len(hits))
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder that holds the package as pip would install it."""
    info = tmp_path / "site" / "acme_multiples-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "acme_multiples.py").write_text(SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-multiples\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bulkexec.commands]\ndrop-multiples = acme_multiples:DropMultiples\n")
    return tmp_path / "site"


def test_a_third_party_command_runs_in_both_runtimes(
    package: Path, bulkexec: Any, deployed: str, tables: Any, items: Any
) -> None:
    environment = {"PYTHONPATH": str(package)}
    assert "drop-multiples" in bulkexec("--help", env=environment).stdout
    assert "--of" in bulkexec("drop-multiples", "--help", env=environment).stdout
    reports = []
    for runtime in ("local", "glue"):
        name = tables.make(items(300, 60))
        outcome = bulkexec.json(
            "drop-multiples", "--table", name, "--of", "7", "--runtime", runtime, "--yes", env=environment
        )
        assert outcome.code == 0, outcome.stderr
        assert tables.keys(name) == {f"k{n:07d}" for n in range(300) if n % 7}
        reports.append([outcome.report[each] for each in ("scanned", "matched", "processed", "skipped", "failed")])
    assert reports[0] == reports[1] == [300, 300, 43, 257, 0]


def test_without_the_package_there_is_no_such_command(bulkexec: Any) -> None:
    outcome = bulkexec("drop-multiples", "--table", "any")
    assert outcome.code == 2
    assert "drop-multiples" in outcome.stderr
