"""Permissions: one table (`grants`), and all documents made from it."""

from bulkexec.iam.grants import GRANTS, NEEDS_NO_PERMISSION, ROLES, Grant, Role
from bulkexec.iam.policies import (
    SESSION_POLICY_CHARACTERS,
    Scope,
    document,
    grants_of,
    partition_of,
    policy,
    session_policy,
    trust_policy,
)

__all__ = [
    "GRANTS",
    "NEEDS_NO_PERMISSION",
    "ROLES",
    "SESSION_POLICY_CHARACTERS",
    "Grant",
    "Role",
    "Scope",
    "document",
    "grants_of",
    "partition_of",
    "policy",
    "session_policy",
    "trust_policy",
]
