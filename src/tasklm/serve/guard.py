"""What stands before every endpoint: names and token, headers that browsers obey, and the count of
requests.

By hand, since Starlette's TrustedHostMiddleware answers a wrong name with 400 in plain text, not
with 421 and the way out in JSON (and in Starlette 1.0 it does not know `[::1]:8000`), and its
AuthenticationMiddleware leaves the check of a token to a class of one's own.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from tasklm.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

IN_RESERVE = "in_reserve"  # state of a request on a connection beyond the limit
HEALTH = "/health"
RETRY_SECONDS = 1
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; "
        b"style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        b"form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass
class Lifecycle:
    """Whether the service was told to stop, and whether requests were abandoned."""

    stopping: bool = False
    gave_up: bool = False


@dataclass(frozen=True)
class Access:
    """The access rules.

    `hosts`: accepted host names; none: all. Without this check a foreign page whose name points to
    this machine (DNS rebinding) could use a service that has no token.
    """

    token: str | None
    hosts: Collection[str]
    known: Collection[str]  # paths counted by name
    open_paths: Collection[str]  # paths that need no token


class Guard:
    """An application around another one, which checks access and counts requests."""

    def __init__(
        self, app: Application, metrics: Metrics, lifecycle: Lifecycle, access: Access
    ) -> None:
        self._app, self._metrics, self._lifecycle = app, metrics, lifecycle
        self._token: bytes | None = None
        if access.token is not None:
            self._token = access.token.encode()
        self._hosts = frozenset(map(_name, access.hosts))
        self._known = frozenset(access.known)
        self._open = frozenset(access.open_paths)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500
        one_too_many = scope.get("state", {}).get(IN_RESERVE, False)

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), *HEADERS]
                if self._lifecycle.stopping or one_too_many:
                    # so that the client sends no further request on a connection that is about to
                    # close
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            answer = self._refusal(scope, one_too_many) or self._app
            await answer(scope, receive, guarded)
        except asyncio.CancelledError:
            self._lifecycle.gave_up = True
            raise
        finally:
            path = scope["path"]
            if path not in self._known:
                path = "other"
            self._metrics.request(path, status, time.perf_counter() - begin)

    def _refusal(self, scope: Mapping[str, Any], one_too_many: bool) -> JSONResponse | None:
        """The response to a refused request; None for an accepted one."""
        if one_too_many and scope["path"] != HEALTH:
            problem = "Too many connections. Try again soon."
            return _problem(503, problem, {"Retry-After": str(RETRY_SECONDS)})
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts and _name(host) not in self._hosts:
            allow = "allow it with tasklm serve --allow-host NAME"
            return _problem(421, f"This host name is not allowed; {allow}.")
        if scope["path"] in self._open or self._may(headers.get(b"authorization", b"")):
            return None
        problem = "A token is needed: send the header Authorization: Bearer TOKEN."
        return _problem(401, problem, {"WWW-Authenticate": "Bearer"})

    def _may(self, authorization: bytes) -> bool:
        if self._token is None:
            return True
        scheme, _, token = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers)


def _name(host: str) -> str:
    """The lower-case name in a Host header without its port; IPv6 addresses in brackets."""
    text = host.lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    if text.count(":") > 1:
        return f"[{text}]"
    return text.partition(":")[0]
