"""Talking to an Elasticsearch or OpenSearch server over HTTP, with the standard library alone.

A request that meets a broken connection, a timeout or a server that is busy or restarting (429,
502, 503, 504) is sent again after a pause, a bounded number of times; any other unexpected answer
is an error. Credentials come from the URL and appear in no message.
"""

from __future__ import annotations

import base64
import email.utils
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from tasklm.errors import RunError

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)  # seconds before the second, third … try
BUSY = frozenset({429, 502, 503, 504})
CONTINUES = (
    "Run the same command again when the server is available: it continues where it stopped."
)
_LONGEST_PAUSE = 300.0  # a longer Retry-After is cut to this
_TIMEOUT = 600.0  # seconds without a byte from the server
_REASON_LENGTH = 500
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}

Item = TypeVar("Item")


@dataclass
class Refusal:
    """An item of a bulk request that the server refused."""

    reason: str
    again: bool  # worth another try


class ElasticServer:
    """One server, one connection."""

    def __init__(self, url: str) -> None:
        """Reads the URL: http or https, host, port (9200 unless given), an optional path, optional
        user:password.
        """
        parts = urlsplit(url)
        try:
            port = parts.port or 9200
        except ValueError:
            port = 0
        known_scheme = parts.scheme in ("http", "https")
        if not (known_scheme and parts.hostname and port) or parts.query or parts.fragment:
            raise RunError(
                "select.url is not the address of a server. "
                "Give one such as http://127.0.0.1:9200 or https://USER:PASSWORD@HOST:9200;"
                " write characters such as @ : / in a name or password as %40 %3A %2F."
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.shown = f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"
        self._path = parts.path.rstrip("/")
        kind = _CONNECTIONS[parts.scheme]
        self._connection = kind(parts.hostname, port, timeout=_TIMEOUT)
        self._met = False  # it has answered before, so a refused connection may be a restart
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        missing_is_empty: bool = False,
    ) -> dict[str, Any]:
        """The server's answer to a request, a JSON object; with `missing_is_empty`, an empty one
        for 404.

        A body of bytes is sent as lines of JSON, a dict as one JSON object.
        """
        trouble = ""
        for pause in (*PAUSES, None):
            asked_pause = 0.0
            try:
                status, reason, asked_pause, content = self._once(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                self._raise_if_hopeless(error)
                trouble = str(error) or type(error).__name__
            else:
                self._met = True
                if status == 404 and missing_is_empty:
                    return {}
                if status not in BUSY:
                    return self._answer(method, path, status, reason, content)
                trouble = f"{status} {reason_of(_parsed(content)) or reason}"
            if pause is not None:
                sleep(min(max(pause, asked_pause), _LONGEST_PAUSE))
        raise RunError(
            f"{self.shown}: {method} {path} failed {len(PAUSES) + 1} times; "
            f"the last time: {trouble}. {CONTINUES}"
        )

    def _raise_if_hopeless(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = "Add the authority that signed it to the trusted certificates of this system."
            raise RunError(
                f"{self.shown}: the server's certificate is not trusted "
                f"({error.verify_message}). {remedy}"
            ) from None
        if not self._met and isinstance(error, ConnectionRefusedError | socket.gaierror):
            raise RunError(
                f"no server answers at {self.shown} ({error.strerror}). "
                "Start it, or give its address as --select.url."
            ) from None

    def _once(
        self, method: str, path: str, body: bytes | dict[str, Any] | None
    ) -> tuple[int, str, float, bytes]:
        headers = dict(self._headers)
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/x-ndjson"
        elif body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body).encode()
        self._connection.request(method, self._path + path, body, headers)
        response = self._connection.getresponse()
        content = response.read()
        pause = _retry_after(response.getheader("Retry-After"))
        return response.status, response.reason, pause, content

    def _answer(
        self, method: str, path: str, status: int, reason: str, content: bytes
    ) -> dict[str, Any]:
        answer = _parsed(content)
        if 200 <= status < 300 and isinstance(answer, dict):
            return answer
        problem = f"{self.shown}: {method} {path}: {status} {reason_of(answer) or reason}"
        if status in (401, 403):
            remedy = "Give select.url a user with this permission: https://USER:PASSWORD@HOST:9200."
            raise ServerError(f"{problem}. {remedy}", status, answer)
        if status == 413:
            remedy = (
                "Raise http.max_content_length of the server, or the limit of the proxy in front "
                "of it."
            )
            raise ServerError(f"{problem}. {remedy}", status, answer)
        if not isinstance(answer, dict):
            remedy = "Check that select.url is an Elasticsearch or OpenSearch server."
            raise ServerError(f"{problem}; the answer is not a JSON object. {remedy}", status, None)
        raise ServerError(f"{problem}. See the server's log.", status, answer)


class ServerError(RunError):
    """The server refused a request as a whole."""

    def __init__(self, message: str, status: int, answer: Any) -> None:
        self.status, self.answer = status, answer
        super().__init__(message)


def reason_of(answer: Any) -> str:
    """The server's description of a problem, innermost cause last; empty if it gave none."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return ""
    if not isinstance(error, dict):
        return str(error)[:_REASON_LENGTH]
    causes = [error, *(cause for cause in error.get("root_cause") or [] if isinstance(cause, dict))]
    for failed in error.get("failed_shards") or []:
        if isinstance(failed, dict) and isinstance(failed.get("reason"), dict):
            causes.append(failed["reason"])
    if isinstance(error.get("caused_by"), dict):
        causes.append(error["caused_by"])
    reasons = dict.fromkeys(
        f"{cause.get('type', 'error')}: {cause.get('reason', 'no reason given')}"
        for cause in causes
    )
    return "; ".join(reasons)[:_REASON_LENGTH]


def send_until_done(
    items: Sequence[Item],
    send: Callable[[Sequence[Item]], Sequence[Any]],
    fail: Callable[[Item, str], RunError],
) -> list[Any]:
    """The answer to each item of a bulk request; temporarily refused ones are sent again, alone,
    after a pause.

    `send` returns an answer or a `Refusal` per item; `fail` makes the error for an item that stays
    refused.
    """
    answers: dict[int, Any] = {}
    waiting = list(range(len(items)))
    for pause in (*PAUSES, None):
        for place, answer in zip(waiting, send([items[place] for place in waiting]), strict=True):
            if isinstance(answer, Refusal) and not answer.again:
                raise fail(items[place], answer.reason)
            answers[place] = answer
        waiting = [place for place in waiting if isinstance(answers[place], Refusal)]
        if not waiting:
            break
        if pause is None:
            raise fail(
                items[waiting[0]], f"{answers[waiting[0]].reason}, after {len(PAUSES) + 1} tries"
            )
        sleep(pause)
    return [answers[place] for place in range(len(items))]


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _retry_after(header: str | None) -> float:
    """The seconds of a Retry-After header, which may be a number or a date."""
    if not header:
        return 0.0
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return 0.0
