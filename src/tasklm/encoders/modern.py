"""ModernBERT (arXiv 2412.13663): pre-norm, rotary positions, gated feed-forward, no biases.

Every layer attends to the whole piece. The paper's local layers (a window of 128 tokens) save time
only on long texts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.base import ENCODERS, Shape, pick
from tasklm.encoders.initial_weights import draw_encoder, shrink_outputs
from tasklm.encoders.layers.activation import gelu
from tasklm.encoders.layers.attention import Layout, attend, layout_of
from tasklm.encoders.layers.directed import (
    BACKWARD,
    FORWARD,
    SeparateViews,
    directed,
    layers_below,
)
from tasklm.encoders.layers.two_streams import Streams, attend_streams, project
from tasklm.errors import RecipeError
from tasklm.tokens.batches import TokenBatch

EPSILON = 1e-5  # of LayerNorm, as published
# the paper's up to 1024 tokens; 160,000 comes with its extension of the context to 8192
ROTARY_BASE = 10_000.0


def rotary_angles(
    positions: Tensor, head_width: int, base: float = ROTARY_BASE
) -> tuple[Tensor, Tensor]:
    """Cosines and sines (rows, length, head width / 2) of RoFormer's rotations, in fp32.

    RoFormer is arXiv 2104.09864.
    """
    halves = torch.arange(0, head_width, 2, device=positions.device, dtype=torch.float32)
    angles = positions[..., None].float() * (1.0 / base ** (halves / head_width))
    return angles.cos(), angles.sin()


def rotate(states: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Queries and keys (rows, length, 2, heads, head width) turned by their positions, in fp32."""
    cosine, sine = (part[:, :, None, None] for part in angles)
    first, second = states.float().chunk(2, dim=-1)
    turned = first * cosine - second * sine, second * cosine + first * sine
    return torch.cat(turned, dim=-1).to(states.dtype)


class ModernLayer(nn.Module):
    """Self-attention and gated feed-forward, each a LayerNorm'd branch beside the residual."""

    def __init__(self, shape: Shape, first: bool) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm: nn.Module = nn.Identity()  # the embeddings come normalised
        if not first:
            self.attention_norm = nn.LayerNorm(shape.width, EPSILON, bias=False)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.attention_out = nn.Linear(shape.width, shape.width, bias=False)
        self.norm = nn.LayerNorm(shape.width, EPSILON, bias=False)
        self.up = nn.Linear(shape.width, 2 * shape.feedforward, bias=False)
        self.down = nn.Linear(shape.feedforward, shape.width, bias=False)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(
        self, hidden: Tensor, layout: Layout, angles: tuple[Tensor, Tensor], wanted: Tensor | None
    ) -> Tensor:
        """Hidden states of the same shape (rows, length, width), or (wanted, width)."""
        rows, length, width = hidden.shape
        projected = self.query_key_value(self.attention_norm(hidden))
        split = projected.view(rows, length, 3, self.heads, width // self.heads)
        turned = torch.cat((rotate(split[:, :, :2], angles), split[:, :, 2:]), dim=2)
        return self._after_attention(pick(hidden, wanted), pick(attend(turned, layout), wanted))

    def two_streams(
        self,
        content: Tensor,
        queries: Tensor,
        streams: Streams,
        angles: list[tuple[Tensor, Tensor]],
        last: bool,
    ) -> tuple[Tensor, Tensor]:
        """The next layer's content (rows, length, width) and queries (rows, places, width).

        Nothing reads the last layer's content but its queries, so that keys and values are all that
        is computed of it.
        """
        linear, norm = self.query_key_value, self.attention_norm
        asking = rotate(project(linear, norm(queries), self.heads, last=0), angles[1])
        split = project(linear, norm(content), self.heads, first=int(last))
        turned = torch.cat((rotate(split[:, :, :-1], angles[0]), split[:, :, -1:]), dim=2)
        answers, mixed = attend_streams(asking, turned, streams)
        if mixed is not None:
            content = self._after_attention(content, mixed)
        return content, self._after_attention(queries, answers)

    def _after_attention(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.attention_out(mixed))
        inner, gate = self.up(self.norm(hidden)).chunk(2, dim=-1)
        added: Tensor = self.dropout(self.down(gelu(inner) * gate))
        return hidden + added


@ENCODERS.register("modern")
class Modern(SeparateViews, nn.Module):
    """Embeddings, layers and a last LayerNorm; pairs of texts have no segments, as published."""

    epsilon, gelu, normed_heads = EPSILON, "none", True

    def __init__(self, shape: Shape, tables: bool = True) -> None:
        super().__init__()
        self.shape, self.head_width = shape, shape.width // shape.heads
        self.view_width = shape.width
        if self.head_width % 2:
            raise RecipeError(
                [
                    f"model.width / model.heads = {self.head_width} is odd: rotary positions turn "
                    "pairs of numbers; choose other numbers, or model.encoder = bert"
                ]
            )
        if tables:
            self.token = nn.Embedding(shape.vocabulary, shape.token_width)
            self.norm = nn.LayerNorm(shape.token_width, EPSILON, bias=False)
        self.dropout = nn.Dropout(shape.dropout)
        self.projection: nn.Module = nn.Identity()
        if shape.token_width != shape.width:
            self.projection = nn.Linear(shape.token_width, shape.width, bias=False)
        layers = [ModernLayer(shape, first=number == 0) for number in range(shape.layers)]
        self.layers = nn.ModuleList(layers)
        self.last_norm = nn.LayerNorm(shape.width, EPSILON, bias=False)
        draw_encoder(self, shape)
        for layer in layers:
            shrink_outputs([layer.attention_out, layer.down], shape.layers)

    def forward(self, batch: TokenBatch, wanted: Tensor | None = None) -> Tensor:
        """Hidden states (rows, length, width), or (wanted, width)."""
        return self.contextualise(self.embed(batch), batch, wanted)

    def embed(self, batch: TokenBatch) -> Tensor:
        """The embeddings of all tokens (rows, length, token width)."""
        embedded: Tensor = self.dropout(self.norm(self.token(batch.ids)))
        return embedded

    def contextualise(
        self, embedded: Tensor, batch: TokenBatch, wanted: Tensor | None = None
    ) -> Tensor:
        """The hidden states of embedded tokens."""
        hidden = self.projection(embedded)
        layout = layout_of(batch, self.head_width)
        angles = rotary_angles(batch.positions, self.head_width)
        for number, layer in enumerate(self.layers, 1):
            hidden = layer(hidden, layout, angles, wanted if number == self.shape.layers else None)
        out: Tensor = self.last_norm(hidden)
        return out

    def views(self, batch: TokenBatch, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Forward states (ends, width) and backward states (begins, width) of the lowest layers,
        brought to size one: no norm follows a layer but the last.
        """
        first = self.projection(self.embed(batch))
        angles = rotary_angles(batch.positions, self.head_width)
        layers: Any = self.layers
        lowest = list(layers)[: layers_below(self.shape.layers)]
        states = []
        for direction, wanted in ((FORWARD, ends), (BACKWARD, begins)):
            layout = layout_of(directed(batch, direction), self.head_width)
            hidden = first
            for layer in lowest[:-1]:
                hidden = layer(hidden, layout, angles, None)
            hidden = lowest[-1](hidden, layout, angles, wanted)
            states.append(functional.layer_norm(hidden, (self.shape.width,), eps=EPSILON))
        return states[0], states[1]

    def two_streams(self, batch: TokenBatch, streams: Streams) -> Tensor:
        """The states of the query stream (rows, places, width)."""
        rows, places = streams.picked.shape
        asking = self.dropout(self.norm(streams.vector).expand(rows, places, -1))
        content, queries = self.projection(self.embed(batch)), self.projection(asking)
        positions = batch.positions, batch.positions.gather(1, streams.picked)
        angles = [rotary_angles(some, self.head_width) for some in positions]
        layers: Any = self.layers
        for number, layer in enumerate(layers, 1):
            content, queries = layer.two_streams(
                content, queries, streams, angles, number == self.shape.layers
            )
        out: Tensor = self.last_norm(queries)
        return out
