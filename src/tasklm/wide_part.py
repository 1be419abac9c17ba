"""The wide part of a run's model: fitted once, for the network and as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasklm.manifests import damage_is_clear, load_array
from tasklm.runs import digest
from tasklm.tasks.wide import Wide
from tasklm.workspace import Run, TaskData

FORMAT = 1  # raise it when another wide part would be fitted


@dataclass(frozen=True)
class FittedPart:
    """A wide part and its outputs for train, (units, outputs), by models that were fitted without them.

    Both are None where the kind of task has none, or its texts hold nothing to learn from.
    """

    wide: Wide | None = None
    train: NDArray[np.float32] | None = None


def fitted_wide(run: Run, task: TaskData) -> FittedPart:
    """The wide part of a task; a comparison takes that of the run that it belongs to."""
    if task.wide is None:
        task.wide = _fitted(run, task)
    part: FittedPart = task.wide
    return part


def _fitted(run: Run, task: TaskData) -> FittedPart:

    def build(folder: Path) -> None:
        with run.tracker.progress("fitting a linear model of words"):
            fitted = task.task.fit_wide(task.splits.train, task.splits.dev, task.metric)
        if fitted is not None:
            fitted.wide.save(folder)
            np.save(folder / "train.npy", fitted.train)

    folder = run.artefacts.build("wide", digest(["wide", FORMAT, task.key, task.metric]), build)
    if not (folder / "wide.json").exists():
        return FittedPart()
    with damage_is_clear(folder / "wide.json"):
        return FittedPart(Wide.load(folder), load_array(folder / "train.npy", np.float32, dimensions=2))
