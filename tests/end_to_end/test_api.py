from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from tasklm import TaskLM
from tasklm.errors import DataError, RunError
from tests.conftest import labelled
from tests.end_to_end.conftest import QUICK


def data(count: int, seed: int) -> tuple[list[str], list[str]]:
    rows = labelled(count, seed)
    return [str(row["text"]) for row in rows], [str(row["label"]) for row in rows]


def test_fit_predict_score_save_load(files: Path, tmp_path: Path) -> None:
    texts, labels = data(160, 1)
    model = TaskLM(settings={**QUICK, "train.steps": 150, "finetune.epochs": 8}).fit(
        texts, labels, corpus=str(files / "corpus.jsonl")
    )
    new, gold = data(60, 5)
    probabilities = model.predict_proba(new)
    assert probabilities.shape == (60, 2) and np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert model.classes_.tolist() == ["no", "yes"]
    assert (model.predict(new) == model.classes_[probabilities.argmax(1)]).all()
    assert model.score(new, gold) == np.mean(model.predict(new) == np.array(gold))
    model.save(tmp_path / "saved")
    again = TaskLM.load(tmp_path / "saved")
    assert np.array_equal(again.predict_proba(new), probabilities)
    with pytest.raises(RunError, match="already exists"):
        model.save(tmp_path / "saved")


def test_fit_from_a_file_keeps_the_run(files: Path, tmp_path: Path) -> None:
    model = TaskLM(corpus=str(files / "corpus.jsonl"), settings=QUICK, out=str(tmp_path / "run"))
    model.fit(files / "train.jsonl", dev=str(files / "dev.jsonl"), test=str(files / "test.jsonl"))
    assert (tmp_path / "run" / "report.html").exists()
    assert model.scores_ is not None and model.scores_.ours is not None


def test_cross_validation_with_numeric_labels(files: Path) -> None:
    texts, labels = data(90, 1)
    numbers = [int(label == "yes") for label in labels]
    model = TaskLM(
        corpus=str(files / "corpus.jsonl"),
        settings={**QUICK, "train.steps": 10, "finetune.epochs": 1, "finetune.seeds": 1},
    )
    scores = cross_val_score(model, np.array(texts), np.array(numbers), cv=3)
    assert scores.shape == (3,) and np.isfinite(scores).all()


def test_mistakes_are_told() -> None:
    with pytest.raises(RunError, match="not been trained"):
        TaskLM().predict(["x"])
    with pytest.raises(DataError, match="2 texts but 1 labels"):
        TaskLM().fit(["a", "b"], ["x"])
    with pytest.raises(DataError, match="no labels"):
        TaskLM().fit(["a", "b"])


def test_a_damaged_model_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="contains no model"):
        TaskLM.load(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 99}')
    with pytest.raises(RunError, match="format 99"):
        TaskLM.load(tmp_path)
    (tmp_path / "config.json").write_text(
        '{"format": 3, "task": {"kind": "classify", "labels": ["a", "b"]}}'
    )
    with pytest.raises(RunError, match=r"is damaged \('shape' is missing\)"):
        TaskLM.load(tmp_path)


def test_a_folder_of_other_files_is_refused_and_one_of_a_failed_call_is_not(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("1", encoding="utf-8")
    texts, labels = data(20, 1)
    with pytest.raises(RunError, match="contains files but no run"):
        TaskLM(settings=QUICK, out=tmp_path).fit(texts, labels)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    for _ in range(2):
        with pytest.raises(DataError, match="no such file"):
            TaskLM(settings=QUICK, out=tmp_path / "run").fit(
                texts, labels, dev=tmp_path / "missing.csv"
            )
