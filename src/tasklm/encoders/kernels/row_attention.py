"""Attention inside the pieces of short rows, as two GPU kernels in Triton, which comes with PyTorch.

General kernels spread a sequence over many programs, which then must keep statistics and add up their gradients. Here one
program holds all keys and values of a head in a row of at most 256 tokens, and so sees all scores of its queries at once.
It takes several heads of a row, one after the other: the next one's numbers travel while the last one's are computed.
Rows of several short pieces are cut into tiles of at most 128 tokens, between pieces, each of which is as good as a row.
Queries, keys and values stay in the one tensor that their linear map gives, and so do their gradients.
`benchmarks/attention.py` measures it beside PyTorch's own kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasklm.tokens.packing import TILE

SHORT = TILE  # tokens of a row whose scores the registers hold at once; longer rows take the queries in blocks of
BLOCK_OF_LONG = 32  # … so many (this and the numbers of heads, warps and stages below: measured best on an H200)
MOST_HEADS = 6  # that one program takes


@triton.jit
def _places(head, part, token, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns where the numbers (tokens, WIDTH) of a head stand in its row: queries, keys or values (part 0, 1, 2 of 3), or 0 of 1."""
    return (token * (PARTS * HEADS) + part * HEADS + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _load(row_at, head, part, token, count, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the numbers (tokens, WIDTH) of a head, 0 beyond the end of the row."""
    return tl.load(row_at + _places(head, part, token, HEADS, WIDTH, PARTS), mask=(token < count)[:, None], other=0.0)


@triton.jit
def _store(row_at, states, head, part, token, count, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Writes the numbers (tokens, WIDTH) of a head."""
    places = _places(head, part, token, HEADS, WIDTH, PARTS)
    tl.store(row_at + places, states.to(row_at.dtype.element_ty), mask=(token < count)[:, None])


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
    starts_at,
    out_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    first, count = tl.program_id(0).to(tl.int64) * LENGTH, LENGTH
    if LENGTH == 0:  # a tile; not in a function of its own, of which PyTorch would think that it writes to `starts_at`
        first = tl.load(starts_at + tl.program_id(0)).to(tl.int64)
        count = (tl.load(starts_at + tl.program_id(0) + 1) - first).to(tl.int32)
    qkv_at += first * (3 * HEADS * WIDTH)
    out_at += first * (HEADS * WIDTH)
    pieces_at += first
    token = tl.arange(0, KEYS)
    other = tl.load(pieces_at + token, mask=token < count, other=-1)
    turns = GROUP * (KEYS // BLOCK) if LENGTH > 0 else tl.where(count > 0, GROUP, 0)
    for turn in range(turns):  # one loop over heads and their blocks of queries: loads overlap in the innermost loop alone
        head = tl.program_id(1) * GROUP + turn // (KEYS // BLOCK)
        asking = turn % (KEYS // BLOCK) * BLOCK + tl.arange(0, BLOCK)
        query = _load(qkv_at, head, 0, asking, count, HEADS, WIDTH, 3)
        key = _load(qkv_at, head, 1, token, count, HEADS, WIDTH, 3)
        value = _load(qkv_at, head, 2, token, count, HEADS, WIDTH, 3)
        pieces = tl.load(pieces_at + asking, mask=asking < count, other=-1)
        mixed = tl.dot(_weights(query, key, pieces, other, SCALE).to(value.dtype), value)
        _store(out_at, mixed, head, 0, asking, count, HEADS, WIDTH, 1)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    starts_at,
    gradient_at,
    result_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """For tiles, and rows of up to SHORT tokens."""
    first, count = tl.program_id(0).to(tl.int64) * LENGTH, LENGTH
    if LENGTH == 0:  # a tile
        first = tl.load(starts_at + tl.program_id(0)).to(tl.int64)
        count = (tl.load(starts_at + tl.program_id(0) + 1) - first).to(tl.int32)
    qkv_at += first * (3 * HEADS * WIDTH)
    result_at += first * (3 * HEADS * WIDTH)
    gradient_at += first * (HEADS * WIDTH)
    token = tl.arange(0, KEYS)
    pieces = tl.load(pieces_at + first + token, mask=token < count, other=-1)
    turns = GROUP if LENGTH > 0 else tl.where(count > 0, GROUP, 0)
    for turn in range(turns):
        head = tl.program_id(1) * GROUP + turn
        query = _load(qkv_at, head, 0, token, count, HEADS, WIDTH, 3)
        key = _load(qkv_at, head, 1, token, count, HEADS, WIDTH, 3)
        value = _load(qkv_at, head, 2, token, count, HEADS, WIDTH, 3)
        of_mixed = _load(gradient_at, head, 0, token, count, HEADS, WIDTH, 1)
        weights = _weights(query, key, pieces, pieces, SCALE)
        of_value = tl.dot(tl.trans(weights.to(value.dtype)), of_mixed)
        _store(result_at, of_value, head, 2, token, count, HEADS, WIDTH, 3)
        of_weights = tl.dot(of_mixed, tl.trans(value))
        of_scores = (weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * SCALE).to(value.dtype)
        _store(result_at, tl.dot(tl.trans(of_scores), query), head, 1, token, count, HEADS, WIDTH, 3)
        _store(result_at, tl.dot(of_scores, key), head, 0, token, count, HEADS, WIDTH, 3)


@triton.jit
def _backward_of_long(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    gradient_at,
    result_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For longer rows: one head a program, queries in blocks."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    qkv_at += row * (LENGTH * 3 * HEADS * WIDTH)
    result_at += row * (LENGTH * 3 * HEADS * WIDTH)
    gradient_at += row * (LENGTH * HEADS * WIDTH)
    pieces_at += row * LENGTH
    token = tl.arange(0, KEYS)
    key = _load(qkv_at, head, 1, token, LENGTH, HEADS, WIDTH, 3)
    value = _load(qkv_at, head, 2, token, LENGTH, HEADS, WIDTH, 3)
    other = tl.load(pieces_at + token, mask=token < LENGTH, other=-1)
    of_key, of_value = tl.zeros((KEYS, WIDTH), tl.float32), tl.zeros((KEYS, WIDTH), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        asking = start + tl.arange(0, BLOCK)
        query = _load(qkv_at, head, 0, asking, LENGTH, HEADS, WIDTH, 3)
        of_mixed = _load(gradient_at, head, 0, asking, LENGTH, HEADS, WIDTH, 1)
        pieces = tl.load(pieces_at + asking, mask=asking < LENGTH, other=-1)
        weights = _weights(query, key, pieces, other, SCALE)
        of_value += tl.dot(tl.trans(weights.to(value.dtype)), of_mixed)
        of_weights = tl.dot(of_mixed, tl.trans(value))
        of_scores = (weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * SCALE).to(value.dtype)
        of_key += tl.dot(tl.trans(of_scores), query)
        _store(result_at, tl.dot(of_scores, key), head, 0, asking, LENGTH, HEADS, WIDTH, 3)
    _store(result_at, of_key, head, 1, token, LENGTH, HEADS, WIDTH, 3)
    _store(result_at, of_value, head, 2, token, LENGTH, HEADS, WIDTH, 3)


def _constants(query_key_value: Tensor, tiles: Tensor | None) -> tuple[float, int, int, int, int]:
    """Returns scale, heads, head width, length of rows (0: there are tiles) and the power of two that holds a row's or tile's tokens."""
    _, length, _, heads, width = query_key_value.shape
    if tiles is not None:
        return width**-0.5, heads, width, 0, TILE
    return width**-0.5, heads, width, length, max(16, triton.next_power_of_2(length))


def _grid(query_key_value: Tensor, tiles: Tensor | None) -> tuple[int, int, int]:
    """Returns rows or tiles, groups of heads, and heads in a group: as many for all programs."""
    rows, heads = query_key_value.shape[0], query_key_value.shape[3]
    group = max(count for count in range(1, MOST_HEADS + 1) if heads % count == 0)
    return rows if tiles is None else len(tiles) - 1, heads // group, group


@torch.library.triton_op("tasklm::row_attention", mutates_args=())
def row_attention(query_key_value: Tensor, pieces: Tensor, tiles: Tensor | None) -> Tensor:
    """Returns (rows, length, heads, head width) from contiguous (rows, length, 3, heads, head width) and pieces (rows, length).

    `tiles` (int32) says where tiles begin in the flattened batch, and its end; None: every row is one.
    """
    rows, length, _, heads, width = query_key_value.shape
    out = torch.empty((rows, length, heads, width), dtype=query_key_value.dtype, device=query_key_value.device)
    constants, (programs, groups, group) = _constants(query_key_value, tiles), _grid(query_key_value, tiles)
    block = constants[-1] if constants[-1] <= SHORT else BLOCK_OF_LONG
    kernel = torch.library.wrap_triton(_forward)
    kernel[(programs, groups)](
        query_key_value, pieces, pieces if tiles is None else tiles, out, *constants, block, group, num_warps=4, num_stages=2
    )
    return out


@torch.library.triton_op("tasklm::row_attention_gradient", mutates_args=())
def row_attention_gradient(query_key_value: Tensor, pieces: Tensor, tiles: Tensor | None, gradient: Tensor) -> Tensor:
    """Returns the gradient of queries, keys and values from that of the mixed values."""
    result = torch.empty_like(query_key_value)
    constants, (programs, groups, group) = _constants(query_key_value, tiles), _grid(query_key_value, tiles)
    if constants[-1] <= SHORT:
        kernel = torch.library.wrap_triton(_backward)
        kernel[(programs, groups)](
            query_key_value, pieces, pieces if tiles is None else tiles, gradient, result, *constants, group, num_warps=8, num_stages=2
        )
    else:
        kernel = torch.library.wrap_triton(_backward_of_long)
        grid = (programs, groups * group)
        kernel[grid](query_key_value, pieces, gradient, result, *constants, BLOCK_OF_LONG, num_warps=8, num_stages=3)
    return result


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    query_key_value, pieces, tiles = inputs
    ctx.save_for_backward(query_key_value, pieces, tiles)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    query_key_value, pieces, tiles = ctx.saved_tensors
    return row_attention_gradient(query_key_value, pieces, tiles, gradient.contiguous()), None, None


row_attention.register_autograd(_differentiate, setup_context=_keep)
