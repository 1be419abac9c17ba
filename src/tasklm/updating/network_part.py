"""The update of a network: stage 2 goes on from the shipped weights, on new and earlier examples,
with a lower rate, for a small share of the FLOPs of the first run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasklm.budget.rules import stage2_rate
from tasklm.models.weights import load_weights
from tasklm.recipe.model_sections import Finetune
from tasklm.run_folder import SUMMARY, stage1_name
from tasklm.storage.files import read_json, write_json, write_record
from tasklm.tracking import Tracker
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.context import TrainingContext
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stage_runs import BEST, follow
from tasklm.train.stages import finetune_stage
from tasklm.updating.reading import Base
from tasklm.updating.widening import widened

RATE = 0.5  # of the rate of a first fine-tuning
FLOPS = 0.05  # of those of the first run: with answers and the linear part, a tenth of its time
MOST_EPOCHS = 3  # passes over the mixture
SEED = 9001  # of draws, unlike those of the first run
PLAN = "plan.json"


@dataclass(frozen=True)
class Learning:
    """What stage 2 goes on from, and for how many FLOPs."""

    base: Base
    context: TrainingContext
    settings: Finetune
    metric: str
    checkpoint_seconds: float
    encoder: Mapping[str, Any]  # after new text; empty: the shipped one


def first_flops(run: Path) -> float:
    """The FLOPs of both stages of the first training of a run, from their summaries."""
    stage1 = run / stage1_name(1) / SUMMARY
    parts = [stage1, *sorted(run.glob(f"stage2*/seed-*/{SUMMARY}"))]
    return sum(float(read_json(path)["flops"]) for path in parts if path.exists())


def go_on(folder: Path, learning: Learning, tracker: Tracker) -> None:
    """Trains; leaves best.safetensors and summary.json in the folder."""
    context, settings = learning.context, _settings(learning)
    stage = finetune_stage(context, settings, SEED, learning.metric, folder / BEST)
    stage.model.load_state_dict({**start_of(learning.base, context), **learning.encoder})
    checkpoints = Checkpoints(folder, beside=(BEST,))
    checkpoints.drop_damaged()
    steps = _planned(folder, stage, learning)
    if not checkpoints.there:
        stage.judge(0)  # the model as it was, with outputs for new classes
    rule = Rule(
        settings.optimiser,
        settings.learning_rate or 0.0,
        settings.weight_decay,
        settings.layer_decay,
        settings,
    )

    def loop() -> Loop:
        return Loop(
            stage=stage,
            optimiser=make_optimiser(stage.module, rule),
            schedule=Schedule(settings.schedule, steps, settings.warmup),
            settings=Settings(
                clip=settings.clip,
                seed=SEED,
                checkpoint_seconds=learning.checkpoint_seconds,
                accumulate=stage.accumulate,
            ),
            checkpoints=checkpoints,
            machine=context.machine,
        )

    peak = settings.learning_rate or 0.0
    summary = follow("stage 2, continued", steps, loop, folder, peak, tracker)
    if not stage.is_scored(summary["steps"], summary["steps"]):
        stage.judge(summary["steps"])
    best = {"dev": stage.best_score, "best_step": stage.best_step}
    write_json(folder / SUMMARY, {**summary, **best})
    checkpoints.clear()


def start_of(base: Base, context: TrainingContext) -> dict[str, Any]:
    """The shipped weights, with a head for all classes."""
    weights = {
        name: tensor.cpu().numpy() for name, tensor in load_weights(base.saved.weights[0]).items()
    }
    wider = widened(weights, base.task.labels, context.task.labels)
    start = {name: torch.from_numpy(array.copy()) for name, array in wider.items()}
    if context.wide is None:
        start.pop("wide_scale", None)
    return start


def _settings(learning: Learning) -> Finetune:
    """Those of the recipe, with a lower rate, without averages and without text."""
    settings, context = learning.settings, learning.context
    peak = settings.learning_rate or stage2_rate(
        context.shape.width, settings.optimiser, context.encoder == "bilstm"
    )
    return dataclasses.replace(settings, learning_rate=RATE * peak, average=0.0)


def _planned(folder: Path, stage: FinetuneStage, learning: Learning) -> int:
    """The number of steps, decided once from the FLOPs of a pass."""
    path = folder / PLAN
    if not path.exists():
        before = stage.position()
        flops = sum(stage.prepare(step).flops for step in range(1, stage.steps_of(1) + 1))
        stage.go_to(before)
        allowed = FLOPS * first_flops(learning.base.run)
        epochs = min(MOST_EPOCHS, allowed / max(1.0, flops))
        write_record(path, {"steps": max(1, stage.steps_of(epochs)), "epoch": stage.steps_of(1)})
    return int(read_json(path)["steps"])
