"""The transport against real sockets: a server of a few lines that does exactly what a test tells it to."""

import binascii
import gzip
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bulkexec import transport
from bulkexec.transport import Damaged, Lost, NotSent, Transport

BODY = b'{"TableName":"t"}'
Script = Callable[[socket.socket], None]


def answer(content: bytes, *fields: str, status: str = "200 OK", crc: int | None = None) -> bytes:
    """An answer as DynamoDB's look."""
    checksum = binascii.crc32(content) if crc is None else crc
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", f"x-amz-crc32: {checksum}", *fields)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def read_request(connected: socket.socket) -> bytes:
    """One whole request; empty when the client has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connected.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    rest = bytearray(body)
    while len(rest) < length:
        rest += connected.recv(65536)
    return head + b"\r\n\r\n" + rest


def reset(connected: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


class Server:
    """Runs the next script on each connection it accepts, the last one again and again."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self._scripts, self._tls = scripts, tls
        self._listener = socket.create_server(("localhost", 0))
        self.connections = 0
        self.requests: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://localhost:{self._listener.getsockname()[1]}/"

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(script, connected)))
            self._threads[-1].start()

    def _serve(self, script: Script, connected: socket.socket) -> None:
        with closing(connected):
            try:
                with self._tls.wrap_socket(connected, server_side=True) if self._tls else connected as spoken:
                    script(spoken)
            except OSError:
                return  # the client went away, as some tests want it to

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


def always(*parts: bytes) -> Script:
    """Answers every request with these parts, each in a packet of its own."""

    def script(connected: socket.socket) -> None:
        while read_request(connected):
            for part in parts:
                connected.sendall(part)

    return script


def once(end: Callable[[socket.socket], None], *parts: bytes) -> Script:
    """Answers one request with these parts, then ends the connection that way."""

    def script(connected: socket.socket) -> None:
        read_request(connected)
        for part in parts:
            connected.sendall(part)
        end(connected)

    return script


@contextmanager
def served(*scripts: Script, tls: ssl.SSLContext | None = None, **more: object) -> Iterator[tuple[Server, Transport]]:
    """A server and a transport to it."""
    server = Server(*scripts, tls=tls)
    client = Transport(server.url, **more)  # type: ignore[arg-type]
    try:
        yield server, client
    finally:
        client.close()
        server.close()


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """The same bytes in pieces."""
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


def chunked(content: bytes, cuts: list[int]) -> bytes:
    """The content in chunks, with an extension and a trailer that mean nothing to us."""
    chunks = b"".join(b"%x;name=value\r\n%b\r\n" % (len(part), part) for part in split(content, cuts) if part)
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Amz-Crc32: {binascii.crc32(content)}\r\n\r\n".encode()
    return head + chunks + b"0\r\nTrailer: x\r\n\r\n"


CUTS = st.lists(st.integers(0, 200_000), max_size=6)


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=100_000), cuts=CUTS, chunks=CUTS, form=st.sampled_from(["whole", "chunked", "gzip"]))
def test_however_an_answer_arrives_its_content_is_the_same(
    content: bytes, cuts: list[int], chunks: list[int], form: str
) -> None:
    if form == "chunked":
        data = chunked(content, chunks)
    elif form == "gzip":
        data = answer(gzip.compress(content), "Content-Encoding: gzip")
    else:
        data = answer(content)
    with served(always(*split(data, cuts))) as (server, client):
        for _ in range(2):
            assert client.post({"X-Amz-Target": "Scan"}, BODY) == (200, content)
        assert server.connections == 1


def test_the_request_is_whole_and_signed_headers_are_as_given() -> None:
    seen: list[bytes] = []

    def script(connected: socket.socket) -> None:
        seen.append(read_request(connected))
        connected.sendall(answer(b"{}"))

    with served(script) as (server, client):
        url = server.url
        client.post({"X-Amz-Target": "DynamoDB_20120810.Scan", "Authorization": "AWS4 x"}, BODY)
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert body == BODY
    assert lines[0] == "POST / HTTP/1.1"
    assert {
        f"Host: {urlsplit(url).netloc}",
        "X-Amz-Target: DynamoDB_20120810.Scan",
        "Authorization: AWS4 x",
        "Content-Length: 17",
    } <= set(lines)


def test_an_error_answer_is_an_answer() -> None:
    with served(always(answer(b'{"__type":"x#Y"}', status="400 Bad Request"))) as (_, client):
        assert client.post({}, BODY) == (400, b'{"__type":"x#Y"}')


def test_interim_answers_are_passed_over() -> None:
    with served(always(b"HTTP/1.1 100 Continue\r\n\r\n", answer(b"{}"))) as (_, client):
        assert client.post({}, BODY).status == 200


@pytest.mark.parametrize("end", [socket.socket.close, reset], ids=["closed", "reset"])
@pytest.mark.parametrize(
    "parts",
    [(), (b"HTTP/1.1 200",), (answer(b"x" * 50_000)[:-1],), (chunked(b"x" * 9, [])[:-4],)],
    ids=["before the answer", "within the head", "within the body", "within a chunk"],
)
def test_a_connection_that_ends_before_the_answer_does_is_lost(
    parts: tuple[bytes, ...], end: Callable[[socket.socket], None]
) -> None:
    with served(once(end, *parts), always(answer(b"{}"))) as (server, client):
        with pytest.raises(Lost):
            client.post({}, BODY)
        assert client.post({}, BODY).content == b"{}"
        assert server.connections == 2


def test_a_connection_kept_alive_and_closed_meanwhile_is_replaced_without_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "FRESH_SECONDS", 0.0)
    closed = threading.Event()

    def end(connected: socket.socket) -> None:
        connected.close()
        closed.set()

    with served(once(end, answer(b"1")), always(answer(b"2"))) as (server, client):
        assert client.post({}, BODY).content == b"1"
        assert closed.wait(5)
        time.sleep(0.05)
        assert client.post({}, BODY).content == b"2"
        assert server.connections == 2


def test_a_request_that_a_kept_connection_did_not_take_whole_is_sent_again() -> None:
    """The peer is gone, which shows only while a long request is being sent: it cannot have been acted on."""
    requests: list[bytes] = []

    def first(connected: socket.socket) -> None:
        read_request(connected)
        connected.sendall(answer(b"1"))
        connected.recv(1)  # the next request begins, and nobody reads on
        reset(connected)

    def second(connected: socket.socket) -> None:
        requests.append(read_request(connected))
        connected.sendall(answer(b"2"))

    long = b"x" * (32 << 20)  # more than the kernel's buffers take
    with served(first, second) as (server, client):
        assert client.post({}, BODY).content == b"1"
        assert client.post({}, long).content == b"2"
        assert server.connections == 2
    assert len(requests) == 1
    assert requests[0].endswith(long)


def test_a_request_that_was_sent_whole_is_never_sent_again() -> None:
    seen: list[bytes] = []

    def script(connected: socket.socket) -> None:
        seen.append(read_request(connected))
        connected.sendall(answer(b"1"))
        seen.append(read_request(connected))
        reset(connected)

    with served(script) as (_, client):
        client.post({}, BODY)
        with pytest.raises(Lost):
            client.post({}, BODY)
    assert len(seen) == 2


@pytest.mark.parametrize("said", ["Connection: close", "connection:CLOSE"])
def test_a_connection_that_the_server_gives_up_is_not_used_again(said: str) -> None:
    with served(always(answer(b"{}", said))) as (server, client):
        client.post({}, BODY)
        client.post({}, BODY)
        assert server.connections == 2


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    with served(once(socket.socket.close, b"HTTP/1.0 200 OK\r\n\r\n", b"{", b"}")) as (server, client):
        assert client.post({}, BODY).content == b"{}"
        assert client.post({}, BODY).content == b"{}"
        assert server.connections == 2


def test_bytes_behind_an_answer_are_not_taken_for_the_next_one() -> None:
    with served(always(answer(b"{}") + b"HTTP/1.1 200 OK\r\n"), always(answer(b"2"))) as (server, client):
        assert client.post({}, BODY).content == b"{}"
        assert client.post({}, BODY).content == b"2"
        assert server.connections == 2


def test_a_checksum_that_does_not_match_is_damage() -> None:
    with served(always(answer(b"{}", crc=1))) as (_, client), pytest.raises(Damaged):
        client.post({}, BODY)


@pytest.mark.parametrize(
    "data",
    [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"y" * 70_000],
    ids=["another protocol", "status", "length", "endless head"],
)
def test_what_is_not_an_answer_is_lost(data: bytes) -> None:
    with served(once(socket.socket.close, data)) as (_, client), pytest.raises(Lost):
        client.post({}, BODY)


def test_what_claims_to_be_gzip_and_is_not_is_lost() -> None:
    with served(always(answer(b"{}", "Content-Encoding: gzip"))) as (_, client), pytest.raises(Lost):
        client.post({}, BODY)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_silent_server_is_given_up_after_the_read_timeout(
    tls: bool, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    released = threading.Event()

    def script(connected: socket.socket) -> None:
        read_request(connected)
        released.wait(10)

    bundle, context = str(certificate[0]), certificate[1] if tls else None
    with served(script, tls=context, ca_bundle=bundle, read_timeout_seconds=0.2) as (_, client):
        began = time.monotonic()
        with pytest.raises(Lost, match=r"within 0\.2 s"):
            client.post({}, BODY)
        released.set()
        assert 0.1 < time.monotonic() - began < 5


def test_a_port_nobody_listens_on_is_not_sent() -> None:
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotSent, match=f"localhost port {port}"):
        Transport(f"http://localhost:{port}/").post({}, BODY)


def test_threads_have_connections_to_themselves() -> None:
    def script(connected: socket.socket) -> None:
        while request := read_request(connected):
            connected.sendall(answer(request.rpartition(b"\r\n\r\n")[2]))

    wrong: list[bytes] = []
    with served(script, idle_connections=4) as (server, client):

        def work(number: int) -> None:
            for turn in range(50):
                body = b"%d/%d" % (number, turn)
                got = client.post({}, body).content
                if got != body:
                    wrong.append(got)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert server.connections <= 50  # kept, where the pool has room


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate of its own authority for localhost, and a server's context with it."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def test_tls_with_an_authority_of_its_own(certificate: tuple[Path, ssl.SSLContext]) -> None:
    bundle, context = certificate
    content = bytes(range(256)) * 4000
    with served(always(*split(answer(content), [5, 40_000])), tls=context, ca_bundle=str(bundle)) as (server, client):
        for _ in range(3):
            assert client.post({}, BODY).content == content
        assert server.connections == 1


def test_tls_kept_alive_and_closed_meanwhile_is_replaced(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FRESH_SECONDS", 0.0)
    bundle, context = certificate
    scripts = once(socket.socket.close, answer(b"1")), always(answer(b"2"))
    with served(*scripts, tls=context, ca_bundle=str(bundle)) as (server, client):
        assert client.post({}, BODY).content == b"1"
        time.sleep(0.2)
        assert client.post({}, BODY).content == b"2"
        assert server.connections == 2


def test_a_certificate_that_is_not_trusted_gets_no_request(certificate: tuple[Path, ssl.SSLContext]) -> None:
    served_requests: list[bytes] = []

    def script(connected: socket.socket) -> None:
        served_requests.append(read_request(connected))

    with served(script, tls=certificate[1]) as (_, client), pytest.raises(NotSent, match="certificate"):
        client.post({}, BODY)
    assert not served_requests


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_requests_that_were_begun_together_have_their_own_answers(
    tls: bool, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    bundle, context = certificate

    def echo(connected: socket.socket) -> None:
        while request := read_request(connected):
            connected.sendall(answer(request.partition(b"\r\n\r\n")[2]))

    more = {"tls": context, "ca_bundle": str(bundle)} if tls else {}
    with served(echo, **more) as (server, client):  # type: ignore[arg-type]
        for _ in range(3):
            begun = [(body, client.begin({}, body)) for body in (b"%d" % number for number in range(8))]
            for body, receive in reversed(begun):
                assert receive().content == body
        assert server.connections == 8


def test_a_request_that_could_not_be_sent_says_so_where_its_answer_is_asked_for() -> None:
    with closing(socket.create_server(("localhost", 0))) as listener:
        port = listener.getsockname()[1]
    receive = Transport(f"http://localhost:{port}").begin({}, BODY)
    with pytest.raises(NotSent):
        receive()
