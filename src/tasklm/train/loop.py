"""The one training loop, for every stage.

It asks the stage for the work of a step, a few steps ahead and in another thread, sums the losses
over micro-batches and processes with the right denominators, steps the optimiser, writes
checkpoints and yields a record per step. The stage decides what is learnt and when dev is scored.
On a GPU it waits for the device only every 25 steps or more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.device.machine import Machine, is_out_of_memory
from tasklm.errors import TrainingError
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.optimizers import Optimiser
from tasklm.train.optim.schedules import Schedule, steps_that_fit
from tasklm.train.prefetch import Prefetcher
from tasklm.train.skipped import SkippedSteps
from tasklm.train.steps import Record, Resumed, Stage, Step, step_seed

LOOKS = 0.02  # share of the steps after which the clock and the skipped steps are checked …
# … on a GPU, where a check waits for the device: bounds in steps
LOOK_OFTEN, LOOK_SELDOM = 25, 50
LONGER = 1.5  # a machine faster than measured does at most this many times the planned steps
MOST_SKIPPED = 0.05  # share of the steps that may be skipped because a loss was not finite
LOWEST = 1 / 64  # of the learning rate, after going back repeatedly


@dataclass
class Settings:
    """How to train."""

    clip: float
    seed: int
    checkpoint_seconds: float
    accumulate: int = 1  # micro-batches that each process makes of its share
    non_finite: str = "skip"  # or "back" or "stop"
    seconds_allowed: float | None = None
    longer: float = LONGER


@dataclass
class Progress:
    """The progress of training, all of it in a checkpoint."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0
    seconds: float = 0.0
    skipped: int = 0
    lowered: float = 1.0  # factor on the learning rate, after going back
    planned: int = 0  # steps first planned
    # step and seconds from which the pace is taken: after the first look
    mark: tuple[int, float] | None = None
    messages: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Loop:
    """Trains a stage to the end of its schedule."""

    stage: Stage
    optimiser: Optimiser
    schedule: Schedule
    settings: Settings
    checkpoints: Checkpoints | None
    machine: Machine
    average: WeightAverage | None = None
    curve: Resumed | None = None

    def __post_init__(self) -> None:
        self.accumulate = self.settings.accumulate
        self.at = Progress(planned=self.schedule.steps)
        self._parameters = [
            parameter for parameter in self.stage.module.parameters() if parameter.requires_grad
        ]
        self.skipped = SkippedSteps(self.machine.device)
        self._before = 0.0  # seconds of training …
        self._since = time.monotonic()  # … when the clock went on from there
        self._went_back = False

    def run(self) -> Iterator[Record]:
        """Yields a record per step until the schedule ends; continues from the last checkpoint."""
        if not self._restore() and self.settings.non_finite == "back":
            self._save(self.stage.position())  # a point to go back to
        self.stage.module.train()
        self._start_clock()
        saved = time.monotonic()
        while self.at.step < self.schedule.steps:
            self._begin_phase()
            end = self.stage.phase_end(self.schedule.steps)
            prefetcher = Prefetcher(self._prepare, self.at.step, end)
            try:
                for prepared in prefetcher:
                    record = self._step(prepared)
                    record.seconds = self._read_clock()
                    yield record
                    self._look()
                    if self._went_back or self.at.step >= self.schedule.steps:
                        break
                    if time.monotonic() - saved >= self.settings.checkpoint_seconds:
                        self._save(prepared.position)
                        saved = time.monotonic()
                    if self.at.step >= self.stage.phase_end(self.schedule.steps):
                        break
            finally:
                prefetcher.close()
            if self._went_back:
                self._went_back = False
                self._start_clock()
            else:
                # if a replanned phase ends early, later steps are already prepared
                self.stage.go_to(prepared.position)

    def _begin_phase(self) -> None:
        """Lets the stage switch to another phase, at the same step in all processes."""
        if message := self.stage.begin_phase(self.at.step, self.schedule.steps):
            self.at.messages.append(message)
            self.at.mark = None  # the pace changes

    def _start_clock(self) -> None:
        self._before, self._since = self.at.seconds, time.monotonic()

    def _read_clock(self) -> float:
        """Updates and returns the seconds of training so far, without interruptions."""
        self.at.seconds = self._before + time.monotonic() - self._since
        return self.at.seconds

    def _prepare(self, step: int) -> Step:
        prepared = self.stage.prepare(step)
        if self.machine.device.type == "cuda":
            prepared.batch = prepared.batch.pinned()
        return prepared

    def _step(self, prepared: Step) -> Record:
        self.machine.seed(step_seed(self.settings.seed, self.at.step))
        while (losses := self._gradients(prepared)) is None:
            pass
        ranks = self.machine.ranks
        ranks.sum_gradients(self._parameters)
        means = ranks.sum(torch.stack(list(losses.values())))
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        divisor = None
        if self.settings.clip:
            divisor = (norm / self.settings.clip).clamp(min=1.0)
        skip = (~(norm.isfinite() & means.isfinite().all())).float()
        share = self.at.lowered * self.schedule.share(self.at.step)
        self.optimiser.step(share, skip, divisor)
        if self.average is not None:
            self.average.update(skip)
        self.optimiser.zero_grad()
        self.skipped.add(" + ".join(prepared.targets), skip)
        self.at.step += 1
        self.at.tokens += prepared.tokens
        self.at.flops += prepared.flops
        scores = self._scores()
        messages, self.at.messages = self.at.messages, []
        return Record(
            step=self.at.step,
            steps=self.schedule.steps,
            share=share,
            losses=dict(zip(losses, means, strict=True)),
            scores=scores,
            tokens=self.at.tokens,
            flops=self.at.flops,
            seconds=0.0,
            messages=messages,
        )

    def _scores(self) -> dict[str, float]:
        if not self.stage.is_scored(self.at.step, self.schedule.steps):
            return {}
        if self.average is None:
            return self.stage.after_step(self.at.step)
        with self.average.applied():
            return self.stage.after_step(self.at.step)

    def _gradients(self, prepared: Step) -> dict[str, Tensor] | None:
        """Computes gradients and returns the mean losses; None if memory ran out. Micro-batches are
        then smaller.
        """
        ranks = self.machine.ranks
        own = prepared.batch.part(ranks.rank, ranks.count)
        means = {name: torch.zeros((), device=self.machine.device) for name in prepared.targets}
        if self.machine.compiles:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        try:
            for number in range(self.accumulate):
                part = own.part(number, self.accumulate)
                if not len(part):
                    continue
                with self.machine.arithmetic():
                    sums = prepared.compute(part.to(self.machine.device))
                targets = prepared.targets
                shares = {name: total / max(1, targets[name]) for name, total in sums.items()}
                weighted = [prepared.weights[name] * share for name, share in shares.items()]
                torch.stack(weighted).sum().backward()  # type: ignore[no-untyped-call]
                for name, share in shares.items():
                    means[name] += share.detach()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            self._smaller(len(prepared.batch))
            return None
        return means

    def _smaller(self, rows: int) -> None:
        """Halves the micro-batches; raises if they are already a single row."""
        self.optimiser.zero_grad()
        if self.accumulate * self.machine.ranks.count >= rows:
            raise TrainingError(
                "out of memory: the device cannot train on even one sequence. Use a smaller "
                "model (--model.size) or shorter sequences (--tokens.length); the last checkpoint "
                "is kept."
            )
        self.accumulate *= 2
        # a recording that memory cut short leaves PyTorch's allocators in an undefined state
        self.stage.stop_recording()
        self.machine.free_unused()
        off = ", and CUDA graphs are off from here on" if self.machine.compiles else ""
        self.at.messages.append(
            f"out of memory at step {self.at.step + 1}: micro-batches are halved{off}; "
            "the result is the same"
        )

    def _look(self) -> None:
        """Occasionally reads the clock and the number of skipped steps.

        On a CPU the latter costs nothing and is read every step.
        """
        step, steps = self.at.step, self.schedule.steps
        waits = self.machine.device.type != "cpu"
        most_often = LOOK_OFTEN if waits else 1
        due = step % max(most_often, min(round(LOOKS * steps), LOOK_SELDOM)) == 0 or step == steps
        if waits and not due:
            return
        skipped = self.skipped.total()  # waits for the device
        if skipped > self.at.skipped:
            self._judge_skipped(skipped)
        allowed = self.settings.seconds_allowed
        if due and allowed is not None and step < steps and not self._went_back:
            self._read_clock()
            self._keep_to_time(allowed)

    def _keep_to_time(self, allowed: float) -> None:
        """Replans the schedule when the forecast misses the time allowed."""
        at = self.at
        if at.mark is None:
            # earlier work, such as compilation, says nothing about the pace
            at.mark = (at.step, at.seconds)
            return
        most = int(self.settings.longer * at.planned)
        steps = steps_that_fit(
            at.step, self.schedule.steps, at.seconds, allowed, since=at.mark, most=most
        )
        # each process has its own clock, all follow one
        steps = self.machine.ranks.of_first(steps or 0)
        if steps:
            self.schedule.replan(at.step, steps)

    def _judge_skipped(self, skipped: int) -> None:
        """Follows the policy for losses that are not finite; they have not changed the weights."""
        at, policy = self.at, self.settings.non_finite
        what = f"a loss or gradient was not finite at or before step {at.step}"
        remedy = (
            "Lower the learning rate (--train.learning_rate or --finetune.learning_rate) or use "
            "--hardware.precision fp32"
        )
        if policy == "stop":
            raise TrainingError(
                f"{what}. {remedy}; the weights and the last checkpoint are unaffected."
            )
        if policy == "back" and self.checkpoints is not None:
            lowered, seconds = at.lowered / 2, at.seconds
            if lowered < LOWEST or not self._restore():
                raise TrainingError(
                    f"{what}, also at a rate {1 / at.lowered:.0f} times lower. {remedy}."
                )
            self.at.lowered, self.at.seconds, self._went_back = lowered, seconds, True
            self.at.messages.append(
                f"{what}: back to step {self.at.step}, with half the learning rate"
            )
            return
        if stuck := self.skipped.stuck():
            kind, count = stuck
            raise TrainingError(
                f"{what}, as in all of the last {count} steps on {kind}: nothing is learnt from "
                f"it. {remedy}."
            )
        if skipped > max(10, MOST_SKIPPED * self.schedule.steps):
            raise TrainingError(
                f"{what}, for the {skipped}th time. {remedy}; the last checkpoint is kept."
            )
        at.messages.append(f"{what}: that step was skipped ({skipped} so far)")
        at.skipped = skipped

    def _save(self, position: dict[str, Any]) -> None:
        if self.checkpoints is None or not self.machine.ranks.first:
            return
        self.at.skipped = self.skipped.total()
        progress = {name: value for name, value in vars(self.at).items() if name != "messages"}
        state = {
            "progress": progress,
            "schedule": self.schedule.state(),
            "position": position,
            "stage": self.stage.state(),
            "accumulate": self.accumulate,
        }
        if self.curve is not None:
            state["curve"] = self.curve.state()
        tensors = {"model": self.stage.module.state_dict(), "optimiser": self.optimiser.tensors()}
        if self.average is not None:
            tensors["average"] = self.average.tensors()
        self.checkpoints.save(self.at.step, tensors, state)

    def _restore(self) -> bool:
        """Restores the last checkpoint; returns whether there is one."""
        if self.checkpoints is None or (checkpoint := self.checkpoints.last()) is None:
            return False
        if self.machine.ranks.first:
            self.checkpoints.put_back(checkpoint)
        tensors, state = checkpoint.tensors, checkpoint.state
        self.stage.module.load_state_dict(tensors["model"])
        self.optimiser.load(tensors["optimiser"])
        if self.average is not None:
            self.average.load(tensors["average"])
        if self.curve is not None and "curve" in state:
            self.curve.restore(state["curve"])
        self.schedule.restore(state["schedule"])
        self.stage.go_to(state["position"])
        self.stage.restore(state["stage"])
        if self.machine.device.type == "cuda":
            self.accumulate = max(self.accumulate, state["accumulate"])
        self.at = Progress(**state["progress"])
        if self.at.mark:
            step, seconds = self.at.mark  # a list, as JSON has it
            self.at.mark = step, seconds
        self.skipped.restore(self.at.skipped)
        return True
