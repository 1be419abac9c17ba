"""The one training loop, for every stage.

It asks the stage for the work of a step, sums the losses over micro-batches with the right denominators, steps the
optimiser, writes checkpoints and yields a record per step. What is learnt, and when dev is scored, is the stage's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tasklm.errors import TrainingError
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.hardware import Machine
from tasklm.train.schedules import WarmupLinear

LOOK_EVERY = 0.02  # share of the steps after which the clock is compared with the time allowed
OVERRUN = 1.08  # a forecast this far above the time allowed shortens the schedule


@dataclass
class Work:
    """One micro-batch: how many targets each named loss has, its weight, and how to compute the sums."""

    targets: dict[str, int]
    weights: dict[str, float]
    compute: Callable[[], dict[str, Tensor]]
    tokens: int  # tokens that the encoder reads, padding included
    flops: float  # exact FLOPs of the forward and the backward pass


class Stage(Protocol):
    """What is trained."""

    @property
    def module(self) -> nn.Module:
        """Returns all that is trained."""
        ...

    def work(self, step: int) -> list[Work]:
        """Returns the micro-batches of a step."""
        ...

    def after_step(self, step: int) -> dict[str, float]:
        """Returns scores to record after `step` steps (usually none)."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns the position in the data and whatever else a checkpoint must hold."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Takes over the state of a checkpoint."""
        ...


@dataclass
class Record:
    """What happened in one step; losses are tensors until somebody reads them, so that no device waits."""

    step: int
    steps: int
    learning_rate: float
    losses: dict[str, Tensor]
    scores: dict[str, float]
    tokens: int  # since the start of training
    flops: float  # since the start of training
    seconds: float  # since the start of training, interruptions left out


@dataclass
class Settings:
    """How to train."""

    learning_rate: float
    clip: float
    seed: int
    checkpoint_seconds: float
    seconds_allowed: float | None = None


def step_seed(seed: int, step: int) -> int:
    """Returns the seed of all random draws of one step, so that a resumed step draws what it would have drawn."""
    return (seed * 1_000_003 + step) % (2**63)


def train(
    stage: Stage,
    optimiser: torch.optim.Optimizer,
    schedule: WarmupLinear,
    settings: Settings,
    checkpoints: Checkpoints | None,
    machine: Machine,
) -> Iterator[Record]:
    """Yields a record per step until the schedule ends; continues from the last checkpoint."""
    step, tokens, flops, seconds_before = 0, 0, 0.0, 0.0
    if checkpoints is not None and (state := checkpoints.restore(stage.module, optimiser)) is not None:
        step, tokens, flops, seconds_before = state["step"], state["tokens"], state["flops"], state["seconds"]
        schedule.restore(state["schedule"])
        stage.restore(state["stage"])
    stage.module.train()
    started = saved = time.monotonic()
    while step < schedule.steps:
        torch.manual_seed(step_seed(settings.seed, step))
        rate = settings.learning_rate * schedule.share(step)
        works = stage.work(step)
        losses = _step(works, stage.module, optimiser, rate, settings.clip, machine, step)
        step += 1
        tokens += sum(work.tokens for work in works)
        flops += sum(work.flops for work in works)
        scores = stage.after_step(step)
        now = time.monotonic()
        seconds = seconds_before + now - started
        yield Record(step, schedule.steps, rate, losses, scores, tokens, flops, seconds)
        if settings.seconds_allowed is not None:
            _keep_to_time(schedule, step, seconds, settings.seconds_allowed)
        if checkpoints is not None and now - saved >= settings.checkpoint_seconds and step < schedule.steps:
            position = {
                "tokens": tokens,
                "flops": flops,
                "seconds": seconds,
                "schedule": schedule.state(),
                "stage": stage.state(),
            }
            checkpoints.save(step, stage.module, optimiser, position)
            saved = time.monotonic()


def _step(
    works: list[Work], module: nn.Module, optimiser: torch.optim.Optimizer, rate: float, clip: float, machine: Machine, step: int
) -> dict[str, Tensor]:
    """Does one optimiser step; returns the mean losses."""
    totals: dict[str, int] = {}
    for work in works:
        for name, count in work.targets.items():
            totals[name] = totals.get(name, 0) + count
    means: dict[str, Tensor] = {}
    for work in works:
        with machine.arithmetic():
            sums = work.compute()
        parts = {name: total / max(1, totals[name]) for name, total in sums.items()}
        torch.stack([work.weights[name] * part for name, part in parts.items()]).sum().backward()  # type: ignore[no-untyped-call]
        for name, part in parts.items():
            means[name] = means.get(name, torch.zeros_like(part)).detach() + part.detach()
    _refuse_non_finite(means, step)
    if clip:
        nn.utils.clip_grad_norm_(module.parameters(), clip)
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return means


def _refuse_non_finite(losses: dict[str, Tensor], step: int) -> None:
    bad = [name for name, loss in losses.items() if not bool(loss.isfinite())]
    if bad:
        raise TrainingError(
            f"the loss '{bad[0]}' is not a finite number at step {step + 1}. Lower the learning rate "
            "(--train.learning_rate or --finetune.learning_rate) or use --hardware.precision fp32; the last checkpoint is kept."
        )


def _keep_to_time(schedule: WarmupLinear, step: int, seconds: float, allowed: float) -> None:
    """Shortens the schedule when the forecast overruns the time allowed, so that training still ends on time."""
    look = max(1, round(LOOK_EVERY * schedule.steps))
    if step < 2 * look or step % look or step >= schedule.steps:
        return
    pace = seconds / step
    if pace * schedule.steps > OVERRUN * allowed:
        schedule.shorten(step, max(step + 1, int(allowed / pace)))
