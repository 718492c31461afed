"""The cached signer gives what botocore's signer gives."""

from datetime import UTC, datetime

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotocoreCredentials
from hypothesis import given
from hypothesis import strategies as st

from bulkexec.sigv4 import Credentials, Signer

HOST, REGION = "dynamodb.eu-central-1.amazonaws.com", "eu-central-1"
OPERATIONS = ("Scan", "Query", "BatchWriteItem", "BatchExecuteStatement", "UpdateItem", "GetItem")
SECOND = 1_796_000_000
TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)


def botocore_signature(operation: str, body: bytes, credentials: Credentials, second: int) -> str:
    """botocore's Authorization for the same request at the same time."""
    request = AWSRequest("POST", f"https://{HOST}/", data=body)
    request.headers["Content-Type"] = "application/x-amz-json-1.0"
    request.headers["X-Amz-Target"] = f"DynamoDB_20120810.{operation}"
    keys = BotocoreCredentials(credentials.access_key, credentials.secret_key, credentials.token or None)
    signer = SigV4Auth(keys, "dynamodb", REGION)
    with pytest.MonkeyPatch.context() as patch:
        # botocore offers no other way to sign at a chosen time.
        patch.setattr(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(second, UTC))
        signer.add_auth(request)
    authorization: str = request.headers["Authorization"]
    return authorization


@given(
    operation=st.sampled_from(OPERATIONS),
    body=st.binary(max_size=2000),
    secret=TEXT,
    token=st.one_of(st.just(""), TEXT),
    second=st.integers(1_000_000_000, 4_000_000_000),
)
def test_signature_is_that_of_botocore(operation: str, body: bytes, secret: str, token: str, second: int) -> None:
    credentials = Credentials("AKIDEXAMPLE", secret, token)
    headers = Signer(HOST, REGION, lambda: credentials, now=lambda: second).headers(operation, body)
    assert headers["Authorization"] == botocore_signature(operation, body, credentials, second)
    assert headers.get("X-Amz-Security-Token", "") == token


@given(bodies=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.binary(max_size=200)), min_size=2, max_size=8))
def test_signatures_within_a_second_do_not_depend_on_one_another(bodies: list[tuple[str, bytes]]) -> None:
    credentials = Credentials("AKIDEXAMPLE", "secret", "token")
    signer = Signer(HOST, REGION, lambda: credentials, now=lambda: SECOND + 0.25)
    for operation, body in bodies:
        signed = signer.headers(operation, body)["Authorization"]
        assert signed == botocore_signature(operation, body, credentials, SECOND)


def test_refreshed_credentials_sign_from_the_next_second_on() -> None:
    now, current = [float(SECOND)], [Credentials("OLD", "old")]
    signer = Signer(HOST, REGION, lambda: current[0], now=lambda: now[0])
    signer.headers("Scan", b"{}")
    current[0] = Credentials("NEW", "new", "token")
    assert "Credential=OLD/" in signer.headers("Scan", b"{}")["Authorization"]
    now[0] += 1
    signed = signer.headers("Scan", b"{}")["Authorization"]
    assert signed == botocore_signature("Scan", b"{}", current[0], SECOND + 1)


def test_forgotten_credentials_are_asked_for_at_once() -> None:
    current = [Credentials("OLD", "old")]
    signer = Signer(HOST, REGION, lambda: current[0], now=lambda: SECOND)
    signer.headers("Scan", b"{}")
    current[0] = Credentials("NEW", "new")
    signer.forget()
    assert "Credential=NEW/" in signer.headers("Scan", b"{}")["Authorization"]
