"""A run of a span task: a linear model from the first seconds, which later steps go on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.errors import RecipeError
from tasklm.export.exporting import export
from tasklm.pipeline import steps
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tasks.examples import Example
from tasklm.tracking import SILENT
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import options
from tests.tasks.test_wide import labelled

SMALL = {
    "train__steps": "6",
    "finetune__epochs": "2",
    "finetune__seeds": "1",
    "finetune__wide": "true",
    "data__leaks": "keep",
    "evaluate__bootstrap": "100",
}


def rows_of(examples: list[Example]) -> list[dict[str, Any]]:
    rows = []
    for example in examples:
        texts, starts = [text for text, _ in example.label], [at for _, at in example.label]
        answers = {"text": texts, "answer_start": starts}
        rows.append({"question": example.texts[0], "context": example.texts[1], "answers": answers})
    return rows


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    for name, count, seed in (("train", 160, 1), ("dev", 40, 2), ("test", 40, 3)):
        write_jsonl(folder / f"{name}.jsonl", rows_of(labelled("span", count, seed)))
    corpus: list[dict[str, object]] = [
        {"text": " ".join(sentences(8, 100 + number))} for number in range(60)
    ]
    write_jsonl(folder / "corpus.jsonl", corpus)
    return folder


def about(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((folder / "model/config.json").read_text())["about"]
    return values


def test_a_run_that_is_cut_off_has_a_model_and_ends_as_one_that_is_not(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load(None, options(questions, **SMALL))
    straight = fit(recipe, tmp_path / "straight", SILENT)

    def cut_off(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(steps, "run_stage2", cut_off)
        fit(recipe, tmp_path / "cut", SILENT)
    assert about(tmp_path / "cut")["linear"] and about(tmp_path / "cut")["dev"] > 0.7
    held = labelled("span", 40, 3)
    inputs = [{"question": example.texts[0], "context": example.texts[1]} for example in held]
    answers = Predictor(tmp_path / "cut/model").answers(inputs)
    gold = [[text for text, _ in example.label] or [""] for example in held]
    right = [one["answer"] in texts for one, texts in zip(answers, gold, strict=True)]
    assert np.mean(right) > 0.7
    fitted = (tmp_path / "cut/wide/weights.safetensors").stat().st_mtime_ns
    again = fit(recipe, tmp_path / "cut", SILENT)
    assert (tmp_path / "cut/wide/weights.safetensors").stat().st_mtime_ns == fitted
    assert straight is not None and again is not None and straight.ours is not None
    assert again.ours is not None and again.ours.test == straight.ours.test
    rows = {row.name: row.dev.mean for row in again.rows if row.dev is not None}
    assert rows["words in common + linear"] > 2 * rows["best sentence"]
    assert again.ours.dev is not None and again.ours.dev.mean >= 0.7
    with pytest.raises(RecipeError, match="span cannot be exported"):
        export(tmp_path / "cut", "onnx", tmp_path / "onnx")
