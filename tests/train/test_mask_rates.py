"""A rate of masks that changes in the course of stage 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import Train
from tasklm.storage.files import read_json
from tasklm.tokens.masking import NONE
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import joint_stage
from tests.train.arms import assert_a_cut_changes_nothing
from tests.train.test_loop import parts  # noqa: F401

STEPS = 13


def stage_of(context: TrainingContext, planned: int | None = STEPS, **changes: float) -> JointStage:
    given = {"mask_rate": 0.4, "mask_rate_last": 0.1, **changes}
    stage = joint_stage(context, Train(**given), rho1=2, batch=8)  # type: ignore[arg-type]
    stage.planned = planned
    return stage


def counts(stage: JointStage, rates: list[float]) -> list[tuple[int, int]]:
    """The number of targets at each step, and that number by hand from a rate."""
    special, both = stage.objective.masks.rule.special, []
    for number, rate in enumerate(rates):
        text = stage.prepare(number).batch.text  # type: ignore[attr-defined]
        ids, places = text.batch.ids.numpy().copy(), text.picked.shape[1]
        assert places == round(0.4 * ids.shape[1])  # at all rates
        wanted = 0
        for row, picked, answers in zip(ids, text.picked, text.answers, strict=True):
            row[picked[answers != NONE]] = answers[answers != NONE]
            usable = int((~special[row]).sum())
            wanted += min(usable, max(1, int(rate * usable + 0.5)), places)
        both.append((text.targets(), wanted))
    return both


@pytest.mark.parametrize(("first", "last"), [(0.4, 0.1), (0.1, 0.4)])
def test_the_rate_goes_from_the_first_to_the_last_in_a_straight_line(
    parts: TrainingContext,
    first: float,
    last: float,
) -> None:
    stage = stage_of(parts, mask_rate=first, mask_rate_last=last)
    rates = [first + (last - first) * (step / (STEPS - 1)) for step in range(STEPS)]
    assert all(ours == wanted for ours, wanted in counts(stage, rates))
    assert any(ours != wanted for ours, wanted in counts(stage_of(parts), [first] * STEPS))


def test_plans_and_longer_trainings(parts: TrainingContext) -> None:
    # a plan counts the work half-way, and a training that takes longer than planned stays
    for planned, rates in ((None, [0.25] * 4), (2, [0.4, 0.1, 0.1, 0.1])):
        assert all(one == wanted for one, wanted in counts(stage_of(parts, planned), rates))


def test_flops_follow_the_targets(parts: TrainingContext) -> None:
    stage = stage_of(parts)
    external = [stage.prepare(step) for step in range(STEPS) if step % 3]
    flops = [step.flops for step in external]
    assert flops == sorted(flops, reverse=True) and flops[0] > flops[-1]


def test_a_training_that_is_cut_off_ends_the_same(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def train(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        settings = Train(
            mask_rate=0.4,
            mask_rate_last=0.1,
            decay_cautious=True,
            weight_decay=0.3,
            checkpoint_seconds=0.0,
            learning_rate=3e-3,
        )
        run_stage1(folder, parts, settings, Stage1Plan(STEPS, 2, 8, None), SILENT)

    assert_a_cut_changes_nothing(train, tmp_path, monkeypatch, 8)
    assert read_json(tmp_path / "cut" / "config.json")["train"]["mask_rate_last"] == 0.1


def test_the_same_rate_at_both_ends_is_the_plain_training(parts: TrainingContext) -> None:
    plain = joint_stage(parts, Train(mask_rate=0.2), rho1=2, batch=8)
    falling = joint_stage(parts, Train(mask_rate=0.2, mask_rate_last=0.2), rho1=2, batch=8)
    falling.planned = STEPS
    for step in range(STEPS):
        one, other = (stage.prepare(step).batch.text for stage in (plain, falling))  # type: ignore[attr-defined]
        assert one.batch.ids.equal(other.batch.ids) and one.answers.equal(other.answers)


def test_objectives_with_one_rate_refuse_another(parts: TrainingContext) -> None:
    with pytest.raises(RecipeError, match=r"train\.mask_rate_last: the rate of masks of electra"):
        joint_stage(parts, Train(objective="electra", mask_rate_last=0.1), rho1=2, batch=8)
