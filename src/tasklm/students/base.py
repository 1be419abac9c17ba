"""The interface of a student of raw text: (model, unlabelled batch, targets) → named losses.

The primary module, which is the model as it predicts, labels a batch of text without dropout and
without gradient. The student, which sees less of the text or sees it with noise, learns to agree
with it. As with objectives, a loss is a sum, and the number of its targets is known before any
computation.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.encoders.base import Encoder
from tasklm.models.task_model import TaskModel
from tasklm.recipe.model_sections import Finetune
from tasklm.registry import Registry
from tasklm.tasks.base import Unit
from tasklm.tasks.consistency.base import Consistency
from tasklm.tasks.consistency.writing import WritingConsistency
from tasklm.tasks.heads.decoders import DecoderHead
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@dataclass
class RawBatch:
    """A batch of text as the primary module and the student read it."""

    text: TokenBatch  # as it is
    holds: Tensor  # (rows, answers) bool: which answers are of a word or text
    masks: dict[str, Tensor] = field(default_factory=dict)  # by loss: the answers it is taken over
    others: tuple[TokenBatch, ...] = ()  # the same rows as the student reads them
    counted: bool = False  # whether the device gets tiles or the bounds of pieces

    def __len__(self) -> int:
        return len(self.text.ids)

    def targets(self) -> dict[str, int]:
        """The divisor of each loss."""
        return {name: int(mask.sum()) for name, mask in self.masks.items()}

    def part(self, number: int, parts: int) -> RawBatch:
        """One of `parts` micro-batches."""
        rows = self.text.rows_of_part(number, parts)
        return self._each(lambda tensor: tensor[rows], lambda batch: batch.part(number, parts))

    def to(self, device: torch.device) -> RawBatch:
        """The same on a device, with its tiles or the bounds of its pieces where it has them."""

        def move(batch: TokenBatch) -> TokenBatch:
            if self.counted:
                batch = batch.counted()
            return batch.to(device)

        return self._each(lambda tensor: tensor.to(device, non_blocking=True), move)

    def pinned(self) -> RawBatch:
        """The same in pinned memory."""
        return self._each(lambda tensor: tensor.pin_memory(), lambda batch: batch.pinned())

    def _each(
        self, change: Callable[[Tensor], Tensor], change_batch: Callable[[TokenBatch], TokenBatch]
    ) -> RawBatch:
        return replace(
            self,
            text=change_batch(self.text),
            holds=change(self.holds),
            masks={name: change(mask) for name, mask in self.masks.items()},
            others=tuple(change_batch(batch) for batch in self.others),
        )


@dataclass(frozen=True)
class Classroom:
    """What a student is made for: the task, the vocabulary and the settings of stage 2."""

    consistency: Consistency
    vocabulary: Vocabulary
    settings: Finetune


class Student(nn.Module, abc.ABC):
    """Turns text without labels into losses; it may own modules that only training needs."""

    def __init__(self, room: Classroom, encoder: Encoder) -> None:
        super().__init__()
        self.room = room

    @property
    def consistency(self) -> Consistency:
        """How the task learns from text without labels."""
        return self.room.consistency

    @abc.abstractmethod
    def prepare(self, batch: TokenBatch, seed: int) -> RawBatch:
        """The batch as the student will read it; touches no weights, because it runs in parallel
        with training.
        """

    def search(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, machine: Machine
    ) -> Tensor | None:
        """What has to be computed without dropout before the student learns; mostly nothing."""
        return None

    @abc.abstractmethod
    def forward(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The losses, summed over the answers of their masks; `noise` is what `search` gave."""

    @abc.abstractmethod
    def flops(self, cost: EncoderCost, head: Any, raw: RawBatch) -> float:
        """The FLOPs of a step with an encoder of this cost, the primary's pass included."""


def text_holds(consistency: Consistency, batch: TokenBatch) -> Tensor:
    """Which answers of a batch of text are of a word or text (rows, answers)."""
    assert batch.lasts is not None and batch.places is not None
    columns = batch.positions.gather(1, batch.places)
    return consistency.holds(batch.lasts >= 0, columns)


def with_lasts(units: Sequence[Unit]) -> None:
    """Notes in each unit of some text where the words at its places end: before the next, and the
    last one before [SEP].
    """
    for unit in units:
        after = [*unit.places[1:], len(unit.tokens) - 1]
        unit.lasts = [place - 1 for place in after]


def noisy_outputs(model: TaskModel, embedded: Tensor, batch: TokenBatch) -> Tensor:
    """The outputs of a model on embedded tokens, its wide part included."""
    assert batch.places is not None
    encoder: Any = model.encoder
    states = encoder.contextualise(embedded, batch, batch.flat_places())
    outputs = model.head(states.view(*batch.places.shape, -1))
    return model.with_wide(outputs, batch)


def pass_flops(cost: EncoderCost, head: float, batch: TokenBatch, places: Tensor) -> float:
    """The FLOPs of a forward pass of the encoder and of heads on a batch."""
    rows, length = batch.ids.shape
    trained = cost.training(rows * length, 0, length, wanted=places.numel(), task_head=head)
    return trained / 3  # the backward pass costs two forward passes


def reading_flops(cost: EncoderCost, head: Any, batch: TokenBatch, texts: int = 1) -> float:
    """The FLOPs of a forward pass of encoder and head; a decoder's are of so many texts for each
    source, as long as it.
    """
    if isinstance(head, DecoderHead):
        rows, length = batch.ids.shape
        written = head.flops_of(texts * rows, length, length, cost.vocabulary)
        return pass_flops(cost, written, batch, batch.ids)
    assert batch.places is not None
    return pass_flops(cost, head.flops(*batch.places.shape), batch, batch.places)


def answering_flops(
    cost: EncoderCost, head: Any, batch: TokenBatch, consistency: Consistency
) -> float:
    """The FLOPs in which the primary module answers; a decoder searches with a beam."""
    texts = consistency.search.beam if isinstance(consistency, WritingConsistency) else 1
    return reading_flops(cost, head, batch, texts)


STUDENTS: Registry[type[Student]] = Registry("student of raw text", "tasklm.students")
WRITING_STUDENTS: Registry[type[Student]] = Registry(
    "student of raw text of kinds that write", "tasklm.students"
)


def student_class(name: str, consistency: Consistency) -> type[Student]:
    """The named student of a task; raises RecipeError, with those it has, for any other."""
    if isinstance(consistency, WritingConsistency):
        return WRITING_STUDENTS.get(name)
    return STUDENTS.get(name)
