"""Label sets: loss and thresholds against plain loops, the reading of sets,
baselines that learn.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from tests.conftest import write_jsonl
from tests.tasks.fitted import fitted_baselines

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import NONE, TASKS
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.multilabel import Multilabel, best_threshold
from tasklm.tokens.tokenizer import Vocabulary


def examples(*labels: tuple[str, ...] | None, file: str = "f") -> list[Example]:
    return [Example((f"text {i}",), label, file, i + 1) for i, label in enumerate(labels)]


def test_loss_is_the_sum_over_labels(vocabulary: Vocabulary) -> None:
    task = Multilabel.from_examples(examples(("b", "a"), (), ("c",)), Kind())
    assert task.labels == ["a", "b", "c"]
    units = task.encode(examples(("a", "c"), (), ("z",), None), vocabulary, 16)
    assert units[3].targets is None
    targets = torch.tensor(np.array([unit.targets for unit in units[:3]]))
    assert targets.tolist() == [[[1, 0, 1]], [[0, 0, 0]], [[0, 0, 0]]]
    logits = torch.randn(3, 1, 3, generator=torch.Generator().manual_seed(1))
    expected = 0.0
    for z, t in zip(logits.flatten().tolist(), targets.flatten().tolist(), strict=True):
        p = 1 / (1 + math.exp(-z))
        expected -= math.log(p if t else 1 - p)
    assert float(task.loss(logits, targets)) == pytest.approx(expected, rel=1e-5)
    assert task.count(targets) == 3


def test_padding_adds_nothing() -> None:
    task = Multilabel(["a", "b"])
    outputs = torch.randn(2, 3, 2, requires_grad=True)
    targets = torch.full((2, 3, 2), NONE)
    targets[0, 1] = torch.tensor([1, 0])
    task.loss(outputs, targets).backward()
    assert outputs.grad is not None
    assert {(row, place) for row, place, _ in (outputs.grad != 0).nonzero().tolist()} == {(0, 1)}
    assert task.count(targets) == 1
    assert task.head(8, 0.0)(torch.randn(2, 3, 8)).shape == (2, 3, 2)


@pytest.mark.parametrize("seed", range(30))
def test_thresholds_by_brute_force(seed: int) -> None:
    draw = np.random.default_rng(seed)
    gold = draw.random(20) < 0.4
    probabilities = np.round(
        np.clip(0.3 * gold + draw.random(20) * 0.8, 0, 1), 1 if seed % 2 else 6
    )  # rounded: many are equal
    found = best_threshold(gold, probabilities)
    tried = [0.5, *np.unique(probabilities), 0.0, 1.1]
    best = max(f1_score(gold, probabilities >= threshold, zero_division=0) for threshold in tried)
    assert f1_score(gold, probabilities >= found, zero_division=0) == pytest.approx(best)
    if f1_score(gold, probabilities >= 0.5, zero_division=0) == best:
        assert found == 0.5


def test_a_label_that_dev_lacks_keeps_its_threshold() -> None:
    assert best_threshold(np.zeros(3, bool), np.array([0.1, 0.9, 0.6])) == 0.5


def test_tuned_thresholds_decide_answers() -> None:
    task = Multilabel(["a", "b"])
    kept = [task.keep(np.array([[logit, -2.0]])) for logit in (-3.0, -1.0, -0.5)]
    held = examples((), ("a",), ("a", "b"))
    assert [answer["labels"] for answer in task.answers(held, [], kept)] == [[], [], []]
    tuned = Multilabel.from_dict(json.loads(json.dumps(task.tuned(held, [], kept).to_dict())))
    answers = json.loads(json.dumps(tuned.answers(held, [], kept)))
    assert [tuned.label_of(answer) for answer in answers] == [("b",), ("a", "b"), ("a", "b")]
    assert answers[0]["probabilities"] == pytest.approx(
        {"a": 1 / (1 + math.exp(3)), "b": 1 / (1 + math.exp(2))}
    )
    assert task.thresholds == [0.5, 0.5]
    assert TASKS.get("multilabel") is Multilabel


@pytest.mark.parametrize(
    ("cells", "expected", "told"),
    [
        ([["b", "a", "b"], [], None, [1, 2.0]], [("a", "b"), (), (), ("1", "2")], False),
        (["b, a", "a", "", "c"], [("a", "b"), ("a",), (), ("c",)], True),
        (["b|a,x", "a,x", "b |", " "], [("a,x", "b"), ("a,x",), ("b",), ()], True),
        (
            ['["b", "a,c"]', "[]", "[odd] name", '["x"]'],
            [("a,c", "b"), (), ("[odd] name",), ("x",)],
            False,
        ),
    ],
)
def test_sets_are_read(
    tmp_path: Path, cells: list[Any], expected: list[tuple[str, ...]], told: bool
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "t", "labels": cell} for cell in cells])
    found, notes = Multilabel.read(path, Data())
    assert [example.label for example in found] == expected
    assert all(type(name) is str for example in found for name in example.label)
    assert any("separated by" in note for note in notes) == told
    assert [example.label for example in Multilabel.read(path, Data(), labelled=False)[0]] == [
        None
    ] * 4


def test_what_is_no_label_names_its_line(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl", [{"text": "t", "labels": ["a"]}, {"text": "t", "labels": ["a", None]}]
    )
    with pytest.raises(DataError, match="line 2: the label in column 'labels' is empty"):
        Multilabel.read(path, Data())
    with pytest.raises(DataError, match="no training example has a label"):
        Multilabel.from_examples(examples((), ()), Kind())


def test_audit() -> None:
    train = examples(*[("a",)] * 6, ("a", "b"), ())
    splits = Splits(train, examples(("a",), ("x", "a"), file="d.csv"), examples(()))
    findings = Multilabel.from_examples(train, Kind()).audit(splits)
    assert [(finding.level, finding.check) for finding in findings] == [
        ("ok", "labels"),
        ("warning", "rare labels"),
        ("warning", "unknown labels"),
    ]
    assert findings[0].message == (
        "2 labels in train, 1.00 per example; "
        "examples without any label: 1 of 8 in train, 1 of 1 in test."
    )
    assert "1 of 2 labels have fewer than 5 training examples: 'b'" in findings[1].message
    assert (
        "1 of the 2 examples of dev have labels that do not occur in train: 'x'"
        in findings[2].message
    )
    assert findings[2].examples == ("d.csv, line 2: x, a",)


def test_metrics_by_name() -> None:
    assert [Multilabel(["a"]).metric(name).name for name in Multilabel.metrics] == [
        "micro_f1",
        "macro_f1",
        "accuracy",
    ]
    with pytest.raises(RecipeError, match="choose from micro_f1, macro_f1, accuracy"):
        Multilabel(["a"]).metric("f1")


def fruit(count: int, seed: int) -> list[Example]:
    draw, names = random.Random(seed), ("apple", "pear", "plum")
    found = []
    for _ in range(count):
        held = tuple(sorted(name for name in names if draw.random() < 0.4))
        found.append(
            Example((" ".join([*held, *draw.choices(["one", "two", "three", "four"], k=4)]),), held)
        )
    return found


def test_baselines() -> None:
    train, held = fruit(80, 0), {"dev": fruit(30, 1), "test": fruit(30, 2)}
    task = Multilabel.from_examples(train, Kind())
    found = fitted_baselines(task, train, held, "micro_f1")
    labels = [example.label for example in train]
    assert found["most frequent labels"]["dev"] == [max(sorted(set(labels)), key=labels.count)] * 30
    metric = task.metric("micro_f1")
    gold = [example.label for example in held["test"]]
    assert (
        float(metric.value(metric.statistics(gold, found["TF-IDF + linear"]["test"]).sum(0))) > 0.95
    )
    empty = [Example(("",), ("a",)), Example(("",), ())]
    assert fitted_baselines(Multilabel(["a"]), empty, {"dev": empty}, "micro_f1")[
        "TF-IDF + linear"
    ]["dev"] == [(), ()]
    everywhere = [replace_label(example) for example in train]
    assert set(
        fitted_baselines(Multilabel(["a"]), everywhere, {"dev": everywhere}, "micro_f1")[
            "TF-IDF + linear"
        ]["dev"]
    ) == {("a",)}


def replace_label(example: Example) -> Example:
    return Example(example.texts, ("a",))
