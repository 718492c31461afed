"""Bulk operations on Amazon DynamoDB tables: planned, priced, rate-limited, resumable.

`from bulkexec import Table` is the Python API; `bulkexec --help` the command line.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bulkexec import maps as maps
    from bulkexec.cursor import decode_cursor as decode_cursor
    from bulkexec.results import MassOpResult as MassOpResult
    from bulkexec.table import Table as Table

__version__ = "0.1.0"

__all__ = ["MassOpResult", "Table", "__version__", "decode_cursor", "maps"]

_HOMES = {"Table": "bulkexec.table", "MassOpResult": "bulkexec.results", "decode_cursor": "bulkexec.cursor"}


def __getattr__(name: str) -> Any:
    """The public names, imported when they are asked for: the command line starts without most of them."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "maps":
        return import_module("bulkexec.maps")
    raise AttributeError(f"module 'bulkexec' has no attribute {name!r}")
