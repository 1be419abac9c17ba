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
BACKLOG = 2048  # connections that wait to be taken
LAST_READ = 0.4  # seconds after the signal in which what clients have sent is still read …
SETTLED = 0.2  # … and, with no new connections, once more
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
END_SECONDS = 60  # for the answers to what was taken; then the rest is given up


class PatientProtocol(HttpToolsProtocol):
    """HTTP on one connection; closes those whose headers do not come in time, or have no end."""

    _timer: asyncio.TimerHandle | None = None  # runs while no request is taken and the time to the next is limited by us, not by uvicorn
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
        elif self._timer is None and self.cycle is not None and self.cycle.response_complete and not self.transport.is_closing():
            # the rest of a body that was refused, or empty lines: uvicorn has ended its wait for the next request, which has not begun
            self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _wait(self) -> None:
        self._no_wait()
        self._waits, self._timer = True, self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _no_wait(self) -> None:
        self._waits, self._size = False, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # the request before is answered first
            self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)
        elif not self.transport.is_closing():
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


def bind(host: str, port: int) -> socket.socket:
    """Returns the socket on which the service will listen: until then connections are refused. Port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a service that has ended are no obstacle
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from None
    return listener


def _listen(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:  # somebody else has begun to listen there meanwhile
        raise _taken(host, port, error) from None


def _taken(host: str, port: int, error: OSError) -> RunError:
    remedy = "Give another port with --port, or --port 0 for a free one, and an address of this machine with --host."
    return RunError(f"{host}, port {port}, cannot be listened on ({error.strerror or error}). {remedy}")


def address_of(listener: socket.socket) -> str:
    """Returns the address of a bound socket, as a browser takes it."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def is_local(host: str) -> bool:
    """Returns whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(app: Guard, listener: socket.socket, lifecycle: Lifecycle, ready: Callable[[], None] = lambda: None) -> bool:
    """Listens, calls `ready`, and serves until SIGTERM or SIGINT and until all that was taken is answered.

    Returns False where not all was: a second SIGINT ended it before, or the time for it was over.
    """
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
    _listen(listener)
    ready()
    server.run(sockets=[listener])
    return not (server.force_exit or lifecycle.gave_up)
