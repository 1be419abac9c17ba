"""Baselines with the linear model that they share with the wide part of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasklm.tasks.base import Label, Task
from tasklm.tasks.examples import Example


def fitted_baselines(
    task: Task, train: Sequence[Example], held: Mapping[str, Sequence[Example]], metric: str
) -> dict[str, dict[str, list[Label]]]:
    """What the baselines predict for each split."""
    fitted = task.fit_wide(train, held.get("dev", ()), metric)
    return task.baselines(train, held, metric, fitted and fitted.wide)
