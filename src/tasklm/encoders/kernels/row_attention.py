"""Attention inside the pieces of short rows, as two GPU kernels in Triton, which comes with
PyTorch.

General kernels spread a sequence over many programs, which then must keep statistics and add up
their gradients. Here one program holds all keys and values of a head in a row of at most 256
tokens, and so sees all scores of its queries at once. It takes several heads of a row, one after
the other: the next one's numbers travel while the last one's are computed. Rows of several short
pieces are cut into tiles of at most 128 tokens, between pieces, each of which is as good as a row.
Queries, keys and values stay in the one tensor that their linear map gives, and so do their
gradients. The map's bias is in them; its gradient is added up on the way. Powers are of two, an
instruction each, and the backward pass divides by no sums: it gets their logarithms.
`benchmarks/attention.py` measures it beside PyTorch's own kernels.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasklm.tokens.packing import TILE

# tokens of a row whose scores the registers hold at once; longer rows take the queries in blocks of
SHORT = TILE
BLOCK_OF_LONG = 32  # … so many (this and what follows: measured best on an H200)
FORWARD, BACKWARD, BACKWARD_OF_LONG = (
    (6, 4, 2),
    (12, 8, 3),
    (1, 8, 3),
)  # heads that a program takes, its warps, stages of loads, at most
ROOM_ELSEWHERE = 1 << 16  # bytes of shared memory of a program where PyTorch does not say


@triton.jit
def _places(head, part, token, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the numbers (tokens, WIDTH) of a head stand in its row: queries, keys or values (part
    0, 1, 2 of 3), or 0 of 1.
    """
    return (token * (PARTS * HEADS) + part * HEADS + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[
        None, :
    ]


@triton.jit
def _load(  # type: ignore[no-untyped-def]
    row_at, head, part, token, count, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr
):
    """The numbers (tokens, WIDTH) of a head, 0 beyond the end of the row."""
    return tl.load(
        row_at + _places(head, part, token, HEADS, WIDTH, PARTS),
        mask=(token < count)[:, None],
        other=0.0,
    )


@triton.jit
def _store(  # type: ignore[no-untyped-def]
    row_at,
    states,
    head,
    part,
    token,
    count,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Writes the numbers (tokens, WIDTH) of a head."""
    places = _places(head, part, token, HEADS, WIDTH, PARTS)
    tl.store(row_at + places, states.to(row_at.dtype.element_ty), mask=(token < count)[:, None])


@triton.jit
def _sum(states, TOKENS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum over the tokens as 16 equal rows (16, WIDTH): a product with ones costs less than
    sums across threads.
    """
    return tl.dot(tl.full((16, TOKENS), 1.0, states.dtype), states)


@triton.jit
def _store_sum(sums_at, sums, head, part, HEADS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Writes one of the equal rows of `_sum`, as part 0 (queries) or 1 (values) of a program's
    sums.
    """
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, WIDTH)[None, :]
    tl.store(
        sums_at + (part * HEADS + head) * WIDTH + column + 0 * row, sums, mask=row + 0 * column == 0
    )


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    starts_at,
    out_at,
    logs_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    first, count = tl.program_id(0).to(tl.int64) * LENGTH, LENGTH
    if (
        LENGTH == 0
        # a tile; not in a function of its own, of which PyTorch would think that it writes to
        # `starts_at`
    ):
        first = tl.load(starts_at + tl.program_id(0)).to(tl.int64)
        count = (tl.load(starts_at + tl.program_id(0) + 1) - first).to(tl.int32)
    qkv_at += first * (3 * HEADS * WIDTH)
    out_at += first * (HEADS * WIDTH)
    logs_at += first * HEADS
    pieces_at += first
    token = tl.arange(0, KEYS)
    other = tl.load(pieces_at + token, mask=token < count, other=-1).to(tl.int32)
    turns = GROUP * (KEYS // BLOCK) if LENGTH > 0 else tl.where(count > 0, GROUP, 0)
    for turn in range(
        turns
    ):  # one loop over heads and their blocks of queries: loads overlap in the innermost loop alone
        head = tl.program_id(1) * GROUP + turn // (KEYS // BLOCK)
        asking = turn % (KEYS // BLOCK) * BLOCK + tl.arange(0, BLOCK)
        query = _load(qkv_at, head, 0, asking, count, HEADS, WIDTH, 3)
        key = _load(qkv_at, head, 1, token, count, HEADS, WIDTH, 3)
        value = _load(qkv_at, head, 2, token, count, HEADS, WIDTH, 3)
        pieces = tl.load(pieces_at + asking, mask=asking < count, other=-1).to(tl.int32)
        scores = tl.where(pieces[:, None] == other[None, :], tl.dot(query, tl.trans(key)), -1e30)
        top = tl.max(scores, 1) * SCALE
        powers = tl.exp2(scores * SCALE - top[:, None])
        total = tl.sum(powers, 1)
        mixed = tl.dot(powers.to(value.dtype), value) * (1.0 / total)[:, None]
        _store(out_at, mixed, head, 0, asking, count, HEADS, WIDTH, 1)
        tl.store(logs_at + head * count + asking, top + tl.log2(total), mask=asking < count)


@triton.jit
def _gradients(query, key, value, of_mixed, logs, pieces, other, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The probabilities (queries, keys), 0 outside a token's own piece, and the gradients of the
    scores.
    """
    weights = tl.exp2(tl.dot(query, tl.trans(key)) * SCALE - logs[:, None])
    weights = tl.where(pieces[:, None] == other[None, :], weights, 0.0)
    of_weights = tl.dot(of_mixed, tl.trans(value))
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None])
    return weights.to(value.dtype), of_scores.to(value.dtype)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    starts_at,
    logs_at,
    gradient_at,
    result_at,
    sums_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    SUMS: tl.constexpr,
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
    logs_at += first * HEADS
    sums_at += tl.program_id(0) * (2 * HEADS * WIDTH)
    token = tl.arange(0, KEYS)
    pieces = tl.load(pieces_at + first + token, mask=token < count, other=-1).to(tl.int32)
    turns = GROUP if LENGTH > 0 else tl.where(count > 0, GROUP, 0)
    for turn in range(turns):
        head = tl.program_id(1) * GROUP + turn
        query = _load(qkv_at, head, 0, token, count, HEADS, WIDTH, 3)
        key = _load(qkv_at, head, 1, token, count, HEADS, WIDTH, 3)
        value = _load(qkv_at, head, 2, token, count, HEADS, WIDTH, 3)
        of_mixed = _load(gradient_at, head, 0, token, count, HEADS, WIDTH, 1)
        logs = tl.load(logs_at + head * count + token, mask=token < count, other=0.0)
        weights, of_scores = _gradients(query, key, value, of_mixed, logs, pieces, pieces, SCALE)
        _store(
            result_at, tl.dot(tl.trans(weights), of_mixed), head, 2, token, count, HEADS, WIDTH, 3
        )
        _store(
            result_at,
            tl.dot(tl.trans(of_scores), query) * (SCALE * 0.6931471805599453),
            head,
            1,
            token,
            count,
            HEADS,
            WIDTH,
            3,
        )
        of_query = (tl.dot(of_scores, key) * (SCALE * 0.6931471805599453)).to(key.dtype)
        _store(result_at, of_query, head, 0, token, count, HEADS, WIDTH, 3)
        if SUMS:
            _store_sum(sums_at, _sum(of_query, KEYS), head, 0, HEADS, WIDTH)
            _store_sum(sums_at, _sum(of_mixed, KEYS), head, 1, HEADS, WIDTH)


@triton.jit
def _backward_of_long(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    logs_at,
    gradient_at,
    result_at,
    sums_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For longer rows: one head a program, queries in blocks."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    qkv_at += row * (LENGTH * 3 * HEADS * WIDTH)
    result_at += row * (LENGTH * 3 * HEADS * WIDTH)
    gradient_at += row * (LENGTH * HEADS * WIDTH)
    pieces_at += row * LENGTH
    logs_at += (row * HEADS + head) * LENGTH
    sums_at += row * (2 * HEADS * WIDTH)
    token = tl.arange(0, KEYS)
    key = _load(qkv_at, head, 1, token, LENGTH, HEADS, WIDTH, 3)
    value = _load(qkv_at, head, 2, token, LENGTH, HEADS, WIDTH, 3)
    other = tl.load(pieces_at + token, mask=token < LENGTH, other=-1).to(tl.int32)
    of_key, of_value = tl.zeros((KEYS, WIDTH), tl.float32), tl.zeros((KEYS, WIDTH), tl.float32)
    of_queries, of_values = tl.zeros((16, WIDTH), tl.float32), tl.zeros((16, WIDTH), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        asking = start + tl.arange(0, BLOCK)
        query = _load(qkv_at, head, 0, asking, LENGTH, HEADS, WIDTH, 3)
        of_mixed = _load(gradient_at, head, 0, asking, LENGTH, HEADS, WIDTH, 1)
        pieces = tl.load(pieces_at + asking, mask=asking < LENGTH, other=-1).to(tl.int32)
        logs = tl.load(logs_at + asking, mask=asking < LENGTH, other=0.0)
        weights, of_scores = _gradients(query, key, value, of_mixed, logs, pieces, other, SCALE)
        of_value += tl.dot(tl.trans(weights), of_mixed)
        of_key += tl.dot(tl.trans(of_scores), query)
        of_query = (tl.dot(of_scores, key) * (SCALE * 0.6931471805599453)).to(key.dtype)
        _store(result_at, of_query, head, 0, asking, LENGTH, HEADS, WIDTH, 3)
        if SUMS:
            of_queries += _sum(of_query, BLOCK)
            of_values += _sum(of_mixed, BLOCK)
    _store(
        result_at, of_key * (SCALE * 0.6931471805599453), head, 1, token, LENGTH, HEADS, WIDTH, 3
    )
    _store(result_at, of_value, head, 2, token, LENGTH, HEADS, WIDTH, 3)
    if SUMS:
        _store_sum(sums_at, of_queries, head, 0, HEADS, WIDTH)
        _store_sum(sums_at, of_values, head, 1, HEADS, WIDTH)


@functools.cache
def _room() -> int:
    """The bytes of shared memory that a program may have on every GPU here; the interpreter's have
    no limit.
    """
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return min(
        (getattr(gpu, "shared_memory_per_block_optin", ROOM_ELSEWHERE) for gpu in gpus),
        default=1 << 30,
    )


def _stages(width: int, keys: int) -> tuple[int, int]:
    """The stages of the forward and the backward pass for which there is room; 0: not even for one.

    Memory in bytes, as Triton needs it for compute capabilities 8.0 and 9.0, or a little more.
    """
    block = keys if keys <= SHORT else BLOCK_OF_LONG
    forward = (_room() - 10_240) // (2 * width * (block + 2 * keys))
    if keys <= SHORT:
        backward, most = (_room() - 2 * keys * keys) // (2 * width * 4 * keys), BACKWARD[2]
    else:
        backward = (_room() - 2 * width * 4 * keys) // (2 * width * 2 * block)
        most = BACKWARD_OF_LONG[2]
    return max(0, min(forward, FORWARD[2])), max(0, min(backward, most))


def _keys(length: int) -> int:
    """The power of two that holds a row's tokens."""
    return max(16, int(triton.next_power_of_2(length)))


@torch.compiler.assume_constant_result
def fits(length: int, width: int, tiled: bool) -> bool:
    """Whether the kernels can run on the GPUs here, for rows (or tiles) of this length and heads of
    this width.
    """
    return min(_stages(width, TILE if tiled else _keys(length))) > 0


def _constants(query_key_value: Tensor, tiles: Tensor | None) -> tuple[float, int, int, int, int]:
    """Returns scale, heads, head width, length of rows (0: there are tiles) and the power of two
    that holds a row's or tile's tokens.

    The scale is that of scores whose powers of two are taken.
    """
    _, length, _, heads, width = query_key_value.shape
    scale = (
        width**-0.5 / 0.6931471805599453
    )  # the natural logarithm of 2; gradients are multiplied by it again
    if tiles is not None:
        return scale, heads, width, 0, TILE
    return scale, heads, width, length, _keys(length)


def _grid(query_key_value: Tensor, tiles: Tensor | None, most: int) -> tuple[tuple[int, int], int]:
    """The programs, rows or tiles by groups of heads, and the heads in a group: as many for all,
    `most` at most.
    """
    rows, heads = query_key_value.shape[0], query_key_value.shape[3]
    group = max(count for count in range(1, most + 1) if heads % count == 0)
    return (rows if tiles is None else len(tiles) - 1, heads // group), group


@torch.library.triton_op("tasklm::row_attention_of", mutates_args=())
def row_attention_of(
    query_key_value: Tensor, bias: Tensor | None, pieces: Tensor, tiles: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The mixed values, and for every token and head the logarithm to base 2 of what its powers add
    up to.
    """
    rows, length, _, heads, width = query_key_value.shape
    out = torch.empty(
        (rows, length, heads, width), dtype=query_key_value.dtype, device=query_key_value.device
    )
    logs = torch.empty(
        (rows, length, heads), dtype=torch.float32, device=query_key_value.device
    )  # in a row or tile: by heads, then tokens
    constants, (most, warps, _) = _constants(query_key_value, tiles), FORWARD
    grid, group = _grid(query_key_value, tiles, most)
    stages, _ = _stages(width, constants[-1])
    block = constants[-1] if constants[-1] <= SHORT else BLOCK_OF_LONG
    given = (query_key_value, pieces, pieces if tiles is None else tiles)
    kernel = torch.library.wrap_triton(_forward)
    kernel[grid](*given, out, logs, *constants, block, group, num_warps=warps, num_stages=stages)
    return out, logs


@torch.library.triton_op("tasklm::row_attention_gradient", mutates_args=())
def row_attention_gradient(
    query_key_value: Tensor,
    pieces: Tensor,
    tiles: Tensor | None,
    logs: Tensor,
    gradient: Tensor,
    sums: bool,
) -> tuple[Tensor, Tensor]:
    """The gradient of queries, keys and values from that of the mixed values, and sums of the
    queries' and values' gradients.

    The sums come in parts, (parts, 2, heads · head width), still to be summed; they are empty
    unless asked for.
    """
    result = torch.empty_like(query_key_value)
    width = query_key_value.shape[3] * query_key_value.shape[4]
    constants = _constants(query_key_value, tiles)
    short = constants[-1] <= SHORT
    most, warps, _ = BACKWARD if short else BACKWARD_OF_LONG
    _, stages = _stages(query_key_value.shape[4], constants[-1])
    grid, group = _grid(query_key_value, tiles, most)
    made = torch.empty if tiles is None else torch.zeros  # tiles may be empty
    summed = made(
        (grid[0] if sums else 0, 2, width), dtype=torch.float32, device=query_key_value.device
    )
    settings = {"num_warps": warps, "num_stages": stages}
    if short:
        starts, kernel = pieces if tiles is None else tiles, torch.library.wrap_triton(_backward)
        kernel[grid](
            query_key_value,
            pieces,
            starts,
            logs,
            gradient,
            result,
            summed,
            *constants,
            sums,
            group,
            **settings,
        )
    else:
        kernel = torch.library.wrap_triton(_backward_of_long)
        kernel[grid](
            query_key_value,
            pieces,
            logs,
            gradient,
            result,
            summed,
            *constants,
            sums,
            BLOCK_OF_LONG,
            **settings,
        )
    return result, summed


def _keep(
    ctx: Any,
    inputs: tuple[Tensor, Tensor | None, Tensor, Tensor | None],
    output: tuple[Tensor, Tensor],
) -> None:
    query_key_value, bias, pieces, tiles = inputs
    ctx.save_for_backward(query_key_value, pieces, tiles, output[1])
    ctx.bias_type = None if bias is None else bias.dtype


def _differentiate(
    ctx: Any, gradient: Tensor, _: Tensor
) -> tuple[Tensor, Tensor | None, None, None]:
    """The gradients; that of the keys' bias is 0, since it adds the same to
    all scores of a query.
    """
    result, parts = row_attention_gradient(
        *ctx.saved_tensors, gradient.contiguous(), ctx.bias_type is not None
    )
    if ctx.bias_type is None:
        return result, None, None, None
    queries, values = parts.sum(0).unbind(0)
    return (
        result,
        torch.cat([queries, torch.zeros_like(queries), values]).to(ctx.bias_type),
        None,
        None,
    )


row_attention_of.register_autograd(_differentiate, setup_context=_keep)


def row_attention(
    query_key_value: Tensor, bias: Tensor | None, pieces: Tensor, tiles: Tensor | None
) -> Tensor:
    """Returns (rows, length, heads, head width) from contiguous (rows, length, 3, heads, head
    width) and pieces (rows, length).

    `bias` (3 · heads · head width,) is in the queries, keys and values already, as a constant: all
    its gradient comes from here. `tiles` (int32) says where tiles begin in the flattened batch, and
    its end; None: every row is one.
    """
    mixed: Tensor = row_attention_of(query_key_value, bias, pieces, tiles)[0]
    return mixed
