"""The flow of images, top to bottom:

folder or archive ─ check ─ decode ─ train (labels, and images without them) ─ evaluate ─ report
                                                                                  └ model/

There is no text to select and there are no tokens: these steps do not exist here.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

from tasklm.artifacts import Artefacts, rebuilding
from tasklm.console.clock import Clock
from tasklm.console.durations import duration
from tasklm.device.machine import set_up
from tasklm.errors import RecipeError
from tasklm.evaluate.scores import Scores, to_dict
from tasklm.images.data_set import ImageData, Numbers, read_images
from tasklm.images.evaluation import keep_model, predicted, scores_of
from tasklm.images.network import ImageNet
from tasklm.images.settings import check_settings, supervised, with_kind
from tasklm.images.training import (
    Course,
    ImagePlan,
    Scaling,
    first_plan,
    measured_plan,
    scaling_of,
    train_seed,
)
from tasklm.images.whitening import ZCA
from tasklm.pipeline.context import Run
from tasklm.pipeline.opening import record_run
from tasklm.pipeline.timeline import BASELINES, DATA, PLAN, REPORT, SCORES, STAGE2
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import cache_folder
from tasklm.run_folder import COMPARE, SUPERVISED, Seed, seeds_of
from tasklm.run_folder import SCORES as SCORES_FILE
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import digest, full_disk_is_clear, locked, read_json, sweep, write_record
from tasklm.storage.scratch import sweep_scratch
from tasklm.tasks.audit import refuse
from tasklm.tasks.examples import Finding
from tasklm.tasks.image_classes import ImageClasses
from tasklm.tracking import Tracker

STEPS = ("check", "finetune", "evaluate", "report")
OF_TEXT = {"select": "selection", "tokenize": "tokens", "train": "a stage 1 of text"}
USUAL_SEEDS = 1
FOR_TRAINING = 0.85  # share of the time left that trainings may take
VERSION = "image training 1"
PARTS = ("mean", "scale")


def check(recipe: Recipe, folder: Path, tracker: Tracker) -> list[Finding]:
    """The audit of the images."""

    def look() -> list[Finding]:
        run = open_run(recipe, folder, tracker)
        return _read(run).findings

    check_settings(recipe)
    with locked(folder), full_disk_is_clear(folder):
        return rebuilding(look, [folder, cache_folder(recipe, folder)], tracker.warn)


def fit(
    recipe: Recipe,
    folder: Path,
    tracker: Tracker,
    until: str = "report",
    clock: Clock | None = None,
) -> Scores | None:
    """Runs the flow, or up to `until`, and returns the scores; finished steps are skipped."""
    if until in OF_TEXT:
        problem = f"tasklm {until} is for text: images have no {OF_TEXT[until]}"
        raise RecipeError([f"{problem}; go on with tasklm finetune {folder}"])
    check_settings(recipe)
    clock = clock or Clock()
    with held(folder), full_disk_is_clear(folder):
        return rebuilding(
            lambda: _flow(open_run(recipe, folder, tracker, clock), until),
            [folder, cache_folder(recipe, folder)],
            tracker.warn,
        )


def held(folder: Path) -> AbstractContextManager[None]:
    """A context in which a run folder is locked."""
    return locked(folder)


def open_run(recipe: Recipe, folder: Path, tracker: Tracker, clock: Clock | None = None) -> Run:
    """The run in a folder, with its recipe and the versions it runs on saved."""
    recipe = with_kind(recipe)
    machine = set_up(recipe.hardware)
    if machine.ranks.total > 1:
        raise RecipeError(["images are learnt by one process: run without torchrun"])
    # shapes stay the same, so that it pays to try the algorithms of convolutions
    torch.backends.cudnn.benchmark = machine.device.type == "cuda"
    artefacts = Artefacts(folder, tell=tracker.warn)
    cache = Artefacts(cache_folder(recipe, folder), None, tracker.say, tracker.warn)
    run = Run(recipe, artefacts, cache, machine, tracker, clock or Clock())
    for place in (artefacts, cache):
        place.sweep()
    sweep(folder / "stage2")
    sweep_scratch()
    record_run(run)
    return run


def _read(run: Run) -> ImageData:
    data = read_images(run.recipe, run.cache, run.inputs, run.tracker)
    for note in data.notes:
        run.tracker.detail(note)
    return data


def _flow(run: Run, until: str) -> Scores | None:
    data = _read(run)
    refuse(data.findings)
    sizes = [f"{len(data.labelled):,} labelled images of {len(data.classes)} classes"]
    sizes += [f"{len(part):,} {name}" for name, part in data.held_out.items()]
    students = run.recipe.finetune.unlabelled
    if students != "none":
        sizes.append(f"{len(data.studied):,} read without labels by {students}")
    run.tracker.say("; ".join([*sizes, *data.notes[:1]]), "data")
    for finding in data.findings:
        if finding.level == "warning":
            run.tracker.warn(finding.brief or finding.message)
    run.keep_clock(DATA)
    if until == "check":
        return None
    course = course_for(run, data)
    plan = course.plan
    read = f"{plan.batch} labelled images"
    if plan.unlabelled_batch:
        read += f" and {plan.unlabelled_batch} without labels"
    if course.studies.noise != "none":
        read += f", {course.studies.noise} noise of norm {plan.noise_norm:g}"
    network = ImageNet(course.shape).parameters_in_all
    sizes_text = f"{network / 1e6:.2f}M weights, {course.shape.side} × {course.shape.side} cells"
    run.tracker.say(f"{sizes_text}; {plan.steps:,} steps of {read}", "plan")
    run.keep_clock(PLAN)
    seeds = _seeds(run, course, run.folder)
    run.keep_clock(STAGE2)
    if until == "finetune":
        return None
    return _evaluated(run, course, seeds, until)


def _evaluated(run: Run, course: Course, seeds: list[Seed], until: str) -> Scores:
    """The scores, the model and the report of trained seeds."""
    predictions = predicted(run, course, seeds, "predictions")
    others = None
    if SUPERVISED in run.recipe.evaluate.compare:
        other = dataclasses.replace(course, recipe=supervised(run.recipe))
        other = dataclasses.replace(
            other, plan=dataclasses.replace(course.plan, unlabelled_batch=0)
        )
        rivals = _seeds(run, other, run.folder / COMPARE / SUPERVISED)
        others = (rivals, predicted(run, other, rivals, f"{SUPERVISED}-predictions"))
    run.keep_clock(BASELINES)
    scores = scores_of(run, course, (seeds, predictions), others)
    write_record(run.folder / SCORES_FILE, to_dict(scores))
    best = keep_model(run, course, seeds, scores)
    run.tracker.event("verdict", text=scores.verdict)
    run.keep_clock(SCORES, ended=True)
    if until != "evaluate":
        from tasklm.images.page import write_image_report

        with run.tracker.progress("writing the report"):
            write_image_report(run, course, (seeds, predictions), best, scores)
    run.keep_clock(REPORT, ended=True)
    return scores


def course_for(run: Run, data: ImageData) -> Course:
    """The plan of a run, decided once, and the scaling of its pixels."""
    recipe, machine = run.recipe, run.machine
    task = ImageClasses(data.classes)
    metric = task.metric(metric_of(recipe))

    def score(numbers: Numbers) -> float:
        assert data.dev is not None
        gold = [data.classes[number] for number in data.dev.labels]
        labels = [data.classes[number] for number in numbers]
        return float(metric.value(metric.statistics(gold, labels).sum(0)))

    scaling = _scaling(run, data)
    plan = first_plan(recipe, data, machine, scaling)
    course = Course(data, recipe, plan, machine, scaling, score)
    key = digest(
        [VERSION, data.key, dataclasses.asdict(plan), *_settings(recipe), str(recipe.budget)]
    )

    def build(folder: Path) -> None:
        decided = plan
        if recipe.budget.minutes is not None:
            seeds = recipe.finetune.seeds or USUAL_SEEDS
            left = 60.0 * recipe.budget.minutes - run.seconds()
            seconds = max(1.0, FOR_TRAINING * left / seeds)
            with run.tracker.progress("measuring this machine"):
                decided = measured_plan(course, seconds)
            if recipe.image.steps is not None:
                decided = dataclasses.replace(plan, seconds=None)
        write_record(folder / "plan.json", dataclasses.asdict(decided))

    folder = run.artefacts.build("plan", key, build)
    with damage_is_clear(folder / "plan.json"):
        return dataclasses.replace(course, plan=ImagePlan(**read_json(folder / "plan.json")))


def _scaling(run: Run, data: ImageData) -> Scaling:
    """The mean and the scale of the pixels, kept beside the images."""

    def build(folder: Path) -> None:
        with run.tracker.progress("scaling the pixels"):
            for name, part in zip(PARTS, scaling_of(run.recipe, data, run.machine), strict=True):
                np.save(folder / f"{name}.npy", part.numpy())

    key = digest([VERSION, data.key, run.recipe.image.whiten])
    folder = run.cache.build(f"image-scaling-{key}", key, build)
    zca = run.recipe.image.whiten == ZCA
    mean = load_array(folder / "mean.npy", np.float32)
    scale = load_array(folder / "scale.npy", np.float32, dimensions=2 if zca else 1)
    return torch.from_numpy(mean), torch.from_numpy(scale)


def metric_of(recipe: Recipe) -> str:
    """The metric that is reported first: accuracy, unless the recipe names another."""
    return "accuracy" if recipe.evaluate.metric == "auto" else recipe.evaluate.metric


def _settings(recipe: Recipe) -> list[object]:
    """The settings that change a training."""
    tuned = {**values_for_key(recipe.finetune), "seeds": None}
    return [values_for_key(recipe.image), tuned, recipe.train.seed, recipe.train.non_finite]


def _seeds(run: Run, course: Course, where: Path) -> list[Seed]:
    """The trained seeds in a folder."""
    seeds = seeds_of(where, 1, run.recipe.finetune.seeds or USUAL_SEEDS)
    fresh = False
    for seed in seeds:
        key = digest(
            [
                VERSION,
                course.data.key,
                dataclasses.asdict(course.plan),
                *_settings(course.recipe),
                metric_of(run.recipe),
                seed.stage2,
            ]
        )

        def build(folder: Path, seed: Seed = seed) -> None:
            train_seed(folder, course, seed, run.tracker)

        group = Artefacts(seed.folder.parent, tell=run.tracker.warn)
        group.build(seed.folder.name, key, build, uses=[run.artefacts.path("plan")])
        fresh = fresh or bool(group.builds)
    if fresh:
        run.tracker.say(_trained_text(seeds), "trained")
    return seeds


def _trained_text(seeds: list[Seed]) -> str:
    summaries = [seed.summary() for seed in seeds]
    seconds = sum(float(one["seconds"]) for one in summaries)
    text = f"{len(seeds)} × {summaries[0]['steps']:,} steps in {duration(seconds)}"
    scores = [one["dev"] for one in summaries if one["dev"] is not None]
    if scores:
        text += f", dev {100 * float(np.mean(scores)):.1f}"
    return text
