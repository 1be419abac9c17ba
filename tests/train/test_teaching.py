"""What labels and teachers weigh in stage 2, step by step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.tokens.examples import EncodedExamples
from tasklm.train.context import TrainingContext
from tasklm.train.stage2 import FinetuneStage, Teaching
from tasklm.train.stage_runs import BEST
from tasklm.train.stages import finetune_stage
from tests.train.test_loop import parts  # noqa: F401
from tests.train.test_resumed import checkpoints, cut_off, stage1, stage2


def test_labels_outweigh_teachers_more_and_more() -> None:
    teaching = Teaching(steps=4, labels=None)
    assert [teaching.weights(step)["task"] for step in range(1, 6)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert teaching.weights(1)["teacher"] == 0.75


def test_a_constant_weight_stays() -> None:
    assert Teaching(4, 0.2).weights(3) == {"task": 0.2, "teacher": 0.8}


def taught_parts(parts: TrainingContext, labels: float | None) -> TrainingContext:
    """The same training with a teacher that draws its logits."""
    examples, task = list(parts.train.examples), parts.task
    logits = np.random.default_rng(1).normal(size=(len(examples), len(task.labels)))
    train = EncodedExamples.of(
        task, examples, parts.vocabulary, parts.length, None, logits.astype(np.float32)
    )
    return dataclasses.replace(parts, train=train, labels_weight=labels)


def test_steps_have_both_losses(parts: TrainingContext) -> None:
    stage = finetune_stage(
        taught_parts(parts, None), Finetune(batch=8), 1, "accuracy", None, epochs=3
    )
    steps = 3 * len(stage.stream)
    assert stage.teaching == Teaching(steps, None)
    prepared = stage.prepare(2)
    assert prepared.weights == {"task": 2 / steps, "teacher": 1 - 2 / steps}
    losses = prepared.compute(prepared.batch)
    assert set(losses) == {"task", "teacher"} == set(prepared.targets)
    assert losses["teacher"].item() != losses["task"].item()


def weights_after(folder: Path, parts: TrainingContext) -> dict[str, np.ndarray]:
    if not (folder.parent / "stage1").exists():
        stage1(folder.parent / "stage1", parts)
    stage2(folder, parts)
    return {name: tensor.numpy() for name, tensor in load_weights(folder / BEST).items()}


def test_a_teacher_without_weight_changes_nothing(
    parts: TrainingContext,
    tmp_path: Path,
) -> None:
    alone = weights_after(tmp_path / "alone", parts)
    silent = weights_after(tmp_path / "silent", taught_parts(parts, 1.0))
    heard = weights_after(tmp_path / "heard", taught_parts(parts, 0.0))
    for name, weight in alone.items():
        np.testing.assert_array_equal(weight, silent[name])
    assert any(not np.array_equal(alone[name], heard[name]) for name in alone)


def test_cut_off_while_being_taught_ends_in_the_same_weights(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taught = taught_parts(parts, None)
    straight = weights_after(tmp_path / "straight", taught)
    with monkeypatch.context() as patch:
        cut_off(patch, FinetuneStage, 9)
        with pytest.raises(KeyboardInterrupt):
            stage2(tmp_path / "cut", taught)
    assert checkpoints(tmp_path / "cut")
    for name, weight in weights_after(tmp_path / "cut", taught).items():
        np.testing.assert_array_equal(weight, straight[name])
