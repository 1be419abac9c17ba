"""Stage 1 (TLM section 3.2): joint training on the selected text and the task, from random weights.

ρ1 · E_S[L_lm] + E_T[ρ2 · L_lm + L_task], as one batch of internal (task) data, then ρ1 batches of external (selected)
data, and so on. The internal loss is divided by ρ2 + 1, which keeps its scale beside an external batch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tasklm.budget import EncoderCost
from tasklm.encoders.base import Shape
from tasklm.objectives.base import Corrupted
from tasklm.tasks.base import Task
from tasklm.tokens.batches import ExampleStream, PackedStream, TokenBatch
from tasklm.train.hardware import Machine
from tasklm.train.loop import Work, step_seed


def cost_of(shape: Shape) -> EncoderCost:
    """Returns the cost of an encoder of this shape."""
    return EncoderCost(shape.layers, shape.width, shape.feedforward, shape.vocabulary, shape.positions)


class JointModel(nn.Module):
    """Everything that stage 1 trains."""

    def __init__(self, encoder: nn.Module, objective: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.objective, self.head = encoder, objective, head


class JointStage:
    """Interleaves internal and external batches."""

    def __init__(
        self,
        module: JointModel,
        task: Task,
        internal: ExampleStream,
        external: PackedStream | None,
        rho1: int,
        rho2: float,
        accumulate: int,
        seed: int,
        machine: Machine,
    ) -> None:
        self.module, self.task, self.internal, self.external = module, task, internal, external
        self.rho1, self.rho2, self.accumulate, self.seed, self.machine = rho1 if external else 0, rho2, accumulate, seed, machine
        self.cost = cost_of(module.encoder.shape)  # type: ignore[arg-type]

    def work(self, step: int) -> list[Work]:
        """Returns the micro-batches of a step: internal on every (ρ1 + 1)-th step, external on the others."""
        generator = torch.Generator().manual_seed(step_seed(self.seed + 1, step))
        if step % (self.rho1 + 1) == 0 or self.external is None:
            return self._internal(self.internal.next(), generator)
        corrupted = self.module.objective.corrupt(self.external.next(), generator)  # type: ignore[operator]
        return [self._language_work(part, 1.0) for part in corrupted.split(self.accumulate)]

    def after_step(self, step: int) -> dict[str, float]:
        """Returns nothing: stage 1 is not chosen by dev, it runs to its end."""
        return {}

    def state(self) -> dict[str, Any]:
        """Returns the positions in the data."""
        return {"internal": self.internal.state(), "external": self.external.state() if self.external else None}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes to the positions of a checkpoint."""
        self.internal.restore(state["internal"])
        if self.external is not None:
            self.external.restore(state["external"])

    def _language_work(self, part: Corrupted, weight: float, name: str = "lm") -> Work:
        def compute() -> dict[str, Tensor]:
            return {name: self.module.objective(self.module.encoder, part.to(self.machine.device))}

        tokens = part.batch.ids.numel()
        flops = self.cost.training(tokens, part.targets, part.batch.ids.shape[1])
        return Work({name: part.targets}, {name: weight}, compute, tokens, flops)

    def _internal(self, batch: TokenBatch, generator: torch.Generator) -> list[Work]:
        works = [self._task_work(part, 1.0 / (self.rho2 + 1.0)) for part in batch.split(self.accumulate)]
        if self.rho2:
            corrupted = self.module.objective.corrupt(batch, generator)  # type: ignore[operator]
            weight = self.rho2 / (self.rho2 + 1.0)
            works += [self._language_work(part, weight, "lm on task") for part in corrupted.split(self.accumulate)]
        return works

    def _task_work(self, part: TokenBatch, weight: float) -> Work:
        def compute() -> dict[str, Tensor]:
            batch = part.to(self.machine.device)
            assert batch.targets is not None
            return {"task": self.task.loss(self.module.head(self.module.encoder(batch)), batch.targets)}

        flops = self.cost.training(part.ids.numel(), 0, part.ids.shape[1])
        return Work({"task": len(part.ids)}, {"task": weight}, compute, part.ids.numel(), flops)
