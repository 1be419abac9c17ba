"""The source of an export, a run's model or a model alone, and its destination folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasklm.bill.record import Bill, bill_path, read_bill
from tasklm.coverage.calibration import FILE as CALIBRATION
from tasklm.coverage.calibration import (
    Calibration,
    content_of_model,
    read_calibrations,
    write_calibrations,
)
from tasklm.encoders.base import Shape
from tasklm.errors import RecipeError, RunError
from tasklm.evaluate.scores import Scores, from_dict, of_this_recipe
from tasklm.evaluate.training_data import splits_of
from tasklm.export.onnx_model import COLUMNS, RECORD
from tasklm.models.one_task import alone
from tasklm.models.task_model import LoadedModels, TaskModel, load_model, task_outputs
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import MODEL, SCORES, described_by, find_run, is_run, recipe_of
from tasklm.storage.checksums import files_in, sync_all
from tasklm.storage.files import full_disk_is_clear, make_folder, publish, read_json, sweep
from tasklm.storage.safe_reading import is_there
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.several import columns_of
from tasklm.tasks.several import Several
from tasklm.tokens.batches import TokenBatch
from tasklm.tokens.tokenizer import Vocabulary


@dataclass(frozen=True)
class Source:
    """A trained model on the CPU in fp32, and its run if it has one."""

    name: str  # readable: that of the run, or of the model's folder
    loaded: LoadedModels
    run: Path | None
    one_of: Several | None = None  # the tasks that the model has, where this is one of them
    own_name: str = ""  # … and its name
    dev_of_all: list[Example] = field(default_factory=list)  # of all these tasks, once read
    bill: Bill | None = None  # what the model has read, where that is known
    folder: Path | None = None  # of the model

    def of(self, name: str) -> Source:
        """The source of one of several tasks; raises RecipeError if there is no such task."""
        loaded, task = alone(self.loaded, name), self.task
        assert isinstance(task, Several)
        own = f"{self.name}-{name}"
        return Source(own, loaded, self.run, task, name, self.dev_of_all, self.bill, self.folder)

    @property
    def others(self) -> list[str]:
        """The names of the model's other tasks."""
        if self.one_of is None:
            return []
        return [member.name for member in self.one_of.members if member.name != self.own_name]

    @property
    def model(self) -> TaskModel:
        """The model."""
        return self.loaded.model

    @property
    def task(self) -> Task:
        """The task."""
        return self.loaded.task

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary."""
        return self.loaded.vocabulary

    @property
    def config(self) -> dict[str, Any]:
        """The description in the model's folder."""
        return self.loaded.config

    @property
    def wide(self) -> float | None:
        """The scale of the model's wide part, which is not in the graph; None if it has none."""
        if self.model.wide_scale is None:
            return None
        return float(self.model.wide_scale.detach())

    def network(self, batch: TokenBatch) -> Tensor:
        """The outputs of the network alone."""
        return task_outputs(self.model.encoder, self.model.head, batch)

    @property
    def encoder(self) -> str:
        """The name of the encoder's architecture."""
        return str(self.config["encoder"])

    @property
    def shape(self) -> Shape:
        """The shape of the encoder."""
        return Shape.from_dict(self.config["shape"])

    @property
    def length(self) -> int:
        """The number of tokens that a row has at most."""
        return int(self.config["length"])

    @property
    def metric(self) -> str:
        """The name of the metric that was used to pick the model."""
        return str(self._about("metric", str))

    @property
    def dev_score(self) -> float:
        """The dev score that the model was picked by, as a share of 1."""
        return float(self._about("dev", (int, float)))

    def _about(self, name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        about = self.config.get("about")
        value = about.get(name) if isinstance(about, dict) else None
        if not isinstance(value, kind):
            problem = f"the config.json of {self.name} lacks its {name}"
            raise RunError(f"{problem}. Copy the model again from where it was trained.")
        return value

    @property
    def has_segments(self) -> bool:
        """Whether the encoder distinguishes the two texts of a pair."""
        return hasattr(self.model.encoder, "segment")

    def recipe(self) -> Recipe | None:
        """The recipe of the run; None for a model alone."""
        return None if self.run is None else recipe_of(self.run)

    def columns(self) -> dict[str, str]:
        """The keys of `recipe.Data` for columns of rows, with their values in the run's recipe."""
        recipe = self.recipe()
        if recipe is None:
            return {}
        if self.own_name:
            return _set_columns(columns_of(recipe).get(self.own_name, recipe.data))
        return _set_columns(recipe.data)

    def columns_by_task(self) -> dict[str, dict[str, str]]:
        """The same of each task, where the model has several."""
        recipe = self.recipe()
        if recipe is None or not isinstance(self.task, Several):
            return {}
        return {name: _set_columns(data) for name, data in columns_of(recipe).items()}

    def calibrations(self) -> dict[str, Calibration]:
        """What dev said of the model, by the names of its tasks; none for one of an earlier
        version.
        """
        if self.folder is None or not is_there(self.folder / CALIBRATION):
            return {}
        every = read_calibrations(self.folder, content_of_model(self.config))
        own = self.own_name
        return every if not own else {"": every[own]} if own in every else {}

    def copy_calibration(self, folder: Path) -> None:
        """Writes it beside an export, if the model has one."""
        if every := self.calibrations():
            write_calibrations(folder, "", every)

    def scores(self) -> Scores | None:
        """The score table of the run; None if there is none."""
        if self.run is None or not (self.run / SCORES).exists():
            return None
        scores = from_dict(read_json(self.run / SCORES))
        if not of_this_recipe(scores, self.run):
            problem = f"the model and the scores in {self.run} come from an earlier recipe"
            raise RunError(f"{problem}. Finish the run: tasklm report {self.run}")
        return scores

    def dev(self) -> list[Example] | None:
        """The dev examples of the run, read again from its files; None for a model alone."""
        if self.run is None:
            return None
        way_out = (
            f"copy {self.run / 'model'} elsewhere and export the copy, without measuring its dev "
            "score."
        )
        if self.one_of is None:
            return splits_of(self.run, self.task, way_out).dev
        if not self.dev_of_all:  # read once for all tasks
            self.dev_of_all.extend(splits_of(self.run, self.one_of, way_out).dev)
        return self.one_of.member(self.own_name).own(self.dev_of_all)


def _set_columns(data: Data) -> dict[str, str]:
    columns = {name: str(getattr(data, name)) for name in COLUMNS}
    return {name: value for name, value in columns.items() if value}


def refuse_recurrent(source: Source, target: str, reason: str) -> None:
    """Raises RecipeError for a Bi-LSTM, which a format cannot hold for this reason."""
    if source.encoder == "bilstm":
        problem = f"--to {target}: the encoder bilstm cannot be exported: {reason}"
        raise RecipeError([f"{problem}. Use tasklm predict or serve, or the model in Python."])


def open_source(where: Path) -> Source:
    """The model of a run folder, of the folder `model` in it, or of a copy of that."""
    if not where.is_dir():
        remedy = "Give the folder of a finished run, such as runs/first, or of a model."
        raise RunError(f"there is no folder {where}. {remedy}")
    if (where / RECORD).exists():
        raise RunError(
            f"{where} is already an export. Give the folder of its run, or of its model."
        )
    if is_run(where) and not (where / MODEL / "config.json").exists():
        raise RunError(f"{where} has no trained model yet. Finish the run: tasklm evaluate {where}")
    folder = (where / MODEL if is_run(where) else where).resolve()
    run = find_run(folder)
    loaded = load_model(folder, torch.device("cpu"))
    bill = None if bill_path(folder) is None else read_bill(folder)
    name = (run or folder).name
    described = None if run is None else described_by(run)
    return Source(name, loaded, described, bill=bill, folder=folder)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that becomes `out` at the end, or is deleted after an error.

    `out` must not exist, or be an empty folder.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise RunError(
            f"{out} already exists and is not an empty folder. Choose a new one with --out."
        )
    target = out.absolute()
    make_folder(target.parent)
    partial = target.parent / f".{target.name}.{os.getpid()}.partial"
    sweep(target.parent)
    with full_disk_is_clear(target):
        partial.mkdir()
        try:
            yield partial
            sync_all(files_in(partial), partial)
            publish(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
