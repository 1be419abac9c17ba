"""ELECTRA (arXiv 2003.10555): the encoder detects the tokens that a small generator replaced.

Loss = cross-entropy of the generator at the masked positions + 50 · binary cross-entropy over all
tokens. The encoder is the model that is kept. The variant `electra-15` judges 15 % of the tokens.
Others: electra_by_chance.py, replace_mlm.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.objectives.parts.generators import Noised, Replacing, with_generator
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary


class Judgement(nn.Module):
    """Hidden states → logits that a token was replaced: a dense layer, GELU and one number."""

    def __init__(self, encoder: str, width: int) -> None:
        super().__init__()
        self.gelu: str = ENCODERS.get(encoder).gelu
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 1)
        for linear in (self.dense, self.out):
            draw_weights(linear, initial_spread(width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits, one for each state."""
        logits: Tensor = self.out(functional.gelu(self.dense(hidden), approximate=self.gelu))
        return logits.squeeze(-1).float()

    def loss(self, encoder: Encoder, noisy: Noised, judging: Tensor) -> Tensor:
        """The binary cross-entropy of every token (rows, length), 0 where `judging` is not."""
        logits = self(encoder(noisy.batch))
        losses = functional.binary_cross_entropy_with_logits(
            logits, noisy.replaced.float(), reduction="none"
        )
        return losses * judging


@OBJECTIVES.register("electra")
class Electra(Replacing):
    """Owns the generator and the discriminator's head; the encoder, which is the discriminator, is
    passed in.
    """

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape, vocabulary, settings)
        self.judgement = Judgement(encoder, shape.width)
        scale = loss_scale(settings.judgement, settings.mask_rate, len(vocabulary))
        self.weights = {"generator": 1.0 / scale, "discriminator": settings.judgement / scale}

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The numbers of masked tokens and of all tokens, padding left out."""
        return {"generator": corrupted.targets(), "discriminator": corrupted.judged_tokens()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """Both losses, summed over their targets."""
        noisy = self.generator(encoder, corrupted)
        return {
            "generator": noisy.generator_loss(),
            "discriminator": self.judgement.loss(encoder, noisy, corrupted.judging()).sum(),
        }

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step: generator and encoder."""
        rows, length = corrupted.batch.ids.shape
        judging = cost.training(rows * length, 0, length, judged=rows * length)
        return float(self.generator.flops(cost, corrupted)) + judging

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step: the encoder's and the generator's."""
        own = training_bytes(cost, tokens, 0, length, optimiser=settings.optimiser, **mode)
        return with_generator(own, cost, settings, tokens, length, **mode)


@OBJECTIVES.register("electra-15")
class Electra15(Electra):
    """Judges a random 15 % of the tokens, to measure the value of learning from all."""

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with masks, and other tokens drawn alike, to be judged."""
        masked, others = super().corrupt(batch, seed), self.masks.draw(batch, seed + 1)
        judged = torch.zeros_like(batch.ids, dtype=torch.bool).scatter_(
            1, others.picked, others.answers != NONE
        )
        return replace(masked, judged=judged)


def loss_scale(weight: float, rate: float, types: int) -> float:
    """The divisor of both losses, so that their sum starts as large as mlm's, ln(types). The task
    loss then has the same relative weight as with mlm. An untrained generator is nearly always
    wrong, so that the best an untrained discriminator can do is the entropy of the mask rate.
    """
    entropy = -rate * math.log(rate) - (1.0 - rate) * math.log(1.0 - rate)
    return 1.0 + weight * entropy / math.log(types)
