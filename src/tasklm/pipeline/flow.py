"""The flow, top to bottom:

task files ─┐                                                       ┌─ scores → report.html
            ├─ check ─ select ─ tokenize ─ stage 1 joint ─ stage 2 ─┤
corpus ─────┘  (clean, dedupe, decontaminate)                       └─ model/ → predict
"""

from __future__ import annotations

import dataclasses
import functools
import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasklm.artifacts import Artefacts, rebuilding
from tasklm.budget.rules import Plan
from tasklm.device.machine import set_up
from tasklm.device.ranks import first_of_all, processes_started
from tasklm.encoders.base import ENCODERS
from tasklm.errors import RecipeError
from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Kind, Row, Scores, to_dict
from tasklm.evaluate.verdict import with_verdict
from tasklm.objectives.base import OBJECTIVES
from tasklm.pipeline import evaluation, report, steps
from tasklm.pipeline.analysis import insights
from tasklm.pipeline.context import CorpusData, Run, TaskData
from tasklm.pipeline.linear_part import better_model, first_model
from tasklm.pipeline.planning import make_plan, settled, too_much_text
from tasklm.pipeline.selection import check_settings, select
from tasklm.pipeline.summaries import corpus_text, data_text, plan_text
from tasklm.recipe.model_sections import FEWEST_TYPES
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, cache_folder, dump, recipe_key
from tasklm.registry import Registry, nearest
from tasklm.report.report import write_report
from tasklm.run_folder import Seed
from tasklm.storage.files import (
    full_disk_is_clear,
    locked,
    read_json,
    sweep,
    write_json,
    write_record,
    write_text,
)
from tasklm.tasks.audit import refuse
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Finding
from tasklm.tasks.readers.splits import resolved
from tasklm.tracking import EventFile, LogFile, TensorBoard, Tracker
from tasklm.train.stages import Ingredients
from tasklm.train.start import started, title_of

STEPS = ("check", "select", "tokenize", "train", "finetune", "evaluate", "report")
READING = "reading the examples"  # what is shown meanwhile
COMPARISONS = {"task-only": "task data only", "random": "random selection"}


def check_names(recipe: Recipe) -> None:
    """Raises the error for all plug-ins that the recipe names and that do not exist or do not go
    together, before any work is done.
    """
    problems: list[str] = []
    chosen: list[tuple[Registry[Any], str]] = [
        (TASKS, recipe.data.kind),
        (ENCODERS, recipe.model.encoder),
        (OBJECTIVES, recipe.train.objective),
    ]
    for registry, name in chosen:
        if name == "auto":
            continue
        try:
            registry.get(name)
        except RecipeError as error:
            problems += error.problems
    if recipe.train.next_sentence and recipe.train.objective != "mlm":
        problems.append(
            f"train.next_sentence goes with train.objective = "
            f"'mlm' alone, not with {recipe.train.objective!r}"
        )
    if problems:
        raise RecipeError(problems)


def open_run(recipe: Recipe, folder: Path, tracker: Tracker, cache: Artefacts | None = None) -> Run:
    """The run in a folder, with its recipe and the versions it runs on written down."""
    check_names(recipe)
    recipe = started(recipe.changed(data=dataclasses.asdict(resolved(recipe.data))), folder)
    machine = set_up(recipe.hardware)
    artefacts = Artefacts(folder, machine.ranks, tell=tracker.warn)
    cache = cache or Artefacts(
        cache_folder(recipe, folder), machine.ranks, tracker.say, tracker.warn
    )
    run = Run(recipe, artefacts, cache, machine, tracker)
    if not machine.ranks.first:
        tracker.screen = None
        return run
    for place in (artefacts, cache):
        place.sweep()
    for leftover in (folder / "stage2", folder / "inputs"):
        sweep(leftover)
    write_text(folder / "recipe.toml", dump(absolute(recipe)))
    tracker.sinks = [EventFile(folder / "events.jsonl"), LogFile(folder / "log.txt")]
    if recipe.hardware.tensorboard:
        tracker.sinks.append(TensorBoard(folder / "tensorboard"))
    write_json(
        folder / "manifest.json",
        {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
            "device": str(machine.device),
            "threads": machine.threads,
            "bf16": machine.bf16,
            "compiled": machine.compiles,
            "processes": machine.ranks.total,
        },
    )
    tracker.event(
        "started", folder=str(folder), device=str(machine.device), threads=machine.threads
    )
    return run


def check(recipe: Recipe, folder: Path, tracker: Tracker) -> list[Finding]:
    """The audit of the task and, where there is one, of the corpus."""

    def look() -> list[Finding]:
        run = open_run(recipe, folder, tracker)
        with tracker.progress(READING):
            task = steps.read_task(run)
        corpus = steps.prepare_corpus(run, task)
        return [*task.findings, *(corpus.findings if corpus else [])]

    with locked(folder), full_disk_is_clear(folder):
        return rebuilding(look, [folder, cache_folder(recipe, folder)], tracker.warn)


def fit(recipe: Recipe, folder: Path, tracker: Tracker, until: str = "report") -> Scores | None:
    """Runs the whole flow (or as far as `until`) and returns the scores; what is done already is
    skipped.
    """
    _known_comparisons(recipe)
    check_settings(recipe.select)
    with held(folder), full_disk_is_clear(folder):
        return rebuilding(
            lambda: _flow(open_run(recipe, folder, tracker), until),
            [folder, cache_folder(recipe, folder)],
            tracker.warn,
            several=processes_started() > 1,
        )


def held(folder: Path) -> AbstractContextManager[None]:
    """The context in which a run folder is in use; of several processes the
    first holds its lock.
    """
    return locked(folder) if first_of_all() else nullcontext()


@dataclass
class Trained:
    """A model trained to its end, with its outputs on dev and test."""

    run: Run
    plan: Plan
    selected: Path | None
    parts: Ingredients
    seeds: list[Seed]
    predictions: evaluation.Predictions


def _flow(run: Run, until: str) -> Scores | None:
    task, corpus = _data(run)
    if until == "check":
        return None
    trained = _train(run, task, corpus, until, ships=True)
    if trained is None:
        return None
    scores = _scores(trained, task, corpus)
    if run.machine.ranks.first:
        write_record(run.folder / "scores.json", to_dict(scores))
    evaluation.keep_best(run, task, trained.parts, trained.seeds, scores)
    for row in (row for row in scores.rows if row.kind == "ensemble"):
        evaluation.keep_ensemble(run, task, trained.parts, trained.seeds, row)
    run.tracker.event("verdict", text=scores.verdict)
    if until != "evaluate":
        with run.tracker.progress("looking into the model"):
            found = insights(
                run,
                task,
                corpus,
                trained.selected,
                trained.parts,
                trained.seeds,
                trained.predictions,
            )
        if run.machine.ranks.first:
            made = (
                trained.plan,
                trained.parts,
                trained.selected,
                trained.seeds,
                trained.predictions,
            )
            with run.tracker.progress("writing the report"):
                shown = report.report_parts(run, task, corpus, *made, scores, found)
                write_report(run.folder / "report.html", shown)
    run.keep_clock()
    return scores


def _train(
    run: Run, task: TaskData, corpus: CorpusData | None, until: str, ships: bool = False
) -> Trained | None:
    """The trained model, or None when `until` is an earlier step; one that ships is in model/ as
    soon as there is one.
    """
    plan = make_plan(run, task, corpus)
    selects = corpus is not None and run.recipe.uses_corpus
    run.tracker.say(plan_text(run.recipe, plan, selects), "plan")
    for reason in plan.reasons:
        run.tracker.detail(f"plan: {reason}")
    selected, key = (
        select(run, task, corpus, plan) if corpus is not None and selects else (None, "")
    )
    run.keep_clock()
    if until == "select":
        return None
    tokens = steps.tokenize(run, task, selected, key)
    run.keep_clock()
    if until == "tokenize":
        return None
    parts = steps.ingredients(run, task, tokens, plan)
    trainings = steps.train(run, task, parts, tokens, plan)
    run.keep_clock()
    if until == "train":
        return None
    keep = functools.partial(evaluation.keep_so_far, run, task, parts) if ships else None
    seeds = steps.finetune(run, task, parts, trainings, plan, keep)
    run.keep_clock()
    if until == "finetune":
        return None
    return Trained(
        run, plan, selected, parts, seeds, evaluation.predict_splits(run, task, parts, seeds)
    )


def _data(run: Run) -> tuple[TaskData, CorpusData | None]:
    """Returns task and corpus; refuses on the audit's errors and says its warnings."""
    with run.tracker.progress(READING):
        task = steps.read_task(run)
    run.recipe = settled(run.recipe, task, run.machine)
    for note in task.splits.notes:
        run.tracker.detail(note)
    refuse(task.findings)
    run.tracker.say(data_text(run.recipe, task), "data")
    if run.recipe.finetune.wide:
        first_model(run, task)
    if warning := too_much_text(run.recipe):
        corpus = None
        run.tracker.warn(warning)
    else:
        corpus = steps.prepare_corpus(run, task)
        run.tracker.say(corpus_text(corpus), "corpus")
    findings = [*task.findings, *(corpus.findings if corpus else [])]
    refuse(findings)
    warnings = [finding for finding in findings if finding.level == "warning"]
    for finding in warnings:
        run.tracker.warn(finding.brief or finding.message)
        run.tracker.detail(
            "\n".join(
                [
                    f"{finding.check}: {finding.message}",
                    *(f"  · {example}" for example in finding.examples),
                ]
            )
        )
    if corpus is not None:
        better_model(run, task, corpus)
    if warnings:
        run.tracker.say("`tasklm check`, with the same files, shows which these are", "details")
    return task, corpus


def _scores(ours: Trained, task: TaskData, corpus: CorpusData | None) -> Scores:
    run, evaluate = ours.run, ours.run.recipe.evaluate
    name = (
        _selection_name(run.recipe) if ours.parts.external is not None else COMPARISONS["task-only"]
    )
    own_row = _row(ours, name, "ours", task, None)
    trainings, ours_test = run.recipe.train.seeds, None
    if "test" in ours.predictions:
        ours_test = evaluation.labels_of(task, ours.predictions, "test", trainings)
    rows = evaluation.baseline_rows(run, task, ours_test) if evaluate.baselines else []
    for comparison in evaluate.compare:
        run.tracker.say(f"now the same with {COMPARISONS[comparison]}", "compare")
        other = _train(
            _comparison(ours, comparison),
            task,
            corpus if comparison != "task-only" else None,
            "evaluate",
        )
        assert other is not None
        rows.append(_row(other, COMPARISONS[comparison], "ablation", task, ours_test))
    data: dict[str, Any] = {split: len(examples) for split, examples in task.splits.named().items()}
    if corpus is not None:
        data |= {
            "corpus": corpus.store.counts,
            "contaminated": int(corpus.contamination.banned.sum()),
        }
    rows += [own_row, *_ensemble_rows(ours, task, ours_test)]
    scores = Scores(
        task.metric,
        task.task.labels,
        rows,
        data,
        seeds=len(ours.seeds) // trainings,
        confidence=evaluate.confidence,
        recipe=recipe_key(run.folder / "recipe.toml"),
        trainings=trainings,
        linear=evaluation.is_linear(ours.parts, ours.seeds),
    )
    return with_verdict(scores)


def _ensemble_rows(ours: Trained, task: TaskData, ours_test: Predicted | None) -> list[Row]:
    """The row of all seeds together where it is asked for and there are several."""
    run, seeds = ours.run, ours.seeds
    if not run.recipe.evaluate.ensemble:
        return []
    if len(seeds) == 1:
        run.tracker.say(
            "evaluate.ensemble: one seed makes no ensemble; "
            "set finetune.seeds or train.seeds to 2 or more"
        )
        return []
    together = evaluation.predict_together(run, task, ours.parts, seeds)
    return [
        evaluation.model_row(
            run,
            f"ensemble of {len(seeds)} seeds",
            "ensemble",
            task,
            ours.parts,
            seeds,
            together,
            ours_test,
        )
    ]


def _selection_name(recipe: Recipe) -> str:
    method = recipe.select.stages[0].upper()
    if recipe.select.by_influence:
        return f"{method} + influence selection (ISS)"
    return f"{method} selection (TLM)"


def _row(
    trained: Trained, name: str, kind: Kind, task: TaskData, ours_test: Predicted | None
) -> Row:
    start = trained.run.recipe.train.start
    name = f"{name}, from {title_of(Path(start))}" if start else name
    return evaluation.model_row(
        trained.run, name, kind, task, trained.parts, trained.seeds, trained.predictions, ours_test
    )


def _comparison(ours: Trained, name: str) -> Run:
    """The run of an ablation: the same numbers of steps, batches and weights
    as ours, other text.
    """
    run, shape = ours.run, ours.parts.shape
    done = read_json(run.artefacts.path("stage1") / "summary.json")
    passages = len(ours.parts.external) if ours.parts.external is not None else None
    recipe = run.recipe.changed(
        select={
            "method": "random" if name == "random" else run.recipe.select.method,
            "passages": passages,
        },
        tokens={
            "vocabulary": max(FEWEST_TYPES, len(ours.parts.vocabulary))
            if run.recipe.tokens.kind != "file"
            else None
        },
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
        },
        evaluate={"compare": [], "baselines": False, "ensemble": False},
        budget={"minutes": None, "flops": None},
    )
    return open_run(
        recipe, run.folder / "compare" / name, run.tracker.inside(COMPARISONS[name]), run.cache
    )


def _known_comparisons(recipe: Recipe) -> None:
    unknown = [name for name in recipe.evaluate.compare if name not in COMPARISONS]
    if unknown:
        choices = list(COMPARISONS)
        raise RecipeError(
            [
                (
                    f"evaluate.compare: {name!r} is not "
                    f"known{nearest(name, choices)}; choose from {', '.join(choices)}"
                )
                for name in unknown
            ]
        )
