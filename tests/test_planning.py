"""What a run plans: by FLOPs, which takes no measurement of speed, and how speed is measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasklm import planning
from tasklm.budget import Plan
from tasklm.recipe import from_dict, with_overrides
from tasklm.tasks.classify import Classify
from tasklm.train.optimisers import Rule


def planned(corpus: Any = None, **keys: Any) -> Plan:
    overrides = {name.replace("__", "."): value for name, value in keys.items()}
    run = SimpleNamespace(recipe=from_dict(with_overrides({}, overrides)))
    task = SimpleNamespace(splits=SimpleNamespace(train=[None] * 1500))
    return planning._plan(cast(Any, run), cast(Any, task), corpus)


@pytest.mark.parametrize(
    ("flops", "size", "random"), [(1e12, "tiny", "tiny"), (3e13, "mini", "tiny"), (2e14, "small", "mini"), (1e17, "medium", "medium")]
)
def test_models_that_begin_with_counts_are_larger(flops: float, size: str, random: str) -> None:
    counted = planned(budget__flops=flops)
    assert counted.size == size
    assert any("2 tokens per weight" in reason for reason in counted.reasons) == (size != "medium")
    assert planned(budget__flops=flops, train__embeddings="random", train__attention="random").size == random
    assert planned(budget__flops=flops, train__objective="electra").size == random


def test_influence_has_so_many_candidates_that_what_it_keeps_is_read_as_planned() -> None:
    corpus = SimpleNamespace(store=SimpleNamespace(counts={"words": 80_000_000, "passages": 1_000_000}))
    plain = planned(corpus, budget__flops=1e14)
    influence = planned(corpus, budget__flops=1e14, select__method="bm25,influence", select__influence_share=0.25)
    assert plain.passages is not None and influence.passages == 4 * plain.passages
    assert planned(corpus, budget__flops=1e14, select__method="bm25,influence", select__passages=1000).passages == 1000


def test_a_size_that_is_asked_for_is_taken() -> None:
    plan = planned(budget__flops=1e12, model__size="base")
    assert plan.size == "base" and plan.reasons[0] == "size base: as given"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "size tiny: the largest that reads 2 tokens per weight of its layers"),
        ({"model__layers": 2, "model__width": 128}, "layers 2 and width 128: as given"),
        ({"model__layers": 3}, "layers 3: as given; width 128: of size tiny, the largest that reads 2 tokens per weight of its layers"),
        ({"model__width": 64, "model__size": "small"}, "width 64: as given; 4 layers: of size small, as given"),
        ({"budget__flops": 1e9}, "size tiny: the smallest; it reads fewer than 2 tokens per weight of its layers"),
        ({"train__start": "/runs/other/stage1", "model__size": "tiny", "model__layers": 2, "model__width": 128},
         "layers and width are those of other"),
    ],
)  # fmt: skip
def test_the_plan_says_what_of_the_shape_was_given_and_what_was_decided(given: dict[str, Any], reason: str) -> None:
    assert planned(**{"budget__flops": 1e13, **given}).reasons[0] == reason


@pytest.mark.parametrize(
    ("keys", "steps", "batch", "warning"),
    [
        ({"budget.minutes": 1.5}, 15, 16, "stage 1 has few steps (15): raise --minutes or lower --tokens.length"),
        ({"budget.minutes": 5.0, "train.batch": 256}, 213, 256, "stage 1 has few steps (213): raise --minutes or lower --train.batch"),
        ({}, 999, 16, "stage 1 has few steps (999): raise --minutes or lower --tokens.length"),
        ({"budget.flops": 1e13}, 999, 32, "stage 1 has few steps (999): raise --flops or lower --train.batch"),
        ({"budget.minutes": 20.0}, 1000, 16, None),
        ({"train.steps": 5}, 5, 16, None),  # as asked for
        ({"budget.minutes": 1.0, "train.start": "runs/other"}, 5, 16, None),  # it has learnt before
    ],
)
def test_a_budget_that_buys_few_steps_is_told_in_one_line(keys: dict[str, Any], steps: int, batch: int, warning: str | None) -> None:
    recipe = from_dict(with_overrides({}, keys))
    assert planning.few_steps_warning(recipe, steps, batch) == warning
    assert warning is None or len(warning) <= 70  # beside its label, a line of 80 columns


def test_a_size_that_is_too_large_may_lack_what_the_recipe_asks_for() -> None:
    assert planned(budget__flops=3e13, train__attention="neighbours").size == "mini"  # medium, which is not affordable, cannot begin so


def test_the_pace_of_either_stage_is_that_of_its_own_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    stage = SimpleNamespace(rho1=1, halves=False, stream=[None] * 10)

    def seconds_per_step(stage: Any, rule: Rule, *others: Any, **options: Any) -> float:
        measured.append(rule.name)
        return 0.5

    monkeypatch.setattr(planning, "seconds_per_step", seconds_per_step)
    monkeypatch.setattr(planning, "joint_stage", lambda *given: stage)
    monkeypatch.setattr(planning, "finetune_stage", lambda *given: stage)
    recipe = from_dict({"train": {"optimiser": "muon"}, "finetune": {"optimiser": "lamb"}})
    run, parts = SimpleNamespace(recipe=recipe, machine=None), SimpleNamespace(task=Classify(("a", "b")), train=[None] * 30, dev=[None] * 9)
    assert planning._seconds_per_step(cast(Any, run), cast(Any, parts), Plan("tiny", 1, 1, 16, 60.0, None, ())) == 0.5
    assert planning._seconds_per_epoch(cast(Any, run), cast(Any, parts)) == pytest.approx(10 * 0.5 * 1.1)
    assert measured == ["muon", "lamb"]


def test_minutes_are_shared_by_all_trainings_and_all_their_fine_tunings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_seconds_per_step", lambda *given: 0.5)
    monkeypatch.setattr(planning, "_seconds_per_epoch", lambda *given: 1.0)
    monkeypatch.setattr(planning, "beginning_of", lambda *given: SimpleNamespace(counts=False))
    parts = SimpleNamespace(train=[None] * 1000, encoder="bert", shape=None, task=SimpleNamespace(together=1))

    def steps(trainings: int, tunings: int) -> int:
        recipe = from_dict({"train": {"seeds": trainings}, "finetune": {"seeds": tunings, "epochs": 4, "batch": 32}})
        run = SimpleNamespace(recipe=recipe, machine=SimpleNamespace(ranks=SimpleNamespace(total=1)), seconds=lambda: 100.0)
        decided = planning.stage_plan(cast(Any, run), cast(Any, parts), Plan("tiny", 1, 1, 16, 1100.0, None, ()))
        return int(decided["stage1"]["steps"])

    assert steps(1, 3) == int((930 - 4 * 3) / 0.5)
    assert steps(3, 3) == int((930 - 4 * 9) / 3 / 0.5)


def test_several_trainings_leave_less_to_each_and_so_a_smaller_model(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"tiny": 4e5, "mini": 1e5, "small": 3e4, "medium": 1e4, "base": 3e3, "large": 1e3}
    monkeypatch.setattr(planning, "_tokens_per_second", lambda run, size, task, train: speeds[size])

    def read(trainings: int) -> str:
        run = SimpleNamespace(recipe=from_dict({"train": {"seeds": trainings}, "budget": {"minutes": 20}, "model": {"size": "mini"}}))
        run.seconds = lambda: 0.0
        task = SimpleNamespace(task=None, splits=SimpleNamespace(train=[None] * 1500))
        return planning._plan(cast(Any, run), cast(Any, task), None).reasons[-1]

    assert read(1) == "stage 1 will read about 72.0 million tokens"
    assert read(3) == "stage 1 will read about 24.0 million tokens"
