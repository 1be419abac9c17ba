"""GELU, and a linear map before it in one call: on a GPU in 16 bits by custom kernels."""

from __future__ import annotations

import platform
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tasklm.encoders.kernels.usable import USABLE

if USABLE:
    from tasklm.encoders.kernels.biased_gelu import biased_gelu
else:  # PyTorch's own kernels do it
    biased_gelu = None

# where PyTorch's kernel for GELU's gradient is a slow one
SLOW_GRADIENT = platform.machine() in ("aarch64", "arm64")


def linear_gelu(linear: nn.Linear, hidden: Tensor, form: str) -> Tensor:
    """gelu(linear(hidden)), exact (form "none") or in its tanh form ("tanh")."""
    if (
        biased_gelu is None
        or form != "none"
        or hidden.device.type != "cuda"
        or not torch.is_autocast_enabled("cuda")
    ):
        return gelu(linear(hidden), form)
    inner = functional.linear(hidden, linear.weight)
    return cast(Tensor, biased_gelu(inner.flatten(0, -2), linear.bias)).view(inner.shape)


def gelu(inner: Tensor, form: str = "none") -> Tensor:
    """GELU, exact (form "none") or in its tanh form ("tanh")."""
    if (
        SLOW_GRADIENT
        and form == "none"
        and inner.device.type == "cpu"
        and inner.requires_grad
        and not torch.compiler.is_compiling()
    ):
        return cast(Tensor, _Gelu.apply(inner))  # type: ignore[no-untyped-call]
    return functional.gelu(inner, approximate=form)


class _Gelu(torch.autograd.Function):
    """PyTorch's exact GELU with a gradient made of operations that are fast everywhere."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor) -> Tensor:
        """inner · Φ(inner)."""
        ctx.save_for_backward(inner)
        return functional.gelu(inner)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient times Φ(inner) + inner · φ(inner)."""
        (inner,) = ctx.saved_tensors
        slope = torch.erf(inner * 0.7071067811865476).add_(1.0).mul_(0.5)
        slope.add_(torch.mul(inner, inner).mul_(-0.5).exp_().mul_(inner), alpha=0.3989422804014327)
        return slope.mul_(gradient)
