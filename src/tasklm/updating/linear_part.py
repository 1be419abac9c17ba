"""The update of a model that is the linear one alone: without PyTorch, whose import takes longer
than the fit of a small set.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tasklm.models.saved_model import FORMAT, SavedModel
from tasklm.storage.checksums import files_in, seal
from tasklm.storage.files import ARTEFACT, PARTIAL, write_bytes
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.counted import Counted
from tasklm.tasks.baselines.refitting import Grown, refitted
from tasklm.tasks.baselines.wide import FOLDER, Wide
from tasklm.updating.reading import Base, Grounds
from tasklm.updating.widening import widened

REFIT = "refit"  # the artefact of an update that is its linear model


def refit(base: Base, grounds: Grounds) -> Wide:
    """The linear model of words, fitted to all examples."""
    wide = base.wide
    assert wide is not None
    counted = Counted.load(fitted_before(base))
    grown = Grown(base.task, grounds.task, grounds.splits.train, grounds.fresh, counted)
    again = refitted(wide, grown)
    if again is not None:
        return again
    # of a version that did not keep the setting, or of a kind that is fitted whole
    vectors = getattr(wide.features, "vectors", None)
    own = None if vectors is None else vectors.vectors
    train, dev = grounds.splits.train, grounds.splits.dev
    fitted = grounds.task.fit_wide(train, dev, grounds.metric, own)
    whole = fitted.wide
    assert isinstance(whole, Wide)
    return whole


def fitted_before(base: Base) -> Path:
    """Where the run, or the update before, has its linear model, with what is kept of its fit."""
    if base.number:
        return base.folder / REFIT
    of_text = base.run / "wide-text"
    return of_text if (of_text / "wide.json").exists() else base.run / "wide"


def save_linear(
    folder: Path, saved: SavedModel, task: Task, wide: Wide, about: dict[str, Any]
) -> None:
    """Writes a model folder like that of before, with another linear model and its task."""
    wide.save(folder / FOLDER)
    (path,) = saved.weights
    weights = safetensors.numpy.load_file(require_regular(path))
    silent = widened(weights, saved.task().labels, task.labels)
    write_bytes(folder / path.name, safetensors.numpy.save(silent))
    saved.vocabulary.save(folder / "tokenizer.json")
    write_description(folder, saved, task, about)


def write_description(folder: Path, saved: SavedModel, task: Task, about: dict[str, Any]) -> None:
    """Writes config.json like that of the model before, for another task."""
    same = {name: saved.config[name] for name in ("encoder", "shape", "length")}
    config = {"format": FORMAT, **same, "task": task.to_dict(), "about": about}
    files = files_in(folder, leave_out=("config.json", ARTEFACT, PARTIAL))
    seal(folder / "config.json", json.loads(json.dumps(config)), files)


def scale_of(saved: SavedModel) -> float:
    """What the outputs of the linear model are multiplied by in the model."""
    (path,) = saved.weights
    return float(np.asarray(safetensors.numpy.load_file(require_regular(path))["wide_scale"]))
