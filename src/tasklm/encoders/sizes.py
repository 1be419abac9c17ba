"""One dial for the size. Head width is 64 and the feed-forward layer four times the width, as in BERT."""

from __future__ import annotations

from tasklm.encoders.base import Shape
from tasklm.errors import RecipeError
from tasklm.recipe import Model
from tasklm.registry import nearest

SIZES = {  # name: layers, width
    "tiny": (2, 128),
    "mini": (3, 192),
    "small": (4, 256),
    "medium": (8, 512),
    "base": (12, 768),  # BERT-base, the size of the papers' small and medium scales
    "large": (24, 1024),  # BERT-large
}


def shape_of(settings: Model, size: str, vocabulary: int, positions: int) -> Shape:
    """Returns the encoder's shape: the size's numbers, with the recipe's own numbers in their place."""
    if size not in SIZES:
        raise RecipeError([f"model.size = {size!r}: choose from auto, {', '.join(SIZES)}{nearest(size, list(SIZES))}"])
    layers, width = SIZES[size]
    width = settings.width or width
    heads = settings.heads or max(1, width // 64)
    if width % heads:
        raise RecipeError([f"model.width = {width} is not a multiple of model.heads = {heads}"])
    return Shape(
        vocabulary=vocabulary,
        layers=settings.layers or layers,
        width=width,
        heads=heads,
        feedforward=settings.feedforward or 4 * width,
        positions=positions,
    )
