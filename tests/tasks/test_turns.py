"""Tasks that take turns with one encoder: their units, heads, losses and answers are those that
each has by itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.encoders.samples import stir
from tests.turn_tasks import NAMES, TURNS, turn_tasks
from torch import Tensor

from tasklm.device.machine import Machine
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.errors import RecipeError
from tasklm.models.all_tasks import answers_of_all
from tasklm.models.networks import Networks
from tasklm.models.one_task import alone
from tasklm.models.task_model import (
    LoadedModels,
    ModelDescription,
    TaskModel,
    answers_of,
    load_models,
    save_models,
    task_outputs,
)
from tasklm.tasks.base import TASKS, Task, score
from tasklm.tasks.baselines.wide_parts import WideParts
from tasklm.tasks.heads.turns import TurnsHead
from tasklm.tasks.members import places_of
from tasklm.tasks.readers.several import JoinedTasks
from tasklm.tasks.readers.word_rows import split_words
from tasklm.tasks.several import Several, require_columns, taught_width, turn_of
from tasklm.tasks.text_lessons import text_lessons_of
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.examples import EncodedExamples, EncodedTurns
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.stage2 import TaskLosses

LENGTH = 32
MACHINE = Machine(torch.device("cpu"), False, 1)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> JoinedTasks:
    return turn_tasks(tmp_path_factory.mktemp("turns"))


def saved(folder: Path, read: JoinedTasks, vocabulary: Vocabulary, encoder: str) -> LoadedModels:
    """A random model of the tasks, saved and loaded again."""
    torch.manual_seed(3)
    shape = Shape(len(vocabulary), 1, 32, 2, 48, LENGTH)
    body = ENCODERS.get(encoder)(shape)
    model = TaskModel(body, read.task.head(shape.width, 0.0, body.normed_heads), True)
    stir(model)
    about = {"metric": "mean", "dev": 0.5, "seed": 1, "test": None}
    described = ModelDescription(encoder, shape, read.task, vocabulary, LENGTH)
    fitted = read.task.fit_wide(read.splits.train, read.splits.dev, "mean")
    assert fitted is not None
    save_models(folder, described, [model], about, fitted.wide)
    return load_models(folder, torch.device("cpu"))


@pytest.fixture(scope="module")
def loaded(
    read: JoinedTasks, vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory
) -> LoadedModels:
    return saved(tmp_path_factory.mktemp("model") / "model", read, vocabulary, "bert")


def test_tasks_that_share_a_head_are_one_turn_and_each_other_its_own(read: JoinedTasks) -> None:
    assert [turn.names for turn in read.task.turns] == TURNS
    assert [turn.mixed for turn in read.task.turns] == [True, *[False] * 5]
    again = TASKS.get("several").from_dict(read.task.to_dict())
    assert isinstance(again, Several) and again.to_dict() == read.task.to_dict()
    assert [turn.names for turn in again.turns] == TURNS


def test_tasks_with_heads_of_their_own_refuse_text_without_labels(read: JoinedTasks) -> None:
    with pytest.raises(RecipeError, match=r"finetune\.unlabelled: .* a head of its own"):
        read.task.consistency()


def test_units_are_those_of_each_task_by_itself(read: JoinedTasks, vocabulary: Vocabulary) -> None:
    train = read.splits.train
    encoded = EncodedExamples.of(read.task, train, vocabulary, LENGTH)
    assert isinstance(encoded, EncodedTurns)
    assert [unit.example for unit in encoded.units] == [
        unit.example for unit in read.task.encode(train, vocabulary, LENGTH)
    ]
    for turn, part in zip(read.task.turns, encoded.parts, strict=True):
        if turn.mixed:
            continue
        (name,) = turn.names
        own = turn.task.encode(read.task.member(name).own(train), vocabulary, LENGTH)
        where = places_of(train, name)
        assert part.together == turn.task.together
        for ours, theirs in zip(part.units, own, strict=True):
            assert (ours.tokens, ours.places) == (theirs.tokens, theirs.places)
            np.testing.assert_array_equal(ours.targets, theirs.targets)
            assert ours.example == where[theirs.example]


def test_what_teachers_say_reaches_the_units_of_each_task(
    read: JoinedTasks, vocabulary: Vocabulary
) -> None:
    """Answers in the order of the examples, of which each task has its own number and columns."""
    train, draw = read.splits.train, np.random.default_rng(1)
    several, examples, width = read.task, train, taught_width(read.task)
    rows: list[np.ndarray] = []
    expected: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for example in examples:
        count = dict.fromkeys(("tag", "crf", "parse"), len(example.words)) | {"choice": 3}
        count["span"] = 1 + len(split_words(example.texts[-1]))
        lesson = draw.random((count.get(example.task, 1), width)).astype(np.float32)
        rows.append(lesson)
        expected[example.task].append(lesson)
    encoded = EncodedExamples.of(several, examples, vocabulary, 64, None, np.concatenate(rows))
    assert isinstance(encoded, EncodedTurns)
    for turn, part in zip(several.turns, encoded.parts, strict=True):
        own: dict[str, list[np.ndarray]] = {name: [] for name in turn.names}
        for unit in part.units:
            assert unit.taught is not None
            own[examples[unit.example].task].append(unit.taught)
        for name in turn.names:
            rows_given = np.concatenate(expected[name])[:, : turn.outputs]
            if text_lessons_of(turn.task) is not None:
                member = several.member(name)
                alone_there = EncodedExamples.of(
                    turn.task, member.own(examples), vocabulary, 64, None, rows_given
                )
                rows_given = np.concatenate([np.asarray(one.taught) for one in alone_there.units])
            np.testing.assert_array_equal(np.concatenate(own[name]), rows_given)
        batch = part.padded(np.arange(3))
        assert batch.taught is not None and batch.taught.shape[-1] == turn.outputs
        outputs = torch.randn(1, requires_grad=True) + _outputs_for(turn.task, batch)
        loss = turn.task.taught_loss(outputs, batch.taught, batch.targets)  # type: ignore[arg-type]
        assert torch.isfinite(loss)


def _outputs_for(task: Task, batch: TokenBatch) -> Tensor:
    assert batch.places is not None
    head = task.head(8, 0.0)
    return torch.zeros_like(head(torch.zeros(*batch.places.shape, 8)))


def test_every_group_comes_once_in_batches_of_one_turn(
    read: JoinedTasks, vocabulary: Vocabulary
) -> None:
    encoded = EncodedExamples.of(read.task, read.splits.train, vocabulary, LENGTH)
    groups, turns = [], set()
    for numbers, batch in encoded.in_order(8):
        groups += numbers.tolist()
        turns.add(batch.turn)
        units = [encoded.units[number] for number in encoded.numbers_of(numbers)]
        names = {encoded.examples[unit.example].task for unit in units}
        assert names <= set(read.task.turns[batch.turn].names)
        assert len(batch.ids) <= max(8, batch.together)
        for row, unit in zip(batch.ids.tolist(), units, strict=True):
            assert row[: len(unit.tokens)] == unit.tokens
    assert sorted(groups) == list(range(len(encoded))) and turns == set(range(len(TURNS)))


@pytest.mark.parametrize("encoder", ["bert", "modern"])
def test_answers_and_scores_are_those_of_each_task_by_itself(
    read: JoinedTasks, vocabulary: Vocabulary, encoder: str, tmp_path: Path
) -> None:
    loaded, dev = saved(tmp_path / "model", read, vocabulary, encoder), read.splits.dev
    together = answers_of(loaded.models, loaded.task, loaded.encoded(dev), MACHINE)
    values = []
    for member in read.task.members:
        own, part = alone(loaded, member.name), member.own(dev)
        answers = answers_of(own.models, own.task, own.encoded(part), MACHINE)
        places = places_of(dev, member.name)
        for place, answer in zip(places, answers, strict=True):
            expected = {"task": member.name, **answer}
            assert loaded.task.label_of(together[place]) == loaded.task.label_of(expected)
        labels = [own.task.label_of(answer) for answer in answers]
        gold = [example.label for example in part]
        values.append(score(own.task.metric(member.metric), gold, labels))
    labels = [loaded.task.label_of(answer) for answer in together]
    gold = [example.label for example in dev]
    mean = score(loaded.task.metric("mean"), gold, labels)
    assert mean == pytest.approx(float(np.mean(values)), abs=1e-9)


def test_losses_and_gradients_are_those_of_each_task_by_itself(
    read: JoinedTasks, loaded: LoadedModels
) -> None:
    train = read.splits.train
    encoded, model = loaded.encoded(train), loaded.model
    assert isinstance(encoded, EncodedTurns) and isinstance(model.head, TurnsHead)
    losses = TaskLosses(model, loaded.task, False, False).on(MACHINE)
    for number, turn in enumerate(read.task.turns):
        groups = encoded.firsts[number] + np.arange(4)
        batch = encoded.padded(groups)
        model.zero_grad()
        (loss,) = losses(batch).values()
        loss.backward()
        ours = _gradients(model)
        used = {name.split(".")[2] for name in ours if name.startswith("head.heads")}
        assert used == {str(number)}  # other heads have no gradient, and so do not move
        if turn.mixed:
            continue
        (name,) = turn.names
        own = alone(loaded, name)
        by_itself = own.encoded(read.task.member(name).own(train)).padded(np.arange(4))
        model.zero_grad()
        assert by_itself.targets is not None and batch.targets is not None
        expected = own.task.loss(own.model(by_itself), by_itself.targets)
        expected.backward()
        torch.testing.assert_close(loss, expected)
        theirs = _gradients(model)
        assert ours.keys() == theirs.keys()
        for key, gradient in ours.items():
            torch.testing.assert_close(gradient, theirs[key])
        assert turn_of(loaded.task, number).count(batch.targets) == own.task.count(
            by_itself.targets
        )
    model.zero_grad()


def test_tasks_that_share_a_head_have_the_linear_part_that_they_have_without_the_others(
    read: JoinedTasks, loaded: LoadedModels
) -> None:
    train, dev = read.splits.train, read.splits.dev
    fitted = read.task.fit_wide(train, dev, "mean")
    turn = read.task.turns[0]
    own_train, own_dev = ([one for one in part if one.task in turn.names] for part in (train, dev))
    alone_there = turn.task.fit_wide(own_train, own_dev, "mean")
    assert fitted is not None and list(fitted.wide.parts) == list(turn.names)
    np.testing.assert_array_equal(fitted.train, alone_there.train)
    np.testing.assert_array_equal(fitted.wide.outputs(dev), alone_there.wide.outputs(own_dev))
    encoded, model = loaded.encoded(dev), loaded.model
    assert isinstance(encoded, EncodedTurns) and model.wide_scale is not None
    assert [bool(part.beside) for part in encoded.parts] == [True, *[False] * 5]
    for number, part in enumerate(encoded.parts):
        batch = encoded.padded(encoded.firsts[number] + np.arange(4))
        network = task_outputs(model.encoder, model.head, batch)
        expected = network.detach().clone()
        for row, unit in enumerate(part.units[:4]):
            if not number:
                added = torch.from_numpy(np.asarray(unit.wide))
                expected[row, : len(added)] += model.wide_scale.detach() * added
        torch.testing.assert_close(model(batch).detach(), expected)
        assert bool((network != expected).any()) is (number == 0)


def test_a_linear_part_of_other_tasks_is_refused(read: JoinedTasks, loaded: LoadedModels) -> None:
    assert isinstance(loaded.wide, WideParts)
    require_columns(loaded.wide, read.task)
    columns = {**loaded.wide.columns, "choice": (0, 1)}
    with pytest.raises(ValueError, match="does not have the tasks"):
        require_columns(WideParts({**loaded.wide.parts, "choice": None}, columns), read.task)


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    named = model.named_parameters()
    return {name: one.grad.clone() for name, one in named if one.grad is not None}


def test_all_tasks_answer_an_input_as_each_does(read: JoinedTasks, loaded: LoadedModels) -> None:
    text = "the cat hears cold water number 5 ."
    taking = [name for name in NAMES if name not in ("choice", "span")]
    given = {name: loaded.task.member(name).task.example_of(text) for name in taking}  # type: ignore[attr-defined]
    rows: list[int] = []
    watched = loaded.model.encoder.register_forward_pre_hook(
        lambda _, arguments: rows.append(len(arguments[0].ids))
    )
    (answers,) = answers_of_all(Networks(loaded, MACHINE), [given])
    watched.remove()
    assert list(answers) == taking
    assert sum(rows) == 4  # classify and tag share a row
    for name in taking:
        own = alone(loaded, name)
        (answer,) = answers_of(own.models, own.task, own.encoded([given[name]]), MACHINE)
        assert own.task.label_of(answers[name]) == own.task.label_of(answer)


def test_baselines_include_each_tasks_linear_model(read: JoinedTasks) -> None:
    train, dev = read.splits.train, read.splits.dev
    wide = read.task.fit_wide(train, dev, "mean").wide
    rows = read.task.baselines(train, {"dev": dev}, "mean", wide)
    linear = rows["linear model of each task"]["dev"]
    for name in ("classify", "choice", "span", "marked"):
        member = read.task.member(name)
        fitted = member.task.fit_wide(member.own(train), member.own(dev), member.metric)
        own = member.task.baselines(
            member.own(train), {"dev": member.own(dev)}, member.metric, fitted.wide
        )
        expected = list(own.values())[-1]["dev"]
        assert [linear[place] for place in places_of(dev, name)] == [
            (name, label) for label in expected
        ]
