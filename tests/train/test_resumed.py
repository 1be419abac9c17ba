"""Both stages, cut off and damaged meanwhile, end in the same files as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasklm.recipe.model_sections import Finetune, Train
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT, Tracker
from tasklm.train import learning_curves
from tasklm.train.context import TrainingContext
from tasklm.train.stage1 import JointStage
from tasklm.train.stage2 import FinetuneStage, Judgement
from tasklm.train.stage_runs import BEST, Stage1Plan, Stage2Plan, run_stage1, run_stage2
from tasklm.train.stages import finetune_stage
from tests.train.test_loop import parts  # noqa: F401

STEPS = 12


def stage1(folder: Path, parts: TrainingContext, tracker: Tracker = SILENT) -> None:
    folder.mkdir(exist_ok=True)
    settings = Train(checkpoint_seconds=0.0, keep=1, learning_rate=3e-3, average=0.5)
    run_stage1(folder, parts, settings, Stage1Plan(STEPS, 2, 8, None), tracker)


def stage2(folder: Path, parts: TrainingContext, tracker: Tracker = SILENT) -> None:
    folder.mkdir(exist_ok=True)
    settings = Finetune(batch=8, learning_rate=3e-3)
    run_stage2(
        folder,
        parts,
        settings,
        Stage2Plan(4, "accuracy", 0.0, None),
        Seed(folder.parent, 1, 1),
        tracker,
    )


def cut_off(patch: pytest.MonkeyPatch, stage: Any, step: int) -> None:
    """Lets a stage end when it prepares a step; by then the training itself may be a few steps
    behind.
    """
    prepare = stage.prepare

    def cut(self: Any, number: int) -> Any:
        if number == step:
            raise KeyboardInterrupt
        return prepare(self, number)

    patch.setattr(stage, "prepare", cut)


def checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("checkpoint-*"))


HARMS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda folder: None,
    "the last checkpoint": lambda folder: (
        checkpoints(folder)[-1] / "model.safetensors"
    ).write_bytes(b""),
    "all checkpoints": lambda folder: [
        (one / "optimiser.safetensors").write_bytes(bytes(99)) for one in checkpoints(folder)
    ],
    "the curve": lambda folder: (folder / "curve.json").write_bytes(b""),
}


def files_of(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    assert not checkpoints(folder)
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.parametrize("harm", list(HARMS))
def test_stage_1_ends_the_same(
    parts: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    monkeypatch.setattr(learning_curves, "POINTS", 3)  # each point is the mean over four steps
    stage1(tmp_path / "straight", parts)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, JointStage, 7)
        stage1(tmp_path / "cut", parts)
    assert len(checkpoints(tmp_path / "cut")) == 2
    HARMS[harm](tmp_path / "cut")
    stage1(tmp_path / "cut", parts)
    names = ("model.safetensors", "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


@pytest.mark.parametrize("harm", [*HARMS, "the best weights"])
def test_stage_2_ends_the_same(
    parts: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    stage1(tmp_path / "stage1", parts)
    stage2(tmp_path / "straight", parts)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, FinetuneStage, 12)  # in the third epoch
        stage2(tmp_path / "cut", parts)
    assert len(checkpoints(tmp_path / "cut")) == 2
    if (
        harm == "the best weights"
    ):  # as a later epoch may have left them that no checkpoint knows of
        (tmp_path / "cut" / BEST).unlink()
        (tmp_path / "cut" / BEST).write_bytes(b"of another time")
    else:
        HARMS[harm](tmp_path / "cut")
    stage2(tmp_path / "cut", parts)
    names = (BEST, "curve.json")
    assert files_of(tmp_path / "cut", names) == files_of(tmp_path / "straight", names)


def test_it_is_said_from_where_training_goes_on(
    parts: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(Tracker, "say", lambda self, message: messages.append(message))
    for harm, goes_on in (
        ("the last checkpoint", "the previous one"),
        ("all checkpoints", "the start"),
    ):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            cut_off(patch, JointStage, 7)
            stage1(tmp_path / harm, parts)
        HARMS[harm](tmp_path / harm)
        stage1(tmp_path / harm, parts, Tracker())
        assert any(
            "is damaged; training continues from" in message and message.endswith(goes_on)
            for message in messages
        ), messages


def test_a_fine_tuning_whose_time_is_over_within_an_epoch_is_judged_there(
    tmp_path: Path, parts: TrainingContext
) -> None:
    stage1(tmp_path / "stage1", parts)
    folder = tmp_path / "stage2" / "seed-1"
    folder.mkdir(parents=True)
    plan = Stage2Plan(50, "accuracy", 60.0, 0.0)
    run_stage2(folder, parts, Finetune(batch=8), plan, Seed(tmp_path, 1, 1), SILENT)
    summary = read_json(folder / "summary.json")
    steps = summary["steps_planned"] // 50  # of an epoch
    assert 0 < summary["steps"] < summary["steps_planned"] and summary["steps"] % steps
    assert (folder / BEST).exists() and summary["epochs"] == summary["steps"] // steps + 1


def test_with_a_wide_part_a_higher_score_counts_only_with_a_loss_that_is_surely_lower(
    tmp_path: Path, parts: TrainingContext
) -> None:
    stage = finetune_stage(parts, Finetune(batch=8), 1, "accuracy", tmp_path / BEST)
    verdicts = [
        Judgement(0.5, (1.0,), False),
        Judgement(0.8, (1.0,), False),
        Judgement(0.4, (1.0,), True),
        Judgement(0.6, (1.0,), True),
    ]
    stage.evaluate = lambda model: verdicts.pop(0)
    assert [stage.judge(step)["dev"] for step in range(4)] == [0.5, 0.8, 0.4, 0.6]
    assert (stage.best_step, stage.best_score) == (
        3,
        0.6,
    )  # not the lucky second, and not the worse third
