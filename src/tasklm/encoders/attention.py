"""The one attention call: padded batches, packed batches and batches whose pieces are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from tasklm.errors import TrainingError
from tasklm.tokens.batches import TokenBatch

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # a PyTorch built without it; batches with `bounds` are refused then
    varlen_attn = None  # type: ignore[assignment]


@dataclass
class Layout:
    """Which tokens of a batch may look at one another: by a mask, by the bounds of pieces, or (both None) all of a row."""

    mask: Tensor | None  # (rows, 1, length, length) bool
    bounds: Tensor | None  # (pieces + 1,) int32: where pieces begin in the flattened batch, then its end
    longest: int  # tokens that the longest piece may have


def layout_of(batch: TokenBatch) -> Layout:
    """Returns the layout that keeps attention inside a piece.

    Padding forms a piece of its own, so that no row of the softmax is empty; bounds must cover it as well. Whole rows need
    no mask, which a CPU finds out by looking; on a GPU that would wait for the device, and a compiled graph cannot branch on it.
    """
    if batch.bounds is not None:
        return Layout(None, batch.bounds, batch.longest)
    pieces = batch.pieces
    if pieces.device.type == "cpu" and not torch.compiler.is_compiling() and bool((pieces == 1).all()):
        return Layout(None, None, pieces.shape[1])
    return Layout(pieces[:, None, :, None] == pieces[:, None, None, :], None, pieces.shape[1])


def attend(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
    """Returns softmax(QKᵀ/√d)·V inside the pieces of the layout; everything is (rows, length, heads, head width).

    On a CPU attention stays in fp32 even when matrix products are in bf16: the backward pass of PyTorch's bf16 kernel
    takes three to four times as long there.
    """
    if layout.bounds is not None:
        return _attend_in_bounds(query, key, value, layout.bounds, layout.longest)
    if query.device.type == "cpu" and query.dtype != torch.float32:
        with torch.autocast("cpu", enabled=False):
            return attend(query.float(), key.float(), value.float(), layout)
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout.mask).transpose(1, 2)


def _attend_in_bounds(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
    _check_kernel(query)
    tokens = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)  # each (tokens, heads, head width)
    mixed = varlen_attn(tokens[0], tokens[1], tokens[2], bounds, bounds, longest, longest)
    return cast(Tensor, mixed).view(query.shape)


def _check_kernel(query: Tensor) -> None:
    """Raises an error where PyTorch's attention over pieces cannot run: it is a CUDA kernel for 16-bit numbers."""
    if varlen_attn is None:
        problem = f"PyTorch {torch.__version__} has no torch.nn.attention.varlen"
    elif query.device.type != "cuda":
        problem = f"it has no kernel for {query.device.type}"
    elif query.dtype not in (torch.bfloat16, torch.float16):
        problem = f"its kernel does not compute in {query.dtype}"
    else:
        return
    remedy = "Use a GPU with hardware.precision = bf16 and PyTorch 2.11 or newer, or batches without bounds."
    raise TrainingError(f"Attention by the bounds of pieces is not possible here: {problem}. {remedy}")
