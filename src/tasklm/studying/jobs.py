"""A study → its runs: one for each row and task, or for several tasks together.

A row that needs another one comes after it, so that its runs are there when they are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tasklm.corpus.corpus_text import local_text
from tasklm.corpus.store import corpus_key
from tasklm.errors import RecipeError
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import MODEL, SCORES, SUMMARY, stage1_name
from tasklm.storage.files import digest
from tasklm.studying.order import Order, task_folders
from tasklm.studying.recipes import Given, Recipes
from tasklm.studying.study import ALL, OTHERS, STAGE_1, Keys, Line, Study, load_scale, plain
from tasklm.tasks.readers.splits import resolved

CACHE, SHARED, RUNS = ".cache", ".shared", "runs"  # in the folder of a study
TOGETHER = "together"  # among the runs: those of several tasks
TASKS = "tasks"  # beside such a run: the recipes of its tasks


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    task: str  # the column, or how many tasks it learns
    line: Line
    folder: Path
    recipe: Recipe
    study: str = ""
    content: str = ""  # a hash of the files that it reads
    members: dict[str, Recipe] = field(default_factory=dict)  # how each of several tasks is read
    teachers: tuple[Job, ...] = ()
    start: Job | None = None  # the run that it begins with

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"{self.study}, {self.task}, {self.line.name}"

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it learns."""
        return tuple(self.members) or (self.task,)

    @property
    def needs(self) -> tuple[Job, ...]:
        """The runs that must be finished before."""
        return (*self.teachers, *([self.start] if self.start else []))

    @property
    def result(self) -> Path:
        """The file that it leaves when it is finished."""
        if self.line.until == STAGE_1:
            return self.folder / stage1_name(1) / SUMMARY
        return self.folder / SCORES

    @property
    def beginning(self) -> Path:
        """What a run that begins with it reads."""
        return self.folder / (stage1_name(1) if self.line.until == STAGE_1 else MODEL)


def beside(job: Job, name: str) -> Path:
    """A file or folder of a run, beside its own."""
    return job.folder.with_name(f"{job.folder.name}.{name}")


def jobs_of(study: Study, order: Order) -> list[Job]:
    """All runs of a study on the tasks whose data is there, in the order of the table; raises where
    one needs text and there is none.
    """
    return _Making(study, order, task_folders(study, order)).jobs()


class _Making:
    """The runs of a study, by row and column; "" is the column of several tasks together."""

    def __init__(self, study: Study, order: Order, folders: Mapping[str, Path]) -> None:
        pool = order.pool or order.out
        everywhere: Keys = {
            "data.corpus": list(order.corpus),
            "hardware.cache": str(pool / CACHE),
            "hardware.shared": str(pool / SHARED),
        }
        scale = load_scale(order.scale)
        self.recipes = Recipes(study, scale, order.scale, order.overrides, everywhere)
        self.study, self.out, self.folders = study, order.out, folders
        self.contents = _Contents()
        self.done: dict[tuple[str, str], Job] = {}

    def jobs(self) -> list[Job]:
        """All of them: those of single tasks task by task, then those of several."""
        lines = self.study.lines_run
        for line in lines:
            for task in self._columns(line):
                if (job := self._job(line, task)) is not None:
                    self.done[line.name, task] = job
        jobs: list[Job] = []
        for task in (*self.study.everything, ""):
            own = [self.done.get((line.name, task)) for line in lines]
            jobs += [job for job in own if job is not None]
        return jobs

    def _columns(self, line: Line) -> list[str]:
        """The tasks that a row is trained for; "" alone for one model of several."""
        if line.together and line.together != (OTHERS,):
            return [""]
        teaches = any(line.name == other.teachers for other in self.study.lines_run)
        tasks = self.study.everything if teaches else self.study.tasks
        return [task for task in tasks if task in self.folders]

    def _job(self, line: Line, column: str) -> Job | None:
        """The run of a row; None where data, or a run that it needs, is not to be had."""
        names = self._tasks(line, column)
        start, teachers = self._one(line.start, column), self._teachers(line, names)
        if not names or (line.start and start is None) or (line.teachers and not teachers):
            return None
        given = Given(start.beginning if start else None, [one.folder for one in teachers])
        folder = self.out / RUNS / plain(column or TOGETHER) / plain(line.name)
        title = column or f"{len(names)} tasks"
        bare = Job(title, line, folder.absolute(), Recipe(), self.study.name)
        members: dict[str, Recipe] = {}
        if line.together:
            files = {name: beside(bare, TASKS) / f"{name}.toml" for name in names}
            recipe = self.recipes.of_several(line, files, given)
            for name in names:
                members[name] = self.recipes.of_member(line, name, self.folders[name])
        else:
            recipe = self.recipes.of_task(line, column, self.folders[column], given)
        read = members or {column: recipe}
        return Job(
            title,
            line,
            bare.folder,
            recipe,
            self.study.name,
            self.contents.of(bare.title, recipe, read),
            members,
            tuple(teachers),
            start,
        )

    def _tasks(self, line: Line, column: str) -> list[str]:
        """The tasks that a run learns; none if data of one that a row names is missing."""
        if not line.together:
            return [column]
        names = self.study.tasks_of(line, column)
        there = [name for name in names if name in self.folders]
        if len(there) < (2 if line.together in ((ALL,), (OTHERS,)) else len(names)):
            return []
        return there

    def _teachers(self, line: Line, names: Sequence[str]) -> list[Job]:
        """The runs that teach these tasks; none if one of them has nobody."""
        teachers: dict[Path, Job] = {}
        for name in names:
            job = self._one(line.teachers, name)
            if job is None or name not in job.tasks:
                return []
            teachers[job.folder] = job
        return list(teachers.values())

    def _one(self, name: str, column: str) -> Job | None:
        """The run of a row for a column, or that of several tasks together."""
        return self.done.get((name, column)) or self.done.get((name, ""))


class _Contents:
    """Hashes of what runs read, each file hashed once."""

    def __init__(self) -> None:
        self.inputs, self.tasks, self.text = Inputs(), dict[str, str](), ""

    def of(self, title: str, recipe: Recipe, tasks: Mapping[str, Recipe]) -> str:
        """Of the tasks and the text of a run; raises where it needs text and there is none."""
        own = [self._of_task(task, of_task) for task, of_task in tasks.items()]
        text = ""
        if recipe.uses_corpus:
            text = self._of_text(title, recipe)
        return digest([*own, text])

    def _of_task(self, task: str, recipe: Recipe) -> str:
        if task not in self.tasks:
            data = resolved(recipe.data)
            files = [Path(file) for file in (data.train, data.dev, data.test) if file]
            self.tasks[task] = digest([self.inputs.content(file) for file in files])
        return self.tasks[task]

    def _of_text(self, title: str, recipe: Recipe) -> str:
        if not recipe.data.corpus:
            problem = f"{title} reads selected text"
            raise RecipeError([f"--corpus is missing: {problem}; name files or folders of text"])
        if not self.text:
            self.text = corpus_key(local_text(recipe.data))
        return self.text


def own_part(jobs: Sequence[Job], part: tuple[int, int]) -> list[Job]:
    """The runs of one of several machines: whole tasks where there are enough, so that what runs
    share is built once; those that need one another stay together.
    """
    number, parts = part
    groups = _groups(jobs, {job.title: job.task for job in jobs})
    if len(set(groups.values())) < parts:
        groups = _groups(jobs, {job.title: job.title for job in jobs})
    own = list(dict.fromkeys(groups.values()))[number - 1 :: parts]
    return [job for job in jobs if groups[job.title] in own]


def _groups(jobs: Sequence[Job], groups: dict[str, str]) -> dict[str, str]:
    """Groups of runs by their titles, where those that need one another are in the same one."""
    for job in jobs:
        for need in job.needs:
            one, other = groups[need.title], groups[job.title]
            groups = {title: one if name == other else name for title, name in groups.items()}
    return groups
