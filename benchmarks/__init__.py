"""What bulkexec costs, measured: `python -m benchmarks`."""
