"""What a stage and the loop exchange: batches, the work of a step, and its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Batch(Protocol):
    """The tensors of a step."""

    def part(self, number: int, parts: int) -> Batch:
        """One of `parts` micro-batches."""
        ...

    def to(self, device: torch.device) -> Batch:
        """The same tensors on a device."""
        ...

    def pinned(self) -> Batch:
        """The same tensors in pinned memory."""
        ...

    def __len__(self) -> int:
        """The number of rows."""
        ...


@dataclass
class Step:
    """The work of one optimiser step, prepared on the CPU."""

    batch: Batch  # the whole of it, however many processes share it
    # micro-batch on the device → sums of the named losses
    compute: Callable[[Any], dict[str, Tensor]]
    targets: dict[str, int]  # of the whole batch, by loss
    weights: dict[str, float]  # of the losses
    tokens: int  # that the encoder reads, padding included
    flops: float  # exact FLOPs of the forward and the backward pass
    position: dict[str, Any]  # in the data, after this step


class Stage(Protocol):
    """What is trained."""

    @property
    def module(self) -> nn.Module:
        """All that is trained."""
        ...

    def prepare(self, step: int) -> Step:
        """The work of the next step; called in order, in another thread, ahead of the training."""
        ...

    def position(self) -> dict[str, Any]:
        """The position of the next step in the data."""
        ...

    def go_to(self, position: dict[str, Any]) -> None:
        """Goes to a position in the data."""
        ...

    def phase_end(self, steps: int) -> int:
        """The step, of `steps` in total, at which the current phase ends.

        Nothing is prepared beyond it.
        """
        ...

    def begin_phase(self, step: int, steps: int) -> str:
        """Begins another phase if the current one ends at `step` of `steps` steps. Returns a
        message for the log, or an empty string.
        """
        ...

    def is_scored(self, step: int, steps: int) -> bool:
        """Whether scores are due after `step` of `steps` steps."""
        ...

    def after_step(self, step: int) -> dict[str, float]:
        """The scores after `step` steps, where they are due."""
        ...

    def stop_recording(self) -> None:
        """Launches are no longer recorded and replayed, from the next step on."""
        ...

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint besides weights and position."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        ...


class Resumed(Protocol):
    """A companion of a training whose state is part of its checkpoints."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Restores the state of a checkpoint."""
        ...


@dataclass
class Record:
    """What happened in one step; its losses stay tensors, so that the device need not wait."""

    step: int
    steps: int
    share: float  # of the peak learning rate
    losses: dict[str, Tensor]
    scores: dict[str, float]
    tokens: int  # since the start of training
    flops: float  # since the start of training
    seconds: float  # since the start of training, without interruptions
    messages: list[str]


def step_seed(seed: int, step: int) -> int:
    """The seed of all random draws of one step: a resumed step draws what it would have drawn."""
    return (seed * 1_000_003 + step) % (2**63)
