"""Two language models in one encoder, as in ELMo (arXiv 1802.05365): every token is predicted from
those before it, and from those after it.

The encoder reads each direction by itself: the second layer's states to the right see the first
layer's to the right alone, and mirrored. Both directions have one head. Nothing is hidden and no
token is drawn: all neighbours inside a piece are targets, so that a step learns from every token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.budget.recurrent import RecurrentCost
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.bilstm import BiLstm
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES, Corrupted
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary


@dataclass
class Neighbours(Corrupted):
    """A batch as it is, with the token after each (`answers`) and the one before it."""

    # (rows, length) int64: NONE where a piece begins, and in padding
    before: Tensor = field(kw_only=True)


@OBJECTIVES.register("bilm")
class BiLanguageModel(TokenPrediction):
    """Predicts the next token from the states to the right, and the last from those to the left."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape)
        if not hasattr(ENCODERS.get(encoder), "directed"):
            raise RecipeError(
                [
                    "train.objective = 'bilm' predicts tokens from one side, but all layers of the "
                    f"encoder {encoder!r} read both; set model.encoder = 'bilstm', or choose "
                    "another objective, such as mlm"
                ]
            )
        self.weights = {"forward": 0.5, "backward": 0.5}

    def corrupt(self, batch: TokenBatch, seed: int) -> Neighbours:
        """The batch with the neighbours of its tokens; nothing is drawn."""
        ids, pieces = batch.ids, batch.pieces
        inside = (pieces[:, 1:] == pieces[:, :-1]) & (pieces[:, 1:] != 0)
        after, before = (torch.full_like(ids, NONE) for _ in range(2))
        after[:, :-1] = torch.where(inside, ids[:, 1:], NONE)
        before[:, 1:] = torch.where(inside, ids[:, :-1], NONE)
        columns = torch.arange(ids.shape[1]).expand_as(ids).contiguous()
        return Neighbours(replace(batch, targets=None), columns, after, before=before)

    def held_out(self, batch: TokenBatch, seed: int) -> Neighbours:
        """The same as in training: all neighbours are targets."""
        return self.corrupt(batch, seed)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of tokens with one after them, and with one before them."""
        assert isinstance(corrupted, Neighbours)
        backward = int((corrupted.before != NONE).sum())
        return {"forward": corrupted.targets(), "backward": backward}

    def forward(self, encoder: BiLstm, corrupted: Corrupted) -> dict[str, Tensor]:
        """The cross-entropy of both directions, summed over their targets."""
        assert isinstance(corrupted, Neighbours)
        right, left = encoder.directed(corrupted.batch)
        after, before = corrupted.answers.flatten(), corrupted.before.flatten()
        return {
            "forward": self.loss(right.flatten(0, 1), encoder.token, after),
            "backward": self.loss(left.flatten(0, 1), encoder.token, before),
        }

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a training step: the second layer runs for each direction, and all
        tokens are predicted.
        """
        assert isinstance(cost, RecurrentCost)
        tokens = corrupted.batch.ids.numel()
        again = 2 * cost.layer_matrix(1) + 2 * cost.projection
        each = cost.forward_per_token(corrupted.batch.ids.shape[1]) + again
        return 3.0 * tokens * (each + 2 * cost.forward_per_target())

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step, in which the second layer runs twice."""
        optimiser = settings.optimiser
        whole = training_bytes(cost, tokens, 2 * tokens, length, optimiser=optimiser, **mode)
        return replace(whole, activations=1.5 * whole.activations)
