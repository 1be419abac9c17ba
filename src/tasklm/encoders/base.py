"""The interface of an encoder, and its shape."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from tasklm.recipe.model_sections import MOST_FEEDFORWARD, MOST_HEADS, MOST_LAYERS, MOST_WIDTH
from tasklm.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tokens.batches import TokenBatch

LIMITS = {  # smallest and largest number
    "vocabulary": (1, 4_000_000),
    "layers": (1, MOST_LAYERS),
    "width": (1, MOST_WIDTH),
    "heads": (1, MOST_HEADS),
    "feedforward": (1, MOST_FEEDFORWARD),
    "positions": (1, 1 << 20),
    "embedding": (0, MOST_WIDTH),
}


@dataclass(frozen=True)
class Shape:
    """The dimensions of an encoder."""

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
        """The width of the token embeddings; a matrix maps it onto that of the layers."""
        return self.embedding or self.width

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> Shape:
        """The shape that `to_dict` described; raises ValueError if it is impossible.

        The description may come from anywhere, and nothing is built before it is checked.
        """
        if not isinstance(values, dict) or not set(values) <= {entry.name for entry in fields(cls)}:
            raise ValueError("the description of the encoder's shape is malformed")
        values = {"embedding": 0, **values}
        for name, (low, high) in LIMITS.items():
            value = values.get(name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(
                    f"{name} of the encoder is not a whole number from {low:,} to {high:,}"
                )
        dropout = values.get("dropout", 0.0)
        if type(dropout) not in (int, float) or not 0.0 <= dropout < 1.0:
            raise ValueError("dropout of the encoder is not a share below 1")
        if values["width"] % values["heads"]:
            raise ValueError(
                f"the encoder's width, {values['width']}, is not a multiple of its heads, "
                f"{values['heads']}"
            )
        return cls(**values)


class Encoder(Protocol):
    """Tokens in, one vector per token out.

    With `tables=False` it has no embeddings of its own and only contextualises those of another
    encoder.
    """

    shape: Shape
    # (vocabulary, token width): shared with the output layer of objectives that predict tokens
    token: nn.Embedding
    epsilon: float  # of its LayerNorms, and of a prediction head's that is to be exported with it
    gelu: str  # which GELU it computes, "none" (exact) or "tanh", and a prediction head likewise
    # whether the heads of tasks have the LayerNorm that those of its family in transformers have
    normed_heads: bool
    # width of the states of `views`; 0 where an encoder has no restricted views
    view_width: int

    def __call__(self, batch: TokenBatch, wanted: Tensor | None = None) -> Tensor:
        """Hidden states (rows, length, width), or those of the tokens `wanted`: (wanted, width).

        `wanted` (int64) numbers tokens of the flattened batch. The last layer computes what follows
        its attention only for them: anything that no head reads would be wasted.
        """
        ...

    def embed(self, batch: TokenBatch) -> Tensor:
        """The embeddings of all tokens (rows, length, token width)."""
        ...

    def contextualise(
        self, embedded: Tensor, batch: TokenBatch, wanted: Tensor | None = None
    ) -> Tensor:
        """The hidden states of embedded tokens, as `__call__` does."""
        ...

    def views(self, batch: TokenBatch, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Forward states (ends, view width) of tokens that have read nothing right of themselves,
        and backward states (begins, view width) of tokens that have read nothing left of
        themselves.

        Both are of the embeddings and the lowest layers. `ends` and `begins` (int64) number tokens
        of the flattened batch.
        """
        ...

    def whole_and_views(
        self, batch: TokenBatch, wanted: Tensor, ends: Tensor, begins: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden states (wanted, width) of `__call__` and the two of `views`; what they have in
        common is computed once.
        """
        ...


def pick(states: Tensor, wanted: Tensor | None) -> Tensor:
    """The states (wanted, width) of some tokens of (rows, length, width), or all as they are."""
    if wanted is None:
        return states
    return states.flatten(0, 1)[wanted]


ENCODERS: Registry[Any] = Registry("encoder", "tasklm.encoders")
