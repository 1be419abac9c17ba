"""The service of a model of images: its ways to send one, its limits, and its page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from tasklm.images.model import ImagePredictor, save_model
from tasklm.images.network import LEARN, ImageNet, NetShape
from tasklm.images.service import create_app
from tasklm.serve.application import Settings
from tasklm.serve.guard import Lifecycle
from tasklm.serve.limits import Limits
from tests.images.samples import COLOURS, arrays, png

HEADERS = {"host": "localhost"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = ImageNet(NetShape(16, 4, 3))
    model.features(torch.randn(8, 3, 16, 16), LEARN)
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, model, sorted(COLOURS), {})
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    predictor = ImagePredictor(folder)
    settings = Settings(Limits(inputs=4), hosts=("localhost",))
    with TestClient(create_app(predictor, settings, Lifecycle()), headers=HEADERS) as client:
        yield client


@pytest.fixture(scope="module")
def files() -> list[bytes]:
    pixels, _ = arrays(3)
    return [png(one) for one in pixels]


def test_all_ways_to_send_an_image_have_the_same_answer(
    client: TestClient, folder: Path, files: list[bytes]
) -> None:
    wanted = ImagePredictor(folder).answers(files)
    texts = [base64.b64encode(one).decode() for one in files]
    together = client.post("/predict", json={"images": texts}).json()["answers"]
    for one, other in zip(together, wanted, strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    raw = client.post("/predict", content=files[0], headers={"content-type": "image/png"})
    form = client.post("/predict", files={"file": ("photo.png", files[0], "image/png")})
    address = client.post("/predict", json={"images": [f"data:image/png;base64,{texts[0]}"]})
    for response in (raw, form, address):
        assert response.status_code == 200
        (answer,) = response.json()["answers"]
        assert answer["probabilities"] == pytest.approx(wanted[0]["probabilities"], abs=1e-5)


def test_an_explanation_has_a_number_for_each_cell(client: TestClient, files: list[bytes]) -> None:
    response = client.post("/explain", content=files[0], headers={"content-type": "image/png"})
    answer = response.json()
    assert [len(row) for row in answer["cells"]] == [2, 2]


@pytest.mark.parametrize(
    ("body", "kind", "status", "told"),
    [
        (b"hello", "image/png", 400, "not a PNG or JPEG"),
        (b"", "image/jpeg", 400, "the file is empty"),
        (b"{", "application/json", 400, "not valid JSON"),
        (b'{"images": ["###"]}', "application/json", 422, "images[0] is not in base64"),
        (b'{"images": "x"}', "application/json", 422, "not a list"),
        (b'{"inputs": []}', "application/json", 422, "images alone"),
        (b'{"images": []}', "application/json", 422, "no image"),
        (b"x", "text/plain", 415, "image/png"),
        (b"x", "multipart/form-data", 400, "boundary"),
        (b"--a\r\n", "multipart/form-data; boundary=a", 400, "cut off"),
    ],
)
def test_what_is_no_image_is_refused_with_a_reason(
    client: TestClient, body: bytes, kind: str, status: int, told: str
) -> None:
    response = client.post("/predict", content=body, headers={"content-type": kind})
    assert (response.status_code, told in response.json()["detail"]) == (status, True)


def test_a_truncated_image_is_refused_and_named(client: TestClient, files: list[bytes]) -> None:
    form = {"file": ("cut.png", files[0][: len(files[0]) // 2], "image/png")}
    response = client.post("/predict", files=form)
    assert response.status_code == 400
    assert response.json()["detail"].startswith("cut.png: the image is truncated")


def test_limits_hold(client: TestClient, files: list[bytes]) -> None:
    text = base64.b64encode(files[0]).decode()
    response = client.post("/predict", json={"images": [text] * 5})
    assert response.status_code == 422 and "at most 4" in response.json()["detail"]
    huge = client.post("/predict", content=b"x" * (40 << 20), headers={"content-type": "image/png"})
    assert huge.status_code == 413


def test_the_page_and_the_description_are_there(client: TestClient) -> None:
    page = client.get("/")
    assert "page.js" in page.text and "script-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/page.js").status_code == client.get("/page.css").status_code == 200
    document = client.get("/openapi.json").json()
    assert {"/predict", "/explain", "/task", "/health", "/metrics"} <= set(document["paths"])
    assert client.get("/task").json()["labels"] == sorted(COLOURS)
    assert b"tasklm_requests_total" in client.get("/metrics").content
    assert client.get("/predict").status_code == 405
