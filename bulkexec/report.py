"""What came of a job: the only thing that comes back from one."""

from dataclasses import dataclass
from typing import Literal

import msgspec

from bulkexec.model import Counts, Failure

Status = Literal["finished", "failed", "cancelled", "capped", "dry-run"]

EXIT_CODES: dict[str, int] = {"finished": 0, "dry-run": 0, "failed": 1, "capped": 4, "cancelled": 130}


@dataclass(frozen=True)
class Report:
    """What came of a job, cumulative over its runs. Only this comes back from one.

    `results` is the folder of the rows, `folder` that of the job's plan, report and lists of skipped and failed keys.
    """

    job_id: str
    command: str
    table: str
    status: Status
    counts: Counts
    duration_seconds: float
    estimated_cost_usd: float | None = None
    metered_cost_usd: float | None = None
    cursor: str | None = None
    results: str | None = None
    folder: str | None = None
    failures: tuple[Failure, ...] = ()
    conflict_keys: tuple[Failure, ...] = ()
    preview: tuple[str, ...] = ()
    error: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 finished, 1 failed, 3 finished with failed items or conflicts, 4 capped, 130 cancelled."""
        if self.status in ("finished", "dry-run") and (self.counts.failed or self.counts.conflicts):
            return 3
        return EXIT_CODES[self.status]

    def to_json(self) -> bytes:
        """The report as one flat JSON object."""
        counts = msgspec.to_builtins(self.counts)
        whole = msgspec.to_builtins(self)
        del whole["counts"]
        return msgspec.json.format(msgspec.json.encode({**whole, **counts, "exit_code": self.exit_code}), indent=2)

    @staticmethod
    def from_json(data: bytes) -> "Report":
        """The inverse of `to_json`."""
        flat = msgspec.json.decode(data)
        return msgspec.convert({**flat, "counts": msgspec.convert(flat, Counts)}, Report)
