"""Load from another process: wrk where it is installed, else connections of this process."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 10  # seconds after which a request counts as failed
SCRIPT = """
local bodies, number = {}, 0
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
wrk.method, wrk.path = "POST", "/predict"
wrk.headers["Content-Type"] = "application/json"
function request()
  number = number % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[number])
end
function done(summary, latency, requests)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  local seen = {summary.requests, summary.duration / 1e6, failed, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3}
  io.write("RESULT " .. table.concat(seen, " ") .. "\\n")
end
"""


@dataclass(frozen=True)
class Load:
    """What came of it."""

    requests: int
    seconds: float
    failed: int
    p50: float  # milliseconds
    p99: float
    by: str

    @property
    def per_second(self) -> float:
        """The requests of a second."""
        return self.requests / self.seconds


def put_load(
    address: tuple[str, int], texts: list[str], connections: int, seconds: float, work: Path
) -> Load:
    """What came of requests with one text each, sent one after the other by so many connections."""
    bodies = [json.dumps({"inputs": [text]}) for text in texts]
    if shutil.which("wrk"):
        return _by_wrk(address, bodies, connections, seconds, work)
    return asyncio.run(
        _by_ourselves(address, [body.encode() for body in bodies], connections, seconds)
    )


def _by_wrk(
    address: tuple[str, int], bodies: list[str], connections: int, seconds: float, work: Path
) -> Load:
    (work / "bodies.jsonl").write_text("\n".join(bodies) + "\n", encoding="utf-8")
    script = work / "load.lua"
    script.write_text(SCRIPT.replace("BODIES", str(work / "bodies.jsonl")), encoding="utf-8")
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        "--timeout",
        f"{TIMEOUT}s",
        "-s",
        str(script),
    ]
    printed = subprocess.run(
        [*command, f"http://{address[0]}:{address[1]}"], check=True, capture_output=True, text=True
    ).stdout
    found = [
        float(word)
        for word in next(
            line for line in printed.splitlines() if line.startswith("RESULT")
        ).split()[1:]
    ]
    return Load(int(found[0]), found[1], int(found[2]), found[3], found[4], "wrk")


async def _by_ourselves(
    address: tuple[str, int], bodies: list[bytes], connections: int, seconds: float
) -> Load:
    begin = time.perf_counter()
    times: list[float] = []
    failed = 0

    async def client(number: int) -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection(*address)
        while time.perf_counter() < begin + seconds:
            body = bodies[number % len(bodies)]
            number += connections
            head = (
                f"POST /predict HTTP/1.1\r\nHost: "
                f"localhost\r\nContent-Type: "
                f"application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            sent = time.perf_counter()
            writer.write(head.encode() + body)
            try:
                async with asyncio.timeout(TIMEOUT):
                    status = await _response(reader)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                failed += 1
                return
            failed += status >= 400
            times.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*map(client, range(connections)))
    times.sort()
    p50, p99 = (1000 * times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99))
    return Load(len(times), time.perf_counter() - begin, failed, p50, p99, "a Python client")


async def _response(reader: asyncio.StreamReader) -> int:
    """The status of a response that was read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))
    return int(head.split()[1])
