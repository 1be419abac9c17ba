"""The run folder that a user names, its model, and what that was trained on; without PyTorch where
the model needs none.
"""

from __future__ import annotations

from pathlib import Path

from tasklm.errors import RunError
from tasklm.evaluate.training_data import splits_of
from tasklm.recipe.schema import Hardware
from tasklm.run_folder import MODEL, described_by, find_run, is_run, recipe_of
from tasklm.serve.columns import columns_for
from tasklm.serve.predictor import Predictor
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Example


def run_of(where: Path) -> Path:
    """The run folder given by itself or by the folder `model` or `ensemble` in it."""
    finished = "Give the folder of a finished run, such as runs/first"
    if where.is_file():
        raise RunError(f"{where} is a file. {finished}; tasklm fit creates one.")
    if not where.is_dir():
        raise RunError(
            f"there is no folder {where}. Give the folder of a "
            f"finished run, such as runs/first; tasklm fit creates one."
        )
    run = find_run(where)
    if run is not None and (run / MODEL / "config.json").exists():
        return described_by(run)
    if is_run(where):
        raise RunError(f"{where} has no trained model yet. Finish the run: tasklm evaluate {where}")
    if (where / "config.json").exists():
        problem = f"{where} is only a model: its training data is recorded in its run folder"
        remedy = "Give the folder of the run, such as runs/first, with recipe.toml and model/ in it"
        raise RunError(f"{problem}. {remedy}.")
    raise RunError(f"{where} is not a run folder (no recipe.toml). {finished}.")


def model_of(run: Path) -> Predictor:
    """The model of a run, on as many threads as its recipe sets."""
    recipe = recipe_of(run)
    hardware = Hardware(precision="fp32", threads=recipe.hardware.threads)
    return Predictor(run / MODEL, hardware, columns_for(recipe))


def training_examples(run: Path, task: Task) -> list[Example]:
    """The examples that a run was trained on, read again from its files for its model's task."""
    return splits_of(run, task, f"train again: tasklm report {run}").train
