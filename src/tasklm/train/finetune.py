"""Stage 2: only the task loss, a fresh head, the epoch that is best on dev kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from tasklm.tasks.base import Task
from tasklm.tokens.batches import ExampleStream
from tasklm.train.checkpoints import save_weights
from tasklm.train.hardware import Machine
from tasklm.train.joint import cost_of
from tasklm.train.loop import Work
from tasklm.train.model import TaskModel


class FinetuneStage:
    """Trains on the task's batches and scores dev after every epoch."""

    def __init__(
        self, module: TaskModel, task: Task, stream: ExampleStream, evaluate: Callable[[], float], best: Path | None, machine: Machine
    ) -> None:
        self.module, self.task, self.stream, self.evaluate = module, task, stream, evaluate
        self.best_path, self.machine = best, machine
        self.best_score, self.best_step = float("-inf"), 0
        self.cost = cost_of(module.encoder.shape)  # type: ignore[arg-type]

    def work(self, step: int) -> list[Work]:
        """Returns the one batch of a step."""
        batch = self.stream.next()

        def compute() -> dict[str, Tensor]:
            rows = batch.to(self.machine.device)
            assert rows.targets is not None
            return {"task": self.task.loss(self.module(rows), rows.targets)}

        flops = self.cost.training(batch.ids.numel(), 0, batch.ids.shape[1])
        return [Work({"task": len(batch.ids)}, {"task": 1.0}, compute, batch.ids.numel(), flops)]

    def after_step(self, step: int) -> dict[str, float]:
        """Returns the dev score at the end of an epoch; the best weights so far are kept on disk."""
        if step % len(self.stream):
            return {}
        score = self.evaluate()
        if score > self.best_score:
            self.best_score, self.best_step = score, step
            if self.best_path is not None:
                save_weights(self.best_path, self.module.state_dict())
        return {"dev": score}

    def state(self) -> dict[str, Any]:
        """Returns the position in the data and the best so far."""
        return {"stream": self.stream.state(), "best_score": self.best_score, "best_step": self.best_step}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over the state of a checkpoint."""
        self.stream.restore(state["stream"])
        self.best_score, self.best_step = state["best_score"], state["best_step"]
