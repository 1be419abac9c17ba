"""Permutation language modelling (XLNet, arXiv 1906.08237).

The tokens of a piece are put into a random order, and each of the last `mask_rate` of them is
predicted from those before it in that order, wherever they stand in the text: Σ log p(x_t | tokens
before t in the order, place of t). There is no [MASK], and targets are not assumed to be
independent. The content stream sees a token's own and earlier places of the order, the query
stream, from which the target is predicted, strictly earlier ones (section 2.2). The tokens before
the first target share the first place and see one another, as in the authors' code: what a target
is predicted from is the same set of tokens.

Unlike in the paper: positions are the encoder's own, learned or rotary, in place of
Transformer-XL's relative ones; rows are not continued (no recurrence over segments: texts are
short); targets are single tokens, not spans; and [CLS] and [SEP] always come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.budget.memory import MemoryCost, training_bytes
from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.initial_weights import initial_spread
from tasklm.encoders.layers.two_streams import Streams, TwoStreamEncoder
from tasklm.errors import RecipeError
from tasklm.objectives.base import OBJECTIVES, Corrupted, Masks
from tasklm.objectives.parts.prediction import TokenPrediction
from tasklm.recipe.model_sections import Train
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.masking import NONE
from tasklm.tokens.orders import order_rows
from tasklm.tokens.tokenizer import Vocabulary


@dataclass
class Permuted(Corrupted):
    """A batch as it is, with the order in which its targets are predicted."""

    # (rows, length) int64: 0 for tokens that are only read, then 1, 2, … in each piece
    order: Tensor = field(kw_only=True)

    def _each(self, change: Callable[[Tensor], Tensor], batch: TokenBatch) -> Permuted:
        return Permuted(batch, change(self.picked), change(self.answers), order=change(self.order))

    def seen(self) -> tuple[Tensor, Tensor]:
        """What content (rows, 1, length, length) and queries (rows, 1, places, length) see.

        A position without a target sees its whole piece: a softmax over nothing would be NaN.
        """
        pieces, order = self.batch.pieces, self.order
        content = (pieces[:, :, None] == pieces[:, None]) & (order[:, :, None] >= order[:, None])
        until = torch.where(self.answers == NONE, order.shape[1], order.gather(1, self.picked))
        inside = pieces.gather(1, self.picked)[:, :, None] == pieces[:, None]
        queries = inside & (until[:, :, None] > order[:, None])
        return content[:, None], queries[:, None]


@OBJECTIVES.register("permutation")
class PermutationLanguageModel(TokenPrediction):
    """Owns the head that predicts tokens and the vector that a query starts from."""

    def __init__(self, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train) -> None:
        super().__init__(encoder, shape)
        if not hasattr(ENCODERS.get(encoder), "two_streams"):
            raise RecipeError(
                [
                    "train.objective = 'permutation' needs two streams, which the encoder "
                    f"{encoder!r} does not support; add a method two_streams as in "
                    "encoders/bert.py, or choose another objective"
                ]
            )
        width = shape.token_width
        self.query = nn.Parameter(torch.empty(width).normal_(std=initial_spread(width)))
        self.masks = Masks(vocabulary, shape, settings.mask_rate, "nothing")
        self.weights = {"lm": 1.0}

    def corrupt(self, batch: TokenBatch, seed: int) -> Permuted:
        """The batch as it is with a fresh order; special tokens are never predicted."""
        arrays = order_rows(
            batch.ids.numpy(),
            batch.pieces.numpy(),
            self.masks.rule.special,
            self.masks.rule.rate,
            seed,
        )
        order, picked, answers = map(torch.from_numpy, arrays)
        return Permuted(replace(batch, targets=None), picked, answers, order=order)

    def held_out(self, batch: TokenBatch, seed: int) -> Permuted:
        """The batch with an order, of whose end as many tokens are predicted as in training."""
        return self.corrupt(batch, seed)

    def targets(self, corrupted: Corrupted) -> dict[str, int]:
        """The number of predicted tokens."""
        return {"lm": corrupted.targets()}

    def forward(self, encoder: TwoStreamEncoder, corrupted: Permuted) -> dict[str, Tensor]:
        """The cross-entropy summed over the targets, each predicted from its query."""
        content, queries = corrupted.seen()
        streams = Streams(self.query, corrupted.picked, content, queries)
        states = encoder.two_streams(corrupted.batch, streams).flatten(0, 1)
        answers = corrupted.answers.flatten()
        # a compiled graph needs one shape for all batches
        if answers.device.type == "cpu" and not torch.compiler.is_compiling():
            real = answers != NONE
            states, answers = states[real], answers[real]
        return {"lm": self.loss(states, encoder.token, answers)}

    def flops(self, cost: EncoderCost, corrupted: Corrupted) -> float:
        """The exact FLOPs of a step: both streams; the last layer's content has no queries."""
        (rows, length), places = corrupted.batch.ids.shape, corrupted.picked.shape[1]
        attention, key_value = 4.0 * length * cost.width, 4.0 * cost.width**2
        token = (
            (cost.layers - 1) * (2.0 * cost.layer_matrices + attention)
            + key_value
            + 2.0 * cost.projection
        )
        query = (
            cost.layers * (2.0 * cost.layer_matrices - key_value + attention)
            + 2.0 * cost.projection
        )
        return 3.0 * (
            rows * (length * token + places * query)
            + corrupted.targets() * cost.forward_per_target()
        )

    @staticmethod
    def memory(
        cost: EncoderCost, settings: Train, tokens: int, length: int, **mode: bool
    ) -> MemoryCost:
        """The memory of a training step, at most: as if queries were further tokens.

        In bf16, the parts of matrices that one stream alone needs are copied apart: a third in each
        layer, two thirds in the last.
        """
        queries = -(-tokens // length) * max(1, round(settings.mask_rate * length))
        mode["masked"] = True  # for both streams
        memory = training_bytes(
            cost,
            tokens + queries,
            queries,
            length,
            wanted=queries,
            optimiser=settings.optimiser,
            **mode,
        )
        if not memory.copies:
            return memory
        return replace(memory, copies=memory.copies + 2.0 * (cost.layers + 2) * cost.width**2)
