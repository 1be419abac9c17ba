"""ELECTRA without a generator (Clark's thesis, section 5.3.2): tokens are replaced at random.
`electra-unigram` replaces them in proportion to their frequency, `electra-uniform` by all tokens
equally.
"""

from __future__ import annotations

from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import Encoder, Shape
from tasklm.objectives.base import OBJECTIVES, Corrupted, Masks
from tasklm.objectives.electra import Judgement, loss_scale
from tasklm.objectives.parts.generators import noised
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


class ByChance(nn.Module):
    """Replaces tokens at random: no network, and nothing that learns to deceive."""

    hide: str

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__()
        self.judgement = Judgement(encoder, shape.width)
        self.masks = Masks(vocabulary, shape, settings.mask_rate, self.hide)
        scale = loss_scale(settings.judgement, settings.mask_rate, len(vocabulary))
        self.weights = {"discriminator": settings.judgement / scale}

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with random tokens in fresh places."""
        return self.masks.draw(batch, seed)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of all tokens, padding left out."""
        return {"discriminator": corrupted.judged_tokens()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The loss summed over all tokens."""
        places, answers = corrupted.places()
        noisy = noised(corrupted.batch, places, answers, corrupted.batch.ids.flatten()[places])
        return {"discriminator": self.judgement.loss(encoder, noisy, corrupted.judging()).sum()}

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step."""
        rows, length = corrupted.batch.ids.shape
        return cost.training(rows * length, 0, length, judged=rows * length)

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step: the encoder's."""
        return training_bytes(cost, tokens, 0, length, optimiser=settings.optimiser, **mode)


@OBJECTIVES.register("electra-unigram")
class Unigram(ByChance):
    """By tokens of the same batch, and so in proportion to their frequency."""

    hide = "unigram"


@OBJECTIVES.register("electra-uniform")
class Uniform(ByChance):
    """By any token, all alike."""

    hide = "uniform"
