"""What optimisers with one momentum for each weight share; a step of theirs can be cancelled on the
device, like that of torch's fused AdamW.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class MomentumOptimiser(torch.optim.Optimizer):
    """Weights with their momenta, in groups."""

    found_inf: Tensor | None = None  # as FusedAdamW has them: where this is 1, nothing changes …
    grad_scale: Tensor | None = None  # … and gradients count as divided by this

    def __init__(self, groups: Iterable[dict[str, Any]], rate: float, momentum: float) -> None:
        super().__init__(groups, {"lr": rate, "momentum": momentum, "weight_decay": 0.0})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of weights with their state: a momentum of 0."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self.state[parameter] = {"momentum_buffer": torch.zeros_like(parameter)}
