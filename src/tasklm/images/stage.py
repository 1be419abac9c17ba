"""A training on images as the loop sees it: a step reads a labelled batch and one without labels,
and moves the weights once, as in the VAT code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.device.machine import Machine
from tasklm.images.batches import Drawing, ImageBatch, gathered
from tasklm.images.consistency import TASK, Losses, Studying
from tasklm.images.network import ImageNet
from tasklm.models.weights import save_weights
from tasklm.train.steps import Step

DEV_POINTS = 20  # how often dev is scored in a training


@dataclass
class OnDevice:
    """The images that a training reads, as bytes, and the labels of those that have one."""

    pixels: Tensor  # (images, size, size, 3) uint8
    labels: Tensor  # (images,); -1: none


@dataclass(eq=False)
class ImageStage:
    """Trains on labelled images, and on others beside them."""

    losses: Losses
    images: OnDevice
    drawing: Drawing
    machine: Machine
    # the score of the model on dev; None: there is no dev set, and the last weights are kept
    evaluate: Callable[[ImageNet], float] | None
    best_path: Path | None  # where the best weights are kept
    best_score: float = float("-inf")
    best_step: int = 0

    @property
    def module(self) -> nn.Module:
        """All that is trained."""
        return self.losses.module

    @property
    def studying(self) -> Studying:
        """The same, with its parts."""
        return self.losses.module

    @property
    def model(self) -> ImageNet:
        """The network, which predicts."""
        return self.losses.module.model

    def prepare(self, step: int) -> Step:
        """The batches of a step."""
        batch = self.drawing.of_step(step)
        targets = {TASK: len(batch.labelled)}
        targets |= dict.fromkeys(self._names(), len(batch.unlabelled))
        read = len(batch.labelled) + len(batch.unlabelled)
        passes = 3.0 * len(batch.labelled) + self.losses.studies.passes * len(batch.unlabelled)
        return Step(
            batch=batch,
            compute=self._compute,
            targets=targets,
            weights=dict.fromkeys(targets, 1.0),
            tokens=read,
            flops=passes * self.model.shape.flops(),
            position=self.position(),
        )

    def _names(self) -> tuple[str, ...]:
        return self.losses.studies.students

    def _compute(self, batch: ImageBatch) -> dict[str, Tensor]:
        images, labels = self.images.pixels, self.images.labels[batch.labelled]
        with torch.no_grad():
            own = self._read(images, batch.labelled, batch.moves)
        sums = {TASK: self.losses.labelled(own, labels)}
        if not self._names():
            return sums
        with torch.no_grad():
            others = self._read(images, batch.unlabelled, batch.unlabelled_moves)
        return sums | self.losses.unlabelled(others)

    def _read(self, images: Tensor, numbers: Tensor, moves: Tensor) -> Tensor:
        drawn = moves if self.drawing.shifts or self.drawing.flips else None
        scaled = self.model.scaled(gathered(images, numbers, drawn))
        return scaled.contiguous(memory_format=torch.channels_last)

    def position(self) -> dict[str, Any]:
        """Nothing: batches follow from the number of the step."""
        return {}

    def go_to(self, position: dict[str, Any]) -> None:
        """Does nothing."""

    def stop_recording(self) -> None:
        """Does nothing: launches are not recorded."""

    def phase_end(self, steps: int) -> int:
        """The last step: there is only one phase."""
        return steps

    def begin_phase(self, step: int, steps: int) -> str:
        """Does nothing."""
        return ""

    def is_scored(self, step: int, steps: int) -> bool:
        """Whether dev is scored: at some points, and at the end."""
        every = max(1, steps // DEV_POINTS)
        return step == steps or (self.evaluate is not None and step % every == 0)

    def after_step(self, step: int) -> dict[str, float]:
        """The score on dev; the weights are kept if none were better, the last ones in a tie."""
        score = self.best_score
        if self.evaluate is not None:
            score = self.evaluate(self.model)
        if self.evaluate is None or score >= self.best_score:
            self.best_score, self.best_step = score, step
            if self.best_path is not None:
                save_weights(self.best_path, self.studying.state_dict())
        return {} if self.evaluate is None else {"dev": score}

    def state(self) -> dict[str, Any]:
        """The best so far."""
        best = None if self.best_score == float("-inf") else self.best_score
        return {"best_score": best, "best_step": self.best_step}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        best = state["best_score"]
        self.best_score = float("-inf") if best is None else best
        self.best_step = state["best_step"]
