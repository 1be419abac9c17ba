"""ELECTRA in two stages: generator, then discriminator (Clark's thesis, section 5.3.3).

The encoder is the generator of the first half: it predicts masked tokens. When the second half
begins, a copy of it is frozen and becomes the generator, and the encoder continues from the same
weights as the discriminator, which judges the copy's samples.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import Encoder, Shape
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES, Corrupted, Masks
from tasklm.objectives.electra import Judgement, loss_scale
from tasklm.objectives.parts.generators import Generator
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("electra-two-stage")
class TwoStageElectra(nn.Module):
    """Owns the heads of both halves, and the frozen generator of the second.

    The generator exists from the start, although nothing reads it in the first half: a checkpoint
    then has the same tensors in both.
    """

    second_half: bool

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__()
        if settings.generator not in (Train().generator, 1.0):
            raise RecipeError(
                [
                    f"train.generator = {settings.generator}: the generator of electra-two-stage "
                    "is a copy of the encoder; leave it out, or choose train.objective = electra"
                ]
            )
        self.second_half = False
        self.prediction = TokenPrediction(encoder, shape)
        self.judgement = Judgement(encoder, shape.width)
        still = replace(shape, dropout=0.0)
        self.generator = Generator(
            encoder, still, len(vocabulary), settings.temperature, tables=True
        ).requires_grad_(False)
        self.masks = Masks(vocabulary, shape, settings.mask_rate, "mask")
        scale = loss_scale(settings.judgement, settings.mask_rate, len(vocabulary))
        # both start at about the same size, see `loss_scale`
        self.weights = {"generator": 1.0, "discriminator": settings.judgement / scale}

    def begin_second_half(self, encoder: nn.Module) -> str:
        """Freezes a copy of encoder and head as the generator; returns a message."""
        self.generator.network.load_state_dict(encoder.state_dict())
        self.generator.prediction.load_state_dict(self.prediction.state_dict())
        self.second_half = True
        return (
            "the generator is now a frozen copy of the encoder, which from here on judges its "
            "samples"
        )

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with fresh places, and the random numbers that the second half needs."""
        return self.masks.draw(batch, seed, draws=True)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of masked tokens, or of all, padding left out."""
        if self.second_half:
            return {"discriminator": corrupted.judged_tokens()}
        return {"generator": corrupted.targets()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The loss of this half, summed over its targets."""
        if not self.second_half:
            places, answers = corrupted.places()
            states = encoder(corrupted.batch, places)
            return {"generator": self.prediction.loss(states, encoder.token, answers)}
        with torch.no_grad():
            noisy = self.generator(self.generator.network, corrupted)
        return {"discriminator": self.judgement.loss(encoder, noisy, corrupted.judging()).sum()}

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a step of this half; the frozen generator has no backward pass."""
        targets, (rows, length) = corrupted.targets(), corrupted.batch.ids.shape
        predicting = cost.training(rows * length, targets, length, wanted=targets)
        if not self.second_half:
            return predicting
        return predicting / 3.0 + cost.training(rows * length, 0, length, judged=rows * length)

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step, at most: of either half, and the frozen weights."""
        targets = round(settings.mask_rate * tokens)
        predicting = training_bytes(
            cost, tokens, targets, length, wanted=targets, optimiser=settings.optimiser, **mode
        )
        judging = training_bytes(cost, tokens, 0, length, optimiser=settings.optimiser, **mode)
        most = MemoryCost(
            **{name: max(value, getattr(judging, name)) for name, value in vars(predicting).items()}
        )
        return replace(
            most, weights=most.weights + 4.0 * (cost.parameters + cost.prediction_parameters)
        )
