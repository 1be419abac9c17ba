"""Gradients of single examples with respect to the table of token embeddings, token by token.

A row of the table gets Σ e_t over the places t of its token, where e_t is the gradient of the loss
at the embedding of place t. The table is also the output matrix of the language model, where token
v gets Σ_p d_pv s_p over the predicted places p: d is the gradient at the logits, s the state that
the table is multiplied with. Most tokens occur in few examples, so that the product of two
gradients is a sum over the tokens that both have; neither is ever written out whole. Positions,
segments and norms have no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tasklm.influence.gradients import AT_ONCE, AT_ONCE_ELSEWHERE, EMBEDDINGS, Call, wide


@dataclass
class TokenSums:
    """Vectors (entries, width), one for each token of each owner, in the order of the tokens."""

    tokens: Tensor  # (entries,)
    owners: Tensor  # (entries,): rows of a batch, or batches of the task
    vectors: Tensor

    @classmethod
    def of(cls, tokens: Tensor, owners: Tensor, vectors: Tensor) -> TokenSums:
        """The sums of vectors of the same token and owner."""
        count = int(owners.max()) + 1 if len(owners) else 1
        keys, places = torch.unique(tokens * count + owners, return_inverse=True)
        summed = vectors.new_zeros(len(keys), vectors.shape[-1])
        summed.index_add_(0, places, vectors)
        return cls(keys // count, keys % count, summed)

    @classmethod
    def of_call(cls, call: Call, owners: Tensor) -> TokenSums:
        """Those of a look-up; an owner of each row."""
        tokens, errors = call.given[..., 0].flatten(), wide(call.errors).flatten(0, 1)
        return cls.of(tokens, owners.repeat_interleave(call.given.shape[1]), errors)

    def spans(self) -> dict[int, slice]:
        """Where the entries of each token stand."""
        tokens, counts = torch.unique_consecutive(self.tokens, return_counts=True)
        spans, start = {}, 0
        for token, count in zip(tokens.tolist(), counts.tolist(), strict=True):
            spans[token] = slice(start, start + count)
            start += count
        return spans


@dataclass
class TableSide:
    """The gradients of the task's batches, and the products of others with them."""

    batches: int
    parts: list[TokenSums] = field(default_factory=list)
    _whole: tuple[TokenSums, dict[int, slice]] | None = None

    def add(self, call: Call, belongs: Tensor, sizes: Tensor) -> None:
        """Adds rows, each with the batch that it belongs to and the number of examples there."""
        mean = Call(call.given, wide(call.errors) / sizes[:, None, None])
        self.parts.append(TokenSums.of_call(mean, belongs))
        self._whole = None

    @property
    def whole(self) -> tuple[TokenSums, dict[int, slice]]:
        """All that was added."""
        if self._whole is None:
            columns = zip(
                *((one.tokens, one.owners, one.vectors) for one in self.parts), strict=True
            )
            summed = TokenSums.of(*(torch.cat(column) for column in columns))
            self._whole = summed, summed.spans()
        return self._whole

    def products(self, look_up: Call, output: Call) -> Tensor:
        """The products (rows, batches) with the gradients of rows of text: of what they look up,
        and of the states (rows, places, width) and gradients at the logits of what they predict.
        """
        rows = len(look_up.given)
        own = TokenSums.of_call(look_up, torch.arange(rows, device=look_up.given.device))
        ours, spans = self.whole
        products = own.vectors.new_zeros(rows, self.batches)
        for token, theirs in own.spans().items():
            if token in spans:
                place = spans[token]
                block = own.vectors[theirs] @ ours.vectors[place].T
                products[own.owners[theirs][:, None], ours.owners[place][None]] += block
        states, errors = wide(output.given), output.errors
        room = AT_ONCE.get(states.device.type, AT_ONCE_ELSEWHERE)
        step = max(1, room // (8 * states.shape[0] * states.shape[1]))
        for start in range(0, len(ours.tokens), step):
            some = slice(start, start + step)
            steps = states @ ours.vectors[some].T
            steps *= errors[..., ours.tokens[some]]
            products.index_add_(1, ours.owners[some], steps.sum(1))
        return products

    def product_flops(self, rows: int, places: int) -> float:
        """The FLOPs of the products with rows that predict so many places; those of tokens that
        both look up are not counted.
        """
        vectors = self.whole[0].vectors
        return 2.0 * rows * places * vectors.numel()


def has_table(layers: str) -> bool:
    """Whether a setting names the table among the layers."""
    return EMBEDDINGS in [part.strip() for part in layers.split(",")]
