"""What more labels would bring, for the report of a run: measured in a small share of its time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasklm.errors import DataError
from tasklm.forecasting.growth import growth_of
from tasklm.pipeline.context import Run, TaskData
from tasklm.storage.files import digest, read_json, write_text
from tasklm.tasks.several import members_of

FORMAT = 1  # part of the key: raise it when the measurement changes
NAME = "growth"
SHARE = 0.02  # of the run's time
LEAST, MOST = 3.0, 45.0  # seconds
SKIPPED = "skipped"


def label_growth(run: Run, task: TaskData) -> dict[str, Any]:
    """What more labels would bring, as `Growth.to_dict`, or under "skipped" why that is not known.

    It is measured once: a run that is continued keeps what it has.
    """

    def build(folder: Path) -> None:
        values = _measured(run, task)
        write_text(folder / "growth.json", json.dumps(values, ensure_ascii=False) + "\n")

    key = digest([NAME, FORMAT, task.key, task.metric])
    values: dict[str, Any] = read_json(run.artefacts.build(NAME, key, build) / "growth.json")
    return values


def _measured(run: Run, task: TaskData) -> dict[str, Any]:
    if members_of(task.task):
        return {SKIPPED: "several tasks have no learning curve in common; forecast each by itself"}
    seconds = min(MOST, SHARE * run.seconds(), _left(run))
    if seconds < LEAST:
        takes = f"it takes at least {LEAST:g} seconds, more than {SHARE:.0%} of the run's time"
        return {SKIPPED: f"{takes} or than is left of it; `tasklm forecast` measures it"}
    with run.tracker.progress("measuring what more labels would bring"):
        try:
            growth = growth_of(task.task, task.splits, task.metric, seconds)
        except DataError as error:
            return {SKIPPED: error.problem}
    run.tracker.say(growth.sentence(), "labels")
    return growth.to_dict()


def _left(run: Run) -> float:
    """The seconds that a budget in minutes leaves for this: half of what is not spent."""
    minutes = run.recipe.budget.minutes
    return MOST if minutes is None else (60 * minutes - run.seconds()) / 2
