"""The process around the application: its socket, patience with slow clients, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tasklm.errors import RunError
from tasklm.serve.guard import Guard, Lifecycle

HEADER_SECONDS = 10.0  # from a connection, or the first byte of a request, to the end of its headers
MOST_HEADERS = 64 << 10  # bytes
CONNECTIONS = 1000  # at a time; more are told 503
LAST_READ = 0.4  # seconds after the signal in which what clients have sent is still read …
SETTLED = 0.2  # … and, with no new connections, once more
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
END_SECONDS = 60  # for the answers to what was taken; then the rest is given up


class PatientProtocol(HttpToolsProtocol):
    """HTTP on one connection; closes those whose headers do not come in time, or have no end."""

    _timer: asyncio.TimerHandle | None = None
    _waits, _size = True, 0  # for the end of headers; bytes that have come meanwhile

    def connection_made(self, transport: Any) -> None:
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_message_begin(self) -> None:
        """Begins to wait for the headers of a request."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """Ends the wait."""
        self._no_wait()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        self._no_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads what came."""
        super().data_received(data)
        if self._waits:
            self._size += len(data)
            if self._size > MOST_HEADERS and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")

    def _wait(self) -> None:
        self._no_wait()
        self._waits, self._timer = True, self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _no_wait(self) -> None:
        self._waits, self._size = False, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class GracefulServer(uvicorn.Server):
    """Ends when told to, after everything that clients had sent before is read and answered."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle) -> None:
        super().__init__(config)
        self.lifecycle = lifecycle

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Reads on for a moment, since what was sent may not have been read; takes no more; answers what was taken."""
        self.lifecycle.stopping = True
        await asyncio.sleep(LAST_READ)
        for server in self.servers:
            server.close()
        await asyncio.sleep(SETTLED)
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Returns the socket on which the service listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        remedy = "Give another port with --port, or --port 0 for a free one, and an address of this machine with --host."
        raise RunError(f"{host}, port {port}, cannot be listened on ({error.strerror or error}). {remedy}") from None


def address_of(listener: socket.socket) -> str:
    """Returns the address of a listening socket, as a browser takes it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_local(host: str) -> bool:
    """Returns whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(app: Guard, listener: socket.socket, lifecycle: Lifecycle, ready: Callable[[], None] = lambda: None) -> bool:
    """Serves until SIGTERM or SIGINT and until all that was taken is answered; returns False where a second SIGINT ended it before."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=END_SECONDS,
    )
    server = GracefulServer(config, lifecycle)

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):  # before uvicorn's handlers, and after: it raises the signal again at its end
        signal.signal(number, end)
    ready()
    server.run(sockets=[listener])
    return not server.force_exit
