"""Two Bi-LSTM layers over tokens and their characters, the encoder of cross-view training (*Semi-
Supervised Sequence Modeling with Cross-View Training*, arXiv 1809.08370).

The first layer has `feedforward` cells in each direction, projected to `width`; the second has
`width`. What heads read is a linear map of both layers' states. Unlike in the paper tokens are
pieces of words, the characters are those of the piece, and a LayerNorm brings both to one size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tasklm.encoders.base import ENCODERS, Shape, pick
from tasklm.encoders.initial_weights import draw_weights, initial_spread
from tasklm.encoders.layers.characters import FEATURES, Characters
from tasklm.encoders.layers.embeddings import EPSILON
from tasklm.encoders.layers.lstm import LstmLayer
from tasklm.encoders.shapes import RECURRENT_LAYERS
from tasklm.errors import RecipeError
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@ENCODERS.register("bilstm")
class BiLstm(nn.Module):
    """Embeddings, two layers that read in both directions, and a map onto `width`."""

    epsilon, gelu, normed_heads = EPSILON, "none", False
    compiles_by_default = False  # cuDNN's kernels do not go into a compiled graph

    def __init__(self, shape: Shape, tables: bool = True) -> None:
        super().__init__()
        if shape.layers != RECURRENT_LAYERS:
            raise RecipeError(
                [f"model.layers = {shape.layers}: the encoder bilstm has {RECURRENT_LAYERS} layers"]
            )
        self.shape, self.view_width = shape, shape.width
        if tables:
            self.token = nn.Embedding(shape.vocabulary, shape.token_width)
            self.characters = Characters(shape.vocabulary)
            # tokens are also what objectives predict, so that their embeddings begin small
            self.norm = nn.LayerNorm(shape.token_width + FEATURES, EPSILON)
            nn.init.normal_(self.token.weight, std=initial_spread(shape.token_width))
        self.dropout = nn.Dropout(shape.dropout)
        first = LstmLayer(shape.token_width + FEATURES, shape.feedforward, shape.width)
        self.layers = nn.ModuleList([first, LstmLayer(2 * shape.width, shape.width, shape.width)])
        self.out = nn.Linear(2 * RECURRENT_LAYERS * shape.width, shape.width)
        draw_weights(self.out, self.out.in_features**-0.5)

    def spell(self, vocabulary: Vocabulary) -> None:
        """Learns the characters of all tokens of its vocabulary."""
        self.characters.spell(vocabulary)

    def forward(self, batch: TokenBatch, wanted: Tensor | None = None) -> Tensor:
        """Hidden states (rows, length, width), or (wanted, width)."""
        return self.contextualise(self.embed(batch), batch, wanted)

    def embed(self, batch: TokenBatch) -> Tensor:
        """The embeddings of all tokens and of their characters (rows, length, both widths)."""
        both = torch.cat((self.token(batch.ids), self.characters(batch.ids)), -1)
        embedded: Tensor = self.dropout(self.norm(both))
        return embedded

    def contextualise(
        self, embedded: Tensor, batch: TokenBatch, wanted: Tensor | None = None
    ) -> Tensor:
        """The hidden states of embedded tokens."""
        return self._second(self._layer(0, embedded, batch), batch, wanted)

    def _layer(self, number: int, given: Tensor, batch: TokenBatch) -> Tensor:
        """The states of both directions of a layer side by side (rows, length, 2 · width)."""
        right, left = self.layers[number](given, walls_of(batch))
        if batch.direction > 0:
            left = torch.zeros_like(left)
        if batch.direction < 0:
            right = torch.zeros_like(right)
        states: Tensor = self.dropout(torch.cat((right, left), -1))
        return states

    def _second(self, first: Tensor, batch: TokenBatch, wanted: Tensor | None) -> Tensor:
        """The hidden states that follow from those of the first layer."""
        second = self._layer(1, first, batch)
        hidden: Tensor = self.out(torch.cat((pick(first, wanted), pick(second, wanted)), -1))
        return hidden

    def directed(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Hidden states (rows, length, width) that have read nothing right of their token, and
        those that have read nothing left of it: `contextualise` in one direction and the other,
        with one pass of the first layer.
        """
        walls = walls_of(batch)
        right, left = self.layers[0](self.embed(batch), walls)
        none = torch.zeros_like(right)
        states = []
        for number, lower in enumerate(((right, none), (none, left))):
            first = self.dropout(torch.cat(lower, -1))
            upper = [none, none]
            upper[number] = self.layers[1](first, walls)[number]
            second = self.dropout(torch.cat(upper, -1))
            states.append(self.out(torch.cat((first, second), -1)))
        return states[0], states[1]

    def views(self, batch: TokenBatch, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """The first layer's states (n, view_width) to the right of the flattened tokens `ends`,
        which have read nothing right of themselves, and to the left of `begins`, which have read
        nothing left of themselves.
        """
        return _sides(self._layer(0, self.embed(batch), batch), ends, begins)

    def whole_and_views(
        self, batch: TokenBatch, wanted: Tensor, ends: Tensor, begins: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states (wanted, width) and both views, which share embeddings, first layer and
        their dropout.
        """
        first = self._layer(0, self.embed(batch), batch)
        return self._second(first, batch, wanted), *_sides(first, ends, begins)


def _sides(first: Tensor, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
    """The first layer's states to the right of `ends`, and those to the left of `begins`."""
    width = first.shape[-1] // 2
    return pick(first, ends)[:, :width], pick(first, begins)[:, width:]


def walls_of(batch: TokenBatch) -> Tensor:
    """Which tokens are padding or the last of their piece (rows, length): a [SEP], of whose states
    nothing is asked, so that a direction begins anew behind it.
    """
    last = torch.ones_like(batch.pieces, dtype=torch.bool)
    last[:, :-1] = batch.pieces[:, 1:] != batch.pieces[:, :-1]
    return last | (batch.pieces == 0)
