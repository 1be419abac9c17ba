"""The recipes of a study's runs: of one task, of several together, and with what other runs give.

Keys of the scale come first, over them those of the study, of a task, of the command line, and of
the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.recipe.schema import Recipe, from_dict, with_overrides
from tasklm.recipe.toml import absolute
from tasklm.studying.study import Keys, Line, Scale, Study

OF_A_TASK = ("data", "kind", "evaluate")  # sections of one of several tasks
# what comes with the stage 1 or the model that a run begins with: no text, no steps, no vocabulary
BEGUN: Keys = {
    "data.corpus": [],
    "train.steps": 0,
    "train.rho1": 0,
    "tokens.kind": "wordpiece",
    "tokens.file": "",
    "tokens.vocabulary": None,
    "tokens.lowercase": None,
    "budget.flops": None,
    "budget.minutes": None,
}


@dataclass(frozen=True)
class Given:
    """What other runs give to one: where it begins, and who teaches it."""

    start: Path | None = None  # a stage 1 or a model
    teachers: Sequence[Path] = ()

    @property
    def keys(self) -> Keys:
        """The keys of the recipe that say so."""
        keys: Keys = {}
        if self.start is not None:
            keys = {**BEGUN, "train.start": str(self.start)}
        if self.teachers:
            keys["distill.teachers"] = [str(folder) for folder in self.teachers]
        return keys


@dataclass(frozen=True)
class Recipes:
    """The recipes of a study at a scale."""

    study: Study
    scale: Scale
    scale_name: str
    overrides: Keys
    everywhere: Keys  # of all runs: corpus, cache

    def of_task(self, line: Line, task: str, data: Path, given: Given) -> Recipe:
        """That of a row on a task by itself."""
        keys = {
            **self._keys(task),
            **self.overrides,
            **line.recipe,
            "data.train": str(data),
            **self.everywhere,
            **given.keys,
        }
        return _recipe(keys)

    def of_several(self, line: Line, files: Mapping[str, Path], given: Given) -> Recipe:
        """That of a row on several tasks, each with a file of its own recipe."""
        together = self.study.together
        keys = {
            **self.scale.recipe,
            **self.study.recipe,
            **self.study.scales.get(self.scale_name, {}),
            **together.get("", {}),
            **together.get(self.scale_name, {}),
            **self.overrides,
            **line.recipe,
            "several.tasks": [f"{task}={file}" for task, file in files.items()],
            **self.everywhere,
            **given.keys,
        }
        return _recipe(keys)

    def of_member(self, line: Line, task: str, data: Path) -> Recipe:
        """How one of several tasks is read and scored."""
        keys = {**self._keys(task), **self.overrides, **line.recipe}
        own = {key: value for key, value in keys.items() if key.split(".")[0] in OF_A_TASK}
        return _recipe({**own, "data.train": str(data)})

    def _keys(self, task: str) -> dict[str, Any]:
        """Of a task, before those of the command line and of a row."""
        study = self.study
        return {
            **self.scale.of(task),
            **study.recipe,
            **study.scales.get(self.scale_name, {}),
            **study.own.get(task, {}),
        }


def _recipe(keys: Mapping[str, Any]) -> Recipe:
    return absolute(from_dict(with_overrides({}, keys)))
