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
    assert any("reads 2 tokens per weight" in reason for reason in counted.reasons) == (size != "medium")
    assert planned(budget__flops=flops, train__embeddings="random", train__attention="random").size == random
    assert planned(budget__flops=flops, train__objective="electra").size == random


def test_influence_has_so_many_candidates_that_what_it_keeps_is_read_as_planned() -> None:
    corpus = SimpleNamespace(store=SimpleNamespace(counts={"words": 80_000_000, "passages": 1_000_000}))
    plain = planned(corpus, budget__flops=1e14)
    influence = planned(corpus, budget__flops=1e14, select__method="bm25,influence", select__influence_share=0.25)
    assert plain.passages is not None and influence.passages == 4 * plain.passages
    assert planned(corpus, budget__flops=1e14, select__method="bm25,influence", select__passages=1000).passages == 1000


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
