"""A study as its TOML file describes it: what varies, what is held, and what was published."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.schema import from_dict, with_overrides
from tasklm.registry import nearest
from tasklm.storage.safe_reading import read_text

HERE = Path(__file__).parent
LIBRARY, SCALES = HERE / "library", HERE / "scales.toml"
SIZES = ("minutes", "small", "medium", "large")
MOST_BYTES = 1 << 20  # of a study
AVERAGE = "average"  # over the tasks, among published scores
ALL, OTHERS = "all", "others"  # tasks that a row learns together; others: than that of a column
STAGE_1 = "train"  # where a row ends that trains stage 1 alone
STEPS = (STAGE_1, "evaluate")
Keys = dict[str, Any]  # dotted recipe keys → values


@dataclass(frozen=True)
class Line:
    """A row of a study: the keys that are its own, and the published scores by task.

    A row is trained on each task by itself, unless it has several together.
    """

    name: str
    recipe: Keys = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    note: str = ""
    series: str = ""  # the line of a plot that it is a point of, if there are several
    reference: bool = False  # published alone: nothing is run
    together: tuple[str, ...] = ()  # tasks that one model learns: names, or ("all",), ("others",)
    teachers: str = ""  # the row whose models teach this one
    start: str = ""  # the row whose stage 1, or whose model, this one begins with
    until: str = ""  # a step for other rows, which ends there and is not shown

    @property
    def is_shown(self) -> bool:
        """Whether the table has it."""
        return not self.until

    @property
    def needs(self) -> tuple[str, ...]:
        """The rows that are trained before it."""
        return tuple(name for name in (self.start, self.teachers) if name)


@dataclass(frozen=True)
class Claim:
    """What the paper says of two rows: the first is ahead of the second."""

    text: str
    better: str
    than: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A table or figure of a paper, as runs."""

    name: str
    title: str
    source: str
    split: str  # that the published scores are of
    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    claims: tuple[Claim, ...]
    recipe: Keys = field(default_factory=dict)  # of all runs
    scales: dict[str, Keys] = field(default_factory=dict)  # what a scale has of its own
    own: dict[str, Keys] = field(default_factory=dict)  # what a task has of its own
    axis: str = ""  # a key whose values are the x axis of a plot
    missing: tuple[str, ...] = ()  # what of the table cannot be had, and why
    companions: tuple[str, ...] = ()  # further tasks, which rows learn too and no column is of
    together: dict[str, Keys] = field(default_factory=dict)  # scale, "": all → of several tasks

    @property
    def everything(self) -> tuple[str, ...]:
        """All tasks that it reads."""
        return (*self.tasks, *self.companions)

    @property
    def lines_run(self) -> list[Line]:
        """The rows that are trained."""
        return [line for line in self.lines if not line.reference]

    @property
    def lines_shown(self) -> list[Line]:
        """The rows of the table."""
        return [line for line in self.lines if line.is_shown]

    def tasks_of(self, line: Line, task: str = "") -> list[str]:
        """The tasks that a row learns together, in an order that all studies share."""
        if line.together == (ALL,):
            return sorted(self.everything)
        if line.together == (OTHERS,):
            return sorted(one for one in self.everything if one != task)
        return sorted(line.together)


def studies() -> list[str]:
    """The names of the studies that come with the package."""
    return sorted(path.stem for path in LIBRARY.glob("*.toml"))


def load_study(name: str) -> Study:
    """A study of the package by its name, or the one in a TOML file."""
    path = LIBRARY / f"{name}.toml"
    if name.endswith(".toml"):
        path = Path(name)
    elif name not in studies():
        raise RecipeError(
            [f"unknown study {name!r}{nearest(name, studies())}; 'tasklm study' lists them"]
        )
    try:
        return study_from(path.stem, tomllib.loads(read_text(path, MOST_BYTES)))
    except OSError as error:
        raise DataError(
            f"the study cannot be read ({error.strerror})",
            file=path,
            remedy="Give the path of a TOML file, or a name that 'tasklm study' lists.",
        ) from None
    except ValueError as error:
        raise RecipeError([f"{path} is not valid TOML: {error}"]) from None


def load_studies(names: Sequence[str]) -> list[Study]:
    """Studies by their names; raises RecipeError if two are called alike."""
    loaded = [load_study(name) for name in dict.fromkeys(names)]
    called = [study.name for study in loaded]
    if twice := [name for name in dict.fromkeys(called) if called.count(name) > 1]:
        raise RecipeError([f"two studies are called {', '.join(twice)}: rename a file"])
    return loaded


def study_from(name: str, values: Mapping[str, Any]) -> Study:
    """The study that a TOML file describes; raises RecipeError with all that is wrong."""
    problems = _unknown("", values, Study, {"rows", "claims"}, {"name", "lines"})
    for key in ("title", "source", "tasks", "rows"):
        if not values.get(key):
            problems.append(f"{name}: {key} is missing")
    rows, claims = values.get("rows", []), values.get("claims", [])
    for row in rows:
        problems += _unknown(f"row {row.get('name')!r}: ", row, Line, set(), set())
    for claim in claims:
        problems += _unknown(f"claim {claim.get('text')!r}: ", claim, Claim, set(), set())
    if problems:
        raise RecipeError(problems)
    tasks, scales = tuple(map(str, values["tasks"])), values.get("scales", {})
    together = {scale: dict(keys.get("together", {})) for scale, keys in scales.items()}
    study = Study(
        name=name,
        title=str(values["title"]),
        source=str(values["source"]),
        split=str(values.get("split", "test")),
        tasks=tasks,
        lines=tuple(_line(row) for row in rows),
        claims=tuple(Claim(**{**one, "tasks": tuple(one.get("tasks", tasks))}) for one in claims),
        recipe=dict(values.get("recipe", {})),
        scales={scale: _without(keys, "together") for scale, keys in scales.items()},
        own={task: dict(keys) for task, keys in values.get("own", {}).items()},
        axis=str(values.get("axis", "")),
        missing=tuple(values.get("missing", ())),
        companions=tuple(map(str, values.get("companions", ()))),
        together={"": dict(values.get("together", {})), **together},
    )
    if problems := _problems(study):
        raise RecipeError(problems)
    return study


def _line(row: Mapping[str, Any]) -> Line:
    together = row.get("together", ())
    names = (together,) if isinstance(together, str) else tuple(map(str, together))
    return Line(**{**row, "together": names})


def _without(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def plain(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "row"


def _unknown(
    where: str, values: Mapping[str, Any], kind: type[Any], more: set[str], less: set[str]
) -> list[str]:
    known = {*(one.name for one in fields(kind)), *more} - less
    return [
        f"{where}unknown key {key!r}{nearest(key, sorted(known))}"
        for key in values
        if key not in known
    ]


def _problems(study: Study) -> list[str]:
    """What does not fit together."""
    names = [line.name for line in study.lines]
    scored = [line.name for line in study.lines_run if line.is_shown]
    folders = [plain(name) for name in names]
    problems = [
        f"another row is called like {name!r}"
        for name, folder in zip(names, folders, strict=True)
        if folders.count(folder) > 1
    ]
    for line in study.lines:
        strangers = [task for task in line.published if task not in (*study.tasks, AVERAGE)]
        problems += [f"row {line.name!r}: {task} is not among the tasks" for task in strangers]
        finite = all(
            isinstance(value, int | float) and math.isfinite(value)
            for value in line.published.values()
        )
        if not finite:
            problems.append(f"row {line.name!r}: published scores must be numbers")
        problems += _key_problems(line.name, {**study.recipe, **line.recipe})
        problems += _need_problems(study, line)
    for claim in study.claims:
        strangers = [name for name in (claim.better, claim.than) if name not in scored]
        problems += [f"claim {claim.text!r}: no row {name!r} is run" for name in strangers]
        strangers = [task for task in claim.tasks if task not in study.tasks]
        problems += [f"claim {claim.text!r}: {task} is not among the tasks" for task in strangers]
    for scale, keys in study.scales.items():
        if scale not in SIZES:
            problems.append(f"unknown scale {scale!r}{nearest(scale, list(SIZES))}")
        problems += _key_problems(scale, keys)
    for scale, keys in study.together.items():
        problems += _key_problems(f"together {scale}".strip(), keys)
    for task, keys in study.own.items():
        if task not in study.everything:
            problems.append(f"own: {task} is not among the tasks")
        problems += _key_problems(task, keys)
    on_axis = [line.name for line in study.lines if study.axis in line.recipe]
    if study.axis and len(on_axis) < 2:
        problems.append(f"axis: fewer than two rows have the key {study.axis}")
    return problems


def _need_problems(study: Study, line: Line) -> list[str]:
    """What is wrong with the tasks that a row learns together, and with the rows that it needs."""
    where = f"row {line.name!r}: "
    problems = [
        f"{where}{task} is not among the tasks"
        for task in line.together
        if task not in (*study.everything, ALL, OTHERS)
    ]
    if line.together and len(study.tasks_of(line, study.tasks[0])) < 2:
        problems.append(f"{where}together names one task; for one, leave it out")
    if line.until not in ("", *STEPS):
        problems.append(f"{where}until = {line.until!r}: choose from {', '.join(STEPS)}")
    if line.together == (OTHERS,) and line.is_shown:
        problems.append(f"{where}of others, no task has a score; give until = 'evaluate'")
    number = study.lines.index(line)
    above = {one.name: one for one in study.lines[:number] if not one.reference}
    lost = [name for name in line.needs if name not in above]
    problems += [f"{where}no row {name!r} above it is run" for name in lost]
    start, teacher = above.get(line.start), above.get(line.teachers)
    if start is not None and line.together and not start.together:
        problems.append(f"{where}it has several tasks, but {start.name!r} has a model of each")
    if teacher is not None and teacher.until:
        problems.append(f"{where}{teacher.name!r} is a step, which cannot teach")
    return problems


def _key_problems(where: str, keys: Keys) -> list[str]:
    try:
        from_dict(with_overrides({}, keys))
    except RecipeError as error:
        return [f"{where}: {problem}" for problem in error.problems]
    return []


@dataclass(frozen=True)
class Scale:
    """The keys of a scale: of all tasks, and those of some."""

    recipe: Keys
    tasks: dict[str, Keys]
    folders: dict[str, list[str]]  # other names that the data of a task may have

    def of(self, task: str) -> Keys:
        """The keys of a task at this scale."""
        return {**self.recipe, **self.tasks.get(task, {})}

    def folders_of(self, task: str) -> list[str]:
        """The names that the folder of a task may have."""
        return [task, *self.folders.get(task, [])]


def load_scale(name: str) -> Scale:
    """What all studies hold at a scale, and what belongs to a task wherever it is studied."""
    if name not in SIZES:
        raise RecipeError([f"unknown scale {name!r}{nearest(name, list(SIZES))}"])
    values = tomllib.loads(read_text(SCALES, MOST_BYTES))
    everywhere, own = values["tasks"], values[name].get("tasks", {})
    tasks = {
        task: {**everywhere.get(task, {}), **own.get(task, {})} for task in {**everywhere, **own}
    }
    return Scale({**values["all"], **values[name]["recipe"]}, tasks, values["folders"])
