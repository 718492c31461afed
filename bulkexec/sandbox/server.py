"""The sandbox's one process: an emulator, and in front of it the services and faults of our own.

Started as `python -m bulkexec.sandbox.server OPTIONS-AS-JSON LISTENING-FD`.
"""

import asyncio
import json
import os
import signal
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bulkexec.sandbox import asgi, live_tail, validation
from bulkexec.sandbox.account_services import AutoScalingService, PricingService, QuotasService
from bulkexec.sandbox.asgi import App, Receive, Request, Scope, Send
from bulkexec.sandbox.faults import FaultRule, Faults
from bulkexec.sandbox.glue import GlueService
from bulkexec.sandbox.iam import Guard, refused_statements
from bulkexec.sandbox.logs import LogsService
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import Service, ServiceError
from bulkexec.sandbox.stats import Stats

LIVE_TAIL = "Logs_20140328.StartLiveTail"


class Overlay:
    """ASGI application: the control endpoint, faults, our own services, and the emulator for the rest."""

    def __init__(self, emulator: App, services: "OwnServices", faults: Faults, stats: Stats, guard: Guard) -> None:
        self._emulator, self._services, self._faults, self._stats = emulator, services, faults, stats
        self._guard = guard

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
        elif rule.kind == "cut":
            await self._cut(rule, scope, request, receive, send)
        else:
            await asgi.send_error(send, request, rule.error(request))

    async def _break_off(self, rule: FaultRule, scope: Scope, request: Request, receive: Receive) -> None:
        from bulkexec.sandbox.connections import reset_connection

        if rule.kind == "lost_answer":
            await self._answer(scope, request, receive, _swallow)
        reset_connection(scope)

    async def _cut(self, rule: FaultRule, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        from bulkexec.sandbox.connections import reset_connection

        answering = asyncio.create_task(self._answer(scope, request, receive, send))
        _, still = await asyncio.wait({answering}, timeout=rule.delay_seconds)
        if still:
            reset_connection(scope)
            answering.cancel()
        await asyncio.gather(answering, return_exceptions=bool(still))

    async def _answer(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        try:
            self._guard.admit(request)
            await self._answered(scope, request, receive, self._guard.watched(request, send))
        except ServiceError as error:
            refused = refused_statements(request, error)
            if refused is not None:
                await asgi.send_json(send, refused)
            else:
                await asgi.send_error(send, request, error)

    async def _answered(self, scope: Scope, request: Request, receive: Receive, send: Send) -> None:
        service = self._services.of(request.target)
        if validation.knows(request.target):
            validation.validate(request.target, request.json())
        if request.target == LIVE_TAIL:
            await self._services.live_tail(request.json(), send, receive)
        elif service is not None:
            await asgi.send_json(send, await asyncio.to_thread(service.handle, request.operation, request.json()))
        else:
            await self._emulator(scope, asgi.replay(request.body, receive), send)

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
        if what == ("GET", "calls"):
            return self._guard.recorded()
        if what == ("DELETE", "calls"):
            self._guard.forget()
        elif what == ("DELETE", "stats"):
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


class OwnServices:
    """The services answered here rather than by the emulator, by X-Amz-Target or by its prefix."""

    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._glue = GlueService(options, options.endpoint)
        self._by_target: dict[str, Service] = {
            "AWSGlue": self._glue,
            "AWSPriceListService": PricingService(),
            "ServiceQuotasV20190624": QuotasService(options),
            "AnyScaleFrontendService": AutoScalingService(options),
        }
        logs = LogsService(options)
        self._by_target |= {f"Logs_20140328.{operation}": logs for operation in logs.operations}

    def of(self, target: str) -> Service | None:
        """The service that answers a target, if it is one of ours."""
        return self._by_target.get(target) or self._by_target.get(target.partition(".")[0])

    async def live_tail(self, request: dict[str, Any], send: Send, receive: Receive) -> None:
        """Streams StartLiveTail."""
        await live_tail.stream(request, send, receive, self._options)

    def close(self) -> None:
        """Ends every process they started."""
        self._glue.close()


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
    application = emulator(options, stats)
    services = OwnServices(options)
    config = Config()
    config.bind = [f"fd://{listening_fd}"]
    config.loglevel = "ERROR"
    config.graceful_timeout = 0.2
    config.keep_alive_timeout = 600
    try:
        overlay = Overlay(application, services, Faults(options.fault_seed), stats, Guard(options))
        await hypercorn.asyncio.serve(overlay, config, shutdown_trigger=_stop_signal())
    finally:
        services.close()


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
