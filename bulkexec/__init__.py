"""Bulk operations on Amazon DynamoDB tables: planned, priced, rate-limited, resumable."""

__version__ = "0.1.0"
