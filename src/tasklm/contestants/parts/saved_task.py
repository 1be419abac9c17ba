"""A task as tuned on dev, in the folder of a model."""

from __future__ import annotations

from pathlib import Path

from tasklm.storage.files import read_json, write_json
from tasklm.tasks.base import TASKS, Task

FILE = "task.json"


def write_task(folder: Path, task: Task) -> None:
    """Writes what a model must know about its task."""
    write_json(folder / FILE, task.to_dict())


def read_task(folder: Path) -> Task:
    """The task that `write_task` described."""
    values = read_json(folder / FILE)
    return TASKS.get(values["kind"]).from_dict(values)
