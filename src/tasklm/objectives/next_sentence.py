"""Next-sentence prediction, BERT's second objective (arXiv 1810.04805): does the second part of a
piece follow the first?
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.encoders.base import Shape
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.errors import RecipeError
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.sentence_pairs import pair_rows
from tasklm.tokens.tokenizer import Vocabulary


class NextSentence(nn.Module):
    """The state of [CLS] → two logits, by BERT's pooler: a dense layer and tanh."""

    def __init__(self, shape: Shape, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(shape.width, shape.width), nn.Linear(shape.width, 2)
        for layer in (self.dense, self.out):
            draw_weights(layer, initial_spread(shape.width))
        self.sep = vocabulary.sep
        self.continues: np.ndarray | None = None
        with suppress(RecipeError):  # a vocabulary without word markers: texts are cut anywhere
            self.continues = vocabulary.continuing()

    def paired(self, batch: TokenBatch, seed: int) -> tuple[TokenBatch, Tensor, Tensor]:
        """The batch with pieces cut in two, half of them swapped, and their [CLS] and answers.

        Both are (rows, places).
        """
        arrays = pair_rows(batch.ids.numpy(), batch.pieces.numpy(), self.sep, self.continues, seed)
        ids, segments, firsts, answers = map(torch.from_numpy, arrays)
        return replace(batch, ids=ids, segments=segments), firsts, answers

    def forward(self, states: Tensor) -> Tensor:
        """Logits (pieces, 2) of FOLLOWS and SWAPPED, from the states (pieces, width) of [CLS]."""
        logits: Tensor = self.out(torch.tanh(self.dense(states)))
        return logits

    def flops(self, pieces: int) -> float:
        """The FLOPs of a forward pass."""
        return 2.0 * pieces * (self.dense.weight.numel() + self.out.weight.numel())
