"""Tasks that take turns in both stages: cut off they end the same; compiled, each turn has its own
graphs and the results are the same; they learn.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.models.answering import encoded_with
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage1 import JointStage
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stage_runs import BEST, Stage1Plan, Stage2Plan, run_stage1, run_stage2
from tasklm.train.stages import finetune_stage, joint_stage
from tasklm.train.timing import seconds_per_example
from tests.conftest import sentences
from tests.train.counting import Counting
from tests.train.test_resumed import checkpoints, cut_off, files_of
from tests.turn_tasks import turn_tasks

MACHINE = Machine(torch.device("cpu"), False, 1)
SOME = ("classify", "choice", "parse", "crf")


@pytest.fixture(scope="module")
def parts(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> TrainingContext:
    folder = tmp_path_factory.mktemp("turns")
    read = turn_tasks(folder / "data", SOME)
    (folder / "shards").mkdir()
    write_shards(folder / "shards", [sentences(60)], vocabulary)
    wide = read.task.fit_wide(read.splits.train, read.splits.dev, "mean")
    assert wide is not None
    train = EncodedExamples.of(read.task, read.splits.train, vocabulary, 32, wide.train)
    dev = encoded_with(wide.wide, read.task, read.splits.dev, vocabulary, 32)
    shape = Shape(len(vocabulary), 1, 32, 2, 64, 32, dropout=0.0)
    text = Shards.open(folder / "shards")
    return TrainingContext(
        "bert",
        shape,
        read.task,
        vocabulary,
        train,
        dev,
        text,
        32,
        MACHINE,
        wide=wide.wide,
        task_power=0.75,
    )


def stage1(folder: Path, parts: TrainingContext, optimiser: str = "muon") -> None:
    folder.mkdir(exist_ok=True)
    settings = Train(
        checkpoint_seconds=0.0, keep=1, learning_rate=3e-3, average=0.5, optimiser=optimiser
    )
    run_stage1(folder, parts, settings, Stage1Plan(14, 1, 8, None), SILENT)


def stage2(folder: Path, parts: TrainingContext, epochs: int = 2) -> None:
    folder.mkdir(exist_ok=True)
    settings = Finetune(batch=8, learning_rate=3e-3)
    plan = Stage2Plan(epochs, "mean", 0.0, None)
    run_stage2(folder, parts, settings, plan, Seed(folder.parent, 1, 1), SILENT)


@pytest.mark.parametrize("optimiser", ["muon", "adamw", "lamb"])
def test_stage_1_ends_the_same(
    parts: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimiser: str
) -> None:
    stage1(tmp_path / "straight", parts, optimiser)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, JointStage, 7)
        stage1(tmp_path / "cut", parts, optimiser)
    assert checkpoints(tmp_path / "cut")
    stage1(tmp_path / "cut", parts, optimiser)
    names = ("model.safetensors", "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


def test_stage_2_ends_the_same(
    parts: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage1(tmp_path / "stage1", parts)
    stage2(tmp_path / "straight", parts)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, FinetuneStage, 17)
        stage2(tmp_path / "cut", parts)
    assert checkpoints(tmp_path / "cut")
    stage2(tmp_path / "cut", parts)
    names = (BEST, "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


def test_a_step_is_of_one_turn_and_moves_no_other_head(parts: TrainingContext) -> None:
    stage = finetune_stage(parts, Finetune(batch=8, dropout=0.0), 1, "mean", None)
    turns = set()
    for number in range(1, 2 * len(stage.stream)):
        step = stage.prepare(number)
        stage.module.zero_grad()
        losses = step.compute(step.batch)
        losses["task"].backward()
        named = dict(stage.module.named_parameters())
        moved = {
            name.split(".")[2]
            for name, one in named.items()
            if name.startswith("head.") and one.grad is not None and bool(one.grad.any())
        }
        assert step.batch.task is not None and step.targets["task"] > 0 and step.flops > 0  # type: ignore[attr-defined]
        turn = step.batch.task.turn  # type: ignore[attr-defined]
        assert moved == {str(turn)}
        turns.add(turn)
    assert turns == {0, 1, 2, 3}


def test_compiled_each_turn_has_few_graphs_and_the_same_losses(parts: TrainingContext) -> None:
    compiled = dataclasses.replace(parts, machine=Counting(MACHINE.device, False, 1, compiles=True))
    torch._dynamo.reset()
    Counting.graphs.clear()
    with torch._dynamo.config.patch(recompile_limit=64):
        stage = finetune_stage(compiled, Finetune(batch=8, dropout=0.0), 1, "mean", None)
        plain = finetune_stage(parts, Finetune(batch=8, dropout=0.0), 1, "mean", None)
        plain.module.load_state_dict(stage.module.state_dict())
        shapes = set()
        for number in range(1, 2 * len(stage.stream)):
            step = stage.prepare(number)
            batch = step.batch.task  # type: ignore[attr-defined]
            shapes.add((batch.turn, *batch.ids.shape, *batch.places.shape))
            with torch.no_grad():
                ours, theirs = step.compute(step.batch), plain.losses.on(MACHINE)(batch)
            torch.testing.assert_close(ours["task"], theirs["task"])
    assert len(Counting.graphs) == len(shapes) <= 8
    torch._dynamo.reset()


def test_all_tasks_are_learnt(parts: TrainingContext, tmp_path: Path) -> None:
    stage1(tmp_path / "stage1", parts)
    stage2(tmp_path / "tuned", parts, epochs=12)
    curve = read_json(tmp_path / "tuned" / "curve.json")
    losses = [point["task"] for point in curve if "task" in point]
    third = len(losses) // 3
    assert sum(losses[-third:]) < 0.8 * sum(losses[:third])


def test_both_stages_and_dev_are_timed(parts: TrainingContext) -> None:
    stage = joint_stage(parts, Train(), 1, 8)
    assert len(stage.internal) == sum(stage.internal.counts)  # type: ignore[union-attr]
    tuning = finetune_stage(parts, Finetune(batch=8), 1, "mean", None)
    assert 0 < seconds_per_example(tuning.module, parts.dev, MACHINE) < 1
