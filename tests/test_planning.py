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


def planned(**keys: Any) -> Plan:
    overrides = {name.replace("__", "."): value for name, value in keys.items()}
    run = SimpleNamespace(recipe=from_dict(with_overrides({}, overrides)))
    task = SimpleNamespace(splits=SimpleNamespace(train=[None] * 1500))
    return planning._plan(cast(Any, run), cast(Any, task), None)


@pytest.mark.parametrize(
    ("flops", "size", "random"), [(1e12, "tiny", "tiny"), (3e13, "mini", "tiny"), (2e14, "small", "mini"), (1e17, "medium", "medium")]
)
def test_models_that_begin_with_counts_are_larger(flops: float, size: str, random: str) -> None:
    counted = planned(budget__flops=flops)
    assert counted.size == size
    assert any("reads 2 tokens per weight" in reason for reason in counted.reasons) == (size != "medium")
    assert planned(budget__flops=flops, train__embeddings="random", train__attention="random").size == random
    assert planned(budget__flops=flops, train__objective="electra").size == random


def test_a_size_that_is_asked_for_is_taken() -> None:
    assert planned(budget__flops=1e12, model__size="base").size == "base"


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
    parts = SimpleNamespace(train=[None] * 1000, encoder="bert", shape=None)

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

    assert read(1) == "stage 1 will read about 72.0M tokens"
    assert read(3) == "stage 1 will read about 24.0M tokens"
