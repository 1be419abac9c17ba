"""Ablations: models trained for comparison, like ours but for one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.console.durations import duration
from tasklm.errors import RecipeError
from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Row
from tasklm.evaluate.task_tables import OWN_MODELS
from tasklm.pipeline import evaluation
from tasklm.pipeline.context import Run, Trained
from tasklm.pipeline.opening import open_run
from tasklm.pipeline.scope import is_timed
from tasklm.pipeline.single_tasks import SINGLE, Train, single_row
from tasklm.recipe.model_sections import FEWEST_TYPES
from tasklm.recipe.raw_text import NO_STUDENT
from tasklm.recipe.schema import Recipe
from tasklm.registry import nearest
from tasklm.run_folder import COMPARE, SUMMARY, SUPERVISED, stage1_name
from tasklm.storage.files import read_json
from tasklm.tasks.several import members_of
from tasklm.train.start import title_of

TASK_ONLY = "task data only"
TITLES = {
    "task-only": TASK_ONLY,
    "random": "random selection",
    "no-teacher": "labels alone, without teachers",
    SUPERVISED: "labels alone, without raw text",
    SINGLE: OWN_MODELS,
}


def check_ablations(recipe: Recipe) -> None:
    """Refuses ablations that are unknown, or that the run has no model for."""
    choices = list(TITLES)
    problems = [
        f"evaluate.compare: unknown ablation {name!r}{nearest(name, choices)}; "
        f"choose from {', '.join(choices)}"
        for name in recipe.evaluate.compare
        if name not in TITLES
    ]
    if "no-teacher" in recipe.evaluate.compare and not recipe.distill.teachers:
        problems.append("evaluate.compare: 'no-teacher' goes with distill.teachers")
    if SUPERVISED in recipe.evaluate.compare and not recipe.finetune.has_student:
        problems.append(f"evaluate.compare: {SUPERVISED!r} goes with finetune.unlabelled")
    if SINGLE in recipe.evaluate.compare and not recipe.several.tasks:
        problems.append("evaluate.compare: 'single' goes with several tasks")
    if problems:
        raise RecipeError(problems)


def ablation_rows(ours: Trained, ours_test: Predicted | None, train: Train) -> list[Row]:
    """Trains the ablations that the recipe names; their rows of the score table."""
    return [_row(ours, name, ours_test, train) for name in _wanted(ours)]


def _wanted(ours: Trained) -> tuple[str, ...]:
    """The ablations to train: none of a model without a network."""
    wanted = ours.run.recipe.evaluate.compare
    if not wanted or ours.has_network:
        return wanted
    ours.run.tracker.warn("no ablations: no network was trained that they could be compared with")
    return ()


def _row(ours: Trained, name: str, ours_test: Predicted | None, train: Train) -> Row:
    """Trains an ablation; its row of the score table."""
    models = len(members_of(ours.task.task)) if name == SINGLE else 1
    about = duration(evaluation.training_seconds(ours, models), rough=True)
    extra = ", beyond --minutes" if is_timed(ours.run.recipe) else ""
    training = f"training the ablation: {TITLES[name]} (about {about}{extra})"
    ours.run.tracker.say(training, "compare")
    if name == SINGLE:
        return single_row(ours, _ablation(ours, name), TITLES[name], ours_test, train)
    corpus = None
    if name != "task-only" and ours.selected is not None:
        corpus = ours.corpus
    other = train(_ablation(ours, name), ours.task, corpus, "evaluate")
    assert other is not None
    title = TITLES[name] + started_from(other)
    return evaluation.model_row(other, title, "ablation", ours_test=ours_test)


def started_from(trained: Trained) -> str:
    """What the name of a model says of the checkpoint or run that it began with."""
    start = trained.run.recipe.train.start
    return f", from {title_of(Path(start))}" if start else ""


def _ablation(ours: Trained, name: str) -> Run:
    """The run of an ablation: the same steps, batches and weights as ours, other text."""
    run, shape, external = ours.run, ours.parts.shape, ours.parts.external
    done = read_json(run.artefacts.path(stage1_name(1)) / SUMMARY)
    types = None
    if run.recipe.tokens.kind != "file":
        types = max(FEWEST_TYPES, len(ours.parts.vocabulary))
    recipe = run.recipe.changed(
        select={
            "method": "random" if name == "random" else run.recipe.select.method,
            "passages": None if external is None else len(external),
        },
        tokens={"vocabulary": types},
        model={
            "size": "tiny",
            "layers": shape.layers,
            "width": shape.width,
            "heads": shape.heads,
            "feedforward": shape.feedforward,
        },
        train={
            "steps": done["steps"],
            "batch": done["batch"],
            "rho1": 0 if name == "task-only" else done["rho1"],
        },
        finetune={
            "epochs": max(seed.summary()["epochs"] for seed in ours.seeds),
            "seeds": len(ours.seeds) // run.recipe.train.seeds,
            "unlabelled": _student(run.recipe, name),
        },
        distill=_teaching(run.recipe, name),
        evaluate={"compare": [], "baselines": False, "ensemble": False},
        budget={"minutes": None, "flops": None},
    )
    return open_run(
        recipe, run.folder / COMPARE / name, run.tracker.inside(TITLES[name]), run.cache
    )


def _student(recipe: Recipe, name: str) -> str:
    """Who learns from text without labels in an ablation."""
    if name == SUPERVISED:
        return NO_STUDENT
    return recipe.finetune.unlabelled


def _teaching(recipe: Recipe, name: str) -> dict[str, Any]:
    """Who teaches an ablation, and how much text: none without teachers, or without text."""
    teachers, passages = list(recipe.distill.teachers), recipe.distill.passages
    if name == "no-teacher":
        teachers = []
    if name == "task-only":
        passages = 0
    return {"teachers": teachers, "passages": passages}
