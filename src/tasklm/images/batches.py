"""The batches of a step: which images, and how they are moved and mirrored.

All of it is a function of the seed and the number of the step, so that a resumed training reads
what it would have read. The images themselves lie on the device and are gathered there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LABELLED, UNLABELLED = 0, 1  # parts of the seeds of draws


@dataclass
class ImageBatch:
    """The numbers of the images of a step, with (down, right, mirrored) of each."""

    labelled: Tensor
    moves: Tensor
    unlabelled: Tensor
    unlabelled_moves: Tensor

    def __len__(self) -> int:
        return len(self.labelled)

    def part(self, number: int, parts: int) -> ImageBatch:
        """One of `parts` micro-batches."""
        return self._each(lambda tensor: tensor[number::parts])

    def to(self, device: torch.device) -> ImageBatch:
        """The same on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> ImageBatch:
        """The same in pinned memory."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> ImageBatch:
        return replace(self, **{name: change(tensor) for name, tensor in vars(self).items()})


@dataclass(frozen=True)
class Drawing:
    """How batches are drawn."""

    labelled: NDArray[np.int64]  # numbers of the images with labels
    unlabelled: NDArray[np.int64]  # of those that are read without
    batch: int
    unlabelled_batch: int  # 0: none are read
    shifts: int
    flips: bool
    seed: int

    def of_step(self, step: int) -> ImageBatch:
        """The batch of a step."""
        own, others = self.batch, self.unlabelled_batch
        return ImageBatch(
            self._numbers(self.labelled, own, step, LABELLED),
            self._moves(own, step, LABELLED),
            self._numbers(self.unlabelled, others, step, UNLABELLED),
            self._moves(others, step, UNLABELLED),
        )

    def _numbers(self, of: NDArray[np.int64], count: int, step: int, part: int) -> Tensor:
        """The images at the places of a step in an endless row of shuffled passes."""
        if not count:
            return torch.zeros(0, dtype=torch.int64)
        places = np.arange(step * count, (step + 1) * count)
        numbers = np.empty(count, np.int64)
        for turn in np.unique(places // len(of)):
            order = _order(self.seed, part, int(turn), len(of))
            inside = places // len(of) == turn
            numbers[inside] = of[order[places[inside] % len(of)]]
        return torch.from_numpy(numbers)

    def _moves(self, count: int, step: int, part: int) -> Tensor:
        moves = np.zeros((count, 3), np.int64)
        draw = np.random.default_rng([self.seed, 2 + part, step])
        if self.shifts:
            moves[:, :2] = draw.integers(-self.shifts, self.shifts + 1, (count, 2))
        if self.flips:
            moves[:, 2] = draw.integers(0, 2, count)
        return torch.from_numpy(moves)


@functools.lru_cache(maxsize=4)
def _order(seed: int, part: int, turn: int, count: int) -> NDArray[np.int64]:
    """The order of the images in a pass; many steps read of the same one."""
    order: NDArray[np.int64] = np.random.default_rng([seed, part, turn]).permutation(count)
    return order


def gathered(pixels: Tensor, numbers: Tensor, moves: Tensor | None = None) -> Tensor:
    """Some of the images (images, size, size, 3) of a device, moved and mirrored; what moves in
    at an edge is the mirror image of what is there.
    """
    if moves is None:
        return pixels[numbers]
    size = pixels.shape[1]
    line = torch.arange(size, device=pixels.device)
    down, right, mirrored = moves.unbind(1)
    rows = _inside(line[None] + down[:, None], size)
    columns = torch.where(mirrored[:, None] > 0, size - 1 - line[None], line[None])
    columns = _inside(columns + right[:, None], size)
    return pixels[numbers[:, None, None], rows[:, :, None], columns[:, None, :]]


def _inside(places: Tensor, size: int) -> Tensor:
    """Places mirrored at the edges 0 and size − 1."""
    places = places.abs()
    return torch.where(places >= size, 2 * (size - 1) - places, places)
