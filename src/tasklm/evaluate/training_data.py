"""The labelled files of a finished run, read again; changed files are refused."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasklm.errors import DataError, RunError
from tasklm.evaluate.scores import from_dict
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import SCORES, recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Splits
from tasklm.tasks.readers.labelled_share import hide_labels, labelled_data
from tasklm.tasks.readers.several import read_several
from tasklm.tasks.readers.splits import resolved
from tasklm.tasks.several import members_of


def splits_of(run: Path, task: Task, way_out: str) -> Splits:
    """The examples of a run, read again from its files; `task` is that of its model.

    Raises RunError if labels or numbers of examples differ from the run's; `way_out` is the remedy
    besides restoring the old files.
    """
    try:
        now, splits = _read(recipe_of(run))
    except DataError as error:
        problem = (
            f"the data of {run} can no longer be read ({error.file or 'data'}: {error.problem})"
        )
        raise RunError(f"{problem}. Restore the old files, or {way_out}") from None
    before_by_name = _labels(task)
    for name, labels in _labels(now).items():
        if labels != before_by_name.get(name):
            file = next(example.file for example in splits.train if example.task == name)
            problem = (
                f"the labels of {file} differ from those of the model in {run}: the file has "
                "changed"
            )
            raise RunError(f"{problem}. Restore the old file, or {way_out}")
    before: dict[str, Any] = {}
    if (run / SCORES).exists():
        before = from_dict(read_json(run / SCORES)).data
    changed = [
        f"{split} has {len(examples):,} examples instead of {before[split]:,}"
        for split, examples in splits.named().items()
        if split in before and before[split] != len(examples)
    ]
    if changed:
        raise RunError(
            f"the files of {run} have changed since it was trained: "
            f"{', '.join(changed)}. Restore the old files, or {way_out}"
        )
    return splits


def _read(recipe: Recipe) -> tuple[Task, Splits]:
    """The task that the files of a recipe describe, and their examples."""
    if recipe.several.tasks:
        joined = read_several(recipe, audited=False)
        hide_labels(joined.task, joined.splits, recipe.data.share)
        return joined.task, joined.splits
    task, splits, _ = labelled_data(recipe.changed(data=asdict(resolved(recipe.data))))
    return task, splits


def _labels(task: Task) -> dict[str, list[str]]:
    """The labels of a task, or of each of several by its name."""
    members = members_of(task)
    if not members:
        return {"": task.labels}
    return {member.name: member.task.labels for member in members}
