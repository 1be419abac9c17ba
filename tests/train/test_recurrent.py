"""Both stages with the recurrent encoder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.recipe.model_sections import Finetune
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stage_runs import BEST, Stage2Plan, run_stage2
from tasklm.train.stages import finetune_stage
from tests.train.test_loop import parts, run, same_weights, stage_of  # noqa: F401
from tests.train.test_resumed import cut_off, files_of, stage1, stage2


@pytest.fixture
def recurrent(parts: TrainingContext) -> TrainingContext:
    shape = Shape(len(parts.vocabulary), 2, 16, 1, 24, 32)
    return dataclasses.replace(parts, encoder="bilstm", shape=shape)


def test_its_automatic_rate_is_its_own(
    recurrent: TrainingContext, parts: TrainingContext, tmp_path: Path
) -> None:
    rates = {}
    for name, context in (("recurrent", recurrent), ("usual", parts)):
        folder = tmp_path / name / "seed-1"
        folder.mkdir(parents=True)
        stage1(tmp_path / name / "stage1", context)
        plan, seed = Stage2Plan(1, "accuracy", 60.0, None), Seed(tmp_path / name, 1, 1)
        run_stage2(folder, context, Finetune(batch=8), plan, seed, SILENT)
        rates[name] = read_json(folder / "summary.json")["learning_rate"]
    assert rates == {"recurrent": 4e-3, "usual": 5e-4}


@pytest.mark.parametrize("objective", ["mlm", "electra", "electric"])
def test_stage_1_learns_and_resumes(
    recurrent: TrainingContext, tmp_path: Path, objective: str
) -> None:
    straight, resumed = (stage_of(recurrent, objective=objective) for _ in range(2))
    records = run(straight, None, 30)
    losses = [sum(map(float, record.losses.values())) for record in records if record.step % 3]
    assert losses[-1] < losses[0]
    run(stage_of(recurrent, objective=objective), tmp_path / "cut", 30, stop=8)
    run(resumed, tmp_path / "cut", 30)
    assert same_weights(straight, resumed)


def test_stage_2_resumes(
    recurrent: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage1(tmp_path / "stage1", recurrent)
    stage2(tmp_path / "straight", recurrent)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, FinetuneStage, 12)
        stage2(tmp_path / "cut", recurrent)
    stage2(tmp_path / "cut", recurrent)
    names = (BEST, "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


def test_micro_batches_change_no_weight(recurrent: TrainingContext) -> None:
    whole, split = stage_of(recurrent), stage_of(recurrent)
    run(whole, None, 4)
    run(split, None, 4, accumulate=3)
    for key, weight in whole.module.state_dict().items():
        other = split.module.state_dict()[key]
        torch.testing.assert_close(other, weight, atol=5e-5, rtol=1e-3, msg=key)


def test_packed_and_padded_batches_have_the_same_losses(recurrent: TrainingContext) -> None:
    """A compiled stage 2 packs the examples into rows; a plain one pads each to a row."""
    settings = Finetune(dropout=0.0, batch=40)
    machine = dataclasses.replace(recurrent.machine, compiles=True)
    losses = []
    for where in (recurrent.machine, machine):
        context = dataclasses.replace(recurrent, machine=where)
        stage = finetune_stage(context, settings, 1, "accuracy", None)
        batch = stage.stream.next()
        losses.append(stage.losses._sums(batch)["task"].item())
    assert isinstance(machine, Machine) and losses[0] == pytest.approx(losses[1], rel=1e-5)
