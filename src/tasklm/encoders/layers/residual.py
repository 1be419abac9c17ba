"""A linear map, dropout, residual and LayerNorm in one call: on a GPU by custom kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasklm.encoders.kernels.usable import USABLE

if USABLE:
    from tasklm.encoders.kernels.residual_norm import residual_norm
else:  # PyTorch's own kernels do it
    residual_norm = None  # type: ignore[assignment]


class Hidden(NamedTuple):
    """The same hidden states twice, for two readers, whose gradients a kernel then adds up."""

    states: Tensor  # for the next linear map, or for a head
    residual: Tensor  # for the next sum


def add_and_norm(
    linear: nn.Linear, given: Tensor, residual: Tensor, norm: nn.LayerNorm, dropout: nn.Dropout
) -> Hidden:
    """norm(residual + dropout(linear(given))), in the type of the matrix products."""
    drops = dropout.training and dropout.p > 0
    if (
        residual_norm is None
        or drops
        or given.device.type != "cuda"
        or not torch.is_autocast_enabled("cuda")
    ):
        added = dropout(linear(given))
        states = norm(residual + added).to(added.dtype)
        return Hidden(states, states)
    added = functional.linear(given, linear.weight)
    states, again = residual_norm(
        residual.flatten(0, -2),
        added.flatten(0, -2),
        linear.bias,
        norm.weight,
        norm.bias,
        norm.eps,
    )
    return Hidden(states.view(added.shape), again.view(added.shape))
