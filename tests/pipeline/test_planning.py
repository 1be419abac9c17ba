"""What a run plans: by FLOPs, which takes no measurement of speed, and how speed is measured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tasklm.budget import rules
from tasklm.budget.rules import Plan
from tasklm.budget.scope import Scope
from tasklm.device.machine import Machine
from tasklm.errors import RecipeError
from tasklm.pipeline import planning
from tasklm.pipeline.planning import settled
from tasklm.recipe.schema import from_dict, with_overrides
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.tag import Tag


def planned(corpus: Any = None, **keys: Any) -> Plan:
    overrides = {name.replace("__", "."): value for name, value in keys.items()}
    run = SimpleNamespace(recipe=from_dict(with_overrides({}, overrides)), scope=Scope())
    task = SimpleNamespace(splits=SimpleNamespace(train=[None] * 1500))
    return planning._plan(cast(Any, run), cast(Any, task), corpus)


@pytest.mark.parametrize(
    ("flops", "size", "random"),
    [
        (1e12, "tiny", "tiny"),
        (3e13, "mini", "tiny"),
        (2e14, "small", "mini"),
        (1e17, "medium", "medium"),
    ],
)
def test_models_that_begin_with_counts_are_larger(flops: float, size: str, random: str) -> None:
    counted = planned(budget__flops=flops)
    assert counted.size == size
    assert any("2 tokens per weight" in reason for reason in counted.reasons) == (size != "medium")
    assert (
        planned(budget__flops=flops, train__embeddings="random", train__attention="random").size
        == random
    )
    assert planned(budget__flops=flops, train__objective="electra").size == random


def test_influence_has_so_many_candidates_that_what_it_keeps_is_read_as_planned() -> None:
    corpus = SimpleNamespace(
        store=SimpleNamespace(counts={"words": 80_000_000, "passages": 1_000_000})
    )
    plain = planned(corpus, budget__flops=1e14)
    influence = planned(
        corpus, budget__flops=1e14, select__method="bm25,influence", select__influence_share=0.25
    )
    assert plain.passages is not None and influence.passages == 4 * plain.passages
    assert (
        planned(
            corpus, budget__flops=1e14, select__method="bm25,influence", select__passages=1000
        ).passages
        == 1000
    )


def test_a_size_that_is_asked_for_is_taken() -> None:
    plan = planned(budget__flops=1e12, model__size="base")
    assert plan.size == "base" and plan.reasons[0] == "size base: as given"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "size tiny: the largest that reads 2 tokens per weight of its layers"),
        ({"model__layers": 2, "model__width": 128}, "layers 2 and width 128: as given"),
        (
            {"model__layers": 3},
            (
                "layers 3: as given; "
                "width 128: "
                "of size tiny, "
                "the largest that reads 2 "
                "tokens per "
                "weight of its layers"
            ),
        ),
        (
            {"model__width": 64, "model__size": "small"},
            ("width 64: as given; 4 layers: of size small, as given"),
        ),
        (
            {"budget__flops": 1e9},
            (
                "size tiny: the smallest, although it reads fewer than 2 tokens per weight of its layers"
            ),
        ),
        (
            {
                "train__start": "/runs/other/stage1",
                "model__size": "tiny",
                "model__layers": 2,
                "model__width": 128,
            },
            "layers and width from other",
        ),
    ],
)
def test_the_plan_says_what_of_the_shape_was_given_and_what_was_decided(
    given: dict[str, Any], reason: str
) -> None:
    assert planned(**{"budget__flops": 1e13, **given}).reasons[0] == reason


def test_a_size_that_is_too_large_may_lack_what_the_recipe_asks_for() -> None:
    assert (
        planned(budget__flops=3e13, train__attention="neighbours").size == "mini"
    )  # medium, which is not affordable, cannot begin so


def test_rows_follow_the_texts() -> None:
    assert rules.row_length([10] * 100, 256) == 64
    assert rules.row_length([10] * 96 + [1000] * 4, 256) == 64
    assert rules.row_length([60] * 100, 256) == 128
    assert rules.row_length([400] * 100, 256) == 256 and rules.row_length([300] * 100, 512) == 512
    assert rules.row_length([], 256) == 64


def test_selected_text_cannot_be_longer_than_the_rows_of_the_task() -> None:
    task = SimpleNamespace(
        task=Classify(("a", "b")), splits=Splits([Example(("a b c",), None)] * 9, [], [])
    )
    machine = Machine(torch.device("cpu"), False, 1)
    given = {"tokens": {"length": 128, "external_length": 64}}
    chosen = settled(from_dict(given), task, machine)  # type: ignore[arg-type]
    assert (chosen.tokens.rows, chosen.tokens.external_rows) == (128, 64)
    longer = chosen.changed(tokens={"external_length": 256})
    with pytest.raises(RecipeError, match=r"external_length = 256 is more than"):
        settled(longer, task, machine)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "lowercase"), [(Classify(("a", "b")), True), (Tag(["O", "B-x"], "bio"), False)]
)
def test_capitals_stay_where_words_are_tagged(kind: Any, lowercase: bool) -> None:
    task = SimpleNamespace(task=kind, splits=Splits([Example(("a b c",), None)] * 9, [], []))
    machine = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    recipe = planning.settled(from_dict({}), cast(Any, task), cast(Any, machine))
    assert recipe.tokens.length == 64 and recipe.tokens.lowercase is lowercase
    given = from_dict({"tokens": {"length": 300, "lowercase": not lowercase}})
    assert planning.settled(given, cast(Any, task), cast(Any, machine)) == given


def test_several_trainings_leave_less_to_each_and_so_a_smaller_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = {"tiny": 4e5, "mini": 1e5, "small": 3e4, "medium": 1e4, "base": 3e3, "large": 1e3}
    monkeypatch.setattr(planning, "_tokens_per_second", lambda run, size, task, tries: speeds[size])

    def read(trainings: int) -> str:
        run = SimpleNamespace(
            scope=Scope(),
            recipe=from_dict(
                {
                    "train": {"seeds": trainings},
                    "budget": {"minutes": 20},
                    "model": {"size": "mini"},
                }
            ),
        )
        run.seconds = lambda: 0.0
        task = SimpleNamespace(task=None, splits=SimpleNamespace(train=[None] * 1500))
        return planning._plan(cast(Any, run), cast(Any, task), None).reasons[-1]

    assert read(1) == "stage 1 will read about 69.0 million tokens"
    assert read(3) == "stage 1 will read about 23.0 million tokens"
