"""Folders with the linear model of words alone, as a run leaves them that trained no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from tasklm.encoders.base import Shape
from tasklm.models.task_model import ModelDescription, TaskModel, new_encoder, save_models
from tasklm.tasks.base import Task
from tasklm.tasks.baselines.wide_parts import AnyWide
from tasklm.tasks.examples import Example
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.train.stages import silenced

LENGTH = 32


def write_linear(
    folder: Path, task: Task, wide: AnyWide, vocabulary: Vocabulary, scale: float = 1.0
) -> Path:
    """Writes a linear model beside the smallest network, which is silent; returns the folder."""
    shape = Shape(len(vocabulary), 1, 8, 1, 8, LENGTH)
    encoder = new_encoder("bert", shape)
    model = TaskModel(encoder, silenced(task.head(shape.width, 0.0, encoder.normed_heads)), True)
    assert model.wide_scale is not None
    torch.nn.init.constant_(model.wide_scale, scale)
    about = {"metric": task.metrics[0], "linear": True}
    save_models(
        folder, ModelDescription("bert", shape, task, vocabulary, LENGTH), [model], about, wide
    )
    return folder


def fitted(task: Task, train: Sequence[Example], dev: Sequence[Example]) -> tuple[Task, AnyWide]:
    """The task as dev tunes it, and the linear model of its training examples."""
    wide: AnyWide = task.fit_wide(train, dev, task.metrics[0]).wide
    return task.tuned(dev, *wide.units_with(task, dev, wide.outputs(dev))), wide
