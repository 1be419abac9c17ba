"""Word dropout: the model itself, on a text that lacks some words, learns to agree with its answers
to the whole text (the baseline of cross-view training, arXiv 1809.08370, section 4.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import Encoder
from tasklm.models.task_model import TaskModel
from tasklm.students.base import (
    STUDENTS,
    WRITING_STUDENTS,
    Classroom,
    RawBatch,
    Student,
    answering_flops,
    reading_flops,
    text_holds,
)
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import uniform_rows

NAME = "word-dropout"


@STUDENTS.register(NAME)
@WRITING_STUDENTS.register(NAME)
class WordDropout(Student):
    """Hides words behind [MASK], all tokens of a word or none."""

    def __init__(self, room: Classroom, encoder: Encoder) -> None:
        super().__init__(room, encoder)
        vocabulary = room.vocabulary
        types = encoder.shape.vocabulary
        self.special: NDArray[np.bool_] = np.zeros(types, bool)
        self.special[vocabulary.specials] = True
        self.continues: NDArray[np.bool_] = np.zeros(types, bool)
        if not room.consistency.of_words:
            marked = vocabulary.continuing(
                f"finetune.unlabelled = {NAME}", "choose another student"
            )
            self.continues[: len(marked)] = marked

    def prepare(self, batch: TokenBatch, seed: int) -> RawBatch:
        """The batch, and the same with some words hidden."""
        holds = text_holds(self.consistency, batch)
        ids = torch.from_numpy(self.without_words(batch, seed))
        return RawBatch(batch, holds, {NAME: holds}, (replace(batch, ids=ids),))

    def without_words(self, batch: TokenBatch, seed: int) -> NDArray[np.int64]:
        """The ids with [MASK] for every token of the words drawn by the seed."""
        ids = batch.ids.numpy()
        drawn = uniform_rows(len(ids), ids.shape[1], seed) < self.room.settings.word_dropout
        columns = np.arange(ids.shape[1])
        begins = np.where(self._begins(batch), columns, 0)
        drawn = np.take_along_axis(drawn, np.maximum.accumulate(begins, axis=1), axis=1)
        hidden: NDArray[np.int64] = np.where(
            drawn & ~self.special[ids], self.room.vocabulary.mask, ids
        )
        return hidden

    def _begins(self, batch: TokenBatch) -> NDArray[np.bool_]:
        """Whether a word begins at each token: at the places of words, or by the vocabulary."""
        ids = batch.ids.numpy()
        begins: NDArray[np.bool_] = self.special[ids]
        if not self.consistency.of_words:
            begins |= ~self.continues[ids]
            return begins
        assert batch.places is not None and batch.lasts is not None
        rows, places = np.nonzero(batch.lasts.numpy() >= 0)
        begins[rows, batch.places.numpy()[rows, places]] = True
        return begins

    def forward(
        self, model: TaskModel, raw: RawBatch, targets: Tensor, noise: Tensor | None
    ) -> dict[str, Tensor]:
        """The divergence of the model's answers to the text that lacks words."""
        (batch,) = raw.others
        batch = replace(batch, targets=targets)  # a decoder reads the tokens before each
        loss = self.consistency.divergence(model(batch), targets, raw.masks[NAME])
        return {NAME: loss}

    def flops(self, cost: EncoderCost, head: Any, raw: RawBatch) -> float:
        """What the primary takes to answer, and a pass to learn from."""
        learning = 3 * reading_flops(cost, head, raw.text)
        return answering_flops(cost, head, raw.text, self.consistency) + learning
