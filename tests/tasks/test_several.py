"""Several tasks in one head: losses, masked columns, units and answers against the tasks' own."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sentences

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import NONE, TASKS, Task, Unit
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.members import alone, joined
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.regress import Regress
from tasklm.tasks.several import Several, members_of
from tasklm.tasks.tag import Tag
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary

LENGTH = 16
WORDS = ("the", "cat", "likes", "music")
CLASSES = ["maybe", "no", "yes"]


def own_examples(name: str) -> list[Example]:
    """Labelled examples of one of the four tasks, as its own kind has them."""
    texts = sentences(3, sum(map(ord, name)))
    labels: list[Any] = {
        "nli": ["yes", "no", "maybe"],
        "topics": [("b",), (), ("a", "b")],
        "score": [0.0, 5.0, 2.0],
    }.get(name, [])
    if name == "ner":
        short = Example((" ".join(WORDS),), ["O", "B-x", "O", "O"], words=WORDS)
        many = WORDS * 6  # longer than a row
        return [short, Example((" ".join(many),), ["B-x", "I-x", "O", "O"] * 6, words=many)]
    return [Example((text,), label) for text, label in zip(texts, labels, strict=True)]


NAMES = ("nli", "topics", "score", "ner")
METRICS = {"nli": "accuracy", "topics": "micro_f1", "score": "spearman", "ner": "entity_f1"}
PLACES = {"ner": 14.0}
WEIGHTS = {"score": 4.0}


def own_tasks() -> dict[str, Task]:
    return {
        "nli": Classify(CLASSES),
        "topics": Multilabel(["a", "b"]),
        "score": Regress(0.0, 5.0),
        "ner": Tag(["B-x", "I-x", "O"], "BIO"),
    }


@pytest.fixture
def several() -> Several:
    return Several(own_tasks(), METRICS, PLACES)


def mixed() -> list[Example]:
    """The examples of all tasks, in turns."""
    rows = [joined(name, own_examples(name)) for name in NAMES]
    longest = max(map(len, rows))
    turns = [[row[turn] for row in rows if turn < len(row)] for turn in range(longest)]
    return list(chain.from_iterable(turns))


def batch_of(task: Task, examples: Sequence[Example], vocabulary: Vocabulary) -> torch.Tensor:
    """The targets of all examples in one padded batch."""
    encoded = EncodedExamples.of(task, examples, vocabulary, LENGTH)
    targets = encoded.padded(np.arange(len(encoded))).targets
    assert targets is not None
    return targets


def log_softmax(row: Sequence[float]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in row))
    return [value - total for value in row]


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def loss_by_hand(task: Task, outputs: list[list[float]], example: Example, first: int) -> float:
    """The loss of a unit, word by word from `first` on where words are tagged."""
    if isinstance(task, Classify):
        return -log_softmax(outputs[0])[task.labels.index(example.label)]
    if isinstance(task, Multilabel):
        signs = [1 if label in example.label else -1 for label in task.labels]
        pairs = zip(signs, outputs[0], strict=True)
        return -sum(log_sigmoid(sign * value) for sign, value in pairs)
    if isinstance(task, Regress):
        return (math.exp(log_sigmoid(outputs[0][0])) - example.label / 5.0) ** 2
    assert isinstance(task, Tag)
    tags = [task.labels.index(tag) for tag in example.label[first : first + len(outputs)]]
    return -sum(log_softmax(row)[tag] for row, tag in zip(outputs, tags, strict=True))


def test_the_loss_is_the_sum_of_the_tasks_own(several: Several, vocabulary: Vocabulary) -> None:
    examples = mixed()
    encoded = EncodedExamples.of(several, examples, vocabulary, LENGTH)
    batch = encoded.padded(np.arange(len(encoded)))
    assert batch.targets is not None
    shape = (*batch.targets.shape[:2], several.outputs)
    outputs = torch.randn(shape, generator=torch.Generator().manual_seed(1)).double()
    expected, words = 0.0, [0] * len(examples)
    for row, unit in enumerate(encoded.units):
        example = examples[unit.example]
        member = several.member(example.task)
        own = outputs[row, : len(unit.places), member.columns].tolist()
        loss = loss_by_hand(member.task, own, alone(example), words[unit.example])
        words[unit.example] += len(unit.places)
        expected += WEIGHTS.get(example.task, 1.0) * loss / PLACES.get(example.task, 1.0)
    assert float(several.loss(outputs, batch.targets)) == pytest.approx(expected, rel=1e-5)
    assert sum(words) == 9 + 4 + 24  # one place for each text, one for each word


@pytest.mark.parametrize("name", NAMES)
def test_a_task_gets_the_loss_and_lesson_it_has_alone(
    name: str, several: Several, vocabulary: Vocabulary
) -> None:
    own, member = own_examples(name), several.member(name)
    together = batch_of(several, joined(name, own), vocabulary)
    by_itself = batch_of(member.task, own, vocabulary)
    shape = (*together.shape[:2], several.outputs)
    draw = torch.Generator().manual_seed(2)
    outputs, taught = (torch.randn(shape, generator=draw) for _ in range(2))
    here, lesson = outputs[..., member.columns], taught[..., member.columns]
    places, weight = PLACES.get(name, 1.0), WEIGHTS.get(name, 1.0)
    expected = weight * member.task.loss(here, by_itself) / places
    torch.testing.assert_close(several.loss(outputs, together), expected)
    expected = weight * member.task.taught_loss(here, lesson, by_itself) / places
    torch.testing.assert_close(several.taught_loss(outputs, taught, together), expected)
    whole = member.task.count(by_itself)
    assert several.count(together) == max(1, round(whole / places))


@pytest.mark.parametrize("loss", ["loss", "taught_loss"])
def test_columns_of_other_tasks_and_padding_get_no_gradient(
    loss: str, several: Several, vocabulary: Vocabulary
) -> None:
    encoded = EncodedExamples.of(several, mixed(), vocabulary, LENGTH)
    targets = encoded.padded(np.arange(len(encoded))).targets
    assert targets is not None
    outputs = torch.randn(*targets.shape[:2], several.outputs, requires_grad=True)
    others = (torch.randn(outputs.shape),) if loss == "taught_loss" else ()
    getattr(several, loss)(outputs, *others, targets).backward()
    assert outputs.grad is not None
    own = torch.zeros(outputs.shape, dtype=torch.bool)
    for row, unit in enumerate(encoded.units):
        columns = several.member(encoded.examples[unit.example].task).columns
        own[row, : len(unit.places), columns] = True
    assert torch.equal(outputs.grad != 0, own)


def test_what_counts_is_examples(several: Several, vocabulary: Vocabulary) -> None:
    targets = batch_of(several, mixed(), vocabulary)
    assert several.count(targets) == 9 + round((4 + 24) / 14)
    assert several.count(torch.full_like(targets, NONE)) == 0
    few = batch_of(several, joined("ner", own_examples("ner")[:1]), vocabulary)
    assert several.count(few) == 1  # 4 words of 14: a loss is never divided by 0


def test_units_are_in_the_order_of_examples(several: Several, vocabulary: Vocabulary) -> None:
    examples = mixed()
    units = several.encode(examples, vocabulary, LENGTH)
    numbers = [unit.example for unit in units]
    assert numbers == sorted(numbers) and set(numbers) == set(range(len(examples)))
    long = next(place for place, one in enumerate(examples) if len(one.words) > len(WORDS))
    rows = [unit for unit in units if unit.example == long]
    assert len(rows) > 1 and sum(len(unit.places) for unit in rows) == 24
    for name in NAMES:
        member = several.member(name)
        own = member.task.encode(own_examples(name), vocabulary, LENGTH)
        here = [unit for unit in units if examples[unit.example].task == name]
        assert [unit.tokens for unit in here] == [unit.tokens for unit in own]
        for unit, alone_unit in zip(here, own, strict=True):
            assert unit.targets is not None and alone_unit.targets is not None
            assert set(unit.targets[:, 0]) == {NAMES.index(name)}
            numbers_here = unit.targets[:, 1:][unit.targets[:, 1:] != NONE]
            np.testing.assert_allclose(numbers_here, alone_unit.targets.ravel())
    bare = [dataclasses.replace(example, label=None) for example in examples]
    assert all(unit.targets is None for unit in several.encode(bare, vocabulary, LENGTH))


def outputs_kept(several: Several, units: Sequence[Unit], seed: int = 3) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [several.keep(draw.normal(size=(len(unit.places), several.outputs))) for unit in units]


def test_answers_labels_and_thresholds_are_the_tasks_own(
    several: Several, vocabulary: Vocabulary
) -> None:
    examples = mixed()
    units = several.encode(examples, vocabulary, LENGTH)
    outputs = outputs_kept(several, units)
    tuned = several.tuned(examples, units, outputs)
    answers = tuned.answers(examples, units, outputs)
    for name in NAMES:
        member, places = several.member(name), [e.task == name for e in examples]
        own = own_examples(name)
        own_units = member.task.encode(own, vocabulary, LENGTH)
        pairs = zip(units, outputs, strict=True)
        own_outputs = [
            member.task.keep(values[:, member.columns])
            for unit, values in pairs
            if places[unit.example]
        ]
        task = member.task.tuned(own, own_units, own_outputs)
        assert tuned.member(name).task.to_dict() == task.to_dict()
        expected = task.answers(own, own_units, own_outputs)
        here = [answer for answer, is_own in zip(answers, places, strict=True) if is_own]
        assert here == [{"task": name, **answer} for answer in expected]
        labels = [tuned.label_of(answer) for answer in here]
        assert labels == [(name, task.label_of(answer)) for answer in expected]
    thresholds = tuned.member("topics").task.to_dict()["thresholds"]
    assert thresholds != several.member("topics").task.to_dict()["thresholds"]
    assert [member.places for member in tuned.members] == [1.0, 1.0, 1.0, 14.0]


def test_tuning_without_examples_of_a_task_leaves_it(
    several: Several, vocabulary: Vocabulary
) -> None:
    examples = joined("nli", own_examples("nli"))
    units = several.encode(examples, vocabulary, LENGTH)
    tuned = several.tuned(examples, units, outputs_kept(several, units))
    assert tuned.to_dict() == several.to_dict()


def test_a_description_comes_back(several: Several) -> None:
    text = json.dumps(several.to_dict())
    again = TASKS.get("several").from_dict(json.loads(text))
    assert again.to_dict() == several.to_dict() and isinstance(again, Several)
    assert again.members == [
        dataclasses.replace(member, task=other.task)
        for member, other in zip(several.members, again.members, strict=True)
    ]
    assert members_of(again) == again.members and members_of(Classify(CLASSES)) == []


def changed(path: Sequence[Any], value: Any) -> dict[str, Any]:
    """A description with one value replaced, "-" for left out."""
    values: dict[str, Any] = Several(own_tasks(), METRICS, PLACES).to_dict()
    place: Any = values
    for step in path[:-1]:
        place = place[step]
    if value == "-":
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["tasks"], []),
        (["tasks"], {}),
        (["tasks"], "abc"),
        (["tasks"], "-"),
        (["tasks"], [None]),
        (["tasks"], [[]]),
        (["tasks", 0, "name"], 3),
        (["tasks", 0, "name"], "ner"),
        (["tasks", 0, "metric"], "uas"),
        (["tasks", 0, "metric"], None),
        (["tasks", 0, "places"], 0),
        (["tasks", 0, "places"], -1.0),
        (["tasks", 0, "places"], math.nan),
        (["tasks", 0, "places"], math.inf),
        (["tasks", 0, "places"], True),
        (["tasks", 0, "places"], "-"),
        (["tasks", 0, "task"], None),
        (["tasks", 0, "task", "kind"], "several"),
        (["tasks", 0, "task", "kind"], "span"),
        (["tasks", 0, "task", "kind"], "../x"),
        (["tasks", 0, "task", "labels"], []),
        (["tasks", 0, "task", "labels"], ["a", "a"]),
    ],
)
def test_hostile_descriptions_are_refused(path: list[Any], value: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, RecipeError)):
        Several.from_dict(changed(path, value))


@pytest.mark.parametrize(
    "task",
    [
        TASKS.get("span").from_examples([Example(("q", "a"), [("a", 0)])], Kind()),
        Classify(CLASSES, ["<<"]),
        Tag(["O", "B-x"], "BIO", crf=True),
    ],
    ids=["span", "marks", "crf"],
)
def test_what_cannot_share_a_head_takes_turns(task: Task) -> None:
    tasks = {"nli": Classify(CLASSES), "odd": task, "topics": Classify(CLASSES)}
    joined_task = Several(tasks, dict.fromkeys(tasks, "accuracy"))
    assert [turn.names for turn in joined_task.turns] == [("nli", "topics"), ("odd",)]
    assert Several(own_tasks(), dict.fromkeys(own_tasks(), "accuracy")).turns == ()


def test_names_are_asked_for(several: Several, tmp_path: Any) -> None:
    with pytest.raises(RecipeError, match=r"no task 'nil'; name one of: nli, topics, score, ner"):
        several.member("nil")
    with pytest.raises(RecipeError, match="the model has several tasks"):
        several.member("")
    with pytest.raises(DataError, match="--task"):
        several.example_of("a text")
    with pytest.raises(DataError, match="--task NAME"):
        Several.read(tmp_path / "a.csv", Data())
    with pytest.raises(DataError, match=r"several\.tasks"):
        Several.from_examples(mixed(), Kind())
    with pytest.raises(RecipeError, match="the metric mean"):
        several.metric("accuracy")


def test_findings_name_their_task(several: Several) -> None:
    findings = several.audit(Splits(mixed(), mixed()))
    checks = [finding.check for finding in findings]
    assert {check.split(": ")[0] for check in checks} == set(NAMES)
    for name in NAMES:
        own = several.member(name).task.audit(Splits(own_examples(name), own_examples(name)))
        assert [f"{name}: {one.check}" for one in own] == [c for c in checks if c.startswith(name)]
        briefs = [f"{name}: {one.brief}" for one in own if one.brief]
        assert [f.brief for f in findings if f.brief.startswith(f"{name}:")] == briefs
    assert several.classes(("nli", "yes")) == []
