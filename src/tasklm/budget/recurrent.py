"""The cost of a Bi-LSTM encoder: parameters, exact FLOPs, and the memory of a training step."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.layers.characters import (
    CHARACTER,
    FEATURES,
    FILTERS,
    LONGEST,
    WIDTHS,
    character_flops,
    character_weights,
)
from tasklm.encoders.shapes import RECURRENT_LAYERS


@dataclass(frozen=True)
class RecurrentCost(EncoderCost):
    """Parameters and exact FLOPs of encoders/bilstm.py: `feedforward` are the cells of a direction
    of the first layer, and the characters of every token of a batch are counted.
    """

    def __post_init__(self) -> None:
        """Nothing of an attention's architecture is known of it."""

    @property
    def layer_shapes(self) -> list[tuple[int, int]]:
        """The inputs and cells of each layer; all have `width` states in each direction."""
        return [
            (self.embedding_width + FEATURES, self.feedforward),
            (2 * self.width, self.width),
        ]

    @property
    def hidden_matrices(self) -> int:
        """The weights in the matrices of both layers, of which each multiplies once for a token."""
        return sum(self.layer_matrix(number) for number in range(RECURRENT_LAYERS))

    def layer_matrix(self, number: int) -> int:
        """The weights in the matrices of one layer, counted from 0."""
        inputs, cells = self.layer_shapes[number]
        matrices = 2 * 4 * cells * (inputs + self.width)
        if cells != self.width:
            matrices += 2 * cells * self.width
        return matrices

    @property
    def hidden_parameters(self) -> int:
        """The weights of the layers, embeddings left out."""
        return self.hidden_matrices + sum(8 * cells for _, cells in self.layer_shapes)

    @property
    def projection(self) -> int:
        """The weights in the matrix from the states of both layers to those that heads read."""
        return 2 * RECURRENT_LAYERS * self.width**2

    @property
    def parameters(self) -> int:
        """All weights of the encoder, heads left out."""
        embeddings = self.vocabulary * self.embedding_width + character_weights()
        embeddings += 2 * (self.embedding_width + FEATURES)  # the norm's
        return self.hidden_parameters + embeddings + self.projection + self.width

    @property
    def embedding_rows(self) -> int:
        """The rows of the token embedding, the only one beside that of characters."""
        return self.vocabulary

    def forward_per_token(self, length: int) -> float:
        """The FLOPs of one token, however long its row is."""
        return float(2 * self.hidden_matrices + 2 * self.projection + character_flops())

    def views(self, tokens: int, length: int, layers: int, wanted: int, *, beside: bool) -> float:
        """The FLOPs of the first layer, the only one that views read; nothing beside a pass of the
        whole text, of which it is a part.
        """
        if beside:
            return 0.0
        return float(tokens * (2 * self.layer_matrix(0) + character_flops()))

    def unwanted_per_token(self) -> float:
        """The FLOPs of the last map, spent only on tokens that a head reads."""
        return float(2 * self.projection)


def cost_class(encoder: str) -> type[EncoderCost]:
    """The formulas for the cost of an encoder."""
    if encoder == "bilstm":
        return RecurrentCost
    return EncoderCost


def recurrent_bytes(
    cost: RecurrentCost, tokens: int, wanted: int | None, value: int, dropout: bool
) -> tuple[float, float]:
    """What embeddings and layers keep of a step, and the peak of the gradients inside one of them.

    `value` are the bytes of a number in matrix products. States, gates and cells are in fp32.
    """
    characters = LONGEST * CHARACTER + FILTERS * sum(LONGEST - width + 1 for width in WIDTHS)
    saved = float(8 * (1 + LONGEST) + 4 * (characters + 2 * FEATURES))
    peak = 0.0
    for inputs, cells in cost.layer_shapes:
        saved += value * inputs + 4 * (8 * cells + 2 * cells + 2 * cost.width) + 8
        if dropout:
            saved += inputs
        peak = max(peak, 4.0 * (8 * cells + 6 * cost.width + inputs))
    read = tokens if wanted is None else wanted
    wanted_bytes = read * 2 * RECURRENT_LAYERS * cost.width * (4 + value)
    side_by_side = 4 * cost.hidden_matrices  # the matrices of both directions, laid together
    return tokens * saved + wanted_bytes + side_by_side, tokens * peak
