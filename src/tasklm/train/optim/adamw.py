"""AdamW with its state created up front and a step that can be cancelled on the device; on a GPU by
a custom kernel.

PyTorch's fused kernel is launched for some tensors after the others, and Python prepares all of
them at every step. Here one launch moves all tensors of a group; it finds them by a table of their
addresses, which stays on the device as long as no tensor moves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from tasklm.encoders.kernels.usable import USABLE

if USABLE:
    from tasklm.train.optim import adamw_kernel
else:  # PyTorch's own kernel does it
    adamw_kernel = None  # type: ignore[assignment]


class FusedAdamW(torch.optim.AdamW):
    """AdamW in one fused kernel."""

    found_inf: Tensor | None = (
        None  # torch's name: if this is 1, nothing changes, not even the step count
    )
    grad_scale: Tensor | None = None  # torch's name: gradients count as divided by it

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        rate: float,
        betas: tuple[float, float] = (0.9, 0.98),
        epsilon: float = 1e-6,
    ) -> None:
        self._tables: dict[int, Any] = {}  # where the tensors lie, by the number of the group
        super().__init__(groups, lr=rate, betas=betas, eps=epsilon, fused=True)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters with their state: moments of 0 and no step done."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Does one step for every parameter that has a gradient."""
        if adamw_kernel is None or self.param_groups[0]["params"][0].device.type != "cuda":
            self._step_by_torch()
            return
        for number, group in enumerate(self.param_groups):
            if moving := [parameter for parameter in group["params"] if parameter.grad is not None]:
                self._move(number, moving, group)

    def _step_by_torch(self) -> None:
        """PyTorch's step; cautious groups decay afterwards, by their weights before it and the
        means after it (arXiv 2510.12402).
        """
        cautious = [group for group in self.param_groups if _is_cautious(group)]
        decays = [group["weight_decay"] for group in cautious]
        before = [[weight.detach().clone() for weight in group["params"]] for group in cautious]
        for group in cautious:
            group["weight_decay"] = 0.0
        super().step()
        for group, decay, weights in zip(cautious, decays, before, strict=True):
            group["weight_decay"] = decay
            share: Tensor | float = group["lr"] * decay
            if self.found_inf is not None:
                share = share * (1.0 - self.found_inf)
            for weight, old in zip(group["params"], weights, strict=True):
                if weight.grad is not None:
                    weight.sub_(share * old * (self.state[weight]["exp_avg"] * old >= 0))

    def _move(self, number: int, moving: list[Tensor], group: dict[str, Any]) -> None:
        """Updates some parameters of a group with our kernel."""
        states = [self.state[weight] for weight in moving]
        means, squares, steps = (
            [state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        gradients = [
            adamw_kernel.aligned(weight.grad) for weight in moving if weight.grad is not None
        ]
        tensors = adamw_kernel.Tensors(moving, means, squares, steps, gradients)
        if self.found_inf is None:
            torch._foreach_add_(steps, 1.0)
        else:
            torch._foreach_add_(
                steps, [1.0 - self.found_inf] * len(steps)
            )  # one tensor for all would be read first, as a number
        if number not in self._tables or not self._tables[number].finds(tensors):
            self._tables[number] = adamw_kernel.Table(tensors)
        skip, divisor = self.found_inf, self.grad_scale
        settings = adamw_kernel.Hyperparameters(
            group["lr"], group["weight_decay"], group["betas"], group["eps"], _is_cautious(group)
        )
        adamw_kernel.move(self._tables[number], skip, divisor, settings)


def _is_cautious(group: dict[str, Any]) -> bool:
    """Whether a group decays, and only where the step also moves its weights towards 0."""
    return bool(group.get("cautious")) and group["weight_decay"] > 0
