"""Masked language modelling as in BERT.

15 % of the tokens are picked; of these 80 % become [MASK], 10 % random ones, 10 % stay. With
`train.next_sentence` also BERT's next-sentence prediction, on selected text: examples of a task
stay whole.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import Encoder, Shape
from tasklm.objectives.base import HELD_OUT_RATE, OBJECTIVES, Corrupted, Masks
from tasklm.objectives.next_sentence import NextSentence
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@OBJECTIVES.register("mlm")
class MaskedLanguageModel(TokenPrediction):
    """Predicts the picked tokens from the encoder's states."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape)
        # of the first step and the last
        self.rates = settings.mask_rate, settings.mask_rate_last or settings.mask_rate
        self.masks = Masks(vocabulary, shape, max(self.rates), settings.hide, settings.whole_words)
        # for whatever rate, replacement or words a model is trained with
        self.held_out_masks = Masks(vocabulary, shape, HELD_OUT_RATE, "mask")
        self.next_sentence: NextSentence | None = None
        self.weights = {"lm": 1.0}
        if settings.next_sentence:
            self.next_sentence = NextSentence(shape, vocabulary)
            self.weights["next"] = 1.0

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with fresh masks, one at least in each row, and none on special tokens."""
        return self.corrupt_at(batch, seed, 0.0)

    def corrupt_at(self, batch: TokenBatch, seed: int, progress: float) -> Corrupted:
        """The same at a later rate of masks; the number of places stays."""
        first, last = self.rates
        rate = first + (last - first) * progress
        if self.next_sentence is None or batch.places is not None:
            return self.masks.draw(batch, seed, rate=rate)
        paired, firsts, follows = self.next_sentence.paired(batch, seed)
        return replace(self.masks.draw(paired, seed, rate=rate), firsts=firsts, follows=follows)

    def held_out(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch with 15 % of its tokens hidden, always by [MASK]."""
        return self.held_out_masks.draw(batch, seed)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of picked tokens, and of pieces in two parts."""
        if corrupted.follows is None:
            return {"lm": corrupted.targets()}
        return {"lm": corrupted.targets(), "next": corrupted.pairs()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The cross-entropy summed over the picked tokens, and over the pieces."""
        places, answers = corrupted.places()
        if corrupted.follows is None or self.next_sentence is None:
            return {"lm": self.loss(encoder(corrupted.batch, places), encoder.token, answers)}
        firsts, follows = corrupted.first_places()
        states = encoder(corrupted.batch, torch.cat([places, firsts]))
        logits = self.next_sentence(states[len(places) :]).float()
        follow = functional.cross_entropy(logits, follows, reduction="sum")
        return {"lm": self.loss(states[: len(places)], encoder.token, answers), "next": follow}

    def losses_and_states(
        self, encoder: Encoder, corrupted: Corrupted, wanted: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The cross-entropy of the picked tokens of a task's text, and the states of others."""
        assert corrupted.follows is None  # examples of a task stay whole
        places, answers = corrupted.places()
        states = encoder(corrupted.batch, torch.cat([places, wanted]))
        losses = {"lm": self.loss(states[: len(places)], encoder.token, answers)}
        return losses, states[len(places) :]

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step."""
        rows, length = corrupted.batch.ids.shape
        targets, pairs, head = corrupted.targets(), corrupted.pairs(), 0.0
        if self.next_sentence is not None:
            head = self.next_sentence.flops(pairs)
        return cost.training(rows * length, targets, length, wanted=targets + pairs, task_head=head)

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step."""
        targets = round(max(settings.mask_rate, settings.mask_rate_last or 0.0) * tokens)
        return training_bytes(
            cost, tokens, targets, length, wanted=targets, optimiser=settings.optimiser, **mode
        )
