"""IAM in front of every service: who asks, whether it is allowed, and a record of it.

Users, roles, their policies and credentials are the emulator's (IAM, STS), and so is the evaluation of a policy. The
decision and the answer are made here, because some services are answered before the emulator sees them.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bulkexec.sandbox import asgi
from bulkexec.sandbox.asgi import Message, Request, Send
from bulkexec.sandbox.iam_checks import Check, Home, checks, statements
from bulkexec.sandbox.options import SandboxOptions
from bulkexec.sandbox.service import ServiceError

ADMINISTRATORS = ("sandbox", "test")
"""Access keys that may do everything: those of `bulkexec sandbox env`, of the sandbox itself and of its Glue."""


@dataclass(frozen=True)
class Caller:
    """Who signed a request. `principal` is the emulator's, None for the account's root, who is never refused."""

    arn: str
    principal: Any


class Guard:
    """Records what is asked for and by whom, and refuses what no policy allows. Used on the server's loop only."""

    def __init__(self, options: SandboxOptions) -> None:
        self._options = options
        self._calls: Counter[tuple[str, str, str, bool]] = Counter()

    @property
    def on(self) -> bool:
        """Whether anything is recorded at all."""
        return self._options.iam != "off"

    def admit(self, request: Request) -> None:
        """Raises ServiceError, in the words of the service, when the caller may not do it. No-op when off."""
        if not self.on:
            return
        caller, home = self._caller(request), self._home(request)
        for check in checks(request, home):
            reason = self._refusal(caller, check)
            self._calls[caller.arn, check.action, check.resource, not reason] += 1
            if reason:
                raise _denied(request, caller, check, reason)

    def watched(self, request: Request, send: Send) -> Send:
        """A `send` that gives 403 for an object that is missing when the caller may not list the bucket, as S3 does."""
        bucket = request.path.lstrip("/").partition("/")[0]
        if not self.on or request.service != "s3" or request.operation not in ("GetObject", "HeadObject"):
            return send
        return _Unlisted(self, request, Check("s3:ListBucket", f"arn:aws:s3:::{bucket}"), send)

    def may(self, request: Request, check: Check) -> ServiceError | None:
        """The refusal of one further check, which is recorded as well; None when it is allowed."""
        caller = self._caller(request)
        reason = self._refusal(caller, check)
        self._calls[caller.arn, check.action, check.resource, not reason] += 1
        return _denied(request, caller, check, reason) if reason else None

    def recorded(self) -> list[dict[str, Any]]:
        """Every (principal, action, resource) so far, whether it was allowed, and how often."""
        names = ("principal", "action", "resource", "allowed", "count")
        return [dict(zip(names, (*call, count), strict=True)) for call, count in sorted(self._calls.items())]

    def forget(self) -> None:
        """Begins a new record."""
        self._calls.clear()

    def _home(self, request: Request) -> Home:
        scope = _scope(request)
        return Home(scope[2] if len(scope) > 2 else self._options.region, self._options.account)

    def _caller(self, request: Request) -> Caller:
        from ministack.core.iam_evaluator import AuthError, resolve_principal

        key = _scope(request)[0]
        if key in ADMINISTRATORS:
            return Caller(f"arn:aws:iam::{self._options.account}:root", None)
        if not key:
            raise ServiceError("MissingAuthenticationToken", "Missing Authentication Token", 403)
        found = resolve_principal(key, self._options.account)
        if isinstance(found, AuthError):
            raise _unknown(request, found.code, found.message)
        return Caller(found.arn, found)

    def _refusal(self, caller: Caller, check: Check) -> str:
        """Why a check fails, in IAM's words; empty when it does not, or when nothing is enforced."""
        if caller.principal is None or self._options.iam != "enforce":
            return ""
        from ministack.core.iam_evaluator import EvalContext, evaluate

        context = EvalContext(
            principal_arn=caller.arn,
            principal_type=caller.principal.type,
            principal_account=caller.principal.account,
            action=check.action,
            resource_arn=check.resource,
            region=self._options.region,
            service_context=check.context,
        )
        result = evaluate(context, caller.principal.policies, *caller.principal.limits)
        if result.decision == "Allow":
            return ""
        if result.decision == "Deny":
            return "with an explicit deny in an identity-based policy"
        limited = evaluate(context, caller.principal.policies).decision == "Allow"
        kind = "session" if limited else "identity-based"
        return f"because no {kind} policy allows the {check.action} action"


class _Unlisted:
    """See `Guard.watched`."""

    def __init__(self, guard: Guard, request: Request, check: Check, send: Send) -> None:
        self._guard, self._request, self._check, self._send = guard, request, check, send
        self._refused = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 404:
            refusal = self._guard.may(self._request, self._check)
            if refusal is not None:
                self._refused = True
                await asgi.send_error(self._send, self._request, refusal)
        if not self._refused:
            await self._send(message)


def _scope(request: Request) -> list[str]:
    """Access key, date, region, service of the signature."""
    credential = request.headers.get("authorization", "").partition("Credential=")[2].partition(",")[0]
    return (credential or request.query.get("X-Amz-Credential", [""])[0]).split("/")


_JSON_CODES = {"s3": "AccessDenied", "iam": "AccessDenied", "sts": "AccessDenied"}
_UNKNOWN_CODES = {"s3": "InvalidAccessKeyId", "iam": "InvalidClientTokenId", "sts": "InvalidClientTokenId"}


def _denied(request: Request, caller: Caller, check: Check, reason: str) -> ServiceError:
    resource = f'"{check.resource}"' if request.service == "s3" else check.resource
    sentence = f"User: {caller.arn} is not authorized to perform: {check.action} on resource: {resource} {reason}"
    code = _JSON_CODES.get(request.service, "AccessDeniedException")
    return ServiceError(code, sentence, 400 if request.target else 403)


def _unknown(request: Request, code: str, message: str) -> ServiceError:
    if code != "ExpiredTokenException":
        code = _UNKNOWN_CODES.get(request.service, "UnrecognizedClientException")
    return ServiceError(code, message, 400 if request.target else 403)


def refused_statements(request: Request, error: ServiceError) -> Mapping[str, Any] | None:
    """BatchExecuteStatement answers a refusal statement by statement (BatchStatementError, code AccessDenied)."""
    if request.operation != "BatchExecuteStatement" or error.code != "AccessDeniedException":
        return None
    refusal = {"Error": {"Code": "AccessDenied", "Message": error.message}}
    return {"Responses": [refusal for _ in statements(json.loads(request.body))]}
