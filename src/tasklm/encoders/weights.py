"""How weights are drawn at the start."""

from __future__ import annotations

import math

from torch import nn


def initial_spread(width: int) -> float:
    """Returns the standard deviation of initial weights: BERT's 0.02 at its width of 768, wider in narrower models.

    A sum of `width` products keeps its size when the spread grows as 1/√width. With 0.02 everywhere, the layers of a
    narrow model start so close to zero that its first thousands of steps learn word frequencies alone.
    """
    return 0.02 * math.sqrt(768 / width)


def draw_weights(module: nn.Module, spread: float) -> None:
    """Draws the weights of one linear or embedding layer from N(0, spread²); biases are 0."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=spread)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
