"""The service as a process: its start, slow clients, and an end that loses nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError, RunError, TaskLMError
from tasklm.serve import server as serving
from tasklm.serve.application import Settings
from tasklm.serve.connections import MOST_OF_ONE
from tasklm.serve.guard import Lifecycle
from tasklm.serve.service import create_app
from tests.conftest import sentences
from tests.serve.models import need_onnx
from tests.serve.running import Holding, read_response, request_of, served, serving_inside

TEXTS = sentences(64, 3)


@dataclass
class Client(threading.Thread):
    """Sends requests one after the other until the service is gone, and keeps when each was sent
    and what came back.
    """

    address: tuple[str, int]
    inputs: list[str]
    keeps: bool  # its connection
    done: list[tuple[float, int]] = field(
        default_factory=list
    )  # (seconds when the request was sent, answers in the response; -1: none)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while True:
            try:
                connection = socket.create_connection(self.address, 30)
            except OSError:
                return  # nobody listens any more
            with connection, connection.makefile("rb") as file:
                going = True
                while going:
                    begun = time.monotonic()
                    try:
                        connection.sendall(request_of(self.inputs, not self.keeps))
                    except OSError:
                        self.done.append((begun, -1))
                        return
                    sent = time.monotonic()
                    try:
                        status, headers, body = read_response(file)
                    except OSError:
                        self.done.append((sent, -1))
                        return
                    self.done.append(
                        (sent, len(json.loads(body)["answers"]) if status == 200 else -1)
                    )
                    going = headers.get("connection") != "close"


@pytest.mark.parametrize(
    ("number", "engine"),
    [(signal.SIGTERM, "torch"), (signal.SIGINT, "onnx")],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_stop_under_load_loses_no_request(
    classifier: Path, number: signal.Signals, engine: str
) -> None:
    if engine == "onnx":
        need_onnx()
    with served(classifier, "--workers", "2", "--engine", engine) as (process, address, lines):
        # large requests, so that there is always a queue; half of the clients make a connection for
        # each
        clients = [Client(address, TEXTS[: 20 + place], place % 2 == 0) for place in range(16)]
        for client in clients:
            client.start()
        while sum(len(client.done) for client in clients) < 48:
            assert process.poll() is None
            time.sleep(0.01)
        stopped = time.monotonic()
        process.send_signal(number)
        for client in clients:
            client.join(60)
            assert not client.is_alive()
        assert process.wait(60) == 0
        assert process.stderr is not None
        told = "".join(lines) + process.stderr.read()
    for client in clients:
        taken = [answers for sent, answers in client.done if sent < stopped]
        assert taken and all(answers == len(client.inputs) for answers in taken), client.done
    assert (
        f"classify by {engine} (as requested); workers × threads: 2 × 1" in told
        and "all accepted requests were answered" in told
    )


@pytest.fixture
def predictor(classifier: Path) -> Holding:
    found = Holding(classifier)
    found.go.set()
    return found


@pytest.fixture
def inside(predictor: Holding) -> Iterator[tuple[str, int]]:
    """The address of a service in a thread of this process, so that its
    patience can be shortened.
    """
    with serving_inside(predictor) as service:
        yield service.address


def test_slow_and_endless_headers_are_cut_off(
    inside: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEADER_SECONDS", 0.3)
    for begin in (b"", b"POST /predict HTTP/1.1\r\nHost: te"):
        with socket.create_connection(inside, 20) as connection:
            connection.sendall(begin)
            assert connection.recv(100) == b""  # closed by the service
    with socket.create_connection(inside, 20) as connection, connection.makefile("rb") as file:
        connection.sendall(request_of(["a"]))
        assert read_response(file)[0] == 200
        connection.sendall(
            b"GET /hea"
        )  # the second request of a connection is not waited for either
        assert file.read(100) == b""
    monkeypatch.setattr(serving, "HEADER_SECONDS", 20)
    with socket.create_connection(inside, 20) as connection, connection.makefile("rb") as file:
        connection.sendall(b"GET /health HTTP/1.1\r\nX: " + b"x" * (serving.MOST_HEADERS + 1))
        assert file.readline().startswith(b"HTTP/1.1 400")
    with socket.create_connection(inside, 20) as connection, connection.makefile("rb") as file:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        assert file.readline().startswith(b"HTTP/1.1 400")


def test_a_body_may_be_longer_than_headers(inside: tuple[str, int]) -> None:
    with socket.create_connection(inside, 20) as connection, connection.makefile("rb") as file:
        for _ in range(2):  # on one connection
            connection.sendall(request_of(["word " * 1000] * 30))
            status, _, body = read_response(file)
            assert status == 200 and len(json.loads(body)["answers"]) == 30
        connection.sendall(request_of(["a" * (1 << 21)]))
        status, headers, body = read_response(file)
        assert status == 413 and headers["connection"] == "close" and b"bytes" in body


HEAD = "Host: localhost\r\nContent-Length: 9\r\n"


@pytest.mark.parametrize(
    ("request_head", "status", "more"),
    [
        (f"POST /predict HTTP/1.1\r\n{HEAD}\r\n", 415, b"x"),  # refused before its body comes
        (f"POST /nothing HTTP/1.1\r\n{HEAD}\r\n", 404, b"x"),
        (f"DELETE /health HTTP/1.1\r\n{HEAD}\r\n", 405, b"x"),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, b"\r\n"),
    ],
)
def test_what_comes_between_requests_does_not_keep_a_connection_open(
    inside: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
    request_head: str,
    status: int,
    more: bytes,
) -> None:
    with (
        socket.create_connection(inside, 4) as connection,
        connection.makefile("rb") as file,
    ):  # uvicorn waits for 5 seconds
        connection.sendall(request_head.encode())
        assert read_response(file)[0] == status
        monkeypatch.setattr(serving, "HEADER_SECONDS", 0.3)
        connection.sendall(more)
        assert file.read(100) == b""  # closed by the service


def test_the_rest_of_a_refused_body_is_no_header_and_the_connection_goes_on(
    inside: tuple[str, int],
) -> None:
    size = 2 * serving.MOST_HEADERS
    with socket.create_connection(inside, 20) as connection, connection.makefile("rb") as file:
        connection.sendall(
            f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        assert read_response(file)[0] == 415
        connection.sendall(b"x" * size + request_of(["a"]))
        assert read_response(file)[0] == 200


def test_a_half_request_behind_one_that_is_computed_does_not_end_it(
    inside: tuple[str, int], predictor: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "HEADER_SECONDS", 0.1)
    predictor.go.clear()
    with socket.create_connection(inside, 20) as connection, connection.makefile("rb") as file:
        connection.sendall(request_of(["a"]) + b"GET /hea")
        time.sleep(0.5)
        predictor.go.set()
        assert read_response(file)[0] == 200
        assert file.read(100) == b""  # the half one is still not waited for


def test_requests_that_take_too_long_after_the_signal_are_given_up_and_this_is_told(
    predictor: Holding,
) -> None:
    predictor.go.clear()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    lifecycle, listener = Lifecycle(), serving.bind("127.0.0.1", 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(
            listener.getsockname(), 5
        )  # while models are loaded nobody listens

    def asks(place: int) -> int:
        with (
            socket.create_connection(listener.getsockname(), 20) as connection,
            connection.makefile("rb") as file,
        ):
            connection.sendall(request_of([f"text {place}"]))
            return read_response(file)[0]

    def stops() -> list[int]:
        first = pool.submit(asks, 0)
        while not predictor.begun:
            time.sleep(0.01)
        second = pool.submit(asks, 1)  # waits for the worker
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            return [first.result(20), second.result(20)]
        finally:
            predictor.go.set()

    told: list[Any] = []
    with ThreadPoolExecutor(3) as pool:
        ready = lambda: told.append(pool.submit(stops))  # noqa: E731
        try:
            service = create_app(predictor, settings=Settings(window=0.0), lifecycle=lifecycle)
            answered = serving.run(service, listener, lifecycle, ready, end_seconds=0.2)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        assert told[0].result(20) == [500, 500]
    assert answered is False and lifecycle.gave_up and predictor.begun == 1


def refused(*words: str) -> TaskLMError:
    result = CliRunner().invoke(app, ["serve", *words])
    assert isinstance(result.exception, TaskLMError), (result.output, result.exception)
    return result.exception


def test_what_cannot_be_served_is_told(classifier: Path, tmp_path: Path) -> None:
    port = ["--port", "0", "--no-explain"]
    assert isinstance(refused(str(tmp_path), *port), RunError)
    error = refused(str(classifier), "--engine", "cloud", *port)
    assert isinstance(error, RecipeError) and "auto, torch, onnx" in str(error)
    (tmp_path / "token").write_text("short\n", encoding="utf-8")
    error = refused(str(classifier), "--token-file", str(tmp_path / "token"), *port)
    assert (
        isinstance(error, DataError) and "at least 16" in str(error) and "short" not in str(error)
    )
    assert isinstance(
        refused(str(classifier), "--token-file", str(tmp_path / "none"), *port), DataError
    )
    with serving.bind("127.0.0.1", 0) as listener, serving.bind(*listener.getsockname()) as late:
        listener.listen()
        error = refused(str(classifier), "--port", str(listener.getsockname()[1]))
        with pytest.raises(RunError, match="--port"):
            serving._listen(late)
    assert isinstance(error, RunError) and "--port" in str(error)


@pytest.mark.parametrize(
    ("words", "warned", "hosts"),
    [
        (["--host", "0.0.0.0"], True, set()),
        (["--host", "0.0.0.0", "--token-file", "TOKEN"], False, set()),
        (
            ["--allow-host", "model.example"],
            False,
            {"127.0.0.1", "localhost", "[::1]", "model.example"},
        ),
        (
            ["--host", "0.0.0.0", "--allow-host", "Model.Example:80"],
            True,
            {"0.0.0.0", "127.0.0.1", "localhost", "[::1]", "model.example"},
        ),
    ],
)
def test_who_may_ask(
    classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    warned: bool,
    hosts: set[str],
) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n", encoding="utf-8")
    asked: list[Any] = []
    local = serving.bind
    monkeypatch.setattr(
        serving, "bind", lambda host, port: (asked.append((host, port)), local("127.0.0.1", 0))[1]
    )
    monkeypatch.setattr(
        serving,
        "run",
        lambda app, listener, lifecycle, ready, room, end: (asked.append(app), True)[1],
    )
    words = [str(tmp_path / "token") if word == "TOKEN" else word for word in words]
    result = CliRunner().invoke(
        app,
        ["serve", str(classifier), "--engine", "torch", "--no-explain", "--port", "8123", *words],
    )
    assert result.exit_code == 0, (result.output, result.exception)
    address, guard = asked
    assert address == ("0.0.0.0" if "0.0.0.0" in words else "127.0.0.1", 8123)
    assert ("warning: anyone" in result.stderr) == warned and guard._hosts == hosts
    assert guard._token == (b"0123456789abcdef" if "--token-file" in words else None)


def test_options_reach_what_they_limit(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(serving, "run", lambda *all_of_it: (given.append(all_of_it), True)[1])
    for words in (["--most-connections", "7"], ["--explain-seconds", "90"]):
        result = CliRunner().invoke(
            app,
            ["serve", str(classifier), "--engine", "torch", "--no-explain", "--port", "0", *words],
        )
        assert result.exit_code == 0, (result.output, result.exception)
    assert [(room.of_one, end_seconds) for *_, room, end_seconds in given] == [
        (7, serving.END_SECONDS),
        (MOST_OF_ONE, 90),
    ]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, classifier: Path) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'tasklm[serve]'" in str(refused(str(classifier)))


def test_addresses() -> None:
    assert all(map(serving.is_local, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(serving.is_local, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
