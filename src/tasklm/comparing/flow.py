"""The comparison, top to bottom: the data is read and audited, each contestant trains and labels
dev and test in a process of its own, latency is measured side by side, and a table says which to
use.

Each contestant is an artefact of the folder, and so is the measurement of latency: the same command
continues where it was stopped, and one with further contestants trains those alone.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.artifacts import Artefacts, rebuilding
from tasklm.comparing import processes
from tasklm.comparing.choosing import advice_of, picks_of
from tasklm.comparing.entries import DOWNLOADED, Entry
from tasklm.comparing.latency import BATCH, Measured
from tasklm.comparing.page import render_page
from tasklm.comparing.results import Comparison, Latency, Machine, Result
from tasklm.comparing.scoring import Contest, Labelled, scored
from tasklm.comparing.training import Order, TrainedContestant
from tasklm.console.durations import duration
from tasklm.contestants.base import CONTESTANTS
from tasklm.contestants.parts.finished import model_in
from tasklm.contestants.parts.sentence_model import content_of
from tasklm.corpus.corpus_text import local_text
from tasklm.corpus.processes import usable_cores
from tasklm.corpus.store import corpus_key
from tasklm.errors import DamagedError, RecipeError, TaskLMError
from tasklm.pipeline.context import TaskData, sections
from tasklm.pipeline.inputs import Inputs
from tasklm.pipeline.opening import check_names
from tasklm.pipeline.reading import task_of
from tasklm.pipeline.summaries import data_text
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute
from tasklm.run_folder import EVENTS, LOG
from tasklm.storage.files import (
    digest,
    file_digest,
    full_disk_is_clear,
    locked,
    require_own,
    sweep,
    write_json,
    write_text,
)
from tasklm.tasks.audit import refuse
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.splits import resolved
from tasklm.tracking import EventFile, LogFile, Tracker

FORMAT = 1  # raise it when the models of contestants change
MINUTES = 20.0
PAGE, JSON = "comparison.html", "comparison.json"
RUNS, LATENCY = "runs", "latency"  # trainings in several steps; what was measured


@dataclass
class Folder:
    """Where a comparison is kept, and how it is worked on."""

    path: Path
    artefacts: Artefacts
    recipe: Recipe
    seconds: float  # of each contestant
    tracker: Tracker

    @property
    def threads(self) -> int:
        """The threads that every contestant has."""
        return self.recipe.hardware.threads or usable_cores()


def compare(recipe: Recipe, entries: Sequence[Entry], out: Path, tracker: Tracker) -> Comparison:
    """Compares contestants in a folder, and writes comparison.json and comparison.html there."""
    recipe = _prepared(recipe)
    require_own(out)
    with locked(out), full_disk_is_clear(out):
        artefacts = Artefacts(out, tell=tracker.warn)
        artefacts.sweep()
        sweep(out)
        tracker.sinks = [EventFile(out / EVENTS), LogFile(out / LOG)]
        seconds = 60 * (recipe.budget.minutes or MINUTES)
        folder = Folder(out.absolute(), artefacts, recipe, seconds, tracker)
        return rebuilding(lambda: _compared(folder, entries), [out], tracker.warn)


def _prepared(recipe: Recipe) -> Recipe:
    """The recipe with the kind of task that its files show; raises RecipeError for what does not
    go with a comparison.
    """
    problems = []
    if recipe.several.tasks:
        problems.append("compare takes one task; name the files of one")
    if recipe.evaluate.compare:
        problems.append("evaluate.compare: ablations are for tasklm fit; leave the key out")
    if recipe.budget.flops is not None:
        problems.append("budget.flops: contestants are given minutes; use --minutes")
    if recipe.select.engine == "spark":
        problems.append("select.engine: contestants read the corpus on this machine; leave it out")
    if problems:
        raise RecipeError(problems)
    check_names(recipe)
    filled = recipe.changed(data=dataclasses.asdict(resolved(recipe.data)))
    return absolute(filled)


def _compared(folder: Folder, entries: Sequence[Entry]) -> Comparison:
    recipe, tracker = folder.recipe, folder.tracker
    with tracker.progress("reading the examples"):
        task = task_of(recipe, Inputs())
    refuse(task.findings)
    tracker.say(data_text(recipe, task), "data")
    warnings = [one.brief or one.message for one in task.findings if one.level == "warning"]
    for warning in warnings:
        tracker.warn(warning)
    most = duration(folder.seconds)
    cores = f"{folder.threads} thread" + "s" * (folder.threads > 1)
    tracker.say(f"{len(entries)} contestants, at most {most} and {cores} each", "plan")
    problems: dict[str, str] = {}
    orders: list[Order] = []
    for number, entry in enumerate(entries, 1):
        order = _order(folder, task, entry)
        problem = _worked(folder, task, order, f"{number} of {len(entries)}")
        if problem:
            problems[entry.title] = problem
            tracker.warn(f"{entry.title}: {problem}")
        else:
            orders.append(order)
    measured = _measured(folder, task, orders)
    comparison = _result(folder, task, entries, problems, measured)
    comparison = dataclasses.replace(comparison, warnings=warnings)
    write_json(folder.path / JSON, comparison.to_dict())
    write_text(folder.path / PAGE, render_page(comparison))
    return comparison


def _order(folder: Folder, task: TaskData, entry: Entry) -> Order:
    """What a contestant is asked to do."""
    return Order(
        entry,
        folder.recipe,
        task.metric,
        folder.seconds,
        folder.artefacts.path(entry.folder),
        folder.path / RUNS / entry.folder,
    )


def _worked(folder: Folder, task: TaskData, order: Order, place: str) -> str:
    """Builds the artefact of a contestant unless it is there; "" or why there is none."""
    entry, tracker = order.entry, folder.tracker
    plain = TASKS.get(folder.recipe.data.kind).from_examples(task.splits.train, Kind(marks=()))
    if problem := entry.contestant.against(plain):
        return problem
    try:
        key = key_of(folder, task, entry)

        def build(part: Path) -> None:
            tracker.say(f"contestant {place}", entry.title)
            work = {**_about(folder, [entry]), "title": entry.title}
            own = dataclasses.replace(order, folder=part, key=key)
            processes.in_a_process({**work, "order": own.to_dict()}, part, folder.threads)

        folder.artefacts.build(entry.folder, key, build)
        return ""
    except DamagedError:
        raise
    except TaskLMError as error:
        return str(error)


def _about(folder: Folder, entries: Sequence[Entry]) -> dict[str, Any]:
    """What a process must know besides its work: how it shows it, and what to import."""
    tracker = folder.tracker
    modules = {entry.contestant.__module__ for entry in entries}
    own = f"{CONTESTANTS.package}."
    return {
        "shows": tracker.screen is not None,
        "verbose": tracker.verbose,
        "modules": sorted(name for name in modules if not name.startswith(own)),
    }


def key_of(folder: Folder, task: TaskData, entry: Entry) -> str:
    """The key of a contestant's artefact: it changes with all that changes its model."""
    recipe, contestant = folder.recipe, entry.contestant
    parts: list[Any] = [FORMAT, entry.name, entry.title, task.key, task.metric]
    if contestant.uses_minutes:
        parts += [folder.seconds, folder.threads, recipe.hardware.device]
        names = [field.name for field in dataclasses.fields(recipe)]
        left_out = ("hardware", "budget", "evaluate", "data", "kind")
        parts += sections(recipe, *(name for name in names if name not in left_out))
        parts.append(_corpus_key(recipe))
    if entry.source:
        parts.append(_source_key(entry))
    return digest(parts)


def _corpus_key(recipe: Recipe) -> str:
    data = recipe.data
    if not data.corpus:
        return ""
    return corpus_key(local_text(data))


def _source_key(entry: Entry) -> str:
    """A hash of the model in a user's folder."""
    source = Path(entry.source)
    if entry.name in DOWNLOADED:
        return content_of(source)
    folder = model_in(source)
    records = [folder / name for name in ("config.json", "export.json")]
    # they have the checksums of all files
    return digest([file_digest(record) for record in records if record.is_file()])


def _measured(folder: Folder, task: TaskData, orders: Sequence[Order]) -> Measured | None:
    """The latency of the models that can be timed, side by side."""
    timed = [order for order in orders if order.entry.contestant.is_timed]
    if not timed:
        return None
    keys = [folder.artefacts.key(order.entry.folder) for order in timed]
    key = digest([FORMAT, keys, folder.threads, folder.recipe.hardware.device, platform.node()])

    def build(part: Path) -> None:
        entries = [order.entry for order in timed]
        folder.tracker.say(f"of {len(timed)} models, in turns", "latency")
        work = {
            **_about(folder, entries),
            "title": "",
            "recipe": timed[0].to_dict()["recipe"],
            "orders": [order.to_dict() for order in timed],
            "folder": str(part),
        }
        processes.in_a_process(work, part, folder.threads)

    uses = [order.folder for order in timed]
    return Measured.read(folder.artefacts.build(LATENCY, key, build, uses=uses))


def _result(
    folder: Folder,
    task: TaskData,
    entries: Sequence[Entry],
    problems: dict[str, str],
    measured: Measured | None,
) -> Comparison:
    """Scores, differences, costs, and what follows from them."""
    labelled, latencies, machine = [], dict[str, Latency](), None
    if measured is not None:
        latencies, machine = measured.latencies, _machine(folder, measured)
    for entry in entries:
        trained = None
        if entry.title not in problems:
            trained = TrainedContestant.read(folder.artefacts.path(entry.folder))
        problem, latency = problems.get(entry.title, ""), latencies.get(entry.title)
        labelled.append(Labelled(entry, problem, trained, latency))
    evaluate = folder.recipe.evaluate
    contest = Contest(task.task, task.metric, task.splits, evaluate.bootstrap, evaluate.confidence)
    results: list[Result] = scored(contest, labelled)
    comparison = Comparison(
        metric=task.metric,
        split=contest.split,
        confidence=evaluate.confidence,
        data={name: len(part) for name, part in task.splits.named().items()},
        minutes=folder.seconds / 60,
        results=results,
        machine=machine,
        folder=str(folder.path),
    )
    comparison = dataclasses.replace(comparison, picks=picks_of(comparison))
    return dataclasses.replace(comparison, advice=advice_of(comparison))


def _machine(folder: Folder, measured: Measured) -> Machine:
    processor = platform.machine()
    return Machine(
        folder.threads, measured.device, measured.texts, BATCH, measured.unsteady, processor
    )
