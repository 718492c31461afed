"""Credentials for the table that puts go to, where it is in another account than the one that is read."""

from typing import Any

import boto3
import botocore.session
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    Credentials,
    DeferredRefreshableCredentials,
)

from bulkexec import errors
from bulkexec.model import Table, Work
from bulkexec.plan import Options

ROLE_SESSION = "bulkexec"


def session_for(session: boto3.Session, table: Table, work: Work, options: Options) -> boto3.Session:
    """The session for one of a run's tables."""
    return target_session(session, options) if work.target is not None and table.arn == work.target.arn else session


def target_session(session: boto3.Session, options: Options) -> boto3.Session:
    """The session for the target: by a role that `session` assumes, by a profile, or else the same one.

    A role's credentials are fetched when they are first needed, and again before they expire.
    Raises `errors.BadArgument` where both are given.
    """
    if options.target_role and options.target_profile:
        raise errors.BadArgument(
            "--target-role and --target-profile both say whose credentials the target takes",
            fix="leave one of them out",
        )
    if options.target_role:
        return _assumed(session, options.target_role)
    if options.target_profile:
        there = boto3.Session(profile_name=options.target_profile)
        region = there.region_name or session.region_name
        return boto3.Session(profile_name=options.target_profile, region_name=region)
    return session


def _assumed(session: boto3.Session, role_arn: str) -> boto3.Session:
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=session.client,
        source_credentials=session.get_credentials(),
        role_arn=role_arn,
        extra_args={"RoleSessionName": ROLE_SESSION},
    )
    core = botocore.session.Session()
    # Ahead of everything else, so that the environment's credentials are not taken for the other account's.
    core.get_component("credential_provider").insert_before("env", _Provider(fetcher.fetch_credentials))
    return boto3.Session(botocore_session=core, region_name=session.region_name)


class _Provider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    METHOD = "bulkexec-assume-role"

    def __init__(self, fetch: Any) -> None:
        super().__init__()
        self._fetch = fetch

    def load(self) -> Credentials:
        """See `CredentialProvider.load`."""
        return DeferredRefreshableCredentials(refresh_using=self._fetch, method=self.METHOD)
