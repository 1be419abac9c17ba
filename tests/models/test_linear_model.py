"""A linear model of words alone answers as the silent network beside it would let it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tasklm.device.machine import Machine
from tasklm.errors import DamagedError, RecipeError, RunError
from tasklm.models.all_tasks import answers_of_all
from tasklm.models.answering import Answering
from tasklm.models.linear_model import LinearModel
from tasklm.models.networks import Networks
from tasklm.models.task_model import TaskModel, load_models
from tasklm.recipe.data_sections import Kind
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import TASKS, Answer, Task
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_parts import WideParts
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.span import Span
from tasklm.tokens.tokenizer import Vocabulary
from tests.linear_models import fitted, write_linear
from tests.samples import reseal
from tests.several_models import joined_tasks
from tests.tasks.wide_samples import MARKED, labelled, task_of

KINDS = ("classify", MARKED, "multilabel", "regress", "choice", "tag", "span")


def networks_of(folder: Path) -> Networks:
    """The silent network of a folder, which adds the wide part to its zeros."""
    return Networks(
        load_models(folder, torch.device("cpu")), Machine(torch.device("cpu"), False, 1)
    )


def answers_by(answering: Answering, examples: Sequence[Example]) -> list[Answer]:
    encoded, task = answering.loaded.encoded(examples), answering.loaded.task
    return task.answers(encoded.examples, encoded.units, answering.predictions(encoded))


def linear(folder: Path, kind: str, vocabulary: Vocabulary, scale: float = 1.0) -> Path:
    """A linear model that was fitted to examples of a kind."""
    task, wide = fitted(
        task_of(kind, labelled(kind, 60, 1)), labelled(kind, 60, 1), labelled(kind, 40, 3)
    )
    return write_linear(folder, task, wide, vocabulary, scale)


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_are_those_of_the_silent_network(
    kind: str, scale: float, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder = linear(tmp_path / "model", kind, vocabulary, scale)
    predictor, new = Predictor(folder), labelled(kind, 70, 2)
    assert isinstance(predictor.answering, LinearModel)
    answers = predictor.answers(new)
    assert answers == answers_by(networks_of(folder), new)
    different = {json.dumps(answer) for answer in answers}
    assert len(different) > 10  # they depend on the text
    (alone,) = predictor.answers(new[:1])
    assert alone == answers[0]


def test_thresholds_that_dev_chose_are_kept(vocabulary: Vocabulary, tmp_path: Path) -> None:
    of_labels = Predictor(linear(tmp_path / "labels", "multilabel", vocabulary)).task
    assert isinstance(of_labels, Multilabel) and set(of_labels.thresholds) != {0.5}
    of_answers = Predictor(linear(tmp_path / "answers", "span", vocabulary)).task
    assert isinstance(of_answers, Span) and of_answers.unanswerable and of_answers.threshold


def test_marks_are_read_as_words(vocabulary: Vocabulary, tmp_path: Path) -> None:
    def marked(row: Example) -> Example:
        words = row.text.split()
        text = f"{words[0]} [a] {words[1]} [b] {' '.join(words[2:])}"
        return dataclasses.replace(row, texts=(text,))

    train, new = (list(map(marked, labelled("classify", 60, seed))) for seed in (1, 2))
    task = TASKS.get("classify").from_examples(train, Kind(marks=("[a]", "[b]")))
    assert isinstance(task, Classify) and task.marks
    folder = write_linear(tmp_path / "model", *fitted(task, train, new[:30]), vocabulary)
    assert Predictor(folder).answers(new) == answers_by(networks_of(folder), new)


@pytest.fixture(scope="module")
def several(
    tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary
) -> tuple[Path, list[Example]]:
    """A linear model of four tasks, of which one had nothing to learn from; examples of all."""
    folder = tmp_path_factory.mktemp("several")
    _, read = joined_tasks(folder / "data")
    task, wide = fitted(read.task, read.splits.train, read.splits.dev)
    assert isinstance(wide, WideParts)
    bare = WideParts({**wide.parts, "regress": None}, wide.columns)
    return write_linear(folder / "model", task, bare, vocabulary), read.splits.dev


def test_of_several_tasks_each_answers_as_beside_the_others(
    several: tuple[Path, list[Example]],
) -> None:
    folder, dev = several
    predictor, networks = Predictor(folder), networks_of(folder)
    assert isinstance(predictor.answering, LinearModel)
    assert predictor.answers(dev) == answers_by(networks, dev)
    for member in networks.loaded.task.members:  # type: ignore[attr-defined]
        own = predictor.of(member.name)
        given = member.own(dev)
        assert own.task.kind == member.task.kind and own.loaded.config["about"]["linear"]
        assert own.answers(given) == answers_by(networks.alone(member.name), given)
        assert [{"task": member.name, **one} for one in own.answers(given)] == predictor.answers(
            [one for one in dev if one.task == member.name]
        )
    with pytest.raises(RecipeError, match="name one of: classify, multilabel, regress, tag"):
        predictor.of("nothing")


def test_all_of_several_tasks_answer_an_input(several: tuple[Path, list[Example]]) -> None:
    folder, _ = several
    predictor, text = Predictor(folder), "the cat hears cold water number 5 ."
    members = predictor.task.members  # type: ignore[attr-defined]
    given = [
        {member.name: member.task.example_of(words) for member in members} for words in (text, "x")
    ]
    (first, second) = predictor.answers_of_all(given)
    assert [first, second] == answers_of_all(networks_of(folder), given)
    assert list(first) == [member.name for member in members] and first != second


def test_who_looks_into_the_network_gets_it(
    several: tuple[Path, list[Example]], vocabulary: Vocabulary, tmp_path: Path
) -> None:
    predictor = Predictor(linear(tmp_path / "model", "classify", vocabulary))
    assert isinstance(predictor.model, TaskModel)
    assert predictor.networks.loaded.wide is not None and predictor.networks.device == "cpu"
    own = Predictor(several[0]).of("tag")
    assert own.networks.loaded.task.kind == "tag"
    assert own.model.head.out.out_features == own.task.wide_width


def changed_scale(folder: Path, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    scale = change(tensors.pop("wide_scale"))
    save_file(
        tensors if scale is None else {**tensors, "wide_scale": scale}, folder / "model.safetensors"
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda scale: scale * float("nan"),
            "wide_scale in model.safetensors is not a finite number",
        ),
        (lambda scale: scale.repeat(2), "wide_scale in model.safetensors is not a finite number"),
        (lambda scale: scale.to(torch.int32), "wide_scale in model.safetensors is not a finite"),
        (lambda scale: None, "wide_scale"),
    ],
)
def test_a_scale_that_is_no_number_is_damage(
    change: Callable[[torch.Tensor], torch.Tensor | None],
    problem: str,
    vocabulary: Vocabulary,
    tmp_path: Path,
) -> None:
    folder = linear(tmp_path / "model", "classify", vocabulary)
    changed_scale(folder, change)
    reseal(folder)
    with pytest.raises(DamagedError, match=rf"is damaged \(.*{problem}"):
        Predictor(folder)


def test_a_folder_that_lost_its_linear_model_is_damaged(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder = linear(tmp_path / "model", "classify", vocabulary)
    (folder / "wide").rename(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=r"features\.json is damaged \(it is missing\)"):
        Predictor(folder)
    reseal(folder)
    with pytest.raises(DamagedError, match="speaks of a linear model, which is not there"):
        Predictor(folder)


def test_a_linear_model_of_another_task_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    folder = linear(tmp_path / "model", "classify", vocabulary)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for task in ({"kind": "classify", "labels": ["a", "b"]}, parser_of(vocabulary).to_dict()):
        (folder / "config.json").write_text(json.dumps({**config, "task": task}), encoding="utf-8")
        reseal(folder)
        with pytest.raises(RunError, match="the wide part has 3 outputs, which does not match"):
            Predictor(folder)


def parser_of(vocabulary: Vocabulary) -> Task:
    """A task that has no linear model."""
    trees = [Example(("a b",), [(2, "x"), (0, "root")], words=("a", "b"))]
    return TASKS.get("parse").from_examples(trees, Kind())


def test_outputs_that_are_no_numbers_are_no_answers(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = linear(tmp_path / "model", "classify", vocabulary)
    whole = Wide.outputs
    monkeypatch.setattr(Wide, "outputs", lambda *given: whole(*given) * np.float32("nan"))
    for answering in (Predictor(folder).answering, networks_of(folder)):
        with pytest.raises(RunError, match="outputs are not finite, so it has no answer"):
            answers_by(answering, labelled("classify", 3, 2))


def test_a_folder_that_says_nothing_of_it_has_networks(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder = linear(tmp_path / "model", "classify", vocabulary)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    new = labelled("classify", 9, 2)
    answers = Predictor(folder).answers(new)
    for about in ({"metric": "macro_f1"}, {**config["about"], "linear": "yes"}):
        (folder / "config.json").write_text(
            json.dumps({**config, "about": about}), encoding="utf-8"
        )
        reseal(folder)
        predictor = Predictor(folder)
        assert isinstance(predictor.answering, Networks) and predictor.answers(new) == answers
