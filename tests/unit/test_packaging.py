"""What a fresh machine is told to install: pinned names, and no address or path."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PIN = r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+"
FOR_SOME_PYTHONS = r'(; python_version (<|>=) "3\.\d+")?'

OF_ITS_OWN = {"pyspark", "py4j", "awsgluedataplanepython", "pandas", "numpy", "pyarrow"}
"""What differs between the environments of Glue 5.1 and of Glue 6.0."""


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package that a file of constraints names."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        package, version = line.partition(";")[0].split("==")
        found.setdefault(package.lower(), set()).add(version)
    return found


def needed(*extras: str) -> set[str]:
    """Names that bulkexec and some of its extras depend on."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    return {re.split(r"[^A-Za-z0-9._-]", each)[0].lower() for each in wanted} - {"bulkexec"}


@pytest.mark.parametrize(
    ("name", "line"), [("constraints.txt", PIN), ("constraints-glue6.txt", PIN + FOR_SOME_PYTHONS)]
)
def test_constraints_are_names_and_versions_alone(name: str, line: str) -> None:
    lines = (ROOT / name).read_text().splitlines()
    assert lines
    assert [each for each in lines if not re.fullmatch(line, each)] == []


def test_every_dependency_is_pinned() -> None:
    assert needed("spark", "sandbox", "dev") <= set(pins("constraints.txt"))


def test_the_environment_of_glue_6_has_client_and_job_with_the_spark_of_glue_6() -> None:
    pinned, main = pins("constraints-glue6.txt"), pins("constraints.txt")
    assert needed("spark") <= set(pinned)
    assert (main["pyspark"], pinned["pyspark"]) == ({"3.5.6"}, {"4.1.1"})
    # What is not Spark's must not differ, or the two could not be compared.
    assert {name: versions for name, versions in pinned.items() if versions != main.get(name)}.keys() <= OF_ITS_OWN
