"""Attention inside the pieces of short rows, as two GPU kernels in Triton, which comes with PyTorch.

General kernels walk over blocks of keys and keep statistics for the backward pass. A row of at most 128 tokens fits into
one block: one program per row and head computes all of its attention, and the backward pass computes the probabilities
again from the inputs. Queries, keys and values stay in the one tensor that their linear map gives, and so do their gradients.
`benchmarks/attention.py` measures it beside PyTorch's own kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 8  # of a program: measured best on an H200, in both passes


@triton.jit
def _weights(query, key, pieces, column, SCALE: tl.constexpr, LENGTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the probabilities (queries, keys) in fp32, 0 outside a token's own piece."""
    scores = tl.dot(query, tl.trans(key)) * SCALE
    inside = (pieces[:, None] == pieces[None, :]) & (column[None, :] < LENGTH)
    scores = tl.where(inside, scores, -1e30)
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv_at, pieces_at, out_at, SCALE: tl.constexpr, HEADS: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, feature = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    token, real = (row * LENGTH + column)[:, None], (column < LENGTH)[:, None]
    place = token * (3 * HEADS * WIDTH) + head * WIDTH + feature[None, :]
    query = tl.load(qkv_at + place, mask=real, other=0.0)
    key = tl.load(qkv_at + place + HEADS * WIDTH, mask=real, other=0.0)
    value = tl.load(qkv_at + place + 2 * HEADS * WIDTH, mask=real, other=0.0)
    pieces = tl.load(pieces_at + row * LENGTH + column, mask=column < LENGTH, other=-1)
    weights = _weights(query, key, pieces, column, SCALE, LENGTH)
    mixed = tl.dot(weights.to(value.dtype), value)
    tl.store(out_at + token * (HEADS * WIDTH) + head * WIDTH + feature[None, :], mixed.to(value.dtype), mask=real)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    mixed_gradient_at,
    gradient_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column, feature = tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    token, real = (row * LENGTH + column)[:, None], (column < LENGTH)[:, None]
    place = token * (3 * HEADS * WIDTH) + head * WIDTH + feature[None, :]
    query = tl.load(qkv_at + place, mask=real, other=0.0)
    key = tl.load(qkv_at + place + HEADS * WIDTH, mask=real, other=0.0)
    value = tl.load(qkv_at + place + 2 * HEADS * WIDTH, mask=real, other=0.0)
    mixed = tl.load(mixed_gradient_at + token * (HEADS * WIDTH) + head * WIDTH + feature[None, :], mask=real, other=0.0)
    pieces = tl.load(pieces_at + row * LENGTH + column, mask=column < LENGTH, other=-1)
    weights = _weights(query, key, pieces, column, SCALE, LENGTH)
    of_value = tl.dot(tl.trans(weights.to(value.dtype)), mixed)
    tl.store(gradient_at + place + 2 * HEADS * WIDTH, of_value.to(value.dtype), mask=real)
    of_weights = tl.dot(mixed, tl.trans(value))
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * SCALE
    of_scores = of_scores.to(value.dtype)
    tl.store(gradient_at + place, tl.dot(of_scores, key).to(value.dtype), mask=real)
    tl.store(gradient_at + place + HEADS * WIDTH, tl.dot(tl.trans(of_scores), query).to(value.dtype), mask=real)


def _constants(query_key_value: Tensor) -> tuple[float, int, int, int, int]:
    _, length, _, heads, width = query_key_value.shape
    return width**-0.5, heads, length, width, max(16, triton.next_power_of_2(length))


@torch.library.triton_op("tasklm::row_attention", mutates_args=())
def row_attention(query_key_value: Tensor, pieces: Tensor) -> Tensor:
    """Returns (rows, length, heads, head width) from contiguous (rows, length, 3, heads, head width) and pieces (rows, length)."""
    rows, length, _, heads, width = query_key_value.shape
    out = torch.empty((rows, length, heads, width), dtype=query_key_value.dtype, device=query_key_value.device)
    kernel = torch.library.wrap_triton(_forward)
    kernel[(rows, heads)](query_key_value, pieces, out, *_constants(query_key_value), num_warps=WARPS)
    return out


@torch.library.triton_op("tasklm::row_attention_gradient", mutates_args=())
def row_attention_gradient(query_key_value: Tensor, pieces: Tensor, mixed: Tensor) -> Tensor:
    """Returns the gradient of queries, keys and values from that of the mixed values."""
    gradient = torch.empty_like(query_key_value)
    kernel = torch.library.wrap_triton(_backward)
    grid = (query_key_value.shape[0], query_key_value.shape[3])
    kernel[grid](query_key_value, pieces, mixed, gradient, *_constants(query_key_value), num_warps=WARPS)
    return gradient


def _keep(context: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    context.save_for_backward(*inputs)


def _differentiate(context: Any, mixed: Tensor) -> tuple[Tensor, None]:
    query_key_value, pieces = context.saved_tensors
    return row_attention_gradient(query_key_value, pieces, mixed.contiguous()), None


row_attention.register_autograd(_differentiate, setup_context=_keep)
