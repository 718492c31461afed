"""HTTP/1.1 over kept-alive sockets: one POST and its answer, as bytes.

urllib3 spends more on a request than DynamoDB's 25 items in it cost otherwise; this does the little that one endpoint
of one JSON service needs. What is promised instead is exactness about loss: `NotSent` means that the service cannot
have acted on the request, `Lost` that it may have.
"""

import binascii
import select
import socket
import ssl
import struct
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 20.0
IDLE_SECONDS = 60.0
"""Idle connections older than this are not used again: NAT gateways forget them silently (after 350 s on AWS)."""

FRESH_SECONDS = 0.05
"""A connection idle for less is taken as it is: looking at it first costs as much as signing a request, and servers
close connections that have been idle for long."""

RECEIVE_BYTES = 16 * 1024
"""One TLS record, and more than most answers."""
HEAD_LIMIT_BYTES = 64 * 1024


class TransportError(Exception):
    """There is no usable answer."""


class NotSent(TransportError):
    """The request did not reach the service whole, so it had no effect."""


class Lost(TransportError):
    """The request was sent and no whole answer came; it may have had its effect."""


class Damaged(TransportError):
    """The answer's CRC32 is not that of its body; the request may have had its effect."""


class Answer(NamedTuple):
    """An HTTP answer. `content` is decompressed."""

    status: int
    content: bytes


class Transport:
    """A pool of connections to one URL. Safe for threads; each request has a connection to itself.

    `ca_bundle` is a file of certificates, None the system's. With `gzip` the service is asked to compress its answers,
    which costs CPU and pays only where the network is the limit.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_bundle: str | None = None,
        gzip: bool = False,
        connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
        read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
        idle_connections: int = 32,
    ) -> None:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        self._address = parts.hostname or "", parts.port or (443 if tls else 80)
        self._tls = ssl.create_default_context(cafile=ca_bundle) if tls else None
        self._timeouts = connect_timeout_seconds, read_timeout_seconds
        encoding = "gzip" if gzip else "identity"
        self._fixed = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: bulkexec\r\n"
            f"Accept-Encoding: {encoding}\r\n"
        )
        self._idle: deque[_Connection] = deque()
        self._idle_limit = idle_connections
        self.close = weakref.finalize(self, _close_all, self._idle)

    def post(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a POST of `body`, whatever its status. Raises `NotSent`, `Lost` or `Damaged`."""
        return self.begin(headers, body)()

    def begin(self, headers: Mapping[str, str], body: bytes) -> Callable[[], Answer]:
        """Send a POST without waiting for its answer, which is what the function gives; it raises as `post` does.

        Call it once, from any thread: until then the connection is taken.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        data = f"{self._fixed}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            connection = self._sent(data)
        except NotSent as error:
            return partial(_raise, error)
        return partial(self._answer, connection)

    def _answer(self, connection: "_Connection") -> Answer:
        try:
            answer = _receive(connection)
        except (TimeoutError, BlockingIOError) as error:
            connection.close()
            raise Lost(f"no answer from {self._address[0]} within {self._timeouts[1]:g} s") from error
        except (OSError, ValueError) as error:
            connection.close()
            raise Lost(f"no answer from {self._address[0]}: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return answer

    def _sent(self, data: bytes) -> "_Connection":
        """A connection that has taken the whole request."""
        used = self._idle_connection()
        if used is not None and used.take(data):
            return used
        # A kept connection that did not take the whole request was closed; nothing came of it, so once more.
        fresh = self._connect()
        if not fresh.take(data):
            raise NotSent(f"{self._address[0]} closed the connection before it had the request")
        return fresh

    def _idle_connection(self) -> "_Connection | None":
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not connection.stale():
                return connection
            connection.close()

    def _give_back(self, connection: "_Connection") -> None:
        if connection.reusable and not connection.unread and len(self._idle) < self._idle_limit:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()

    def _connect(self) -> "_Connection":
        connect_seconds, read_seconds = self._timeouts
        try:
            plain = socket.create_connection(self._address, connect_seconds)
        except OSError as error:
            raise NotSent(f"cannot connect to {self._address[0]} port {self._address[1]}: {error}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected = self._tls.wrap_socket(plain, server_hostname=self._address[0]) if self._tls else plain
        except OSError as error:
            plain.close()
            raise NotSent(f"cannot connect to {self._address[0]} with TLS: {error}") from error
        _limit_wait(connected, read_seconds)
        return _Connection(connected)


def _raise(error: TransportError) -> NoReturn:
    raise error


def _limit_wait(connected: socket.socket, seconds: float) -> None:
    """Let no send or receive wait for longer. Raises TimeoutError or BlockingIOError then.

    A timeout of Python's costs a poll before every call; the kernel's is free, but TLS would wait on in spite of it.
    """
    if isinstance(connected, ssl.SSLSocket):
        connected.settimeout(seconds)
        return
    whole, fraction = divmod(seconds, 1)
    connected.settimeout(None)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", int(whole), int(fraction * 1_000_000)))


def _close_all(connections: "deque[_Connection]") -> None:
    while connections:
        connections.pop().close()


class _Connection:
    """A connected socket and what was received from it but not yet read. One thread at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._buffer = connected, b""
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self.idle_since = 0.0
        self.reusable = True

    def stale(self) -> bool:
        """Whether an idle connection cannot be used again. One that is readable was closed by the server."""
        idle_seconds = time.monotonic() - self.idle_since
        if idle_seconds < FRESH_SECONDS:
            return False
        return idle_seconds > IDLE_SECONDS or bool(self._poll.poll(0))

    @property
    def unread(self) -> bool:
        """Whether there is more than the answers that were asked for."""
        return bool(self._buffer)

    def take(self, data: bytes) -> bool:
        """Send all of it; False, and closed, when the socket would not take all."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.close()
            return False
        return True

    def until(self, mark: bytes) -> bytes:
        """What comes before the next `mark`, which is read too."""
        while (end := self._buffer.find(mark)) < 0:
            if len(self._buffer) > HEAD_LIMIT_BYTES:
                raise ValueError("the answer's head has no end")
            self._buffer += self._some()
        found, self._buffer = self._buffer[:end], self._buffer[end + len(mark) :]
        return found

    def exactly(self, length: int) -> bytes:
        """The next `length` bytes."""
        if length <= len(self._buffer):
            found, self._buffer = self._buffer[:length], self._buffer[length:]
            return found
        # BytesIO gives its memory for reading into, and then away as bytes: a page is never copied.
        store = BytesIO(bytes(length))
        with store.getbuffer() as view:
            at = len(self._buffer)
            view[:at] = self._buffer
            while at < length:
                received = self._socket.recv_into(view[at:])
                if not received:
                    raise ConnectionResetError("the connection was closed within an answer")
                at += received
        self._buffer = b""
        return store.getvalue()

    def rest(self) -> bytes:
        """Everything until the server closes."""
        parts, self._buffer = [self._buffer], b""
        while part := self._socket.recv(RECEIVE_BYTES):
            parts.append(part)
        return b"".join(parts)

    def _some(self) -> bytes:
        part = self._socket.recv(RECEIVE_BYTES)
        if not part:
            raise ConnectionResetError("the connection was closed before the answer")
        return part

    def close(self) -> None:
        self._socket.close()


def _receive(connection: _Connection) -> Answer:
    """Read one answer; sets `reusable` of the connection. Raises OSError, ValueError, or Damaged."""
    head = _Head(connection.until(b"\r\n\r\n"))
    while 100 <= head.status < 200:  # an interim answer, e.g. 100 Continue; the real one follows
        head = _Head(connection.until(b"\r\n\r\n"))
    connection.reusable = head.keeps_connection
    content = _content(connection, head)
    expected = head.field(b"x-amz-crc32")
    # The checksum is of the bytes as sent, compressed or not:
    # https://pkg.go.dev/github.com/aws/aws-sdk-go-v2/service/dynamodb/internal/customizations
    if expected and int(expected) != binascii.crc32(content):
        raise Damaged("the answer's CRC32 does not match its body")
    if head.field(b"content-encoding") == b"gzip":
        content = _unzipped(content)
    return Answer(head.status, content)


class _Head:
    """Status line and header fields. Fields are looked for, not parsed: five of a dozen are ever asked for."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1."):
            raise ValueError("the answer is not HTTP/1.1")
        self.status = int(data[9:12])
        self._lower = data.lower() + b"\r\n"

    def field(self, name: bytes) -> bytes:
        """The value of a field in lower case, empty if there is none."""
        found = self._lower.find(b"\r\n" + name + b":")
        if found < 0:
            return b""
        begin = found + len(name) + 3
        return self._lower[begin : self._lower.index(b"\r\n", begin)].strip()

    @property
    def keeps_connection(self) -> bool:
        """HTTP/1.1 keeps a connection unless it says "close", HTTP/1.0 only if it says "keep-alive"."""
        said = self.field(b"connection")
        return said == b"keep-alive" if self._lower.startswith(b"http/1.0") else said != b"close"


def _content(connection: _Connection, head: _Head) -> bytes:
    length = head.field(b"content-length")
    if head.field(b"transfer-encoding") == b"chunked":
        return _chunks(connection)
    if length:
        return connection.exactly(int(length))
    connection.reusable = False
    return connection.rest()


def _chunks(connection: _Connection) -> bytes:
    """RFC 9112, section 7.1: sizes in hexadecimal, extensions and trailers are ignored."""
    parts = []
    while size := int(connection.until(b"\r\n").partition(b";")[0], 16):
        parts.append(connection.exactly(size))
        if connection.exactly(2) != b"\r\n":
            raise ValueError("a chunk is longer than it says")
    while connection.until(b"\r\n"):
        pass
    return b"".join(parts)


def _unzipped(content: bytes) -> bytes:
    try:
        return zlib.decompress(content, wbits=31)  # 31: with a gzip header
    except zlib.error as error:
        raise ValueError(f"the answer is not gzip: {error}") from error
