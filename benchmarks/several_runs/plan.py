"""Which runs the tables need, in what order, and the command of each.

Students begin with the stage 1 of those that teach them. With a shared stage 1 all runs begin with
one that no label has touched, as all models of the thesis begin with one BERT: a stage 1 of several
tasks that learnt from their labels would already be a model of several tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from several_runs.data import metric_of, metrics_of
from tasklm.budget.rules import stage2_rate
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.toml import load
from tasklm.storage.files import read_json

TABLES = ("3.1", "3.3", "3.4", "3.5")
BASE, MULTI = "base", "multi"
SINGLE, BORN_AGAIN = "single", "single-single"
MULTI_AGAIN, JOINED = "multi-multi", "single-multi"
ABLATIONS = {  # run → options of a student of all tasks
    "labels-never": ("--distill.labels", "0"),
    "labels-half": ("--distill.labels", "0.5"),
    "drawn-by-size": ("--several.power", "1"),
}
TUNED = {"multi-tuned": MULTI, "single-multi-tuned": JOINED}
SMALL, RELATED, OTHERS = "rte", ("mnli", "sick_entail"), ("qqp", "cola", "sst2")
# sections of the recipe that do not come with the stage 1 that a run begins with
OWN = ("finetune", "distill", "several", "evaluate", "data", "kind", "hardware")
SLOWER = 0.1  # of the learning rate, when a model of all tasks is fine-tuned on one of them
UNLABELLED = {"train.rho1": "1000000", "train.rho2": "1e6"}  # stage 1 reads text, not labels


@dataclass(frozen=True)
class Planned:
    """A run: its folder, the tasks that it learns, the runs that teach it, and where it begins."""

    name: str
    tasks: tuple[str, ...]
    teachers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    start: str = ""  # the run whose stage 1, or RUN/model whose network, it begins with

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs that must be finished before."""
        first = (self.start.removesuffix("/model"),) if self.start else ()
        return (*first, *self.teachers)


def single(task: str) -> str:
    """The run of a task alone."""
    return f"{SINGLE}/{task}"


def company(tasks: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """What RTE is trained with in Table 3.5, by the names of runs, where the tasks have it."""
    if SMALL not in tasks:
        return []
    related = [name for name in RELATED if name in tasks][:1]
    others = [name for name in OTHERS if name in tasks]
    sets = [tuple(related), tuple(others)]
    rows = [("+".join(("with", *names)), (SMALL, *names)) for names in sets if names]
    return [(name, names) for name, names in rows if len(names) < len(tasks)]


def planned(tables: Sequence[str], tasks: Sequence[str], shared: bool) -> list[Planned]:
    """The runs of some tables; each comes after those that it needs."""
    everything = tuple(tasks)
    base = BASE if shared else ""
    runs = [Planned(BASE, everything)] if shared else []
    runs += [Planned(single(task), (task,), start=base) for task in tasks]
    if not shared or {"3.1", "3.3"} & set(tables):
        runs.append(Planned(MULTI, everything, start=base))
    teachers = tuple(single(task) for task in tasks)
    runs.append(Planned(JOINED, everything, teachers, start=base or MULTI))
    if "3.1" in tables or ("3.5" in tables and SMALL in tasks):
        again = tasks if "3.1" in tables else [SMALL]
        for task in again:
            start = base or single(task)
            runs.append(Planned(f"{BORN_AGAIN}/{task}", (task,), (single(task),), start=start))
    if "3.1" in tables:
        runs.append(Planned(MULTI_AGAIN, everything, (MULTI,), start=base or MULTI))
    if "3.4" in tables:
        for name, options in ABLATIONS.items():
            runs.append(Planned(name, everything, teachers, options, base or MULTI))
    if "3.5" in tables:
        for name, names in company(tasks):
            own = tuple(single(task) for task in names)
            runs.append(Planned(name, names, own, start=base))
    if "3.3" in tables:
        for name, before in TUNED.items():
            runs += [Planned(f"{name}/{task}", (task,), start=f"{before}/model") for task in tasks]
    return runs


def levels(runs: Sequence[Planned]) -> list[list[Planned]]:
    """The runs in groups: what a run needs is in an earlier one."""
    place: dict[str, int] = {}
    for run in runs:
        place[run.name] = 1 + max((place[name] for name in run.needs), default=-1)
    count = 1 + max(place.values())
    return [[run for run in runs if place[run.name] == level] for level in range(count)]


@dataclass(frozen=True)
class Settings:
    """What all runs share."""

    work: Path
    corpus: str
    recipe: Path | None
    seeds: int
    extra: tuple[str, ...]
    several: tuple[str, ...] = ()  # options of stage 2, of runs that learn several tasks


def command(run: Planned, settings: Settings) -> list[str]:
    """The words after `tasklm` of a run; those of the base are in its recipe."""
    if run.name == BASE:
        return ["train", str(settings.work / BASE)]
    metric = metrics_of(run.tasks) if len(run.tasks) > 1 else metric_of(run.tasks[0])
    if run.teachers:
        words = ["distill", *(str(settings.work / name) for name in run.teachers)]
    else:
        words = ["fit", *(str(data_of(settings.work, task)) for task in run.tasks)]
        if not run.start and settings.recipe is not None:
            words += ["--recipe", str(settings.recipe)]
        if not run.start:
            words += ["--corpus", settings.corpus]
        elif settings.recipe is not None:
            words += finetuning_of(settings.recipe)
        words += ["--data.leaks", "drop", "--evaluate.baselines", "false"]
    words += ["--hardware.cache", str(settings.work / "cache")]
    words += ["--evaluate.metric", metric, "--finetune.seeds", str(settings.seeds)]
    words += options_of(run, settings)
    if run.start.endswith("/model"):
        model = settings.work / run.start
        rate = SLOWER * rate_of(settings.work / run.start.removesuffix("/model"))
        words += ["--finetune.learning_rate", f"{rate:.3g}"]
        words += ["--train.start", str(model), "--train.steps", "0"]
    elif run.start:
        words += ["--train.start", str(settings.work / run.start / "stage1"), "--train.steps", "0"]
    return [*words, "--out", str(settings.work / run.name)]


def finetuning_of(recipe: Path) -> list[str]:
    """What a recipe says about stage 2, as options; the rest comes with another run's stage 1."""
    given, usual = asdict(load(recipe).finetune), asdict(Finetune())
    words: list[str] = []
    for name, value in given.items():
        if value != usual[name]:
            words += [f"--finetune.{name}", str(value)]
    return words


def options_of(run: Planned, settings: Settings) -> list[str]:
    """The further options of a run; of those that name a key twice, the last counts."""
    given = for_stage2(settings.extra) if run.start else settings.extra
    if len(run.tasks) > 1:
        given = [*given, *settings.several]
    given = [*given, *run.options]
    values = dict(zip(given[::2], given[1::2], strict=True))
    return list(chain.from_iterable(values.items()))


def for_stage2(extra: Sequence[str]) -> list[str]:
    """The options that a run takes which begins with the stage 1 of another."""
    pairs = list(zip(extra[::2], extra[1::2], strict=True))
    words: list[str] = []
    for name, value in pairs:
        if name.removeprefix("--").split(".")[0] in OWN:
            words += [name, value]
    return words


def data_of(work: Path, task: str) -> Path:
    """The folder of a task's prepared files."""
    return work / "data" / task


def base_recipe(run: Planned, settings: Settings, options: dict[str, Any]) -> Any:
    """The recipe of the stage 1 that all runs begin with: the text that all tasks select."""
    own = {
        "several.tasks": [str(data_of(settings.work, task)) for task in run.tasks],
        "data.corpus": [settings.corpus],
        "data.leaks": "drop",
        "evaluate.metric": metrics_of(run.tasks),
        "hardware.cache": str(settings.work / "cache"),
        "finetune.wide": "false",
        **UNLABELLED,
    }
    return load(settings.recipe, {**options, **own})


def rate_of(folder: Path) -> float:
    """The learning rate that a finished run was fine-tuned with."""
    given = load(folder / "recipe.toml").finetune.learning_rate
    config = read_json(folder / "model" / "config.json")
    recurrent = config["encoder"] == "bilstm"
    return given or stage2_rate(int(config["shape"]["width"]), recurrent=recurrent)
