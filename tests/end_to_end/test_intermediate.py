"""Fine-tuning on one task, and then on another that goes on from its model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tasklm import TaskLM
from tasklm.errors import RecipeError, RunError
from tasklm.models.weights import load_weights, save_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tasklm.train.start import title_of
from tasklm.train.started_recipes import started
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.samples import reseal

RECIPE = Path(__file__).parents[2] / "recipes" / "intermediate.toml"
LEFT_OUT = (
    "model.",
    "tokens.vocabulary",
    "train.steps",
)  # what the model that is started from decides, and the recipe itself


@pytest.fixture(scope="module")
def first(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a classification task."""
    folder = tmp_path_factory.mktemp("first") / "run"
    data = {f"data.{name}": str(files / f"{name}.jsonl") for name in ("train", "dev")}
    fit(
        load(
            None,
            {
                **QUICK,
                **data,
                "train.steps": "5",
                "finetune.seeds": "1",
                "evaluate.baselines": "false",
            },
        ),
        folder,
        SILENT,
    )
    return folder


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a task of another kind: how often is a vowel in the sentence?"""
    folder = tmp_path_factory.mktemp("scored")
    for name, count, seed in (("train", 60, 1), ("dev", 30, 2)):
        write_jsonl(
            folder / f"{name}.jsonl",
            [{"text": text, "score": text.count("o") / 2} for text in sentences(count, seed)],
        )
    return folder


def further(files: Path, start: Path, **changes: str) -> Recipe:
    quick = {key: value for key, value in QUICK.items() if not key.startswith(LEFT_OUT)}
    data = {f"data.{name}": str(files / f"{name}.jsonl") for name in ("train", "dev")}
    given = {
        **quick,
        **data,
        "finetune.seeds": "1",
        "finetune.epochs": "1",
        "train.start": str(start),
    }
    return load(
        RECIPE, {**given, **{key.replace("__", "."): value for key, value in changes.items()}}
    )


def encoder_of(weights: Path) -> dict[str, Tensor]:
    return {
        name: value for name, value in load_weights(weights).items() if name.startswith("encoder.")
    }


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


def test_a_score_goes_on_from_a_model_of_classes(first: Path, scored: Path, tmp_path: Path) -> None:
    out = tmp_path / "second"
    scores = fit(further(scored, first / "model"), out, SILENT)
    assert (
        scores is not None
        and scores.ours is not None
        and scores.ours.name == "task data only, from fine-tuned run"
    )
    log = (out / "log.txt").read_text(encoding="utf-8").splitlines()
    assert any(
        "the parts of mlm are new" in line and "fine-tuned (classify)" in line for line in log
    )
    tuned = encoder_of(first / "model" / "model.safetensors")
    after = encoder_of(out / "stage1" / "model.safetensors")
    assert equal(tuned, after) and not equal(
        tuned, encoder_of(first / "stage1" / "model.safetensors")
    )
    assert json.loads((out / "stage1" / "summary.json").read_text(encoding="utf-8"))["steps"] == 0
    assert (out / "tokens" / "tokenizer.json").read_bytes() == (
        first / "model" / "tokenizer.json"
    ).read_bytes()
    assert not equal(after, encoder_of(out / "stage2" / "seed-1" / "best.safetensors"))
    recorded = load(out / "recipe.toml")
    assert (
        recorded.data.kind == "regress"
        and recorded.model.width == 32
        and recorded.train.start == str((first / "model").resolve())
    )


def test_what_save_wrote_starts_too_and_other_weights_train_anew(
    first: Path, scored: Path, tmp_path: Path
) -> None:
    TaskLM.load(first).save(tmp_path / "saved")
    recipe = further(scored, tmp_path / "saved", train__steps="2")
    built = tmp_path / "second" / "stage1" / "model.safetensors"
    fit(recipe, tmp_path / "second", SILENT, until="train")
    before = encoder_of(built)
    assert not equal(
        before, encoder_of(first / "model" / "model.safetensors")
    )  # stage 1 has done its two steps
    weights = load_weights(tmp_path / "saved" / "model.safetensors")
    save_weights(
        tmp_path / "saved" / "model.safetensors",
        {name: value * 1.1 for name, value in weights.items()},
    )
    reseal(tmp_path / "saved")
    fit(recipe, tmp_path / "second", SILENT, until="train")
    assert not equal(before, encoder_of(built))


def test_a_folder_that_cannot_be_started_from_is_told(
    first: Path, scored: Path, tmp_path: Path
) -> None:
    def refused(
        change: dict[str, Any], message: str, weights: dict[str, Tensor] | None = None
    ) -> None:
        copy = Path(shutil.copytree(first / "model", tmp_path / "broken", dirs_exist_ok=True))
        path = copy / "config.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8"
        )
        if weights is not None:
            save_weights(copy / "model.safetensors", weights)
        reseal(copy)
        with pytest.raises(RunError, match=message):
            started(further(scored, copy), tmp_path / "second")
        shutil.rmtree(copy)

    whole = load_weights(first / "model" / "model.safetensors")
    refused({"format": 7}, "format 7, but this version reads 3")
    refused({"shape": {}}, "is damaged")
    refused({"task": {}}, r"is damaged \('kind' is missing\)")
    refused({"models": 0}, "the number of models is not a whole number from 1 to 100")
    refused({"models": 3}, "ensemble of 3 models.*Give the folder 'model'")
    refused(
        {},
        "encoder.token.weight is missing",
        {name: value for name, value in whole.items() if name != "encoder.token.weight"},
    )
    with pytest.raises(RecipeError, match=r"train\.start is this run itself"):
        started(further(scored, first / "model"), first)
    with pytest.raises(
        RecipeError, match=r"tokens\.length = 64: the encoder of train\.start has 32 positions"
    ):
        started(further(scored, first / "model", tokens__length="64"), tmp_path / "second")


def test_a_fine_tuned_start_is_called_by_its_run() -> None:
    assert title_of(Path("/runs/mnli/model")) == "fine-tuned mnli"
