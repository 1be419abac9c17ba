"""What a run decides for itself, once, from its budget and the measured speed of this machine, and
then keeps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tasklm.budget import rules
from tasklm.corpus.sources import find_files
from tasklm.corpus.streams import COMPRESSED
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
from tasklm.train.init.first_weights import beginning_of, wished
from tasklm.train.optim.optimizers import Rule
from tasklm.train.stage1 import JointStage
from tasklm.train.stages import Ingredients, Stage1Plan, batch_of, finetune_stage, joint_stage
from tasklm.train.start import starting_weights, title_of
from tasklm.train.timing import matmul_ceiling, seconds_per_step

INTERNAL_TRIED, EXTERNAL_TRIED = 256, 8  # batches whose FLOPs are counted to plan by FLOPs
Measured = TypeVar("Measured")
SPEED_TRIES, TRY_SECONDS, SPEED_ROWS = 3, 0.5, 16  # for each size
SHORT = 300.0  # seconds of a budget for which one try is enough
STAGE1_SECONDS, STAGE2_SECONDS = (
    3.0,
    2.0,
)  # for the pace of a step of either stage, once the size is known
MEASURING_SHARE = 0.01  # of a budget in minutes, for each
PACKED = (*COMPRESSED, ".parquet")  # endings of compressed files
BATCH = 64  # sequences per step where neither the recipe nor a budget says
MEASURING = "measuring the speed of this machine"  # what is shown meanwhile


def make_plan(run: Run, task: TaskData, corpus: CorpusData | None) -> rules.Plan:
    """Returns size, K, passages and batch, decided once per run and kept."""
    recipe = run.recipe
    key = digest([task.key, *sections(recipe, "select", "tokens", "model", "train", "budget")])

    def decide(folder: Path) -> None:
        with run.tracker.progress(MEASURING):
            write_json(folder / "plan.json", _plan(run, task, corpus).to_dict())

    path = run.artefacts.build("plan", key, decide) / "plan.json"
    with damage_is_clear(path):
        return rules.Plan.from_dict(read_json(path))


def _plan(run: Run, task: TaskData, corpus: CorpusData | None) -> rules.Plan:
    recipe, examples = run.recipe, len(task.splits.train)
    length, steps = recipe.tokens.rows, recipe.train.steps
    minutes = recipe.budget.minutes
    if steps is None and minutes is None and recipe.budget.flops is None:
        minutes = rules.DEFAULT_MINUTES
    seconds = None if minutes is None or steps is not None else minutes * 60
    for_stage1 = (
        None if seconds is None else 0.6 * max(1.0, time_left(run, seconds)) / recipe.train.seeds
    )

    def shaped(size: str) -> tuple[str, Shape]:
        return encoder_of(recipe.model, size), shape_of(recipe.model, size, 8000, length)

    def tokens_read(size: str) -> float:
        if steps is not None:
            return float(steps * (recipe.train.batch or BATCH) * length)
        if for_stage1 is None:
            assert recipe.budget.flops is not None
            return recipe.budget.flops / cost_of(*shaped(size)).training(1, 0, length)
        tries = SPEED_TRIES if seconds is None or seconds >= SHORT else 1
        return for_stage1 * _tokens_per_second(run, size, task, tries)

    def per_weight(size: str) -> int:
        return rules.tokens_per_parameter(wished(recipe.train, *shaped(size)).counts)

    def enough(size: str) -> float:
        return per_weight(size) * cost_of(*shaped(size)).hidden_parameters

    size, tokens = recipe.model.size, 0.0
    why = "as given"
    if size == "auto":
        size, tokens = rules.choose_size(list(SIZES), enough, tokens_read)
        why = f"the largest that reads {per_weight(size)} tokens per weight of its layers"
        if tokens < enough(size):
            fewer = f"fewer than {per_weight(size)} tokens per weight of its layers"
            why = f"the smallest; it reads {fewer}"
    reasons = [_shape_reason(recipe, size, why)]
    beginning_of(recipe.train, *shaped(size))  # refuses early what cannot be
    tokens = tokens or tokens_read(size)
    reasons.append(f"stage 1 will read about {counted(round(float(f'{tokens:.2g}')))} tokens")
    k = recipe.select.k or rules.default_k(examples)
    passages = recipe.select.passages
    if passages is None and corpus is not None:
        counts = corpus.store.counts
        passages = rules.passages_for(tokens, counts["words"] / max(1, counts["passages"]))
        then = f"read about {rules.EPOCHS_OVER_SELECTION} times"
        if recipe.select.by_influence:
            share = recipe.select.influence_share
            passages = round(
                passages / share
            )  # so that what is left of them is read as often as without influence
            then = f"of which influence keeps {share:.0%}, {then}"
        reasons.append(f"at most {passages:,} passages, {then}")
    batch = recipe.train.batch or (BATCH if steps is not None else rules.batch_for(tokens, length))
    return rules.Plan(size, k, passages, batch, seconds, recipe.budget.flops, tuple(reasons))


def _shape_reason(recipe: Recipe, size: str, why: str) -> str:
    """What of the encoder's shape was given, and what the size decided."""
    model = recipe.model
    if recipe.train.start:
        return f"layers and width are those of {title_of(Path(recipe.train.start))}"
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
    """What to do where the budget buys too few steps of stage 1 to learn a language; else None."""
    if recipe.train.steps is not None or recipe.train.start or steps >= rules.FEW_STEPS:
        return None
    if not steps:
        return (
            "the budget is too small for stage 1: "
            "all of it goes to fine-tuning; raise --minutes to read text too"
        )
    more = (
        "--flops"
        if recipe.budget.minutes is None and recipe.budget.flops is not None
        else "--minutes"
    )
    fewer = "--train.batch" if batch > rules.SMALLEST_BATCH else "--tokens.length"
    return f"stage 1 has few steps ({steps:,}): raise {more} or lower {fewer}"


def _tokens_per_second(run: Run, size: str, task: TaskData, tries: int) -> float:
    """The training speed at a size, measured on made-up text: the best of a few short tries, since
    the first ones are slow.

    Where training is compiled, which takes longer than the measurement, it is taken from the speed
    of a matrix product: at BERT-base's width training reaches more than half of that, and narrower
    models a share that falls with the width.
    """
    recipe, length = run.recipe, run.recipe.tokens.rows
    if run.machine.compiles:
        shape = shape_of(recipe.model, size, 8000, length)
        cost = cost_of(encoder_of(recipe.model, size), shape)
        share = rules.CEILING_SHARE * min(1.0, shape.width / rules.CEILING_WIDTH)
        return (
            share
            * matmul_ceiling(run.machine)
            * run.machine.ranks.total
            / cost.training(100, 15, length, wanted=15)
            * 100
        )
    draw = np.random.default_rng(0)
    words = [" ".join(f"w{n}" for n in draw.zipf(1.3, length) % 2000) for _ in range(64)]
    vocabulary = train_vocabulary(
        [words], dataclasses.replace(recipe.tokens, kind="wordpiece"), 4000
    )
    encoded = vocabulary.encode(words * 8)
    shards = Shards(
        np.concatenate([np.array(row) for row in encoded]), np.cumsum([0, *map(len, encoded)])
    )
    shape = shape_of(recipe.model, size, 8000, length)
    examples = EncodedExamples.of(task.task, task.splits.train[:1], vocabulary, length)
    parts = Ingredients(
        encoder_of(recipe.model, size),
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
    """The recipe with rows as long as the texts ask for, and with capitals where the kind asks for
    them.
    """
    tokens = recipe.tokens
    most = rules.LONGEST_ON_CPU if machine.device.type == "cpu" else rules.LONGEST_ON_GPU
    if recipe.train.start and not (start := starting_weights(Path(recipe.train.start))).rotary:
        most = min(most, start.shape.positions)
    length = tokens.length or rules.row_length(
        [count_words(text) for text in task.texts("train")], most
    )
    lowercase = not task.task.cased if tokens.lowercase is None else tokens.lowercase
    return recipe.changed(tokens={"length": length, "lowercase": lowercase})


def too_much_text(recipe: Recipe) -> str | None:
    """What to do about a corpus whose reading would take too many of the minutes given; None where
    it would not.
    """
    if recipe.budget.minutes is None or not recipe.data.corpus or recipe.select.engine != "local":
        return None
    sizes = [
        (path.suffix.lower() in PACKED, path.stat().st_size)
        for path in find_files(recipe.data.corpus)
    ]
    packed = sum(size for is_packed, size in sizes if is_packed)
    minutes = rules.minutes_to_read(sum(size for _, size in sizes) - packed, packed)
    if minutes <= recipe.budget.minutes:
        return None
    share = f"more than {rules.READING_SHARE:.0%} of the budget"
    return (
        f"the corpus is left out: reading it would take "
        f"{share}; to use it, give --minutes {math.ceil(minutes)}"
    )


def time_left(run: Run, seconds: float) -> float:
    """Seconds of a budget that are left for training: scores and report come after it."""
    return seconds * (1 - rules.END_SHARE) - rules.END_SECONDS - run.seconds()


def stage_plan(run: Run, parts: Ingredients, plan: rules.Plan, held: int) -> dict[str, Any]:
    """The steps of stage 1, and the seeds and epochs of stage 2, that fit the budget, from the
    measured speed.

    Minutes are shared by all trainings of stage 1 and all their fine-tunings; FLOPs are those of
    one training. `held` examples are predicted at the end.
    """
    recipe, examples = run.recipe, len(parts.train)
    together = parts.task.together  # rows of an example
    epochs = recipe.finetune.epochs or rules.epochs_for(
        examples, max(1, batch_of(recipe.finetune, parts) // together)
    )
    per_step = max(1, plan.batch // together)  # examples
    rho1 = recipe.train.rho1
    steps, allowed, ending = recipe.train.steps, None, 0.0
    seeds = recipe.finetune.seeds
    if steps is None and plan.seconds is not None:
        pace = _seconds_per_step(run, parts, plan)
        if beginning_of(recipe.train, parts.encoder, parts.shape).counts:
            _ = (
                parts.counted
            )  # its seconds are those of the budget too: counted now, kept for stage 1
        trainings = recipe.train.seeds
        epoch = trainings * _seconds_per_epoch(run, parts, plan)
        ending = (
            epoch * held / (rules.FORWARD_PASSES * examples)
        )  # of each seed; forward alone takes a third
        left = max(1.0, time_left(run, plan.seconds) - ending)
        seeds, fitting = rules.tunings_for(epochs, epoch, left, seeds)
        epochs = recipe.finetune.epochs or fitting
        allowed = max(0.0, left - epochs * seeds * epoch - (seeds - 1) * ending) / trainings
        steps = int(allowed * run.machine.ranks.total / pace)
        steps = steps if steps >= rules.LEAST_STEPS else 0
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
    """Seconds that the next fine-tuning may take; None where no minutes were planned, or its epochs
    were given.
    """
    if plan.seconds is None or run.recipe.finetune.epochs is not None:
        return None
    return max(1.0, time_left(run, plan.seconds) / seeds_left - ending)


def _seconds_per_step(run: Run, parts: Ingredients, plan: rules.Plan) -> float:
    """How long a step of stage 1 takes; of an objective with two halves, the mean of a step of
    either.
    """
    rho1 = 4 if run.recipe.train.rho1 is None else min(run.recipe.train.rho1, 4)

    def pace(stage: JointStage) -> float:
        seconds = _of_budget(plan, STAGE1_SECONDS)
        return seconds_per_step(
            stage, _rule(run.recipe.train), run.machine, seconds, least=max(5, stage.rho1 + 1)
        )

    return float(np.mean(_of_each_half(pace, parts, run.recipe.train, rho1, plan.batch)))


def _flops_per_step(parts: Ingredients, settings: Train, batch: int) -> tuple[float, float]:
    """The mean exact FLOPs of an internal and of an external step; the latter is 0 without selected
    text.

    Internal batches differ in length, so many are looked at; nothing is computed.
    """

    def flops(stage: JointStage) -> tuple[float, float]:
        internal = [stage.prepare(0).flops for _ in range(min(len(stage.internal), INTERNAL_TRIED))]
        external = (
            [stage.prepare(1).flops for _ in range(EXTERNAL_TRIED)]
            if stage.external is not None
            else [0.0]
        )
        return float(np.mean(internal)), float(np.mean(external))

    internal, external = np.mean(_of_each_half(flops, parts, settings, 1, batch), axis=0)
    return float(internal), float(external)


def _of_each_half(
    measure: Callable[[JointStage], Measured],
    parts: Ingredients,
    settings: Train,
    rho1: int,
    batch: int,
) -> list[Measured]:
    """What is measured of stage 1, and once more of its second half where its objective has two."""
    stage = joint_stage(parts, settings, rho1, batch)
    found = [measure(stage)]
    if stage.halves:
        del stage  # before the next takes memory
        stage = joint_stage(parts, settings, rho1, batch)
        stage.begin_phase(0, 0)
        found.append(measure(stage))
    return found


def _of_budget(plan: rules.Plan, seconds: float) -> float:
    """Seconds of a measurement: fewer where a budget is short."""
    return seconds if plan.seconds is None else min(seconds, MEASURING_SHARE * plan.seconds)


def _seconds_per_epoch(run: Run, parts: Ingredients, plan: rules.Plan) -> float:
    """How long a pass of stage 2 over train and, forward only, over dev takes."""
    stage = finetune_stage(parts, run.recipe.finetune, 0, parts.task.metrics[0], None)
    pace = seconds_per_step(
        stage, _rule(run.recipe.finetune), run.machine, _of_budget(plan, STAGE2_SECONDS)
    )
    return (
        pace * len(stage.stream) * (1 + len(parts.dev) / (rules.FORWARD_PASSES * len(parts.train)))
    )
