"""R-Drop in stage 2: two readings of a batch with other dropout, and how far they are apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, kl_divergence
from torch.utils.flop_counter import FlopCounterMode

from tasklm.device.machine import Machine
from tasklm.errors import TrainingError
from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.parsing import values_for_key
from tasklm.run_folder import Seed
from tasklm.storage.files import read_json
from tasklm.tasks.base import NONE, TASKS, Task
from tasklm.tasks.choice import Choice
from tasklm.tasks.classify import Classify
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.several import Several
from tasklm.tasks.tag import Tag
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.stage2 import RDROP, FinetuneStage, divergence
from tasklm.train.stage_runs import BEST, Stage2Plan, run_stage2
from tasklm.train.stages import accumulation, finetune_stage
from tests.train.arms import assert_refused
from tests.train.counting import Counting
from tests.train.test_loop import parts  # noqa: F401
from tests.train.test_resumed import checkpoints, cut_off, stage1
from tests.train.test_teaching import taught_parts

ALPHA = 3.0


def of_classes(one: Tensor, other: Tensor) -> Tensor:
    """Both divergences as torch.distributions compute them, their mean."""
    first, second = Categorical(logits=one), Categorical(logits=other)
    return (kl_divergence(first, second) + kl_divergence(second, first)).sum() / 2


def of_labels(one: Tensor, other: Tensor) -> Tensor:
    first, second = Bernoulli(logits=one), Bernoulli(logits=other)
    return (kl_divergence(first, second) + kl_divergence(second, first)).sum() / 2


def of_words(one: Tensor, other: Tensor) -> Tensor:
    return of_classes(one[WORDS != NONE], other[WORDS != NONE])


def of_options(one: Tensor, other: Tensor) -> Tensor:
    """Of three options, then of two; the last three rows are padding."""
    three, two = (of_classes(*(x.flatten()[i] for x in (one, other))) for i in (ROWS[:3], ROWS[3:]))
    return three + two


ROWS = [0, 1, 2, 3, 4]
WORDS = torch.tensor([[0, 1, NONE, NONE], [2, 2, 1, 0]])
OPTIONS = torch.full((9, 1, 2), NONE)
OPTIONS[:3, 0, 1], OPTIONS[3:6, 0, 1] = 3, 2
OPTIONS[0, 0, 0], OPTIONS[3, 0, 0] = 1, 0
LABELS = torch.tensor([[[1, 0, 1]], [[0, 0, 0]], [[NONE] * 3]])
TEXTS = torch.tensor([[2], [0], [NONE]])
KINDS: dict[str, tuple[Task, tuple[int, ...], Tensor, Callable[[Tensor, Tensor], Tensor]]] = {
    "classify": (
        Classify(["a", "b", "c"]),
        (3, 1, 3),
        TEXTS,
        lambda one, other: of_classes(one[:2], other[:2]),
    ),
    "multilabel": (
        Multilabel(["a", "b", "c"]),
        (3, 1, 3),
        LABELS,
        lambda one, other: of_labels(one[:2], other[:2]),
    ),
    "choice": (Choice(3), (9, 1, 1), OPTIONS, of_options),
    "tag": (Tag(["B-X", "I-X", "O"], "BIO"), (2, 4, 3), WORDS, of_words),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_divergence_is_torchs(kind: str) -> None:
    task, shape, targets, by_torch = KINDS[kind]
    assert not task.incomparable
    draw = torch.Generator().manual_seed(0)
    outputs = [torch.randn(shape, generator=draw, requires_grad=True) for _ in range(2)]
    ours, theirs = divergence(task, *outputs, targets), by_torch(*outputs)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    of_ours, of_theirs = (torch.autograd.grad(loss, outputs) for loss in (ours, theirs))
    for one, other in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    same = divergence(task, outputs[0], outputs[0], targets)
    assert float(same.detach()) == pytest.approx(0.0, abs=1e-6)


def stage_of(context: TrainingContext, **changes: Any) -> FinetuneStage:
    settings = Finetune(**{"batch": 8, "rdrop": ALPHA, "dropout": 0.3, **changes})
    stage = finetune_stage(context, settings, 1, "accuracy", None)
    stage.module.train()
    return stage


@pytest.mark.parametrize("taught", [False, True])
def test_a_step_is_the_mean_of_two_readings(parts: TrainingContext, taught: bool) -> None:
    context = taught_parts(parts, 0.25) if taught else parts
    stage = stage_of(context)
    step = stage.prepare(1)
    batch: Any = step.batch
    weights = {"task": 0.25, "teacher": 0.75} if taught else {"task": 1.0}
    assert step.weights == {**weights, RDROP: ALPHA} and set(step.targets) == set(step.weights)
    torch.manual_seed(5)
    sums = step.compute(batch)
    torch.manual_seed(5)
    first, second = (stage.model(batch.task) for _ in range(2))
    assert not torch.equal(first, second)
    targets = batch.task.targets.flatten()
    for name, wanted in (("task", targets), ("teacher", batch.task.taught)):
        if name not in weights:
            continue
        target = wanted if name == "task" else wanted.softmax(-1).flatten(0, 1)
        of_both = [
            torch.nn.functional.cross_entropy(one.flatten(0, 1), target, reduction="sum")
            for one in (first, second)
        ]
        torch.testing.assert_close(sums[name], (of_both[0] + of_both[1]) / 2)
    torch.testing.assert_close(sums[RDROP], of_classes(first, second), atol=1e-5, rtol=1e-4)


def test_two_readings_are_counted(parts: TrainingContext) -> None:
    step, plain = stage_of(parts).prepare(1), stage_of(parts, rdrop=0.0).prepare(1)
    assert set(plain.weights) == {"task"}
    assert (step.tokens, step.flops) == (2 * plain.tokens, 2 * plain.flops)
    counts = []
    for one in (step, plain):
        with FlopCounterMode(display=False) as counter:
            one.compute(one.batch)["task"].backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == 2 * counts[1] > 0


def test_memory_is_planned_for_two_readings(parts: TrainingContext) -> None:
    class Small(Machine):
        def free_bytes(self) -> float | None:
            return self.memory

    def fewest(rdrop: float) -> int:
        """The memory, in steps of 50 kB, in which a batch needs no micro-batches."""
        for free in range(20, 2000):
            machine = Small(torch.device("cpu"), False, 1, memory=5e4 * free)
            context = dataclasses.replace(parts, machine=machine)
            try:
                if accumulation(context, Finetune(rdrop=rdrop), 64) == 1:
                    return free
            except TrainingError:
                continue  # not even one row fits
        return 0

    assert fewest(ALPHA) > 1.3 * fewest(0.0) > 0


def tuned(folder: Path, context: TrainingContext, number: int = 1) -> dict[str, np.ndarray]:
    """The best weights of a fine-tuning."""
    folder.mkdir(exist_ok=True)
    settings = Finetune(batch=8, learning_rate=3e-3, rdrop=ALPHA)
    seed = Seed(folder.parent, 1, number)
    run_stage2(folder, context, settings, Stage2Plan(4, "accuracy", 0.0, None), seed, SILENT)
    return {name: tensor.numpy() for name, tensor in load_weights(folder / BEST).items()}


def test_a_fine_tuning_that_is_cut_off_ends_the_same(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage1(tmp_path / "stage1", parts)
    straight = tuned(tmp_path / "straight", parts)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        cut_off(patch, FinetuneStage, 9)
        tuned(tmp_path / "cut", parts)
    assert checkpoints(tmp_path / "cut")
    for name, weight in tuned(tmp_path / "cut", parts).items():
        np.testing.assert_array_equal(weight, straight[name])
    curves = [(tmp_path / name / "curve.json").read_bytes() for name in ("straight", "cut")]
    assert curves[0] == curves[1]
    assert read_json(tmp_path / "cut" / "curve.json")[-1][RDROP] > 1e-4


def test_compiled_it_is_one_graph_with_two_readings(parts: TrainingContext) -> None:
    machine = Counting(torch.device("cpu"), False, 1, True)
    stage = stage_of(dataclasses.replace(parts, machine=machine))
    with torch.no_grad():
        for weight in stage.model.head.parameters():
            weight.mul_(50.0)  # outputs of a fresh head hardly differ
    torch._dynamo.reset()
    Counting.graphs.clear()
    for number in range(1, 5):
        step = stage.prepare(number)
        sums = step.compute(step.batch)
        assert float(sums[RDROP].detach()) > 0.1  # dropout is another one
    assert len(Counting.graphs) == 1
    plain = dataclasses.replace(stage.losses, twice=False)
    assert not stage.losses.fits(plain)


def test_the_default_changes_no_key() -> None:
    assert "rdrop" not in values_for_key(Finetune())
    assert values_for_key(Finetune(rdrop=1.0))["rdrop"] == 1.0


def test_every_kind_says_whether_it_can() -> None:
    kinds = {name: TASKS.get(name) for name in TASKS.names()}
    assert all(kinds[name].incomparable for name in ("parse", "regress", "span"))
    crf = Tag(["B-X", "O"], "BIO", crf=True)
    assert "CRF" in crf.incomparable
    tags = KINDS["tag"][0]
    assert not Several({"a": tags}, {"a": "entity_f1"}).incomparable
    both = Several({"a": tags, "b": crf}, {"a": "entity_f1", "b": "entity_f1"})
    assert both.incomparable == f"b: {crf.incomparable}"


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("parse", {}, "places in a text"),
        ("regress", {}, "scores are numbers"),
        ("classify", {"finetune.dropout": "0"}, "both readings are the same"),
    ],
)
def test_what_cannot_is_refused_before_any_work(
    tmp_path: Path, kind: str, changes: dict[str, str], reason: str
) -> None:
    assert_refused(tmp_path, kind, {"finetune.rdrop": "1", **changes}, reason)
