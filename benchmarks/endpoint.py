"""The canned endpoint as a process: built, started on a free port, pinned to a core of its own, stopped."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pages

HERE = Path(__file__).parent
BUILD = HERE / "build"
STUB = BUILD / "stub_dynamodb"


@dataclass(frozen=True)
class Variant:
    """How the endpoint speaks."""

    tls: bool
    latency_ms: int

    def __str__(self) -> str:
        return f"{'TLS' if self.tls else 'plain'}, {self.latency_ms} ms"


VARIANTS = tuple(Variant(tls, latency_ms) for tls in (False, True) for latency_ms in (0, 5))


@dataclass(frozen=True)
class Endpoint:
    """Where a running stub answers. `certificate` is empty without TLS."""

    url: str
    certificate: str


def build() -> bool:
    """Compile the stub, make pages and a certificate; whether TLS is there."""
    BUILD.mkdir(exist_ok=True)
    subprocess.run(["make", "--silent", "-C", str(HERE)], check=True)
    pages.make(BUILD)
    refused = subprocess.run([STUB, BUILD, "0", "x", "x"], capture_output=True, check=False).returncode == 2
    if not refused:
        _make_certificate()
    return not refused


def _make_certificate() -> None:
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(BUILD / "key.pem"), "-out", str(BUILD / "certificate.pem")]
    subprocess.run(["openssl", "req", "-x509", *kind, *subject, *files], check=True, capture_output=True)


@contextmanager
def running(variant: Variant) -> Iterator[Endpoint]:
    """A stub for one variant."""
    certificate = str(BUILD / "certificate.pem") if variant.tls else ""
    more = [certificate, str(BUILD / "key.pem")] if variant.tls else []
    command = [str(STUB), str(BUILD), str(variant.latency_ms * 1000), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        _pin(process.pid)
        scheme = "https" if variant.tls else "http"
        yield Endpoint(f"{scheme}://localhost:{port}", certificate)
    finally:
        process.terminate()
        process.wait()


def _pin(stub: int) -> None:
    """With two cores or more: the stub on the last one, this process on the first."""
    cores = sorted(os.sched_getaffinity(stub))
    if len(cores) > 1:
        os.sched_setaffinity(stub, cores[-1:])
        os.sched_setaffinity(0, cores[:1])
