"""The plan of a run, decided once from its budget and the measured speed of this machine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tasklm.budget import rules
from tasklm.budget.reading import reading_minutes
from tasklm.corpus.words import count_words
from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import SIZES, encoder_of, shape_of
from tasklm.models.task_model import cost_of
from tasklm.pipeline.context import CorpusData, Run, TaskData, sections
from tasklm.pipeline.summaries import counted
from tasklm.recipe.model_sections import Finetune, Train
from tasklm.recipe.schema import Recipe
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import train_vocabulary
from tasklm.train.context import TrainingContext
from tasklm.train.init.first_weights import beginning_of, wished
from tasklm.train.optim.optimizers import Rule
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan
from tasklm.train.stages import batch_of, finetune_stage, joint_stage
from tasklm.train.start import starting_weights, title_of
from tasklm.train.timing import matmul_ceiling, seconds_per_step

INTERNAL_TRIED, EXTERNAL_TRIED = 256, 8  # batches whose FLOPs are counted to plan by FLOPs
Measured = TypeVar("Measured")
SPEED_TRIES, TRY_SECONDS, SPEED_ROWS = 3, 0.5, 16  # for each size
SHORT = 300.0  # seconds of a budget for which one try is enough
# for the pace of a step of either stage, once the size is known
STAGE1_SECONDS, STAGE2_SECONDS = 3.0, 2.0
MEASURING_SHARE = 0.01  # of a budget in minutes, for each
BATCH = 64  # sequences per step if neither the recipe nor a budget sets it
USUAL_TYPES = 8000  # of a vocabulary, for planning before there is one
MEASURED_RHO1 = 4  # external batches per internal one, at most, where a step is measured
MEASURING = "measuring the speed of this machine"  # shown in the meantime


def make_plan(run: Run, task: TaskData, corpus: CorpusData | None) -> rules.Plan:
    """Size, K, passages and batch, decided once per run and kept."""
    recipe = run.recipe
    key = digest([task.key, *sections(recipe, "select", "tokens", "model", "train", "budget")])

    def decide(folder: Path) -> None:
        with run.tracker.progress(MEASURING):
            write_json(folder / "plan.json", _plan(run, task, corpus).to_dict())

    path = run.artefacts.build("plan", key, decide) / "plan.json"
    with damage_is_clear(path):
        return rules.Plan.from_dict(read_json(path))


def _plan(run: Run, task: TaskData, corpus: CorpusData | None) -> rules.Plan:
    recipe, sizes = run.recipe, _Sizes(run, task)
    size, tokens, why = sizes.chosen()
    reasons = [
        _shape_reason(recipe, size, why),
        f"stage 1 will read about {counted(round(float(f'{tokens:.2g}')))} tokens",
    ]
    passages = recipe.select.passages
    if passages is None and corpus is not None:
        passages, reason = _passages(recipe, corpus, tokens)
        reasons.append(reason)
    return rules.Plan(
        size=size,
        k=recipe.select.k or rules.default_k(len(task.splits.train)),
        passages=passages,
        batch=recipe.train.batch or sizes.usual_batch(tokens),
        seconds=sizes.seconds,
        flops=recipe.budget.flops,
        reasons=tuple(reasons),
    )


class _Sizes:
    """How much text encoders of each size can read within the budget of a run."""

    def __init__(self, run: Run, task: TaskData) -> None:
        self.run, self.task, self.recipe = run, task, run.recipe
        self.seconds = _budget_seconds(run.recipe)
        self.stage1_seconds: float | None = None
        if self.seconds is not None:
            left = max(1.0, time_left(run, self.seconds))
            self.stage1_seconds = rules.STAGE1_SHARE * left / run.recipe.train.seeds

    def shaped(self, size: str) -> tuple[str, Shape]:
        """The encoder of a size, and its shape."""
        model, length = self.recipe.model, self.recipe.tokens.rows
        return encoder_of(model, size), shape_of(model, size, USUAL_TYPES, length)

    def tokens_read(self, size: str) -> float:
        """How many tokens stage 1 reads at a size."""
        steps, length = self.recipe.train.steps, self.recipe.tokens.rows
        if steps is not None:
            return float(steps * (self.recipe.train.batch or BATCH) * length)
        if self.stage1_seconds is None:
            assert self.recipe.budget.flops is not None
            per_token = cost_of(*self.shaped(size)).training(1, 0, length)
            return self.recipe.budget.flops / per_token
        short = self.seconds is not None and self.seconds < SHORT
        tries = 1 if short else SPEED_TRIES
        return self.stage1_seconds * _tokens_per_second(self.run, size, self.task, tries)

    def per_weight(self, size: str) -> int:
        """How many tokens a weight of the layers should see at a size."""
        encoder, shape = self.shaped(size)
        train = self.recipe.train
        counts = train.objective == "mlm" and wished(train, encoder, shape).counts  # as measured
        return rules.tokens_per_parameter(counts)

    def enough(self, size: str) -> float:
        """How many tokens an encoder of a size should read."""
        encoder, shape = self.shaped(size)
        return self.per_weight(size) * cost_of(encoder, shape).hidden_parameters

    def chosen(self) -> tuple[str, float, str]:
        """The size, as given or by the budget; the tokens that it reads; and why this one."""
        size, tokens, why = self.recipe.model.size, 0.0, "as given"
        if size == "auto":
            size, tokens = rules.choose_size(list(SIZES), self.enough, self.tokens_read)
            wanted = f"{self.per_weight(size)} tokens per weight of its layers"
            why = f"the largest that reads {wanted}"
            if tokens < self.enough(size):
                why = f"the smallest, although it reads fewer than {wanted}"
        beginning_of(self.recipe.train, *self.shaped(size))  # refuses impossible settings early
        return size, tokens or self.tokens_read(size), why

    def usual_batch(self, tokens: float) -> int:
        """The sequences per step if the recipe does not set them."""
        if self.recipe.train.steps is not None:
            return BATCH
        return rules.batch_for(tokens, self.recipe.tokens.rows)


def _budget_seconds(recipe: Recipe) -> float | None:
    """The seconds of a run; None if steps or FLOPs are given instead."""
    if recipe.train.steps is not None:
        return None
    if recipe.budget.minutes is not None:
        return recipe.budget.minutes * 60
    return rules.DEFAULT_MINUTES * 60 if recipe.budget.flops is None else None


def _passages(recipe: Recipe, corpus: CorpusData, tokens: float) -> tuple[int, str]:
    """How many passages stage 1 can read, and why."""
    counts = corpus.store.counts
    passages = rules.passages_for(tokens, counts["words"] / max(1, counts["passages"]))
    then = f"read about {rules.EPOCHS_OVER_SELECTION} times"
    if recipe.select.by_influence:
        share = recipe.select.influence_share
        # so that the selected part is read as often as without influence
        passages = round(passages / share)
        then = f"of which influence selects {share:.0%}, {then}"
    return passages, f"at most {passages:,} passages, {then}"


def _shape_reason(recipe: Recipe, size: str, why: str) -> str:
    """Which parts of the encoder's shape were given, and which the size decided."""
    model = recipe.model
    if recipe.train.start:
        return f"layers and width from {title_of(Path(recipe.train.start))}"
    numbers = {"layers": model.layers, "width": model.width}
    given = [f"{name} {value}" for name, value in numbers.items() if value is not None]
    if not given:
        return f"size {size}: {why}"
    layers, width = SIZES[size]
    left = {"layers": f"{layers} layers", "width": f"width {width}"}
    decided = [words for name, words in left.items() if numbers[name] is None]
    rest = "".join(f"; {words}: of size {size}, {why}" for words in decided)
    return f"{' and '.join(given)}: as given{rest}"


def few_steps_warning(recipe: Recipe, steps: int, batch: int) -> str | None:
    """Advice if the budget allows too few steps of stage 1 to learn a language; else None."""
    if recipe.train.steps is not None or recipe.train.start or steps >= rules.FEW_STEPS:
        return None
    if not steps:
        return (
            "the budget is too small for stage 1: all of it goes to fine-tuning; raise --minutes "
            "to train on text too"
        )
    by_flops = recipe.budget.minutes is None and recipe.budget.flops is not None
    more = "--flops" if by_flops else "--minutes"
    fewer = "--train.batch" if batch > rules.SMALLEST_BATCH else "--tokens.length"
    return f"stage 1 has few steps ({steps:,}): raise {more} or lower {fewer}"


def _tokens_per_second(run: Run, size: str, task: TaskData, tries: int) -> float:
    """The training speed at a size on made-up text: the best of a few tries, as the first are slow.

    If training is compiled, which takes longer than the measurement, it is estimated from the speed
    of a matrix product: at BERT-base's width training reaches more than half of that, and narrower
    models a share that falls with the width.
    """
    recipe, length = run.recipe, run.recipe.tokens.rows
    encoder = encoder_of(recipe.model, size)
    shape = shape_of(recipe.model, size, USUAL_TYPES, length)
    if run.machine.compiles:
        share = rules.CEILING_SHARE * min(1.0, shape.width / rules.CEILING_WIDTH)
        speed = share * matmul_ceiling(run.machine) * run.machine.ranks.total
        return speed / cost_of(encoder, shape).training(100, 15, length, wanted=15) * 100
    draw = np.random.default_rng(0)
    words = [" ".join(f"w{n}" for n in draw.zipf(1.3, length) % 2000) for _ in range(64)]
    made_up = dataclasses.replace(recipe.tokens, kind="wordpiece")
    vocabulary = train_vocabulary([words], made_up, 4000)
    encoded = vocabulary.encode(words * 8)
    tokens = np.concatenate([np.array(row) for row in encoded])
    shards = Shards(tokens, np.cumsum([0, *map(len, encoded)]))
    examples = EncodedExamples.of(task.task, task.splits.train[:1], vocabulary, length)
    parts = TrainingContext(
        encoder,
        shape,
        task.task,
        vocabulary,
        examples,
        examples,
        shards,
        length,
        run.machine,
    )

    def tried() -> float:
        stage = joint_stage(parts, recipe.train, rho1=1_000_000, batch=SPEED_ROWS)
        return seconds_per_step(stage, _rule(recipe.train), run.machine, TRY_SECONDS, least=2)

    return SPEED_ROWS * length / min(tried() for _ in range(tries))


def _rule(of_stage: Train | Finetune) -> Rule:
    """The optimiser of a stage, whose own time is part of a step's."""
    return Rule(of_stage.optimiser, 1e-5, 0.0)


def settled(recipe: Recipe, task: TaskData, machine: Machine) -> Recipe:
    """The recipe with the row length that the texts need, and the casing that the kind needs."""
    tokens = recipe.tokens
    most = rules.LONGEST_ON_CPU if machine.device.type == "cpu" else rules.LONGEST_ON_GPU
    if recipe.train.start and not (start := starting_weights(Path(recipe.train.start))).rotary:
        most = min(most, start.shape.positions)
    words = (count_words(text) for text in task.texts("train"))
    length = tokens.length or rules.row_length(list(words), most)
    lowercase = tokens.lowercase
    if lowercase is None:
        lowercase = not task.task.cased
    return recipe.changed(tokens={"length": length, "lowercase": lowercase})


def too_much_text(recipe: Recipe) -> str | None:
    """Advice about a corpus that would take too many of the minutes to read; else None."""
    if recipe.budget.minutes is None or not recipe.data.corpus or recipe.select.engine != "local":
        return None
    minutes = reading_minutes(recipe.data.corpus)
    if minutes <= recipe.budget.minutes:
        return None
    share = f"more than {rules.READING_SHARE:.0%} of the budget"
    return (
        f"the corpus is left out: reading it would take {share}; "
        f"to use it, give --minutes {math.ceil(minutes)}"
    )


def time_left(run: Run, seconds: float) -> float:
    """Seconds of a budget that are left for training: scores and report come after it."""
    return seconds * (1 - rules.END_SHARE) - rules.END_SECONDS - run.seconds()


def stage_plan(run: Run, parts: TrainingContext, plan: rules.Plan, held: int) -> dict[str, Any]:
    """The steps of stage 1, and the seeds and epochs of stage 2, that fit the budget.

    Minutes are shared by all trainings of stage 1 and all their fine-tunings; FLOPs are those of
    one training. `held` examples are predicted at the end.
    """
    recipe, examples = run.recipe, len(parts.train)
    together = parts.task.together  # rows of an example
    finetune_batch = max(1, batch_of(recipe.finetune, parts) // together)
    epochs = recipe.finetune.epochs or rules.epochs_for(examples, finetune_batch)
    per_step = max(1, plan.batch // together)  # examples
    rho1 = recipe.train.rho1
    steps, allowed, ending = recipe.train.steps, None, 0.0
    seeds = recipe.finetune.seeds
    if steps is None and plan.seconds is not None:
        pace = _seconds_per_step(run, parts, plan)
        if beginning_of(recipe.train, parts.encoder, parts.shape).counts:
            # its seconds belong to the budget: counted now, kept for stage 1
            _ = parts.counted
        trainings = recipe.train.seeds
        epoch = trainings * _seconds_per_epoch(run, parts, plan)
        ending = epoch * held / (rules.FORWARD_PASSES * examples)  # of each seed
        left = max(1.0, time_left(run, plan.seconds) - ending)
        seeds, fitting = rules.tunings_for(epochs, epoch, left, seeds)
        epochs = recipe.finetune.epochs or fitting
        allowed = max(0.0, left - epochs * seeds * epoch - (seeds - 1) * ending) / trainings
        steps = int(allowed * run.machine.ranks.total / pace)
        if steps < rules.LEAST_STEPS:
            steps = 0
    elif steps is None:
        assert plan.flops is not None
        internal, external = _flops_per_step(parts, recipe.train, plan.batch)
        steps, rho1 = rules.steps_for_flops(
            plan.flops, internal, external, rho1, per_step, examples
        )
    if rho1 is None:
        rho1 = rules.rho1_for(steps, per_step, examples)
    stage1 = Stage1Plan(steps, rho1, plan.batch, allowed)
    return {
        "stage1": dataclasses.asdict(stage1),
        "epochs": epochs,
        "seeds": seeds or rules.USUAL_SEEDS,
        "ending": ending,
    }


def stage2_seconds(run: Run, plan: rules.Plan, ending: float, seeds_left: int) -> float | None:
    """Seconds that the next fine-tuning may take; None without a limit."""
    if plan.seconds is None or run.recipe.finetune.epochs is not None:
        return None
    return max(1.0, time_left(run, plan.seconds) / seeds_left - ending)


def _seconds_per_step(run: Run, parts: TrainingContext, plan: rules.Plan) -> float:
    """How long a step of stage 1 takes; if it has two halves, the mean of both."""
    rho1 = run.recipe.train.rho1
    rho1 = MEASURED_RHO1 if rho1 is None else min(rho1, MEASURED_RHO1)

    def pace(stage: JointStage) -> float:
        seconds = _of_budget(plan, STAGE1_SECONDS)
        return seconds_per_step(
            stage, _rule(run.recipe.train), run.machine, seconds, least=max(5, stage.rho1 + 1)
        )

    return float(np.mean(_of_each_half(pace, parts, run.recipe.train, rho1, plan.batch)))


def _flops_per_step(parts: TrainingContext, settings: Train, batch: int) -> tuple[float, float]:
    """The mean exact FLOPs of an internal and of an external step; the latter 0 without text.

    Internal batches differ in length, so many are counted; nothing is computed.
    """

    def flops(stage: JointStage) -> tuple[float, float]:
        internal = [stage.prepare(0).flops for _ in range(min(len(stage.internal), INTERNAL_TRIED))]
        external = [0.0]
        if stage.external is not None:
            external = [stage.prepare(1).flops for _ in range(EXTERNAL_TRIED)]
        return float(np.mean(internal)), float(np.mean(external))

    internal, external = np.mean(_of_each_half(flops, parts, settings, 1, batch), axis=0)
    return float(internal), float(external)


def _of_each_half(
    measure: Callable[[JointStage], Measured],
    parts: TrainingContext,
    settings: Train,
    rho1: int,
    batch: int,
) -> list[Measured]:
    """The measurements of stage 1, and of its second half if its objective has two."""
    stage = joint_stage(parts, settings, rho1, batch)
    measures = [measure(stage)]
    if stage.halves:
        del stage  # before the next takes memory
        stage = joint_stage(parts, settings, rho1, batch)
        stage.begin_phase(0, 0)
        measures.append(measure(stage))
    return measures


def _of_budget(plan: rules.Plan, seconds: float) -> float:
    """Seconds of a measurement: fewer for a short budget."""
    return seconds if plan.seconds is None else min(seconds, MEASURING_SHARE * plan.seconds)


def _seconds_per_epoch(run: Run, parts: TrainingContext, plan: rules.Plan) -> float:
    """How long a pass of stage 2 over train and, forward only, over dev takes."""
    stage = finetune_stage(parts, run.recipe.finetune, 0, parts.task.metrics[0], None)
    pace = seconds_per_step(
        stage, _rule(run.recipe.finetune), run.machine, _of_budget(plan, STAGE2_SECONDS)
    )
    dev_passes = len(parts.dev) / (rules.FORWARD_PASSES * len(parts.train))
    return pace * len(stage.stream) * (1 + dev_passes)
