"""What an encoder must offer, and its shape in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from tasklm.registry import Registry
from tasklm.tokens.batches import TokenBatch


@dataclass(frozen=True)
class Shape:
    """The numbers that make an encoder."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    feedforward: int
    positions: int
    dropout: float = 0.0
    embedding: int = 0  # width of the token embeddings; 0: that of the layers

    @property
    def token_width(self) -> int:
        """Returns the width of the token embeddings; where it is not that of the layers, a matrix maps it onto theirs."""
        return self.embedding or self.width

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values."""
        return asdict(self)


class Encoder(Protocol):
    """Tokens in, one vector per token out.

    Made with `tables=False` it has no embeddings of its own and only contextualises those of another encoder.
    """

    shape: Shape
    token: nn.Embedding  # (vocabulary, token width): shared with the output layer of objectives that predict tokens
    epsilon: float  # of its LayerNorms, and of a prediction head's that is to be exported with it
    gelu: str  # which GELU it computes, "none" (exact) or "tanh", and a prediction head likewise
    normed_heads: bool  # whether the heads of tasks have the LayerNorm that those of its family in transformers have

    def __call__(self, batch: TokenBatch, wanted: Tensor | None = None) -> Tensor:
        """Returns hidden states (rows, length, width), or those of the tokens `wanted` alone: (wanted, width).

        `wanted` (int64) numbers tokens of the flattened batch. The last layer computes what follows its attention for them alone:
        all that a head does not read would be computed for nothing.
        """
        ...

    def embed(self, batch: TokenBatch) -> Tensor:
        """Returns the embeddings of all tokens (rows, length, token width)."""
        ...

    def contextualise(self, embedded: Tensor, batch: TokenBatch, wanted: Tensor | None = None) -> Tensor:
        """Returns the hidden states of embedded tokens, as `__call__` does."""
        ...


def pick(states: Tensor, wanted: Tensor | None) -> Tensor:
    """Returns the states (wanted, width) of some tokens of (rows, length, width), or all of them as they are."""
    return states if wanted is None else states.flatten(0, 1)[wanted]


ENCODERS: Registry[Any] = Registry("encoder", "tasklm.encoders")
