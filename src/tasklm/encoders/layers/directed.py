"""Restricted views of a Transformer: its lowest layers, with attention in one direction alone.

A layer of a Transformer reads the whole text, and what is computed from its states is no view.
Where every layer below a state attends to the left alone, the state knows nothing of what stands
right of it (cross-view training, arXiv 1809.08370).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import RecipeError
from tasklm.tokens.batches import TokenBatch

SHARE = 3  # one layer of so many, rounded, at least one, is below the views
FORWARD, BACKWARD = 1, -1  # directions of a batch


class SeparateViews:
    """A Transformer whose views are passes of their own: a layer's mask differs in them, so that no
    state of the whole text's pass is one of theirs.
    """

    def whole_and_views(
        self, batch: TokenBatch, wanted: Tensor, ends: Tensor, begins: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states (wanted, width), and the views (ends, width) and (begins, width)."""
        encoder: Any = self
        return encoder(batch, wanted), *encoder.views(batch, ends, begins)


def layers_below(layers: int) -> int:
    """How many of the lowest layers of an encoder make its views."""
    return max(1, round(layers / SHARE))


def directed(batch: TokenBatch, direction: int) -> TokenBatch:
    """The batch whose tokens see themselves and those on one side in their piece; the kernels for
    tiles and bounds know no direction.
    """
    return replace(batch, direction=direction, bounds=None, tiles=None)


def has_views(encoder: str, shape: Shape) -> bool:
    """Whether an encoder of this name has restricted views."""
    with shapes_alone():
        return bool(getattr(ENCODERS.get(encoder)(shape), "view_width", 0))


def without_views(encoder: str) -> RecipeError:
    """The error for an encoder that has no restricted views, with those that have."""
    shape = Shape(vocabulary=8, layers=2, width=8, heads=2, feedforward=8, positions=8)
    names = ", ".join(name for name in ENCODERS.names() if has_views(name, shape))
    problem = f"the encoder {encoder} has no restricted views"
    way_out = f"choose a model.encoder that has ({names}), or another student"
    return RecipeError([f"finetune.unlabelled = cross-view: {problem}; {way_out}"])
