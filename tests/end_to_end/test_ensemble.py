"""All seeds together: averaged outputs, their row, and the folder that
predicts as it was scored.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from typer.testing import CliRunner

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import RunError
from tasklm.evaluate.scores import Row, Scores
from tasklm.models.task_model import TaskModel, load_model, new_encoder
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tasks.multilabel import best_threshold
from tasklm.tokens.examples import EncodedExamples
from tasklm.tracking import SILENT
from tests.conftest import write_jsonl
from tests.end_to_end.conftest import QUICK

NOUNS = ["cat", "dog", "water", "music", "house", "road"]
FAST = {**QUICK, "train.steps": "10", "finetune.epochs": "2", "evaluate.baselines": "false"}


def several(count: int, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    found = [draw.choices(NOUNS, k=3) for _ in range(count)]
    return [
        {
            "text": f"{' '.join(names)} number {draw.randrange(10**6)}",
            "labels": sorted({"cat", "dog", "water"} & {*names}),
        }
        for names in found
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    for name, count, seed in (("train", 120, 1), ("dev", 40, 2), ("test", 40, 3)):
        write_jsonl(folder / f"{name}.jsonl", several(count, seed))
    return folder


def recipe(data: Path, **changes: str) -> Any:
    files = {f"data.{name}": str(data / f"{name}.jsonl") for name in ("train", "dev", "test")}
    return load(
        None,
        {
            **FAST,
            **files,
            "evaluate.ensemble": "true",
            **{key.replace("__", "."): value for key, value in changes.items()},
        },
    )


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scores]:
    folder = tmp_path_factory.mktemp("ensemble") / "run"
    scores = fit(recipe(data), folder, SILENT)
    assert scores is not None
    return folder, scores


def kinds(scores: Scores) -> dict[str, Row]:
    return {row.kind: row for row in scores.rows}


def json_of(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def probabilities_by_hand(folder: Path, rows: list[dict[str, object]]) -> np.ndarray:
    """Returns sigmoid of the mean of the seeds' logits, each text by itself."""
    predictor, logits = Predictor(folder / "model"), []
    for seed in (1, 2):
        model = TaskModel(
            new_encoder(predictor.loaded.config["encoder"], predictor.model.encoder.shape),  # type: ignore[arg-type]
            predictor.task.head(32, 0.0),
        ).eval()
        model.load_state_dict(load_weights(folder / "stage2" / f"seed-{seed}" / "best.safetensors"))
        examples = [predictor.task.example_of(str(row["text"])) for row in rows]
        found = []
        for example in examples:
            ((_, batch),) = EncodedExamples.of(
                predictor.task, [example], predictor.loaded.vocabulary, 32
            ).in_order(1)
            with torch.no_grad():
                found.append(model(batch)[0, 0].double().numpy())
        logits.append(np.stack(found))
    return 1 / (1 + np.exp(-(logits[0] + logits[1]) / 2))


def test_the_row_is_that_of_the_averaged_outputs(data: Path, run: tuple[Path, Scores]) -> None:
    folder, scores = run
    row, ours = kinds(scores)["ensemble"], kinds(scores)["ours"]
    assert row.name == "ensemble of 2 seeds" and row.test is not None and row.against is not None
    names = ["cat", "dog", "water"]
    gold = {
        split: np.array([[name in line["labels"] for name in names] for line in lines])
        for split, lines in lines_of(data).items()
    }
    by_hand = {
        split: probabilities_by_hand(folder, lines) for split, lines in lines_of(data).items()
    }
    thresholds = [best_threshold(gold["dev"][:, i], by_hand["dev"][:, i]) for i in range(3)]
    assert json_of(folder / "ensemble" / "config.json")["task"]["thresholds"] == pytest.approx(
        thresholds, abs=1e-6
    )
    assert row.test.values == pytest.approx(
        [f1_score(gold["test"], by_hand["test"] >= thresholds, average=average_of(scores))]
    )
    answers = json_of(folder / "ensemble-predictions" / "test-1.json")
    assert np.allclose(
        [list(answer["probabilities"].values()) for answer in answers], by_hand["test"], atol=1e-5
    )
    stage1 = json_of(folder / "stage1" / "summary.json")
    stage2 = [json_of(folder / "stage2" / f"seed-{n}" / "summary.json") for n in (1, 2)]
    assert row.flops_exact == pytest.approx(stage1["flops"] + sum(one["flops"] for one in stage2))
    assert row.parameters == 2 * ours.parameters and row.flops_exact > ours.flops_exact


def average_of(scores: Scores) -> str:
    return scores.metric.removesuffix("_f1")


def lines_of(data: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        split: [
            json.loads(line)
            for line in (data / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for split in ("dev", "test")
    }


def test_the_folder_predicts_as_it_was_scored(data: Path, run: tuple[Path, Scores]) -> None:
    folder, _ = run
    scored = json_of(folder / "ensemble-predictions" / "test-1.json")
    alone = json_of(folder / "predictions" / "test-1.json")
    printed = (
        CliRunner()
        .invoke(app, ["predict", str(folder / "ensemble"), str(data / "test.jsonl")])
        .stdout.splitlines()
    )
    loaded = TaskLM.load(folder / "ensemble").predictor_.answers(
        [str(row["text"]) for row in lines_of(data)["test"]]
    )
    for found in ([json.loads(line) for line in printed], loaded):
        assert [answer["labels"] for answer in found] == [answer["labels"] for answer in scored]
        assert all(
            answer["probabilities"] == pytest.approx(one["probabilities"], abs=1e-5)
            for answer, one in zip(found, scored, strict=True)
        )
    assert any(
        answer["probabilities"] != pytest.approx(one["probabilities"], abs=1e-4)
        for answer, one in zip(alone, scored, strict=True)
    )


def test_what_takes_one_model_refuses_several(run: tuple[Path, Scores], tmp_path: Path) -> None:
    folder, _ = run
    with pytest.raises(RunError, match="ensemble of 2 models"):
        load_model(folder / "ensemble", torch.device("cpu"))
    with pytest.raises(RunError, match="ensemble of 2 models"):
        _ = Predictor(folder / "ensemble").model
    TaskLM.load(folder / "ensemble").save(tmp_path / "saved")
    (tmp_path / "saved" / "model-2.safetensors").unlink()
    with pytest.raises(
        RunError, match=r"model-2\.safetensors is damaged \(it is missing\)\. Copy .*saved again"
    ):
        TaskLM.load(tmp_path / "saved")


def test_one_seed_makes_no_ensemble_and_none_is_made_unasked(
    data: Path, run: tuple[Path, Scores], tmp_path: Path
) -> None:
    scores = fit(
        recipe(data, finetune__seeds="1", train__steps="2", finetune__epochs="1"),
        tmp_path / "run",
        SILENT,
        until="evaluate",
    )
    assert scores is not None and [row.kind for row in scores.rows] == ["ours"]
    assert not (tmp_path / "run" / "ensemble").exists()
    folder, with_it = run
    model = (folder / "model" / "model.safetensors").stat().st_mtime_ns
    without = fit(recipe(data, evaluate__ensemble="false"), folder, SILENT, until="evaluate")
    assert (
        without is not None
        and [row.kind for row in without.rows] == ["ours"]
        and without.verdict == with_it.verdict
    )
    assert (folder / "model" / "model.safetensors").stat().st_mtime_ns == model
