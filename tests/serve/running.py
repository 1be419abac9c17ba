"""The service as a process, or in a thread of this one, and requests to it byte by byte."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.recipe.schema import Hardware
from tasklm.serve import server as serving
from tasklm.serve.connections import Room
from tasklm.serve.guard import Lifecycle
from tasklm.serve.predictor import Predictor
from tasklm.serve.service import create_app


def request_of(inputs: list[str], close: bool = False) -> bytes:
    """A request for predictions."""
    return post("/predict", {"inputs": inputs}, close)


def post(path: str, values: dict[str, Any], close: bool = False) -> bytes:
    """A request with some values as its body."""
    body = json.dumps(values).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: "
        f"localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + (b"Connection: close\r\n\r\n" if close else b"\r\n") + body


def read_response(file: Any) -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and the whole body; raises ConnectionError where the connection ends
    before.
    """
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("no answer")
    headers = {}
    while (field_line := file.readline()) != b"\r\n":
        name, _, value = field_line.decode("latin-1").partition(":")
        if not value:
            raise ConnectionError("half an answer")
        headers[name.lower()] = value.strip()
    body = file.read(int(headers["content-length"]))
    if len(body) != int(headers["content-length"]):
        raise ConnectionError("half an answer")
    return int(line.split()[1]), headers, body


@contextmanager
def served(
    folder: Path, *words: str
) -> Iterator[tuple[subprocess.Popen[str], tuple[str, int], list[str]]]:
    """Runs `tasklm serve` and gives the process, its address and the lines on its terminal."""
    command = [sys.executable, "-m", "tasklm", "serve", str(folder), "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    try:
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"listening on http://([\d.]+):(\d+)", line):
                break
        else:
            raise AssertionError("".join(lines))
        yield process, (found[1], int(found[2])), lines
    finally:
        process.kill()
        process.wait()


class Holding(Predictor):
    """Answers when it may, and counts how often it began to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Hardware(device="cpu", precision="fp32", threads=1))
        self.go, self.begun = threading.Event(), 0

    def answers(self, given: Sequence[Any]) -> list[dict[str, Any]]:
        self.begun += 1
        assert self.go.wait(20)
        return super().answers(given)


@dataclass(frozen=True)
class Inside:
    """A service in a thread of this process."""

    address: tuple[str, int]
    listener: socket.socket
    server: serving.GracefulServer
    loop: asyncio.AbstractEventLoop


@contextmanager
def serving_inside(predictor: Predictor, room: Room | None = None) -> Iterator[Inside]:
    """Runs the service in a thread; it must end when it is told to."""
    lifecycle = Lifecycle()
    config = serving.configuration(create_app(predictor, lifecycle=lifecycle), room or Room(), 20)
    server = serving.GracefulServer(config, lifecycle)
    listener = serving.bind("127.0.0.1", 0)
    listener.listen()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(server.serve([listener])), daemon=True
    )
    thread.start()
    try:
        yield Inside(listener.getsockname()[:2], listener, server, loop)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
        loop.close()
