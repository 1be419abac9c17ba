"""Stage 1 (TLM section 3.2): joint training on the selected text and the task.

ρ1 · E_S[L_lm] + E_T[ρ2 · L_lm + L_task], as one batch of internal (task) data, then ρ1 batches of
external (selected) data, and so on. The internal loss is divided by ρ2 + 1, which keeps its scale
beside an external batch's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.models.task_model import task_outputs
from tasklm.objectives.base import Corrupted, TwoHalves
from tasklm.tasks.base import Task
from tasklm.tokens.batches import PackedStream, TokenBatch
from tasklm.tokens.example_streams import ExampleStream
from tasklm.train.loop import Step, step_seed


@dataclass
class JointBatch:
    """Corrupted text, task examples, or both (of the same examples)."""

    text: Corrupted | None
    task: TokenBatch | None
    counted: bool = False  # whether the device gets tiles or the bounds of pieces

    def __len__(self) -> int:
        batch = self.task if self.text is None else self.text.batch
        assert batch is not None
        return len(batch.ids)

    def part(self, number: int, parts: int) -> JointBatch:
        """One of `parts` micro-batches."""
        text = None if self.text is None else self.text.part(number, parts)
        task = None if self.task is None else self.task.part(number, parts)
        return JointBatch(text, task, self.counted)

    def to(self, device: torch.device) -> JointBatch:
        """Returns it on a device, with its tiles or the bounds of its pieces where they are
        counted.
        """
        text, task = self.text, self.task
        if self.counted:
            text = None if text is None else text.counted()
            task = None if task is None else task.counted()
        return JointBatch(
            None if text is None else text.to(device), None if task is None else task.to(device)
        )

    def pinned(self) -> JointBatch:
        """Returns it in memory that a GPU reads by itself."""
        text = None if self.text is None else self.text.pinned()
        return JointBatch(text, None if self.task is None else self.task.pinned(), self.counted)


def task_flops(cost: EncoderCost, head: Any, batch: TokenBatch) -> float:
    """The FLOPs of training on a batch of the task, padding among its places."""
    assert batch.places is not None
    rows, places = batch.places.shape
    return cost.training(
        batch.ids.numel(),
        0,
        batch.ids.shape[1],
        wanted=rows * places,
        task_head=head.flops(rows, places),
    )


class JointModel(nn.Module):
    """Everything that stage 1 trains."""

    def __init__(
        self, encoder: nn.Module, objective: nn.Module, head: nn.Module, task: Task
    ) -> None:
        super().__init__()
        self.encoder, self.objective, self.head, self.task = encoder, objective, head, task

    def language_losses(self, text: Corrupted) -> dict[str, Tensor]:
        """The objective's losses on a batch of text, summed over their targets."""
        losses: dict[str, Tensor] = self.objective(self.encoder, text)
        return losses

    def task_loss(self, task: TokenBatch) -> Tensor:
        """The task's loss, summed over the examples."""
        assert task.targets is not None
        return self.task.loss(task_outputs(self.encoder, self.head, task), task.targets)

    def internal_losses(self, task: TokenBatch, text: Corrupted) -> dict[str, Tensor]:
        """The task's and the objective's losses on the same examples."""
        return {
            "task": self.task_loss(task),
            **{f"{name} on task": loss for name, loss in self.language_losses(text).items()},
        }


class JointStage:
    """Interleaves internal and external batches."""

    def __init__(
        self,
        module: JointModel,
        internal: ExampleStream,
        external: PackedStream | None,
        rho1: int,
        rho2: float,
        seed: int,
        machine: Machine,
        cost: EncoderCost,
        accumulate: int = 1,
        graphs: bool = False,
    ) -> None:
        self.module, self.internal, self.external = module, internal, external
        self.rho1, self.rho2, self.seed, self.machine = rho1 if external else 0, rho2, seed, machine
        self.cost, self.accumulate, self.graphs = cost, accumulate, graphs
        self.objective: Any = module.objective
        self.halves = isinstance(module.objective, TwoHalves)
        self.switched: int | None = None  # steps done when the second half began

    def prepare(self, step: int) -> Step:
        """The work of a step: internal on every (ρ1 + 1)-th step, external on the others."""
        seed = step_seed(self.seed + 1, step)
        if step % (self.rho1 + 1) == 0 or self.external is None:
            return self._internal(self.internal.next_groups(), seed)
        text = self.objective.corrupt(self.external.next(), seed)
        batch = JointBatch(text, None, self.machine.counts_pieces(text.batch))
        targets = self.objective.targets(text)
        tokens, flops = text.batch.ids.numel(), self._flops(text, None)
        return Step(
            batch,
            self._compute_external,
            targets,
            self.objective.weights,
            tokens,
            flops,
            self.position(),
        )

    def _internal(self, groups: np.ndarray, seed: int) -> Step:
        task = self.internal.task_batch(groups)
        text = (
            self.objective.corrupt(self.internal.text_batch(groups, seed), seed)
            if self.rho2
            else None
        )
        assert task.targets is not None
        targets = {"task": self.module.task.count(task.targets)}
        weights = {"task": 1.0 / (self.rho2 + 1.0)}
        if text is not None:
            targets |= {
                f"{name} on task": count for name, count in self.objective.targets(text).items()
            }
            weights |= {
                f"{name} on task": weight * self.rho2 / (self.rho2 + 1.0)
                for name, weight in self.objective.weights.items()
            }
        tokens = task.ids.numel() + (0 if text is None else text.batch.ids.numel())
        counted = self.machine.counts_pieces(task) or (
            text is not None and self.machine.counts_pieces(text.batch)
        )
        batch = JointBatch(text, task, counted)
        return Step(
            batch,
            self._compute_internal,
            targets,
            weights,
            tokens,
            self._flops(text, task),
            self.position(),
        )

    def _flops(self, text: Corrupted | None, task: TokenBatch | None) -> float:
        of_text: float = 0.0 if text is None else self.objective.flops(self.cost, text)
        return of_text + (0.0 if task is None else task_flops(self.cost, self.module.head, task))

    def _compute_external(self, batch: JointBatch) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self._language(batch.text)
        return losses

    def _compute_internal(self, batch: JointBatch) -> dict[str, Tensor]:
        assert batch.task is not None
        if batch.text is None:
            return {"task": self._task(batch.task)}
        losses: dict[str, Tensor] = self._both(batch.task, batch.text)
        return losses

    @functools.cached_property
    def _language(self) -> Any:
        return self.machine.compiled(self.module.language_losses, self.graphs)

    @functools.cached_property
    def _task(self) -> Any:
        return self.machine.compiled(self.module.task_loss, self.graphs)

    @functools.cached_property
    def _both(self) -> Any:
        return self.machine.compiled(self.module.internal_losses, self.graphs)

    def phase_end(self, steps: int) -> int:
        """The end of the first half, for an objective that has two and is in it, else of all
        `steps` steps.
        """
        return (steps + 1) // 2 if self.halves and self.switched is None else steps

    def begin_phase(self, step: int, steps: int) -> str:
        """Begins the second half where the first is over; returns what happened, for a person."""
        if not self.halves or self.switched is not None or step < self.phase_end(steps):
            return ""
        self.switched = step
        said: str = self.objective.begin_second_half(self.module.encoder)
        return f"{said} (step {step})"

    def after_step(self, step: int) -> dict[str, float]:
        """Returns nothing: stage 1 is not chosen by dev, it runs to its end."""
        return {}

    def position(self) -> dict[str, Any]:
        """The positions in the data."""
        return {
            "internal": self.internal.state(),
            "external": self.external.state() if self.external else None,
        }

    def go_to(self, position: dict[str, Any]) -> None:
        """Goes to the positions of a checkpoint."""
        self.internal.restore(position["internal"])
        if self.external is not None:
            self.external.restore(position["external"])

    def state(self) -> dict[str, Any]:
        """When the second half began, for an objective that has one: weights and position are all
        else.
        """
        return {"switched": self.switched} if self.halves else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over which half it is; what belongs to it is in the weights."""
        if self.halves:
            self.switched = state["switched"]
            self.objective.second_half = self.switched is not None
