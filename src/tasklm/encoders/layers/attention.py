"""The one attention call: padded batches, packed batches and batches whose pieces are counted."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.kernels.usable import USABLE
from tasklm.errors import TrainingError
from tasklm.tokens.batches import TokenBatch

varlen_attn: Any = None
row_attention: Any = None
fits: Any = None
if torch.cuda.is_available():  # only for GPUs, and slow to import
    # a PyTorch may be built without it; batches with `bounds` are refused then
    with contextlib.suppress(ImportError):
        from torch.nn.attention.varlen import varlen_attn
if USABLE:
    from tasklm.encoders.kernels.row_attention import fits, row_attention

HEAD_WIDTHS = (16, 32, 64, 128)  # that row_attention computes …
LONGEST_ROW = 0 if row_attention is None else 256  # … and tokens of a row that one program can do


@dataclass
class Layout:
    """Which tokens of a batch may attend to each other; if all are None, those of a row."""

    # (rows, length) int64: for rows or tiles short enough for the kernels of row_attention
    pieces: Tensor | None = None
    # (tiles + 1,) int32: where tiles of several pieces begin in the flattened batch, then its end
    tiles: Tensor | None = None
    mask: Tensor | None = None  # (rows, 1, length, length) bool
    # (groups, pieces + 1) int32: where pieces begin in each group of rows, then its end
    bounds: Tensor | None = None
    longest: int = 0  # tokens that the longest piece may have


def layout_of(batch: TokenBatch, head_width: int) -> Layout:
    """The layout that keeps attention inside a piece.

    Padding forms a piece of its own, so that no row of the softmax is empty; bounds must cover it
    as well. Whole rows need no mask, which is checked on a CPU; on a GPU the check would wait for
    the device, and a compiled graph cannot branch on it.
    """
    pieces = batch.pieces
    if batch.direction:
        place = torch.arange(pieces.shape[1], device=pieces.device)
        ahead = (place[:, None] - place) * batch.direction >= 0
        return Layout(mask=(pieces[:, None, :, None] == pieces[:, None, None, :]) & ahead)
    if batch.bounds is not None:
        return Layout(bounds=batch.bounds, longest=batch.longest)
    short = pieces.shape[1] <= LONGEST_ROW or batch.tiles is not None
    ours = (
        row_attention is not None
        and short
        and head_width in HEAD_WIDTHS
        and pieces.device.type == "cuda"
        and torch.is_autocast_enabled("cuda")
    )
    if ours and fits(pieces.shape[1], head_width, batch.tiles is not None):
        return Layout(pieces=pieces, tiles=batch.tiles)
    if (
        pieces.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and bool((pieces == 1).all())
    ):
        return Layout()
    return Layout(mask=pieces[:, None, :, None] == pieces[:, None, None, :])


def project_and_attend(linear: nn.Linear, states: Tensor, heads: int, layout: Layout) -> Tensor:
    """Attention of the queries, keys and values of a linear map: (rows, length, width) → the same.

    Kernels of our own add up the gradient of the map's bias too, which would read the gradients of
    all queries, keys and values again.
    """
    rows, length, width = states.shape
    if layout.pieces is None or linear.bias is None:
        bias, projected = None, linear(states)
    else:
        bias = linear.bias
        projected = functional.linear(states, linear.weight, bias.detach())
    return attend(projected.view(rows, length, 3, heads, width // heads), layout, bias)


def attend(query_key_value: Tensor, layout: Layout, bias: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√d)·V inside the pieces of the layout: (rows, length, width).

    Queries, keys and values are (rows, length, 3, heads, head width).

    On a CPU attention stays in fp32 even when matrix products are in bf16: the backward pass of
    PyTorch's bf16 kernel takes three to four times as long there. `bias`: see row_attention, for
    layouts by pieces alone.
    """
    if layout.pieces is not None:
        inside = row_attention(query_key_value.contiguous(), bias, layout.pieces, layout.tiles)
        return cast(Tensor, inside).flatten(2)
    query, key, value = query_key_value.unbind(2)
    if layout.bounds is not None:
        return _attend_in_bounds(query, key, value, layout.bounds, layout.longest).flatten(2)
    if query.device.type == "cpu" and query.dtype != torch.float32:
        with torch.autocast("cpu", enabled=False):
            return attend(query_key_value.float(), layout)
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask)
    return mixed.transpose(1, 2).flatten(2)


def _attend_in_bounds(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int
) -> Tensor:
    _check_kernel(query)
    queries, keys, values = (
        states.view(len(bounds), -1, *states.shape[2:]).unbind() for states in (query, key, value)
    )
    groups = zip(queries, keys, values, bounds.unbind(), strict=True)
    mixed: list[Tensor] = [
        varlen_attn(own, other, content, ends, ends, longest, longest)
        for own, other, content, ends in groups
    ]
    if len(mixed) == 1:
        return mixed[0].view(query.shape)
    return torch.cat(mixed).view(query.shape)


def _check_kernel(query: Tensor) -> None:
    """Raises an error if PyTorch's attention over pieces, a 16-bit CUDA kernel, cannot run."""
    if query.device.type != "cuda":
        problem = f"it has no kernel for {query.device.type}"
    elif varlen_attn is None:
        problem = f"PyTorch {torch.__version__} has no torch.nn.attention.varlen"
    elif query.dtype not in (torch.bfloat16, torch.float16):
        problem = f"its kernel does not compute in {query.dtype}"
    else:
        return
    raise TrainingError(
        f"Attention by the bounds of pieces is not possible here: {problem}. Use a GPU with "
        "hardware.precision = bf16 and PyTorch 2.11 or newer, or batches without bounds."
    )
