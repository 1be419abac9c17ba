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
DROPOUTS = (0.0, 0.5)
ARMS: dict[str, Train | Finetune] = {
    name: Train(**values, learning_rate=3e-3, checkpoint_seconds=1e9)
    for name, values in STAGE1.items()
} | {
    f"twice {dropout}": Finetune(batch=8, learning_rate=3e-3, rdrop=2.0, dropout=dropout)
    for dropout in DROPOUTS
}
STEPS = 10


def train(folder: Path, context: TrainingContext, settings: Train | Finetune) -> None:
    if isinstance(settings, Train):
        run_stage1(folder, context, settings, Stage1Plan(STEPS, 2, 8, None), SILENT)
        return
    plan = Stage2Plan(2, "accuracy", 1e9, None)
    run_stage2(folder, context, settings, plan, Seed(folder.parent, 1, 1), SILENT)


def _train_all(rank: int, folder: Path, context: TrainingContext) -> None:
    """What one of two processes does: it trains all ways, one after another."""
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    machine = Machine(torch.device("cpu"), False, 1, ranks=Ranks(rank, 2))
    own = dataclasses.replace(context, machine=machine)
    for name, settings in ARMS.items():
        train(folder / name / "two", own, settings)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def trained(
    parts: TrainingContext,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A folder for each way, with one and two: what so many processes leave."""
    folder = tmp_path_factory.mktemp("ways")
    for name, settings in ARMS.items():
        for place in ("stage1", "one", "two"):
            (folder / name / place).mkdir(parents=True)
        if isinstance(settings, Finetune):
            train(folder / name / "stage1", parts, Train(checkpoint_seconds=1e9))
        train(folder / name / "one", parts, settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        torch.multiprocessing.spawn(_train_all, (folder, parts), nprocs=2)
    return folder


def curves_of(folder: Path) -> list[list[dict[str, float]]]:
    return [read_json(folder / name / "curve.json") for name in ("one", "two")]


def assert_same_weights(folder: Path, file: str) -> None:
    one, two = (load_weights(folder / name / file) for name in ("one", "two"))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, atol=1e-4, rtol=1e-3, msg=name)


@pytest.mark.parametrize("arm", list(STAGE1))
def test_two_processes_train_what_one_trains(trained: Path, arm: str) -> None:
    assert_same_weights(trained / arm, "model.safetensors")
    for ours, theirs in zip(*curves_of(trained / arm), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-3)


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_two_processes_read_labelled_batches_twice(trained: Path, dropout: float) -> None:
    folder = trained / f"twice {dropout}"
    apart = [[point[RDROP] for point in curve] for curve in curves_of(folder)]
    if dropout:  # each process draws its own
        assert min(map(max, apart)) > 1e-4
        return
    for divergences in apart:
        assert divergences == pytest.approx([0.0] * 10, abs=1e-5)
    assert_same_weights(folder, BEST)
