"""What a job runs on. What a version of Glue brings is not documented to the last library, so each run says it."""

import platform
from importlib import metadata

LIBRARIES = ("pyarrow", "pandas", "numpy", "boto3", "msgspec")


def versions(spark: str) -> str:
    """ "Spark 3.5.6, Python 3.11.7, pyarrow 22.0.0, ..."; a library that is not there is named all the same."""
    libraries = ", ".join(f"{name} {_version(name)}" for name in LIBRARIES)
    return f"Spark {spark}, Python {platform.python_version()}, {libraries}"


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not there"
