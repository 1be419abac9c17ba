"""The two stages as artefacts: each fills a folder, can be cut off at any moment, and continues."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tasklm.budget.memory import describe, micro_batch_for, training_bytes
from tasklm.budget.rules import stage1_rate, stage2_batch, stage2_rate
from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import SHALLOW
from tasklm.models.language_model import describe_language_model
from tasklm.models.task_model import TaskModel, cost_of, encoded_with, kept_of, new_encoder
from tasklm.models.weights import load_weights, save_weights
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.run_folder import Seed
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import read_json, write_json, write_record
from tasklm.tasks.base import Task, score
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.examples import Example
from tasklm.tasks.heads.layers import OutHead
from tasklm.tokens.batches import PackedStream
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import Tracker
from tasklm.train.checkpoints import Checkpoints
from tasklm.train.init.first_weights import Counted, beginning_of, count, put_counts
from tasklm.train.init.neighbours import look_at_neighbours
from tasklm.train.learning_curves import Curve, Headline, Speed
from tasklm.train.loop import Loop, Record, Settings, Stage, step_seed
from tasklm.train.optim.averages import WeightAverage
from tasklm.train.optim.optimizers import Rule, make_optimiser
from tasklm.train.optim.schedules import Schedule
from tasklm.train.shares import best_share
from tasklm.train.showing import shown_rows
from tasklm.train.stage1 import JointModel, JointStage
from tasklm.train.stage2 import FinetuneStage, Judgement
from tasklm.train.start import starting_weights
from tasklm.train.timing import matmul_ceiling

BEST = "best.safetensors"  # the weights of stage 2 that are best on dev
# a GPU waits now and then for the launches of smaller steps: these are recorded and replayed then
GRAPH_FLOPS = 5e13


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
    wide: Wide | None = None  # of stage 2

    def encoded(self, examples: Sequence[Example]) -> EncodedExamples:
        """Examples as stage 2 reads them."""
        return encoded_with(self.wide, self.task, examples, self.vocabulary, self.length)

    @functools.cached_property
    def counted(self) -> Counted:
        """What counts of the text say about its tokens; counted once, by planning where that comes
        first.
        """
        return count(self.train, self.external, self.vocabulary.specials, self.shape)


@dataclass(frozen=True)
class Stage1Plan:
    """The numbers that stage 1 keeps through every interruption."""

    steps: int
    rho1: int
    batch: int
    seconds_allowed: float | None


@dataclass(frozen=True)
class Stage2Plan:
    """The numbers of a fine-tuning."""

    epochs: int  # at most
    metric: str
    checkpoint_seconds: float
    seconds_allowed: float | None


def joint_stage(parts: Ingredients, settings: Train, rho1: int, batch: int) -> JointStage:
    """Returns stage 1 with freshly drawn weights."""
    accumulate = accumulation(
        parts, settings, batch
    )  # before the weights take memory: the prediction has them in
    torch.manual_seed(step_seed(settings.seed, 0))
    shape = dataclasses.replace(parts.shape, dropout=settings.dropout)
    encoder = new_encoder(parts.encoder, shape)
    objective = OBJECTIVES.get(settings.objective)(parts.encoder, shape, parts.vocabulary, settings)
    head = parts.task.head(parts.shape.width, settings.dropout, encoder.normed_heads)
    module = JointModel(encoder, objective, head, parts.task).to(parts.machine.device)
    internal = ExampleStream(
        parts.train, batch, settings.seed, one_shape=parts.machine.compiles, packs=parts.task.packs
    )
    external = None
    if parts.external is not None and rho1:
        external = PackedStream(
            parts.external, parts.vocabulary, parts.length, batch, settings.seed
        )
    cost = cost_of(parts.encoder, parts.shape)
    graphs = accumulate == 1 and cost.training(batch * parts.length, 0, parts.length) < GRAPH_FLOPS
    return JointStage(
        module,
        internal,
        external,
        rho1,
        settings.rho2,
        settings.seed,
        parts.machine,
        cost,
        accumulate,
        graphs,
    )


def accumulation(parts: Ingredients, settings: Train | Finetune, batch: int) -> int:
    """Returns into how many micro-batches each process cuts its share: as the recipe says, or as
    memory asks for.
    """
    asked = settings.accumulate if isinstance(settings, Train) else None
    free = parts.machine.free_bytes()
    if asked is not None or free is None:
        return asked or 1
    cost, machine, length = cost_of(parts.encoder, parts.shape), parts.machine, parts.length

    def bytes_of(rows: int) -> float:
        """An internal batch of stage 1 runs the encoder on the task, and on the same text as the
        objective shows it.
        """
        how = {"bf16": machine.bf16, "compiled": machine.compiles, "dropout": settings.dropout > 0}
        read = rows * parts.train.most_places
        memory = training_bytes(
            cost, rows * length, 0, length, wanted=read, optimiser=settings.optimiser, **how
        )
        if isinstance(settings, Finetune):
            return memory.total
        of_text: float = (
            OBJECTIVES.get(settings.objective)
            .memory(cost, settings, rows * length, length, **how)
            .total
        )
        return of_text + memory.activations

    return micro_batch_for(-(-batch // machine.ranks.count), bytes_of, free)


def begin(module: Any, parts: Ingredients, settings: Train) -> str:
    """Puts the weights that stage 1 begins with into a freshly drawn joint model; returns what they
    are, for a person.
    """
    if settings.start:
        return starting_weights(Path(settings.start)).put_into(module, settings.objective)
    how, said = beginning_of(settings, parts.encoder, parts.shape), []
    if how.counts:
        put_counts(module.encoder, module.objective, parts.counted)
        said.append(str(parts.counted))
    if how.neighbours:
        look_at_neighbours(
            module.encoder, torch.Generator().manual_seed(step_seed(settings.seed, 0))
        )
        said.append("attention begins with neighbouring tokens")
    return f"stage 1 starts from random weights{''.join('; ' + part for part in said)}"


def run_stage1(
    folder: Path,
    parts: Ingredients,
    settings: Train,
    plan: Stage1Plan,
    tracker: Tracker,
    title: str = "stage 1",
) -> None:
    """Trains jointly, from the weights of `begin` or those of `train.start`.

    Leaves model.safetensors (all of it), what describes it, curve.json and summary.json in the
    folder.
    """
    ranks = parts.machine.ranks
    checkpoints = Checkpoints(folder, settings.keep)
    _drop_damaged(checkpoints, parts, tracker)
    with tracker.progress(f"preparing {title}"):
        stage = joint_stage(parts, settings, plan.rho1, plan.batch)
        if ranks.of_first(int(not checkpoints.there)):  # else all weights are those of the last one
            tracker.detail(begin(stage.module, parts, settings))
            ranks.give(
                stage.module.parameters()
            )  # decompositions may differ in signs from machine to machine
        _show(stage, parts, tracker)
    peak = settings.learning_rate or stage1_rate(parts.shape.width, settings.optimiser)
    rule = Rule(settings.optimiser, peak, settings.weight_decay, moments=settings)
    how = Settings(
        settings.clip,
        settings.seed,
        settings.checkpoint_seconds,
        stage.accumulate,
        settings.non_finite,
        plan.seconds_allowed,
    )
    schedule = Schedule(settings.schedule, plan.steps, settings.warmup, settings.decay)
    average = WeightAverage(stage.module, settings.average) if settings.average else None
    summary = _follow(title, stage, rule, schedule, how, average, checkpoints, parts, tracker)
    if not ranks.first:
        return
    if average is None:
        save_weights(folder / "model.safetensors", stage.module.state_dict())
    else:
        with average.applied():
            save_weights(folder / "model.safetensors", stage.module.state_dict())
    describe_language_model(
        folder, parts.encoder, parts.shape, parts.vocabulary, settings, parts.length
    )
    chosen = {"rho1": stage.rho1, "batch": plan.batch, "learning_rate": peak, **stage.state()}
    write_json(folder / "summary.json", {**summary, **chosen})
    checkpoints.clear()


def batch_of(settings: Finetune, parts: Ingredients) -> int:
    """Rows per step of stage 2; an example of several units (the options of a choice) takes as
    many.
    """
    return settings.batch or parts.task.together * stage2_batch(
        len(parts.train), parts.shape.layers <= SHALLOW
    )


def finetune_stage(
    parts: Ingredients, settings: Finetune, seed: int, metric: str, best: Path | None
) -> FinetuneStage:
    """Returns stage 2 with freshly drawn weights."""
    batch = batch_of(settings, parts)
    accumulate = accumulation(parts, settings, batch)
    torch.manual_seed(step_seed(seed, 0))
    encoder = new_encoder(parts.encoder, dataclasses.replace(parts.shape, dropout=settings.dropout))
    head = parts.task.head(parts.shape.width, settings.dropout, encoder.normed_heads)
    if parts.wide is not None:
        silenced(head)  # at first the wide part says all
    model = TaskModel(encoder, head, parts.wide is not None).to(parts.machine.device)
    gold = [example.label for example in parts.dev.examples]

    def judged(kept: Sequence[Any]) -> float:
        task = parts.task.tuned(parts.dev.examples, parts.dev.units, kept)
        answers = task.answers(parts.dev.examples, parts.dev.units, kept)
        return score(task.metric(metric), gold, [task.label_of(answer) for answer in answers])

    def evaluate() -> Judgement:
        """The score on dev, by the thresholds that dev asks for where the kind has such, and the
        best share of the network.
        """
        if model.wide_scale is None:
            return Judgement(judged(kept_of([model], parts.task, parts.dev, parts.machine)))
        outputs = kept_of([model], parts.task, parts.dev, parts.machine, keep=np.copy)
        mixed = best_share(parts.task, parts.dev, outputs, float(model.wide_scale.detach()))
        return Judgement(judged(mixed.kept), mixed.share, mixed.gains)

    stream = ExampleStream(
        parts.train, batch, seed, one_shape=parts.machine.compiles, packs=parts.task.packs
    )
    cost = cost_of(parts.encoder, parts.shape)
    graphs = accumulate == 1 and cost.training(batch * parts.length, 0, parts.length) < GRAPH_FLOPS
    return FinetuneStage(
        model, parts.task, stream, evaluate, best, parts.machine, cost, accumulate, graphs
    )


def silenced(head: nn.Module) -> nn.Module:
    """A head whose outputs are 0 until it is trained."""
    assert isinstance(head, OutHead)
    head.silence()
    return head


def run_stage2(
    folder: Path,
    parts: Ingredients,
    settings: Finetune,
    plan: Stage2Plan,
    seed: Seed,
    tracker: Tracker,
) -> None:
    """Fine-tunes with one seed; leaves best.safetensors, curve.json and summary.json (with the dev
    score).
    """
    # apart from the seeds of stage 1, and from one another
    seed_of_draws = 1000 + 100 * (seed.stage1 - 1) + seed.stage2
    stage = finetune_stage(parts, settings, seed_of_draws, plan.metric, folder / BEST)
    weights = load_weights(seed.training / "model.safetensors")
    prefix = "encoder."
    stage.module.encoder.load_state_dict(
        {name[len(prefix) :]: value for name, value in weights.items() if name.startswith(prefix)}
    )
    peak = settings.learning_rate or stage2_rate(parts.shape.width)
    rule = Rule(settings.optimiser, peak, settings.weight_decay, settings.layer_decay, settings)
    allowed = _allowed(folder, plan, parts)
    how = Settings(
        settings.clip,
        seed_of_draws,
        plan.checkpoint_seconds,
        stage.accumulate,
        seconds_allowed=allowed,
        longer=1.0,
    )
    schedule = Schedule(settings.schedule, plan.epochs * len(stage.stream), settings.warmup)
    average = WeightAverage(stage.module, settings.average) if settings.average else None
    checkpoints = Checkpoints(folder, beside=(BEST,))
    _drop_damaged(checkpoints, parts, tracker)
    title = (
        f"stage 2, seed {seed.stage2}"
        if seed.stage1 == 1
        else f"stage 2, training {seed.stage1}, seed {seed.stage2}"
    )
    if parts.wide is not None and not checkpoints.there:
        stage.judge(0)  # the wide part alone
    summary = _follow(title, stage, rule, schedule, how, average, checkpoints, parts, tracker)
    if summary["steps"] % len(stage.stream):  # time ended it within an epoch
        with nullcontext() if average is None else average.applied():
            stage.judge(summary["steps"])
    if not parts.machine.ranks.first:
        return
    epoch = len(stage.stream)
    best = {
        "dev": stage.best_score,
        "best_epoch": -(-stage.best_step // epoch),
        "share": stage.best_share,
        "metric": plan.metric,
    }
    chosen = {
        "epochs": -(-summary["steps"] // epoch),
        "learning_rate": peak,
        "batch": batch_of(settings, parts),
    }
    write_json(folder / "summary.json", {**summary, **best, **chosen})
    checkpoints.clear()


def _allowed(folder: Path, plan: Stage2Plan, parts: Ingredients) -> float | None:
    """The seconds that a fine-tuning was given when it began."""
    record = folder / "plan.json"
    if parts.machine.ranks.first and not record.exists():
        write_record(record, dataclasses.asdict(plan))
    parts.machine.ranks.wait()
    with damage_is_clear(record):
        seconds = read_json(record)["seconds_allowed"]
        return None if seconds is None else float(seconds)


def _drop_damaged(checkpoints: Checkpoints, parts: Ingredients, tracker: Tracker) -> None:
    """Leaves the checkpoints that are whole, before any process reads them."""
    dropped = checkpoints.drop_damaged() if parts.machine.ranks.first else []
    if dropped:
        goes_on = "the one before" if checkpoints.there else "the beginning"
        tracker.say(
            f"{checkpoints.folder}: {', '.join(dropped)} "
            f"is damaged: training goes on from {goes_on}"
        )
    parts.machine.ranks.wait()


def _show(stage: JointStage, parts: Ingredients, tracker: Tracker) -> None:
    """Tells in detail what is trained and what it will see: a row of text, and with its masks."""
    tracker.detail(f"encoder: {describe(stage.cost, parts.length)}")
    before = stage.position()
    whole = (stage.external or stage.internal).next()
    stage.go_to(before)
    for line in shown_rows(
        parts.vocabulary,
        whole,
        stage.module.objective.corrupt(whole, step_seed(1, 1)),  # type: ignore[operator]
    ):
        tracker.detail(line)


def _follow(
    title: str,
    stage: Stage,
    rule: Rule,
    schedule: Schedule,
    how: Settings,
    average: WeightAverage | None,
    checkpoints: Checkpoints,
    parts: Ingredients,
    tracker: Tracker,
) -> dict[str, Any]:
    """Runs the loop to its end with a progress bar and a learning curve; returns totals."""
    machine = parts.machine
    curve = Curve(checkpoints.folder / "curve.json" if machine.ranks.first else None, rule.rate)
    record: Record | None = None
    planned, headline = schedule.steps, Headline()
    with tracker.progress(title, schedule.steps) as bar:
        bar.note = "compiling" if machine.compiles else ""
        speed = Speed(machine, matmul_ceiling(machine))
        loop = Loop(
            stage,
            make_optimiser(stage.module, rule),
            schedule,
            how,
            checkpoints,
            machine,
            average,
            curve,
        )
        for record in loop.run():
            for message in record.messages:
                tracker.say(f"{title}: {message}")
            if point := curve.take(record):
                tracker.event("step", stage=title, **speed.since_last(record), **point)
                bar.total = record.steps
                bar.at(record.step, headline.text(point))
            else:
                bar.at(record.step)
    if (
        record is None
    ):  # no step was asked for: the last one is always done again after an interruption
        curve.write()
        return {"steps": 0, "tokens": 0, "flops": 0.0, "seconds": 0.0, "steps_planned": planned}
    return {
        "steps": record.step,
        "tokens": record.tokens,
        "flops": record.flops,
        "seconds": round(record.seconds, 3),
        "steps_planned": planned,
        "skipped_steps": loop.at.skipped,
        "micro_batches": loop.accumulate,
    }
