"""Requests made up from the OpenAPI document: nothing makes the service fail, or answer what the
document does not name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import schemathesis
import torch
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from tasklm.recipe.schema import Hardware
from tasklm.serve.application import Settings
from tasklm.serve.explainer import Explainer
from tasklm.serve.limits import Limits
from tasklm.serve.predictor import Predictor
from tasklm.serve.service import create_app
from tasklm.tokens.tokenizer import Vocabulary
from tests.serve.models import BY_KIND, random_model, random_run
from tests.several_models import several_run

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


def document_of(run: Path) -> Any:
    predictor = Predictor(run / "model", Hardware(device="cpu", precision="fp32", threads=1))
    app = create_app(
        predictor, Explainer(run), Settings(Limits(inputs=4, characters=200), window=0.0)
    )
    torch.set_flush_denormal(False)  # in this thread: hypothesis makes such numbers
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.fixture(scope="module")
def document(run_folder: Path) -> Any:
    return document_of(run_folder)


def statuses_of(document: Any, path: str, mode: GenerationMode, examples: int) -> set[int]:
    """The statuses of requests that are made up, each of which is checked."""
    statuses: set[int] = set()

    @given(case=document[path]["POST"].as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        statuses.add(case.call_and_validate(checks=CHECKS).status_code)

    ask()
    return statuses


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_no_body_is_answered_otherwise_than_the_document_says(
    document: Any, path: str, mode: GenerationMode
) -> None:
    statuses = statuses_of(
        document, path, mode, 12 if mode.is_positive and path == "/explain" else 60
    )  # reasons take a while to compute
    # what follows the schema is answered, but for rows that have other columns than the task
    assert (
        statuses <= {200, 422} and 200 in statuses
        if mode.is_positive
        else statuses <= {400, 415, 422}
    )


@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_a_kind_with_texts_of_several_rows_answers_as_the_document_says(
    tmp_path: Path, vocabulary: Vocabulary, path: str
) -> None:
    statuses = statuses_of(
        document_of(random_run(tmp_path / "tag", "tag", vocabulary)),
        path,
        GenerationMode.POSITIVE,
        30,
    )
    assert 200 in statuses and statuses <= {200, 422}


def test_each_of_several_tasks_answers_as_the_document_says(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    document = document_of(several_run(tmp_path, vocabulary))
    for path, examples in (
        ("/predict/regress", 40),
        ("/predict/tag", 40),
        ("/predict/all", 40),
        ("/explain/tag", 8),
    ):
        positive = statuses_of(document, path, GenerationMode.POSITIVE, examples)
        assert positive <= {200, 422} and 200 in positive
        assert statuses_of(document, path, GenerationMode.NEGATIVE, examples) <= {400, 415, 422}
    assert document["/task"]["GET"].Case().call_and_validate(checks=CHECKS[:-1]).status_code == 200


@pytest.mark.parametrize("kind", list(BY_KIND))
def test_the_document_of_each_kind_names_the_forms_that_are_answered_and_what_422_says(
    kind: str, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    predictor = Predictor(
        random_model(tmp_path / kind, kind, vocabulary),
        Hardware(device="cpu", precision="fp32", threads=1),
    )
    with TestClient(
        create_app(predictor, settings=Settings(Limits(inputs=4, characters=200), window=0.0))
    ) as client:
        post = client.get("/openapi.json").json()["paths"]["/predict"]["post"]
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        named = {form["type"] for form in schema["properties"]["inputs"]["items"]["anyOf"]}
        assert client.post("/predict", json=schema["example"]).status_code == 200
        said = post["responses"]["422"]["description"]
        for form, one in (("string", "a text"), ("array", ["one", "another"])):
            response = client.post("/predict", json={"inputs": [one]})
            assert (response.status_code == 200) == (form in named)
            if form not in named:
                assert (
                    response.status_code == 422
                    and client.get("/task").json()["needs"] in response.json()["detail"]
                )
        told = {
            "more than 4 inputs": ["a"] * 5,
            "200 characters": [{"text": "x" * 201}],
            "columns": [{"nothing": 1}],
            "not a": [5],
        }
        for words, inputs in told.items():
            assert (
                words in said
                and client.post("/predict", json={"inputs": inputs}).status_code == 422
            )
    assert "object" in named and all(
        word in said for word in ("an unknown or missing name", "detail")
    )


@pytest.mark.parametrize("path", ["/task", "/health", "/metrics"])
def test_what_is_only_read_is_as_the_document_says(document: Any, path: str) -> None:
    assert document[path]["GET"].Case().call_and_validate(checks=CHECKS[:-1]).status_code == 200
