"""A run that starts from another one: the whole flow, its comparisons, its recorded recipe, kills
and several processes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tasklm.bill.record import read_bill
from tasklm.models.weights import load_weights, save_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tests.end_to_end.conftest import options, until
from tests.end_to_end.forking import Commands
from tests.end_to_end.test_kill import kill_at
from tests.end_to_end.test_processes import same_training
from tests.samples import reseal

LEFT_OUT = ("model.", "tokens.vocabulary")  # what the run that is started from decides


@pytest.fixture(scope="module")
def first(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "run"
    fit(load(None, options(files)), folder, SILENT, until="train")
    return folder


def further(files: Path, first: Path, **changes: str) -> dict[str, str]:
    """Returns dotted keys of a quick run that starts from the first."""
    usual = {
        "train__start": str(first),
        "train__steps": "12",
        "finetune__epochs": "1",
        "finetune__seeds": "1",
    }
    given = options(files, **{**usual, **changes})
    return {key: value for key, value in given.items() if not key.startswith(LEFT_OUT)}


def encoder_of(run: Path) -> dict[str, Tensor]:
    return {
        name: value
        for name, value in load_weights(run / "stage1/model.safetensors").items()
        if name.startswith("encoder.")
    }


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) for name, value in one.items()
    )


def test_without_steps_it_is_plain_fine_tuning_for_the_ablations_too(
    files: Path, first: Path, tmp_path: Path
) -> None:
    recipe = load(
        None, further(files, first, train__steps="0", evaluate__compare="task-only,random")
    )
    scores = fit(recipe, tmp_path / "run", SILENT)
    assert scores is not None and scores.ours is not None and scores.ours.test is not None
    for folder in (
        tmp_path / "run",
        tmp_path / "run" / "compare" / "task-only",
        tmp_path / "run" / "compare" / "random",
    ):
        assert equal(encoder_of(first), encoder_of(folder))
        assert json.loads((folder / "stage1" / "summary.json").read_text())["steps"] == 0
        assert (folder / "tokens" / "tokenizer.json").read_bytes() == (
            first / "tokens" / "tokenizer.json"
        ).read_bytes()
    tuned = load_weights(tmp_path / "run" / "stage2" / "seed-1" / "best.safetensors")
    assert not torch.equal(tuned["encoder.token.weight"], encoder_of(first)["encoder.token.weight"])


def test_the_bill_names_the_start_with_its_own_bill(
    files: Path, first: Path, tmp_path: Path
) -> None:
    recipe = load(None, further(files, first, train__steps="2"))
    fit(recipe, tmp_path / "one", SILENT, until="evaluate")
    start = read_bill(tmp_path / "one").start
    assert start is not None and start["title"] == "run" and not start["published"]
    assert start["bill"] is None  # its run was not finished
    given = further(files, tmp_path / "one", train__steps="2")
    fit(load(None, given), tmp_path / "two", SILENT, until="evaluate")
    ((title, earlier),) = read_bill(tmp_path / "two").earlier()
    assert title == "one" and earlier == read_bill(tmp_path / "one")


def predictions(recipe: Recipe, folder: Path) -> np.ndarray:
    fit(recipe, folder, SILENT, until="evaluate")
    answers = json.loads((folder / "predictions" / "test-1.json").read_text())
    return np.array([list(answer["probabilities"].values()) for answer in answers])


def test_the_recorded_recipe_repeats_it_and_other_weights_build_it_anew(
    files: Path, first: Path, tmp_path: Path
) -> None:
    start = Path(shutil.copytree(first, tmp_path / "start"))
    found = predictions(
        load(None, further(files, start, train__objective="electra")), tmp_path / "run"
    )
    recorded = load(tmp_path / "run" / "recipe.toml")
    assert (
        recorded.train.start == str((start / "stage1").resolve())
        and recorded.tokens.kind == "file"
        and recorded.model.width == 32
    )
    assert np.array_equal(found, predictions(recorded, tmp_path / "again"))
    assert not equal(encoder_of(start), encoder_of(tmp_path / "run"))
    built = (tmp_path / "run" / "stage1" / "model.safetensors").stat().st_mtime_ns
    predictions(recorded, tmp_path / "run")
    assert (tmp_path / "run" / "stage1" / "model.safetensors").stat().st_mtime_ns == built
    weights = load_weights(start / "stage1" / "model.safetensors")
    save_weights(
        start / "stage1" / "model.safetensors",
        {name: value * 1.1 for name, value in weights.items()},
    )
    reseal(start / "stage1")
    assert not np.array_equal(found, predictions(recorded, tmp_path / "run"))
    assert (tmp_path / "run" / "stage1" / "model.safetensors").stat().st_mtime_ns != built


def test_killed_and_continued_it_ends_in_identical_weights(
    files: Path, first: Path, tmp_path: Path, commands: Commands
) -> None:
    """With an objective that changes after half of the steps."""
    given = further(
        files,
        first,
        train__steps="24",
        train__checkpoint_seconds="0",
        train__objective="electra-two-stage",
    )
    straight, cut = tmp_path / "straight" / "run", tmp_path / "cut" / "run"
    fit(load(None, given), straight, SILENT, until="train")
    points = [f"stage1.partial/checkpoint-0000000{step}" for step in ("0[3-9]", "12", "1[5-9]")]
    words = until("train", given, cut)
    killed = [kill_at(commands, words, cut, pattern, 0.0) for pattern in points]
    assert sum(killed) >= 2, "the kills came too late to test anything"
    commands.run(words)
    assert equal(
        load_weights(straight / "stage1/model.safetensors"),
        load_weights(cut / "stage1/model.safetensors"),
    )
    assert json.loads((cut / "stage1" / "summary.json").read_text())["switched"] == 12


def test_several_processes_start_from_the_same_weights(
    files: Path, first: Path, tmp_path: Path, commands: Commands
) -> None:
    """And go over to the second half of an objective together."""
    given = further(files, first, train__objective="electra-two-stage")
    fit(load(None, given), tmp_path / "one" / "run", SILENT, until="train")
    commands.run(until("train", given, tmp_path / "two" / "run"), processes=2)
    assert json.loads((tmp_path / "two" / "run" / "manifest.json").read_text())["processes"] == 2
    same_training(tmp_path / "one" / "run", tmp_path / "two" / "run")
