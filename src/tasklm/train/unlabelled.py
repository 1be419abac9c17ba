"""Text without labels in stage 2: the primary module labels it, and a student learns from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.models.task_model import TaskModel
from tasklm.students.base import RawBatch, Student
from tasklm.tasks.consistency.writing import WritingConsistency
from tasklm.tasks.heads.decoders import write
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.example_streams import ExampleStream
from tasklm.train.steps import Step, step_seed


class Studying(nn.Module):
    """All that is trained: the model, and the student's own modules, which are dropped later."""

    def __init__(self, model: TaskModel, student: Student) -> None:
        super().__init__()
        self.model, self.student = model, student


@dataclass(eq=False)
class RawLosses:
    """The losses of a student on text; passes are compiled for its module, as those of a task."""

    module: Studying
    dropout: float  # rate while it learns

    _teach: Callable[[TokenBatch, Tensor], Tensor] | None = field(default=None, init=False)
    _learn: Callable[[RawBatch, Tensor, Tensor | None], dict[str, Tensor]] | None = field(
        default=None, init=False
    )

    def sums(self, raw: RawBatch, machine: Machine) -> dict[str, Tensor]:
        """The losses on a batch of a machine's device, summed over their targets."""
        if self._teach is None or self._learn is None:
            # each pass has the module in one mode and with one rate of dropout, always
            self._teach = machine.compiled(self._targets, False)
            self._learn = machine.compiled(self._losses, False)
        model, student = self.module.model, self.module.student
        self.module.eval()
        with torch.no_grad():
            targets = self._answers(raw)
        noise = student.search(model, raw, targets, machine)
        self.module.train()
        with dropout_rate(self.module, self.dropout):
            return self._learn(raw, targets, noise)

    def _answers(self, raw: RawBatch) -> Tensor:
        """The answers of the primary module as targets. What it writes is found step by step."""
        assert self._teach is not None
        model, student = self.module.model, self.module.student
        consistency = student.consistency
        if not isinstance(consistency, WritingConsistency):
            return self._teach(raw.text, raw.holds)
        written = write([model], consistency.search, student.room.vocabulary, raw.text)
        return consistency.targets(written, raw.holds)

    def _targets(self, text: TokenBatch, holds: Tensor) -> Tensor:
        return self.module.student.consistency.targets(self.module.model(text), holds)

    def _losses(self, raw: RawBatch, targets: Tensor, noise: Tensor | None) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self.module.student(self.module.model, raw, targets, noise)
        return losses

    def fits(self, other: RawLosses) -> bool:
        """Whether the same compiled passes compute both."""
        own, their = self.module.student, other.module.student
        return type(own) is type(their) and own.room.settings == their.room.settings


@dataclass(frozen=True)
class Alternation:
    """Which steps of a fine-tuning, counted from 1, have labelled batches: the first ones, and then
    every second one, which a batch of text follows.
    """

    alone: int | None  # labelled batches before the first of text; None: no text is read

    def is_text(self, step: int) -> bool:
        """Whether a step is on text without labels."""
        return self.alone is not None and step > self.alone and (step - self.alone) % 2 == 0

    def steps(self, labelled: int) -> int:
        """The steps of so many labelled batches and the text that follows them."""
        if self.alone is None:
            return labelled
        return labelled + max(0, labelled - self.alone)

    def labelled(self, step: int) -> int:
        """The labelled batches up to a step."""
        if self.alone is None or step <= self.alone:
            return step
        return self.alone + -(-(step - self.alone) // 2)


LABELS_ALONE = Alternation(None)


@dataclass(eq=False)
class RawText:
    """The text without labels of a fine-tuning, in batches."""

    losses: RawLosses
    stream: ExampleStream
    machine: Machine
    cost: EncoderCost
    seed: int

    def prepare(self, step: int) -> Step:
        """The one batch of a step; its position is that of the text alone."""
        student = self.losses.module.student
        raw = student.prepare(self.stream.next(), step_seed(self.seed, step))
        raw.counted = self.machine.counts_pieces(raw.text)
        targets = raw.targets()
        return Step(
            batch=raw,
            compute=self._compute,
            targets=targets,
            weights=dict.fromkeys(targets, 1.0),
            tokens=raw.text.ids.numel(),
            flops=student.flops(self.cost, self.losses.module.model.head, raw),
            position=self.stream.state(),
        )

    def _compute(self, raw: RawBatch) -> dict[str, Tensor]:
        return self.losses.sums(raw, self.machine)


@contextmanager
def dropout_rate(module: nn.Module, rate: float) -> Iterator[None]:
    """A context in which all dropout of a module has a rate."""
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Dropout)]
    usual = [layer.p for layer in layers]
    for layer in layers:
        layer.p = rate
    try:
        yield
    finally:
        for layer, own in zip(layers, usual, strict=True):
            layer.p = own
