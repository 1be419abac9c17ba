"""Which runs the tables and figures need, and the recipe of each.

Runs of one folder share the task, the selected text and stage 1; each trains stage 2 in a way of
its own, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cross_view_runs.data import OF_WORDS, TaskFiles, write_recipe
from tasklm.errors import RunError
from tasklm.recipe.raw_text import CROSS_VIEW, FILE, HIDDEN, PASSAGES
from tasklm.recipe.schema import Recipe, section_types
from tasklm.recipe.toml import load

TABLES = ("shares", "text", "widths", "learning", "4.3", "4.4", "4.5")
NONE = "none"  # the way of labels alone
SELECTED, RANDOM = "bm25", "random"  # methods of selection
NO_SIDES, NO_NEIGHBOURS, ONE_TASK = "no-sides", "no-neighbours", "one-task"
VIEWS = {NO_SIDES: "full,future,past", NO_NEIGHBOURS: "full,forward,backward"}
FROZEN, BILM = "frozen", "bilm"  # the way of a head on features; those of two language models
SCORES_OF_DEV = 20  # in a fine-tuning of a number of steps
TRAIN_SCORED = 500  # examples
# sections of the recipe that do not come with the model that a run begins with
OWN = ("finetune", "distill", "evaluate", "data", "kind", "hardware")
Values = dict[str, Any]  # dotted keys of a recipe


@dataclass(frozen=True)
class Planned:
    """A run: its tasks, the share of their labels in per cent, and how it differs from others."""

    tasks: tuple[str, ...]
    share: float
    way: str
    width: int | None = None
    selection: str = SELECTED
    start: str = ""  # the folder whose model's encoder it begins with, or BILM
    values: Values = field(default_factory=dict, compare=False)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        parts = ["+".join(self.tasks), f"{self.share:g}"]
        if self.width is not None:
            parts.append(f"width{self.width}")
        if self.selection != SELECTED:
            parts.append(self.selection)
        if self.start:
            parts.append(f"on-{self.start}")
        return "-".join(parts)

    @property
    def name(self) -> str:
        """The name of its result."""
        return f"{self.folder}-{self.way}"

    @property
    def needs(self) -> str:
        """The result that must be there before, "" for none."""
        if self.start in ("", BILM):
            return ""
        return f"{self.start}-{CROSS_VIEW}"

    def about(self) -> Values:
        """What the tables know it by."""
        values = asdict(self)
        del values["values"]
        return {**values, "tasks": list(self.tasks)}


@dataclass(frozen=True)
class Wanted:
    """What is measured."""

    tables: Sequence[str]
    tasks: Sequence[TaskFiles]
    shares: Sequence[float]
    students: Sequence[str]
    texts: Sequence[str] = ()
    widths: Sequence[int] = ()

    @property
    def together(self) -> list[str]:
        """The tasks that one model can learn from one text."""
        return [task.name for task in self.tasks if task.kind == OF_WORDS]

    @property
    def most(self) -> float:
        """The share of labels of all tables but those by share."""
        return max(self.shares)


def planned(wanted: Wanted) -> list[Planned]:
    """The runs of some tables, each once; those that others need come first."""
    runs: list[Planned] = []
    for task in wanted.tasks:
        for share in wanted.shares:
            runs += _of_share(task.name, share, wanted)
        runs += _of_task(task.name, wanted)
    if "4.3" in wanted.tables and len(wanted.together) > 1:
        one = Planned(tuple(wanted.together), wanted.most, CROSS_VIEW, values=student(CROSS_VIEW))
        turns = {**student(CROSS_VIEW), "finetune.unlabelled_tasks": "one"}
        runs += [one, replace(one, way=ONE_TASK, values=turns)]
    if "4.5" in wanted.tables:
        for task in wanted.tasks:
            runs += _frozen(task.name, wanted)
    return sorted(dict.fromkeys(runs), key=lambda run: bool(run.needs))


def student(name: str) -> Values:
    """The keys of a student of raw text."""
    return {"finetune.unlabelled": name}


def _of_share(task: str, share: float, wanted: Wanted) -> list[Planned]:
    """The runs of a task with a share of its labels."""
    runs = []
    if "shares" in wanted.tables:
        runs += [Planned((task,), share, way, values=student(way)) for way in wanted.students]
    if "text" in wanted.tables:
        for text in wanted.texts:
            if text == HIDDEN and share == 100:  # no label is hidden
                continue
            selection = text if text in (SELECTED, RANDOM) else SELECTED
            alone = Planned((task,), share, NONE, selection=selection, values=student(NONE))
            reads = replace(alone, way=f"text-{text_name(text)}", values=source_of(text))
            runs += [alone, reads]
    return runs


def text_name(text: str) -> str:
    """The name of a text: a method of selection, hidden, or that of a file."""
    return Path(text).name


def source_of(text: str) -> Values:
    """The keys of a student that reads one text alone."""
    values = {**student(CROSS_VIEW), "finetune.unlabelled_from": PASSAGES}
    if text == HIDDEN:
        values["finetune.unlabelled_from"] = HIDDEN
    elif text not in (SELECTED, RANDOM):
        values |= {"finetune.unlabelled_from": FILE, "data.unlabelled": text}
    return values


def _of_task(task: str, wanted: Wanted) -> list[Planned]:
    """The runs of a task with all labels that are used."""
    both = [Planned((task,), wanted.most, way, values=student(way)) for way in (NONE, CROSS_VIEW)]
    runs = []
    if {"learning", "4.4"} & set(wanted.tables):
        runs += both
    if "4.4" in wanted.tables and task in wanted.together:
        for way, views in VIEWS.items():
            values = {**student(CROSS_VIEW), "finetune.views": views}
            runs.append(replace(both[1], way=way, values=values))
    if "widths" in wanted.tables:
        for width in wanted.widths:
            wide = {"model.width": width, "model.feedforward": "auto"}
            runs += [replace(one, width=width, values={**one.values, **wide}) for one in both]
    return runs


def _frozen(task: str, wanted: Wanted) -> list[Planned]:
    """Labels alone, and a head on features that do not learn: of the other tasks, of text alone."""
    alone = Planned((task,), wanted.most, NONE, values=student(NONE))
    head = {**student(NONE), "finetune.freeze": True}
    text = replace(
        alone, way=FROZEN, start=BILM, values={**head, "train.objective": BILM, "train.steps": None}
    )
    others = [name for name in wanted.together if name != task]
    if len(others) < 2:
        return [alone, text]
    first = Planned(tuple(others), wanted.most, CROSS_VIEW, values=student(CROSS_VIEW))
    return [alone, text, first, replace(alone, way=FROZEN, start=first.folder, values=head)]


@dataclass(frozen=True)
class Settings:
    """How all runs are trained."""

    work: Path
    corpus: str
    recipe: Path | None
    seeds: int
    extra: Values
    steps: int | None = None  # of labels, in stage 2; None: the recipe's epochs
    bilm_steps: int | None = None  # of stage 1 of the two language models
    threads: int | None = None  # of a run; None: as the recipe says


def recipe_of(run: Planned, settings: Settings, tasks: Mapping[str, TaskFiles]) -> Recipe:
    """The recipe of a run."""
    base = load(settings.recipe, settings.extra)
    values: Values = {"data.corpus": settings.corpus, "select.method": run.selection}
    if run.needs:
        values = {"train.start": str(settings.work / run.start / "model"), "train.steps": 0}
    values |= _data_of(run, settings, tasks, base)
    values |= {
        "data.leaks": "drop",
        "data.share": run.share / 100,
        "evaluate.baselines": False,
        "finetune.seeds": settings.seeds,
        "finetune.scored_examples": TRAIN_SCORED,
        "hardware.cache": str(settings.work / "cache"),
        **_length(run, settings, tasks, base),
        **run.values,
    }
    if settings.threads is not None:
        values["hardware.threads"] = settings.threads
    if run.start == BILM:
        values["train.steps"] = settings.bilm_steps
    if run.needs:
        return load(None, {**_own(base), **values})
    return load(settings.recipe, {**settings.extra, **values})


def _data_of(
    run: Planned, settings: Settings, tasks: Mapping[str, TaskFiles], base: Recipe
) -> Values:
    if len(run.tasks) == 1:
        return dict(tasks[run.tasks[0]].values)
    folder = settings.work / "tasks"
    paths = {name: write_recipe(tasks[name], folder, base) for name in run.tasks}
    return {"several.tasks": [f"{name}={path}" for name, path in paths.items()]}


def _length(
    run: Planned, settings: Settings, tasks: Mapping[str, TaskFiles], base: Recipe
) -> Values:
    """The epochs that are so many steps on labels, and how often dev is scored among them."""
    if settings.steps is None:
        return {}
    if base.finetune.batch is None:
        raise RunError('--steps needs the rows of a step: --extra="--finetune.batch 64"')
    examples = sum(tasks[name].examples for name in run.tasks) * run.share / 100
    epochs = math.ceil(settings.steps / math.ceil(max(1.0, examples) / base.finetune.batch))
    every = max(1, epochs // SCORES_OF_DEV)
    return {"finetune.epochs": every * math.ceil(epochs / every), "finetune.score_every": every}


def _own(base: Recipe) -> Values:
    """What a recipe says beside what comes with the model that a run begins with."""
    values: Values = {}
    for section in OWN:
        usual = asdict(section_types()[section]())
        for name, value in asdict(getattr(base, section)).items():
            if value != usual[name]:
                values[f"{section}.{name}"] = value
    return values
