"""What is trained in one case: an encoder's shape, rows per step and their length."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.budget.costs import EncoderCost
from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import SIZES
from tasklm.errors import RunError

POSITIONS = 512  # of every encoder here, as BERT has them
HEAD_WIDTH = 64
MASK_RATE = 0.15


@dataclass(frozen=True)
class Case:
    """One shape at one batch."""

    name: str  # as the command line has it: base:256x128
    shape: Shape
    rows: int
    length: int

    def useful_flops(self, tokens: float) -> float:
        """The FLOPs that training on so many tokens needs when only masked tokens are predicted;
        alike for every engine.
        """
        shape = self.shape
        cost = EncoderCost(
            shape.layers, shape.width, shape.feedforward, shape.vocabulary, shape.positions
        )
        masked = round(MASK_RATE * tokens)
        return cost.training(round(tokens), masked, self.length, wanted=masked)


def parse_case(text: str, vocabulary: int) -> Case:
    """The case of SIZE:ROWSxLENGTH, where SIZE is a name such as base, or LAYERSxWIDTH."""
    try:
        size, batch = text.split(":")
        layers, width = SIZES[size] if size in SIZES else map(int, size.split("x"))
        rows, length = map(int, batch.split("x"))
    except ValueError:
        raise RunError(
            f"{text!r} is no shape. Write "
            f"SIZE:ROWSxLENGTH, such as base:256x128 or 12x256:1024x128."
        ) from None
    if width % HEAD_WIDTH or not 1 <= length <= POSITIONS or min(layers, width, rows) < 1:
        raise RunError(
            f"{text!r}: the width is a multiple of "
            f"{HEAD_WIDTH}, and rows have 1 to {POSITIONS} tokens."
        )
    return Case(
        text,
        Shape(vocabulary, layers, width, width // HEAD_WIDTH, 4 * width, POSITIONS),
        rows,
        length,
    )
