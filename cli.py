"""Runs the command line from a checkout; a shim over `bulkexec.main`."""

from bulkexec.main import run

if __name__ == "__main__":
    run()
