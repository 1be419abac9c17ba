"""LAMB, algorithm 2 of "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
(arXiv 1904.00962).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Adam with bias correction whose step, weight decay included, is scaled to the norm of each
    parameter tensor.

    φ is the identity; if the norm of a tensor or of its step is 0, the ratio is 1. As published,
    every parameter is scaled, even those without weight decay.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__(groups, {"lr": rate, "betas": betas, "eps": epsilon, "weight_decay": 0.0})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters with their state: moments of 0 and no step done."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self.state[parameter] = {
                "step": torch.zeros(()),  # on the CPU, where reading it does not wait for a device
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Does one step for every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._step_group(parameters, group)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        states = [self.state[parameter] for parameter in parameters]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        first = [state["exp_avg"] for state in states]
        second = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        for state in states:
            state["step"] += 1
        counts = [int(state["step"]) for state in states]
        updates = torch._foreach_div(first, [1 - beta1**count for count in counts])
        spreads = torch._foreach_div(second, [1 - beta2**count for count in counts])
        torch._foreach_sqrt_(spreads)
        torch._foreach_add_(spreads, group["eps"])
        torch._foreach_div_(updates, spreads)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


def _trust_ratios(
    parameters: list[Tensor], updates: tuple[Tensor, ...] | list[Tensor]
) -> list[Tensor]:
    """‖parameter‖ / ‖update‖ for each pair, or 1 where either is 0; computed on the device."""
    norms = torch.stack(list(torch._foreach_norm(parameters)))
    steps = torch.stack(list(torch._foreach_norm(updates)))
    return list(torch.where((norms > 0) & (steps > 0), norms / steps, 1.0).unbind())
