"""What a budget buys of both stages, from their pace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasklm.budget import rules
from tasklm.budget.rules import Plan
from tasklm.budget.scope import LINEAR, TASK, TEXT, Scope
from tasklm.pipeline import stage_planning
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.schema import from_dict, with_overrides
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.translate import Translate
from tasklm.train import stage_runs
from tasklm.train.optim.optimizers import Rule
from tasklm.train.stage_runs import Stage2Plan


@pytest.mark.parametrize(
    ("keys", "steps", "batch", "warning"),
    [
        (
            {"budget.minutes": 1.5},
            15,
            16,
            "stage 1 has few steps (15): raise --minutes or lower --tokens.length",
        ),
        (
            {"budget.minutes": 5.0, "train.batch": 256},
            213,
            256,
            "stage 1 has few steps (213): raise --minutes or lower --train.batch",
        ),
        ({}, 999, 16, "stage 1 has few steps (999): raise --minutes or lower --tokens.length"),
        (
            {"budget.flops": 1e13},
            999,
            32,
            "stage 1 has few steps (999): raise --flops or lower --train.batch",
        ),
        ({"budget.minutes": 20.0}, 1000, 16, None),
        ({"train.steps": 5}, 5, 16, None),  # as asked for
        ({"budget.minutes": 1.0, "train.start": "runs/other"}, 5, 16, None),  # it has learnt before
    ],
)
def test_a_budget_that_buys_few_steps_is_told_in_one_line(
    keys: dict[str, Any], steps: int, batch: int, warning: str | None
) -> None:
    recipe = from_dict(with_overrides({}, keys))
    assert stage_planning.few_steps_warning(recipe, steps, batch) == warning
    assert warning is None or len(warning) <= 70  # beside its label, a line of 80 columns


def test_the_pace_of_either_stage_is_that_of_its_own_optimiser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[str] = []
    stage = SimpleNamespace(rho1=1, halves=False, steps_of=lambda epochs: 10, model=None)

    def seconds_per_step(stage: Any, rule: Rule, *others: Any, **options: Any) -> float:
        measured.append(rule.name)
        return 0.5

    monkeypatch.setattr(stage_planning, "seconds_per_step", seconds_per_step)
    monkeypatch.setattr(stage_planning, "joint_stage", lambda *given: stage)
    monkeypatch.setattr(stage_planning, "finetune_stage", lambda *given: stage)
    recipe = from_dict({"train": {"optimiser": "muon"}, "finetune": {"optimiser": "lamb"}})
    monkeypatch.setattr(stage_planning, "seconds_per_example", lambda *given: 0.01)
    run = SimpleNamespace(recipe=recipe, machine=None)
    parts = SimpleNamespace(task=Classify(("a", "b")), train=[None] * 30, dev=[None] * 9)
    plan = Plan("tiny", 1, 1, 16, 60.0, None, ())
    assert stage_planning._seconds_per_step(cast(Any, run), cast(Any, parts), plan) == 0.5
    pace = stage_planning._pace_of_tuning(cast(Any, run), cast(Any, parts), plan, 20)
    assert pace.epoch == pytest.approx(10 * 0.5 + 9 * 0.01)
    assert pace.ending == pytest.approx((9 + 20 + rules.EXPLAINED) * 0.01)
    assert measured == ["muon", "lamb"]


def timed_run(spent: float, **sections: dict[str, Any]) -> Any:
    """A run that has spent some seconds."""
    return SimpleNamespace(
        recipe=from_dict(sections),
        machine=SimpleNamespace(ranks=SimpleNamespace(total=1)),
        seconds=lambda: spent,
        scope=Scope(),
    )


def parts_of(examples: int, wide: Any = None) -> Any:
    return SimpleNamespace(
        train=[None] * examples,
        encoder="bert",
        shape=SimpleNamespace(layers=2),
        task=SimpleNamespace(together=1),
        wide=wide,
    )


@pytest.fixture
def paces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Steps of stage 1 take 0.5 s, epochs of 40 steps 1 s, a training's end 2 s; what was
    measured.
    """
    measured: list[str] = []

    def of_step(*given: Any) -> float:
        measured.append("stage 1")
        return 0.5

    def of_tuning(run: Any, *given: Any) -> stage_planning.Pace:
        trainings = run.recipe.train.seeds
        return stage_planning.Pace(trainings * 0.02, 40, trainings * 0.2, trainings * 2.0)

    monkeypatch.setattr(stage_planning, "_seconds_per_step", of_step)
    monkeypatch.setattr(stage_planning, "_pace_of_tuning", of_tuning)
    monkeypatch.setattr(
        stage_planning, "beginning_of", lambda *given: SimpleNamespace(counts=False)
    )
    return measured


@pytest.mark.usefixtures("paces")
def test_minutes_are_shared_by_all_trainings_and_all_their_fine_tunings() -> None:
    def steps(trainings: int, tunings: int) -> int:
        tuning = {"seeds": tunings, "epochs": 4, "batch": 32}
        run = timed_run(100.0, train={"seeds": trainings}, finetune=tuning)
        plan = Plan("tiny", 1, 1, 16, 1100.0, None, ())
        decided = stage_planning.stage_plan(run, parts_of(1000), plan, 300)
        return int(decided["stage1"]["steps"])

    left = 1100 * (1 - rules.END_SHARE) - rules.END_SECONDS - 100  # scores and report take the rest
    assert steps(1, 3) == int((left - 4 * 3 - 3 * 2.0) / 0.5)
    assert steps(3, 3) == int((left - 4 * 9 - 3 * 6.0) / 3 / 0.5)


@pytest.mark.usefixtures("paces")
@pytest.mark.parametrize("text", [None, object()])
def test_a_decoder_gets_all_minutes_where_there_is_no_text(text: Any) -> None:
    """Stage 1 would not train it; how many epochs there are is for the clock to say."""
    pair = Example(("a", "b"), ("b",))
    parts = parts_of(1000)
    parts.task, parts.external = Translate.from_examples([pair] * 9, Kind()), text
    run = timed_run(0.0, budget={"minutes": 10.0})
    plan = Plan("tiny", 1, 1, 16, 600.0, None, ())
    decided = stage_planning.stage_plan(run, parts, plan, 30)
    assert (decided["stage1"]["steps"] > 0) == (text is not None)
    assert decided["epochs"] >= 1
    short, usual = (Stage2Plan(epochs, "bleu", 1.0, None) for epochs in (2, 50))
    assert stage_runs._times_longer(parts, short) == stage_runs.WRITING_EPOCHS / 2
    assert stage_runs._times_longer(parts, usual) == 1.0
    parts.task = Classify(("a", "b"))
    assert stage_runs._times_longer(parts, short) == 1.0


def left_at_60(seconds: float) -> float:
    """The seconds spent of a minute that leave so many for training."""
    return 60 * (1 - rules.END_SHARE) - rules.END_SECONDS - seconds


@pytest.mark.parametrize(
    ("left", "sections", "wide", "epochs"),
    [
        (3.0, {}, object(), 1),  # 30 steps of 0.02 s and an end of 2 s fit
        (2.5, {}, object(), 0),
        (-9.0, {}, object(), 0),
        (2.5, {}, None, 1),  # there is no linear model that could remain alone
        (2.5, {"finetune": {"epochs": 5}}, object(), 5),  # as asked for
        (5.0, {"finetune": {"seeds": 2}}, object(), 0),
        (5.5, {"finetune": {"seeds": 2}}, object(), 1),
    ],
)
def test_without_time_for_a_useful_fine_tuning_the_linear_model_remains_alone(
    paces: list[str], left: float, sections: dict[str, Any], wide: Any, epochs: int
) -> None:
    run = timed_run(left_at_60(left), budget={"minutes": 1.0}, **sections)
    plan = Plan("tiny", 1, 1, 16, 60.0, None, ())
    decided = stage_planning.stage_plan(run, parts_of(1000, wide), plan, 300)
    assert decided["epochs"] == epochs
    assert decided["stage1"]["steps"] == 0
    assert bool(paces) == (epochs > 0)  # nothing more is measured
    warning = stage_planning.short_time_warning(run.recipe, decided, TEXT)
    assert (warning == stage_planning.NO_NETWORK) == (epochs == 0)


def test_a_stage_1_without_steps_is_told_once() -> None:
    recipe = from_dict(with_overrides({}, {"budget.minutes": 1.0, "data.corpus": ["texts"]}))
    decided = {"epochs": 1, "ending": 1.0, "stage1": {"steps": 0, "batch": 16}}
    told = {
        reach: stage_planning.short_time_warning(recipe, decided, reach)
        for reach in (TEXT, TASK, LINEAR)
    }
    assert told[TEXT] and not told[TASK] and not told[LINEAR]  # those say themselves why


@pytest.mark.parametrize(("minutes", "ending"), [(1.5, 46.0), (1.5, 44.0), (None, 1e4)])
def test_predictions_that_take_most_of_the_minutes_are_told(
    minutes: float | None, ending: float
) -> None:
    recipe = from_dict(with_overrides({}, {"budget.minutes": minutes} if minutes else {}))
    decided = {"epochs": 1, "ending": ending, "stage1": {"steps": 2000, "batch": 16}}
    warning = stage_planning.short_time_warning(recipe, decided, TEXT)
    if minutes and ending > 45:
        assert warning == "predicting dev and test takes about 45 s: raise --minutes"
    else:
        assert warning is None


@pytest.mark.usefixtures("paces")
def test_minutes_that_nobody_gave_leave_a_fine_tuning() -> None:
    """The default of 20 minutes is a wish, not a limit."""
    plan = Plan("tiny", 1, 1, 16, 1200.0, None, ())
    decided = stage_planning.stage_plan(timed_run(5000.0), parts_of(1000, object()), plan, 300)
    assert decided["epochs"] == 1


def test_a_run_that_stays_linear_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("seconds_per_step", "seconds_per_example", "joint_stage", "finetune_stage"):
        monkeypatch.delattr(stage_planning, name)
    plan = Plan("tiny", 1, None, 16, 60.0, None, (), reach=LINEAR)
    run = timed_run(50.0, budget={"minutes": 1.0})
    decided = stage_planning.stage_plan(run, parts_of(1000, object()), plan, 300)
    assert (decided["stage1"]["steps"], decided["epochs"], decided["seeds"]) == (0, 0, 1)


def test_one_seed_gets_its_epochs_before_others_and_before_text() -> None:
    assert rules.tunings_for(10, 1.0, 100.0, None) == (3, 10)
    assert rules.tunings_for(10, 1.0, 99.0, None) == (1, 10)
    assert rules.tunings_for(10, 10.0, 99.0, None) == (1, 5)
    assert rules.tunings_for(10, 10.0, 99.0, 3) == (3, 1)
    assert rules.tunings_for(10, 1e9, 99.0, None) == (1, 1)


def test_a_fine_tuning_may_take_its_share_of_what_is_left() -> None:
    run = timed_run(40.0)
    allowed = stage_planning.stage2_seconds(
        cast(Any, run), Plan("tiny", 1, 1, 16, 100.0, None, ()), 1.0, 3
    )
    assert allowed == pytest.approx((100 * (1 - rules.END_SHARE) - rules.END_SECONDS - 40) / 3 - 1)
    assert (
        stage_planning.stage2_seconds(cast(Any, run), Plan("tiny", 1, 1, 16, None, 1e9, ()), 1.0, 3)
        is None
    )
    run.recipe = from_dict({"finetune": {"epochs": 2}})
    assert (
        stage_planning.stage2_seconds(
            cast(Any, run), Plan("tiny", 1, 1, 16, 100.0, None, ()), 1.0, 3
        )
        is None
    )
