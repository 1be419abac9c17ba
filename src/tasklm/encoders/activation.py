"""A linear map and GELU, in one call: on a GPU in 16 bits by kernels of our own."""

from __future__ import annotations

import importlib.util
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

if importlib.util.find_spec("triton") is not None and torch.cuda.is_available():
    from tasklm.encoders.kernels.biased_gelu import biased_gelu
else:  # PyTorch's own kernels do it
    biased_gelu = None


def linear_gelu(linear: nn.Linear, hidden: Tensor, form: str) -> Tensor:
    """Returns gelu(linear(hidden)), exact (form "none") or in its tanh form ("tanh")."""
    if biased_gelu is None or form != "none" or hidden.device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return functional.gelu(linear(hidden), approximate=form)
    inner = functional.linear(hidden, linear.weight)
    return cast(Tensor, biased_gelu(inner.flatten(0, -2), linear.bias)).view(inner.shape)
