"""Signature Version 4 for the DynamoDB JSON protocol.

botocore's signer canonicalises every header and query again for every request; of a DynamoDB request only the body
changes within a second. What is constant is hashed once a second and operation, then copied. Same signature.
"""

import hashlib
import hmac
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Credentials(NamedTuple):
    """What signs a request; `token` is empty for long-term keys."""

    access_key: str
    secret_key: str
    token: str = ""


@dataclass(frozen=True)
class _Second:
    """All that stays the same for one second: stamp, scope, key and the hashed head of each operation's request.

    The key is kept as the two hashes that HMAC begins with (RFC 2104, section 4): half the work of `hmac.digest`.
    """

    credentials: Credentials
    stamp: str
    scope: str
    inner: "hashlib._Hash"
    outer: "hashlib._Hash"
    heads: "dict[str, tuple[hashlib._Hash, dict[str, str]]]"


class Signer:
    """Signs requests of one service endpoint. Thread-safe.

    `credentials()` is asked once a second, so refreshed keys are picked up without a restart.
    """

    def __init__(
        self,
        host: str,
        region: str,
        credentials: Callable[[], Credentials],
        now: Callable[[], float] = time.time,
        service: str = "dynamodb",
    ) -> None:
        self._host, self._region, self._service = host, region, service
        self._credentials, self._now = credentials, now
        self._lock = threading.Lock()
        self._second_number, self._second = -1, None  # type: tuple[int, _Second | None]

    def headers(self, operation: str, body: bytes) -> dict[str, str]:
        """All headers of the request for `operation` ("Scan") with this body, Authorization included."""
        second = self._current()
        digest, fixed = second.heads.get(operation) or self._head(second, operation)
        canonical = digest.copy()
        canonical.update(hashlib.sha256(body).hexdigest().encode())
        to_sign = f"AWS4-HMAC-SHA256\n{second.stamp}\n{second.scope}\n{canonical.hexdigest()}"
        inner, outer = second.inner.copy(), second.outer.copy()
        inner.update(to_sign.encode())
        outer.update(inner.digest())
        return {**fixed, "Authorization": fixed["Authorization"] + outer.hexdigest()}

    def forget(self) -> None:
        """Ask for credentials again at the next request (after the service called them expired)."""
        with self._lock:
            self._second_number = -1

    def _current(self) -> _Second:
        number = int(self._now())
        with self._lock:
            if number != self._second_number or self._second is None:
                self._second, self._second_number = self._begin(number), number
            return self._second

    def _begin(self, number: int) -> _Second:
        credentials = self._credentials()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(number))
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        key = ("AWS4" + credentials.secret_key).encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        padded = key.ljust(hashlib.sha256().block_size, b"\0")
        inner, outer = (hashlib.sha256(bytes([byte ^ mask for byte in padded])) for mask in (0x36, 0x5C))
        return _Second(credentials, stamp, scope, inner, outer, {})

    def _head(self, second: _Second, operation: str) -> "tuple[hashlib._Hash, dict[str, str]]":
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Date": second.stamp,
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        }
        if second.credentials.token:
            headers["X-Amz-Security-Token"] = second.credentials.token
        signed = {name.lower(): value for name, value in headers.items()} | {"host": self._host}
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        digest = hashlib.sha256(f"POST\n/\n\n{lines}\n{names}\n".encode())
        credential = f"{second.credentials.access_key}/{second.scope}"
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature="
        second.heads[operation] = digest, headers
        return digest, headers
