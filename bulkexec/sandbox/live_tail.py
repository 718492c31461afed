"""CloudWatch Logs Live Tail as the service does it: a true stream, sampled, lossy for slow readers, of bounded life.

Once a second one sessionUpdate of at most 500 events; what exceeds them is sampled away and flagged. A reader that
is slow loses the oldest updates with no flag. Only events that arrive while the session is open are shown.
Sources: StartLiveTail and LiveTailSessionMetadata in the API reference; user guide, "Live Tail".
"""

import asyncio
import json
import random
import struct
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bulkexec.sandbox import logs_store
from bulkexec.sandbox.logs_pattern import matcher
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import ServiceError

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]

MOST_GROUPS = 10
UPDATE_SECONDS = 1.0


def frame(kind: str, payload: Mapping[str, Any], *, exception: bool = False) -> bytes:
    """One message of application/vnd.amazon.eventstream.

    Length of all, length of the headers, CRC-32 of these two; the headers (name, type 7 for a string, value);
    the payload as JSON; CRC-32 of everything before it.
    """
    message_type, kind_header = ("exception", ":exception-type") if exception else ("event", ":event-type")
    named = {":message-type": message_type, kind_header: kind, ":content-type": "application/json"}
    headers = b"".join(_header(name, value) for name, value in named.items())
    body = json.dumps(payload, ensure_ascii=False).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    start = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + body
    return start + struct.pack("!I", zlib.crc32(start))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value.encode())) + value.encode()


class Arrivals:
    """Matching events since the last update, from any thread. It is an Inbox of the log store."""

    def __init__(self, matches: Callable[[str], bool], streams: Callable[[str], bool]) -> None:
        self._matches, self._streams = matches, streams
        self._lock = threading.Lock()
        self._events: list[dict[str, Any]] = []

    def put_nowait(self, batch: tuple[list[dict[str, Any]], bool] | None) -> None:
        """Takes a batch as the emulator hands it over; None (a reset of the emulator) changes nothing."""
        events = batch[0] if batch else []
        wanted = [
            event for event in events if self._streams(event["logStreamName"]) and self._matches(event["message"])
        ]
        with self._lock:
            self._events += wanted

    def take(self, most: int) -> tuple[list[dict[str, Any]], bool]:
        """The events since the last call, at most `most` of them, and whether they were sampled."""
        with self._lock:
            events, self._events = self._events, []
        if len(events) <= most:
            return events, False
        kept = sorted(random.sample(range(len(events)), most))
        return [events[number] for number in kept], True


class Backlog:
    """Updates that wait for the reader: the newest `updates`, and of those no more than `events` events."""

    def __init__(self, updates: int, events: int) -> None:
        self._most_events = events
        self._waiting: deque[dict[str, Any]] = deque(maxlen=updates)
        self._ready = asyncio.Event()

    def put(self, update: dict[str, Any]) -> None:
        """Adds an update; the oldest ones are dropped, with no flag, where it is too much."""
        self._waiting.append(update)
        while sum(len(waiting["sessionResults"]) for waiting in self._waiting) > self._most_events:
            self._waiting.popleft()
        self._ready.set()

    async def get(self) -> dict[str, Any]:
        """The oldest update, as soon as there is one."""
        while not self._waiting:
            self._ready.clear()
            await self._ready.wait()
        return self._waiting.popleft()


async def stream(
    request: Mapping[str, Any], send: Send, receive: Receive | None = None, options: SandboxOptions | None = None
) -> None:
    """Answers StartLiveTail over ASGI until the reader leaves or the session's time is up.

    `request` is the parsed body. With `receive` a reader that goes away ends the session at once. Raises ServiceError,
    before anything is sent, for a request that is refused.
    """
    options = options or SandboxOptions()
    groups = _groups(request, options)
    arrivals = Arrivals(matcher(request.get("logEventFilterPattern", "")), _stream_filter(request))
    session_id = str(uuid.uuid4())
    with logs_store.subscribed(options, session_id, groups, arrivals) as sessions:
        if sessions > options.live_tail_sessions:
            raise ServiceError("LimitExceededException", f"more than {options.live_tail_sessions} Live Tail sessions")
        await _open(send, request, session_id, list(groups.values()))
        tasks = {asyncio.create_task(_converse(send, arrivals, options))}
        if receive is not None:
            tasks.add(asyncio.create_task(_until_disconnect(receive)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _groups(request: Mapping[str, Any], options: SandboxOptions) -> dict[str, str]:
    """Log groups by name, with the ARN each was given by."""
    identifiers = request.get("logGroupIdentifiers") or []
    if not 1 <= len(identifiers) <= MOST_GROUPS:
        raise ServiceError("InvalidParameterException", f"logGroupIdentifiers must have 1 to {MOST_GROUPS} members")
    names, prefixes = request.get("logStreamNames"), request.get("logStreamNamePrefixes")
    if names and prefixes:
        raise ServiceError("InvalidParameterException", "logStreamNames and logStreamNamePrefixes exclude each other")
    if (names or prefixes) and len(identifiers) != 1:
        raise ServiceError("InvalidParameterException", "log streams can be named only with exactly one log group")
    return {_group_name(identifier, options): identifier for identifier in identifiers}


def _group_name(identifier: str, options: SandboxOptions) -> str:
    prefix = f"arn:aws:logs:{options.region}:{options.account}:log-group:"
    if not identifier.startswith("arn:") or identifier.endswith(":*"):
        raise ServiceError(
            "InvalidParameterException", f"{identifier} is not the ARN of a log group without a trailing :*"
        )
    name = identifier.removeprefix(prefix)
    if name == identifier or not logs_store.group_exists(options, name):
        raise ServiceError("ResourceNotFoundException", f"The specified log group does not exist: {identifier}")
    return name


def _stream_filter(request: Mapping[str, Any]) -> Callable[[str], bool]:
    names, prefixes = request.get("logStreamNames"), tuple(request.get("logStreamNamePrefixes") or ())
    if names:
        return lambda stream_name: stream_name in names
    return lambda stream_name: not prefixes or stream_name.startswith(prefixes)


async def _open(send: Send, request: Mapping[str, Any], session_id: str, arns: list[str]) -> None:
    request_id = str(uuid.uuid4())
    headers = {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": request_id}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": pairs})
    await _send_frame(send, frame("initial-response", {}))
    start = {
        "requestId": request_id,
        "sessionId": session_id,
        "logGroupIdentifiers": arns,
        "logStreamNames": request.get("logStreamNames", []),
        "logStreamNamePrefixes": request.get("logStreamNamePrefixes", []),
        "logEventFilterPattern": request.get("logEventFilterPattern", ""),
    }
    await _send_frame(send, frame("sessionStart", start))


async def _converse(send: Send, arrivals: Arrivals, options: SandboxOptions) -> None:
    """Updates until the session's time is up."""
    backlog = Backlog(options.live_tail_buffer_updates, options.live_tail_buffer_events)
    sender = asyncio.create_task(_send_updates(send, backlog))
    ends = time.monotonic() + options.live_tail_session_seconds
    try:
        while (left := ends - time.monotonic()) > 0 and not sender.done():
            await asyncio.sleep(min(UPDATE_SECONDS, left))
            events, sampled = arrivals.take(options.live_tail_update_events)
            backlog.put({"sessionMetadata": {"sampled": sampled}, "sessionResults": events})
        if sender.done():
            sender.result()
    finally:
        sender.cancel()
    timeout = {"message": "The session has reached its time limit."}
    await _send_frame(send, frame("SessionTimeoutException", timeout, exception=True))
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_updates(send: Send, backlog: Backlog) -> None:
    while True:
        await _send_frame(send, frame("sessionUpdate", await backlog.get()))


async def _send_frame(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
