"""What is refused, with which status, and that a refusal is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx
from starlette.testclient import TestClient

from tasklm.recipe.schema import Hardware
from tasklm.serve import limits
from tasklm.serve.application import Settings
from tasklm.serve.limits import Limits
from tasklm.serve.predictor import Predictor
from tasklm.serve.service import create_app

SMALL = Limits(size=2000, inputs=3, characters=100, waiting=2, explanations=1)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def predictor(classifier: Path) -> Predictor:
    return Predictor(classifier, Hardware(device="cpu", precision="fp32", threads=1))


@pytest.fixture(scope="module")
def client(predictor: Predictor) -> Iterator[TestClient]:
    with TestClient(create_app(predictor, settings=Settings(SMALL, window=0.0))) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not valid JSON"),
        (b'{"inputs": ["a"', 400, "not valid JSON"),
        (b'{"inputs": ["\xff"]}', 400, "not valid JSON"),
        (b'{"inputs": ["\\ud800"]}', 400, "not valid JSON"),
        (b'{"inputs": [{"text": NaN}]}', 400, "not valid JSON"),
        (b"[" * 1500, 400, "not valid JSON"),
        (b'["a"]', 422, "a list, not an object"),
        (b"{}", 422, "inputs is missing"),
        (b'{"inputs": ["a"], "top": 5}', 422, "'top' is not a known name"),
        (b'{"inputs": "a"}', 422, "inputs is a text, not a list"),
        (b'{"inputs": ["a", 5]}', 422, "inputs[1] is a number"),
        (b'{"inputs": [null]}', 422, "inputs[0] is null"),
        (b'{"inputs": [["a"]]}', 422, "not a list of two texts"),
        (b'{"inputs": [["a", 5]]}', 422, "not a list of two texts"),
        (b'{"inputs": ["a", "b", "c", "d"]}', 422, "4 inputs; at most 3 are allowed"),
        (
            json.dumps({"inputs": ["x" * 101]}).encode(),
            422,
            "inputs[0] has 101 characters; at most 100 are allowed",
        ),
        (json.dumps({"inputs": [["x" * 60, "y" * 60]]}).encode(), 422, "120 characters"),
        (
            json.dumps({"inputs": [{"text": "x", "more": {"deep": ["y" * 99]}}]}).encode(),
            422,
            "characters",
        ),
        (b'{"inputs": ["a", {"text": [1]}]}', 422, "inputs[1]: "),
        (b'{"inputs": [{}]}', 422, "column"),
        (b'{"inputs": [' + b'"a",' * 1000 + b'"a"]}', 413, "more than 2,000 bytes"),
    ],
)
def test_bodies_that_are_refused(client: TestClient, body: bytes, status: int, words: str) -> None:
    response = client.post("/predict", content=body, headers=JSON)
    assert response.status_code == status and words in response.json()["detail"], response.text
    assert client.post("/predict", json={"inputs": ["a"]}).status_code == 200


@pytest.mark.parametrize(
    ("top", "status"), [(0, 422), (51, 422), (True, 422), ("3", 422), (2.5, 422), (50, 404)]
)
def test_how_many_reasons_may_be_asked_for(client: TestClient, top: Any, status: int) -> None:
    assert client.post("/explain", json={"input": "a", "top": top}).status_code == status


def test_other_types_paths_and_methods(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
        assert (
            client.post(
                "/predict", content=b'{"inputs": ["a"]}', headers={"Content-Type": kind}
            ).status_code
            == 415
        )
    assert (
        client.post(
            "/predict",
            content=b'{"inputs": ["a"]}',
            headers={"Content-Type": "Application/JSON; charset=utf-8"},
        ).status_code
        == 200
    )
    assert (
        client.get("/predictions").status_code
        == client.post("/predict/", json={"inputs": []}).status_code
        == 404
    )
    wrong = client.get("/predict")
    assert wrong.status_code == 405 and wrong.headers["allow"] == "POST" and wrong.json()["detail"]
    assert client.delete("/health").status_code == client.options("/predict").status_code == 405
    assert (
        "access-control-allow-origin"
        not in client.options("/predict", headers={"Origin": "http://elsewhere"}).headers
    )
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/page.html", "/predictor.py"):
        assert client.get(path).status_code == 404


def test_very_large_bodies_are_not_read_to_their_end(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DRAINED", 5000)
    response = client.post("/predict", content=(b" " * 1000 for _ in range(100)), headers=JSON)
    assert response.status_code == 413 and response.headers["connection"] == "close"
    declared = client.post("/predict", content=b" " * 6000, headers=JSON)
    assert declared.status_code == 413
    expecting = client.post(
        "/predict", content=b" " * 2500, headers={**JSON, "Expect": "100-continue"}
    )
    assert expecting.status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"inputs": '
        await asyncio.sleep(3600)
        yield b"[]}"

    async def test() -> Any:
        transport = httpx.ASGITransport(create_app(predictor))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/explain", content=slowly(), headers=JSON)

    response = asyncio.run(asyncio.wait_for(test(), 20))
    assert response.status_code == 408 and response.headers["connection"] == "close"


class Held:
    """A predictor that answers when it is told to."""

    def __init__(self, predictor: Predictor) -> None:
        self.task, self.data, self.labels = predictor.task, predictor.data, predictor.labels
        self.go, self.begun = threading.Event(), threading.Semaphore(0)

    def answers(self, given: Sequence[Any]) -> list[dict[str, Any]]:
        self.begun.release()
        assert self.go.wait(20)
        return [{"label": one.text} for one in given]


def test_a_full_queue_says_when_to_come_again(predictor: Predictor) -> None:
    held: Any = Held(predictor)
    with (
        TestClient(create_app(held, settings=Settings(SMALL, window=0.0))) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        taken = [pool.submit(client.post, "/predict", json={"inputs": ["first"]})]
        assert held.begun.acquire(timeout=20)  # the worker has it; what comes now waits
        taken.append(pool.submit(client.post, "/predict", json={"inputs": ["second", "third"]}))
        while "tasklm_inputs_waiting 2.0" not in client.get("/metrics").text:
            pass
        refused = client.post("/predict", json={"inputs": ["fourth"]})
        held.go.set()
        assert [
            [answer["label"] for answer in one.result(20).json()["answers"]] for one in taken
        ] == [["first"], ["second", "third"]]
    assert (
        refused.status_code == 503
        and int(refused.headers["retry-after"]) >= 1
        and "wait" in refused.json()["detail"]
    )


def test_a_failure_of_the_service_tells_nothing_of_the_machine(predictor: Predictor) -> None:
    class Broken(Held):
        def answers(self, given: Sequence[Any]) -> list[dict[str, Any]]:
            raise OSError("/secret/path is missing")

    broken: Any = Broken(predictor)
    with TestClient(create_app(broken), raise_server_exceptions=False) as client:
        response = client.post("/predict", json={"inputs": ["a"]})
        assert response.status_code == 500 and "secret" not in response.text
        assert client.get("/health").status_code == 200


def test_a_wrong_row_is_refused_before_it_waits_with_others(predictor: Predictor) -> None:
    held: Any = Held(predictor)
    with TestClient(create_app(held, settings=Settings(window=0.0))) as client:
        assert (
            "inputs[0]: "
            in client.post("/predict", json={"inputs": [{"nothing": 1}]}).json()["detail"]
        )
        assert not held.begun.acquire(blocking=False)  # no worker has seen it
