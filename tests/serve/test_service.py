"""The service inside a test client: answers, reasons, the page, counts, and what it says about
itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.serve.application import Settings
from tasklm.serve.explainer import Explainer
from tasklm.serve.guard import Lifecycle
from tasklm.serve.predictor import Predictor
from tasklm.serve.service import create_app
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.end_to_end.kind_data import ASKED, CASES, LONG, Case
from tests.serve.models import random_model, random_run

TOKEN = "a token that is long enough"


def predictor_of(folder: Path) -> Predictor:
    return Predictor(folder, Hardware(device="cpu", precision="fp32", threads=1))


@pytest.fixture(scope="module")
def client(classifier: Path) -> Iterator[TestClient]:
    with TestClient(create_app(predictor_of(classifier), settings=Settings(window=0.0))) as client:
        yield client


@pytest.fixture(scope="module")
def explaining(run_folder: Path) -> Iterator[TestClient]:
    with TestClient(
        create_app(predictor_of(run_folder / "model"), Explainer(run_folder))
    ) as client:
        yield client


def answers(client: TestClient, inputs: list[Any]) -> list[dict[str, Any]]:
    response = client.post("/predict", json={"inputs": inputs})
    assert response.status_code == 200, response.text
    found = response.json()
    assert list(found) == ["answers"]
    return list(found["answers"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.kind))
def test_the_answers_of_every_kind_are_those_of_the_predictor(
    case: Case, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    predictor = predictor_of(random_model(tmp_path / case.kind, case.kind, vocabulary))
    row = json.loads(case.asked) if case.asked.startswith("{") else {"text": case.asked}
    inputs: list[Any] = [row, case.rows(3, 9)[0]]
    with TestClient(create_app(predictor)) as client:
        task = client.get("/task").json()
        if task["text"]:
            inputs.append(case.asked)
        if task["pair"]:
            inputs.append([ASKED, "which number ?"])
        wrong = client.post("/predict", json={"inputs": [*inputs, {"nothing": 1}]})
        assert rounded(answers(client, inputs)) == json.loads(json.dumps(predictor.answers(inputs)))
    assert (
        wrong.status_code == 422
        and "row.jsonl" not in wrong.text
        and str(tmp_path) not in wrong.text
    )
    assert (
        task["kind"] == case.kind
        and task["labels"] == predictor.labels
        and bool(task["needs"]) != task["text"]
    )


def test_many_requests_at_once_get_each_their_own_answer(classifier: Path) -> None:
    predictor, texts = predictor_of(classifier), sentences(40, 7)
    with TestClient(create_app(predictor, settings=Settings(workers=2, window=0.01))) as client:
        with ThreadPoolExecutor(20) as pool:
            found = list(pool.map(lambda text: answers(client, [text])[0], texts))
        counted = {
            sample.name: sample.value
            for family in families(client)
            for sample in family.samples
            if not sample.labels
        }
    for text, answer in zip(texts, found, strict=True):
        (alone,) = predictor.answers([text])
        assert answer["label"] == alone["label"] and answer["probabilities"] == pytest.approx(
            alone["probabilities"], abs=1e-5
        )
    assert len({answer["probabilities"]["yes"] for answer in found}) > 30  # the answers do differ
    assert counted["tasklm_batch_inputs_sum"] == 40 and counted["tasklm_batch_inputs_count"] < 40


def test_inputs_of_like_length_are_computed_together(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, calls = predictor_of(classifier), list[list[int]]()
    texts = ["word " * count for count in (9, 2, 30, 1, 8, 31, 3, 10, 29, 4)]
    monkeypatch.setattr(
        predictor,
        "answers",
        lambda given: [
            calls.append([len(one.text) for one in given]),
            [{"label": one.text} for one in given],
        ][1],
    )
    with TestClient(create_app(predictor, settings=Settings(window=0.0))) as client:
        assert [answer["label"] for answer in answers(client, texts)] == texts
    assert calls == [[5, 10, 15, 20], [40, 45, 50, 145], [150, 155]]


def test_a_text_is_never_read_as_json_and_a_pair_is_a_pair(
    client: TestClient, classifier: Path
) -> None:
    texts: list[Any] = [
        '{"text": "the cat"}',
        ["the cat", "a dog"],
        {"text": "the cat"},
        "",
        "日本 \U0001f600 \x00",
    ]
    assert rounded(answers(client, texts)) == json.loads(
        json.dumps(predictor_of(classifier).answers(texts))
    )


def test_explanations_are_those_of_the_explainer_without_paths(
    explaining: TestClient, run_folder: Path
) -> None:
    found = explaining.post("/explain", json={"input": ASKED, "top": 3})
    assert found.status_code == 200, found.text
    expected = Explainer(run_folder).explain(ASKED, 3)
    values = found.json()
    assert values["label"] == expected.label and values["probability"] == pytest.approx(
        expected.probability
    )
    for side in ("supporting", "opposing"):
        for ours, theirs in (
            (values["examples"][side], expected.examples),
            (values["passages"][side], expected.passages),
        ):
            own = getattr(theirs, side)
            assert [one["text"] for one in ours] == [one.text for one in own]
            scores = [one.score for one in own]
            assert [one["score"] for one in ours] == pytest.approx(scores, abs=1e-5)
            cut = [
                one.where if one.label is None else one.where.rsplit("/", 1)[-1] for one in own
            ]  # of training files
            assert [one["where"] for one in ours] == cut
    assert values["examples"]["supporting"][0]["where"].startswith("train.jsonl, line ")
    assert all(
        attribution["where"].startswith("place/s")
        for attribution in values["passages"]["supporting"] + values["passages"]["opposing"]
    )
    assert explaining.post("/explain", json={"input": {"text": ASKED}, "top": 3}).json() == values
    assert (
        explaining.get("/task").json()["explains"] is True
        and explaining.get("/task").json()["texts"] == 1
    )
    wrong = explaining.post("/explain", json={"input": {"none": 1}})
    assert (
        wrong.status_code == 422
        and "none" in wrong.json()["detail"]
        and str(run_folder.parent) not in wrong.text
    )


def test_what_is_of_several_rows_is_refused_with_the_reason(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    for kind, fitting, other in (
        ("tag", "the cat sees", LONG),
        (
            "span",
            {"question": "which number ?", "context": "it is 5"},
            {"question": "which number ?", "context": LONG},
        ),
        (
            "choice",
            None,
            {"article": "a cat", "question": "what ?", "options": ["music", "road", "cat"]},
        ),
    ):
        run = random_run(tmp_path / kind, kind, vocabulary)
        with TestClient(create_app(predictor_of(run / "model"), Explainer(run))) as client:
            if fitting is not None:
                assert client.post("/explain", json={"input": fitting}).status_code == 200
            refused = client.post("/explain", json={"input": other})
            assert refused.status_code == 422 and "one row each" in refused.json()["detail"], (
                refused.text
            )
            assert answers(client, [other])


def test_without_training_data_there_are_no_explanations(client: TestClient) -> None:
    response = client.post("/explain", json={"input": "a text"})
    assert response.status_code == 404 and "training data is missing" in response.json()["detail"]
    assert client.get("/task").json()["explains"] is False


def families(client: TestClient) -> list[Any]:
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return list(text_string_to_metric_families(response.text))


def test_metrics_count_what_was_asked(classifier: Path) -> None:
    with TestClient(create_app(predictor_of(classifier), settings=Settings(window=0.0))) as client:
        for inputs in (["a"], ["b", "c"], ["d", "e", "f"]):
            answers(client, inputs)
        client.post("/predict", json={"inputs": 5})
        client.get("/health")
        client.get("/nothing/here")
        client.get("/nothing/there")
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in families(client)
            for sample in family.samples
        }
    assert (
        samples["tasklm_requests_total", "/predict", "200"] == 3
        and samples["tasklm_requests_total", "/predict", "422"] == 1
    )
    assert (
        samples["tasklm_requests_total", "/health", "200"] == 1
        and samples["tasklm_requests_total", "404", "other"] == 2
    )
    assert samples["tasklm_inputs_answered_total",] == 6 and samples["tasklm_inputs_waiting",] == 0
    assert (samples["tasklm_batch_inputs_count",], samples["tasklm_batch_inputs_sum",]) == (3, 6)
    assert (
        samples["tasklm_batch_inputs_bucket", "1.0"] == 1
        and samples["tasklm_batch_inputs_bucket", "2.0"] == 2
    )
    assert (
        samples["tasklm_request_seconds_count", "/predict"]
        == 4
        == samples["tasklm_request_seconds_bucket", "+Inf", "/predict"]
    )


def rounded(value: Any) -> Any:
    """A value with its numbers to be compared up to rounding, which depends on the texts that are
    computed together.
    """
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


def test_the_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert (
        "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    )
    assert (
        page.headers["x-content-type-options"] == "nosniff"
        and page.headers["x-frame-options"] == "DENY"
    )
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert {"page.js", "page.css"} <= set(sources)
    for source in sources:
        assert not re.match(r"(?:https?:)?//", source)
        assert source.startswith("data:") or client.get(f"/{source}").status_code == 200, source
    assert not re.search(
        r"<script(?![^>]*src=)|\son\w+=|style=", page.text
    )  # a strict policy refuses these
    for name in ("page.js", "page.css"):
        content = client.get(f"/{name}").text
        assert (
            "http:" not in content
            and "https:" not in content
            and "innerHTML" not in content
            and "eval(" not in content
        )
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404


def test_the_openapi_document_tells_the_limits(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert sorted(document["paths"]) == ["/explain", "/health", "/metrics", "/predict", "/task"]
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    assert body["properties"]["inputs"][
        "maxItems"
    ] == 128 and "securitySchemes" not in document.get("components", {})


def test_a_token_is_asked_for_everywhere_but_at_the_door(classifier: Path) -> None:
    with TestClient(create_app(predictor_of(classifier), settings=Settings(token=TOKEN))) as client:
        for path in ("/health", "/", "/page.js", "/page.css"):
            assert client.get(path).status_code == 200, path
        for path in ("/task", "/metrics", "/openapi.json", "/nothing"):
            assert client.get(path).status_code == 401, path
        for sent in (
            {},
            {"Authorization": "Bearer no"},
            {"Authorization": TOKEN},
            {"Authorization": f"Basic {TOKEN}"},
        ):
            refused = client.post("/predict", json={"inputs": ["a"]}, headers=sent)
            assert (
                refused.status_code == 401
                and refused.headers["www-authenticate"] == "Bearer"
                and "token" in refused.json()["detail"]
            )
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert client.post("/predict", json={"inputs": ["a"]}, headers=right).status_code == 200
        document = client.get("/openapi.json", headers=right).json()
    assert document["components"]["securitySchemes"]["token"] == {
        "type": "http",
        "scheme": "bearer",
    }
    assert (
        document["paths"]["/predict"]["post"]["security"]
        and not document["paths"]["/health"]["get"]["security"]
    )


def test_health_says_when_the_service_stops(classifier: Path) -> None:
    lifecycle = Lifecycle()
    with TestClient(create_app(predictor_of(classifier), lifecycle=lifecycle)) as client:
        before = client.get("/health")
        lifecycle.stopping = True
        after = client.get("/health")
        still = client.post("/predict", json={"inputs": ["a"]})
    assert (before.status_code, before.json(), before.headers.get("connection")) == (
        200,
        {"status": "ok"},
        None,
    )
    assert (after.status_code, after.json(), after.headers["connection"]) == (
        503,
        {"status": "stopping"},
        "close",
    )
    assert still.status_code == 200 and still.headers["connection"] == "close"


def test_columns_of_the_recipe_are_used(classifier: Path) -> None:
    predictor = Predictor(
        classifier, Hardware(device="cpu", precision="fp32", threads=1), Data(text_column="said")
    )
    with TestClient(create_app(predictor)) as client:
        assert answers(client, [{"said": "the cat", "text": "no"}]) == answers(client, ["the cat"])


def test_allowed_names_are_compared_as_browsers_write_them(classifier: Path) -> None:
    with TestClient(
        create_app(predictor_of(classifier), settings=Settings(hosts=("Model.Example:8080", "::1")))
    ) as client:
        for host in ("model.example", "MODEL.example:80", "[::1]:8000"):
            assert client.get("/health", headers={"Host": host}).status_code == 200, host
        for host in ("", ":8080", "example", "8080"):
            assert client.get("/health", headers={"Host": host}).status_code == 421, host


def test_names_that_point_to_this_machine_from_elsewhere_are_refused(classifier: Path) -> None:
    with TestClient(
        create_app(
            predictor_of(classifier), settings=Settings(hosts=("localhost", "127.0.0.1", "[::1]"))
        )
    ) as client:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:80", "[::1]:8000", "[::1]"):
            assert client.get("/health", headers={"Host": host}).status_code == 200, host
        for host in (
            "elsewhere.example",
            "localhost.elsewhere.example:80",
            "[::2]:80",
            "127.0.0.1.example",
            "",
        ):
            for path in ("/", "/health", "/task"):
                response = client.get(path, headers={"Host": host})
                assert (
                    response.status_code == 421 and "--allow-host" in response.json()["detail"]
                ), host
