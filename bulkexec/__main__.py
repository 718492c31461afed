"""`python -m bulkexec`."""

from bulkexec.main import run

run()
