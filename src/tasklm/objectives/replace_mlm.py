"""Between BERT and ELECTRA (arXiv 2003.10555, section 3.4).

Tokens are replaced by a generator's samples, and the encoder predicts the original ones:
`replace-mlm` in those places, `all-tokens-mlm` everywhere, where it may also copy.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import Encoder, Shape
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.objectives.parts.generators import Replacing, with_generator
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("replace-mlm")
class ReplaceMLM(Replacing):
    """Masked language modelling without [MASK]: the encoder sees samples there."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape, vocabulary, settings)
        self.prediction = TokenPrediction(encoder, shape)
        self.weights = {"generator": 1.0, "lm": 1.0}

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of replaced tokens, for both losses."""
        return {"generator": corrupted.targets(), "lm": corrupted.targets()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """Both cross-entropies, summed over the places."""
        noisy = self.generator(encoder, corrupted)
        states = encoder(noisy.batch, noisy.places)
        loss = self.prediction.loss(states, encoder.token, noisy.answers)
        return {"generator": noisy.generator_loss(), "lm": loss}

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step: generator and encoder."""
        targets, (rows, length) = corrupted.targets(), corrupted.batch.ids.shape
        predicting = cost.training(rows * length, targets, length, wanted=targets)
        return float(self.generator.flops(cost, corrupted)) + predicting

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step: the encoder's and the generator's."""
        targets = round(settings.mask_rate * tokens)
        own = training_bytes(
            cost, tokens, targets, length, wanted=targets, optimiser=settings.optimiser, **mode
        )
        return with_generator(own, cost, settings, tokens, length, **mode)


@OBJECTIVES.register("all-tokens-mlm")
class AllTokensMLM(ReplaceMLM):
    """Predicts every token: it copies the input with probability D, else predicts its own."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape, vocabulary, settings)
        self.copy = nn.Linear(shape.width, 1)
        draw_weights(self.copy, initial_spread(shape.width))

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The numbers of masked tokens and of all tokens, padding left out."""
        return {"generator": corrupted.targets(), "lm": corrupted.judged_tokens()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The generator's loss, and −log p of all tokens.

        p = D·[seen = original] + (1 − D)·softmax(original).
        """
        noisy = self.generator(encoder, corrupted)
        seen = noisy.batch.ids.flatten()
        answers = torch.where(noisy.answers == NONE, seen[noisy.places], noisy.answers)
        original = seen.scatter(0, noisy.places, answers)
        states = encoder(noisy.batch).flatten(0, 1)
        logits = self.prediction.logits(states, encoder.token).float()
        predicted = logits.log_softmax(-1).gather(1, original[:, None]).squeeze(1)
        copies = self.copy(states).squeeze(-1).float()
        chosen = functional.logsigmoid(-copies) + predicted
        copied = torch.logaddexp(functional.logsigmoid(copies), chosen)
        likely = torch.where(seen == original, copied, chosen)
        return {
            "generator": noisy.generator_loss(),
            "lm": -(likely * corrupted.judging().flatten()).sum(),
        }

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step: generator, and encoder with logits of all tokens."""
        rows, length = corrupted.batch.ids.shape
        tokens = rows * length
        return (
            float(self.generator.flops(cost, corrupted))
            + cost.training(tokens, tokens, length)
            + 3.0 * tokens * 2 * cost.width
        )

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step: the encoder's, with all logits, and the generator's."""
        own = training_bytes(cost, tokens, tokens, length, optimiser=settings.optimiser, **mode)
        return with_generator(own, cost, settings, tokens, length, **mode)
