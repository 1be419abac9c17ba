"""tasklm's own training loop, with its batches and masks prepared beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from tasklm.device.machine import set_up
from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import padded_vocabulary
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Hardware
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stage1 import JointStage
from tasklm.train.stages import joint_stage
from tasklm.train.steps import Step
from training_peers.timing import StepTimer

RATE = 1e-4


@dataclass
class Numbers:
    """A vocabulary of which only the numbers matter."""

    types: int
    pad: int = 0
    unk: int = 1
    cls: int = 2
    sep: int = 3
    mask: int = 4
    specials: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])

    def __len__(self) -> int:
        return self.types

    def around(self, tokens: Sequence[int]) -> list[int]:
        """Returns [CLS] tokens [SEP]."""
        return [self.cls, *tokens, self.sep]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """A few tokens per text."""
        return [[5, 6, 7] for _ in texts]


def _external_only(stage: JointStage) -> JointStage:
    """The stage without its first step, the one of task data: the peers have no task."""
    prepare = stage.prepare

    def later(step: int) -> Step:
        return prepare(step + 1)

    stage.prepare = later  # type: ignore[method-assign]
    return stage


def make_loop(
    shape: Shape,
    rows: int,
    length: int,
    tokens: Path,
    vocabulary: int,
    steps: int,
    device: torch.device,
) -> tuple[Loop, str]:
    """The loop over so many steps on the token shards of the folder `tokens`, and its settings in
    words.
    """
    machine = set_up(Hardware(device=str(device), threads=torch.get_num_threads()))
    numbers: Any = Numbers(vocabulary)
    task = Classify(["a", "b"])
    examples = EncodedExamples.of(
        task, [Example(("a",), "a"), Example(("b",), "b")], numbers, length
    )
    shape = replace(
        shape,
        vocabulary=padded_vocabulary(vocabulary),
        positions=max(shape.positions, length),
        dropout=0.0,
    )
    parts = TrainingContext(
        "bert", shape, task, numbers, examples, examples, Shards.open(tokens), length, machine
    )
    stage = _external_only(joint_stage(parts, Train(), rho1=1_000_000, batch=rows))
    how = Settings(1.0, 1, 1e9, stage.accumulate)
    optimiser = make_optimiser(stage.module, Rule("adamw", RATE, 0.01))
    compiled = "compiled" if machine.compiles else "not compiled"
    graphs = ", launches replayed" if machine.compiles and stage.graphs else ""
    words = (
        f"{'bf16' if machine.bf16 else 'fp32'}, "
        f"{compiled}{graphs}, fused AdamW, {how.accumulate} micro-batch(es)"
    )
    return Loop(stage, optimiser, Schedule("linear", steps, 0.1), how, None, machine), words


def measure(
    shape: Shape,
    rows: int,
    length: int,
    tokens: Path | None,
    vocabulary: int,
    steps: int,
    warmup: int,
    device: torch.device,
) -> dict[str, Any]:
    """The time of `steps` steps after `warmup` steps.

    The keys are those of the peers: seconds, tokens, first_loss, last_loss, version, settings.
    """
    assert tokens is not None
    loop, words = make_loop(shape, rows, length, tokens, vocabulary, warmup + steps, device)
    timer = StepTimer(warmup, steps, device)
    losses = []
    for record in loop.run():
        losses.append(record.losses["lm"])
        timer.step()
    return {
        "seconds": timer.seconds,
        "tokens": steps * rows * length,
        "first_loss": float(losses[0]),
        "last_loss": float(losses[-1]),
        "version": f"torch {torch.__version__}",
        "settings": words,
    }
