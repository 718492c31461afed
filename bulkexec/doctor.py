"""`doctor`: everything that a job needs, looked at one by one."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import boto3

from bulkexec.runtimes.steps import open_site

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """What was found about one thing, and what to do about it (`fix`)."""

    check: str
    state: State
    text: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """For programs."""
        return asdict(self)


def examine(session: boto3.Session, table: str | None) -> Iterator[Finding]:
    """All checks, in the order in which one needs the other."""
    site = open_site(session)
    yield Finding("region", "ok", f"{site.region} ({site.partition})")
