"""What modules of cross-view training have in common is computed once, the rest not at all."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tasklm.device.machine import set_up
from tasklm.encoders.layers.characters import character_flops
from tasklm.models.task_model import TaskModel, cost_of, new_encoder
from tasklm.models.weights import load_weights, save_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.schema import Hardware
from tasklm.run_folder import Seed
from tasklm.students.base import RawBatch
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stage_runs import BEST, Stage2Plan, run_stage2
from tests.conftest import sentences
from tests.objectives.test_bilm import products
from tests.students.samples import TASKS, batch_of, model_of, raw_examples, student_of
from tests.train.test_resumed import cut_off

ENCODERS = ["bilstm", "bert"]
CASES = [
    ("tag", ()),
    ("tag", ("full",)),
    ("tag", ("future",)),
    ("tag", ("full", "forward")),
    ("crf", ()),
    ("parse", ()),
    ("parse", ("full",)),
    ("parse", ("forward-backward",)),
    ("classify", ()),
    ("classify", ("full", "second half")),
    ("classify", ("first half",)),
]


def lesson(
    kind: str, views: tuple[str, ...], vocabulary: Vocabulary, encoder: str
) -> tuple[Any, Any, RawBatch]:
    task = TASKS[kind]
    model = model_of(task, vocabulary, encoder)
    student = student_of("cross-view", task, vocabulary, model, views=views)
    return student.eval(), model, student.prepare(batch_of(task, vocabulary), 1)


def states_apart(model: Any, raw: RawBatch) -> dict[str, Tensor]:
    """Every state that there is, each by a pass of its own."""
    batch, rows = raw.text, len(raw.text.ids)
    assert batch.lasts is not None
    begins = batch.flat_places()
    ends = dataclasses.replace(batch, places=batch.lasts.clamp(min=0)).flat_places()
    states = {"whole": model.encoder(batch, begins)}
    if raw.others:
        states["first half"], states["second half"] = (
            model.encoder(half, begins) for half in raw.others
        )
    else:
        states["forward"], _ = model.encoder.views(batch, ends, begins)
        _, states["backward"] = model.encoder.views(batch, ends, begins)
    placed = {name: one.view(rows, -1, one.shape[-1]) for name, one in states.items()}
    if not raw.others:
        placed["future"] = placed["forward"].roll(1, 1)
        placed["past"] = placed["backward"].roll(-1, 1)
    return placed


def gradients(model: Any, losses: dict[str, Tensor]) -> list[Tensor | None]:
    model.zero_grad()
    torch.stack(list(losses.values())).sum().backward()
    return [weight.grad for weight in model.encoder.parameters()]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(("kind", "views"), CASES)
def test_losses_and_gradients_are_those_of_passes_apart(
    vocabulary: Vocabulary, kind: str, views: tuple[str, ...], encoder: str
) -> None:
    student, model, raw = lesson(kind, views, vocabulary, encoder)
    with torch.no_grad():
        targets = student.consistency.targets(model(raw.text), raw.holds)
    losses = student(model, raw, targets, None)
    together = gradients(model, losses)
    apart, states = {}, states_apart(model, raw)
    for name, module in student.modules_by_name().items():
        outputs = module(*[states[state] for state in module.reads])
        mask = raw.masks[f"{name} view"]
        apart[f"{name} view"] = student.consistency.auxiliary_divergence(
            name, outputs, targets, mask
        )
    assert list(losses) == list(apart)
    for name, loss in losses.items():
        assert float(loss.detach()) > 0
        torch.testing.assert_close(loss, apart[name])
    for one, other in zip(together, gradients(model, apart), strict=True):
        expected = torch.zeros(()) if other is None else other
        given = torch.zeros_like(expected) if one is None else one
        torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "views", "calls"),
    [
        ("tag", (), (1, 1, 1)),
        ("tag", ("full",), (1, 1, 1)),
        ("tag", ("forward", "past"), (1, 1, 0)),
        ("parse", (), (1, 1, 1)),
        ("parse", ("backward-backward",), (1, 1, 0)),
        ("classify", (), (3, 3, 3)),
        ("classify", ("first half",), (1, 1, 1)),
    ],
)
def test_a_bilstm_computes_each_layer_once_and_only_where_it_is_read(
    vocabulary: Vocabulary, kind: str, views: tuple[str, ...], calls: tuple[int, int, int]
) -> None:
    student, model, raw = lesson(kind, views, vocabulary, "bilstm")
    counts: Counter[str] = Counter()
    parts = {"characters": model.encoder.characters, "first": model.encoder.layers[0]}
    for name, module in {**parts, "second": model.encoder.layers[1]}.items():
        module.register_forward_hook(lambda *_, name=name: counts.update([name]))
    student._states(model, raw)
    assert (counts["characters"], counts["first"], counts["second"]) == calls


def test_the_views_of_a_bilstm_share_the_dropout_of_its_first_layer(
    vocabulary: Vocabulary,
) -> None:
    _, model, raw = lesson("tag", (), vocabulary, "bilstm")
    encoder: Any = model.encoder
    encoder.dropout.p = 0.5
    encoder.train()
    read: list[Tensor] = []
    encoder.layers[1].register_forward_hook(lambda _, given, __: read.append(given[0]))
    words = raw.text.flat_places()[raw.holds.flatten()]
    _, forward, backward = encoder.whole_and_views(raw.text, words, words, words)
    assert 0.3 < float((forward == 0).float().mean()) < 0.7
    assert torch.equal(torch.cat((forward, backward), -1), read[0].flatten(0, 1)[words])


@pytest.mark.parametrize("encoder", ["bilstm", "bert", "modern", "albert"])
@pytest.mark.parametrize(("kind", "views"), [case for case in CASES if case[0] != "crf"])
def test_flops_are_torchs(
    vocabulary: Vocabulary, kind: str, views: tuple[str, ...], encoder: str
) -> None:
    student, model, raw = lesson(kind, views, vocabulary, encoder)
    batch = raw.text
    for text in (batch, *raw.others):
        text.pieces[:] = 1  # whole rows: no mask, so that the counter knows the kernel
    cost = cost_of(encoder, model.encoder.shape)
    mapping = {torch.ops.tasklm.recurrence: products}
    with (
        FlopCounterMode(display=False, custom_mapping=mapping) as primary,
        torch.no_grad(),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        targets = student.consistency.targets(model(batch), raw.holds)
    with (
        FlopCounterMode(display=False, custom_mapping=mapping) as learning,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        student(model, raw, targets, None)
    spelt = [batch]  # a CPU spells each kind of token once
    if encoder == "bilstm":
        read = {"whole": batch} | dict(zip(("first half", "second half"), raw.others, strict=False))
        others = [text for name, text in read.items() if name in student.read]
        spelt += others or [batch]
    unspelt = [
        character_flops() * (text.ids.numel() - len(text.ids.unique())) * (encoder == "bilstm")
        for text in spelt
    ]
    counted = primary.get_total_flops() + unspelt[0]
    counted += 3 * (learning.get_total_flops() + sum(unspelt[1:]))
    assert counted == student.flops(cost, model.head, raw)


@pytest.fixture
def tagging(vocabulary: Vocabulary) -> TrainingContext:
    """A Bi-LSTM that tags, with text without labels."""
    task = TASKS["tag"]
    words = [text.split() for text in sentences(20)]
    examples = [
        Example((" ".join(own),), ["abc"[len(word) % 3] for word in own], words=tuple(own))
        for own in words
    ]
    encoded = EncodedExamples.of(task, examples, vocabulary, 32)
    model = model_of(task, vocabulary, "bilstm")
    shape: Any = model.encoder.shape
    machine = set_up(Hardware(device="cpu", precision="fp32", threads=1))
    raw = raw_examples(task, vocabulary, 12)
    return TrainingContext(
        "bilstm", shape, task, vocabulary, encoded, encoded, None, 32, machine, raw=raw
    )


def tune(folder: Path, context: TrainingContext) -> dict[str, Tensor]:
    folder.mkdir(parents=True, exist_ok=True)
    settings = Finetune(batch=8, learning_rate=3e-3, unlabelled="cross-view", dropout=0.3)
    plan = Stage2Plan(2, "accuracy", 0.0, None)
    run_stage2(folder, context, settings, plan, Seed(folder.parent, 1, 1), SILENT)
    return load_weights(folder / BEST)


def test_a_bilstm_that_was_cut_off_ends_the_same(
    tagging: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stage1").mkdir()
    first = TaskModel(new_encoder("bilstm", tagging.shape, tagging.vocabulary), nn.Identity())
    save_weights(tmp_path / "stage1" / "model.safetensors", first.state_dict())
    straight = tune(tmp_path / "straight", tagging)
    for step in (3, 8):  # before either sort of step
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            cut_off(patch, FinetuneStage, step)
            tune(tmp_path / "cut", tagging)
    resumed = tune(tmp_path / "cut", tagging)
    assert all(torch.equal(resumed[name], weight) for name, weight in straight.items())
