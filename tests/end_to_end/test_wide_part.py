"""A run whose model has a wide part: there from the first seconds, never worse on dev, in its
folder and in an export.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.errors import RunError
from tasklm.evaluate.scores import Scores
from tasklm.export.exporting import export
from tasklm.models.weights import load_weights
from tasklm.pipeline import linear_part, steps
from tasklm.pipeline.context import Run, TaskData
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.splits import read_splits
from tasklm.tracking import SILENT
from tests.conftest import write_jsonl
from tests.end_to_end.conftest import options

SMALL = {
    "train__steps": "10",
    "finetune__epochs": "1",
    "finetune__seeds": "1",
    "finetune__wide": "true",
}
TEXTS = ["the cat likes music", "cold water on the road", "a dog in the house"]


@pytest.fixture(scope="module")
def done(files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scores]:
    """A quick run."""
    folder = tmp_path_factory.mktemp("wide") / "run"
    scores = fit(load(None, options(files, **SMALL)), folder, SILENT)
    assert scores is not None
    return folder, scores


def test_on_dev_the_model_is_at_least_as_good_as_the_linear_model(
    done: tuple[Path, Scores],
) -> None:
    dev = {row.name: row.dev.mean for row in done[1].rows if row.dev is not None}
    assert done[1].ours is not None and done[1].ours.dev is not None
    assert done[1].ours.dev.mean >= dev["TF-IDF + linear"] > dev["majority"]


def test_a_network_that_learns_nothing_leaves_the_linear_model(files: Path, tmp_path: Path) -> None:
    given = options(files, **SMALL, finetune__learning_rate="1e-12")
    scores = fit(load(None, given), tmp_path / "run", SILENT)
    assert scores is not None and scores.ours is not None and scores.ours.dev is not None
    (linear,) = [row for row in scores.rows if row.name == "TF-IDF + linear"]
    assert linear.dev is not None and linear.test is not None and scores.ours.test is not None
    assert (scores.ours.dev.mean, scores.ours.test.mean) == (linear.dev.mean, linear.test.mean)
    assert json.loads((tmp_path / "run/stage2/seed-1/summary.json").read_text())["best_epoch"] == 0
    assert scores.linear and scores.verdict.startswith(
        "The model is the linear model of words alone"
    )
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert (
        config["about"]["linear"]
        and config["shape"]["layers"] == 1
        and config["shape"]["width"] == 8
    )
    assert (
        config["about"]["dev"] == linear.dev.mean
        and config["about"]["test"]["mean"] == linear.test.mean
    )
    again = (tmp_path / "run/model/artefact.json").read_bytes()
    fit(load(None, given), tmp_path / "run", SILENT)
    assert (tmp_path / "run/model/artefact.json").read_bytes() == again


def test_a_model_reads_marks_beside_a_linear_model(files: Path, tmp_path: Path) -> None:
    given = options(files, **SMALL, kind__marks="<<,[[")
    for split in ("train", "dev", "test"):
        rows = [json.loads(line) for line in (files / f"{split}.jsonl").read_text().splitlines()]
        for row in rows:
            first, *others, last = row["text"].split()
            row["text"] = f"<< {first} >> {' '.join(others)} [[ {last} ]]"
        given[f"data.{split}"] = str(write_jsonl(tmp_path / f"{split}.jsonl", rows))
    scores = fit(load(None, given), tmp_path / "run", SILENT)
    assert scores is not None and scores.ours is not None and scores.ours.dev is not None
    dev = {row.name: row.dev.mean for row in scores.rows if row.dev is not None}
    assert scores.ours.dev.mean >= dev["TF-IDF + linear"] > dev["majority"]
    answers = Predictor(tmp_path / "run/model").answers([row["text"] for row in rows])
    right = sum(row["label"] == one["label"] for row, one in zip(rows, answers, strict=True))
    assert right > 0.8 * len(rows)


def test_a_run_that_is_stopped_before_training_has_a_model(files: Path, tmp_path: Path) -> None:
    recipe = load(None, options(files, **SMALL))
    assert fit(recipe, tmp_path / "run", SILENT, until="select") is None
    first = Predictor(tmp_path / "run/model")
    train, *_ = read_splits(recipe.data).named().values()
    right = sum(
        answer["label"] == example.label
        for example, answer in zip(train, first.answers([one.text for one in train]), strict=True)
    )
    assert right > 0.9 * len(train)
    with pytest.raises(RunError, match="it has no network to start from"):
        fit(
            recipe.changed(train={"start": str(tmp_path / "run/model")}), tmp_path / "other", SILENT
        )
    scores = fit(recipe, tmp_path / "run", SILENT)
    assert scores is not None
    ships = json.loads((tmp_path / "run/model/config.json").read_text())["about"]
    assert ships.get("linear", False) == scores.linear and "test" in ships


def test_many_examples_have_a_model_of_some_of_them_first(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, folder = load(None, options(files, **SMALL)), tmp_path / "run"
    monkeypatch.setattr(linear_part, "MANY_WORDS", 50)
    monkeypatch.setattr(linear_part, "QUICK_WORDS", 50)
    whole = linear_part.fitted_wide

    def quick_first(run: Run, task: TaskData) -> linear_part.FittedPart:
        if not (folder / "wide").exists():
            about = json.loads((folder / "model/config.json").read_text())["about"]
            assert about["quick"] and Predictor(folder / "model").answers(TEXTS)
        return whole(run, task)

    monkeypatch.setattr(linear_part, "fitted_wide", quick_first)
    fit(recipe, folder, SILENT, until="select")
    about = json.loads((folder / "model/config.json").read_text())["about"]
    assert about["linear"] and "quick" not in about
    assert (folder / "wide-quick/train.npy").stat().st_size < (
        folder / "wide/train.npy"
    ).stat().st_size


def test_examples_of_a_quick_model_have_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_part, "MANY_WORDS", 30)
    monkeypatch.setattr(linear_part, "QUICK_WORDS", 20)
    train = [Example(("two words",), "rare" if place == 7 else "usual") for place in range(100)]
    some = linear_part._quick_examples(train)
    assert len(some) == 11 and {example.label for example in some} == {"rare", "usual"}
    assert linear_part._quick_examples(train[:15]) == train[:15]


def test_examples_of_a_quick_model_are_of_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_part, "MANY_WORDS", 30)
    monkeypatch.setattr(linear_part, "QUICK_WORDS", 20)
    monkeypatch.setattr(linear_part, "FEWEST_OF_TASK", 5)
    train = [
        Example(("two words",), ("large", "ab"[place == 7]), task="large") for place in range(99)
    ]
    train += [Example(("two words",), ("small", 1.0), task="small") for _ in range(8)]
    some = linear_part._quick_examples(train)
    assert [sum(one.task == name for one in some) for name in ("large", "small")] == [10, 5]
    assert {one.label for one in some} == {("large", "a"), ("large", "b"), ("small", 1.0)}


@pytest.mark.parametrize("label", [[("two", 0)], (), ("one",), ("one", "two"), 3.0])
def test_other_labels_have_no_classes(label: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_part, "MANY_WORDS", 30)
    monkeypatch.setattr(linear_part, "QUICK_WORDS", 20)
    train = [Example(("who ?", "two words"), label) for _ in range(100)]
    assert 0 < len(linear_part._quick_examples(train)) < 20


def test_an_export_predicts_what_the_model_predicts_and_says_what_it_leaves_out(
    done: tuple[Path, Scores], tmp_path: Path
) -> None:
    folder = done[0]
    ours = Predictor(folder / "model").answers(TEXTS)
    export(folder, "onnx", tmp_path / "onnx")
    theirs = Predictor(tmp_path / "onnx").answers(TEXTS)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            list(one["probabilities"].values()), list(other["probabilities"].values()), atol=1e-4
        )
    record = json.loads((tmp_path / "onnx/export.json").read_text())
    assert record["wide"] == pytest.approx(
        float(load_weights(folder / "model/model.safetensors")["wide_scale"])
    )
    assert record["network"]["examples"] == 60 and record["network"]["model"] == pytest.approx(
        done[1].ours.dev.mean
    )  # type: ignore[union-attr]
    for to in ("onnx", "hf"):
        if to == "hf":
            export(folder, "hf", tmp_path / "hf")
        card = (tmp_path / to / "README.md").read_text()
        assert "the network alone" in card and "On 60 dev examples" in card
    shutil.rmtree(tmp_path / "onnx/wide")
    with pytest.raises(RunError, match="damaged"):
        Predictor(tmp_path / "onnx")


def test_it_is_fitted_once_and_left_out_when_told_so(
    done: tuple[Path, Scores], files: Path, tmp_path: Path
) -> None:
    folder = done[0]
    assert sorted(path.name for path in (folder / "model/wide").iterdir()) == [
        "features.json",
        "features.safetensors",
        "weights.safetensors",
        "wide.json",
    ]
    before = (folder / "wide/weights.safetensors").stat().st_mtime_ns
    given = options(files, **{**SMALL, "finetune__wide": "false"})
    shutil.copytree(folder, tmp_path / "run", copy_function=shutil.copy2)
    fit(load(None, given), tmp_path / "run", SILENT)
    assert (
        tmp_path / "run/wide/weights.safetensors"
    ).stat().st_mtime_ns == before  # the baseline is the same
    assert not (tmp_path / "run/model/wide").exists()
    assert "wide_scale" not in load_weights(tmp_path / "run/model/model.safetensors")
    assert (tmp_path / "run/stage1/artefact.json").read_bytes() == (
        folder / "stage1/artefact.json"
    ).read_bytes()


def test_a_run_that_is_stopped_between_seeds_has_the_best_one_so_far(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(files, **{**SMALL, "finetune__seeds": "2", "finetune__wide": "false"})
    recipe, stage2, seeds = load(None, given), steps.run_stage2, []

    def cut_off(folder: Path, *rest: Any) -> None:
        seeds.append(folder)
        if len(seeds) == 2:
            raise KeyboardInterrupt
        stage2(folder, *rest)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(steps, "run_stage2", cut_off)
        fit(recipe, tmp_path / "run", SILENT)
    about = json.loads((tmp_path / "run/model/config.json").read_text())["about"]
    assert (
        about["seed"] == 1
        and about["dev"]
        == json.loads((tmp_path / "run/stage2/seed-1/summary.json").read_text())["dev"]
    )
    assert len(Predictor(tmp_path / "run/model").answers(TEXTS)) == 3
    scores = fit(recipe, tmp_path / "run", SILENT)
    assert scores is not None and scores.ours is not None and scores.ours.dev is not None
    ships = json.loads((tmp_path / "run/model/config.json").read_text())["about"]
    assert ships["dev"] == max(scores.ours.dev.values) and "test" in ships
    before = (tmp_path / "run/model/artefact.json").read_bytes()
    fit(recipe, tmp_path / "run", SILENT)
    assert (tmp_path / "run/model/artefact.json").read_bytes() == before
