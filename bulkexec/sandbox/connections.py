"""Open TCP connections, so that one can be reset as a broken network would."""

import socket
import struct
from asyncio import WriteTransport
from typing import Any

import hypercorn.asyncio.run as hypercorn_run
from hypercorn.asyncio.tcp_server import TCPServer

from bulkexec.sandbox.asgi import Scope

_transports: dict[tuple[str, int], WriteTransport] = {}


class _NotedServer(TCPServer):  # type: ignore[misc]  # hypercorn is untyped to us
    """hypercorn's connection handler, noting its transport under the client's address."""

    async def run(self) -> None:
        peer = self.writer.get_extra_info("peername")
        _transports[peer] = self.writer.transport
        try:
            await super().run()
        finally:
            _transports.pop(peer, None)


def note_connections() -> None:
    """Makes hypercorn use the noting handler; ASGI itself gives no way to the connection."""
    hypercorn_run.TCPServer = _NotedServer


def reset_connection(scope: Scope) -> None:
    """Sends RST to the client of a request, if it has not gone already: what it had not yet read is lost."""
    transport: Any = _transports.get(tuple(scope["client"]))
    if transport is None:
        return
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()
