"""What is imported here becomes a wheel that pip installs; the same code gives the same bytes."""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest

from bulkexec.runtimes.wheel import Wheel, command_wheel, own_wheel


@pytest.fixture(scope="module")
def wheel() -> Wheel:
    return own_wheel()


@pytest.fixture(scope="module")
def archive(wheel: Wheel) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(wheel.content))


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def test_the_same_code_gives_the_same_bytes(wheel: Wheel) -> None:
    # case C161: the hash names the code
    assert own_wheel() == wheel
    assert wheel.hash == hashlib.sha256(wheel.content).hexdigest()[:12]


def test_every_file_is_in_the_record_with_its_hash_and_size(archive: zipfile.ZipFile) -> None:
    assert archive.testzip() is None
    folder = f"bulkexec-{distribution('bulkexec').version}.dist-info"
    rows = list(csv.reader(io.StringIO(archive.read(f"{folder}/RECORD").decode())))
    recorded = {path: (hashed, size) for path, hashed, size in rows}
    assert recorded.pop(f"{folder}/RECORD") == ("", "")
    contents = {path: archive.read(path) for path in archive.namelist() if path != f"{folder}/RECORD"}
    assert recorded == {path: (digest(content), str(len(content))) for path, content in contents.items()}
    assert len(rows) == len(archive.namelist())


def test_it_holds_the_code_that_runs_here_and_nothing_compiled(archive: zipfile.ZipFile) -> None:
    import bulkexec

    names = archive.namelist()
    assert {"bulkexec/engine.py", "bulkexec/commands/delete.py", "glue_jobs/bulk_job.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".so"))]
    assert archive.read("bulkexec/errors.py") == (Path(bulkexec.__file__).parent / "errors.py").read_bytes()


def install(content: bytes, filename: str, place: Path) -> None:
    (place / filename).write_bytes(content)
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--quiet"]
    command += ["--disable-pip-version-check", "--target", str(place / "site"), str(place / filename)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pip_installs_it_and_its_commands_are_found(wheel: Wheel, tmp_path: Path) -> None:
    install(wheel.content, wheel.filename, tmp_path)
    program = (
        "import bulkexec.command as command, sys; print(command.load('delete').name, command.names(), command.__file__)"
    )
    site = str(tmp_path / "site")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": site},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("delete ['copy', 'copy-under', 'count', 'delete', ")
    assert site in done.stdout


def test_commands_of_bulkexec_itself_need_no_other_wheel() -> None:
    (entry,) = entry_points(group="bulkexec.commands", name="count")
    assert command_wheel(entry) is None


METADATA = """Metadata-Version: 2.1
Name: acme-mass.ops
Version: 2.0
Requires-Dist: bulkexec>=0.1
Requires-Dist: tomlkit>=0.12
Requires-Dist: pytest; extra == "dev"
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that brings a command, as pip would have installed it."""
    info = tmp_path / "path" / "acme_mass_ops-2.0.dist-info"
    package = tmp_path / "path" / "acme_ops"
    info.mkdir(parents=True)
    (package / "inner").mkdir(parents=True)
    for name, text in (("__init__.py", ""), ("touch.py", "class Touch: ...\n"), ("inner/data.json", "{}")):
        (package / name).write_text(text)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text("[bulkexec.commands]\ntouch = acme_ops.touch:Touch\n")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    return info


def acme_wheel() -> Wheel:
    (entry,) = entry_points(group="bulkexec.commands", name="touch")
    wheel = command_wheel(entry)
    assert wheel is not None
    return wheel


def test_a_command_of_another_package_comes_with_that_package(acme: Path, tmp_path: Path) -> None:
    wheel = acme_wheel()
    names = set(zipfile.ZipFile(io.BytesIO(wheel.content)).namelist())
    assert {"acme_ops/__init__.py", "acme_ops/touch.py", "acme_ops/inner/data.json"} <= names
    assert [need for need in wheel.requirements if need.startswith("tomlkit")]
    assert len(wheel.requirements) == 1, "neither bulkexec itself nor what an extra asks for"


def test_a_package_with_a_dotted_name_makes_a_wheel_that_pip_installs(acme: Path, tmp_path: Path) -> None:
    wheel = acme_wheel()
    install(wheel.content, wheel.filename, tmp_path)
    assert (tmp_path / "site" / "acme_ops" / "inner" / "data.json").read_text() == "{}"


def test_a_package_that_needs_another_of_our_name_says_so(acme: Path) -> None:
    (acme / "METADATA").write_text(METADATA + "Requires-Dist: bulkexec-masks>=1\n")
    assert [need for need in acme_wheel().requirements if need.startswith("bulkexec-masks")]
