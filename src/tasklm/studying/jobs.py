"""A study → its runs: one for each row and task, with the recipe of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from tasklm.corpus.corpus_text import local_text
from tasklm.corpus.store import corpus_key
from tasklm.errors import DataError, RecipeError
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.parsing import named_value
from tasklm.recipe.schema import Recipe, from_dict, with_overrides
from tasklm.recipe.toml import absolute
from tasklm.storage.files import digest
from tasklm.storage.safe_reading import is_there
from tasklm.studying.study import Keys, Line, Study, load_scale, plain
from tasklm.tasks.readers.splits import resolved

CACHE, SHARED, RUNS = ".cache", ".shared", "runs"  # in the folder of a study


@dataclass(frozen=True)
class Order:
    """What is asked of a study."""

    data: Path  # a folder with a folder of splits for each task
    corpus: tuple[str, ...]
    out: Path
    scale: str = "minutes"
    tasks: tuple[str, ...] = ()  # NAME or NAME=PATH; empty: all whose data is there
    overrides: Keys = field(default_factory=dict)
    part: tuple[int, int] = (1, 1)
    at_once: int = 1
    pool: Path | None = None  # a folder for what runs share; None: that of the study

    def of(self, study: Study, studies: Sequence[Study]) -> Order:
        """That of one of these studies: if there are several, each has a folder of its own."""
        if len(studies) == 1:
            return self
        known = set(chain.from_iterable(other.tasks for other in studies))
        tasks = []
        for entry in self.tasks:
            name, path = named_value(entry)
            if (name or path) in study.tasks or (name or path) not in known:
                tasks.append(entry)
        if self.tasks and not tasks:
            problem = f"none of them is a task of {study.name}"
            raise RecipeError([f"--tasks: {problem}; it has {', '.join(study.tasks)}"])
        return replace(self, out=self.out / study.name, pool=self.out, tasks=tuple(tasks))


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    task: str
    line: Line
    folder: Path
    recipe: Recipe
    study: str = ""
    content: str = ""  # a hash of the files that it reads

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"{self.study}, {self.task}, {self.line.name}"


def jobs_of(study: Study, order: Order) -> list[Job]:
    """All runs of a study on the tasks whose data is there, in the order of the table."""
    scale, jobs = load_scale(order.scale), list[Job]()
    lines = [line for line in study.lines if not line.reference]
    pool = order.pool or order.out
    for task, path in task_folders(study, order).items():
        for line in lines:
            keys = {
                **scale.of(task),
                **study.recipe,
                **study.scales.get(order.scale, {}),
                **study.own.get(task, {}),
                **order.overrides,
                **line.recipe,
                "data.train": str(path),
                "data.corpus": list(order.corpus),
                "hardware.cache": str(pool / CACHE),
                "hardware.shared": str(pool / SHARED),
            }
            recipe = absolute(from_dict(with_overrides({}, keys)))
            folder = order.out / RUNS / plain(task) / plain(line.name)
            jobs.append(Job(task, line, folder.absolute(), recipe, study.name))
    return _with_contents(jobs)


def _with_contents(jobs: Sequence[Job]) -> list[Job]:
    """The runs with hashes of what they read; raises where text is needed and there is none."""
    needy = next((job for job in jobs if job.recipe.uses_corpus), None)
    text = ""
    if needy is not None:
        if not needy.recipe.data.corpus:
            problem = f"{needy.title} reads selected text"
            raise RecipeError([f"--corpus is missing: {problem}; name files or folders of text"])
        text = corpus_key(local_text(needy.recipe.data))
    inputs, of_tasks = Inputs(), dict[str, str]()
    for job in jobs:
        if job.task not in of_tasks:
            data = resolved(job.recipe.data)
            files = [Path(file) for file in (data.train, data.dev, data.test) if file]
            of_tasks[job.task] = digest([inputs.content(file) for file in files])
    return [replace(job, content=digest([of_tasks[job.task], text])) for job in jobs]


def task_folders(study: Study, order: Order) -> dict[str, Path]:
    """The data of each task of a study that is there; raises DataError if none is."""
    wanted: dict[str, str] = {}
    for entry in order.tasks:
        name, path = named_value(entry)
        wanted |= {name: path} if name else {path: ""}
    strangers = [name for name in wanted if name not in study.tasks]
    if strangers:
        raise RecipeError(
            [
                f"--tasks: {name!r} is not a task of {study.name}; it has {', '.join(study.tasks)}"
                for name in strangers
            ]
        )
    names = [name for name in study.tasks if not wanted or name in wanted]
    scale = load_scale(order.scale)
    folders = {}
    for name in names:
        folders[name] = Path(wanted.get(name) or _folder(order.data, scale.folders_of(name)))
    there = {name: path for name, path in folders.items() if is_there(path)}
    lost = [name for name in wanted if name not in there]
    if lost or not there:
        sought = ", ".join(str(folders[name]) for name in lost or names)
        raise DataError(
            f"there is no data of {', '.join(lost or names)} (sought: {sought})",
            file=order.data,
            remedy="Put a folder with train, dev and test there for each task, or name them: "
            "--tasks NAME=FOLDER.",
        )
    return there


def _folder(data: Path, names: Sequence[str]) -> Path:
    """The first of these folders that is there; the first if none is."""
    return next((data / name for name in names if is_there(data / name)), data / names[0])


def own_part(jobs: Sequence[Job], part: tuple[int, int]) -> list[Job]:
    """The runs of one of several machines: whole tasks where there are enough, so that what runs
    share is built once.
    """
    number, parts = part
    tasks = list(dict.fromkeys(job.task for job in jobs))
    if len(tasks) >= parts:
        own = tasks[number - 1 :: parts]
        return [job for job in jobs if job.task in own]
    return list(jobs[number - 1 :: parts])


def part_of(text: str) -> tuple[int, int]:
    """'2/8' → (2, 8)."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise RecipeError([f"--part {text!r}: write the second of eight parts as 2/8"])
    return int(match[1]), int(match[2])
