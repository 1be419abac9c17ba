"""ModernBERT with the attention of its published checkpoints (arXiv 2412.13663, section 2.1.2).

Every third layer looks at the whole piece. The other layers see 64 tokens to either side, and the
two kinds of layers rotate by bases of their own. What local layers do not see is computed and
masked, which saves nothing: to train from random weights, take `modern`.
"""

from __future__ import annotations

from torch import Tensor

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.layers.attention import Layout, layout_of
from tasklm.encoders.layers.directed import without_views
from tasklm.encoders.layers.two_streams import Streams
from tasklm.encoders.modern import Modern, rotary_angles
from tasklm.errors import RecipeError
from tasklm.tokens.batches import TokenBatch

GLOBAL_EVERY = 3  # layers; the first is global
WINDOW = 64  # tokens to either side that a local layer sees
GLOBAL_BASE, LOCAL_BASE = 160_000.0, 10_000.0  # of the rotary positions


def is_global(layer: int) -> bool:
    """Whether the layer of this number (from 0) sees the whole piece."""
    return layer % GLOBAL_EVERY == 0


@ENCODERS.register("modernbert")
class ModernBert(Modern):
    """`modern` with local layers, and without restricted views: training begins with published
    weights, whose layers read both sides.
    """

    def __init__(self, shape: Shape, tables: bool = True) -> None:
        super().__init__(shape, tables)
        self.view_width = 0

    def contextualise(
        self, embedded: Tensor, batch: TokenBatch, wanted: Tensor | None = None
    ) -> Tensor:
        """The hidden states of embedded tokens."""
        hidden = self.projection(embedded)
        everywhere = (
            layout_of(batch, self.head_width),
            rotary_angles(batch.positions, self.head_width, GLOBAL_BASE),
        )
        nearby = (
            local_layout(batch, everywhere[0]),
            rotary_angles(batch.positions, self.head_width, LOCAL_BASE),
        )
        for number, layer in enumerate(self.layers):
            layout, angles = everywhere if is_global(number) else nearby
            last = number == self.shape.layers - 1
            hidden = layer(hidden, layout, angles, wanted if last else None)
        out: Tensor = self.last_norm(hidden)
        return out

    def views(self, batch: TokenBatch, ends: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
        """Raises RecipeError: this encoder has no restricted views."""
        raise without_views("modernbert")

    def two_streams(self, batch: TokenBatch, streams: Streams) -> Tensor:
        """Raises RecipeError: two streams have no local layers."""
        raise RecipeError(
            [
                "train.objective: permutations are not computed with local attention "
                "(modernbert); choose another objective"
            ]
        )


def local_layout(batch: TokenBatch, layout: Layout) -> Layout:
    """Which tokens of a local layer may look at one another, from the layout of a global one."""
    if (batch.longest or batch.ids.shape[1]) <= WINDOW + 1:
        return layout
    mask = layout.mask
    if mask is None:
        mask = batch.pieces[:, None, :, None] == batch.pieces[:, None, None, :]
    near = (batch.positions[:, None, :, None] - batch.positions[:, None, None, :]).abs() <= WINDOW
    return Layout(mask=mask & near)
