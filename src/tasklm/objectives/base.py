"""The interface of a self-supervised objective: (encoder, batch) → losses.

A loss is a sum and the number of targets it runs over, so that the caller can divide by the targets
of the whole step, however many micro-batches or devices it is spread over. Everything random is
drawn in advance, on the CPU, row by row: neither the split of a batch nor the device changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost
from tasklm.encoders.base import Encoder, Shape
from tasklm.recipe.model_sections import Train
from tasklm.registry import Registry
from tasklm.tokens.batches import TokenBatch, changed_tensors
from tasklm.tokens.masking import NONE, MaskRule, mask_rows, uniform_rows
from tasklm.tokens.tokenizer import Vocabulary


@dataclass
class Corrupted:
    """A batch as the objective will show it, with its targets, known before any computation."""

    batch: TokenBatch
    picked: Tensor  # (rows, places) int64: columns of the tokens to predict
    answers: Tensor  # (rows, places) int64: the original tokens there; NONE where a row has fewer
    # (rows, places) float32 in [0, 1): for what is drawn at these places while computing
    draws: Tensor | None = None
    judged: Tensor | None = None  # (rows, length) bool: the tokens to be judged, where not all are
    firsts: Tensor | None = (
        None  # (rows, places) int64: columns of the [CLS] of pieces in two parts
    )
    # (rows, places) int64: whether the second part follows the first; NONE where a row has fewer
    follows: Tensor | None = None

    def targets(self) -> int:
        """How many tokens are to be predicted."""
        return int((self.answers != NONE).sum())

    def pairs(self) -> int:
        """How many pieces have two parts."""
        if self.follows is None:
            return 0
        return int((self.follows != NONE).sum())

    def judging(self) -> Tensor:
        """Which tokens are to be judged (rows, length): `judged`, or all but padding."""
        if self.judged is None:
            return self.batch.pieces != 0
        return self.judged

    def judged_tokens(self) -> int:
        """How many these are."""
        return int(self.judging().sum())

    def to(self, device: torch.device) -> Corrupted:
        """The batch and its targets on a device."""
        return self._each(
            lambda tensor: tensor.to(device, non_blocking=True), self.batch.to(device)
        )

    def pinned(self) -> Corrupted:
        """The batch and its targets in pinned memory."""
        return self._each(lambda tensor: tensor.pin_memory(), self.batch.pinned())

    def part(self, number: int, parts: int) -> Corrupted:
        """One of `parts` micro-batches, with exactly the targets of the whole."""
        rows = self.batch.rows_of_part(number, parts)
        return self._each(lambda tensor: tensor[rows], self.batch.part(number, parts))

    def first(self, rows: int) -> Corrupted:
        """The first rows, of which there may be fewer."""
        whole = self.batch
        batch = replace(whole, **changed_tensors(whole, lambda tensor: tensor[:rows]))
        return self._each(lambda tensor: tensor[:rows], batch)

    def counted(self) -> Corrupted:
        """The same with the tiles of its batch, or the bounds of its pieces."""
        return replace(self, batch=self.batch.counted())

    def _each(self, change: Callable[[Tensor], Tensor], batch: TokenBatch) -> Corrupted:
        return replace(self, batch=batch, **changed_tensors(self, change))

    def places(self) -> tuple[Tensor, Tensor]:
        """Positions in the flattened batch and the answers there, both (targets,).

        A compiled graph needs one shape for all batches: there the positions without a target stay
        in.
        """
        places, answers, _ = self._flat(self.picked, self.answers, self.answers)
        return places, answers

    def drawn_places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions, answers and random numbers alike."""
        assert self.draws is not None
        return self._flat(self.picked, self.answers, self.draws)

    def first_places(self) -> tuple[Tensor, Tensor]:
        """The positions of [CLS] in pieces of two parts, and the answers there, alike."""
        assert self.firsts is not None and self.follows is not None
        places, answers, _ = self._flat(self.firsts, self.follows, self.follows)
        return places, answers

    def _flat(
        self, columns: Tensor, answers: Tensor, more: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, length = self.batch.ids.shape
        starts = torch.arange(0, rows * length, length, device=columns.device)
        places = (columns + starts[:, None]).flatten()
        answers = answers.flatten()
        more = more.flatten()
        if places.device.type == "cpu" and not torch.compiler.is_compiling():
            real = answers != NONE
            return places[real], answers[real], more[real]
        return places, answers, more


class Masks:
    """Picks tokens and hides them, in one of the ways of `mask_rows`."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        shape: Shape,
        rate: float,
        hide: str,
        whole_words: bool = False,
    ) -> None:
        special = np.zeros(shape.vocabulary, bool)
        special[vocabulary.specials] = True
        continues = vocabulary.continuing() if whole_words else None
        self.rule = MaskRule(
            special, rate, vocabulary.mask, len(vocabulary), hide=hide, continues=continues
        )

    def draw(
        self, batch: TokenBatch, seed: int, draws: bool = False, rate: float | None = None
    ) -> Corrupted:
        """The batch with fresh masks, and with a random number for each place if `draws`; at a
        `rate` lower than the rule's, as many places.
        """
        ids, picked, answers = mask_rows(batch.ids.numpy(), self.rule, seed, rate=rate)
        numbers = None
        if draws:
            numbers = torch.from_numpy(uniform_rows(picked.shape[0], picked.shape[1], seed))
        hidden = replace(batch, ids=torch.from_numpy(ids), targets=None)
        return Corrupted(hidden, torch.from_numpy(picked), torch.from_numpy(answers), numbers)


class Objective(Protocol):
    """A module (it may own heads or networks) that turns text into losses."""

    weights: dict[str, float]  # of its losses, by their names

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with fresh targets; touches no module, because it runs in parallel with
        training.
        """
        ...

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The divisor of each loss."""
        ...

    def __call__(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The losses, summed over their targets."""
        ...

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step with an encoder of this cost."""
        ...

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step on so many tokens."""
        ...


@runtime_checkable
class TwoHalves(Protocol):
    """An objective that changes in the second half of the training.

    `corrupt` gives the same in both halves; `targets`, `__call__` and `flops` follow `second_half`.
    `weights` holds the losses of both.
    """

    second_half: bool

    def begin_second_half(self, encoder: Any) -> str:
        """Switches to the second half with the encoder's weights; returns a message."""
        ...


@runtime_checkable
class AnnealedObjective(Protocol):
    """An objective whose targets change in the course of the training."""

    def corrupt_at(self, batch: TokenBatch, seed: int, progress: float) -> Corrupted:
        """The batch with fresh targets, after `progress` (0 to 1) of the training."""
        ...


@runtime_checkable
class SharedPass(Protocol):
    """An objective whose pass over the text of a task can serve the head of the task too."""

    def losses_and_states(
        self, encoder: Encoder, corrupted: Corrupted, wanted: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The losses, summed over their targets, and the states (wanted, width) of some tokens of
        the flattened batch, as they stand in it.
        """
        ...


HELD_OUT_RATE = 0.15  # of the tokens of held-out text that are predicted


@runtime_checkable
class HeldOutObjective(Protocol):
    """An objective whose loss on text that it never read tells recipes apart.

    Objectives that judge or mend the samples of a generator have none: their losses depend on how
    good that has become.
    """

    def held_out(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with targets, the same for all settings where possible."""
        ...


OBJECTIVES: Registry[Any] = Registry("objective", "tasklm.objectives")
