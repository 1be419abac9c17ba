"""What a study would cost, before anything is trained: runs, FLOPs, time and disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tasklm.budget.rules import USUAL_SEEDS, epochs_for, stage2_batch
from tasklm.device.machine import Machine
from tasklm.encoders.shapes import encoder_of, shape_of
from tasklm.models.task_model import cost_of
from tasklm.pipeline.planning import BATCH, USUAL_TYPES
from tasklm.recipe.schema import Recipe
from tasklm.studying.jobs import Job
from tasklm.studying.running import is_done
from tasklm.studying.study import STAGE_1
from tasklm.tasks.readers.labelled_share import labelled_data
from tasklm.tasks.readers.splits import resolved
from tasklm.train.timing import matmul_ceiling

REACHED = 0.25  # of what matrix products reach alone: a cautious share for a whole training
OVERHEAD = 30.0  # seconds of a run besides training: reading, compiling, scoring
WEIGHT, MOMENTS = 4, 8  # bytes of a weight, and of what an optimiser keeps of it
WITHOUT_SIZE = "mini"  # where the budget chooses the size: what a dry run reckons with


@dataclass(frozen=True)
class Estimate:
    """The cost of one run."""

    job: Job
    flops: float
    bytes: float
    seconds: float
    done: bool


def estimates_of(jobs: Sequence[Job], machine: Machine) -> list[Estimate]:
    """What each run costs; the data is read, nothing is trained."""
    speed = REACHED * matmul_ceiling(machine)
    examples: dict[str, int] = {}
    estimates = []
    for job in jobs:
        for task, recipe in (job.members or {job.task: job.recipe}).items():
            if task not in examples:
                examples[task] = _examples(recipe)
        recipe, total = job.recipe, sum(examples[task] for task in job.tasks)
        if job.line.until == STAGE_1:
            recipe = recipe.changed(finetune={"epochs": 0})
        flops, size = cost_of_run(recipe, total)
        seconds = OVERHEAD + flops / speed
        if job.recipe.budget.minutes:
            seconds = 60 * job.recipe.budget.minutes
        estimates.append(Estimate(job, flops, size, seconds, is_done(job)))
    return estimates


def _examples(recipe: Recipe) -> int:
    """The number of training examples."""
    filled = recipe.changed(data=dataclasses.asdict(resolved(recipe.data)))
    _, splits, _ = labelled_data(filled)
    return len(splits.train)


def cost_of_run(recipe: Recipe, examples: int) -> tuple[float, float]:
    """FLOPs of both stages, masked language modelling assumed, and the bytes of what is kept."""
    model, length = recipe.model, recipe.tokens.rows
    size = model.size if model.size != "auto" else WITHOUT_SIZE
    types = recipe.tokens.vocabulary or USUAL_TYPES
    cost = cost_of(encoder_of(model, size), shape_of(model, size, types, length))
    train, seeds = recipe.train, recipe.finetune.seeds or USUAL_SEEDS
    tokens = (train.steps or 0) * (train.batch or BATCH) * length
    stage1 = cost.training(tokens, round(train.mask_rate * tokens), length)
    if recipe.budget.flops is not None:
        stage1 = recipe.budget.flops
    batch = recipe.finetune.batch or stage2_batch(examples, shallow=False)
    epochs = recipe.finetune.epochs
    if epochs is None:
        epochs = epochs_for(examples, batch)
    stage2 = cost.training(epochs * examples * length, 0, length)
    weights = cost.parameters * train.seeds
    disk = weights * (WEIGHT + MOMENTS) + weights * WEIGHT * seeds
    return train.seeds * (stage1 + seeds * stage2), float(disk)
