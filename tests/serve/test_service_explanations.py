"""Explanations have a time limit, in the queue and in the computation, and are not lost when the
service ends.
"""

from __future__ import annotations

import itertools
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from tasklm.recipe.schema import Hardware
from tasklm.serve import explainer as explaining
from tasklm.serve.application import Settings
from tasklm.serve.explainer import Explainer, TooSlow
from tasklm.serve.limits import Limits
from tasklm.serve.predictor import Predictor
from tasklm.serve.service import create_app
from tasklm.tasks.examples import Example
from tests.serve.running import post, read_response, served

EXAMPLE = Example(("the cat likes music",), None)


@pytest.fixture(scope="module")
def explainer(run_folder: Path) -> Explainer:
    return Explainer(run_folder)


def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A clock that goes on by one whenever somebody looks at it."""
    ticks = itertools.count(1)
    monkeypatch.setattr(explaining, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    return ticks


def test_an_explanation_ends_at_its_deadline_wherever_it_is(
    explainer: Explainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = clock(monkeypatch)
    whole = explainer.explain_example(EXAMPLE, 3)
    looks = next(ticks) - 1
    assert (
        whole.passages is not None and looks > whole.passages.compared
    )  # one for each passage, and more
    for deadline in (0, 1, looks // 2, looks - 1):
        clock(monkeypatch)
        with pytest.raises(TooSlow):
            explainer.explain_example(EXAMPLE, 3, deadline)
    clock(monkeypatch)
    assert (
        explainer.explain_example(EXAMPLE, 3, looks)
        == explainer.explain_example(EXAMPLE, 3)
        == whole
    )


class Held:
    """An explainer that works until it may end; notes the deadlines that it was given."""

    def __init__(self, explainer: Explainer) -> None:
        self.examples, self.data = explainer.examples, explainer.data
        self.explainer, self.go, self.deadlines = explainer, threading.Event(), list[float]()

    def explain_example(self, example: Example, top: int, deadline: float) -> Any:
        self.deadlines.append(deadline)
        assert self.go.wait(60)
        return self.explainer.explain_example(example, top)


@pytest.fixture
def held(explainer: Explainer) -> Held:
    return Held(explainer)


@pytest.fixture
def predictor(run_folder: Path) -> Predictor:
    return Predictor(run_folder / "model", Hardware(device="cpu", precision="fp32", threads=1))


def test_explanations_that_take_too_long_are_refused_and_those_that_wait_are_forgotten(
    predictor: Predictor, held: Any
) -> None:
    settings = Settings(Limits(explain_seconds=0.5), window=0.0)
    with TestClient(create_app(predictor, held, settings)) as client, ThreadPoolExecutor(4) as pool:
        begin = time.monotonic()
        asked = [pool.submit(client.post, "/explain", json={"input": "a text"}) for _ in range(4)]
        for response in (one.result(60) for one in asked):
            assert response.status_code == 503 and int(response.headers["retry-after"]) >= 1
            assert "not ready within 0.5 seconds" in response.json()["detail"]
        assert client.get("/health").status_code == 200
        held.go.set()
    assert len(held.deadlines) == 1 and 0.5 <= held.deadlines[0] - begin < time.monotonic() - begin


def test_a_computation_that_stops_at_its_deadline_is_refused_alike(
    predictor: Predictor, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*given: Any) -> None:
        raise TooSlow

    monkeypatch.setattr(held, "explain_example", stops)
    with TestClient(create_app(predictor, held, Settings(window=0.0))) as client:
        response = client.post("/explain", json={"input": "a text"})
    assert (
        response.status_code == 503 and "not ready within 30 seconds" in response.json()["detail"]
    )


def test_explanations_under_way_are_answered_when_the_service_ends(run_folder: Path) -> None:
    with served(run_folder / "model", "--engine", "torch", "--explain-seconds", "600") as (
        process,
        address,
        _,
    ):
        connections = [socket.create_connection(address, 120) for _ in range(6)]
        files = [connection.makefile("rb") for connection in connections]
        for connection in connections:
            connection.sendall(post("/explain", {"input": "the cat likes music", "top": 2}))
        first = read_response(files[0])
        process.send_signal(signal.SIGTERM)
        answers = [first, *(read_response(file) for file in files[1:])]
        assert process.wait(120) == 0
        for connection, file in zip(connections, files, strict=True):
            file.close()
            connection.close()
    assert [status for status, _, _ in answers] == [200] * 6
    assert len({json.dumps(json.loads(body)) for _, _, body in answers}) == 1
