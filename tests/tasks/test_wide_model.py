"""The wide part in a model: added to the network, at the share that dev chooses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.test_linear import ENGLISH, topics
from tests.tasks.wide_samples import MARKED, labelled, task_of

from tasklm.device.machine import set_up
from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.errors import RunError
from tasklm.models import task_model
from tasklm.models.answering import encoded_with
from tasklm.models.task_model import (
    ModelDescription,
    TaskModel,
    answers_of,
    kept_of,
    load_models,
    save_models,
)
from tasklm.recipe.schema import Hardware
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.shares import PARTS, SHARES, _cuts, _is_sure, best_share
from tasklm.train.stages import silenced

KINDS = ("classify", MARKED, "multilabel", "regress", "choice")  # an answer a text


@pytest.mark.parametrize("kind", ["classify", "choice"])
def test_a_model_adds_it_padded_and_packed_alike(
    kind: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    train = labelled(kind, 40, 1)
    task = task_of(kind, train)
    wide = task.fit_wide(train, train[:10], task.metrics[0]).wide
    torch.manual_seed(0)
    shape = Shape(len(vocabulary), 1, 16, 2, 32, 64)
    model = TaskModel(Bert(shape), task.head(16, 0.0), wide=True).eval()
    assert model.wide_scale is not None
    torch.nn.init.constant_(model.wide_scale, 0.5)
    encoded = encoded_with(wide, task, train[:6], vocabulary, 64)
    bare = EncodedExamples.of(task, train[:6], vocabulary, 64)
    groups = np.arange(6)
    padded, packed = encoded.padded(groups), encoded.packed(groups, 2, 256)
    network = TaskModel(model.encoder, model.head)(bare.padded(groups))
    expected = network[:, 0] + 0.5 * torch.from_numpy(wide.outputs(train[:6]))
    torch.testing.assert_close(model(padded)[:, 0], expected)
    in_rows = model(packed)
    units = packed.pieces.max(1).values  # of each row
    filled = torch.arange(in_rows.shape[1]) < units[:, None]
    torch.testing.assert_close(
        in_rows[filled].sort(0)[0], expected.sort(0)[0], atol=1e-5, rtol=1e-4
    )
    save_models(
        tmp_path / "model", ModelDescription("bert", shape, task, vocabulary, 64), [model], {}, wide
    )
    loaded = load_models(tmp_path / "model", torch.device("cpu"))
    torch.testing.assert_close(
        loaded.models[0](loaded.encoded(train[:6]).padded(groups))[:, 0],
        expected,
        atol=1e-5,
        rtol=1e-4,
    )


def with_network(kind: str, vocabulary: Vocabulary) -> tuple[Task, list[Example], Wide, TaskModel]:
    """A task, its examples, their wide part, and a model with drawn weights."""
    train = labelled(kind, 60, 1)
    task = task_of(kind, train)
    fitted = task.fit_wide(train, train, task.metrics[0])
    assert fitted is not None
    torch.manual_seed(0)
    encoder = Bert(Shape(len(vocabulary), 1, 16, 2, 32, 32))
    return (
        task,
        train,
        fitted.wide,
        TaskModel(encoder, task.head(16, 0.0, encoder.normed_heads), True).eval(),
    )


def test_a_share_of_the_network_is_folded_into_its_head(vocabulary: Vocabulary) -> None:
    task, train, wide, model = with_network("classify", vocabulary)
    machine = set_up(Hardware(device="cpu", precision="fp32"))
    examples = encoded_with(wide, task, train[:9], vocabulary, 32)
    outputs = np.stack(kept_of([model], task, examples, machine))
    model.load_state_dict(model.shared((0.25,)))
    expected = 0.75 * wide.outputs(train[:9]) + 0.25 * outputs
    np.testing.assert_allclose(
        np.stack(kept_of([model], task, examples, machine)), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", [*KINDS, "tag", "span"])
def test_a_silent_network_is_not_run_and_its_answers_are_the_same(
    kind: str, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, train, wide, model = with_network(kind, vocabulary)
    machine = set_up(Hardware(device="cpu", precision="fp32"))
    examples = encoded_with(wide, task, train, vocabulary, 32)
    silenced(model.head)
    with monkeypatch.context() as patched:
        patched.setattr(task_model, "_pass_of", lambda own: own)
        expected = answers_of([model], task, examples, machine)
    passes: list[int] = []
    model.encoder.register_forward_pre_hook(lambda *given: passes.append(1))
    assert answers_of([model], task, examples, machine) == expected and not passes
    torch.nn.init.normal_(model.head.out.bias)
    answers_of([model], task, examples, machine)
    assert passes


@pytest.mark.parametrize("kind", [*KINDS, "tag", "span"])
def test_the_share_with_the_least_loss_is_taken(kind: str, vocabulary: Vocabulary) -> None:
    task, train, wide, model = with_network(kind, vocabulary)
    machine = set_up(Hardware(device="cpu", precision="fp32"))
    examples = encoded_with(wide, task, train, vocabulary, 32)
    outputs = kept_of([model], task, examples, machine, keep=np.copy)
    mixed = best_share(task, examples, outputs, 1.0)
    losses = {}
    for tried in SHARES:
        other = TaskModel(model.encoder, task.head(16, 0.0, False), True).eval()
        other.load_state_dict(model.shared((tried,)))
        sums = [
            (float(task.loss(other(rows), rows.targets).detach()), task.count(rows.targets))
            for _, rows in examples.in_order(8)
        ]
        losses[tried] = sum(total for total, _ in sums) / sum(count for _, count in sums)
    assert mixed.shares == (min(losses, key=lambda one: losses[one]),)
    assert mixed.loss == pytest.approx(losses[mixed.shares[0]], rel=1e-4)


def test_a_gain_counts_where_chance_would_not_have_it() -> None:
    draw = np.random.default_rng(1)
    noise = draw.normal(0, 1, 50)
    noise -= noise.mean()
    error = noise.std(ddof=1) / np.sqrt(50)
    assert not _is_sure(noise + 1.6 * error) and _is_sure(
        noise + 1.7 * error
    )  # as a one-sided t-test at 5 % has it
    assert (
        not _is_sure(noise - 3 * error) and not _is_sure(np.zeros(50)) and not _is_sure(np.zeros(0))
    )
    assert _is_sure(np.array([0.1])) and not _is_sure(np.array([-0.1]))


def test_parts_of_dev_end_where_examples_end() -> None:
    assert _cuts(np.arange(1, 8), 1) == [1, 2, 3, 4, 5, 6, 7]
    cuts = _cuts(np.arange(1, 301), 3)
    assert len(cuts) == PARTS and cuts[-1] == 300 and all(cut % 3 == 0 for cut in cuts)
    assert _cuts(np.array([4, 5, 9]), 1) == [4, 5, 9]


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_says_what_is_right_gains_and_one_that_is_silent_does_not(
    kind: str, vocabulary: Vocabulary
) -> None:
    task, train, wide, _ = with_network(kind, vocabulary)
    examples = encoded_with(wide, task, train, vocabulary, 32)
    silent = [np.array(unit.added(), np.float64) for unit in examples.units]
    assert not best_share(task, examples, silent, 1.0).gains
    targets = torch.split(examples.targets()[0], [len(unit.places) for unit in examples.units])
    helped = []
    for number, rows in enumerate(silent):
        own = torch.tensor(rows, requires_grad=True)
        group = slice(
            number // task.together * task.together, (number // task.together + 1) * task.together
        )
        others = [
            own if place == number else torch.tensor(silent[place]) for place in range(len(silent))
        ][group]
        task.loss(torch.cat(others)[None], torch.cat(targets[group])[None]).backward()
        assert own.grad is not None
        helped.append(rows - 3 * own.grad.numpy())
    assert best_share(task, examples, helped, 1.0).gains


def test_a_wide_part_of_another_task_is_refused(vocabulary: Vocabulary, tmp_path: Path) -> None:
    three = labelled("classify", 60, 1)
    two = topics(60, 1, {name: ENGLISH[name] for name in ("food", "law")})
    task, other = task_of("classify", three), task_of("classify", two)
    wide = other.fit_wide(two, two[:20], "macro_f1").wide
    shape = Shape(len(vocabulary), 1, 16, 2, 32, 64)
    save_models(
        tmp_path,
        ModelDescription("bert", shape, task, vocabulary, 64),
        [TaskModel(Bert(shape), task.head(16, 0.0), wide=True)],
        {},
        wide,
    )
    with pytest.raises(RunError, match="the wide part has 2 outputs, which does not match"):
        load_models(tmp_path, torch.device("cpu"))
