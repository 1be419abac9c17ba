"""One masked pass for both losses on task text in stage 1."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.errors import TrainingError
from tasklm.recipe.model_sections import Train
from tasklm.recipe.parsing import values_for_key
from tasklm.tasks.several import turn_of
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tasklm.train.stages import accumulation, joint_stage
from tests.train.arms import assert_a_cut_changes_nothing, assert_refused
from tests.train.counting import Counting
from tests.train.test_loop import parts, run, same_weights  # noqa: F401
from tests.turn_tasks import turn_tasks

ONE: dict[str, Any] = {"internal_pass": "one", "rho2": 3.0}


def stage_of(context: TrainingContext, **changes: Any) -> JointStage:
    return joint_stage(context, Train(**{**ONE, **changes}), rho1=2, batch=8)


def losses_apart(stage: JointStage, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of both losses on a masked batch, from all states of two passes, by hand."""
    module: Any = stage.module
    text = batch.text
    states = module.encoder(text.batch)
    real = text.answers != NONE
    rows = torch.arange(len(text.picked))[:, None].expand_as(text.picked)
    logits = module.objective.logits(states[rows[real], text.picked[real]], module.encoder.token)
    language = functional.cross_entropy(logits, text.answers[real], reduction="sum")
    again = module.encoder(text.batch)
    places = text.batch.places
    read = again[torch.arange(len(places))[:, None], places]
    head = module.head
    if hasattr(head, "heads"):
        head = head.heads[text.batch.turn]
    task = turn_of(stage.module.task, text.batch.turn)
    return task.loss(head(read), text.batch.targets), language


def test_a_step_has_both_losses_of_the_masked_batch(parts: TrainingContext) -> None:
    stage = stage_of(parts)
    step = stage.prepare(0)
    batch: Any = step.batch
    sums = step.compute(batch)
    task, language = losses_apart(stage, batch)
    torch.testing.assert_close(sums["task"], task)
    torch.testing.assert_close(sums["lm on task"], language)
    assert step.weights == {"task": 1 / 4, "lm on task": 3 / 4}
    total = sum(step.weights[name] * sums[name] / step.targets[name] for name in sums)
    by_hand = (3 * language / batch.text.targets() + task / len(batch)) / (3 + 1)
    of_ours = torch.autograd.grad(total, stage.module.parameters(), materialize_grads=True)
    of_theirs = torch.autograd.grad(by_hand, stage.module.parameters(), materialize_grads=True)
    for ours, theirs in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_the_text_is_that_of_two_passes(parts: TrainingContext) -> None:
    one, two = stage_of(parts), stage_of(parts, internal_pass="two")
    for step in range(7):
        ours, theirs = one.prepare(step), two.prepare(step)
        own: Any = ours.batch
        other: Any = theirs.batch
        assert own.text.batch.ids.equal(other.text.batch.ids)
        assert own.text.answers.equal(other.text.answers)
        assert own.task is None and ours.targets == theirs.targets
        if step % 3 == 0:
            assert own.text.batch.targets.equal(other.task.targets)
            assert 2 * ours.tokens == theirs.tokens
            assert not own.text.batch.ids.equal(other.task.ids)  # the head sees masks
        else:
            assert (ours.tokens, ours.flops) == (theirs.tokens, theirs.flops)


@pytest.fixture(scope="module")
def turns(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> TrainingContext:
    """Tasks of all kinds but choices."""
    names = ("classify", "tag", "span", "parse", "crf", "marked")
    read = turn_tasks(tmp_path_factory.mktemp("turns"), names)
    train = EncodedExamples.of(read.task, read.splits.train, vocabulary, 32)
    shape = Shape(len(vocabulary), 1, 32, 2, 64, 32, dropout=0.0)
    machine = Machine(torch.device("cpu"), False, 1)
    return TrainingContext("bert", shape, read.task, vocabulary, train, train, None, 32, machine)


def test_all_kinds_share_the_pass(turns: TrainingContext) -> None:
    stage, kinds = stage_of(turns), set()
    for number in range(len(stage.internal)):
        step = stage.prepare(number)
        batch: Any = step.batch
        if batch.text.batch.turn in kinds:
            continue
        kinds.add(batch.text.batch.turn)
        sums = step.compute(batch)
        task, language = losses_apart(stage, batch)
        torch.testing.assert_close(sums["task"], task, atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(sums["lm on task"], language, atol=1e-3, rtol=1e-4)
    assert len(kinds) == 5


@pytest.mark.parametrize("passes", ["one", "two"])
def test_flops_are_torchs(parts: TrainingContext, passes: str) -> None:
    step = stage_of(parts, internal_pass=passes).prepare(0)
    batch: Any = step.batch
    for rows in (batch.text.batch, batch.task):
        if rows is not None:
            rows.pieces[:] = 1  # whole rows: no mask, so that the counter knows the kernel
    with (
        FlopCounterMode(display=False) as counter,
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    ):
        losses = step.compute(batch)
        torch.stack([losses[name] for name in step.targets]).sum().backward()
    assert counter.get_total_flops() == pytest.approx(step.flops, rel=1e-9)


def test_memory_is_planned_for_one_pass(parts: TrainingContext) -> None:
    class Small(Machine):
        free = 0.0

        def free_bytes(self) -> float | None:
            return self.free

    machine = Small(torch.device("cpu"), False, 1)
    context = dataclasses.replace(parts, machine=machine)
    fewest = {}
    for name in ("one", "two"):
        settings = Train(internal_pass=name)
        for free in range(1_000_000, 40_000_000, 50_000):
            machine.free = float(free)
            with suppress(TrainingError):  # not even one row fits
                if accumulation(context, settings, 64) == 1:
                    fewest[name] = free
                    break
    assert fewest["one"] < 0.8 * fewest["two"]


def test_micro_batches_change_no_weight(parts: TrainingContext) -> None:
    whole, split = stage_of(parts), stage_of(parts)
    run(whole, None, 6)
    run(split, None, 6, accumulate=3)
    other = split.module.state_dict()
    for name, weight in whole.module.state_dict().items():
        torch.testing.assert_close(other[name], weight, atol=2e-5, rtol=1e-4, msg=name)
    two = stage_of(parts, internal_pass="two")
    run(two, None, 6)
    assert not same_weights(whole, two)


def test_compiled_batches_have_one_shape(parts: TrainingContext) -> None:
    machine = Counting(torch.device("cpu"), False, 1, True)
    stage = stage_of(dataclasses.replace(parts, machine=machine))
    Counting.graphs.clear()
    for number in range(0, 18, 3):
        step = stage.prepare(number)
        batch: Any = step.batch
        sums = step.compute(batch)
        task, language = losses_apart(stage, batch)
        torch.testing.assert_close(sums["task"], task, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(sums["lm on task"], language, atol=1e-4, rtol=1e-4)
    assert len(Counting.graphs) == 1


def test_a_training_that_is_cut_off_ends_the_same(
    parts: TrainingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        settings = Train(**ONE, checkpoint_seconds=0.0, learning_rate=3e-3, dropout=0.1)
        run_stage1(folder, parts, settings, Stage1Plan(13, 2, 8, None), SILENT)

    assert_a_cut_changes_nothing(train, tmp_path, monkeypatch, 8)


def test_the_default_changes_no_key() -> None:
    assert "internal_pass" not in values_for_key(Train())
    assert values_for_key(Train(internal_pass="one"))["internal_pass"] == "one"


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("choice", {}, "reads one option, the task all"),
        ("classify", {"train.objective": "electra"}, "the objective electra"),
        ("classify", {"train.rho2": "0"}, "no masked pass"),
    ],
)
def test_what_cannot_is_refused_before_any_work(
    tmp_path: Path, kind: str, changes: dict[str, str], reason: str
) -> None:
    assert_refused(tmp_path, kind, {"train.internal_pass": "one", **changes}, reason)
