"""The process around the application: its socket, slow clients, and a shutdown that
loses nothing.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import signal
import socket
import sys
import termios
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tasklm.errors import RunError
from tasklm.serve.connections import Connections, Place, Room, group_of
from tasklm.serve.guard import IN_RESERVE, Guard, Lifecycle

# from a connection, or the first byte of a request, to the end of its headers
HEADER_SECONDS = 10.0
MOST_HEADERS = 64 << 10  # bytes
READ_SECONDS = 30.0  # for a client to read an answer once it has stalled
BACKLOG = 2048  # connections that wait to be accepted
LAST_READ = 0.4  # seconds after the signal in which what clients have sent is still read …
SETTLED = 0.2  # … and, with no new connections, once more
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
END_SECONDS = 60  # for answering accepted requests; the rest is abandoned


class PatientProtocol(HttpToolsProtocol):
    """HTTP on one connection, which is closed if headers are late or endless, or nobody reads."""

    # runs while no request is taken and the time to the next is limited by us, not by uvicorn
    _timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None  # runs while an answer waits to be read
    _waits, _size = True, 0  # for the end of headers; bytes received so far
    address = ""

    def __init__(self, all_connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all = all_connections

    @property
    def waits(self) -> bool:
        """Whether no request is being answered: the next one has not fully arrived."""
        if self.pipeline or self.transport.get_write_buffer_size():
            return False
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def cut_off(self) -> None:
        """Closes the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Starts waiting for the first request."""
        super().connection_made(transport)
        if self.client:
            self.address = group_of(self.client[0])
        place = self._all.take(self)
        if place is Place.NOWHERE:
            self.cut_off()
            return
        if place is Place.RESERVE:
            self.app_state = {**self.app_state, IN_RESERVE: True}
        self._wait()

    def on_message_begin(self) -> None:
        """Starts waiting for the headers of a request."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """Ends the wait."""
        self._no_wait()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait."""
        self._all.lost(self)
        self._no_wait()
        self._reads()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Starts waiting for the answer to be read, and for the next request."""
        super().on_response_complete()
        self._all.answered(self)
        if self.transport.get_write_buffer_size():
            self._does_not_read()

    def pause_writing(self) -> None:
        """Starts waiting for a client that reads too slowly."""
        super().pause_writing()
        self._does_not_read()

    def resume_writing(self) -> None:
        """Ends that wait."""
        super().resume_writing()
        self._reads()

    def shutdown(self) -> None:
        """Closes the connection once its client's requests are answered."""
        if not self._sent_something():
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Processes received bytes."""
        super().data_received(data)
        if self._waits:
            self._size += len(data)
            if self._size > MOST_HEADERS and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")
            return
        answered = self.cycle is not None and self.cycle.response_complete
        if answered and self._timer is None and not self.transport.is_closing():
            # the rest of a body that was refused, or empty lines: uvicorn has ended its wait for
            # the next request, which has not begun
            self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _wait(self) -> None:
        self._no_wait()
        self._waits = True
        self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _no_wait(self) -> None:
        self._waits, self._size = False, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _does_not_read(self) -> None:
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(READ_SECONDS, self._cut_off_unread)

    def _reads(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _cut_off_unread(self) -> None:
        self._read_timer = None
        if self.transport.get_write_buffer_size():
            self.cut_off()

    def _sent_something(self) -> bool:
        """Whether a request has started to arrive: it will be answered."""
        if self.transport.is_closing():
            return False
        if self._waits and self._size:
            return True
        file = self.transport.get_extra_info("socket").fileno()
        return int.from_bytes(fcntl.ioctl(file, termios.FIONREAD, bytes(4)), sys.byteorder) > 0

    def _give_up(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering:  # the request before comes first
            self._timer = self.loop.call_later(HEADER_SECONDS, self._give_up)
        elif not self.transport.is_closing():
            self.transport.close()


class GracefulServer(uvicorn.Server):
    """Stops on a signal, after everything that clients sent before it is read and answered."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle) -> None:
        super().__init__(config)
        self.lifecycle = lifecycle

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Keeps reading for a moment, accepts nothing new, and answers what was accepted."""
        self.lifecycle.stopping = True
        await asyncio.sleep(LAST_READ)
        connected = list(chain.from_iterable(map(_accepted, sockets or [])))
        for server in self.servers:
            server.close()  # resets connections that are not accepted yet
        for connection in connected:
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, connection)
        await asyncio.sleep(SETTLED)
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        protocol_class: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = protocol_class(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol


def bind(host: str, port: int) -> socket.socket:
    """The socket on which the service will listen: until then connections are refused. Port 0 means
    any free one.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # leftover connections of a stopped service are no obstacle
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from None
    return listener


def _accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """Accepts the waiting connections."""
    while True:
        try:
            yield listener.accept()[0]
        except BlockingIOError:
            return


def _listen(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    try:
        listener.listen(BACKLOG)
    except OSError as error:  # another program started listening there in the meantime
        raise _taken(host, port, error) from None


def _taken(host: str, port: int, error: OSError) -> RunError:
    problem = f"cannot listen on {host}, port {port} ({error.strerror or error})"
    other_port = "Give another port with --port, or --port 0 for a free one"
    return RunError(f"{problem}. {other_port}, and an address of this machine with --host.")


def address_of(listener: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"


def is_local(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def configuration(app: Guard, room: Room, end_seconds: float) -> uvicorn.Config:
    """The uvicorn configuration of an application, with `end_seconds` for the last answers."""
    protocol: Any = partial(PatientProtocol, Connections(room))
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=end_seconds,  # type: ignore[arg-type]
    )


def run(
    app: Guard,
    listener: socket.socket,
    lifecycle: Lifecycle,
    ready: Callable[[], None] = lambda: None,
    room: Room | None = None,
    end_seconds: float = END_SECONDS,
) -> bool:
    """Listens, calls `ready`, and serves until a signal arrives and all accepted requests are
    answered.

    Returns False if some were not: a second SIGINT or the time limit ended it earlier.
    """
    server = GracefulServer(configuration(app, room or Room(), end_seconds), lifecycle)

    def end(number: int, frame: object) -> None:
        server.should_exit = True

    # before uvicorn's handlers and after them: it raises the signal again at its end
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    _listen(listener)
    ready()
    server.run(sockets=[listener])
    return not (server.force_exit or lifecycle.gave_up)
