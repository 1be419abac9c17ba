"""Seeds of stage 2 that follow one another share a compiled pass, and none sees the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.run_folder import Seed
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage_runs import BEST, Stage2Plan, run_stage2
from tests.train.counting import Counting
from tests.train.test_loop import MACHINE, parts  # noqa: F401  (parts is a fixture)
from tests.train.test_resumed import stage1


def tuned(folder: Path, context: TrainingContext, number: int, dropout: float) -> dict[str, Any]:
    """The best weights of one seed."""
    seed = Seed(folder.parent, 1, number)
    own = folder / str(number)
    own.mkdir(parents=True)
    settings = Finetune(batch=8, learning_rate=3e-3, dropout=dropout)
    run_stage2(own, context, settings, Stage2Plan(2, "accuracy", 1e9, None), seed, SILENT)
    return {name: tensor.numpy() for name, tensor in load_weights(own / BEST).items()}


def test_seeds_share_a_compiled_pass_and_nothing_else(
    parts: TrainingContext,
    tmp_path: Path,
) -> None:
    stage1(tmp_path / "stage1", parts)
    machine = Counting(MACHINE.device, False, 1, compiles=True)
    torch._dynamo.reset()
    Counting.graphs.clear()
    together = dataclasses.replace(parts, machine=machine)
    in_turn = [tuned(tmp_path / "together", together, number, 0.1) for number in (1, 2, 3)]
    assert len(Counting.graphs) == 1
    alone = [
        tuned(tmp_path / f"alone{number}", dataclasses.replace(parts, machine=machine), number, 0.1)
        for number in (1, 2, 3)
    ]
    for one, other in zip(in_turn, alone, strict=True):
        for name, weight in one.items():
            np.testing.assert_array_equal(weight, other[name])
    assert any(not np.array_equal(in_turn[0][name], in_turn[1][name]) for name in in_turn[0])


def test_another_dropout_is_compiled_for_itself(
    parts: TrainingContext,
    tmp_path: Path,
) -> None:
    stage1(tmp_path / "stage1", parts)
    machine = Counting(MACHINE.device, False, 1, compiles=True)
    context = dataclasses.replace(parts, machine=machine)
    tuned(tmp_path / "one", context, 1, 0.1)
    first = context.losses
    tuned(tmp_path / "two", context, 1, 0.3)
    assert context.losses is not first
