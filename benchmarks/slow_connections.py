"""Whether a client that holds many slow connections shuts others out of `tasklm serve`.

python benchmarks/slow_connections.py --work scratch --connections 1500 --seconds 30

One address opens connections and sends a byte a second on each: of headers, of a body, or nothing.
It opens another for each that is closed, 200 a second at most. Meanwhile the same address and
another one ask for /health and /predict, each time on a new connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arguments import some_of
from service import running
from service_peers.model import make_model

SLOW_ADDRESS, OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"
TIMEOUT = 10.0  # seconds after which a request counts as failed
PAUSE = 0.1  # seconds between the requests of one client
PER_SECOND = 20  # times that the slow client looks which connections are left
BODY = json.dumps({"inputs": ["a text"]}).encode()
HEAD = "Host: localhost\r\nConnection: close\r\n"
POST = f"POST /predict HTTP/1.1\r\n{HEAD}Content-Type: application/json\r\nContent-Length: "
REQUESTS = {
    "/health": f"GET /health HTTP/1.1\r\n{HEAD}\r\n".encode(),
    "/predict": f"{POST}{len(BODY)}\r\n\r\n".encode() + BODY,
}
SLOW = {
    "headers": b"GET /health HTTP/1.1\r\nX-",
    "bodies": f"{POST}10000\r\n\r\n".encode(),
    "nothing": b"",
}


@dataclass
class Client:
    """Somebody who asks, and what came back."""

    address: str
    path: str
    statuses: Counter[int] = field(default_factory=Counter)  # 0: no answer
    milliseconds: list[float] = field(default_factory=list)

    async def ask(self, service: tuple[str, int], until: float) -> None:
        """Asks again and again, each time on a new connection."""
        while time.perf_counter() < until:
            begin = time.perf_counter()
            try:
                async with asyncio.timeout(TIMEOUT):
                    status = await self._status(service)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                status = 0
            self.statuses[status] += 1
            self.milliseconds.append(1000 * (time.perf_counter() - begin))
            await asyncio.sleep(PAUSE)

    async def _status(self, service: tuple[str, int]) -> int:
        reader, writer = await asyncio.open_connection(*service, local_addr=(self.address, 0))
        try:
            writer.write(REQUESTS[self.path])
            line = await reader.readuntil(b"\r\n")
            await reader.read()
            return int(line.split()[1])
        finally:
            writer.close()


class SlowConnection(asyncio.Protocol):
    """A connection that sends a byte a second."""

    def __init__(self, begin: bytes) -> None:
        self.begin, self.closed = begin, False

    def connection_made(self, transport: Any) -> None:
        """Sends the first bytes."""
        self.transport = transport
        if self.begin:
            transport.write(self.begin)
            self._send_slowly()

    def _send_slowly(self) -> None:
        if not self.closed:
            self.transport.write(b"x")
            asyncio.get_running_loop().call_later(1.0, self._send_slowly)

    def connection_lost(self, error: Exception | None) -> None:
        """Notes that it was closed."""
        self.closed = True


async def hold(service: tuple[str, int], slow: str, count: int, rate: int, opened: Any) -> None:
    """Holds connections until the process is ended, and notes how many were opened."""
    loop = asyncio.get_running_loop()
    connections: list[SlowConnection] = []
    while True:
        connections = [connection for connection in connections if not connection.closed]
        for _ in range(min(count - len(connections), max(1, rate // PER_SECOND))):
            where = {"host": service[0], "port": service[1], "local_addr": (SLOW_ADDRESS, 0)}
            _, connection = await loop.create_connection(
                lambda: SlowConnection(SLOW[slow]), **where
            )
            connections.append(connection)
            opened.value += 1
        await asyncio.sleep(1 / PER_SECOND)


def hold_in_process(*given: Any) -> None:
    """Holds connections, in a process of its own: its work must not slow down those who ask."""
    allow_files(given[2])
    asyncio.run(hold(*given))


async def ask(service: tuple[str, int], seconds: float) -> list[Client]:
    """Asks for a while from both addresses."""
    clients = [
        Client(address, path) for path in REQUESTS for address in (SLOW_ADDRESS, OTHER_ADDRESS)
    ]
    until = time.perf_counter() + seconds
    await asyncio.gather(*(client.ask(service, until) for client in clients))
    return clients


def measure(
    service: tuple[str, int], slow: str, options: argparse.Namespace
) -> tuple[list[Client], int]:
    """Asks while connections are held, and says what the clients got and how many connections were
    opened.
    """
    opened = multiprocessing.Value("q", 0)
    given = (service, slow, options.connections, options.rate, opened)
    holder = multiprocessing.Process(target=hold_in_process, args=given, daemon=True)
    holder.start()
    try:
        while opened.value < options.connections and holder.is_alive():
            time.sleep(0.05)
        clients = asyncio.run(ask(service, options.seconds))
        if not holder.is_alive():
            raise SystemExit("the slow client has failed")
    finally:
        holder.kill()
        holder.join()
    return clients, opened.value


def allow_files(connections: int) -> None:
    """Raises the limit of open files of this process, where it is too low."""
    needed, (soft, hard) = connections + 256, resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def rows(slow: str, clients: Sequence[Client]) -> list[str]:
    """Lines of the table."""
    lines = []
    for client in clients:
        whose = "the slow one's" if client.address == SLOW_ADDRESS else "another"
        counts = [
            client.statuses.total(),
            client.statuses[200],
            client.statuses[503],
            client.statuses[0],
        ]
        times = sorted(client.milliseconds)
        cells = [
            slow,
            whose,
            client.path,
            *counts,
            f"{times[len(times) // 2]:.0f}",
            f"{times[-1]:.0f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for the model; one that is there is used again",
    )
    parser.add_argument("--connections", type=int, default=1500, help="that the slow client holds")
    parser.add_argument(
        "--rate", type=int, default=200, help="connections that it opens a second, at most"
    )
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of asking, for each kind of slowness"
    )
    parser.add_argument(
        "--slow",
        type=some_of(tuple(SLOW)),
        default=list(SLOW),
        help="what is slow, joined by commas",
    )
    options = parser.parse_args()
    model = options.work / "2x128" / "model"
    if not model.exists():
        options.work.mkdir(parents=True, exist_ok=True)
        make_model(model, 2, 128, 1)
    print("| slow | address | path | asked | 200 | 503 | failed | p50, ms | worst, ms |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for slow in options.slow:
        with running(
            [
                sys.executable,
                "-m",
                "tasklm",
                "serve",
                str(model),
                "--port",
                "0",
                "--engine",
                "torch",
            ]
        ) as (_, address):
            clients, opened = measure(address, slow, options)
        print("\n".join(rows(slow, clients)), flush=True)
        print(f"{slow}: {opened:,} connections opened", file=sys.stderr)


if __name__ == "__main__":
    main()
