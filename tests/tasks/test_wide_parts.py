"""The wide parts of several tasks: each says in its columns what it says alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tasks.wide_samples import labelled, task_of

from tasklm.errors import RunError
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.joint import LINEAR, SIMPLEST
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_parts import WideParts, read_wide
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.members import alone, joined
from tasklm.tasks.several import Several
from tasklm.tokens.tokenizer import Vocabulary

KINDS = ("classify", "multilabel", "regress", "tag")


def train_of(kind: str, count: int = 40, seed: int = 1) -> list[Example]:
    return labelled(kind, count, seed)


def several_of(kinds: tuple[str, ...]) -> Several:
    tasks = {kind: task_of(kind, train_of(kind)) for kind in kinds}
    return Several(tasks, {kind: task.metrics[0] for kind, task in tasks.items()})


def mixed(kinds: tuple[str, ...], count: int = 40, seed: int = 1) -> list[Example]:
    """Examples of all kinds in turns."""
    rows = [joined(kind, train_of(kind, count, seed)) for kind in kinds]
    return [row[turn] for turn in range(count) for row in rows]


@pytest.fixture(scope="module")
def fitted() -> Any:
    task = several_of(KINDS)
    return task, task.fit_wide(mixed(KINDS), mixed(KINDS, 12, 2), "mean")


def check_outputs(task: Several, wide: Any, parts: dict[str, Any]) -> None:
    """Compares what all parts say together with what each of them says alone."""
    examples = mixed(KINDS, 9, 3)
    rows = wide.outputs(examples)
    counts = [len(example.words) or 1 for example in examples]
    assert rows.shape == (sum(counts), task.outputs) and rows.dtype == np.float32
    of_examples = np.split(rows, np.cumsum(counts)[:-1])
    for member in task.members:
        own = [place for place, one in enumerate(examples) if one.task == member.name]
        here = np.concatenate([of_examples[place] for place in own])
        expected = parts[member.name].outputs([alone(examples[place]) for place in own])
        np.testing.assert_allclose(here[:, member.columns], expected, atol=1e-6)  # kept as fp32
        assert np.abs(expected).max() > 0
        assert not np.delete(here, np.r_[member.columns], axis=1).any()


def test_parts_say_what_they_say_alone(fitted: Any, tmp_path: Path) -> None:
    task, parts = fitted
    own = {
        kind: task.member(kind).task.fit_wide(
            train_of(kind), train_of(kind, 12, 2), task.member(kind).metric
        )
        for kind in KINDS
    }
    check_outputs(task, parts.wide, {kind: one.wide for kind, one in own.items()})
    parts.wide.save(tmp_path / "wide")
    again = read_wide(tmp_path / "wide")
    assert isinstance(again, WideParts) and again.columns == dict(parts.wide.columns)
    check_outputs(task, again, {kind: one.wide for kind, one in own.items()})
    # out of fold, for train
    counts = [len(example.words) or 1 for example in mixed(KINDS)]
    of_examples = np.split(parts.train, np.cumsum(counts)[:-1])
    for place, kind in enumerate(KINDS):
        here = np.concatenate(of_examples[place :: len(KINDS)])
        np.testing.assert_array_equal(here[:, task.member(kind).columns], own[kind].train)


def test_answers_of_the_parts_alone_are_the_tasks_own(fitted: Any) -> None:
    task, parts = fitted
    examples = mixed(KINDS, 9, 3)
    units, outputs = parts.wide.units_with(task, examples, parts.wide.outputs(examples))
    answers = task.answers(examples, units, outputs)
    for member in task.members:
        part = parts.wide.parts[member.name]
        own = member.own(examples)
        alone_units = part.units_with(member.task, own, part.outputs(own))
        expected = member.task.answers(own, *alone_units)
        here = [answer for answer in answers if answer["task"] == member.name]
        assert here == [{"task": member.name, **answer} for answer in expected]


def test_units_of_long_sentences_share_the_outputs(fitted: Any, vocabulary: Vocabulary) -> None:
    from tasklm.tokens.examples import EncodedExamples

    task, parts = fitted
    examples = mixed(KINDS, 9, 3)
    rows = parts.wide.outputs(examples)
    encoded = EncodedExamples.of(task, examples, vocabulary, 8, rows)
    assert len(encoded.units) > len(examples)
    wide = [unit.wide for unit in encoded.units]
    assert [len(part) for part in wide] == [len(unit.places) for unit in encoded.units]
    np.testing.assert_array_equal(np.concatenate(wide), rows)
    assert [one.task for one in encoded.group_examples] == [
        examples[unit.example].task for unit in encoded.units
    ]


def test_a_task_whose_texts_say_nothing_has_no_part(tmp_path: Path) -> None:
    task = several_of(("classify", "regress"))
    empty = [Example(("",), label) for label in ("a", "b") * 10]
    tasks: dict[str, Task] = {
        "classify": task.member("classify").task,
        "bare": Classify(["a", "b"]),
    }
    both = Several(tasks, {"classify": "macro_f1", "bare": "accuracy"})
    train = [*joined("classify", train_of("classify")), *joined("bare", empty)]
    fitted = both.fit_wide(train, train[:10] + train[-10:], "mean")
    assert fitted is not None and fitted.wide.parts["bare"] is None
    assert not fitted.wide.outputs(train)[-20:].any()
    fitted.wide.save(tmp_path)
    again = WideParts.load(tmp_path)
    np.testing.assert_allclose(again.outputs(train), fitted.wide.outputs(train), atol=1e-6)
    alone_there = Several(
        {"bare": tasks["bare"], "too": tasks["bare"]}, {"bare": "f1", "too": "f1"}
    )
    rows = [*joined("bare", empty), *joined("too", empty)]
    assert alone_there.fit_wide(rows, rows, "mean") is None


def test_baselines_are_the_first_and_last_of_each_task(fitted: Any) -> None:
    task, parts = fitted
    held = {"dev": mixed(KINDS, 12, 2), "test": joined("classify", train_of("classify", 9, 3))}
    labels = task.baselines(mixed(KINDS), held, "mean", parts.wide)
    assert list(labels) == [SIMPLEST, LINEAR]
    for member in task.members:
        own = {split: member.own(part) for split, part in held.items() if member.own(part)}
        part = parts.wide.parts[member.name]
        cheap = member.task.baselines(train_of(member.name), own, member.metric, part)
        for name, expected in zip(labels, (next(iter(cheap)), list(cheap)[-1]), strict=True):
            for split in own:
                given = [label for label in labels[name][split] if label[0] == member.name]
                assert given == [(member.name, label) for label in cheap[expected][split]]
    metric = task.metric("mean")
    gold = [example.label for example in held["dev"]]
    assert metric.statistics(gold, labels[LINEAR]["dev"]).shape[0] == len(gold)


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": {}},
        {"tasks": []},
        {"tasks": [3]},
        {"tasks": [{"name": 3, "first": 0, "count": 1, "fitted": False}]},
        {"tasks": [{"name": "a", "first": -1, "count": 1, "fitted": False}]},
        {"tasks": [{"name": "a", "first": 0, "count": 10**9, "fitted": False}]},
        {"tasks": [{"name": "classify", "first": 0, "count": 1, "fitted": True}]},
        {"format": 99},
    ],
)
def test_hostile_records_are_refused(fitted: Any, tmp_path: Path, change: dict[str, Any]) -> None:
    fitted[1].wide.save(tmp_path)
    record = tmp_path / "wide.json"
    values = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps({**values, **change}), encoding="utf-8")
    with pytest.raises((ValueError, RunError)):
        read_wide(tmp_path)


def test_one_task_is_read_as_before(tmp_path: Path) -> None:
    task = task_of("classify", train_of("classify"))
    wide = task.fit_wide(train_of("classify"), train_of("classify", 12, 2), "macro_f1").wide
    wide.save(tmp_path)
    assert isinstance(read_wide(tmp_path), Wide)
