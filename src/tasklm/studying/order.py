"""What is asked of a study, and the data of its tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from tasklm.errors import DataError, RecipeError
from tasklm.recipe.parsing import named_value
from tasklm.storage.safe_reading import is_there
from tasklm.studying.study import Keys, Study, load_scale


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
        known = set(chain.from_iterable(other.everything for other in studies))
        tasks = []
        for entry in self.tasks:
            name, path = named_value(entry)
            if (name or path) in study.everything or (name or path) not in known:
                tasks.append(entry)
        if self.tasks and not tasks:
            problem = f"none of them is a task of {study.name}"
            raise RecipeError([f"--tasks: {problem}; it has {', '.join(study.everything)}"])
        return replace(self, out=self.out / study.name, pool=self.out, tasks=tuple(tasks))


def task_folders(study: Study, order: Order) -> dict[str, Path]:
    """The data of each task of a study that is there; raises DataError if none is."""
    wanted: dict[str, str] = {}
    for entry in order.tasks:
        name, path = named_value(entry)
        wanted |= {name: path} if name else {path: ""}
    known = ", ".join(study.everything)
    strangers = [name for name in wanted if name not in study.everything]
    if strangers:
        raise RecipeError(
            [
                f"--tasks: {name!r} is not a task of {study.name}; it has {known}"
                for name in strangers
            ]
        )
    names = [name for name in study.everything if not wanted or name in wanted]
    scale = load_scale(order.scale)
    folders = {}
    for name in names:
        folders[name] = Path(wanted.get(name) or _folder(order.data, scale.folders_of(name)))
    there = {name: path for name, path in folders.items() if is_there(path)}
    lost = [name for name in wanted if name not in there]
    if lost or not there:
        sought = ", ".join(str(folders[name]) for name in lost or names)
        raise DataError(
            f"there is no data for {', '.join(lost or names)} (sought: {sought})",
            file=order.data,
            remedy="Put a folder with train, dev and test there for each task, or name them: "
            "--tasks NAME=FOLDER.",
        )
    return there


def _folder(data: Path, names: Sequence[str]) -> Path:
    """The first of these folders that is there; the first if none is."""
    return next((data / name for name in names if is_there(data / name)), data / names[0])


def part_of(text: str) -> tuple[int, int]:
    """'2/8' → (2, 8)."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise RecipeError([f"--part {text!r}: write the second of eight parts as 2/8"])
    return int(match[1]), int(match[2])
