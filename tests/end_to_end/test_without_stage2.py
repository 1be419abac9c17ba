"""A run without epochs of fine-tuning keeps the model of stage 1 where there is no linear one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasklm.errors import RecipeError
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.schema import Recipe
from tasklm.tracking import SILENT
from tests.end_to_end.test_minutes import recipe_of


def without_stage2(files: Path, steps: int | None) -> Recipe:
    return recipe_of(files).changed(
        budget={"minutes": None},
        train={"steps": steps},
        finetune={"epochs": 0, "seeds": 1, "wide": False},
    )


def test_the_model_is_that_of_stage_1(files: Path, tmp_path: Path) -> None:
    scores = fit(without_stage2(files, 6), tmp_path, SILENT)
    assert scores is not None and scores.ours is not None and not scores.linear
    first = load_weights(tmp_path / "stage1" / "model.safetensors")
    best = load_weights(tmp_path / "stage2" / "seed-1" / "best.safetensors")
    assert {name.split(".")[0] for name in best} == {"encoder", "head"}
    for name, value in best.items():
        assert torch.equal(value, first[name]), name


def test_without_either_stage_there_is_no_model(files: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"finetune\.epochs = 0 leaves the linear model"):
        fit(without_stage2(files, 0), tmp_path, SILENT)
