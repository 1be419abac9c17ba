"""A cloze model of two towers: one reads to the right, one to the left, and each token is predicted
from the states beside it, [h→_{t−1}, h←_{t+1}] (*Cloze-driven Pretraining of Self-attention
Networks*, arXiv 1903.07785; TwoTower in Clark's thesis, table 5.9).

No token sees itself, so that nothing is masked: a step learns from every token, and one pass scores
a whole text. It reads both sides, but joins them only at the top. The towers are the encoder itself
(`train.towers = "shared"`), which learns to read either way, or two networks of its shape beside it
(`own`, as in the thesis), which share its embeddings alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import ENCODERS, Encoder, Shape
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.objectives.parts.generators import with_generator
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.objectives.parts.two_towers import states_beside
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary

OWN = "own"


@OBJECTIVES.register("two-tower")
class TwoTower(TokenPrediction):
    """Predicts every token from those before it and those after it."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        if hasattr(ENCODERS.get(encoder), "directed"):
            problem = f"two towers are Transformers, and model.encoder = {encoder!r} is not one"
            raise RecipeError([f"train.objective = 'two-tower': {problem}; choose bilm with it"])
        super().__init__(
            encoder, replace(shape, width=2 * shape.width, embedding=shape.token_width)
        )
        self.towers: nn.ModuleList | None = None
        if settings.towers == OWN:
            kind = ENCODERS.get(encoder)
            self.towers = nn.ModuleList([kind(shape, tables=False) for _ in range(2)])
        self.special = np.zeros(shape.vocabulary, bool)
        self.special[vocabulary.specials] = True
        self.weights = {"cloze": 1.0}

    def corrupt(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The batch as it is; its targets are all ordinary tokens with one on each side."""
        ids, pieces = batch.ids, batch.pieces
        inside = (pieces[:, 1:] == pieces[:, :-1]) & (pieces[:, 1:] != 0)
        ordinary = torch.from_numpy(~self.special[ids.numpy()])
        answers = torch.full_like(ids, NONE)
        both = inside[:, :-1] & inside[:, 1:] & ordinary[:, 1:-1]
        answers[:, 1:-1] = torch.where(both, ids[:, 1:-1], NONE)
        columns = torch.arange(ids.shape[1]).expand_as(ids).contiguous()
        return Corrupted(replace(batch, targets=None), columns, answers)

    def held_out(self, batch: TokenBatch, seed: int) -> Corrupted:
        """The same as in training: all tokens are targets."""
        return self.corrupt(batch, seed)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of tokens to predict."""
        return {"cloze": corrupted.targets()}

    def forward(self, encoder: Encoder, corrupted: Corrupted) -> dict[str, Tensor]:
        """The cross-entropy, summed over the targets."""
        states = self.states(encoder, corrupted.batch)
        return {"cloze": self.loss(states, encoder.token, corrupted.answers.flatten())}

    def states(self, encoder: Encoder, batch: TokenBatch) -> Tensor:
        """What is known of each token without itself (rows · length, 2 · width)."""
        right, left = self.towers or (encoder, encoder)
        return states_beside(right, left, encoder.embed(batch), batch)

    def log_probabilities(self, encoder: Encoder, batch: TokenBatch) -> Tensor:
        """The log p of every token in its context (rows, length)."""
        logits = self.logits(self.states(encoder, batch), encoder.token).float()
        return logits.log_softmax(-1).gather(1, batch.ids.flatten()[:, None]).view(batch.ids.shape)

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step: both towers read, and all tokens are predicted."""
        rows, length = corrupted.batch.ids.shape
        tokens = rows * length
        head = replace(cost, width=2 * cost.width, embedding=cost.embedding_width)
        return 2 * cost.training(tokens, 0, length) + 3.0 * tokens * head.forward_per_target()

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step: two passes of the encoder, or of networks beside it."""
        optimiser = settings.optimiser
        shared = training_bytes(cost, 2 * tokens, tokens, length, optimiser=optimiser, **mode)
        if settings.towers != OWN:
            return shared
        as_wide = replace(settings, generator=1.0)
        one = with_generator(shared, cost, as_wide, tokens, length, **mode)
        both = with_generator(one, cost, as_wide, tokens, length, **mode)
        return replace(both, activations=shared.activations, logits=shared.logits)
