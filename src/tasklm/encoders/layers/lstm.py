"""A layer of LSTM cells (Hochreiter and Schmidhuber, 1997) that reads rows in both directions.

Walls end what a direction remembers: at a wall every gate but the cell's is shut, so that state and
memory there are exactly 0, as before the first token. Padding and the last token of each piece of a
row are walls; neither padding nor what else shares a row changes a state.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.initial_weights import draw_weights
from tasklm.encoders.layers.recurrence import recurrence

# first bias of the forget gates. With the usual 1 a token ten places away counts σ(1)¹⁰ = 1/23 as
# much as the nearest, with 2 a quarter. Chosen on one small run of one seed, not compared further
REMEMBERED = 2.0
SHUT = -1e4  # what a wall adds to a gate in cuDNN's kernel: its sigmoid is 0
COLUMNS = 8  # of its input for walls: one would do, but matrix units take multiples of 8
# its weights come from linear maps that are learnt by themselves, and are laid side by side anew
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous")


class Direction(nn.Module):
    """The weights of one direction; with fewer states than units, states are projected ones."""

    def __init__(self, inputs: int, units: int, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 4 * units)
        self.recurrent = nn.Linear(width, 4 * units, bias=False)
        self.projection: nn.Linear | None = None
        if units != width:
            self.projection = nn.Linear(units, width, bias=False)

    def draw(self) -> None:
        """Draws the first weights so that sums of products keep the size of their inputs: what
        cells answer is small, and no norm follows them.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                draw_weights(module, module.in_features**-0.5)
        units = self.input.out_features // 4
        with torch.no_grad():
            self.input.bias[units : 2 * units] = REMEMBERED


class LstmLayer(nn.Module):
    """`units` cells that read to the right and as many that read to the left."""

    def __init__(self, inputs: int, units: int, width: int) -> None:
        super().__init__()
        self.right = Direction(inputs, units, width)
        self.left = Direction(inputs, units, width)
        self.right.draw()
        self.left.draw()

    def forward(self, given: Tensor, walls: Tensor) -> tuple[Tensor, Tensor]:
        """The states of both directions (rows, length, width), in fp32, from (rows, length, inputs)
        and walls (rows, length; bool).
        """
        if given.device.type == "cuda" and not torch.compiler.is_compiling():
            return self.by_library(given, walls)
        both = (self.right, self.left)
        inputs = functional.linear(
            given,
            torch.cat([one.input.weight for one in both]),
            torch.cat([one.input.bias for one in both]),
        )
        rows, length = walls.shape
        # (rows, length, 2, 4 · units) → (length, 2, rows, 4 · units), the left in its own order
        ahead, back = inputs.view(rows, length, 2, -1).permute(1, 2, 0, 3).unbind(1)
        unwalled = (~walls).T[:, :, None].to(torch.float32)
        projection = None
        if self.right.projection is not None:
            projection = torch.stack([_transposed(one.projection) for one in both])
        states, _, _ = recurrence(
            torch.stack((ahead, back.flip(0)), 1),
            torch.stack((unwalled, unwalled.flip(0)), 1),
            torch.stack([_transposed(one.recurrent) for one in both]),
            projection,
        )
        right, left = states.unbind(1)
        return right.transpose(0, 1), left.flip(0).transpose(0, 1)

    def by_library(self, given: Tensor, walls: Tensor) -> tuple[Tensor, Tensor]:
        """The same by PyTorch's LSTM: cuDNN's kernel on a GPU, which is in fp32 (TF32) here."""
        with torch.autocast(given.device.type, enabled=False):
            given = given.float()
            shut = walls[:, :, None].to(given.dtype).expand(-1, -1, COLUMNS) / COLUMNS
            weights: list[Tensor] = []
            for one in (self.right, self.left):
                weights += _with_walls(one)
            units, width = self.right.input.out_features // 4, self.right.recurrent.in_features
            first = given.new_zeros(2, len(given), width), given.new_zeros(2, len(given), units)
            lstm = torch._VF.lstm
            states: Tensor = lstm(
                torch.cat((given, shut), -1),
                first,
                weights,
                True,  # biases
                1,  # layer
                0.0,  # dropout
                torch.is_grad_enabled(),  # cuDNN differentiates what it ran in training mode
                True,  # both directions
                True,  # rows first
            )[0]
        right, left = states.chunk(2, -1)
        return right, left


def _transposed(linear: nn.Linear | None) -> Tensor:
    assert linear is not None
    return linear.weight.T


def _with_walls(direction: Direction) -> list[Tensor]:
    """The weights of a direction in the order of PyTorch's, with columns for walls."""
    weight, bias = direction.input.weight, direction.input.bias
    units = len(weight) // 4
    shut = weight.new_full((len(weight), COLUMNS), SHUT)
    shut[2 * units : 3 * units] = 0.0
    weights = [torch.cat((weight, shut), 1), direction.recurrent.weight]
    weights += [bias, torch.zeros_like(bias)]
    if direction.projection is not None:
        weights.append(direction.projection.weight)
    return weights
