"""How stage 1 begins where it starts from no other training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasklm.encoders.base import Shape
from tasklm.encoders.initial_weights import initial_spread
from tasklm.errors import RecipeError
from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Train
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.init.first_weights import Beginning, beginning_of
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tests.train.test_loop import parts  # noqa: F401  (a fixture)

MINI = Shape(vocabulary=256, layers=3, width=192, heads=3, feedforward=256, positions=64)
BOTH = {"embeddings": "counts", "attention": "neighbours"}
NEITHER = {"embeddings": "random", "attention": "random"}
EMBEDDINGS, BIAS, POSITIONS = "encoder.token.weight", "objective.bias", "encoder.position.weight"


def first_weights(parts: TrainingContext, folder: Path, **settings: Any) -> dict[str, Tensor]:
    folder.mkdir()
    run_stage1(folder, parts, Train(**settings), Stage1Plan(0, 1, 8, None), SILENT)
    return load_weights(folder / "model.safetensors")


def test_it_begins_as_the_recipe_says() -> None:
    assert beginning_of(Train(**NEITHER), "bert", MINI) == Beginning(False, False)
    assert beginning_of(Train(**BOTH), "bert", MINI) == Beginning(True, True)
    assert beginning_of(
        Train(embeddings="random", attention="neighbours"), "bert", MINI
    ) == Beginning(False, True)
    assert beginning_of(
        Train(embeddings="counts", objective="electra"), "modern", MINI
    ) == Beginning(True, False)
    assert beginning_of(Train(start="runs/first"), "bert", MINI) == Beginning(False, False)


def test_small_models_begin_with_both_unless_told_otherwise() -> None:
    assert beginning_of(Train(), "bert", MINI) == Beginning(True, True)
    assert beginning_of(Train(attention="random"), "bert", MINI) == Beginning(True, False)
    assert beginning_of(Train(), "bert", dataclasses.replace(MINI, heads=1)) == Beginning(
        True, False
    )  # no room for two places
    for name in ("electra", "electric"):
        assert beginning_of(Train(objective=name), "bert", MINI) == Beginning(True, False)
    for settings, encoder, shape in (
        (Train(), "bert", dataclasses.replace(MINI, layers=5)),
        (Train(), "modern", MINI),
        (Train(objective="permutation"), "bert", MINI),
        (Train(start="runs/first"), "bert", MINI),
    ):
        assert beginning_of(settings, encoder, shape) == Beginning(False, False)


def test_what_cannot_be_is_refused_with_the_way_out() -> None:
    with pytest.raises(RecipeError, match=r"train.attention = 'neighbours'.*bert"):
        beginning_of(Train(attention="neighbours"), "modern", MINI)
    with pytest.raises(RecipeError, match=r"train.embeddings = 'counts'.*train.start") as caught:
        beginning_of(
            Train(embeddings="counts", attention="neighbours", start="runs/first"), "bert", MINI
        )
    assert len(caught.value.problems) == 2


def test_counts_have_the_size_of_drawn_rows_and_leave_what_they_say_nothing_of(
    parts: TrainingContext, tmp_path: Path
) -> None:
    drawn = first_weights(parts, tmp_path / "drawn", embeddings="random", attention="random")
    begun = first_weights(parts, tmp_path / "begun", embeddings="counts", attention="random")
    assert {name for name in drawn if not torch.equal(drawn[name], begun[name])} == {
        EMBEDDINGS,
        BIAS,
    }
    seen = (drawn[EMBEDDINGS] != begun[EMBEDDINGS]).any(1)
    assert seen.any() and not seen[parts.vocabulary.specials].any()
    rows = begun[EMBEDDINGS][seen]
    assert float(rows.square().mean().sqrt()) == pytest.approx(
        initial_spread(parts.shape.width), rel=1e-4
    )


def test_the_bias_is_the_log_frequency_of_task_and_selected_text(
    parts: TrainingContext, tmp_path: Path
) -> None:
    begun = first_weights(parts, tmp_path / "begun", **BOTH)
    assert parts.external is not None
    flat = [
        token for unit in parts.train.units for token in unit.tokens
    ] + parts.external.tokens.tolist()
    often = [
        0 if number in parts.vocabulary.specials else flat.count(number)
        for number in range(parts.shape.vocabulary)
    ]
    wanted = np.log((np.array(often) + 0.5) / (np.array(often) + 0.5).sum())
    np.testing.assert_allclose(begun[BIAS].numpy(), wanted, rtol=1e-5)


def test_other_objectives_and_encoders_can_begin_from_counts(
    parts: TrainingContext, tmp_path: Path
) -> None:
    narrow = dataclasses.replace(
        parts, encoder="albert", shape=dataclasses.replace(parts.shape, embedding=16)
    )
    for number, (some, objective) in enumerate([(parts, "electra"), (narrow, "mlm")]):
        begun = first_weights(
            some, tmp_path / f"{number}", embeddings="counts", objective=objective
        )
        drawn = first_weights(
            some,
            tmp_path / f"drawn-{number}",
            embeddings="random",
            attention="random",
            objective=objective,
        )
        assert not torch.equal(begun[EMBEDDINGS], drawn[EMBEDDINGS])
        bias = next(
            name
            for name in begun
            if name.startswith("objective.")
            and name.endswith("bias")
            and len(begun[name]) == len(begun[EMBEDDINGS])
        )
        assert float(begun[bias].exp().sum()) == pytest.approx(1.0, rel=1e-4)


def test_the_seed_decides_all_of_it(parts: TrainingContext, tmp_path: Path) -> None:
    one, same = (first_weights(parts, tmp_path / name, seed=3, **BOTH) for name in ("one", "same"))
    assert all(torch.equal(one[name], same[name]) for name in one)
    other = first_weights(parts, tmp_path / "other", seed=4, **BOTH)
    assert not torch.equal(one[POSITIONS], other[POSITIONS])
