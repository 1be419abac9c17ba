"""The labelled files of a finished run, read again; changed files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.errors import DataError, RunError
from tasklm.evaluate.scores import from_dict
from tasklm.run_folder import SCORES, recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Splits
from tasklm.tasks.readers.splits import read_splits


def splits_of(run: Path, task: Task, way_out: str) -> Splits:
    """The examples of a run, read again from its files; `task` is that of its model.

    Raises RunError if labels or numbers of examples differ from the run's; `way_out` is the remedy
    besides restoring the old files.
    """
    recipe = recipe_of(run)
    try:
        splits = read_splits(recipe.data)
    except DataError as error:
        problem = (
            f"the data of {run} can no longer be read ({error.file or 'data'}: {error.problem})"
        )
        raise RunError(f"{problem}. Restore the old files, or {way_out}") from None
    if TASKS.get(task.kind).from_examples(splits.train, recipe.kind).labels != task.labels:
        problem = (
            f"the labels of {splits.train[0].file} differ from those of the model in {run}: the "
            "file has changed"
        )
        raise RunError(f"{problem}. Restore the old file, or {way_out}")
    before: dict[str, Any] = {}
    if (run / SCORES).exists():
        before = from_dict(read_json(run / SCORES)).data
    changed = [
        f"{name} has {len(examples):,} examples instead of {before[name]:,}"
        for name, examples in splits.named().items()
        if name in before and before[name] != len(examples)
    ]
    if changed:
        raise RunError(
            f"the files of {run} have changed since it was trained: "
            f"{', '.join(changed)}. Restore the old files, or {way_out}"
        )
    return splits
