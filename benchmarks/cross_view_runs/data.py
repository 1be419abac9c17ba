"""The tasks of cross_view.py: their files, what differs from the recipe that all share, and how
many examples they have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, dump, load
from tasklm.storage.files import write_text
from tasklm.tasks.readers.splits import read_splits, resolved

KNOWN = Path(__file__).resolve().parents[1] / "cross_view.toml"
OF_WORDS = "tag"  # the kind of tasks that share a head


@dataclass(frozen=True)
class TaskFiles:
    """A task: its name, folder, own settings and the column of the published tables."""

    name: str
    folder: Path
    values: Mapping[str, Any]
    published: str = ""
    kind: str = ""
    examples: int = 0  # of train


def tasks_of(data: Path, names: Sequence[str]) -> list[TaskFiles]:
    """The named tasks: of cross_view.toml, or folders of --data; with their kinds and sizes."""
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    return [_read(data, name, known.get(name, {"folder": name})) for name in names]


def _read(data: Path, name: str, about: Mapping[str, Any]) -> TaskFiles:
    folder = data / about["folder"]
    if not folder.is_dir():
        raise RunError(f"{folder} is no folder; --tasks are those of {KNOWN.name}, or of {data}.")
    files = resolved(Data(train=str(folder)))
    splits = {"data.train": files.train, "data.dev": files.dev, "data.test": files.test}
    values = {**splits, **about.get("set", {})}
    own = resolved(replace(load(None, values).data, leaks="drop"))
    train = read_splits(own).train
    return TaskFiles(name, folder, values, about.get("published", ""), own.kind, len(train))


def write_recipe(task: TaskFiles, folder: Path, base: Recipe) -> Path:
    """Writes what several.tasks reads of a task: its files, kind and metric."""
    usual = asdict(Kind())
    kind = {
        f"kind.{name}": value for name, value in asdict(base.kind).items() if value != usual[name]
    }
    recipe = load(None, {**kind, **task.values})
    path = folder / f"{task.name}.toml"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, dump(absolute(recipe)))
    return path
