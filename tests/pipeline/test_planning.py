"""What a run plans: by FLOPs, which takes no measurement of speed, and how speed is measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasklm.budget import rules
from tasklm.budget.rules import Plan
from tasklm.pipeline import planning
from tasklm.recipe.schema import from_dict, with_overrides
from tasklm.tasks.classify import Classify
from tasklm.tasks.tag import Tag
from tasklm.train.optim.optimizers import Rule


def planned(corpus: Any = None, **keys: Any) -> Plan:
    overrides = {name.replace("__", "."): value for name, value in keys.items()}
    run = SimpleNamespace(recipe=from_dict(with_overrides({}, overrides)))
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
    assert planning.few_steps_warning(recipe, steps, batch) == warning
    assert warning is None or len(warning) <= 70  # beside its label, a line of 80 columns


def test_a_size_that_is_too_large_may_lack_what_the_recipe_asks_for() -> None:
    assert (
        planned(budget__flops=3e13, train__attention="neighbours").size == "mini"
    )  # medium, which is not affordable, cannot begin so


def test_the_pace_of_either_stage_is_that_of_its_own_optimiser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[str] = []
    stage = SimpleNamespace(rho1=1, halves=False, stream=[None] * 10)

    def seconds_per_step(stage: Any, rule: Rule, *others: Any, **options: Any) -> float:
        measured.append(rule.name)
        return 0.5

    monkeypatch.setattr(planning, "seconds_per_step", seconds_per_step)
    monkeypatch.setattr(planning, "joint_stage", lambda *given: stage)
    monkeypatch.setattr(planning, "finetune_stage", lambda *given: stage)
    recipe = from_dict({"train": {"optimiser": "muon"}, "finetune": {"optimiser": "lamb"}})
    run = SimpleNamespace(recipe=recipe, machine=None)
    parts = SimpleNamespace(task=Classify(("a", "b")), train=[None] * 30, dev=[None] * 9)
    plan = Plan("tiny", 1, 1, 16, 60.0, None, ())
    assert planning._seconds_per_step(cast(Any, run), cast(Any, parts), plan) == 0.5
    assert planning._seconds_per_epoch(cast(Any, run), cast(Any, parts), plan) == pytest.approx(
        10 * 0.5 * 1.1
    )
    assert measured == ["muon", "lamb"]


def test_minutes_are_shared_by_all_trainings_and_all_their_fine_tunings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_seconds_per_step", lambda *given: 0.5)
    monkeypatch.setattr(planning, "_seconds_per_epoch", lambda *given: 1.0)
    monkeypatch.setattr(planning, "beginning_of", lambda *given: SimpleNamespace(counts=False))
    parts = SimpleNamespace(
        train=[None] * 1000, encoder="bert", shape=None, task=SimpleNamespace(together=1)
    )

    def steps(trainings: int, tunings: int) -> int:
        recipe = from_dict(
            {
                "train": {"seeds": trainings},
                "finetune": {"seeds": tunings, "epochs": 4, "batch": 32},
            }
        )
        run = SimpleNamespace(
            recipe=recipe,
            machine=SimpleNamespace(ranks=SimpleNamespace(total=1)),
            seconds=lambda: 100.0,
        )
        decided = planning.stage_plan(
            cast(Any, run), cast(Any, parts), Plan("tiny", 1, 1, 16, 1100.0, None, ()), 300
        )
        return int(decided["stage1"]["steps"])

    left = 1100 * (1 - rules.END_SHARE) - rules.END_SECONDS - 100  # scores and report take the rest
    assert steps(1, 3) == int((left - 4 * 3 - 3 * 0.1) / 0.5)  # 300 examples are predicted by each
    assert steps(3, 3) == int((left - 4 * 9 - 3 * 0.3) / 3 / 0.5)


def test_one_seed_gets_its_epochs_before_others_and_before_text() -> None:
    assert rules.tunings_for(10, 1.0, 100.0, None) == (3, 10)
    assert rules.tunings_for(10, 1.0, 99.0, None) == (1, 10)
    assert rules.tunings_for(10, 10.0, 99.0, None) == (1, 5)
    assert rules.tunings_for(10, 10.0, 99.0, 3) == (3, 1)
    assert rules.tunings_for(10, 1e9, 99.0, None) == (1, 1)


def test_a_fine_tuning_may_take_its_share_of_what_is_left() -> None:
    run = SimpleNamespace(recipe=from_dict({}), seconds=lambda: 40.0)
    allowed = planning.stage2_seconds(
        cast(Any, run), Plan("tiny", 1, 1, 16, 100.0, None, ()), 1.0, 3
    )
    assert allowed == pytest.approx((100 * (1 - rules.END_SHARE) - rules.END_SECONDS - 40) / 3 - 1)
    assert (
        planning.stage2_seconds(cast(Any, run), Plan("tiny", 1, 1, 16, None, 1e9, ()), 1.0, 3)
        is None
    )
    run.recipe = from_dict({"finetune": {"epochs": 2}})
    assert (
        planning.stage2_seconds(cast(Any, run), Plan("tiny", 1, 1, 16, 100.0, None, ()), 1.0, 3)
        is None
    )


def test_rows_follow_the_texts() -> None:
    assert rules.row_length([10] * 100, 256) == 64
    assert rules.row_length([10] * 96 + [1000] * 4, 256) == 64
    assert rules.row_length([60] * 100, 256) == 128
    assert rules.row_length([400] * 100, 256) == 256 and rules.row_length([300] * 100, 512) == 512
    assert rules.row_length([], 256) == 64


@pytest.mark.parametrize(
    ("kind", "lowercase"), [(Classify(("a", "b")), True), (Tag(["O", "B-x"], "bio"), False)]
)
def test_capitals_stay_where_words_are_tagged(kind: Any, lowercase: bool) -> None:
    task = SimpleNamespace(task=kind, texts=lambda split: ["a b c"] * 9)
    machine = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    recipe = planning.settled(from_dict({}), cast(Any, task), cast(Any, machine))
    assert recipe.tokens.length == 64 and recipe.tokens.lowercase is lowercase
    given = from_dict({"tokens": {"length": 300, "lowercase": not lowercase}})
    assert planning.settled(given, cast(Any, task), cast(Any, machine)) == given


def test_a_corpus_that_would_take_most_of_the_minutes_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "texts.txt"
    with file.open("wb") as out:
        out.truncate(400_000_000)
    sections = {"data": {"corpus": [str(file)]}}
    assert planning.too_much_text(from_dict(sections)) is None  # nobody gave minutes
    warning = planning.too_much_text(from_dict({**sections, "budget": {"minutes": 2}}))
    assert warning is not None and warning.endswith("--minutes 5")
    assert planning.too_much_text(from_dict({**sections, "budget": {"minutes": 5}})) is None
    assert (
        planning.too_much_text(
            from_dict({**sections, "budget": {"minutes": 2}, "select": {"engine": "spark"}})
        )
        is None
    )


def test_several_trainings_leave_less_to_each_and_so_a_smaller_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = {"tiny": 4e5, "mini": 1e5, "small": 3e4, "medium": 1e4, "base": 3e3, "large": 1e3}
    monkeypatch.setattr(planning, "_tokens_per_second", lambda run, size, task, tries: speeds[size])

    def read(trainings: int) -> str:
        run = SimpleNamespace(
            recipe=from_dict(
                {
                    "train": {"seeds": trainings},
                    "budget": {"minutes": 20},
                    "model": {"size": "mini"},
                }
            )
        )
        run.seconds = lambda: 0.0
        task = SimpleNamespace(task=None, splits=SimpleNamespace(train=[None] * 1500))
        return planning._plan(cast(Any, run), cast(Any, task), None).reasons[-1]

    assert read(1) == "stage 1 will read about 68.0 million tokens"
    assert read(3) == "stage 1 will read about 23.0 million tokens"
