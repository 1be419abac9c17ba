"""AdamW's step for many tensors at once, as one GPU kernel in Triton, which comes with PyTorch.

The tensors are given by a table of addresses: a program of the kernel looks up the tensor that its
chunk belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK, VALUES = 4096, 1024  # numbers that a program moves, and that it has at hand at once
GRADIENTS = 4  # column of their addresses
ALIGNED = 16  # bytes: addresses are multiples of it, so that a GPU reads four numbers at once


@triton.jit
def _at(row_at, kind, start):  # type: ignore[no-untyped-def]
    """Where a chunk of a tensor begins."""
    tensor_at = tl.load(row_at + kind).to(tl.pointer_type(tl.float32))
    return tl.multiple_of(tensor_at, 16) + start


@triton.jit
def _values(  # type: ignore[no-untyped-def]
    weights_at,
    means_at,
    squares_at,
    gradients_at,
    here,
    divisor,
    remaining,
    pace,
    correction,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    CAUTIOUS: tl.constexpr,
):
    gradient = tl.load(gradients_at, mask=here) / divisor
    mean = tl.load(means_at, mask=here)
    mean += (1.0 - BETA1) * (gradient - mean)
    square = BETA2 * tl.load(squares_at, mask=here) + (1.0 - BETA2) * gradient * gradient
    weight = tl.load(weights_at, mask=here)
    if CAUTIOUS:  # arXiv 2510.12402: what the step leads away from 0 does not decay
        remaining = tl.where(mean * weight >= 0.0, remaining, 1.0)
    weight = remaining * weight - pace * mean / (tl.sqrt(square) * correction + EPSILON)
    tl.store(means_at, mean, mask=here)
    tl.store(squares_at, square, mask=here)
    tl.store(weights_at, weight, mask=here)


@triton.jit
def _move(  # type: ignore[no-untyped-def]
    addresses_at,
    chunks_at,
    skip_at,
    divisor_at,
    rate,
    decay,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
    EPSILON: tl.constexpr,
    CAUTIOUS: tl.constexpr,
    CHUNK: tl.constexpr,
    VALUES: tl.constexpr,
):
    if tl.load(skip_at) == 0.0:
        chunks_at += 2 * tl.program_id(0)
        row_at = addresses_at + 6 * tl.load(chunks_at)
        start = tl.multiple_of(tl.load(chunks_at + 1), 16)
        weights_at = _at(row_at, 0, start)
        means_at, squares_at = _at(row_at, 1, start), _at(row_at, 2, start)
        gradients_at, left = _at(row_at, 4, start), tl.load(row_at + 5) - start
        step = tl.load(tl.load(row_at + 3).to(tl.pointer_type(tl.float32)))
        pace = rate / (1.0 - tl.exp2(step * tl.log2(BETA1)))
        correction = tl.rsqrt(1.0 - tl.exp2(step * tl.log2(BETA2)))
        remaining, divisor = 1.0 - rate * decay, tl.load(divisor_at)
        for first in range(0, CHUNK, VALUES):
            place = first + tl.arange(0, VALUES)
            at = weights_at + place, means_at + place, squares_at + place, gradients_at + place
            if left >= CHUNK:  # without a mask a GPU reads four numbers at once
                _values(
                    at[0],
                    at[1],
                    at[2],
                    at[3],
                    None,
                    divisor,
                    remaining,
                    pace,
                    correction,
                    BETA1,
                    BETA2,
                    EPSILON,
                    CAUTIOUS,
                )
            else:
                _values(
                    at[0],
                    at[1],
                    at[2],
                    at[3],
                    place < left,
                    divisor,
                    remaining,
                    pace,
                    correction,
                    BETA1,
                    BETA2,
                    EPSILON,
                    CAUTIOUS,
                )


@dataclass(frozen=True)
class Tensors:
    """The tensors of an AdamW step: fp32, contiguous, at aligned addresses."""

    weights: Sequence[Tensor]
    means: Sequence[Tensor]
    squares: Sequence[Tensor]
    steps: Sequence[Tensor]  # 0-dim: how many were done, this one among them
    gradients: Sequence[Tensor]


class Table:
    """Where the tensors lie on their device; weights and state stay where they are."""

    # (tensors, 6): of weights, means, squares, steps and gradients, and the count of numbers
    addresses: Tensor
    chunks: Tensor  # (programs, 2): the tensor and the first number of each chunk

    def __init__(self, tensors: Tensors) -> None:
        lists = (tensors.weights, tensors.means, tensors.squares, tensors.steps)
        for tensor in (*tensors.weights, *tensors.means, *tensors.squares):
            assert _readable(tensor)
        self._device = tensors.weights[0].device
        self._weights, self._gradients = _addresses(tensors.weights), list[int]()
        sizes = np.array([weight.numel() for weight in tensors.weights])
        addresses = [np.array(_addresses(tensors_of_kind)) for tensors_of_kind in lists]
        self._rows = np.stack([*addresses, np.zeros_like(sizes), sizes], 1)
        chunks = -(-sizes // CHUNK)
        owners = np.repeat(np.arange(len(sizes)), chunks)  # tensor of a chunk
        before = np.repeat(chunks.cumsum() - chunks, chunks)
        firsts = np.arange(chunks.sum()) - before  # number of a chunk in its tensor
        self.chunks = self._copied(np.stack([owners, CHUNK * firsts], 1))
        self.zero = torch.zeros((), device=self._device)
        self.one = torch.ones((), device=self._device)
        self.finds(tensors)

    def finds(self, tensors: Tensors) -> bool:
        """Whether it belongs to these weights; moved gradients are looked up again."""
        if self._weights != _addresses(tensors.weights):
            return False
        if self._gradients != (gradients := _addresses(tensors.gradients)):
            assert all(map(_readable, tensors.gradients))
            self._gradients, self._rows[:, GRADIENTS] = gradients, gradients
            self.addresses = self._copied(self._rows)
        return True

    def _copied(self, numbers: np.ndarray) -> Tensor:
        """An asynchronous copy on the device."""
        table = torch.tensor(numbers, dtype=torch.int64)
        if self._device.type == "cpu":
            return table
        return table.pin_memory().to(self._device, non_blocking=True)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def _readable(tensor: Tensor) -> bool:
    return (
        tensor.is_contiguous()
        and tensor.dtype == torch.float32
        and tensor.data_ptr() % ALIGNED == 0
    )


def aligned(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy that is contiguous and at an aligned address."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNED == 0 else tensor.clone()


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of AdamW in one step."""

    rate: float
    decay: float
    betas: tuple[float, float]
    epsilon: float
    cautious: bool = False  # decay only what the step moves towards 0


def move(
    table: Table, skip: Tensor | None, divisor: Tensor | None, settings: Hyperparameters
) -> None:
    """Updates the weights unless `skip` is 1; gradients count as divided by `divisor`."""
    if skip is None:
        skip = table.zero
    if divisor is None:
        divisor = table.one
    beta1, beta2 = settings.betas
    _move[(len(table.chunks),)](
        table.addresses,
        table.chunks,
        skip,
        divisor,
        settings.rate,
        settings.decay,
        beta1,
        beta2,
        settings.epsilon,
        settings.cautious,
        CHUNK,
        VALUES,
    )
