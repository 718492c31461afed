"""`python -m bulkexec.sandbox` is `bulkexec sandbox`."""

from bulkexec.sandbox.cli import sandbox

sandbox(prog_name="bulkexec sandbox")
