"""A page on this machine that follows a run: page, script, state as JSON and the run's report.

It never writes. The path of a request is compared with four names and never reaches the disk.
Requests for another host name are refused, so that a foreign page whose name was pointed at this
machine cannot read the run (DNS rebinding).
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
import socketserver
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template
from typing import Any

from tasklm.errors import RunError
from tasklm.watch.plain import plain_page
from tasklm.watch.state import Watched

HERE = "127.0.0.1"
# with any port: it may be forwarded from a different one
HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
LOOKING = 3.0  # seconds after the last request for which the page counts as open
PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
SCRIPT = Path(__file__).with_name("page.js").read_bytes()
ALWAYS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# it has its own besides
_INLINE = "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
REPORT_POLICY = f"{CLOSED}; {_INLINE}; img-src data:; font-src data:"


def page_policy() -> str:
    """The page's policy: run its script, use its one style sheet, contact this server."""
    style = PAGE.partition("<style>")[2].partition("</style>")[0]
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    own = f"script-src 'self'; connect-src 'self'; style-src 'sha256-{known}'; img-src data:"
    return f"{CLOSED}; {own}; require-trusted-types-for 'script'"


class Answer(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: WatchServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tasklm", ""
    # seconds after which a silent connection is closed; an answered one is closed at once
    timeout = 30

    def do_GET(self) -> None:
        """Sends one of the four resources."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not HOSTS.fullmatch(hosts[0]):
            text = b"This page answers to 127.0.0.1 and localhost only.\n"
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", text)
            return
        answer = {
            "/": self._page,
            "/watch.js": self._script,
            "/state.json": self._state,
            "/report.html": self._report,
        }
        try:
            answer.get(self.path.partition("?")[0], self._nothing)()
        except (ConnectionError, TimeoutError):
            raise  # the browser disconnected
        # the files of the run are malformed
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            problem = f"The run folder cannot be read: {type(error).__name__}: {error}\n"
            body = problem.encode("utf-8", "replace")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", body)

    do_HEAD = do_GET

    def _page(self) -> None:
        state = self.server.watched.state()
        page = Template(PAGE).substitute(plain_page(state))
        self._send(HTTPStatus.OK, "text/html", page.encode("utf-8", "replace"), page_policy())

    def _script(self) -> None:
        self._send(HTTPStatus.OK, "text/javascript", SCRIPT)

    def _state(self) -> None:
        when = time.monotonic()
        body = json.dumps(self.server.watched.state(), ensure_ascii=False, allow_nan=False)
        self._send(HTTPStatus.OK, "application/json", body.encode("utf-8", "replace"))
        self.server.told(when)

    def _report(self) -> None:
        try:
            body = self.server.watched.report.read_bytes()
        except FileNotFoundError:
            self._nothing()
            return
        self._send(HTTPStatus.OK, "text/html", body, REPORT_POLICY)

    def _nothing(self) -> None:
        self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing here.\n")

    def _send(self, status: HTTPStatus, kind: str, body: bytes, policy: str = CLOSED) -> None:
        self.send_response(status)
        about = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        for name, value in {**ALWAYS, "Content-Security-Policy": policy, **about}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: a line every second would bury the run's messages."""


class WatchServer(ThreadingHTTPServer):
    """Serves the page of one run folder on 127.0.0.1; port 0 means any free one."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.watched = Watched(folder)
        self._told, self._told_again = float("-inf"), threading.Condition()
        try:
            super().__init__((HERE, port), Answer)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            problem = f"port {port} cannot be used ({error.strerror})"
            raise RunError(
                f"{problem}. Choose another with --port; 0 means any free one."
            ) from None

    def server_bind(self) -> None:
        """Binds the port without a reverse DNS lookup of this machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HERE, self.server_address[1]

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HERE}:{self.server_port}/"

    def told(self, when: float) -> None:
        """Records that a page received the state of a given time."""
        with self._told_again:
            self._told = max(self._told, when)
            self._told_again.notify_all()

    def show_the_end(self) -> None:
        """Waits until an open page knows that the run has ended; at most a few seconds."""
        ended = time.monotonic()
        with self._told_again:
            if ended - self._told < LOOKING:
                self._told_again.wait_for(lambda: self._told > ended, LOOKING)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a browser that disconnected early."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)
