"""One of several tasks has the chances that it has with a model of its own: rows, epochs, the
weight of its loss, and the share of the network beside its linear part. Its score is recorded.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.budget.rules import epochs_for, row_length
from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.models.answering import encoded_with
from tasklm.models.task_model import TaskModel, kept_of, new_encoder
from tasklm.pipeline.context import TaskData
from tasklm.pipeline.planning import settled
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.members import joined, numbered
from tasklm.tasks.regress import Regress
from tasklm.tasks.several import Several, member_scores, output_shares
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.shares import best_share
from tasklm.train.stage_runs import BEST, Stage1Plan, Stage2Plan, run_stage1, run_stage2
from tasklm.train.stages import usual_epochs
from tests.tasks.test_wide_parts import mixed, several_of

MACHINE = Machine(torch.device("cpu"), False, 1)
KINDS = ("classify", "multilabel", "regress", "tag")


def test_rows_are_long_enough_for_the_task_with_the_longest_texts() -> None:
    """It may have so few examples that nearly all texts are short."""
    short = [Example(("a few words",), "x", task="short")] * 990
    long = [Example((" ".join(["word"] * 90),), "y", task="long")] * 10
    tasks: dict[str, Any] = {"short": Classify(["x"]), "long": Classify(["y"])}
    task = TaskData(
        Several(tasks, dict.fromkeys(tasks, "accuracy")),
        Splits([*short, *long], [], []),
        [],
        "",
        "mean",
    )
    alone = row_length([90] * 10, 256)
    assert settled(Recipe(), task, MACHINE).tokens.length == alone > row_length([3] * 990, 256)


@pytest.mark.parametrize("tasks", [2, 9])
def test_epochs_are_those_of_a_task_of_the_mean_size(tasks: int) -> None:
    named: dict[str, Any] = {str(number): Classify(["x", "y"]) for number in range(tasks)}
    shape = SimpleNamespace(layers=12)
    together: Any = SimpleNamespace(
        task=Several(named, dict.fromkeys(named, "accuracy")),
        train=range(4000 * tasks),
        shape=shape,
    )
    single: Any = SimpleNamespace(task=Classify(["x", "y"]), train=range(4000), shape=shape)
    assert usual_epochs(Finetune(), together) == usual_epochs(Finetune(), single)
    assert usual_epochs(Finetune(), single) == epochs_for(4000, 32) > epochs_for(4000 * tasks, 32)


def test_a_score_has_the_gradient_of_a_plain_squared_error() -> None:
    """At the middle of the range, where a sigmoid has its slope of a quarter."""
    tasks: dict[str, Any] = {"classes": Classify(["x", "y"]), "scores": Regress(0.0, 5.0)}
    several = Several(tasks, {"classes": "accuracy", "scores": "pearson"})
    labels = [0.0, 0.3, 0.9]
    rows = [numbered(np.array([label]), 1, 1) for label in labels]
    targets = torch.from_numpy(np.stack(rows))
    outputs = torch.zeros(3, 1, several.outputs, requires_grad=True)
    several.loss(outputs, targets).backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    column = several.member("scores").first
    expected = [2 * (0.5 - label) for label in labels]  # of (prediction − label)²
    assert outputs.grad[:, 0, column].tolist() == pytest.approx(expected)


@pytest.fixture(scope="module")
def judged(vocabulary: Vocabulary) -> Any:
    """Several tasks with wide parts, their encoded dev, and a network that helps only one."""
    task = several_of(KINDS)
    fitted = task.fit_wide(mixed(KINDS), mixed(KINDS, 12, 2), "mean")
    assert fitted is not None
    dev = encoded_with(fitted.wide, task, mixed(KINDS, 40, 4), vocabulary, 64)
    torch.manual_seed(1)
    shape = Shape(len(vocabulary), 1, 16, 2, 32, 64)
    encoder = new_encoder("bert", shape, vocabulary)
    model = TaskModel(encoder, task.head(16, 0.0, encoder.normed_heads), True).eval()
    helped = task.member("classify")
    outputs = []
    for unit in dev.units:
        added, noise = unit.added(), np.random.default_rng(unit.example)
        assert added is not None and unit.targets is not None
        both = np.asarray(added, np.float64) + noise.normal(0, 3, added.shape)
        if dev.examples[unit.example].task == helped.name:
            both = np.array(added, np.float64)
            both[0, helped.first + int(unit.targets[0, 1])] += 5.0
        outputs.append(both)
    return task, fitted.wide, dev, outputs, model


def test_each_task_has_the_share_that_it_would_have_alone(
    judged: Any, vocabulary: Vocabulary
) -> None:
    task, wide, dev, outputs, _ = judged
    mixture = best_share(task, dev, outputs, 1.0)
    assert mixture.gains
    for member, share in zip(task.members, mixture.shares, strict=True):
        own = member.own(dev.examples)
        alone = encoded_with(wide.parts[member.name], member.task, own, vocabulary, 64)
        places = [
            place
            for place, unit in enumerate(dev.units)
            if dev.examples[unit.example].task == member.name
        ]
        single = best_share(
            member.task, alone, [outputs[place][:, member.columns] for place in places], 1.0
        )
        assert share == single.shares[0] * single.gains
        assert bool(share) is (member.name == "classify")  # noise helps no other task
        for place, theirs in zip(places, single.predictions, strict=True):
            ours = member.task.keep(mixture.predictions[place][:, member.columns])
            if share:
                np.testing.assert_allclose(ours, theirs)


def test_shares_are_folded_into_the_columns_of_their_tasks(judged: Any) -> None:
    task, _, dev, _, model = judged
    before = kept_of([model], task, dev, MACHINE)
    shares = (0.25, 1.0, 0.0, 0.5)
    other = TaskModel(model.encoder, task.head(16, 0.0), True).eval()
    other.load_state_dict(model.shared(output_shares(task, shares)))
    after = kept_of([other], task, dev, MACHINE)
    for unit, one, two in zip(dev.units, before, after, strict=True):
        for member, share in zip(task.members, shares, strict=True):
            added = unit.added()[:, member.columns]
            expected = share * one[:, member.columns] + (1 - share) * added
            np.testing.assert_allclose(two[:, member.columns], expected, rtol=1e-4, atol=1e-5)


def test_the_curve_has_the_score_of_each_task(vocabulary: Vocabulary, tmp_path: Path) -> None:
    kinds = ("classify", "regress")
    task = several_of(kinds)
    train, dev = mixed(kinds), mixed(kinds, 20, 3)
    shape = Shape(len(vocabulary), 1, 16, 2, 32, 64, dropout=0.0)
    encoded = [EncodedExamples.of(task, part, vocabulary, 64) for part in (train, dev)]
    parts = TrainingContext("bert", shape, task, vocabulary, *encoded, None, 64, MACHINE)
    (tmp_path / "stage1").mkdir()
    run_stage1(tmp_path / "stage1", parts, Train(), Stage1Plan(2, 0, 8, None), SILENT)
    folder = tmp_path / "stage2" / "seed-1"
    folder.mkdir(parents=True)
    plan = Stage2Plan(3, "mean", 60.0, None)
    settings = Finetune(batch=8, learning_rate=3e-3)
    run_stage2(folder, parts, settings, plan, Seed(tmp_path, 1, 1), SILENT)
    points = [point for point in read_json(folder / "curve.json") if "dev" in point]
    assert len(points) == 3 and (folder / BEST).exists()
    for point in points:
        own = [point["dev: classify"], point["dev: regress"]]
        assert point["dev"] == pytest.approx(sum(own) / 2) and not math.isnan(sum(own))
    assert read_json(folder / "summary.json")["share"] == {"classify": 1.0, "regress": 1.0}


def test_the_scores_of_tasks_are_by_their_own_metrics() -> None:
    task = several_of(("classify", "regress"))
    gold = [*joined("classify", [Example(("a",), "food"), Example(("b",), "law")])]
    gold += joined("regress", [Example(("a",), float(number)) for number in range(4)])
    labels = [example.label for example in gold]
    given: list[Any] = [("classify", "food"), ("classify", "food")]
    given += [("regress", value) for value in (0, 2, 1, 3)]
    scores = member_scores(task, labels, given)
    # F1 of food is 2/3, that of law 0, and ships does not occur; 1 − 6 · 2 / (4 · 15)
    assert scores == pytest.approx({"classify": 1 / 3, "regress": 0.8})
    assert member_scores(Classify(["x"]), ["x"], ["x"]) == {}
