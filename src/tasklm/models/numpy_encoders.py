"""The encoders `bert` and `modern` in NumPy: a few texts are encoded sooner than PyTorch is
imported.

They compute what `encoders/bert.py` and `encoders/modern.py` compute without dropout, in fp32, on
padded rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from tasklm.encoders.base import Shape
from tasklm.encoders.checkpoints.weight_shapes import Shapes
from tasklm.tokens.rows import Rows

BERT_EPSILON, MODERN_EPSILON = 1e-12, 1e-5  # of LayerNorm
ROTARY_BASE = 10_000.0
SEGMENTS = 2

Floats = NDArray[np.float32]


class Weights:
    """The weights below a prefix of their names."""

    def __init__(self, tensors: Mapping[str, Floats], prefix: str) -> None:
        self.tensors, self.prefix = tensors, prefix

    def below(self, name: str | int) -> Weights:
        """Those of a part."""
        return Weights(self.tensors, f"{self.prefix}{name}.")

    def get(self, name: str) -> Floats | None:
        """A tensor; None if there is none."""
        return self.tensors.get(self.prefix + name)

    def linear(self, name: str, states: Floats) -> Floats:
        """A linear map of states (…, width), with its bias if it has one."""
        mapped: Floats = states @ self.tensors[f"{self.prefix}{name}.weight"].T
        if (bias := self.get(f"{name}.bias")) is not None:
            mapped += bias
        return mapped

    def norm(self, name: str, states: Floats, epsilon: float) -> Floats:
        """LayerNorm of states (…, width); they are as they were where it has no weights."""
        weight, bias = self.get(f"{name}.weight"), self.get(f"{name}.bias")
        if weight is None:
            return states
        centred = states - states.mean(-1, keepdims=True)
        variance = np.square(centred).mean(-1, keepdims=True)
        normed: Floats = centred / np.sqrt(variance + np.float32(epsilon)) * weight
        if bias is not None:
            normed += bias
        return normed


class NumpyEncoder(NamedTuple):
    """The shapes of an encoder's weights, and its states (rows, places, width) at rows' places."""

    shapes: Callable[[Shape], Shapes]
    states: Callable[[Weights, Shape, Rows], Floats]


def gelu(inner: Floats) -> Floats:
    """The exact GELU."""
    activated: Floats = 0.5 * inner * (1.0 + erf(inner * np.float32(np.sqrt(0.5))))
    return activated


def _attend(query_key_value: Floats, mask: NDArray[np.bool_]) -> Floats:
    """softmax(QKᵀ/√d)·V of (rows, length, 3, heads, head width) where the mask (rows, length,
    length) allows it: (rows, length, width).
    """
    query, key, value = query_key_value.transpose(2, 0, 3, 1, 4)
    scores = query @ key.swapaxes(2, 3) * np.float32(query.shape[-1] ** -0.5)
    scores = np.where(mask[:, None], scores, np.float32(-np.inf))
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed: Floats = scores @ value / scores.sum(-1, keepdims=True)
    rows, _, length, _ = mixed.shape
    return mixed.swapaxes(1, 2).reshape(rows, length, -1)


def _inside(rows: Rows) -> NDArray[np.bool_]:
    """Which tokens see each other: those of a piece, as padding sees padding."""
    inside: NDArray[np.bool_] = rows.pieces[:, :, None] == rows.pieces[:, None, :]
    return inside


def _pick(states: Floats, places: NDArray[np.int64] | None) -> Floats:
    """The states (rows, places, width) at places, or all as they are."""
    if places is None:
        return states
    return np.take_along_axis(states, places[..., None], 1)


def _split(projected: Floats, heads: int) -> Floats:
    rows, length, _ = projected.shape
    return projected.reshape(rows, length, 3, heads, -1)


def _bert_states(weights: Weights, shape: Shape, rows: Rows) -> Floats:
    tables: Any = {name: weights.get(f"{name}.weight") for name in ("token", "position", "segment")}
    segments = np.zeros_like(rows.ids) if rows.segments is None else rows.segments
    states = tables["token"][rows.ids] + tables["segment"][segments]
    states = weights.norm("norm", states + tables["position"][rows.positions], BERT_EPSILON)
    if weights.get("projection.weight") is not None:
        states = weights.linear("projection", states)
    mask = _inside(rows)
    for number in range(shape.layers):
        layer = weights.below("layers").below(number)
        places = rows.places if number == shape.layers - 1 else None
        mixed = _attend(_split(layer.linear("query_key_value", states), shape.heads), mask)
        mixed = layer.linear("attention_out", _pick(mixed, places))
        states = layer.norm("attention_norm", _pick(states, places) + mixed, BERT_EPSILON)
        inner = layer.linear("down", gelu(layer.linear("up", states)))
        states = layer.norm("norm", states + inner, BERT_EPSILON)
    return states


def _modern_states(weights: Weights, shape: Shape, rows: Rows) -> Floats:
    table: Any = weights.get("token.weight")
    states = weights.norm("norm", table[rows.ids], MODERN_EPSILON)
    if weights.get("projection.weight") is not None:
        states = weights.linear("projection", states)
    mask, angles = _inside(rows), _angles(rows.positions, shape.width // shape.heads)
    for number in range(shape.layers):
        layer = weights.below("layers").below(number)
        places = rows.places if number == shape.layers - 1 else None
        normed = layer.norm("attention_norm", states, MODERN_EPSILON)
        split = _split(layer.linear("query_key_value", normed), shape.heads)
        turned = np.concatenate((_rotate(split[:, :, :2], angles), split[:, :, 2:]), 2)
        mixed = layer.linear("attention_out", _pick(_attend(turned, mask), places))
        states = _pick(states, places) + mixed
        halves = layer.linear("up", layer.norm("norm", states, MODERN_EPSILON))
        inner, gate = np.split(halves, 2, -1)
        states = states + layer.linear("down", gelu(inner) * gate)
    return weights.norm("last_norm", states, MODERN_EPSILON)


def _angles(positions: NDArray[np.int64], head_width: int) -> tuple[Floats, Floats]:
    """Cosines and sines (rows, length, head width / 2) of the rotations by position."""
    halves = np.arange(0, head_width, 2, dtype=np.float32)
    base = np.float32(ROTARY_BASE)
    angles = positions[..., None].astype(np.float32) / base ** (halves / np.float32(head_width))
    return np.cos(angles), np.sin(angles)


def _rotate(states: Floats, angles: tuple[Floats, Floats]) -> Floats:
    """Queries and keys (rows, length, 2, heads, head width) turned by their positions."""
    cosine, sine = (part[:, :, None, None] for part in angles)
    first, second = np.split(states, 2, -1)
    return np.concatenate((first * cosine - second * sine, second * cosine + first * sine), -1)


def _linear(name: str, outputs: int, inputs: int, bias: bool = True) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (outputs, inputs)}
    return shapes | {f"{name}.bias": (outputs,)} if bias else shapes


def _norm(name: str, width: int, bias: bool = True) -> Shapes:
    shapes: Shapes = {f"{name}.weight": (width,)}
    return shapes | {f"{name}.bias": (width,)} if bias else shapes


def _bert_shapes(shape: Shape) -> Shapes:
    width, token = shape.width, shape.token_width
    shapes: Shapes = {
        "token.weight": (shape.vocabulary, token),
        "position.weight": (shape.positions, token),
        "segment.weight": (SEGMENTS, token),
        **_norm("norm", token),
    }
    if token != width:
        shapes |= _linear("projection", width, token)
    layer = {
        **_linear("query_key_value", 3 * width, width),
        **_linear("attention_out", width, width),
        **_norm("attention_norm", width),
        **_linear("up", shape.feedforward, width),
        **_linear("down", width, shape.feedforward),
        **_norm("norm", width),
    }
    return shapes | _of_layers([layer] * shape.layers)


def _modern_shapes(shape: Shape) -> Shapes:
    width, token = shape.width, shape.token_width
    if width // shape.heads % 2:
        raise ValueError(f"the width of its heads, {width // shape.heads}, is odd")
    shapes: Shapes = {
        "token.weight": (shape.vocabulary, token),
        **_norm("norm", token, bias=False),
        **_norm("last_norm", width, bias=False),
    }
    if token != width:
        shapes |= _linear("projection", width, token, bias=False)
    first = {
        **_linear("query_key_value", 3 * width, width, bias=False),
        **_linear("attention_out", width, width, bias=False),
        **_norm("norm", width, bias=False),
        **_linear("up", 2 * shape.feedforward, width, bias=False),
        **_linear("down", width, shape.feedforward, bias=False),
    }
    others = {**first, **_norm("attention_norm", width, bias=False)}
    return shapes | _of_layers([first, *[others] * (shape.layers - 1)])


def _of_layers(layers: list[Shapes]) -> Shapes:
    shapes: Shapes = {}
    for number, layer in enumerate(layers):
        shapes |= {f"layers.{number}.{name}": size for name, size in layer.items()}
    return shapes


ON_NUMPY = {
    "bert": NumpyEncoder(_bert_shapes, _bert_states),
    "modern": NumpyEncoder(_modern_shapes, _modern_states),
}
