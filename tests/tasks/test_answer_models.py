"""The linear model of answers beside a network: in its head, in its loss, and alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.test_wide import labelled

from tasklm.device.machine import set_up
from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.models.answering import encoded_with
from tasklm.models.task_model import (
    ModelDescription,
    TaskModel,
    answers_of,
    load_models,
    save_models,
)
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.recipe.schema import Hardware
from tasklm.tasks.baselines.answer_features import answer_rows
from tasklm.tasks.baselines.answer_fitting import (
    gold_words,
)
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.answer_search import OF_NETWORK, OUTPUTS, RANK
from tasklm.tasks.heads.wide_answers import answer_logs
from tasklm.tasks.span import Span
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary


def span_task(train: list[Example]) -> Span:
    return Span.from_examples(train, Kind())


@pytest.fixture(scope="module")
def pieces() -> Vocabulary:
    texts = [example.text for example in labelled("span", 60, 1)]
    return train_vocabulary([texts], Tokens(), 60)


@pytest.mark.parametrize("length", [24, 128])
def test_beside_a_silent_network_a_model_answers_what_it_answers(
    length: int, pieces: Vocabulary, tmp_path: Path
) -> None:
    """In windows of 24 tokens too, which hold a part of the text; saved and read again."""
    train, dev = labelled("span", 200, 1), labelled("span", 40, 2)
    task = span_task(train)
    fitted = task.fit_wide(train, dev, "answer_f1")
    assert fitted is not None
    torch.manual_seed(0)
    shape = Shape(len(pieces), 1, 16, 2, 32, length)
    head = task.head(16, 0.0)
    head.silence()
    model = TaskModel(Bert(shape), head, wide=True).eval()
    examples = encoded_with(fitted.wide, task, dev, pieces, length)
    assert (len(examples.units) > len(dev)) == (length == 24)
    machine = set_up(Hardware(device="cpu", precision="fp32"))
    units, kept = fitted.wide.units_with(task, dev, fitted.wide.outputs(dev))
    alone = [answer["answer"] for answer in task.answers(dev, units, kept)]
    answers = [answer["answer"] for answer in answers_of([model], task, examples, machine)]
    agree = np.mean([one == other for one, other in zip(answers, alone, strict=True)])
    assert agree > 0.9  # windows may cut sentences, and so answers
    described = ModelDescription("bert", shape, task, pieces, length)
    save_models(tmp_path / "model", described, [model], {}, fitted.wide)
    assert sorted(path.name for path in (tmp_path / "model/wide").iterdir()) == [
        "answers.json",
        "answers.safetensors",
        "weights.safetensors",
        "wide.json",
    ]
    loaded = load_models(tmp_path / "model", torch.device("cpu"))
    again = answers_of(loaded.models, loaded.task, loaded.encoded(dev), machine)
    assert [answer["answer"] for answer in again] == answers


def test_the_loss_beside_a_silent_network_is_that_of_the_probabilities(
    pieces: Vocabulary,
) -> None:
    train = labelled("span", 60, 1)
    task = span_task(train)
    fitted = task.fit_wide(train, train, "answer_f1")
    assert fitted is not None
    wide = replace(fitted.wide, scale=0.2)
    examples = encoded_with(wide, task, train[:12], pieces, 128)
    rows = examples.padded(np.arange(12))
    assert rows.wide is not None and rows.targets is not None
    ends = np.cumsum(answer_rows(train[:12]))
    expected = 0.0
    for own, (first, last) in zip(
        np.split(wide.outputs(train[:12]), ends[:-1]), gold_words(train[:12]), strict=True
    ):
        none, logs = answer_logs(own.astype(np.float64))
        expected -= none if first < 0 else logs[first, last - first]
    assert float(task.loss(rows.wide, rows.targets)) == pytest.approx(expected, rel=1e-3)


def test_a_silent_head_says_nothing_and_can_learn(pieces: Vocabulary) -> None:
    """Were both vectors of ends 0, their gradients would be, too."""
    train = labelled("span", 20, 1)
    task = span_task(train)
    head = task.head(16, 0.0)
    head.silence()
    states = torch.randn(3, 9, 16, generator=torch.Generator().manual_seed(0))
    outputs = head(states)
    assert outputs.shape == (3, 9, OUTPUTS) and not outputs[..., :2].any()
    assert not outputs[..., 2 + RANK :].any() and outputs[..., 2 : 2 + RANK].any()
    targets = torch.zeros(3, 9, 2)
    targets[:, 2, 0] = targets[:, 4, 1] = 1
    task.loss(outputs, targets).backward()
    assert head.out.weight.grad[2 + RANK : OF_NETWORK].abs().max() > 0
