"""The flow, top to bottom:

task files ─┐                                                       ┌─ scores → report.html
            ├─ check ─ select ─ tokenize ─ stage 1 joint ─ stage 2 ─┤
corpus ─────┘  (clean, dedupe, decontaminate)                       └─ model/ → predict
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tasklm.artifacts import rebuilding
from tasklm.budget.scope import TEXT
from tasklm.console.clock import Clock
from tasklm.device.ranks import first_of_all, processes_started
from tasklm.errors import RecipeError
from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Row, Scores, to_dict
from tasklm.evaluate.verdict import with_verdict
from tasklm.pipeline import evaluation, reading, steps, timeline
from tasklm.pipeline.ablations import TASK_ONLY, ablation_rows, check_ablations, started_from
from tasklm.pipeline.analysis import insights
from tasklm.pipeline.bill import keep_bill
from tasklm.pipeline.context import CorpusData, Run, TaskData, Trained
from tasklm.pipeline.coverage import keep_coverage
from tasklm.pipeline.growth import label_growth
from tasklm.pipeline.linear_part import better_model, first_model, forecast_text
from tasklm.pipeline.opening import open_run
from tasklm.pipeline.planning import make_plan, settled
from tasklm.pipeline.raw_text import check_student, raw_text, require_student
from tasklm.pipeline.report import report_parts
from tasklm.pipeline.scope import decided_scope, may_stay_linear
from tasklm.pipeline.selection import check_settings, select
from tasklm.pipeline.soups import is_better, soup_rows
from tasklm.pipeline.summaries import corpus_text, data_text, plan_text
from tasklm.pipeline.taught_text import taught_text
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import cache_folder, recipe_key
from tasklm.report.report import write_report
from tasklm.run_folder import RECIPE, REPORT, SCORES
from tasklm.storage.files import full_disk_is_clear, locked, write_record
from tasklm.tasks.audit import refuse
from tasklm.tasks.examples import Finding
from tasklm.tasks.several import members_of
from tasklm.tracking import Tracker

STEPS = ("check", "select", "tokenize", "train", "finetune", "evaluate", "report")
READING = "reading the examples"  # shown in the meantime


def check(recipe: Recipe, folder: Path, tracker: Tracker) -> list[Finding]:
    """The audit of the task and of the corpus, if there is one."""

    def look() -> list[Finding]:
        run = open_run(recipe, folder, tracker)
        with tracker.progress(READING):
            task = reading.read_task(run)
        return _findings(task, reading.prepare_corpus(run, task))

    with locked(folder), full_disk_is_clear(folder):
        return rebuilding(look, [folder, cache_folder(recipe, folder)], tracker.warn)


def _findings(task: TaskData, corpus: CorpusData | None) -> list[Finding]:
    return task.findings if corpus is None else [*task.findings, *corpus.findings]


def fit(
    recipe: Recipe,
    folder: Path,
    tracker: Tracker,
    until: str = "report",
    clock: Clock | None = None,
) -> Scores | None:
    """Runs the flow, or up to `until`, and returns the scores; finished steps are skipped.

    `clock` runs since the command began, if that was before.
    """
    clock = clock or Clock()
    check_ablations(recipe)
    check_settings(recipe.select)
    with held(folder), full_disk_is_clear(folder):
        return rebuilding(
            lambda: _flow(open_run(recipe, folder, tracker, clock=clock), until),
            [folder, cache_folder(recipe, folder)],
            tracker.warn,
            several=processes_started() > 1,
        )


def held(folder: Path) -> AbstractContextManager[None]:
    """A context in which a run folder is locked by the first of its processes."""
    return locked(folder) if first_of_all() else nullcontext()


def _flow(run: Run, until: str) -> Scores | None:
    run.watch_network()
    task, corpus = _data(run)
    if until == "check":
        return None
    trained = _train(run, task, corpus, until, ships=True)
    if trained is None:
        return None
    scores = _scores(trained)
    if run.machine.ranks.first:
        write_record(run.folder / SCORES, to_dict(scores))
    evaluation.keep_best(trained, scores)
    for row in scores.rows:
        if row.kind == "ensemble":
            evaluation.keep_ensemble(trained, row)
    keep_coverage(trained, scores)
    run.tracker.event("verdict", text=scores.verdict)
    run.keep_clock(timeline.SCORES, ended=True)
    keep_bill(trained)
    if until != "evaluate":
        _report(trained, scores)
    run.keep_clock(timeline.REPORT, ended=True)
    run.tracker.say(timeline.timeline_text(run.timeline()), "time")
    return scores


def _report(trained: Trained, scores: Scores) -> None:
    run = trained.run
    with run.tracker.progress("analysing the model"):
        analyses = insights(trained)
    run.keep_clock(timeline.ANALYSES, ended=True)
    if run.machine.ranks.first:
        with run.tracker.progress("writing the report"):
            write_report(run.folder / REPORT, report_parts(trained, scores, analyses))


def _train(
    run: Run, task: TaskData, corpus: CorpusData | None, until: str, ships: bool = False
) -> Trained | None:
    """The trained model, or None when `until` is an earlier step.

    A model that will be kept is in model/ as soon as there is one.
    """
    plan = make_plan(run, task, corpus)
    run.keep_clock(timeline.PLAN)
    selected, key = None, ""
    selects = corpus is not None and run.recipe.uses_corpus and plan.reach == TEXT
    run.tracker.say(plan_text(run.recipe, plan, selects), "plan")
    for reason in plan.reasons:
        run.tracker.detail(f"plan: {reason}")
    if plan.reach != run.scope.reach:
        run.tracker.warn(plan.reasons[-1])
    if corpus is not None and selects:
        selected, key = select(run, task, corpus, plan)
    run.keep_clock(timeline.SELECTION)
    if until == "select":
        return None
    tokens = steps.tokenize(run, task, selected, key)
    run.keep_clock(timeline.TOKENS)
    if until == "tokenize":
        return None
    text = taught_text(run, task, selected)
    raw = raw_text(run, task, selected)
    parts = steps.training_context(run, task, tokens, plan, text, raw)
    require_student(run, parts)
    trainings = steps.train(run, task, parts, tokens, plan)
    run.keep_clock(timeline.STAGE1)
    if until == "train":
        return None
    keep = functools.partial(evaluation.keep_so_far, run, task, parts) if ships else None
    seeds = steps.finetune(run, task, parts, trainings, plan, keep)
    run.keep_clock(timeline.STAGE2)
    if until == "finetune":
        return None
    predictions = evaluation.predict_splits(run, task, parts, seeds)
    return Trained(run, task, corpus, plan, selected, parts, seeds, predictions)


def _data(run: Run) -> tuple[TaskData, CorpusData | None]:
    """The task and the corpus; raises the audit's errors and shows its warnings."""
    with run.tracker.progress(READING):
        task = reading.read_task(run)
    run.recipe = settled(run.recipe, task, run.machine)
    check_student(run, task)
    for note in task.splits.notes:
        run.tracker.detail(note)
    refuse(task.findings)
    run.tracker.say(data_text(run.recipe, task), "data")
    run.keep_clock(timeline.DATA)
    is_first = run.recipe.finetune.wide and first_model(run, task)
    _require_a_model(run, task)
    run.scope = decided_scope(run, task)
    run.keep_clock(timeline.LINEAR)
    if is_first:
        run.tracker.say(forecast_text(run, task), "forecast")
    corpus = None
    if run.scope.reason:
        run.tracker.warn(run.scope.reason)
    if run.scope.reach == TEXT:
        corpus = reading.prepare_corpus(run, task)
        run.tracker.say(corpus_text(corpus), "corpus")
    findings = _findings(task, corpus)
    refuse(findings)
    warnings = [finding for finding in findings if finding.level == "warning"]
    for finding in warnings:
        run.tracker.warn(finding.brief or finding.message)
        examples = "".join(f"\n  · {example}" for example in finding.examples)
        run.tracker.detail(f"{finding.check}: {finding.message}{examples}")
    if corpus is not None:
        better_model(run, task, corpus)
    if warnings:
        run.tracker.say("to see these examples, run `tasklm check` with the same files", "details")
    run.keep_clock(timeline.CORPUS)
    return task, corpus


def _scores(ours: Trained) -> Scores:
    run, task, corpus, evaluate = ours.run, ours.task, ours.corpus, ours.run.recipe.evaluate
    own_row = evaluation.model_row(ours, _row_name(ours), "ours")
    ours_test = None
    if "test" in ours.predictions:
        ours_test = evaluation.labels_of(task, ours.predictions, "test", run.recipe.train.seeds)
    rows = evaluation.baseline_rows(run, task, ours_test) if evaluate.baselines else []
    rows += evaluation.teacher_rows(run, task, ours_test)
    run.keep_clock(timeline.BASELINES)
    rows += ablation_rows(ours, ours_test, _train)
    run.keep_clock(timeline.ABLATIONS)
    soups = soup_rows(ours, ours_test)
    rows += [own_row, *soups, *_ensemble_rows(ours, ours_test)]
    data: dict[str, Any] = {split: len(examples) for split, examples in task.splits.named().items()}
    if corpus is not None:
        data["corpus"] = corpus.store.counts
        data["contaminated"] = int(corpus.contamination.banned.sum())
    data.update(evaluation.held_out_text(ours.seeds))
    scores = Scores(
        task.metric,
        task.task.labels,
        rows,
        data,
        seeds=len(ours.seeds) // run.recipe.train.seeds,
        confidence=evaluate.confidence,
        recipe=recipe_key(run.folder / RECIPE),
        trainings=run.recipe.train.seeds,
        linear=evaluation.is_linear(ours.parts, ours.seeds),
        averaged=any(is_better(row, own_row) for row in soups),
        growth=label_growth(run, task),
    )
    return with_verdict(scores, ours.has_network)


def _row_name(ours: Trained) -> str:
    """The name of our model in the score table."""
    select = ours.run.recipe.select
    if ours.parts.external is None:
        name = TASK_ONLY
    elif select.by_influence:
        name = f"{select.stages[0].upper()} + influence selection (ISS)"
    else:
        name = f"{select.stages[0].upper()} selection (TLM)"
    tasks = len(members_of(ours.task.task))
    together = f", {tasks} tasks together" if tasks else ""
    return name + started_from(ours) + together + ", taught" * ours.parts.taught + _studied(ours)


def _studied(trained: Trained) -> str:
    if trained.parts.raw is None:
        return ""
    return f", {trained.run.recipe.finetune.unlabelled} on raw text"


def _ensemble_rows(ours: Trained, ours_test: Predicted | None) -> list[Row]:
    """The row of the ensemble, if requested and there are several seeds."""
    run, seeds = ours.run, ours.seeds
    if not run.recipe.evaluate.ensemble:
        return []
    if len(seeds) == 1:
        run.tracker.say(
            "evaluate.ensemble needs several seeds; set finetune.seeds or train.seeds to 2 or more"
        )
        return []
    together = evaluation.predict_together(run, ours.task, ours.parts, seeds)
    title = f"ensemble of {len(seeds)} seeds"
    return [evaluation.model_row(ours, title, "ensemble", together, ours_test)]


def _require_a_model(run: Run, task: TaskData) -> None:
    """Refuses a run that would end without any trained model."""
    recipe = run.recipe
    if recipe.finetune.epochs != 0 or recipe.train.steps != 0:
        return
    if not may_stay_linear(run, task):
        problem = "finetune.epochs = 0 leaves the linear model of words alone, but there is none"
        raise RecipeError([f"{problem} (finetune.wide, or the kind of task): give 1 or more"])
