"""The limits of a request, and the responses to requests that exceed them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

BODY_SECONDS = 10.0  # from the headers of a request to the end of its body
# bytes of an oversized body that are read and discarded, so that the client can read why
DRAINED = 16 << 20
MOST_TOP = 50  # texts on each side of an explanation
CLOSE = {"Connection": "close"}


@dataclass(frozen=True)
class Limits:
    """The limits of the service; requests beyond them are refused with a message."""

    size: int = 1 << 20  # bytes of a request's body
    inputs: int = 128  # of a request
    characters: int = 20_000  # of an input, all its texts together
    waiting: int = 1024  # inputs that wait for the model, of all requests
    explanations: int = 8  # that wait to be computed
    explain_seconds: float = 30.0  # from a request for an explanation to its answer


class Refused(Exception):
    """A refused request, with the status and the reason."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, dict(headers or {})


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request; raises Refused if it is not JSON, too large, or late."""
    if kind_of_body(request) != "application/json":
        raise Refused(415, "Send JSON, with the header Content-Type: application/json.")
    return await read_any_body(request, limits)


def kind_of_body(request: Request) -> str:
    """The type of a request's body, as its header says."""
    kind: str = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower()


async def read_any_body(request: Request, limits: Limits) -> bytes:
    """The body of a request of any type; raises Refused if it is too large, or late."""
    too_large = Refused(
        413, f"The body has more than {limits.size:,} bytes. Split it into several requests.", CLOSE
    )
    declared = request.headers.get("content-length", "")
    most = limits.size if "expect" in request.headers else DRAINED
    if declared.isdecimal() and int(declared) > most:
        raise too_large
    body = bytearray()
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limits.size:
                    body += chunk
                elif size > DRAINED:
                    raise too_large
    except TimeoutError:
        raise Refused(
            408, f"The body did not arrive within {BODY_SECONDS:g} seconds.", CLOSE
        ) from None
    except ClientDisconnect:
        raise Refused(400, "The connection was closed before the end of the body.", CLOSE) from None
    if size > limits.size:
        raise too_large
    return bytes(body)
