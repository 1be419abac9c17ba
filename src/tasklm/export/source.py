"""What is exported: the model of a run or of a folder by itself, and what the run knows about it; and the folder it goes to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasklm.encoders.base import Shape
from tasklm.errors import RunError
from tasklm.evaluate.scores import Scores, from_dict
from tasklm.export.onnx_model import RECORD
from tasklm.recipe import Recipe
from tasklm.recipe_files import load
from tasklm.runs import full_disk_is_clear, make_folder, read_json
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.reading import read_splits
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.model import TaskModel, load_model


@dataclass(frozen=True)
class Source:
    """A trained model on the CPU in fp32, and its run where it has one."""

    name: str  # for people: that of the run, or of the model's folder
    model: TaskModel
    task: Task
    vocabulary: Vocabulary
    config: dict[str, Any]
    run: Path | None

    @property
    def encoder(self) -> str:
        """Returns the name of the encoder's architecture."""
        return str(self.config["encoder"])

    @property
    def shape(self) -> Shape:
        """Returns the shape of the encoder."""
        return Shape(**self.config["shape"])

    @property
    def length(self) -> int:
        """Returns the number of tokens that a row has at most."""
        return int(self.config["length"])

    @property
    def has_segments(self) -> bool:
        """Returns whether the encoder tells the two texts of a pair apart."""
        return hasattr(self.model.encoder, "segment")

    def recipe(self) -> Recipe | None:
        """Returns the recipe of the run; None for a model by itself."""
        return None if self.run is None else load(self.run / "recipe.toml")

    def scores(self) -> Scores | None:
        """Returns the score table of the run; None where there is none."""
        path = None if self.run is None else self.run / "scores.json"
        return from_dict(read_json(path)) if path is not None and path.exists() else None

    def dev(self) -> list[Example] | None:
        """Returns the dev examples of the run, read again from its files; None for a model by itself."""
        recipe = self.recipe()
        if recipe is None:
            return None
        splits = read_splits(recipe.data)
        if TASKS.get(self.task.kind).from_examples(splits.train, recipe.kind).labels != self.task.labels:
            problem = f"the labels of {splits.train[0].file} are not those of the model in {self.run}: the file has changed since"
            raise RunError(f"{problem}. Put the old file back, or export the folder of the model by itself, whose loss is not measured.")
        return splits.dev


def open_source(where: Path) -> Source:
    """Returns the model of a run folder, of the folder `model` in it, or of a folder that was copied from there."""
    if not where.is_dir():
        raise RunError(f"there is no folder {where}. Give the folder of a finished run, such as runs/first, or of a model.")
    if (where / RECORD).exists():
        raise RunError(f"{where} was exported already. Give the folder of the run that it comes from, or of its model.")
    is_run = (where / "recipe.toml").exists()
    if is_run and not (where / "model" / "config.json").exists():
        raise RunError(f"{where} has no trained model yet. Finish the run: tasklm evaluate {where}")
    folder = (where / "model" if is_run else where).resolve()
    run = folder.parent if folder.name == "model" and (folder.parent / "recipe.toml").exists() else None
    model, task, vocabulary, config = load_model(folder, torch.device("cpu"))
    return Source((run or folder).name, model, task, vocabulary, config, run)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Gives a folder to write into, which becomes `out` when all is written; after an error nothing is left of it.

    `out` must not exist, or be an empty folder.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise RunError(f"{out} exists already and is not an empty folder. Choose a new one with --out.")
    target = out.absolute()
    make_folder(target.parent)
    partial = target.parent / f".{target.name}.{os.getpid()}.partial"
    with full_disk_is_clear(target):
        partial.mkdir()
        try:
            yield partial
            partial.replace(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
