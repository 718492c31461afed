"""Requests and answers of the AWS protocols over ASGI."""

import json
import uuid
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from bulkexec.sandbox.service import ServiceError

Scope = dict[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """One HTTP request, read to its end, with the AWS service and operation it names.

    `service` is the name in the signature's credential scope, e.g. `dynamodb`; `operation` e.g. `Scan`.
    For S3 the operation is told from method and path; subresources count as their plain operation.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes
    service: str
    operation: str

    @property
    def target(self) -> str:
        """The X-Amz-Target header, empty for services without one."""
        return self.headers.get("x-amz-target", "")

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises ServiceError SerializationException when it is none."""
        try:
            parsed = json.loads(self.body or b"{}")
        except ValueError as error:
            raise ServiceError("SerializationException", f"malformed JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise ServiceError("SerializationException", "Start of structure or map found where not expected.")
        return parsed


async def read_request(scope: Scope, receive: Receive) -> Request:
    """Reads a request's whole body and names its operation."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    body = await read_body(receive)
    service = _signed_service(headers, query)
    operation = _operation(scope["method"], scope["path"], query, headers, body, service)
    return Request(scope["method"], scope["path"], query, headers, body, service, operation)


async def read_body(receive: Receive) -> bytes:
    """All of a request's body."""
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return b"".join(chunks)


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body again, for an application behind one that has read it already."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _signed_service(headers: Mapping[str, str], query: Mapping[str, list[str]]) -> str:
    credential = headers.get("authorization", "").partition("Credential=")[2].partition(",")[0]
    scope = (credential or query.get("X-Amz-Credential", [""])[0]).split("/")
    return scope[3] if len(scope) >= 5 else ""


def _operation(
    method: str, path: str, query: Mapping[str, list[str]], headers: Mapping[str, str], body: bytes, service: str
) -> str:
    if target := headers.get("x-amz-target"):
        return target.rpartition(".")[2]
    if "smithy-protocol" in headers:
        return path.rpartition("/")[2]
    if service == "s3":
        return _s3_operation(method, path, query)
    form = parse_qs(body.decode("latin-1")) if "form-urlencoded" in headers.get("content-type", "") else query
    return form.get("Action", [""])[0]


_S3_BUCKET = {"GET": "ListObjects", "PUT": "CreateBucket", "DELETE": "DeleteBucket", "HEAD": "HeadBucket"}
_S3_OBJECT = {"GET": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject", "HEAD": "HeadObject"}


def _s3_operation(method: str, path: str, query: Mapping[str, list[str]]) -> str:
    bucket, _, key = path.lstrip("/").partition("/")
    if not bucket:
        return "ListBuckets"
    if key:
        return _s3_object_operation(method, query)
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    return "ListObjectsV2" if method == "GET" and "list-type" in query else _S3_BUCKET.get(method, method)


def _s3_object_operation(method: str, query: Mapping[str, list[str]]) -> str:
    if "uploads" in query:
        return "CreateMultipartUpload"
    if "uploadId" in query:
        names = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
        return names.get(method, "ListParts")
    return _S3_OBJECT.get(method, method)


async def send_bytes(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    """Sends one whole answer."""
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    pairs.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, answer: object, status: int = 200, error_type: str = "") -> None:
    """Sends a JSON answer with the headers every AWS JSON service gives: request id and CRC-32 of the body."""
    body = json.dumps(answer, ensure_ascii=False, default=float).encode()
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "x-amzn-requestid": str(uuid.uuid4()),
        "x-amz-crc32": str(zlib.crc32(body)),
    }
    if error_type:
        headers["x-amzn-errortype"] = error_type
    await send_bytes(send, status, body, headers)


async def send_error(send: Send, request: Request, error: ServiceError) -> None:
    """Sends an error in the protocol of the service that was asked: JSON where there is a target, XML otherwise."""
    if request.target:
        members = {"__type": error.code, "message": error.message, "Message": error.message, **error.details}
        await send_json(send, members, error.status, error.code)
        return
    inner = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    whole = (
        f"<Error>{inner}</Error>"
        if request.service == "s3"
        else f"<ErrorResponse><Error>{inner}</Error></ErrorResponse>"
    )
    headers = {"content-type": "application/xml", "x-amzn-requestid": str(uuid.uuid4())}
    # An answer to HEAD has no body, so not even the error's code.
    await send_bytes(send, error.status, b"" if request.method == "HEAD" else whole.encode(), headers)
