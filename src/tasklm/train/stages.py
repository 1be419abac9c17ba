"""The two stages as artefacts: each fills a folder, can be cut off at any moment, and continues."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasklm.budget import stage1_rate, stage2_rate
from tasklm.encoders.base import Shape
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe import Finetune, Train
from tasklm.runs import read_json, write_json
from tasklm.tasks.base import Task
from tasklm.tokens.batches import EncodedExamples, ExampleStream, PackedStream
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import Tracker
from tasklm.train.checkpoints import Checkpoints, load_weights, save_weights
from tasklm.train.finetune import FinetuneStage
from tasklm.train.hardware import Machine
from tasklm.train.joint import JointModel, JointStage
from tasklm.train.loop import Record, Settings, Stage, step_seed, train
from tasklm.train.model import TaskModel, new_encoder, outputs_of
from tasklm.train.optimisers import adamw
from tasklm.train.schedules import WarmupLinear

POINTS = 200  # points of a learning curve


@dataclass
class Ingredients:
    """What both stages are made from."""

    encoder: str
    shape: Shape
    task: Task
    vocabulary: Vocabulary
    train: EncodedExamples
    dev: EncodedExamples
    external: Shards | None  # None: task data only
    length: int
    machine: Machine


@dataclass(frozen=True)
class Stage1Plan:
    """The numbers that stage 1 keeps through every interruption."""

    steps: int
    rho1: int
    batch: int
    seconds_allowed: float | None


def joint_stage(parts: Ingredients, settings: Train, rho1: int, batch: int) -> JointStage:
    """Returns stage 1 with freshly drawn weights."""
    torch.manual_seed(step_seed(settings.seed, 0))
    encoder = new_encoder(parts.encoder, dataclasses.replace(parts.shape, dropout=settings.dropout))
    objective = OBJECTIVES.get(settings.objective)(parts.shape, parts.vocabulary, settings.mask_rate)
    head = parts.task.head(parts.shape.width, settings.dropout)
    module = JointModel(encoder, objective, head).to(parts.machine.device)
    internal = ExampleStream(parts.train, batch, settings.seed)
    external = None
    if parts.external is not None and rho1:
        external = PackedStream(parts.external, parts.vocabulary, parts.length, batch, settings.seed)
    return JointStage(module, parts.task, internal, external, rho1, settings.rho2, settings.accumulate, settings.seed, parts.machine)


def run_stage1(folder: Path, parts: Ingredients, settings: Train, plan: Stage1Plan, tracker: Tracker) -> None:
    """Trains jointly; leaves model.safetensors (all of it), curve.json and summary.json in the folder."""
    stage = joint_stage(parts, settings, plan.rho1, plan.batch)
    peak = settings.learning_rate or stage1_rate(parts.shape.width)
    optimiser = adamw(stage.module, peak, settings.weight_decay)
    how = Settings(peak, settings.clip, settings.seed, settings.checkpoint_seconds, plan.seconds_allowed)
    schedule = WarmupLinear(plan.steps, settings.warmup)
    summary = _follow("stage 1", stage, optimiser, schedule, how, folder, parts, tracker)
    save_weights(folder / "model.safetensors", stage.module.state_dict())
    write_json(folder / "summary.json", {**summary, "rho1": stage.rho1, "batch": plan.batch, "learning_rate": peak})
    Checkpoints(folder).clear()


def finetune_stage(parts: Ingredients, settings: Finetune, seed: int, metric: str, best: Path | None) -> FinetuneStage:
    """Returns stage 2 with freshly drawn weights."""
    torch.manual_seed(step_seed(seed, 0))
    encoder = new_encoder(parts.encoder, dataclasses.replace(parts.shape, dropout=settings.dropout))
    model = TaskModel(encoder, parts.task.head(parts.shape.width, settings.dropout)).to(parts.machine.device)
    assert parts.dev.targets is not None
    gold = parts.dev.targets.numpy()

    def evaluate() -> float:
        return parts.task.score(metric, gold, parts.task.decode(outputs_of(model, parts.dev, parts.machine)))

    return FinetuneStage(model, parts.task, ExampleStream(parts.train, settings.batch, seed), evaluate, best, parts.machine)


def run_stage2(
    folder: Path,
    parts: Ingredients,
    settings: Finetune,
    epochs: int,
    seed: int,
    stage1: Path,
    metric: str,
    checkpoint_seconds: float,
    tracker: Tracker,
) -> None:
    """Fine-tunes with one seed; leaves best.safetensors, curve.json and summary.json (with the dev score)."""
    seed_of_draws = 1000 + seed  # apart from the seeds of stage 1
    stage = finetune_stage(parts, settings, seed_of_draws, metric, folder / "best.safetensors")
    weights = load_weights(stage1 / "model.safetensors")
    prefix = "encoder."
    stage.module.encoder.load_state_dict({name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)})
    peak = settings.learning_rate or stage2_rate(parts.shape.width)
    optimiser = adamw(stage.module, peak, settings.weight_decay)
    how = Settings(peak, settings.clip, seed_of_draws, checkpoint_seconds)
    schedule = WarmupLinear(epochs * len(stage.stream), settings.warmup)
    summary = _follow(f"stage 2, seed {seed}", stage, optimiser, schedule, how, folder, parts, tracker)
    best = {"dev": stage.best_score, "best_epoch": stage.best_step // len(stage.stream), "epochs": epochs, "learning_rate": peak}
    write_json(folder / "summary.json", {**summary, **best, "metric": metric})
    Checkpoints(folder).clear()


def _follow(
    title: str,
    stage: Stage,
    optimiser: torch.optim.Optimizer,
    schedule: WarmupLinear,
    how: Settings,
    folder: Path,
    parts: Ingredients,
    tracker: Tracker,
) -> dict[str, Any]:
    """Runs the loop to its end with a progress bar and a learning curve; returns totals."""
    curve = Curve(folder / "curve.json")
    record: Record | None = None
    asked = schedule.steps
    with tracker.progress(title, schedule.steps) as bar:
        for record in train(stage, optimiser, schedule, how, Checkpoints(folder), parts.machine):
            if point := curve.take(record):
                rate = record.tokens / max(record.seconds, 1e-9)
                tracker.event("step", stage=title, tokens_per_second=round(rate), **point)
                losses = "  ".join(f"{name} {value:.3f}" for name, value in point.items() if name not in ("step", "rate"))
                bar.total(record.steps)
                bar.at(record.step, f"{losses}  {rate / 1000:.1f}k tokens/s")
    if record is None:  # no step was asked for: the last one is always done again after an interruption
        return {"steps": 0, "tokens": 0, "flops": 0.0, "seconds": 0.0, "steps_planned": asked}
    return {
        "steps": record.step,
        "tokens": record.tokens,
        "flops": record.flops,
        "seconds": round(record.seconds, 3),
        "steps_planned": asked,
    }


class Curve:
    """At most about POINTS averaged points of the losses, and every dev score."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: list[dict[str, float]] = read_json(path) if path.exists() else []
        self._sums: dict[str, list[Any]] = {}

    def take(self, record: Record) -> dict[str, float] | None:
        """Returns a new point when one is due."""
        for name, loss in record.losses.items():
            self._sums.setdefault(name, []).append(loss)
        due = record.step % max(1, record.steps // POINTS) == 0 or record.step == record.steps
        if not due and not record.scores:
            return None
        means = {name: round(float(torch.stack(values).mean()), 5) for name, values in self._sums.items()}
        point = {"step": record.step, "rate": record.learning_rate, **means, **record.scores}
        self._sums = {}
        self.points = [old for old in self.points if old["step"] < record.step] + [point]
        write_json(self.path, self.points)
        return point
