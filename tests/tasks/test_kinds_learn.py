"""The whole way of an example, for kinds that read one token: encode, learn, keep, tune, answer,
score.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import Task, Unit
from tasklm.tasks.choice import Choice
from tasklm.tasks.examples import Example
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.regress import Regress
from tasklm.tokens.tokenizer import Vocabulary

NOUNS = ["cat", "dog", "water", "music", "house", "road"]


def scored(count: int, seed: int) -> list[Example]:
    draw = random.Random(seed)
    found = [draw.choices(NOUNS, k=3) for _ in range(count)]
    return [Example((" ".join(names),), 10.0 * names.count("cat")) for names in found]


def several(count: int, seed: int) -> list[Example]:
    draw = random.Random(seed)
    found = [draw.choices(NOUNS, k=2) for _ in range(count)]
    return [
        Example((" ".join(names),), tuple(sorted({"cat", "dog", "water"} & {*names})))
        for names in found
    ]


def choices(count: int, seed: int) -> list[Example]:
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        options = tuple(draw.sample(NOUNS[1:], draw.choice((1, 2, 3))))
        right = draw.randrange(len(options) + 1)
        options = (*options[:right], "cat", *options[right:])
        found.append(Example(("which", *options), right, options=options))
    return found


class WordSums(nn.Module):
    """An encoder without order: every place has the sum of all tokens."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(tokens, width, mode="sum")

    def forward(self, units: Sequence[Unit]) -> torch.Tensor:
        tokens = torch.tensor([token for unit in units for token in unit.tokens])
        starts = torch.tensor([0, *itertools.accumulate(len(unit.tokens) for unit in units[:-1])])
        states: torch.Tensor = self.table(tokens, starts).unsqueeze(
            1
        )  # (rows, places, width); every unit has one place
        return states


@pytest.mark.parametrize(
    ("kind", "make", "name", "least"),
    [
        (Regress, scored, "pearson", 0.95),
        (Multilabel, several, "macro_f1", 0.95),
        (Choice, choices, "accuracy", 0.95),
    ],
)
def test_kinds_learn(kind: Any, make: Any, name: str, least: float, vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    train, dev, test = make(120, 0), make(40, 1), make(40, 2)
    task: Task = kind.from_examples(train, Kind())
    encoder = WordSums(len(vocabulary), 16)
    head = task.head(16, 0.0)
    units = task.encode(train, vocabulary, 16)
    assert [unit.example for unit in units] == [
        number for number in range(len(train)) for _ in range(task.together)
    ]
    targets = torch.tensor(np.array([unit.targets for unit in units]))
    assert task.count(targets) == len(train)
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss = task.loss(head(encoder(units)), targets) / task.count(targets)
        loss.backward()
        optimiser.step()

    def kept(examples: list[Example]) -> tuple[list[Unit], list[Any]]:
        found = task.encode(
            [Example(one.texts, None, options=one.options) for one in examples], vocabulary, 16
        )
        assert all(unit.targets is None for unit in found)
        with torch.no_grad():
            outputs = head(encoder(found))
        assert outputs.shape[:2] == (len(found), 1)
        return found, [task.keep(row) for row in outputs.double().numpy()]

    tuned = task.tuned(dev, *kept(dev))
    tuned = kind.from_dict(json.loads(json.dumps(tuned.to_dict())))
    answers = json.loads(json.dumps(tuned.answers(test, *kept(test))))
    predicted = [tuned.label_of(answer) for answer in answers]
    assert {type(label) for label in predicted} == {type(one.label) for one in test}
    metric = tuned.metric(name)
    assert (
        float(metric.value(metric.statistics([one.label for one in test], predicted).sum(0)))
        > least
    )
