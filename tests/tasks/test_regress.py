"""Scores: loss and scaling against plain formulas, the reading of labels, and
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
from tests.conftest import write_jsonl
from tests.tasks.fitted import fitted_baselines

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import NONE, TASKS
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.regress import Regress
from tasklm.tokens.tokenizer import Vocabulary


def examples(*labels: Any, file: str = "f") -> list[Example]:
    return [Example((f"text {i}", "other"), label, file, i + 1) for i, label in enumerate(labels)]


def test_loss_is_the_squared_error_of_scaled_labels(vocabulary: Vocabulary) -> None:
    task = Regress.from_examples(examples(1.0, 5.0, 2.0), Kind())
    units = task.encode(examples(2.0, 5.0, 7.0), vocabulary, 16)
    targets = torch.tensor(np.array([unit.targets for unit in units]))
    assert targets.tolist() == [
        [0.25],
        [1.0],
        [1.0],
    ]  # one beyond the range of train has its end as target
    logits = torch.tensor([0.3, -1.2, 4.0])
    expected = sum(
        (1 / (1 + math.exp(-z)) - t) ** 2
        for z, t in zip(logits.tolist(), [0.25, 1.0, 1.0], strict=True)
    )
    assert float(task.loss(logits.view(3, 1, 1), targets)) == pytest.approx(expected, rel=1e-5)
    assert task.count(targets) == 3


def test_padding_adds_nothing() -> None:
    task = Regress(0, 1)
    outputs = torch.randn(2, 3, 1, requires_grad=True)
    targets = torch.full((2, 3), float(NONE))
    targets[1, 0] = 0.4
    task.loss(outputs, targets).backward()
    assert outputs.grad is not None
    assert (outputs.grad != 0).nonzero().tolist() == [[1, 0, 0]]
    assert float(task.loss(outputs.detach(), targets)) == pytest.approx(
        (1 / (1 + math.exp(-outputs[1, 0, 0].item())) - 0.4) ** 2, rel=1e-5
    )
    assert task.count(targets) == 1


def test_answers_are_scaled_back() -> None:
    task = Regress.from_dict(
        json.loads(json.dumps(Regress.from_examples(examples(1.0, 5.0), Kind()).to_dict()))
    )
    kept = [
        task.keep(np.array([[logit]])) for logit in (0.0, -50.0, 50.0, -1e9, 1.0986122886681098)
    ]
    answers = task.answers(examples(*[None] * 5), [], kept)
    assert [task.label_of(json.loads(json.dumps(answer))) for answer in answers] == pytest.approx(
        [3.0, 1.0, 5.0, 1.0, 4.0]
    )
    assert TASKS.get("regress") is Regress


def test_head_gives_one_number_per_place() -> None:
    assert Regress(0, 1).head(8, 0.0)(torch.randn(2, 3, 8)).shape == (2, 3, 1)


def test_pairs_and_their_scores_are_read(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"sentence1": "a", "sentence2": "b", "score": "3.5"},
        {"sentence1": "c", "sentence2": "d", "score": 2},
    ]
    found, notes = Regress.read(write_jsonl(tmp_path / "a.jsonl", rows), Data())
    assert [(example.texts, example.label, example.line) for example in found] == [
        (("a", "b"), 3.5, 1),
        (("c", "d"), 2.0, 2),
    ]
    assert notes == ["text columns 'sentence1' and 'sentence2', label column 'score'"]
    assert [
        example.label for example in Regress.read(tmp_path / "a.jsonl", Data(), labelled=False)[0]
    ] == [None, None]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("NaN", "nan, not a number"),
        ('"high"', "'high', not a number"),
        ("null", "empty"),
        ("true", "True, not a"),
        ("[1]", "not a"),
    ],
)
def test_what_is_no_number_names_its_line(tmp_path: Path, value: str, told: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        f'{{"text": "a", "score": 1}}\n{{"text": "b", "score": {value}}}\n', encoding="utf-8"
    )
    with pytest.raises(
        DataError, match=f"a.jsonl, line 2: the label in column 'score' is .*{told}"
    ):
        Regress.read(path, Data())


def test_audit() -> None:
    splits = Splits(examples(1.0, 5.0), examples(1.0, 4.0), examples(0.5, 3.0, 6.0, file="t.csv"))
    findings = Regress.from_examples(splits.train, Kind()).audit(splits)
    assert [finding.level for finding in findings] == ["ok", "warning"]
    assert "2 of the 3 labels of test lie outside those of train, 1 to 5" in findings[1].message
    assert findings[1].examples == ("t.csv, line 1: 0.5", "t.csv, line 3: 6")
    constant = Splits(examples(2.0, 2.0), examples(2.0))
    task = Regress.from_examples(constant.train, Kind())
    assert [finding.level for finding in task.audit(constant)] == ["error"]


def test_metrics_by_name() -> None:
    assert [Regress(0, 1).metric(name).name for name in Regress.metrics] == ["spearman", "pearson"]
    with pytest.raises(RecipeError, match="choose from spearman, pearson"):
        Regress(0, 1).metric("accuracy")


def alike(count: int, seed: int) -> list[Example]:
    """Returns pairs whose score is the number of words that they share."""
    draw, letters = random.Random(seed), "abcdefghijklmnop"
    found = []
    for _ in range(count):
        one, other = draw.sample(letters, 5), draw.sample(letters, 5)
        found.append(
            Example(
                (" ".join(letter * 3 for letter in one), " ".join(letter * 3 for letter in other)),
                float(len({*one} & {*other})),
            )
        )
    return found


def test_baselines() -> None:
    train, held = alike(150, 0), {"dev": alike(40, 1), "test": alike(40, 2)}
    task = Regress.from_examples(train, Kind())
    found = fitted_baselines(task, train, held, "spearman")
    assert (
        found["mean"]["test"] == [pytest.approx(np.mean([example.label for example in train]))] * 40
    )
    metric = task.metric("pearson")
    gold = [example.label for example in held["test"]]
    assert (
        float(metric.value(metric.statistics(gold, found["TF-IDF + ridge"]["test"]).sum(0))) > 0.9
    )
    singles = [Example((example.texts[0],), float("aaa" in example.texts[0])) for example in train]
    alone = fitted_baselines(task, singles[:100], {"dev": singles[100:]}, "spearman")[
        "TF-IDF + ridge"
    ]["dev"]
    assert np.corrcoef(alone, [example.label for example in singles[100:]])[0, 1] > 0.9
    empty = [Example(("", ""), 1.0), Example(("", ""), 2.0)]
    assert fitted_baselines(task, empty, {"dev": empty}, "spearman")["TF-IDF + ridge"]["dev"] == [
        1.5,
        1.5,
    ]
