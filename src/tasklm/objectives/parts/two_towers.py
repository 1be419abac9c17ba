"""The noise of Electric: two small networks, one reads to the right and one to the left, predict
every token from both sides.

q(x_t | context) = softmax(head([h→_{t−1}, h←_{t+1}])), a cloze model as in *Cloze-driven
Pretraining of Self-attention Networks* (arXiv 1903.07785). It needs no masks and so gives q for all
tokens of a text in one pass. Both networks read the encoder's embeddings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.objectives.base import Corrupted
from tasklm.objectives.parts.generators import Noised, generator_cost, noised, sample
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.tokens.batches import TokenBatch


def states_beside(right: Any, left: Any, embedded: Tensor, batch: TokenBatch) -> Tensor:
    """What two encoders, one of each direction, know of each token without itself (rows · length,
    2 · width): the state to the right of the token before it, and the state to the left of the one
    after it; zeros at a row's ends.
    """
    before = right.contextualise(embedded, replace(batch, direction=1))
    after = left.contextualise(embedded, replace(batch, direction=-1))
    nothing = torch.zeros_like(before[:, :1])
    both = (torch.cat((nothing, before[:, :-1]), 1), torch.cat((after[:, 1:], nothing), 1))
    return torch.cat(both, -1).flatten(0, 1)


class TwoTowers(nn.Module):
    """A generator whose samples need no [MASK]: what it reads at a place is its context alone."""

    def __init__(self, encoder: str, shape: Shape, types: int, temperature: float) -> None:
        super().__init__()
        self.right, self.left = (ENCODERS.get(encoder)(shape, tables=False) for _ in range(2))
        self.prediction = TokenPrediction(
            encoder, replace(shape, width=2 * shape.width, embedding=shape.token_width)
        )
        self.types, self.temperature = types, temperature

    def states(self, encoder: Encoder, batch: TokenBatch) -> Tensor:
        """What is known of each token without itself (rows · length, 2 · width)."""
        return states_beside(self.right, self.left, encoder.embed(batch), batch)

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> Noised:
        """The batch with a sample in every picked place."""
        places, answers, draws = corrupted.drawn_places()
        chosen = self.states(encoder, corrupted.batch)[places]
        logits = self.prediction.logits(chosen, encoder.token).float()
        sampled = sample(logits.detach()[:, : self.types] / self.temperature, draws)
        noisy = noised(corrupted.batch, places, answers, sampled)
        return replace(noisy, states=chosen, logits=logits)

    def log_probabilities(self, encoder: Encoder, batch: TokenBatch) -> Tensor:
        """log q of every token (rows, length), without a gradient: a constant of the loss."""
        with torch.no_grad():
            logits = self.prediction.logits(self.states(encoder, batch), encoder.token).float()
            log_q = (logits[:, : self.types] / self.temperature).log_softmax(-1)
            return log_q.gather(1, batch.ids.flatten()[:, None]).view(batch.ids.shape)

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step, beside an encoder of this cost."""
        (rows, length), (tower, per_target) = corrupted.batch.ids.shape, self._costs(cost)
        return 2 * tower.training(rows * length, 0, length) + 3.0 * corrupted.targets() * per_target

    def log_probability_flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """Those of the probabilities of all tokens, which have no backward pass."""
        (rows, length), (tower, per_target) = corrupted.batch.ids.shape, self._costs(cost)
        return rows * length * (2 * tower.forward_per_token(length) + per_target)

    def _costs(self, cost: EncoderCost) -> tuple[EncoderCost, float]:
        """The cost of one tower, and the FLOPs of predicting one token from both."""
        tower = generator_cost(cost, self.right.shape)
        both = replace(tower, width=2 * tower.width, embedding=tower.embedding_width)
        return tower, both.forward_per_target()
