"""What a mass operation gives back. See README, The Python API."""

from dataclasses import dataclass, field
from typing import Any, TypedDict

from bulkexec.codec import value_from_python


class FailedItem(TypedDict):
    """An item that was not written: its key as Python values, a word for the reason, and a sentence."""

    key: dict[str, Any]
    reason: str
    details: str


class ConflictItem(TypedDict):
    """An item that somebody else changed after it was read; give the key to `edit_by_keys` to do it again."""

    key: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class MassOpResult:
    """What one call did. scanned-and-matched = processed + skipped + len(failed) + len(conflicts).

    `processed` are writes that DynamoDB acknowledged. `cursor` is there only when the run stopped before its end: call
    again with `resume_token=cursor`. Units are as DynamoDB metered them. `matched` items were found, in `scanned` ones.
    """

    processed: int = 0
    skipped: int = 0
    failed: list[FailedItem] = field(default_factory=list)
    conflicts: list[ConflictItem] = field(default_factory=list)
    cursor: str | None = None
    scanned: int = 0
    matched: int = 0
    read_units: float = 0.0
    write_units: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The result in what JSON can hold, keys as DynamoDB-typed JSON; for the answer of a Lambda function."""
        plain = {name: getattr(self, name) for name in ("processed", "skipped", "cursor", "scanned", "matched")}
        plain |= {"read_units": self.read_units, "write_units": self.write_units}
        return plain | {
            name: [
                {**each, "key": {part: value_from_python(value) for part, value in each["key"].items()}}
                for each in many
            ]
            for name, many in (("failed", self.failed), ("conflicts", self.conflicts))
        }

    def __add__(self, other: "MassOpResult") -> "MassOpResult":
        """Both calls together; the cursor is that of the later one."""
        return MassOpResult(
            self.processed + other.processed,
            self.skipped + other.skipped,
            self.failed + other.failed,
            self.conflicts + other.conflicts,
            other.cursor,
            self.scanned + other.scanned,
            self.matched + other.matched,
            self.read_units + other.read_units,
            self.write_units + other.write_units,
        )
