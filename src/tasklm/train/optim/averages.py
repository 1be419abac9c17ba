"""A moving average of the weights, to predict with instead of the last weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tasklm.train.named_tensors import fill


class WeightAverage:
    """Exponential moving average of all parameters of a module that are trained.

    After t updates the next one keeps min(decay, (1 + t) / (10 + t)) of the average: early averages
    forget the random start soon. The first update thus keeps a tenth of the weights that the module
    had when this was made.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {
            name: weight for name, weight in module.named_parameters() if weight.requires_grad
        }
        self._averages = {name: weight.detach().clone() for name, weight in self._weights.items()}
        device = next(iter(self._weights.values())).device
        # on the device, which alone knows the skipped steps
        self._updates = torch.zeros((), device=device)

    @torch.no_grad()
    def update(self, skip: Tensor | None = None) -> None:
        """Moves the averages towards the weights, except where `skip` (0-dim, float) is 1.

        Never waits for the device.
        """
        done = torch.ones_like(self._updates)
        if skip is not None:
            done = 1 - skip
        decay = ((1 + self._updates) / (10 + self._updates)).clamp(max=self.decay)
        moved = (1 - decay) * done
        averages = list(self._averages.values())
        torch._foreach_lerp_(
            averages,
            list(self._weights.values()),
            [moved.to(average.dtype) for average in averages],
        )
        self._updates += done

    def tensors(self) -> dict[str, Tensor]:
        """The state, not copied: 'name of the parameter/average' and the number of updates."""
        averages = {f"{name}/average": average for name, average in self._averages.items()}
        return {**averages, "updates": self._updates}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restores the state of a checkpoint; raises RunError if names or shapes do not match."""
        fill(self.tensors(), tensors, "the average of the weights")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the module has the averages; its own weights return afterwards."""
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            self._copy(self._averages)
            yield
        finally:
            self._copy(own)

    @torch.no_grad()
    def _copy(self, tensors: dict[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(tensors[name])
