"""Wheels of installed packages, put together from what is imported here: what runs in the job is what runs here.

A wheel is a zip with a dist-info folder (https://packaging.python.org/specifications/binary-distribution-format/).
Built without a build tool, so that it works the same from a checkout and from an install; the same files always give
the same bytes, so that its hash names the code.
"""

import base64
import hashlib
import importlib.util
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distribution
from pathlib import Path

ZIP_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """A built wheel. `requirements` are what it needs beyond bulkexec itself."""

    filename: str
    content: bytes
    requirements: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits of the content's SHA-256."""
        return hashlib.sha256(self.content).hexdigest()[:12]


def own_wheel() -> Wheel:
    """The wheel of bulkexec as it is imported here."""
    return _build(distribution("bulkexec"), ("bulkexec", "glue_jobs"))


def command_wheel(entry: EntryPoint) -> Wheel | None:
    """The wheel of the package that a command comes from; None for the commands of bulkexec itself."""
    dist = entry.dist
    if dist is None or dist.metadata["Name"] == "bulkexec":
        return None
    return _build(dist, (entry.module.split(".")[0],))


def _build(dist: Distribution, packages: tuple[str, ...]) -> Wheel:
    name, version = dist.metadata["Name"].replace("-", "_"), dist.version
    folder = f"{name}-{version}.dist-info"
    files = {path: content for package in packages for path, content in _modules(package)}
    files[f"{folder}/METADATA"] = (dist.read_text("METADATA") or f"Name: {name}\nVersion: {version}\n").encode()
    files[f"{folder}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: bulkexec\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{folder}/entry_points.txt"] = (dist.read_text("entry_points.txt") or "").encode()
    files[f"{folder}/RECORD"] = _record(files, folder)
    needs = tuple(each for each in dist.requires or () if "extra ==" not in each and _name(each) != "bulkexec")
    return Wheel(f"{name}-{version}-py3-none-any.whl", _zip(files), needs)


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def _modules(package: str) -> Iterator[tuple[str, bytes]]:
    """Path in the wheel and content of every file of an importable package or module."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(package)
    if not spec.submodule_search_locations:
        assert spec.origin is not None
        yield f"{package}.py", Path(spec.origin).read_bytes()
        return
    for root in map(Path, spec.submodule_search_locations):
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()


def _record(files: dict[str, bytes], folder: str) -> bytes:
    def line(path: str, content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(content)}\n"

    return ("".join(line(*item) for item in sorted(files.items())) + f"{folder}/RECORD,,\n").encode()


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path, ZIP_DATE), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
