"""Stage 2: only the task loss, with a new head; the best epoch on dev is kept."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasklm.budget.costs import EncoderCost
from tasklm.device.machine import Machine
from tasklm.models.task_model import TaskModel
from tasklm.models.weights import save_weights
from tasklm.tasks.base import Task
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.example_streams import ExampleStream
from tasklm.train.stage1 import JointBatch, task_flops
from tasklm.train.steps import Step


@dataclass(frozen=True)
class Judgement:
    """The evaluation of a model on dev."""

    score: float
    share: float = 1.0  # of the network's output added to the wide part
    gains: bool = True  # whether its loss is significantly below that of the wide part alone


@dataclass(frozen=True)
class Teaching:
    """What labels and teachers weigh in a loss (BAM, arXiv 1907.04829)."""

    steps: int  # of the whole fine-tuning
    labels: float | None  # weight of the labels; None: rises from 0 to 1 (teacher annealing)

    def weights(self, step: int) -> dict[str, float]:
        """The weights of the two losses at a step, counted from 1."""
        labels = self.labels
        if labels is None:
            labels = min(1.0, step / self.steps)
        return {"task": labels, "teacher": 1.0 - labels}


@dataclass(eq=False)
class FinetuneStage:
    """Trains on the task's batches and scores dev after every epoch."""

    module: TaskModel
    task: Task
    stream: ExampleStream
    evaluate: Callable[[], Judgement]
    best_path: Path | None  # where the best weights are kept
    machine: Machine
    cost: EncoderCost
    accumulate: int = 1
    graphs: bool = False  # whether launches are recorded and replayed
    teaching: Teaching | None = None  # None: labels alone
    best_score: float = float("-inf")
    best_step: int = 0
    best_share: float = 1.0

    def prepare(self, step: int) -> Step:
        """The one batch of a step."""
        batch = self.stream.next()
        assert batch.targets is not None
        weights = {"task": 1.0} if self.teaching is None else self.teaching.weights(step)
        return Step(
            batch=JointBatch(None, batch, self.machine.counts_pieces(batch)),
            compute=self._compute,
            targets=dict.fromkeys(weights, self.task.count(batch.targets)),
            weights=weights,
            tokens=batch.ids.numel(),
            flops=task_flops(self.cost, self.module.head, batch),
            position=self.position(),
        )

    def _compute(self, batch: JointBatch) -> dict[str, Tensor]:
        losses: dict[str, Tensor] = self._losses(batch.task)
        return losses

    @functools.cached_property
    def _losses(self) -> Any:
        return self.machine.compiled(self._task_losses, self.graphs)

    def _task_losses(self, batch: TokenBatch) -> dict[str, Tensor]:
        assert batch.targets is not None
        outputs = self.module(batch)
        losses = {"task": self.task.loss(outputs, batch.targets)}
        if self.teaching is not None:
            assert batch.taught is not None
            losses["teacher"] = self.task.taught_loss(outputs, batch.taught, batch.targets)
        return losses

    def phase_end(self, steps: int) -> int:
        """The last step: there is only one phase."""
        return steps

    def begin_phase(self, step: int, steps: int) -> str:
        """Does nothing."""
        return ""

    def after_step(self, step: int) -> dict[str, float]:
        """The dev score at the end of an epoch; the best weights so far are kept on disk."""
        if step % len(self.stream):
            return {}
        return {"dev": self.judge(step)}

    def judge(self, step: int) -> float:
        """The score on dev; the weights are saved if it is the best so far. If a model has a wide
        part, which is evaluated at step 0, its loss must be significantly lower than then: a higher
        score alone may be luck.
        """
        ranks = self.machine.ranks
        judgement = Judgement(
            0.0, 0.0, False
        )  # in the other processes: the sum is that of the first
        if ranks.first:
            judgement = self.evaluate()
        numbers = torch.tensor(astuple(judgement), device=self.machine.device, dtype=torch.float64)
        score, share, gains = ranks.sum(numbers).tolist()
        if score > self.best_score and (gains or not step):
            self.best_score, self.best_step, self.best_share = score, step, share
            if self.best_path is not None and ranks.first:
                save_weights(self.best_path, self.module.shared(share))
        return float(score)

    def position(self) -> dict[str, Any]:
        """The position in the data."""
        return self.stream.state()

    def go_to(self, position: dict[str, Any]) -> None:
        """Goes to the position of a checkpoint."""
        self.stream.restore(position)

    def state(self) -> dict[str, Any]:
        """The best so far."""
        return {
            "best_score": self.best_score,
            "best_step": self.best_step,
            "best_share": self.best_share,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        self.best_score = state["best_score"]
        self.best_step = state["best_step"]
        self.best_share = state.get("best_share", 1.0)
