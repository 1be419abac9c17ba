"""Stochastic gradient descent with momentum, as torch.optim.SGD has it; a step can be cancelled on
the device, like that of torch's fused AdamW.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tasklm.train.optim.momentum import MomentumOptimiser


class Sgd(MomentumOptimiser):
    """The momentum is the last one times `momentum` plus the gradient; weights move against it."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], rate: float, momentum: float = 0.9
    ) -> None:
        super().__init__(groups, rate, momentum)

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Does one step for every weight that has a gradient."""
        for group in self.param_groups:
            moved = [weight for weight in group["params"] if weight.grad is not None]
            if moved:
                self._step(moved, group)

    def _step(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Moves some weights; a cancelled step leaves their momenta and has a rate of 0."""
        momenta = [self.state[weight]["momentum_buffer"] for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        if self.grad_scale is not None:
            gradients = list(torch._foreach_div(gradients, self.grad_scale))
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
        new = list(torch._foreach_mul(momenta, group["momentum"]))
        torch._foreach_add_(new, gradients)
        rate: Tensor | float = group["lr"]
        if self.found_inf is not None:
            cancelled = self.found_inf.bool()
            # gradients may not be finite, and 0 times them is not 0
            pairs = zip(new, momenta, strict=True)
            new = [torch.where(cancelled, before, after) for after, before in pairs]
            rate = rate * (1.0 - self.found_inf)
        torch._foreach_copy_(momenta, new)
        torch._foreach_mul_(new, rate)
        torch._foreach_sub_(weights, new)
