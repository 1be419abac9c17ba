"""The last part of stage 1 reads the best of the selected text, while the learning rate falls."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.recipe.model_sections import Train
from tasklm.recipe.parsing import values_for_key
from tasklm.storage.files import read_json
from tasklm.tokens.masking import NONE
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import joint_stage
from tests.train.arms import assert_a_cut_changes_nothing
from tests.train.test_loop import parts  # noqa: F401

STEPS, SHARE = 20, 0.4
HELD_OUT = [0, 3, 50]


def stage_of(context: TrainingContext, planned: int | None = STEPS) -> JointStage:
    settings = Train(anneal=SHARE, rho2=3.0)
    stage = joint_stage(context, settings, rho1=1, batch=4)
    stage.planned = planned
    return stage


def texts_in(context: TrainingContext, stage: JointStage, step: int) -> set[tuple[int, ...]]:
    """The pieces of an external batch, without masks and special tokens."""
    batch: Any = stage.prepare(step).batch
    text = batch.text
    ids, answers = text.batch.ids.clone(), text.answers
    rows = np.arange(len(ids))[:, None].repeat(answers.shape[1], 1)
    real = (answers != NONE).numpy()
    ids[rows[real], text.picked.numpy()[real]] = answers[answers != NONE]
    pieces = set()
    for row, numbers in zip(ids.tolist(), text.batch.pieces.tolist(), strict=True):
        for number in set(numbers) - {0}:
            own = [token for token, piece in zip(row, numbers, strict=True) if piece == number]
            pieces.add(tuple(own[1:-1]))
    return pieces


def is_part(piece: tuple[int, ...], passage: tuple[int, ...]) -> bool:
    """Whether a piece stands in a passage; packing cuts passages."""
    size = len(piece)
    return any(passage[start : start + size] == piece for start in range(len(passage) - size + 1))


def passages(context: TrainingContext, numbers: list[int]) -> list[tuple[int, ...]]:
    """The tokens of some passages."""
    shards = context.external
    assert shards is not None
    spans = [slice(int(shards.offsets[n]), int(shards.offsets[n + 1])) for n in numbers]
    return [tuple(int(token) for token in shards.tokens[span]) for span in spans]


@pytest.mark.parametrize("held_out", [[], HELD_OUT])
def test_the_last_part_reads_the_best_fifth(parts: TrainingContext, held_out: list[int]) -> None:
    context = dataclasses.replace(parts, held_out=held_out)
    assert context.external is not None
    read = [number for number in range(len(context.external)) if number not in held_out]
    best = passages(context, read[: -(-len(read) // 5)])
    assert len(best) == 12
    stage = stage_of(context)
    first = [texts_in(context, stage, step) for step in range(1, 12, 2)]
    last = set().union(*[texts_in(context, stage, step) for step in range(13, STEPS, 2)])
    for texts in first:
        assert any(not any(is_part(piece, passage) for passage in best) for piece in texts)
    assert all(any(is_part(piece, passage) for passage in best) for piece in last)
    assert all(any(is_part(piece, passage) for piece in last) for passage in best)


def test_a_plan_reads_all_text(parts: TrainingContext) -> None:
    plain = joint_stage(parts, Train(rho2=3.0), rho1=1, batch=4)
    stage = stage_of(parts, planned=None)
    for step in range(STEPS):
        one, other = (each.prepare(step) for each in (plain, stage))
        assert one.batch.text.batch.ids.equal(other.batch.text.batch.ids)  # type: ignore[attr-defined]
        assert (one.flops, one.tokens) == (other.flops, other.tokens)
    assert "best" not in plain.position()


def train(folder: Path, context: TrainingContext, **changes: Any) -> None:
    folder.mkdir(exist_ok=True)
    settings = Train(
        anneal=SHARE, warmup=0.1, checkpoint_seconds=0.0, learning_rate=3e-3, **changes
    )
    run_stage1(folder, context, settings, Stage1Plan(STEPS, 1, 4, None), SILENT)


def test_the_rate_is_a_trapezoid(parts: TrainingContext, tmp_path: Path) -> None:
    train(tmp_path / "run", parts, schedule="cosine", decay=0.9)
    rates = [point["rate"] for point in read_json(tmp_path / "run" / "curve.json")]
    falling = [3e-3 * (STEPS - step) / (SHARE * STEPS) for step in range(12, STEPS)]
    assert rates == pytest.approx([1.5e-3, *[3e-3] * 11, *falling])


@pytest.mark.parametrize("cut", [9, 17])
def test_a_training_that_is_cut_off_ends_the_same(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut: int,
) -> None:
    assert_a_cut_changes_nothing(lambda folder: train(folder, parts), tmp_path, monkeypatch, cut)


def test_task_data_alone_has_the_rate_alone(parts: TrainingContext) -> None:
    stage = joint_stage(dataclasses.replace(parts, external=None), Train(anneal=0.2), 2, 4)
    assert stage.best is None and stage.rho1 == 0


def test_the_default_changes_no_key() -> None:
    assert "anneal" not in values_for_key(Train())
    assert values_for_key(Train(anneal=0.2))["anneal"] == 0.2
