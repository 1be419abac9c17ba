"""The two stages as artefacts: each fills a folder, can be interrupted at any moment, and
continues.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tasklm.budget.memory import describe
from tasklm.budget.rules import stage1_rate, stage2_rate, writing_rate
from tasklm.models.language_model import describe_language_model, under
from tasklm.models.weights import load_weights, save_weights
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.run_folder import CURVE, SUMMARY, Seed
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import read_json, write_json, write_record
from tasklm.tasks.several import members_of, turns_of
from tasklm.tasks.writing import writes
from tasklm.tracking import Tracker
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.context import TrainingContext
from tasklm.train.learning_curves import Curve, Headline, Speed
from tasklm.train.loop import Loop, Settings
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.reading import save_reading
from tasklm.train.showing import shown_rows
from tasklm.train.stage1 import JointStage
from tasklm.train.stage2 import FinetuneStage
from tasklm.train.stages import (
    SEEDS_OF_A_TRAINING,
    batch_of,
    begin,
    finetune_stage,
    held_out_text,
    joint_stage,
)
from tasklm.train.steps import Record, step_seed
from tasklm.train.timing import matmul_ceiling

BEST = "best.safetensors"  # the weights of stage 2 that are best on dev
WRITING_EPOCHS = 40  # at most, of a decoder within a budget in minutes


@dataclass(frozen=True)
class Stage1Plan:
    """The settings that stage 1 keeps across interruptions."""

    steps: int
    rho1: int
    batch: int
    seconds_allowed: float | None


@dataclass(frozen=True)
class Stage2Plan:
    """The settings of a fine-tuning."""

    epochs: int  # at most
    metric: str
    checkpoint_seconds: float
    seconds_allowed: float | None


def run_stage1(
    folder: Path,
    context: TrainingContext,
    settings: Train,
    plan: Stage1Plan,
    tracker: Tracker,
    title: str = "stage 1",
) -> None:
    """Trains jointly, from the weights of `begin` or those of `train.start`.

    Leaves model.safetensors (all of it), what describes it, curve.json and summary.json in the
    folder.
    """
    ranks = context.machine.ranks
    checkpoints = Checkpoints(folder, settings.keep)
    _drop_damaged(checkpoints, context, tracker)
    with tracker.progress(f"preparing {title}"):
        stage = _begun(context, settings, plan, checkpoints, tracker)
    peak = settings.learning_rate or stage1_rate(context.shape.width, settings.optimiser)
    cautious = settings.decay_cautious
    rule = Rule(
        settings.optimiser, peak, settings.weight_decay, moments=settings, cautious=cautious
    )
    loop_settings = Settings(
        clip=settings.clip,
        seed=settings.seed,
        checkpoint_seconds=settings.checkpoint_seconds,
        accumulate=stage.accumulate,
        non_finite=settings.non_finite,
        seconds_allowed=plan.seconds_allowed,
    )
    average = _weight_average(stage.module, settings)

    def loop() -> Loop:
        return Loop(
            stage=stage,
            optimiser=make_optimiser(stage.module, rule),
            schedule=_stage1_schedule(settings, plan.steps),
            settings=loop_settings,
            checkpoints=checkpoints,
            machine=context.machine,
            average=average,
        )

    summary = follow(title, plan.steps, loop, checkpoints.folder, peak, tracker)
    if stage.held_out is not None and plan.steps:
        with _averaged(average):
            summary["held_out"] = stage.held_out.summary()
    if not ranks.first:
        return
    _curve_without_steps(checkpoints.folder, summary)
    save_reading(folder, stage, context, settings)
    with _averaged(average):
        save_weights(folder / "model.safetensors", stage.module.state_dict())
    describe_language_model(
        folder, context.encoder, context.shape, context.vocabulary, settings, context.length
    )
    chosen = {"rho1": stage.rho1, "batch": plan.batch, "learning_rate": peak, **stage.state()}
    write_json(folder / SUMMARY, {**summary, **chosen})
    checkpoints.clear()


def _stage1_schedule(settings: Train, steps: int) -> Schedule:
    if settings.anneal:
        return Schedule("constant", steps, settings.warmup, settings.anneal)
    return Schedule(settings.schedule, steps, settings.warmup, settings.decay)


def _begun(
    context: TrainingContext,
    settings: Train,
    plan: Stage1Plan,
    checkpoints: Checkpoints,
    tracker: Tracker,
) -> JointStage:
    """Stage 1 with its first weights, unless all of them come from the last checkpoint."""
    ranks = context.machine.ranks
    stage = joint_stage(context, settings, plan.rho1, plan.batch)
    stage.planned = plan.steps
    stage.held_out = held_out_text(context, stage, plan.steps, plan.batch)
    if ranks.of_first(int(not checkpoints.there)):
        tracker.detail(begin(stage.module, context, settings))
        # decompositions may differ in signs from machine to machine
        ranks.give(stage.module.parameters())
    _show(stage, context, tracker)
    return stage


def run_stage2(
    folder: Path,
    context: TrainingContext,
    settings: Finetune,
    plan: Stage2Plan,
    seed: Seed,
    tracker: Tracker,
) -> None:
    """Fine-tunes with one seed; leaves best.safetensors, curve.json and summary.json."""
    # different from the seeds of stage 1 and from each other
    seed_of_draws = 1000 + SEEDS_OF_A_TRAINING * (seed.stage1 - 1) + seed.stage2
    stage = finetune_stage(
        context, settings, seed_of_draws, plan.metric, folder / BEST, plan.epochs
    )
    context.losses = stage.go_on_with(context.losses)
    weights = load_weights(seed.training / "model.safetensors")
    stage.model.encoder.load_state_dict(under("encoder.", weights))
    peak = settings.learning_rate or _usual_rate(context, settings)
    rule = Rule(settings.optimiser, peak, settings.weight_decay, settings.layer_decay, settings)
    loop_settings = Settings(
        clip=settings.clip,
        seed=seed_of_draws,
        checkpoint_seconds=plan.checkpoint_seconds,
        accumulate=stage.accumulate,
        seconds_allowed=_allowed(folder, plan, context),
        longer=_times_longer(context, plan),
    )
    steps = stage.steps_of(plan.epochs)
    average = _weight_average(stage.module, settings)
    checkpoints = Checkpoints(folder, beside=(BEST,))
    _drop_damaged(checkpoints, context, tracker)
    if context.wide is None and not plan.epochs:
        stage.model.head.load_state_dict(under("head.", weights))
    if not checkpoints.there and _is_model_before_training(context, plan):
        stage.judge(0)

    def loop() -> Loop:
        return Loop(
            stage=stage,
            optimiser=make_optimiser(stage.module, rule),
            schedule=Schedule(settings.schedule, steps, settings.warmup),
            settings=loop_settings,
            checkpoints=checkpoints,
            machine=context.machine,
            average=average,
        )

    summary = follow(_title_of(seed), steps, loop, checkpoints.folder, peak, tracker)
    if not stage.is_scored(summary["steps"], summary["steps"]):  # dev was not scored at the end
        with _averaged(average):
            stage.judge(summary["steps"])
    if not context.machine.ranks.first:
        return
    _curve_without_steps(checkpoints.folder, summary)
    chosen = {"learning_rate": peak, "batch": batch_of(settings, context)}
    write_json(folder / SUMMARY, {**summary, **_best_of(stage, plan, summary), **chosen})
    checkpoints.clear()


def _usual_rate(context: TrainingContext, settings: Finetune) -> float:
    """The peak learning rate of stage 2 where the recipe gives none."""
    if writes(context.task):
        return writing_rate(context.shape.width, settings.optimiser)
    return stage2_rate(context.shape.width, settings.optimiser, context.encoder == "bilstm")


def _is_model_before_training(context: TrainingContext, plan: Stage2Plan) -> bool:
    """Whether there is a model to score before the first step: the wide part alone, or where no
    step follows, that of stage 1.
    """
    if context.wide is None:
        return not plan.epochs
    return not turns_of(context.task)


def _times_longer(context: TrainingContext, plan: Stage2Plan) -> float:
    """How many times the planned steps a fine-tuning may take where time is left: a decoder learns
    for many epochs, and its first steps, by which it was planned, are slow.
    """
    if not writes(context.task):
        return 1.0
    return max(1.0, WRITING_EPOCHS / max(1, plan.epochs))


def _title_of(seed: Seed) -> str:
    if seed.stage1 == 1:
        return f"stage 2, seed {seed.stage2}"
    return f"stage 2, training {seed.stage1}, seed {seed.stage2}"


def _best_of(stage: FinetuneStage, plan: Stage2Plan, summary: dict[str, Any]) -> dict[str, Any]:
    """The part of a fine-tuning's summary about its best weights and its epochs."""
    return {
        "dev": stage.best_score,
        "best_epoch": stage.epochs_of(stage.best_step),
        "share": _shares(stage),
        "metric": plan.metric,
        "epochs": stage.epochs_of(summary["steps"]),
    }


def _shares(stage: FinetuneStage) -> float | dict[str, float]:
    """The share of the network beside the wide part; of several tasks, by their names."""
    names = [member.name for member in members_of(stage.losses.task)]
    if not names:
        return stage.best_shares[0]
    return dict(zip(names, stage.best_shares, strict=True))


def _weight_average(module: nn.Module, settings: Train | Finetune) -> WeightAverage | None:
    if not settings.average:
        return None
    return WeightAverage(module, settings.average)


def _averaged(average: WeightAverage | None) -> AbstractContextManager[None]:
    """The context in which weights are their averages, where these are taken."""
    if average is None:
        return nullcontext()
    return average.applied()


def _allowed(folder: Path, plan: Stage2Plan, context: TrainingContext) -> float | None:
    """The seconds that a fine-tuning was given when it began."""
    record = folder / "plan.json"
    if context.machine.ranks.first and not record.exists():
        write_record(record, dataclasses.asdict(plan))
    context.machine.ranks.wait()
    with damage_is_clear(record):
        seconds = read_json(record)["seconds_allowed"]
        return None if seconds is None else float(seconds)


def _drop_damaged(checkpoints: Checkpoints, context: TrainingContext, tracker: Tracker) -> None:
    """Removes damaged checkpoints before any process reads them."""
    if context.machine.ranks.first and (dropped := checkpoints.drop_damaged()):
        goes_on = "the previous one" if checkpoints.there else "the start"
        names = ", ".join(dropped)
        tracker.say(f"{checkpoints.folder}: {names} is damaged; training continues from {goes_on}")
    context.machine.ranks.wait()


def _show(stage: JointStage, context: TrainingContext, tracker: Tracker) -> None:
    """Logs what is trained and one row of its input, plain and with its masks."""
    tracker.detail(f"encoder: {describe(stage.cost, context.length)}")
    before = stage.position()
    whole = (stage.external or stage.internal).next()
    stage.go_to(before)
    corrupted = stage.objective.corrupt(whole, step_seed(1, 1))
    for line in shown_rows(context.vocabulary, whole, corrupted):
        tracker.detail(line)


def _curve_without_steps(folder: Path, summary: dict[str, Any]) -> None:
    """Writes the empty learning curve of a stage that took no step."""
    if not summary["steps"]:
        write_json(folder / CURVE, [], synced=False)


def follow(
    title: str,
    planned: int,
    loop_of: Callable[[], Loop],
    folder: Path,
    peak_rate: float,
    tracker: Tracker,
) -> dict[str, Any]:
    """Runs a loop to its end with a progress bar and a learning curve; returns totals.

    It is made only if steps are planned: the first optimiser of a process takes seconds.
    """
    if not planned:
        return {"steps": 0, "tokens": 0, "flops": 0.0, "seconds": 0.0, "steps_planned": 0}
    loop = loop_of()
    speed = Speed(loop.machine, matmul_ceiling(loop.machine))
    record = followed(title, loop, Curve(_curve_of(folder, loop), peak_rate), tracker, speed)
    return {
        "steps": record.step,
        "tokens": record.tokens,
        "flops": record.flops,
        "seconds": round(record.seconds, 3),
        "steps_planned": planned,
        "skipped_steps": loop.at.skipped,
        "micro_batches": loop.accumulate,
    }


def _curve_of(folder: Path, loop: Loop) -> Path | None:
    """Where a learning curve is written: by the first process."""
    return folder / CURVE if loop.machine.ranks.first else None


def followed(
    title: str, loop: Loop, curve: Curve, tracker: Tracker, speed: Speed | None = None
) -> Record:
    """Runs a loop to its end with a progress bar and a learning curve; its last step. With `speed`,
    tokens per second are logged too.
    """
    loop.curve = curve
    record: Record | None = None
    headline = Headline()
    with tracker.progress(title, loop.schedule.steps) as bar:
        bar.note = "compiling" if loop.machine.compiles else ""
        for record in loop.run():
            for message in record.messages:
                tracker.say(f"{title}: {message}")
            if point := curve.take(record):
                pace = {} if speed is None else speed.since_last(record)
                tracker.event("step", stage=title, **pace, **point)
                bar.total = record.steps
                bar.at(record.step, headline.text(point))
            else:
                bar.at(record.step)
    curve.write()
    assert record is not None  # after an interruption, the last step is always repeated
    return record
