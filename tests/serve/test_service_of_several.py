"""The service of a model of several tasks: an address for each, and what it says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from tasklm.cli import serve
from tasklm.recipe.schema import Hardware
from tasklm.recipe.toml import load
from tasklm.serve.application import Settings
from tasklm.serve.columns import columns_for
from tasklm.serve.engines import open_engine
from tasklm.serve.explainer import Explainer
from tasklm.serve.predictor import Predictor
from tasklm.serve.service import create_app
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.end_to_end.kind_data import ASKED
from tests.serve.models import need_onnx
from tests.several_models import KINDS, several_run

ONE = Hardware(device="cpu", precision="fp32", threads=1)
TEXTS = sentences(9, 4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    return several_run(tmp_path_factory.mktemp("several"), vocabulary)


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return Predictor(run / "model", ONE, columns_for(load(run / "recipe.toml")))


@pytest.fixture(scope="module")
def client(run: Path, predictor: Predictor) -> Iterator[TestClient]:
    settings = Settings(window=0.0)
    with TestClient(create_app(predictor, Explainer(run), settings)) as client:
        yield client


def rounded(value: Any) -> Any:
    """JSON with floats that are compared with rounding: batches are cut in other ways."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", KINDS)
def test_each_task_has_its_address_and_answers_as_alone(
    client: TestClient, predictor: Predictor, kind: str
) -> None:
    response = client.post(f"/predict/{kind}", json={"inputs": TEXTS})
    assert response.status_code == 200, response.text
    alone = json.loads(json.dumps(predictor.of(kind).answers(TEXTS)))
    assert response.json() == {"answers": rounded(alone)}


def test_rows_are_read_with_the_columns_of_their_task(client: TestClient) -> None:
    row = {"sentence1": ASKED, "sentence2": "music", "more": ASKED * 3}
    both = client.post("/predict/regress", json={"inputs": [row, [ASKED, "music"]]}).json()
    assert both["answers"][0] == rounded(both["answers"][1])
    refused = client.post("/predict/tag", json={"inputs": [["one", "two"]]})
    assert refused.status_code == 422 and "inputs[0]" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["/predict", "/predict/nothing", "/explain", "/explain/nothing"])
def test_an_address_without_a_task_tells_those_of_the_tasks(client: TestClient, path: str) -> None:
    response = client.post(path, json={"inputs": TEXTS})
    assert response.status_code == 404
    verb = "/" + path.split("/")[1]
    told = ", ".join(f"{verb}/{kind}" for kind in KINDS)
    assert "/predict/all" in response.json()["detail"]
    assert told in response.json()["detail"] and "several tasks" in response.json()["detail"]
    assert client.get(path).status_code == 405


def test_every_task_answers_at_one_address_as_it_does_at_its_own(client: TestClient) -> None:
    response = client.post("/predict/all", json={"inputs": TEXTS})
    assert response.status_code == 200, response.text
    answers = response.json()["answers"]
    for kind in KINDS:
        own = client.post(f"/predict/{kind}", json={"inputs": TEXTS}).json()["answers"]
        assert [answer["tasks"][kind] for answer in answers] == rounded(own)


def test_the_encoder_reads_an_input_of_all_tasks_once(
    client: TestClient, predictor: Predictor
) -> None:
    rows: list[int] = []
    watched = predictor.model.encoder.register_forward_pre_hook(
        lambda _, given: rows.append(len(given[0].ids))
    )
    answers = client.post("/predict/all", json={"inputs": TEXTS[:3]}).json()["answers"]
    watched.remove()
    assert sum(rows) == 3 and all(set(answer["tasks"]) == set(KINDS) for answer in answers)


def test_the_tasks_that_take_an_input_answer_it(client: TestClient) -> None:
    row = {"sentence1": ASKED, "sentence2": "music"}
    pair, columns = client.post("/predict/all", json={"inputs": [["a", "b"], row]}).json()[
        "answers"
    ]
    assert set(pair["tasks"]) == {"classify", "multilabel", "regress"}
    assert "regress" in columns["tasks"]
    for wrong in ({"nothing": 1}, 7, ["a", "b", "c"]):
        refused = client.post("/predict/all", json={"inputs": [ASKED, wrong]})
        assert refused.status_code == 422 and "inputs[1]" in refused.json()["detail"]
    assert client.post("/predict/all", json={"inputs": []}).json() == {"answers": []}
    assert client.post("/explain/all", json={"input": ASKED}).status_code == 404


def test_requests_of_one_task_and_of_all_share_batches(predictor: Predictor) -> None:
    with TestClient(create_app(predictor, None, Settings(window=0.2))) as client:
        with ThreadPoolExecutor(3) as pool:
            asked_for = ["/predict/all", "/predict/tag", "/predict/regress"]
            responses = list(
                pool.map(lambda path: client.post(path, json={"inputs": TEXTS[:2]}), asked_for)
            )
        every, tag, regress = (response.json()["answers"] for response in responses)
        assert [one["tasks"]["tag"] for one in every] == rounded(tag)
        assert [one["tasks"]["regress"] for one in every] == rounded(regress)
        assert "tasklm_batch_inputs_count 1.0" in client.get("/metrics").text
        assert 'path="/predict/all"' in client.get("/metrics").text


def test_the_tasks_are_described_each(client: TestClient) -> None:
    about = client.get("/task").json()
    assert about["kind"] == "several" and list(about["tasks"]) == list(KINDS)
    assert about["tasks"]["classify"]["labels"] == ["no", "yes"]
    assert about["tasks"]["regress"]["texts"] == 2 and about["tasks"]["tag"]["pair"] is False
    assert all(one["explains"] and one["limits"] for one in about["tasks"].values())


def test_the_document_and_the_metrics_name_the_addresses(client: TestClient) -> None:
    client.post("/predict/tag", json={"inputs": ["music"]})
    document = client.get("/openapi.json").json()
    paths = {path for path in document["paths"] if path.startswith(("/predict", "/explain"))}
    own = {f"{verb}/{kind}" for verb in ("/predict", "/explain") for kind in KINDS}
    assert paths == {*own, "/predict/all"}
    operations = [one["post"] for path, one in document["paths"].items() if path in paths]
    assert len({one["operationId"] for one in operations}) == len(paths)
    assert {"Predict: tag", "Explain: tag"} <= {one["summary"] for one in operations}
    (tag,) = [one for one in operations if one["summary"] == "Predict: tag"]
    items = tag["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert "array" not in {one["type"] for one in items["inputs"]["items"]["anyOf"]}  # tag
    assert 'path="/predict/tag"' in client.get("/metrics").text


def test_an_explanation_is_by_the_examples_of_the_task(client: TestClient, run: Path) -> None:
    response = client.post("/explain/classify", json={"input": ASKED, "top": 2})
    assert response.status_code == 200, response.text
    explained = response.json()
    expected = Explainer(run).of("classify").explain(ASKED, 2)
    assert explained["label"] == expected.label and explained["examples"]["in_all"] == 24
    assert [attribution["text"] for attribution in explained["examples"]["supporting"]] == [
        attribution.text for attribution in expected.examples.supporting
    ]
    other = client.post("/explain/multilabel", json={"input": ASKED, "top": 2}).json()
    assert other["examples"]["in_all"] == 24 and other["label"] != explained["label"]


def test_without_explanations_each_task_says_so(predictor: Predictor) -> None:
    with TestClient(create_app(predictor)) as client:
        assert client.post("/explain/tag", json={"input": ASKED}).status_code == 404
        assert client.get("/task").json()["tasks"]["tag"]["explains"] is False


def test_several_tasks_are_served_by_onnxruntime_with_the_same_answers(
    run: Path, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_onnx()
    monkeypatch.setattr("tasklm.serve.engines._against_onnx", lambda: "")
    columns = serve._columns(run / "model")
    assert isinstance(columns, dict) and set(columns) == set(KINDS)
    opened = open_engine(run / "model", "auto", 1, columns, tmp_path)
    assert opened.name == "onnx" and opened.why == "onnxruntime is installed"
    row = {"sentence1": ASKED, "sentence2": "music", "more": ASKED * 3}
    with TestClient(create_app(opened.predictor, None, Settings(window=0.0))) as other:
        for path in ("/predict/all", *(f"/predict/{kind}" for kind in KINDS)):
            ours, theirs = (one.post(path, json={"inputs": TEXTS}) for one in (client, other))
            assert theirs.json() == rounded(ours.json())
        ours, theirs = (
            one.post("/predict/regress", json={"inputs": [row]}) for one in (client, other)
        )
        assert theirs.json() == rounded(ours.json())
