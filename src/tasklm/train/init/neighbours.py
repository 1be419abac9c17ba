"""Attention that begins with neighbouring tokens, for the beginning of stage 1 (`train.attention`).

Learned positions carry no information at first about which tokens are adjacent, and a small model
spends a large part of a short training on finding out: until then it predicts tokens only by their
frequency. Here positions start as sines and cosines, and two heads of each of the first two layers
attend one position to the left or right (two in the second layer). Values and outputs of all heads
of these layers start as projections, so that the attended values are added unchanged. Everything is
then trained as usual.

*Mimetic Initialization of Self-Attention Layers* (arXiv 2305.09828) found that attention
initialised like that of trained models learns faster from little text; its initial weights are
different.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tasklm.encoders.base import Shape
from tasklm.encoders.initial_weights import initial_spread

# margin of the attended position's logit over the others, before the tokens' own part
SHARPNESS = 12.0
LAYERS = 2  # from the lowest on: the first looks one place away, the second two


def obstacle(encoder: str, shape: Shape) -> str:
    """Why an encoder cannot start this way; empty if it can."""
    if encoder != "bert":
        return (
            f"model.encoder = {encoder!r} has other positions or shares its layers; this needs bert"
        )
    if shape.token_width != shape.width:
        return (
            f"embeddings of width {shape.token_width} are mapped onto layers of width "
            f"{shape.width}; this needs equal widths"
        )
    wide = shape.width // shape.heads
    if shape.heads < 2 or wide % 2:
        return f"this needs at least two heads of an even width, not {shape.heads} of {wide}"
    return ""


def look_at_neighbours(encoder: Any, draw: torch.Generator) -> None:
    """Writes the first weights of positions and attention into an encoder without `obstacle`."""
    shape: Shape = encoder.shape
    wide = shape.width // shape.heads
    # Angles from 0 to π make a place like itself and unlike its neighbours; drawn ones never come
    # back together further away.
    count = wide // 2
    angles = math.pi * (torch.arange(count) + torch.rand(count, generator=draw)) / count
    turns = torch.arange(shape.positions)[:, None] * angles
    waves = torch.stack((turns.sin(), turns.cos()), -1).flatten(1)  # (positions, wide)
    subspace = _directions(shape.width, wide, draw)
    # half of a normalised embedding's squared length is its position's
    gain = math.sqrt(SHARPNESS * math.sqrt(wide) / (shape.width / 2))
    # as long as a drawn row, in the mean
    size = initial_spread(shape.width) * math.sqrt(shape.width / (wide / 2))
    with torch.no_grad():
        encoder.position.weight.copy_(size * waves @ subspace.T)
        for number, layer in enumerate(encoder.layers[:LAYERS], 1):
            split = layer.query_key_value.weight.view(3, shape.heads, wide, shape.width)
            out = layer.attention_out.weight.view(shape.width, shape.heads, wide)
            for head in range(shape.heads):
                values = _directions(shape.width, wide, draw)
                split[2, head], out[:, head] = values.T, values
                if head < 2:
                    shift = _shift(angles, number if head else -number)
                    split[0, head], split[1, head] = gain * shift @ subspace.T, gain * subspace.T


def _directions(width: int, count: int, draw: torch.Generator) -> Tensor:
    """Random orthogonal directions (width, count) of length 1."""
    directions: Tensor = torch.linalg.qr(torch.randn(width, count, generator=draw))[0]
    return directions


def _shift(angles: Tensor, places: int) -> Tensor:
    """The matrix that takes the waves of any place to those of the place that many to the right."""
    cosine, sine = (angles * places).cos(), (angles * places).sin()
    columns = torch.stack((cosine, sine), -1), torch.stack((-sine, cosine), -1)
    turns = torch.stack(columns, -2)  # (angles, 2, 2)
    matrix: Tensor = torch.block_diag(*turns)  # type: ignore[no-untyped-call]
    return matrix
