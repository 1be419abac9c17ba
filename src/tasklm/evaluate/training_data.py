"""The labelled files of a finished run, read again; changed files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.errors import DataError, RunError
from tasklm.evaluate.scores import from_dict
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import SCORES, recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Splits
from tasklm.tasks.readers.several import read_several
from tasklm.tasks.readers.splits import read_splits, resolved
from tasklm.tasks.several import member_of, members_of


def splits_of(run: Path, task: Task, way_out: str, name: str = "") -> Splits:
    """The examples of a run, read again from its files; `task` is that of its model.

    `name`: those of one of several tasks, whose own task is given. Raises RunError if labels or
    numbers of examples differ from the run's; `way_out` is the remedy besides restoring the old
    files.
    """
    try:
        whole, splits = _read(recipe_of(run))
    except DataError as error:
        problem = (
            f"the data of {run} can no longer be read ({error.file or 'data'}: {error.problem})"
        )
        raise RunError(f"{problem}. Restore the old files, or {way_out}") from None
    own, file = splits, splits.train[0].file
    if name:
        member = member_of(whole, name)
        own = Splits(member.own(splits.train), member.own(splits.dev), member.own(splits.test))
        whole, file = member.task, own.train[0].file
    if _labels(whole) != _labels(task):
        problem = (
            f"the labels of {file} differ from those of the model in {run}: the file has changed"
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
    return own


def _read(recipe: Recipe) -> tuple[Task, Splits]:
    """The task that the files of a recipe describe, and their examples."""
    if recipe.several.tasks:
        joined = read_several(recipe, audited=False)
        return joined.task, joined.splits
    data = resolved(recipe.data)
    splits = read_splits(data)
    return TASKS.get(data.kind).from_examples(splits.train, recipe.kind), splits


def _labels(task: Task) -> list[list[str]]:
    """The labels of a task, or of each of several."""
    return [task.labels, *(member.task.labels for member in members_of(task))]
