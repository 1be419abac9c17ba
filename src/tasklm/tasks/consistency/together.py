"""Consistency of several tasks: each of them labels every text, and all their modules learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tasklm.tasks.consistency.base import BETWEEN, Auxiliary, Consistency, task_and_module


@dataclass(frozen=True)
class JointConsistency:
    """The consistency of each task, by its name, and its columns of the outputs."""

    members: Mapping[str, Consistency]
    columns: Mapping[str, slice]

    @property
    def of_words(self) -> bool:
        """Whether a place is a word, as for all of them."""
        return next(iter(self.members.values())).of_words

    @property
    def norm(self) -> float:
        """That of the task with the least noise."""
        return min(member.norm for member in self.members.values())

    def holds(self, there: Tensor, columns: Tensor) -> Tensor:
        """Which places hold answers, the same for all tasks."""
        return next(iter(self.members.values())).holds(there, columns)

    def targets(self, outputs: Tensor, holds: Tensor) -> Tensor:
        """The logits of all tasks."""
        return outputs.float()

    def divergence(self, outputs: Tensor, targets: Tensor, holds: Tensor) -> Tensor:
        """The sum of the tasks' divergences."""
        losses = []
        for name, member in self.members.items():
            own = self.columns[name]
            losses.append(member.divergence(outputs[..., own], targets[..., own], holds))
        return torch.stack(losses).sum()

    def auxiliaries(self, whole: int, view: int, dropout: float) -> Mapping[str, Auxiliary]:
        """The modules of every task."""
        modules: dict[str, Auxiliary] = {}
        for name, member in self.members.items():
            for own, module in member.auxiliaries(whole, view, dropout).items():
                modules[f"{name}{BETWEEN}{own}"] = module
        return modules

    def auxiliary_divergence(
        self, name: str, outputs: Tensor, targets: Tensor, holds: Tensor
    ) -> Tensor:
        """The divergence of a module from the answers of its own task."""
        task, module = task_and_module(name)
        own = targets[..., self.columns[task]]
        return self.members[task].auxiliary_divergence(module, outputs, own, holds)
