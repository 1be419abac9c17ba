"""The wide part of a run's model: fitted once, for the network, as a baseline, and as the first model that a run has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tasklm.encoders.sizes import shape_of
from tasklm.evaluate.scores import metric_name
from tasklm.manifests import damage_is_clear, load_array
from tasklm.recipe import Model, Tokens
from tasklm.runs import digest
from tasklm.tasks.base import score
from tasklm.tasks.wide import Wide
from tasklm.tokens.tokenizer import train_vocabulary
from tasklm.train.model import TaskModel, new_encoder, save_models
from tasklm.train.stages import silenced
from tasklm.workspace import Run, TaskData

FORMAT = 2  # raise it when another wide part would be fitted
SMALLEST = Model(encoder="bert", size="tiny", layers=1, width=8, heads=1, feedforward=8)
SMALLEST_TYPES, SMALLEST_TEXTS = 300, 20  # of its vocabulary, and texts that this is learnt from


@dataclass(frozen=True)
class FittedPart:
    """A wide part and its outputs for train, (units, outputs), by models that were fitted without them.

    Both are None where the kind of task has none, or its texts hold nothing to learn from.
    """

    wide: Wide | None = None
    train: NDArray[np.float32] | None = None


def fitted_wide(run: Run, task: TaskData) -> FittedPart:
    """The wide part of a task; a comparison takes that of the run that it belongs to."""
    if task.wide is None:
        task.wide = _fitted(run, task)
    part: FittedPart = task.wide
    return part


def _fitted(run: Run, task: TaskData) -> FittedPart:

    def build(folder: Path) -> None:
        with run.tracker.progress("fitting a linear model of words"):
            fitted = task.task.fit_wide(task.splits.train, task.splits.dev, task.metric)
        if fitted is not None:
            fitted.wide.save(folder)
            np.save(folder / "train.npy", fitted.train)

    folder = run.artefacts.build("wide", digest(["wide", FORMAT, task.key, task.metric]), build)
    if not (folder / "wide.json").exists():
        return FittedPart()
    with damage_is_clear(folder / "wide.json"):
        return FittedPart(Wide.load(folder), load_array(folder / "train.npy", np.float32, dimensions=2))


def first_model(run: Run, task: TaskData) -> None:
    """Leaves the linear model in model/ where a run has no model yet, and says so."""
    part = fitted_wide(run, task)
    if part.wide is None or run.artefacts.path("model").exists():
        return
    reached = keep_linear(run, task, part.wide, {})
    run.tracker.say(
        f"model/ has a linear model of words: dev {metric_name(task.metric)} {100 * reached:.1f}; what is better on dev takes its place",
        "first model",
    )


def keep_linear(run: Run, task: TaskData, wide: Wide, about: Mapping[str, Any]) -> float:
    """Makes model/ of the linear model alone, beside the smallest network, which says nothing; gives its score on dev."""
    dev = task.splits.dev
    units, outputs = wide.kept(task.task, dev)
    own = task.task.tuned(dev, units, outputs)
    labels = [own.label_of(answer) for answer in own.answers(dev, units, outputs)]
    reached = score(own.metric(task.metric), [example.label for example in dev], labels)
    length = run.recipe.tokens.rows

    def build(folder: Path) -> None:
        vocabulary = train_vocabulary([task.texts("train")[:SMALLEST_TEXTS]], Tokens(), SMALLEST_TYPES)
        shape = shape_of(SMALLEST, SMALLEST.size, len(vocabulary), length)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same folder, whatever was drawn before
            encoder = new_encoder(SMALLEST.encoder, shape)
            head = silenced(own.head(shape.width, 0.0, encoder.normed_heads))
        model = TaskModel(encoder, head, True)
        values = {"metric": task.metric, "dev": reached, "linear": True, **about}
        save_models(folder, SMALLEST.encoder, shape, [model], own, vocabulary, length, values, wide)

    run.artefacts.build("model", digest(["linear", FORMAT, length, task.key, task.metric, dict(about)]), build)
    return reached
