"""The least that any client must do for a case: send the same bytes, receive the answers, look at nothing.

What one page of a case sends is recorded from bulkexec's own run, then played again on bare sockets.
"""

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from benchmarks.boto3_way import Over
from benchmarks.cases import Case
from benchmarks.endpoint import Endpoint
from benchmarks.pages import ITEMS_A_PAGE
from bulkexec.engine import run_segments
from bulkexec.wire import Answering, Wire

BUFFER_BYTES = 2 << 20


@dataclass
class Recorder:
    """A wire that keeps what went over it."""

    wire: Wire
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    def begin(self, operation: str, body: bytes) -> Answering:
        """See `Wire.begin`."""
        return partial(self.call, operation, body)

    def call(self, operation: str, body: bytes) -> bytes:
        """See `Wire.call`."""
        self.sent.append((operation, body))
        return self.wire.call(operation, body)


def requests_of_a_page(case: Case, wire: Wire) -> list[bytes]:
    """Whole HTTP requests, unsigned: the read of a page and all its writes."""
    recorder = Recorder(wire)
    run = case.run(recorder, over=lambda: any(operation == "Scan" for operation, _ in recorder.sent))
    run_segments(run, [0])
    return [_request(operation, body) for operation, body in recorder.sent]


def _request(operation: str, body: bytes) -> bytes:
    target = f"X-Amz-Target: DynamoDB_20120810.{operation}\r\n"
    return f"POST / HTTP/1.1\r\nHost: localhost\r\n{target}Content-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def connected(endpoint: Endpoint, threads: int) -> Iterator[list[socket.socket]]:
    """Open connections, one a thread; bulkexec's are open before it is measured, too."""
    with ExitStack() as stack:
        yield [stack.enter_context(_connect(endpoint)) for _ in range(threads)]


def replay(connections: list[socket.socket], requests: list[bytes], over: Over) -> int:
    """Play a page's requests again and again on all connections until `over()`; gives the number of items."""
    with ThreadPoolExecutor(len(connections)) as threads:
        return sum(threads.map(lambda connection: _replay(connection, requests, over), connections)) * ITEMS_A_PAGE


def _replay(connection: socket.socket, requests: list[bytes], over: Over) -> int:
    pages, buffer = 0, memoryview(bytearray(BUFFER_BYTES))
    while not over():
        for request in requests:
            connection.sendall(request)
            _receive(connection, buffer)
        pages += 1
    return pages


def _connect(endpoint: Endpoint) -> socket.socket:
    url = urlsplit(endpoint.url)
    assert url.hostname
    assert url.port
    connection = socket.create_connection((url.hostname, url.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=endpoint.certificate)
        return context.wrap_socket(connection, server_hostname=url.hostname)
    return connection


def _receive(connection: socket.socket, buffer: memoryview) -> None:
    at = connection.recv_into(buffer)
    head = bytes(buffer[:512])
    begin = head.index(b"Content-Length: ") + 16
    length = int(head[begin : head.index(b"\r", begin)]) + head.index(b"\r\n\r\n") + 4
    while at < length:
        received = connection.recv_into(buffer[at:])
        if not received:
            raise ConnectionError("the stub closed the connection")
        at += received
