"""Attention inside the pieces of short rows, as GPU kernels in Triton, which comes with PyTorch.

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
from torch import Tensor

from tasklm.encoders.kernels.row_attention_kernels import backward, backward_of_long, forward
from tasklm.tokens.packing import TILE

# tokens of a row whose scores the registers hold at once; longer rows take the queries in blocks of
SHORT = TILE
BLOCK_OF_LONG = 32  # … so many (this and what follows: measured best on an H200)
# heads that a program takes, its warps, stages of loads, at most
FORWARD, BACKWARD, BACKWARD_OF_LONG = (6, 4, 2), (12, 8, 3), (1, 8, 3)
ROOM_ELSEWHERE = 1 << 16  # bytes of shared memory of a program where PyTorch does not say


@functools.cache
def _room() -> int:
    """The bytes of shared memory that a program may have on every GPU here."""
    gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return min(
        (getattr(gpu, "shared_memory_per_block_optin", ROOM_ELSEWHERE) for gpu in gpus),
        default=1 << 30,  # the interpreter's programs have no limit
    )


def _stages(width: int, keys: int) -> tuple[int, int]:
    """The stages of the forward and the backward pass for which there is room; 0: not even for one.

    Memory in bytes, as Triton needs it for compute capabilities 8.0 and 9.0, or a little more.
    """
    block = _block(keys)
    of_forward = (_room() - 10_240) // (2 * width * (block + 2 * keys))
    if keys <= SHORT:
        of_backward, most = (_room() - 2 * keys * keys) // (2 * width * 4 * keys), BACKWARD[2]
    else:
        of_backward = (_room() - 2 * width * 4 * keys) // (2 * width * 2 * block)
        most = BACKWARD_OF_LONG[2]
    return max(0, min(of_forward, FORWARD[2])), max(0, min(of_backward, most))


def _block(keys: int) -> int:
    """The queries that a program takes at a time."""
    return keys if keys <= SHORT else BLOCK_OF_LONG


def _keys(length: int) -> int:
    """The power of two that holds a row's tokens."""
    return max(16, int(triton.next_power_of_2(length)))


@torch.compiler.assume_constant_result
def fits(length: int, width: int, tiled: bool) -> bool:
    """Whether the kernels can run here, for rows (or tiles) of this length and heads this wide."""
    keys = TILE if tiled else _keys(length)
    return min(_stages(width, keys)) > 0


def _scale(width: int) -> float:
    """The scale of scores whose powers of two are taken."""
    # the natural logarithm of 2; gradients are multiplied by it again
    scale: float = width**-0.5 / 0.6931471805599453
    return scale


def _length_and_keys(length: int, tiles: Tensor | None) -> tuple[int, int]:
    """The length of rows (0: there are tiles), and the power of two that holds all keys."""
    if tiles is not None:
        return 0, TILE
    return length, _keys(length)


def _grid(query_key_value: Tensor, tiles: Tensor | None, most: int) -> tuple[tuple[int, int], int]:
    """The programs, rows or tiles by groups of heads, and the heads in a group, `most` at most."""
    rows, heads = query_key_value.shape[0], query_key_value.shape[3]
    group = max(count for count in range(1, most + 1) if heads % count == 0)
    if tiles is not None:
        rows = len(tiles) - 1
    return (rows, heads // group), group


@torch.library.triton_op("tasklm::row_attention_of", mutates_args=())
def row_attention_of(
    query_key_value: Tensor, bias: Tensor | None, pieces: Tensor, tiles: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The mixed values, and for every token and head the logarithm (base 2) of its powers' sum."""
    rows, length, _, heads, width = query_key_value.shape
    out = torch.empty(
        (rows, length, heads, width), dtype=query_key_value.dtype, device=query_key_value.device
    )
    # in a row or tile: by heads, then tokens
    logs = torch.empty((rows, length, heads), dtype=torch.float32, device=query_key_value.device)
    most, warps, _ = FORWARD
    grid, group = _grid(query_key_value, tiles, most)
    row_length, keys = _length_and_keys(length, tiles)
    stages, _ = _stages(width, keys)
    kernel = torch.library.wrap_triton(forward)
    kernel[grid](
        query_key_value,
        pieces,
        pieces if tiles is None else tiles,
        out,
        logs,
        _scale(width),
        heads,
        width,
        row_length,
        keys,
        _block(keys),
        group,
        num_warps=warps,
        num_stages=stages,
    )
    return out, logs


def _new_sums(query_key_value: Tensor, tiles: Tensor | None, parts: int) -> Tensor:
    width = query_key_value.shape[3] * query_key_value.shape[4]
    new = torch.empty if tiles is None else torch.zeros  # tiles may be empty
    return new((parts, 2, width), dtype=torch.float32, device=query_key_value.device)


@torch.library.triton_op("tasklm::row_attention_gradient", mutates_args=())
def row_attention_gradient(
    query_key_value: Tensor,
    pieces: Tensor,
    tiles: Tensor | None,
    logs: Tensor,
    gradient: Tensor,
    sums: bool,
) -> tuple[Tensor, Tensor]:
    """The gradient of queries, keys and values, and sums of the queries' and values' gradients.

    The sums come in parts, (parts, 2, heads · head width); without `sums` there are none.
    """
    result = torch.empty_like(query_key_value)
    _, length, _, heads, width = query_key_value.shape
    row_length, keys = _length_and_keys(length, tiles)
    short = keys <= SHORT
    most, warps, _ = BACKWARD if short else BACKWARD_OF_LONG
    _, stages = _stages(width, keys)
    grid, group = _grid(query_key_value, tiles, most)
    summed = _new_sums(query_key_value, tiles, grid[0] if sums else 0)
    if short:
        kernel = torch.library.wrap_triton(backward)
        kernel[grid](
            query_key_value,
            pieces,
            pieces if tiles is None else tiles,
            logs,
            gradient,
            result,
            summed,
            _scale(width),
            heads,
            width,
            row_length,
            keys,
            sums,
            group,
            num_warps=warps,
            num_stages=stages,
        )
    else:
        kernel = torch.library.wrap_triton(backward_of_long)
        kernel[grid](
            query_key_value,
            pieces,
            logs,
            gradient,
            result,
            summed,
            _scale(width),
            heads,
            width,
            row_length,
            keys,
            sums,
            BLOCK_OF_LONG,
            num_warps=warps,
            num_stages=stages,
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
    """The gradients; the keys' bias has none, since it adds the same to all scores of a query."""
    query_key_value, pieces, tiles, logs = ctx.saved_tensors
    result, parts = row_attention_gradient(
        query_key_value, pieces, tiles, logs, gradient.contiguous(), ctx.bias_type is not None
    )
    if ctx.bias_type is None:
        return result, None, None, None
    queries, values = parts.sum(0).unbind(0)
    of_bias = torch.cat([queries, torch.zeros_like(queries), values])
    return result, of_bias.to(ctx.bias_type), None, None


row_attention_of.register_autograd(_differentiate, setup_context=_keep)


def row_attention(
    query_key_value: Tensor, bias: Tensor | None, pieces: Tensor, tiles: Tensor | None
) -> Tensor:
    """The mixed values (rows, length, heads, head width) of queries, keys and values.

    These are (rows, length, 3, heads, head width) and contiguous, `pieces` (rows, length). `bias`
    (3 · heads · head width,) is in them already, as a constant: all its gradient comes from here.
    `tiles` (int32) says where tiles begin in the flattened batch, and its end; None: every row is
    one.
    """
    mixed: Tensor = row_attention_of(query_key_value, bias, pieces, tiles)[0]
    return mixed
