"""The linear model of words alone, which needs no network: numbers of words, and NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from safetensors import safe_open

from tasklm.models.answering import Loaded, for_one_task, require_finite, require_width
from tasklm.models.saved_model import SavedModel
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.base import Task, Unit
from tasklm.tasks.baselines.wide_parts import load_wide
from tasklm.tasks.several import require_columns, turns_of
from tasklm.tokens.examples import EncodedExamples

SCALE = "wide_scale"  # of its outputs, among the weights of the silent network beside it


@dataclass(frozen=True)
class LinearModel:
    """Answers what a network that is silent leaves to it."""

    loaded: Loaded
    scale: np.float32
    device: ClassVar[str] = "cpu"

    def predictions(self, examples: EncodedExamples) -> list[Any]:
        """What the task keeps of the outputs of each unit."""
        return [self.loaded.task.keep(self._outputs(unit)) for unit in examples.units]

    def predictions_of_all(self, examples: EncodedExamples, inputs: Sequence[int]) -> list[Any]:
        """The same: tasks have nothing in common."""
        return self.predictions(examples)

    def with_task(self, task: Task) -> LinearModel:
        """The same with a task that differs in how answers are searched for."""
        return replace(self, loaded=replace(self.loaded, task=task))

    def alone(self, name: str) -> LinearModel:
        """One of several tasks by itself."""
        return replace(self, loaded=for_one_task(self.loaded, name))

    def _outputs(self, unit: Unit) -> Any:
        added = unit.added()
        if added is None:  # of a task whose texts had nothing to learn from
            return np.zeros((len(unit.places), self.loaded.task.wide_width), np.float32)
        outputs = self.scale * added
        require_finite(outputs)
        return outputs


def load_linear(saved: SavedModel) -> LinearModel:
    """The linear model that a folder describes as all there is (`SavedModel.is_linear`)."""
    with saved.damage_is_clear():
        task, wide = saved.task(), load_wide(saved.folder)
        if wide is None or turns_of(task) or len(saved.weights) > 1:
            raise ValueError("config.json speaks of a linear model, which is not there")
        require_width(wide, task)
        require_columns(wide, task)
        loaded = Loaded(task, saved.vocabulary, saved.config, wide)
        return LinearModel(loaded, _scale_in(saved.weights[0]))


def _scale_in(path: Path) -> np.float32:
    """The scale among the weights of a file; raises ValueError if it is no finite number."""
    with safe_open(require_regular(path), "np") as file:
        scale = file.get_tensor(SCALE)
    if scale.shape or scale.dtype.kind != "f" or not np.isfinite(scale):
        raise ValueError(f"{SCALE} in {path.name} is not a finite number")
    return np.float32(scale)
