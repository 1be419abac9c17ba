"""What stands before every endpoint: names and token, headers that browsers obey, and the count of
requests.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from tasklm.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

IN_RESERVE = "in_reserve"  # state of a request on a connection that is one too many
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
    """Whether the service has been asked to stop, and whether requests were given up then."""

    stopping: bool = False
    gave_up: bool = False


class Guard:
    """An application around another: asks for the token on all but the `open_paths`, and counts
    requests to the `known` ones.

    `hosts`: names under which the service may be asked; none: under all. Without this check a page
    from elsewhere whose name is made to point to this machine (DNS rebinding) could ask a service
    that has no token.
    """

    def __init__(
        self,
        app: Application,
        metrics: Metrics,
        lifecycle: Lifecycle,
        *,
        token: str | None,
        hosts: Collection[str],
        known: Collection[str],
        open_paths: Collection[str],
    ) -> None:
        self._app, self._metrics, self._lifecycle = app, metrics, lifecycle
        self._token = None if token is None else token.encode()
        self._hosts = frozenset(map(_name, hosts))
        self._known = frozenset(known)
        self._open = frozenset(open_paths)

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
                # a client that is told so does not send another request on a connection that is
                # about to be closed
                closing = (
                    [(b"connection", b"close")] if self._lifecycle.stopping or one_too_many else []
                )
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS, *closing]}
            await send(message)

        headers = dict(scope["headers"])
        try:
            if one_too_many and scope["path"] != HEALTH:
                problem = {"detail": "There are too many connections. Try again soon."}
                await JSONResponse(problem, 503, {"Retry-After": str(RETRY_SECONDS)})(
                    scope, receive, guarded
                )
            elif (
                self._hosts
                and _name(headers.get(b"host", b"").decode("latin-1")) not in self._hosts
            ):
                problem = {
                    "detail": (
                        "The service is not asked for by this "
                        "name; tasklm serve --allow-host NAME allows it."
                    )
                }
                await JSONResponse(problem, 421)(scope, receive, guarded)
            elif scope["path"] in self._open or self._may(headers.get(b"authorization", b"")):
                await self._app(scope, receive, guarded)
            else:
                problem = {
                    "detail": "A token is needed: send the header Authorization: Bearer TOKEN."
                }
                await JSONResponse(problem, 401, {"WWW-Authenticate": "Bearer"})(
                    scope, receive, guarded
                )
        except asyncio.CancelledError:
            self._lifecycle.gave_up = True
            raise
        finally:
            path = scope["path"] if scope["path"] in self._known else "other"
            self._metrics.request(path, status, time.perf_counter() - begin)

    def _may(self, given: bytes) -> bool:
        if self._token is None:
            return True
        scheme, _, token = given.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _name(host: str) -> str:
    """The name in a Host header, in small letters and without the port; addresses of IPv6 in
    brackets.
    """
    text = host.lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return f"[{text}]" if text.count(":") > 1 else text.partition(":")[0]
