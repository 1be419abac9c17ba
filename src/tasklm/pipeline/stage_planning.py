"""What a budget buys of both stages: steps, epochs and seeds, from the measured pace of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tasklm.budget import rules
from tasklm.budget.scope import LINEAR, TEXT
from tasklm.console.durations import duration
from tasklm.pipeline.context import Run
from tasklm.pipeline.planning import rule_of
from tasklm.pipeline.scope import is_timed, time_left
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import Recipe
from tasklm.tasks.several import turns_of
from tasklm.tasks.writing import greedy, writes
from tasklm.train.context import TrainingContext
from tasklm.train.init.first_weights import beginning_of
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan
from tasklm.train.stages import finetune_stage, joint_stage, usual_epochs
from tasklm.train.timing import seconds_per_example, seconds_per_step

INTERNAL_TRIED, EXTERNAL_TRIED = 256, 8  # batches whose FLOPs are counted to plan by FLOPs
Measured = TypeVar("Measured")
# for the pace of a step of either stage
STAGE1_SECONDS, STAGE2_SECONDS = 3.0, 2.0
MEASURING_SHARE = 0.01  # of a budget in minutes, for each
MOST_ENDING = 0.5  # of a budget, for predictions: beyond, too little is left for training
MEASURED_RHO1 = 4  # external batches per internal one, at most, where a step is measured
NO_NETWORK = "no network is trained: too little time is left for it; raise --minutes to train one"


@dataclass(frozen=True)
class Tuning:
    """Fine-tunings that fit into a budget, and the seconds of each after its last step."""

    epochs: int  # 0: the linear model remains alone
    seeds: int
    ending: float


@dataclass(frozen=True)
class Pace:
    """The measured pace of a fine-tuning, in seconds."""

    step: float
    steps: int  # of an epoch
    judging: float  # dev
    ending: float  # after the last step: judging, predictions, and what the report explains

    @property
    def epoch(self) -> float:
        """A pass over train, and over dev."""
        return self.step * self.steps + self.judging

    @property
    def least(self) -> float:
        """The shortest useful training: LEAST_STEPS, or an epoch of fewer."""
        return self.step * min(rules.LEAST_STEPS, self.steps)


def stage_plan(run: Run, parts: TrainingContext, plan: rules.Plan, held: int) -> dict[str, Any]:
    """The steps of stage 1, and the seeds and epochs of stage 2, that fit the budget.

    Minutes are shared by all trainings of stage 1 and all their fine-tunings; FLOPs are those of
    one training. `held` examples are predicted at the end.
    """
    recipe, examples = run.recipe, len(parts.train)
    together = parts.task.together  # rows of an example
    epochs = recipe.finetune.epochs
    if epochs is None:
        epochs = usual_epochs(recipe.finetune, parts)
    per_step = max(1, plan.batch // together)  # examples
    rho1 = recipe.train.rho1
    steps, allowed = recipe.train.steps, None
    tuning = Tuning(epochs, recipe.finetune.seeds or rules.USUAL_SEEDS, 0.0)
    if plan.reach == LINEAR:
        steps, tuning = 0, Tuning(0, recipe.finetune.seeds or 1, 0.0)
    elif steps is None and plan.seconds is not None:
        steps, allowed, tuning = _within_minutes(run, parts, plan, epochs, held)
    elif steps is None:
        assert plan.flops is not None
        internal, external = _flops_per_step(parts, recipe.train, plan.batch)
        steps, rho1 = rules.steps_for_flops(
            plan.flops, internal, external, rho1, per_step, examples
        )
    if rho1 is None:
        rho1 = rules.rho1_for(steps, per_step, examples)
    stage1 = Stage1Plan(steps, rho1, plan.batch, allowed)
    return {"stage1": dataclasses.asdict(stage1), **dataclasses.asdict(tuning)}


def _within_minutes(
    run: Run, parts: TrainingContext, plan: rules.Plan, epochs: int, held: int
) -> tuple[int, float, Tuning]:
    """The steps of stage 1, the seconds that they may take, and the fine-tunings."""
    recipe = run.recipe
    assert plan.seconds is not None
    pace = _pace_of_tuning(run, parts, plan, held)
    left = time_left(run, plan.seconds) - pace.ending
    linear = parts.wide is not None and not turns_of(parts.task)
    linear = linear and recipe.finetune.epochs is None and is_timed(recipe)
    tunings = recipe.finetune.seeds or 1
    if linear and left < tunings * pace.least + (tunings - 1) * pace.ending:
        return 0, 0.0, Tuning(0, tunings, 0.0)
    step = _seconds_per_step(run, parts, plan)
    if beginning_of(recipe.train, parts.encoder, parts.shape).counts:
        # its seconds belong to the budget: counted now, kept for stage 1
        _ = parts.counted
    left = max(1.0, time_left(run, plan.seconds) - pace.ending)
    share = rules.WRITING_SHARE if writes(parts.task) else rules.STAGE2_MOST
    seeds, fitting = rules.tunings_for(epochs, pace.epoch, left, recipe.finetune.seeds, share)
    if recipe.finetune.epochs is None:
        epochs = fitting
    trainings = recipe.train.seeds
    if writes(parts.task) and parts.external is None:
        return 0, 0.0, Tuning(epochs, seeds, pace.ending)  # stage 1 would not train the decoder
    rest = left - epochs * seeds * pace.epoch - (seeds - 1) * pace.ending
    allowed = max(0.0, rest) / trainings
    steps = int(allowed * run.machine.ranks.total / step)
    if steps < rules.LEAST_STEPS:
        steps = 0
    return steps, allowed, Tuning(epochs, seeds, pace.ending)


def short_time_warning(recipe: Recipe, decided: Mapping[str, Any], reach: str) -> str | None:
    """Advice if a stage plan has no fine-tuning, little time beside predictions, or too few steps
    of stage 1; else None. A plan that does not reach the text has told why.
    """
    if reach == LINEAR:
        return None
    if is_timed(recipe) and recipe.finetune.epochs is None and not decided["epochs"]:
        return NO_NETWORK
    if (minutes := recipe.budget.minutes) and decided["ending"] > MOST_ENDING * 60 * minutes:
        seconds = duration(decided["ending"], rough=True)
        return f"predicting dev and test takes about {seconds}: raise --minutes"
    stage1 = decided["stage1"]
    if not stage1["steps"] and reach != TEXT:
        return None
    return few_steps_warning(recipe, stage1["steps"], stage1["batch"])


def few_steps_warning(recipe: Recipe, steps: int, batch: int) -> str | None:
    """Advice if the budget allows too few steps of stage 1 to learn a language; else None."""
    if recipe.train.steps is not None or recipe.train.start or steps >= rules.FEW_STEPS:
        return None
    if not steps:
        if not recipe.data.corpus:
            return None
        return (
            "the budget is too small for stage 1: all of it goes to fine-tuning; raise --minutes "
            "to train on text too"
        )
    by_flops = recipe.budget.minutes is None and recipe.budget.flops is not None
    more = "--flops" if by_flops else "--minutes"
    fewer = "--train.batch" if batch > rules.SMALLEST_BATCH else "--tokens.length"
    return f"stage 1 has few steps ({steps:,}): raise {more} or lower {fewer}"


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
        least, turns = max(5, stage.rho1 + 1), max(1, len(turns_of(parts.task)))
        rule = rule_of(run.recipe.train)
        return seconds_per_step(stage, rule, run.machine, seconds, least, turns)

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


def _pace_of_tuning(run: Run, parts: TrainingContext, plan: rules.Plan, held: int) -> Pace:
    """The pace of stage 2, for all trainings together: each step of it is taken by every one."""
    # as if text without labels were read from the first step on, which costs the most
    settings = dataclasses.replace(run.recipe.finetune, unlabelled_after=0.0)
    stage = finetune_stage(parts, settings, 0, parts.task.metrics[0], None)
    seconds, turns = _of_budget(plan, STAGE2_SECONDS), max(1, len(turns_of(parts.task)))
    rule = rule_of(run.recipe.finetune)
    step = seconds_per_step(stage, rule, run.machine, seconds, turns=turns)
    trainings, judged = run.recipe.train.seeds, len(parts.dev)
    forward = judging = seconds_per_example(stage.model, parts.dev, run.machine, parts.task)
    explained = rules.EXPLAINED
    if writes(parts.task):  # with a beam in the end, and nothing is explained
        judging = seconds_per_example(stage.model, parts.dev, run.machine, greedy(parts.task))
        explained = 0
    return Pace(
        trainings * step,
        stage.steps_of(1),
        trainings * judging * judged,
        forward * (trainings * (judged + held) + explained),
    )
