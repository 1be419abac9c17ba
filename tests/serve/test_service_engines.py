"""By what the service computes, and with what it explains."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("fastapi")

from tasklm.cli import serve
from tasklm.errors import RecipeError, RunError
from tasklm.recipe.data_sections import Data
from tasklm.serve import engines
from tasklm.serve.engines import open_engine
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.serve.models import need_onnx, random_model, random_run


def test_onnx_is_taken_where_it_can_be_and_answers_the_same(
    classifier: Path, tmp_path: Path
) -> None:
    need_onnx()
    ours, auto = (
        open_engine(classifier, asked, 1, Data(), tmp_path) for asked in ("torch", "auto")
    )
    assert (ours.name, ours.why, auto.name, auto.why) == (
        "torch",
        "as requested",
        "onnx",
        "onnxruntime is installed",
    )
    texts = [*sentences(20, 4), "", " ".join(sentences(9, 5))]
    for one, other in zip(
        ours.predictor.answers(texts), auto.predictor.answers(texts), strict=True
    ):
        assert one["label"] == other["label"] and one["probabilities"] == pytest.approx(
            other["probabilities"], abs=1e-4
        )
    exported = auto.predictor.folder
    again = open_engine(exported, "auto", 1, Data(), tmp_path / "unused")
    assert (again.name, again.why) == ("onnx", "the folder contains an ONNX file") and not (
        tmp_path / "unused"
    ).exists()
    with pytest.raises(RunError, match="contains an ONNX file"):
        open_engine(exported, "torch", 1, Data(), tmp_path)


def test_what_speaks_against_onnx_is_told(
    classifier: Path, tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = random_model(tmp_path / "parse", "parse", vocabulary)
    if not engines._against_onnx():
        found = open_engine(parser, "auto", 1, Data(), tmp_path / "scratch")
        assert found.name == "torch" and "cannot be exported" in found.why
    with pytest.raises(RecipeError):
        open_engine(parser, "onnx", 1, Data(), tmp_path / "scratch")
    there = importlib.util.find_spec

    def without_runtime(name: str, *more: Any) -> Any:
        return None if name == "onnxruntime" else there(name, *more)

    monkeypatch.setattr(engines.importlib.util, "find_spec", without_runtime)
    found = open_engine(classifier, "auto", 1, Data(), tmp_path)
    assert found.name == "torch" and "onnxruntime" in found.why and "tasklm[onnx]" in found.why


def test_a_graph_that_pytorch_cannot_export_is_computed_by_pytorch(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_onnx()

    def fails(*given: Any, **more: Any) -> None:
        raise torch.onnx.errors.OnnxExporterError("no such operator\nand a long report")

    monkeypatch.setattr(torch.onnx, "export", fails)
    monkeypatch.setattr(engines, "_against_onnx", lambda: "")
    found = open_engine(classifier, "auto", 1, Data(), tmp_path)
    assert found.name == "torch" and "no such operator" in found.why and "report" not in found.why
    with pytest.raises(RunError, match="--engine torch"):
        open_engine(classifier, "onnx", 1, Data(), tmp_path)


def test_kinds_of_several_rows_are_not_explained(
    tmp_path: Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve._explainer(random_run(tmp_path / "tag", "tag", vocabulary) / "model") is not None
    assert serve._explainer(random_run(tmp_path / "choice", "choice", vocabulary) / "model") is None
    assert "no explanations: examples of kind choice are several rows" in capsys.readouterr().err


def test_a_model_explains_where_its_run_is(
    classifier: Path, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve._explainer(run_folder / "model") is not None
    assert serve._explainer(classifier) is None
    assert (
        serve._columns(run_folder / "model").train.endswith("train.jsonl")
        and serve._columns(classifier) == Data()
    )
    shutil.copytree(run_folder, tmp_path / "run")
    shutil.copytree(
        classifier, tmp_path / "run" / "ensemble"
    )  # has other weights than `model`, whose reasons would be wrong for it
    capsys.readouterr()
    assert serve._explainer(tmp_path / "run" / "ensemble") is None
    assert "no explanations" in capsys.readouterr().err
