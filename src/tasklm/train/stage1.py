"""Stage 1 (TLM section 3.2): joint training on the selected text and the task.

ρ1 · E_S[L_lm] + E_T[ρ2 · L_lm + L_task], as one batch of internal (task) data, then ρ1 batches of
external (selected) data, and so on. The internal loss is divided by ρ2 + 1, which keeps it on the
scale of an external batch's. The task reads its text without masks, in a pass of its own, or, as in
the authors' code, the states of the masked pass.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.models.task_model import head_outputs, task_outputs
from tasklm.objectives.base import AnnealedObjective, Corrupted, TwoHalves
from tasklm.tasks.base import Task
from tasklm.tasks.heads.decoders import DecoderHead
from tasklm.tasks.heads.turns import head_of_turn
from tasklm.tasks.several import turn_of
from tasklm.tasks.writing import writes
from tasklm.tokens.batches import PackedStream, TokenBatch
from tasklm.tokens.turn_streams import AnyStream
from tasklm.train.held_out import HELD_OUT, HeldOutText
from tasklm.train.steps import Step, step_seed


@dataclass
class JointBatch:
    """Corrupted text, task examples, or both (of the same examples).

    Text that also has places and targets of the task serves both losses in one pass.
    """

    text: Corrupted | None
    task: TokenBatch | None
    counted: bool = False  # whether the device gets tiles or the bounds of pieces

    def __len__(self) -> int:
        if self.text is not None:
            return len(self.text.batch.ids)
        assert self.task is not None
        return len(self.task.ids)

    def part(self, number: int, parts: int) -> JointBatch:
        """One of `parts` micro-batches."""
        text = self.text and self.text.part(number, parts)
        task = self.task and self.task.part(number, parts)
        return JointBatch(text, task, self.counted)

    def to(self, device: torch.device) -> JointBatch:
        """The same on a device, with its tiles or the bounds of its pieces where it has them."""
        text, task = self.text, self.task
        if self.counted:
            text, task = text and text.counted(), task and task.counted()
        return JointBatch(text and text.to(device), task and task.to(device))

    def pinned(self) -> JointBatch:
        """The same in pinned memory."""
        text = self.text and self.text.pinned()
        task = self.task and self.task.pinned()
        return JointBatch(text, task, self.counted)


def task_flops(cost: EncoderCost, head: Any, batch: TokenBatch, own_pass: bool = True) -> float:
    """The FLOPs of training on a batch of the task, padding among its places; without a pass of its
    own, what its head adds to that of the masked text.
    """
    assert batch.places is not None
    rows, places = batch.places.shape
    if isinstance(head, DecoderHead):
        assert batch.targets is not None
        length, written = batch.ids.shape[1], batch.targets.shape[1]
        types = cost.vocabulary
        decoder = head.flops_of(rows, length, written, types)
        return cost.training(rows * length, 0, length, task_head=decoder)
    return cost.training(
        own_pass * batch.ids.numel(),
        0,
        batch.ids.shape[1],
        wanted=rows * places,
        task_head=head_of_turn(head, batch.turn).flops(rows, places),
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
        outputs = task_outputs(self.encoder, self.head, task)
        return turn_of(self.task, task.turn).loss(outputs, task.targets)

    def internal_losses(self, task: TokenBatch, text: Corrupted) -> dict[str, Tensor]:
        """The task's and the objective's losses on the same examples."""
        return {"task": self.task_loss(task), **_on_task(self.language_losses(text))}

    def one_pass_losses(self, text: Corrupted) -> dict[str, Tensor]:
        """Both from one pass: the head reads the states of the text with its masks."""
        batch = text.batch
        assert batch.targets is not None
        read: Any = self.objective.losses_and_states
        losses, states = read(self.encoder, text, batch.flat_places())
        outputs = head_outputs(self.head, states, batch)
        task = turn_of(self.task, batch.turn).loss(outputs, batch.targets)
        return {"task": task, **_on_task(losses)}


def _on_task(losses: dict[str, Tensor]) -> dict[str, Tensor]:
    """The objective's losses, named as those on the text of the task."""
    return {f"{name} on task": loss for name, loss in losses.items()}


@dataclass(eq=False)
class JointStage:
    """Interleaves internal and external batches."""

    module: JointModel
    internal: AnyStream
    external: PackedStream | None
    rho1: int  # external batches after an internal one
    rho2: float  # weight of the language loss on internal batches
    seed: int
    machine: Machine
    cost: EncoderCost
    accumulate: int = 1
    graphs: bool = False  # whether launches are recorded and replayed
    # the steps over which targets change, for an objective that does so; None: they stay half-way
    planned: int | None = None
    held_out: HeldOutText | None = None  # text that is never read, and measured now and then
    one_pass: bool = False  # whether the head reads the masked text of internal batches
    # the best of the external text, which alone is read over the last share of the steps
    best: PackedStream | None = None
    anneal: float = 0.0  # that share

    def __post_init__(self) -> None:
        if self.external is None:
            self.rho1 = 0
        self.objective: Any = self.module.objective
        self.halves = isinstance(self.objective, TwoHalves)
        self.anneals = isinstance(self.objective, AnnealedObjective)
        self.switched: int | None = None  # steps done when the second half began

    def prepare(self, step: int) -> Step:
        """The work of a step: internal on every (ρ1 + 1)-th step, external on the others."""
        seed = step_seed(self.seed + 1, step)
        if step % (self.rho1 + 1) == 0 or self.external is None:
            return self._internal(self.internal.next_groups(), step, seed)
        source = self.external
        if self.best is not None and self._is_last_part(step):
            source = self.best
        text = self._corrupt(source.next(), step, seed)
        batch = JointBatch(text, None, self.machine.counts_pieces(text.batch))
        return Step(
            batch=batch,
            compute=self._compute_external,
            targets=self.objective.targets(text),
            weights=self.objective.weights,
            tokens=text.batch.ids.numel(),
            flops=self.objective.flops(self.cost, text),
            position=self.position(),
        )

    def _is_last_part(self, step: int) -> bool:
        """Whether a step is one of the last share of those first planned."""
        return self.planned is not None and step >= (1.0 - self.anneal) * self.planned

    def _corrupt(self, batch: TokenBatch, step: int, seed: int) -> Corrupted:
        """The batch with the targets of a step. How far training is follows from the steps first
        planned, which all processes know: they prepare ahead, each at its own pace.
        """
        if not self.anneals:
            plain: Corrupted = self.objective.corrupt(batch, seed)
            return plain
        progress = 0.5
        if self.planned is not None:
            progress = min(1.0, step / max(1, self.planned - 1))
        text: Corrupted = self.objective.corrupt_at(batch, seed, progress)
        return text

    def _internal(self, groups: np.ndarray, step: int, seed: int) -> Step:
        if writes(self.module.task):
            return self._text_of_task(groups, step, seed)
        task = self.internal.task_batch(groups)
        assert task.targets is not None
        work = Step(
            batch=JointBatch(None, task, self.machine.counts_pieces(task)),
            compute=self._compute_internal,
            targets={"task": turn_of(self.module.task, task.turn).count(task.targets)},
            weights={"task": 1.0 / (self.rho2 + 1.0)},
            tokens=task.ids.numel(),
            flops=task_flops(self.cost, self.module.head, task),
            position=self.position(),
        )
        if self.rho2:
            text = self._corrupt(self.internal.text_batch(groups, seed), step, seed)
            self._add_text(work, task, text)
        return work

    def _text_of_task(self, groups: np.ndarray, step: int, seed: int) -> Step:
        """An internal step without the task's loss: text of the task as if it were external."""
        text = self._corrupt(self.internal.text_batch(groups, seed), step, seed)
        share = self.rho2 / (self.rho2 + 1.0)
        return Step(
            batch=JointBatch(text, None, self.machine.counts_pieces(text.batch)),
            compute=self._compute_text_of_task,
            targets={f"{n} on task": count for n, count in self.objective.targets(text).items()},
            weights={f"{n} on task": share * by for n, by in self.objective.weights.items()},
            tokens=text.batch.ids.numel(),
            flops=self.objective.flops(self.cost, text),
            position=self.position(),
        )

    def _add_text(self, step: Step, task: TokenBatch, text: Corrupted) -> None:
        """Adds the objective's losses on the examples of an internal step."""
        counts_pieces = self.machine.counts_pieces
        step.batch = JointBatch(text, task, counts_pieces(task) or counts_pieces(text.batch))
        if self.one_pass:
            text = replace(text, batch=replace(text.batch, targets=task.targets, turn=task.turn))
            step.batch = JointBatch(text, None, counts_pieces(text.batch))
            step.compute, step.tokens = self._compute_one_pass, 0
            step.flops = task_flops(self.cost, self.module.head, task, own_pass=False)
        for name, count in self.objective.targets(text).items():
            step.targets[f"{name} on task"] = count
        for name, weight in self.objective.weights.items():
            step.weights[f"{name} on task"] = weight * self.rho2 / (self.rho2 + 1.0)
        step.tokens += text.batch.ids.numel()
        step.flops += self.objective.flops(self.cost, text)

    def _compute_external(self, batch: JointBatch) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self._language(batch.text)
        return losses

    def _compute_text_of_task(self, batch: JointBatch) -> dict[str, Tensor]:
        return _on_task(self._language(batch.text))

    def _compute_internal(self, batch: JointBatch) -> dict[str, Tensor]:
        assert batch.task is not None
        if batch.text is None:
            return {"task": self._task(batch.task)}
        losses: dict[str, Tensor] = self._both(batch.task, batch.text)
        return losses

    def _compute_one_pass(self, batch: JointBatch) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self._once(batch.text)
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

    @functools.cached_property
    def _once(self) -> Any:
        return self.machine.compiled(self.module.one_pass_losses, self.graphs)

    def stop_recording(self) -> None:
        """Launches are no longer recorded and replayed, from the next step on."""
        self.graphs = False
        for compiled in ("_language", "_task", "_both", "_once"):
            vars(self).pop(compiled, None)

    def phase_end(self, steps: int) -> int:
        """The end of the first half, if the objective has two and is in the first, else of
        training.
        """
        if self.halves and self.switched is None:
            return (steps + 1) // 2
        return steps

    def begin_phase(self, step: int, steps: int) -> str:
        """Begins the second half when the first is over; returns a message for the log."""
        if not self.halves or self.switched is not None or step < self.phase_end(steps):
            return ""
        self.switched = step
        message: str = self.objective.begin_second_half(self.module.encoder)
        return f"{message} (step {step})"

    def is_scored(self, step: int, steps: int) -> bool:
        """Whether the loss of held-out text is due."""
        return self.held_out is not None and self.held_out.due(step, steps)

    def after_step(self, step: int) -> dict[str, float]:
        """The loss of held-out text; stage 1 runs to its end without using dev."""
        assert self.held_out is not None
        return {HELD_OUT: round(self.held_out.loss(self.held_out.some), 5)}

    def position(self) -> dict[str, Any]:
        """The positions in the data."""
        position = {
            "internal": self.internal.state(),
            "external": self.external and self.external.state(),
        }
        return {**position, "best": self.best.state()} if self.best is not None else position

    def go_to(self, position: dict[str, Any]) -> None:
        """Goes to the positions of a checkpoint."""
        self.internal.restore(position["internal"])
        if self.external is not None:
            self.external.restore(position["external"])
        if self.best is not None:
            self.best.restore(position["best"])

    def tokens_read(self) -> np.ndarray | None:
        """How many tokens of each selected passage were read so far; None where none is read."""
        if self.external is None:
            return None
        read = self.external.tokens_read()
        return read if self.best is None else read + self.best.tokens_read()

    def state(self) -> dict[str, Any]:
        """When the second half began, for an objective that has one."""
        return {"switched": self.switched} if self.halves else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores which half it is; its parts are in the weights."""
        if self.halves:
            self.switched = state["switched"]
            self.objective.second_half = self.switched is not None
