"""Attention inside the pieces of short rows, as two GPU kernels in Triton, which comes with PyTorch.

General kernels spread a sequence over many programs, which then must add up their gradients. A row of at most 256 tokens
is one or two blocks: here one program per row and head computes all of its attention. Queries, keys and values stay in the
one tensor that their linear map gives, and so do their gradients. `benchmarks/attention.py` measures it beside PyTorch's
own kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 8  # of a program: measured best on an H200, in both passes
BLOCK = 128  # tokens whose scores are in the registers at a time


@triton.jit
def _load(
    at, row, head, block, part, LENGTH: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr
):  # type: ignore[no-untyped-def]
    """Returns (SIZE, WIDTH) numbers of one block of tokens: queries, keys or values (part 0, 1, 2 of 3), or of a tensor of one part."""
    token = block * SIZE + tl.arange(0, SIZE)
    place = ((row * LENGTH + token) * (PARTS * HEADS) + part * HEADS + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.load(at + place, mask=(token < LENGTH)[:, None], other=0.0)


@triton.jit
def _store(
    at,
    values,
    row,
    head,
    block,
    part,
    LENGTH: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
):  # type: ignore[no-untyped-def]
    token = block * SIZE + tl.arange(0, SIZE)
    place = ((row * LENGTH + token) * (PARTS * HEADS) + part * HEADS + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    tl.store(at + place, values, mask=(token < LENGTH)[:, None])


@triton.jit
def _scores(query, key, pieces_at, row, query_block, key_block, SCALE: tl.constexpr, LENGTH: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the scores (queries, keys) of two blocks, -1e30 outside a token's own piece."""
    queries, keys = query_block * SIZE + tl.arange(0, SIZE), key_block * SIZE + tl.arange(0, SIZE)
    piece = tl.load(pieces_at + row * LENGTH + queries, mask=queries < LENGTH, other=-1)
    other = tl.load(pieces_at + row * LENGTH + keys, mask=keys < LENGTH, other=-2)
    return tl.where(piece[:, None] == other[None, :], tl.dot(query, tl.trans(key)) * SCALE, -1e30)


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    out_at,
    sums_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    for i in tl.static_range(BLOCKS):
        query = _load(qkv_at, row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 3)
        highest = tl.full((SIZE,), -1e30, tl.float32)
        total = tl.zeros((SIZE,), tl.float32)
        mixed = tl.zeros((SIZE, WIDTH), tl.float32)
        for j in tl.static_range(BLOCKS):
            key = _load(qkv_at, row, head, j, 1, LENGTH, HEADS, WIDTH, SIZE, 3)
            value = _load(qkv_at, row, head, j, 2, LENGTH, HEADS, WIDTH, SIZE, 3)
            scores = _scores(query, key, pieces_at, row, i, j, SCALE, LENGTH, SIZE)
            higher = tl.maximum(highest, tl.max(scores, 1))
            powers = tl.where(scores > -1e29, tl.exp(scores - higher[:, None]), 0.0)
            shrink = tl.exp(highest - higher)
            total = total * shrink + tl.sum(powers, 1)
            mixed = mixed * shrink[:, None] + tl.dot(powers.to(value.dtype), value)
            highest = higher
        total = tl.where(total > 0, total, 1.0)  # places beyond the row
        _store(out_at, (mixed / total[:, None]).to(query.dtype), row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 1)
        token = i * SIZE + tl.arange(0, SIZE)
        tl.store(sums_at + (row * HEADS + head) * LENGTH + token, highest + tl.log(total), mask=token < LENGTH)


@triton.jit
def _of_scores(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    sums_at,
    out_at,
    gradient_at,
    row,
    head,
    i,
    j,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Returns probabilities, the gradient of the scores, queries, keys and the gradient of the mixed values of two blocks."""
    query = _load(qkv_at, row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 3)
    key = _load(qkv_at, row, head, j, 1, LENGTH, HEADS, WIDTH, SIZE, 3)
    value = _load(qkv_at, row, head, j, 2, LENGTH, HEADS, WIDTH, SIZE, 3)
    mixed = _load(out_at, row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 1)
    of_mixed = _load(gradient_at, row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 1)
    token = i * SIZE + tl.arange(0, SIZE)
    sums = tl.load(sums_at + (row * HEADS + head) * LENGTH + token, mask=token < LENGTH, other=0.0)
    scores = _scores(query, key, pieces_at, row, i, j, SCALE, LENGTH, SIZE)
    weights = tl.where(scores > -1e29, tl.exp(scores - sums[:, None]), 0.0)
    inner = tl.sum(mixed.to(tl.float32) * of_mixed.to(tl.float32), 1)
    of_weights = tl.dot(of_mixed, tl.trans(value))
    of_scores = (weights * (of_weights - inner[:, None]) * SCALE).to(query.dtype)
    return weights.to(query.dtype), of_scores, query, key, of_mixed


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    sums_at,
    out_at,
    gradient_at,
    result_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    LENGTH: tl.constexpr,
    WIDTH: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    for j in tl.static_range(BLOCKS):
        of_key = tl.zeros((SIZE, WIDTH), tl.float32)
        of_value = tl.zeros((SIZE, WIDTH), tl.float32)
        for i in tl.static_range(BLOCKS):
            weights, of_scores, query, key, of_mixed = _of_scores(
                qkv_at, pieces_at, sums_at, out_at, gradient_at, row, head, i, j, SCALE, HEADS, LENGTH, WIDTH, SIZE
            )
            of_value += tl.dot(tl.trans(weights), of_mixed)
            of_key += tl.dot(tl.trans(of_scores), query)
            if BLOCKS == 1:
                _store(result_at, tl.dot(of_scores, key).to(key.dtype), row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 3)
        _store(result_at, of_key.to(query.dtype), row, head, j, 1, LENGTH, HEADS, WIDTH, SIZE, 3)
        _store(result_at, of_value.to(query.dtype), row, head, j, 2, LENGTH, HEADS, WIDTH, SIZE, 3)
    if BLOCKS > 1:  # the queries' gradients in a second pass: no program waits for another, and nothing is added in memory
        for i in tl.static_range(BLOCKS):
            of_query = tl.zeros((SIZE, WIDTH), tl.float32)
            for j in tl.static_range(BLOCKS):
                weights, of_scores, query, key, of_mixed = _of_scores(
                    qkv_at, pieces_at, sums_at, out_at, gradient_at, row, head, i, j, SCALE, HEADS, LENGTH, WIDTH, SIZE
                )
                of_query += tl.dot(of_scores, key)
            _store(result_at, of_query.to(query.dtype), row, head, i, 0, LENGTH, HEADS, WIDTH, SIZE, 3)


def _constants(query_key_value: Tensor) -> tuple[float, int, int, int, int, int]:
    _, length, _, heads, width = query_key_value.shape
    size = BLOCK if length > BLOCK else max(16, triton.next_power_of_2(length))
    return width**-0.5, heads, length, width, size, -(-length // size)


@torch.library.triton_op("tasklm::row_attention", mutates_args=())
def row_attention(query_key_value: Tensor, pieces: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mixed values and the logarithms of the softmax's sums.

    From contiguous (rows, length, 3, heads, head width) and pieces (rows, length): (rows, length, heads, head width) and
    (rows, heads, length).
    """
    rows, length, _, heads, width = query_key_value.shape
    out = torch.empty((rows, length, heads, width), dtype=query_key_value.dtype, device=query_key_value.device)
    sums = torch.empty((rows, heads, length), dtype=torch.float32, device=query_key_value.device)
    kernel = torch.library.wrap_triton(_forward)
    kernel[(rows, heads)](query_key_value, pieces, out, sums, *_constants(query_key_value), num_warps=WARPS)
    return out, sums


@torch.library.triton_op("tasklm::row_attention_gradient", mutates_args=())
def row_attention_gradient(query_key_value: Tensor, pieces: Tensor, sums: Tensor, out: Tensor, gradient: Tensor) -> Tensor:
    """Returns the gradient of queries, keys and values from that of the mixed values."""
    result = torch.empty_like(query_key_value)
    kernel = torch.library.wrap_triton(_backward)
    grid = (query_key_value.shape[0], query_key_value.shape[3])
    kernel[grid](query_key_value, pieces, sums, out, gradient, result, *_constants(query_key_value), num_warps=WARPS)
    return result


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    query_key_value, pieces = inputs
    out, sums = output
    ctx.save_for_backward(query_key_value, pieces, sums, out)


def _differentiate(ctx: Any, gradient: Tensor, of_sums: Tensor | None) -> tuple[Tensor, None]:
    query_key_value, pieces, sums, out = ctx.saved_tensors
    return row_attention_gradient(query_key_value, pieces, sums, out, gradient.contiguous()), None


row_attention.register_autograd(_differentiate, setup_context=_keep)
