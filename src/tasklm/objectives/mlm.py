"""Masked language modelling as in BERT: 15 % of the tokens; of these 80 % [MASK], 10 % random, 10 % kept."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from tasklm.costs import EncoderCost, MemoryCost, training_bytes
from tasklm.encoders.base import Encoder, Shape
from tasklm.objectives.base import OBJECTIVES, Corrupted, Masks
from tasklm.objectives.prediction import TokenPrediction
from tasklm.recipe import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("mlm")
class MaskedLanguageModel(TokenPrediction):
    """Predicts the picked tokens from the encoder's states."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape)
        self.masks = Masks(vocabulary, shape, settings.mask_rate, settings.hide, settings.whole_words)
        self.weights = {"lm": 1.0}

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """Returns the batch with fresh masks; special tokens are never picked, and one token of each row at least is."""
        return self.masks.draw(batch, seed)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """Returns the number of picked tokens."""
        return {"lm": corrupted.targets()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """Returns the cross-entropy summed over the picked tokens; logits exist at these alone."""
        places, answers = corrupted.places()
        logits = self.logits(encoder(corrupted.batch, places), encoder.token)  # (targets, vocabulary)
        return {"lm": functional.cross_entropy(logits.float(), answers, reduction="sum")}

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """Returns the exact FLOPs of a training step."""
        targets, (rows, length) = corrupted.targets(), corrupted.batch.ids.shape
        return cost.training(rows * length, targets, length, wanted=targets)

    @staticmethod
    def memory(cost: EncoderCost, settings: Train, tokens: int, length: int, **how: bool) -> MemoryCost:
        """Returns the memory of a training step."""
        targets = round(settings.mask_rate * tokens)
        return training_bytes(cost, tokens, targets, length, wanted=targets, optimiser=settings.optimiser, **how)
