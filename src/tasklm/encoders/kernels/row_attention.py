"""Attention inside the pieces of short rows, as two GPU kernels in Triton, which comes with PyTorch.

General kernels spread a sequence over many programs, which then must keep statistics and add up their gradients. Here one
program per row and head holds all keys and values of a row of at most 256 tokens, and queries go by in blocks: each sees
all of its scores at once. Queries, keys and values stay in the one tensor that their linear map gives, and so do their
gradients. `benchmarks/attention.py` measures it beside PyTorch's own kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SHORT = 128  # tokens of a row whose scores the registers hold at once; longer rows take the queries in blocks of
BLOCK_OF_LONG = 32  # … so many (this and the numbers of warps below: measured best on an H200)


@triton.jit
def _places(row, head, part, token, HEADS: tl.constexpr, LENGTH: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns where the numbers (tokens, WIDTH) of a head stand: queries, keys or values (part 0, 1, 2 of 3), or the one part of 1."""
    return ((row * LENGTH + token) * (PARTS * HEADS) + part * HEADS + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _weights(query, key, pieces, other, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the probabilities (queries, keys) in fp32, 0 outside a token's own piece."""
    scores = tl.dot(query, tl.trans(key)) * SCALE
    scores = tl.where(pieces[:, None] == other[None, :], scores, -1e30)
    powers = tl.exp(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    out_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = tl.arange(0, KEYS)
    real = (token < LENGTH)[:, None]
    key = tl.load(qkv_at + _places(row, head, 1, token, HEADS, LENGTH, WIDTH, 3), mask=real, other=0.0)
    value = tl.load(qkv_at + _places(row, head, 2, token, HEADS, LENGTH, WIDTH, 3), mask=real, other=0.0)
    other = tl.load(pieces_at + row * LENGTH + token, mask=token < LENGTH, other=-1)
    for start in range(0, LENGTH, BLOCK):
        asking = start + tl.arange(0, BLOCK)
        here = (asking < LENGTH)[:, None]
        query = tl.load(qkv_at + _places(row, head, 0, asking, HEADS, LENGTH, WIDTH, 3), mask=here, other=0.0)
        pieces = tl.load(pieces_at + row * LENGTH + asking, mask=asking < LENGTH, other=-1)
        mixed = tl.dot(_weights(query, key, pieces, other, SCALE).to(value.dtype), value)
        tl.store(out_at + _places(row, head, 0, asking, HEADS, LENGTH, WIDTH, 1), mixed.to(value.dtype), mask=here)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    gradient_at,
    result_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = tl.arange(0, KEYS)
    real = (token < LENGTH)[:, None]
    key = tl.load(qkv_at + _places(row, head, 1, token, HEADS, LENGTH, WIDTH, 3), mask=real, other=0.0)
    value = tl.load(qkv_at + _places(row, head, 2, token, HEADS, LENGTH, WIDTH, 3), mask=real, other=0.0)
    other = tl.load(pieces_at + row * LENGTH + token, mask=token < LENGTH, other=-1)
    of_key = tl.zeros((KEYS, WIDTH), tl.float32)
    of_value = tl.zeros((KEYS, WIDTH), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        asking = start + tl.arange(0, BLOCK)
        here = (asking < LENGTH)[:, None]
        query = tl.load(qkv_at + _places(row, head, 0, asking, HEADS, LENGTH, WIDTH, 3), mask=here, other=0.0)
        of_mixed = tl.load(gradient_at + _places(row, head, 0, asking, HEADS, LENGTH, WIDTH, 1), mask=here, other=0.0)
        pieces = tl.load(pieces_at + row * LENGTH + asking, mask=asking < LENGTH, other=-1)
        weights = _weights(query, key, pieces, other, SCALE)
        of_value += tl.dot(tl.trans(weights.to(value.dtype)), of_mixed)
        of_weights = tl.dot(of_mixed, tl.trans(value))
        of_scores = (weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * SCALE).to(value.dtype)
        of_key += tl.dot(tl.trans(of_scores), query)
        of_query = tl.dot(of_scores, key)
        tl.store(result_at + _places(row, head, 0, asking, HEADS, LENGTH, WIDTH, 3), of_query.to(value.dtype), mask=here)
    tl.store(result_at + _places(row, head, 1, token, HEADS, LENGTH, WIDTH, 3), of_key.to(value.dtype), mask=real)
    tl.store(result_at + _places(row, head, 2, token, HEADS, LENGTH, WIDTH, 3), of_value.to(value.dtype), mask=real)


def _constants(query_key_value: Tensor) -> tuple[float, int, int, int, int, int]:
    _, length, _, heads, width = query_key_value.shape
    keys = max(16, triton.next_power_of_2(length))
    return width**-0.5, heads, length, width, keys, keys if length <= SHORT else BLOCK_OF_LONG


@torch.library.triton_op("tasklm::row_attention", mutates_args=())
def row_attention(query_key_value: Tensor, pieces: Tensor) -> Tensor:
    """Returns (rows, length, heads, head width) from contiguous (rows, length, 3, heads, head width) and pieces (rows, length)."""
    rows, length, _, heads, width = query_key_value.shape
    out = torch.empty((rows, length, heads, width), dtype=query_key_value.dtype, device=query_key_value.device)
    kernel = torch.library.wrap_triton(_forward)
    kernel[(rows, heads)](query_key_value, pieces, out, *_constants(query_key_value), num_warps=8 if length <= SHORT else 4)
    return out


@torch.library.triton_op("tasklm::row_attention_gradient", mutates_args=())
def row_attention_gradient(query_key_value: Tensor, pieces: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient of queries, keys and values from that of the mixed values."""
    result = torch.empty_like(query_key_value)
    kernel = torch.library.wrap_triton(_backward)
    grid = (query_key_value.shape[0], query_key_value.shape[3])
    kernel[grid](query_key_value, pieces, gradient, result, *_constants(query_key_value), num_warps=8)
    return result


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    query_key_value, pieces = ctx.saved_tensors
    return row_attention_gradient(query_key_value, pieces, gradient.contiguous()), None


row_attention.register_autograd(_differentiate, setup_context=_keep)
