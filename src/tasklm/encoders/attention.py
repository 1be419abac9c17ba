"""The one attention call: padded and packed batches alike."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def piece_mask(pieces: Tensor) -> Tensor | None:
    """Returns the boolean mask (rows, 1, length, length) that keeps attention inside a piece.

    Padding forms a piece of its own, so that no row of the softmax is empty. A batch of whole rows needs no mask.
    """
    if pieces.device.type == "cpu" and bool((pieces == 1).all()):
        return None
    return pieces[:, None, :, None] == pieces[:, None, None, :]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Returns softmax(QKᵀ/√d)·V for (rows, heads, length, head width).

    On a CPU attention stays in fp32 even when matrix products are in bf16: the backward pass of PyTorch's bf16 kernel
    takes three to four times as long there.
    """
    if query.device.type == "cpu" and query.dtype != torch.float32:
        with torch.autocast("cpu", enabled=False):
            return attend(query.float(), key.float(), value.float(), mask)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
