"""Runs with the linear model alone, as `tasklm fit` leaves them without time for a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump, load
from tasklm.storage.files import write_text
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.splits import read_splits, resolved
from tasklm.tokens.tokenizer import Vocabulary
from tests.linear_models import fitted, write_linear


def linear_run(folder: Path, vocabulary: Vocabulary, files: dict[str, Path], **keys: str) -> Path:
    """A run of labelled files, by split; further recipe keys have __ in place of the dot."""
    given: dict[str, Any] = {f"data.{split}": str(file) for split, file in files.items()}
    recipe: Recipe = load(None, given | {key.replace("__", "."): keys[key] for key in keys})
    data = resolved(recipe.data)
    splits = read_splits(data)
    task = TASKS.get(data.kind).from_examples(splits.train, recipe.kind)
    tuned, wide = fitted(task, splits.train, splits.dev)
    write_text(folder / "recipe.toml", dump(recipe))
    write_text(folder / "manifest.json", json.dumps({}))
    write_linear(folder / "model", tuned, wide, vocabulary)
    return folder
