"""What a team says once about a table, so that options need not be repeated: `bulkexec.toml`."""

import os
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from bulkexec import errors

FILE_NAME = "bulkexec.toml"


@dataclass(frozen=True)
class Declarations:
    """What is known of a table beyond what DynamoDB says of it.

    `keys` are checked against the table's own. `version_field` counts the changes of an item, `created_at_field` is
    what `as_of` compares. Attributes whose names begin with `technical_prefix` are not shown to maps and stay as they
    are. `descriptor` is the typed or plain key of a row that is no item. `searchable` are the fields of `search`.
    `separator` stands between the parts of a sort key that is a path.
    """

    keys: tuple[str, ...] = ()
    version_field: str = ""
    created_at_field: str = ""
    technical_prefix: str = ""
    descriptor: dict[str, Any] | None = None
    searchable: tuple[str, ...] = ()
    separator: str = ""

    def overridden(self, **given: Any) -> "Declarations":
        """These, but what is given wins; None and empty values are not given."""
        return replace(self, **{name: value for name, value in given.items() if value})


NOTHING = Declarations()


def find_file() -> Path | None:
    """$BULKEXEC_CONFIG, else bulkexec.toml here or in a folder above, else none."""
    named = os.environ.get("BULKEXEC_CONFIG")
    if named:
        return Path(named)
    here = Path.cwd()
    return next((each / FILE_NAME for each in (here, *here.parents) if (each / FILE_NAME).is_file()), None)


def declared(table_name: str, path: Path | None) -> Declarations:
    """What the file says of a table, by name; nothing without a file. Raises `errors.BadArgument` for a faulty one.

    The file has a section for each table: `[tables.orders]`, `version_field = "-version"`.
    """
    if path is None:
        return NOTHING
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.BadArgument(
            f"{path.name} cannot be read: {error}", fix="mend it, or unset BULKEXEC_CONFIG"
        ) from error
    sections = content.get("tables", {})
    strange = sorted(set(content) - {"tables"})
    if strange or not isinstance(sections, dict) or not isinstance(sections.get(table_name, {}), dict):
        raise errors.BadArgument(
            f"{path.name} has {', '.join(strange) or 'a value where a section should be'}",
            fix="it has a section for each table: [tables.orders]",
        )
    mine = sections.get(table_name, {})
    known = {each.name for each in fields(Declarations)}
    unknown = sorted(set(mine) - known)
    if unknown:
        raise errors.BadArgument(
            f"{path.name} declares {', '.join(unknown)} for {table_name}, which is not known",
            fix=f"one of: {', '.join(sorted(known))}",
        )
    try:
        return msgspec.convert(mine, Declarations)
    except msgspec.ValidationError as error:
        raise errors.BadArgument(
            f"{path.name}, table {table_name}: {error}", fix="see docs/mass-operations.md, Declarations"
        ) from error
