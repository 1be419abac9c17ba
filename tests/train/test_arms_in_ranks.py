"""Ways to train, in two processes as in one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.device.ranks import Ranks
from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage2 import RDROP
from tasklm.train.stage_runs import BEST, Stage1Plan, Stage2Plan, run_stage1, run_stage2
from tests.train.test_loop import parts  # noqa: F401

STAGE1: dict[str, dict[str, Any]] = {
    "one pass": {"internal_pass": "one", "rho2": 3.0},
    "annealing": {"anneal": 0.4},
}
STEPS = 10


def train(folder: Path, context: TrainingContext, settings: Train | Finetune) -> None:
    if isinstance(settings, Train):
        run_stage1(folder, context, settings, Stage1Plan(STEPS, 2, 8, None), SILENT)
        return
    plan = Stage2Plan(2, "accuracy", 1e9, None)
    run_stage2(folder, context, settings, plan, Seed(folder.parent, 1, 1), SILENT)


def _train_one(rank: int, folder: Path, context: TrainingContext, settings: Any) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder.with_name('meeting')}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    machine = Machine(torch.device("cpu"), False, 1, ranks=Ranks(rank, 2))
    train(folder, dataclasses.replace(context, machine=machine), settings)
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("arm", list(STAGE1))
def test_two_processes_train_what_one_trains(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arm: str,
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    settings = Train(**STAGE1[arm], learning_rate=3e-3, checkpoint_seconds=1e9)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    train(tmp_path / "one", parts, settings)
    torch.multiprocessing.spawn(_train_one, (tmp_path / "two", parts, settings), nprocs=2)
    one, two = (load_weights(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=1e-4, rtol=1e-3, msg=name)
    curves = [read_json(tmp_path / name / "curve.json") for name in ("one", "two")]
    for ours, theirs in zip(*curves, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_two_processes_read_labelled_batches_twice(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dropout: float,
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for name in ("stage1", "one", "two"):
        (tmp_path / name).mkdir()
    train(tmp_path / "stage1", parts, Train(checkpoint_seconds=1e9))
    settings = Finetune(batch=8, learning_rate=3e-3, rdrop=2.0, dropout=dropout)
    train(tmp_path / "one", parts, settings)
    torch.multiprocessing.spawn(_train_one, (tmp_path / "two", parts, settings), nprocs=2)
    curves = [read_json(tmp_path / name / "curve.json") for name in ("one", "two")]
    apart = [[point[RDROP] for point in curve] for curve in curves]
    if dropout:  # each process draws its own
        assert min(map(max, apart)) > 1e-4
        return
    for divergences in apart:
        assert divergences == pytest.approx([0.0] * 10, abs=1e-5)
    one, two = (load_weights(tmp_path / name / BEST) for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=1e-4, rtol=1e-3, msg=name)
