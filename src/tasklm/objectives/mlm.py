"""Masked language modelling as in BERT: 15 % of the tokens; of these 80 % [MASK], 10 % random, 10 % kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.encoders.weights import draw_weights, initial_spread
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import mask_rows
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("mlm")
class MaskedLanguageModel(nn.Module):
    """Owns the prediction head; its output matrix is the encoder's token embedding."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, mask_rate: float) -> None:
        super().__init__()
        kind = ENCODERS.get(encoder)
        self.gelu: str = kind.gelu
        self.dense = nn.Linear(shape.width, shape.token_width)
        self.norm = nn.LayerNorm(shape.token_width, kind.epsilon)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        draw_weights(self.dense, initial_spread(shape.width))
        self.mask_rate, self.mask, self.types = mask_rate, vocabulary.mask, len(vocabulary)
        self.special = np.zeros(shape.vocabulary, bool)
        self.special[vocabulary.specials] = True

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """Returns the batch with fresh masks; special tokens are never picked, and one token of each row at least is."""
        shown, picked, answers = mask_rows(batch.ids.numpy(), self.special, self.mask_rate, self.mask, self.types, seed)
        return Corrupted(replace(batch, ids=torch.from_numpy(shown), targets=None), torch.from_numpy(picked), torch.from_numpy(answers))

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> Tensor:
        """Returns the cross-entropy summed over the picked tokens; logits exist at these alone."""
        places, answers = corrupted.places()
        hidden = encoder(corrupted.batch, places)  # (targets, width)
        hidden = self.norm(functional.gelu(self.dense(hidden), approximate=self.gelu))
        logits = functional.linear(hidden, encoder.token.weight, self.bias)  # (targets, vocabulary)
        return functional.cross_entropy(logits.float(), answers, reduction="sum")
