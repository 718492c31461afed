"""The sandbox's one process: an emulator, and in front of it the services and faults of our own.

Started as `python -m bulkexec.sandbox.server OPTIONS-AS-JSON LISTENING-FD`.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bulkexec.sandbox import asgi
from bulkexec.sandbox.asgi import App, Receive, Request, Scope, Send
from bulkexec.sandbox.faults import FaultRule, Faults
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import Service, ServiceError
from bulkexec.sandbox.stats import Stats


class Overlay:
    """ASGI application: the control endpoint, faults, our own services, and the emulator for the rest."""

    def __init__(self, emulator: App, services: Mapping[str, Service], faults: Faults, stats: Stats) -> None:
        self._emulator, self._services, self._faults, self._stats = emulator, services, faults, stats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._emulator(scope, receive, send)
            return
        request = await asgi.read_request(scope, receive)
        if request.path.startswith("/_sandbox/"):
            await self._control(request, send)
            return
        self._stats.request(request.service, request.operation)
        await self._serve(scope, request, receive, self._counting(request, send))

    def _counting(self, request: Request, send: Send) -> Send:
        async def counting(message: asgi.Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._stats.error(request.service, request.operation, message["status"])
            await send(message)

        return counting

    async def _serve(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        rule = self._faults.strike(request)
        if rule is None:
            await self._answer(scope, request, receive, send)
        elif rule.kind == "delay":
            await asyncio.sleep(rule.delay_seconds)
            await self._answer(scope, request, receive, send)
        elif rule.kind in ("reset", "lost_answer"):
            await self._break_off(rule, scope, request, receive)
        else:
            await asgi.send_error(send, request, rule.error())

    async def _break_off(self, rule: FaultRule, scope: Scope, request: Request, receive: Receive) -> None:
        from bulkexec.sandbox.connections import reset_connection

        if rule.kind == "lost_answer":
            await self._answer(scope, request, receive, _swallow)
        reset_connection(scope)

    async def _answer(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        service = self._services.get(request.target.partition(".")[0])
        if service is None:
            await self._emulator(scope, asgi.replay(request.body, receive), send)
            return
        try:
            answer = await asyncio.to_thread(service.handle, request.operation, request.json())
        except ServiceError as error:
            await asgi.send_error(send, request, error)
            return
        await asgi.send_json(send, answer)

    async def _control(self, request: Request, send: Send) -> None:
        try:
            await asgi.send_json(send, self._controlled(request))
        except ServiceError as error:
            await asgi.send_json(send, {"code": error.code, "message": error.message}, error.status)

    def _controlled(self, request: Request) -> object:
        what = (request.method, request.path.removeprefix("/_sandbox/"))
        if what == ("GET", "health"):
            return {"status": "ok", "pid": os.getpid()}
        if what == ("GET", "stats"):
            return self._stats.to_json()
        if what == ("DELETE", "stats"):
            self._stats.reset()
        elif what == ("POST", "faults"):
            return {"id": self._faults.add(FaultRule.from_json(request.json()))}
        elif what == ("DELETE", "faults"):
            number = request.query.get("id")
            self._faults.remove(int(number[0]) if number else None)
        elif what != ("GET", "faults"):
            raise ServiceError("NotFound", f"no {what[0]} {request.path}", 404)
        return {"faults": self._faults.listed()}


async def _swallow(_message: asgi.Message) -> None:
    """An answer that gets lost."""


def own_services(options: SandboxOptions) -> dict[str, Service]:
    """The services answered here rather than by the emulator, by the prefix of X-Amz-Target."""
    return {}


def emulator(options: SandboxOptions, stats: Stats) -> App:
    """ministack, set up for this sandbox, with our DynamoDB in it.

    It reads its settings from the environment when it is first imported.
    """
    os.environ.update(
        MINISTACK_REGION=options.region,
        MINISTACK_ACCOUNT_ID=options.account,
        MINISTACK_HOST="127.0.0.1",
        GATEWAY_PORT=str(options.port),
        IOT_MTLS_ENABLED="0",
        SFTP_ENABLED="0",
        LOG_LEVEL="ERROR",
    )
    import ministack.app
    from ministack.core import hypercorn_compat

    from bulkexec.sandbox.dynamodb import take_over

    hypercorn_compat.install()
    take_over(options, stats)
    app: App = ministack.app.app
    return app


async def serve(options: SandboxOptions, listening_fd: int) -> None:
    """Serves on an already bound socket until SIGTERM or SIGINT."""
    import hypercorn.asyncio
    from hypercorn.config import Config

    from bulkexec.sandbox.connections import note_connections

    note_connections()
    stats = Stats()
    overlay = Overlay(emulator(options, stats), own_services(options), Faults(options.fault_seed), stats)
    config = Config()
    config.bind = [f"fd://{listening_fd}"]
    config.loglevel = "ERROR"
    config.graceful_timeout = 0.2
    config.keep_alive_timeout = 600
    await hypercorn.asyncio.serve(overlay, config, shutdown_trigger=_stop_signal())


def _stop_signal() -> Any:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop.wait


def options_to_json(options: SandboxOptions) -> str:
    """Options as the server's argument."""
    return json.dumps({option.name: getattr(options, option.name) for option in fields(options)}, default=str)


def options_from_json(text: str) -> SandboxOptions:
    """The inverse of `options_to_json`."""
    members = json.loads(text)
    return replace(SandboxOptions(**members), work_dir=Path(members["work_dir"]))


def main() -> None:
    """Entry point of the server's process."""
    asyncio.run(serve(options_from_json(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
