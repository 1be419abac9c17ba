"""Masked language modelling as in BERT: 15 % of the tokens; of these 80 % [MASK], 10 % random, 10 % kept."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import Encoder, Shape
from tasklm.encoders.weights import draw_weights, initial_spread
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("mlm")
class MaskedLanguageModel(nn.Module):
    """Owns the prediction head; its output matrix is the encoder's token embedding."""

    def __init__(self, shape: Shape, vocabulary: Vocabulary, mask_rate: float) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.width, shape.width)
        self.norm = nn.LayerNorm(shape.width, 1e-12)
        self.bias = nn.Parameter(torch.zeros(shape.vocabulary))
        draw_weights(self.dense, initial_spread(shape.width))
        self.mask_rate, self.mask, self.types = mask_rate, vocabulary.mask, shape.vocabulary
        self.specials = vocabulary.specials

    def corrupt(self, batch: TokenBatch, generator: torch.Generator) -> Corrupted:
        """Returns the batch with fresh masks; special tokens are never picked, and one token at least is."""
        ids = batch.ids.flatten()
        usable = (~torch.isin(ids, torch.tensor(self.specials, device=ids.device))).nonzero().flatten()
        count = max(1, round(self.mask_rate * len(usable))) if len(usable) else 0
        chance = torch.rand(len(usable), generator=generator).to(ids.device)
        picked = usable[chance.argsort()[:count]].sort().values
        answers = ids[picked]
        draw = torch.rand(count, generator=generator).to(ids.device)
        random_tokens = torch.randint(self.types, (count,), generator=generator).to(ids.device)
        shown = torch.where(draw < 0.8, torch.full_like(answers, self.mask), torch.where(draw < 0.9, random_tokens, answers))
        masked = ids.clone()
        masked[picked] = shown
        return Corrupted(TokenBatch(masked.view_as(batch.ids), batch.pieces, batch.positions), picked, answers)

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> Tensor:
        """Returns the cross-entropy summed over the picked tokens; logits exist at these alone."""
        hidden = encoder(corrupted.batch).flatten(0, 1)[corrupted.picked]  # (targets, width)
        hidden = self.norm(functional.gelu(self.dense(hidden)))
        logits = functional.linear(hidden, encoder.token.weight, self.bias)  # (targets, vocabulary)
        return functional.cross_entropy(logits.float(), corrupted.answers, reduction="sum")
