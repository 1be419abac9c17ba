"""The recipes of the Bi-LSTM."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.encoders.shapes import shape_of
from tasklm.recipe.toml import load

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.mark.parametrize("name", ["cvt-tagging", "cvt-tagging-minutes"])
def test_the_shape_is_the_papers(name: str) -> None:
    recipe = load(RECIPES / f"{name}.toml", {})
    shape = shape_of(recipe.model, "base", 8000, 128)
    assert recipe.model.encoder == "bilstm" and recipe.kind.scheme == "bioes"
    assert (shape.layers, shape.width, shape.feedforward, shape.token_width) == (2, 512, 1024, 300)
    text = (RECIPES / f"{name}.toml").read_text(encoding="utf-8")
    assert f"tasklm run recipes/{name}.toml --data.train" in text


def test_the_papers_numbers() -> None:
    finetune = load(RECIPES / "cvt-tagging.toml", {}).finetune
    assert (finetune.optimiser, finetune.schedule, finetune.batch) == ("sgd", "root", 64)
    assert (finetune.learning_rate, finetune.sgd_momentum, finetune.average) == (0.5, 0.9, 0.998)
    assert (finetune.label_smoothing, finetune.dropout, finetune.clip) == (0.1, 0.5, 1.0)
