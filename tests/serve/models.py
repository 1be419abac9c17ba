"""Models of every kind with random weights, made in a moment."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from tasklm.encoders.base import Shape
from tasklm.models.task_model import ModelDescription, TaskModel, new_encoder, save_models
from tasklm.recipe.data_sections import Data, Kind
from tasklm.serve.engines import NEEDED
from tasklm.tasks.base import TASKS
from tasklm.tokens.tokenizer import Vocabulary
from tests.end_to_end.kind_data import CASES

BY_KIND = {case.kind: case for case in CASES}
LENGTH = 32


def need_onnx() -> None:
    """Skips a test where a package of the ONNX engine is missing, without importing any of them."""
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


def random_model(folder: Path, kind: str, vocabulary: Vocabulary) -> Path:
    """Writes a model of a kind, for the labels of a small data set, and returns its folder."""
    case = BY_KIND[kind]
    folder.mkdir(parents=True)
    examples, _ = TASKS.get(kind).read(
        case.write(folder / f"train{case.suffix}", case.rows(24, 1)), Data()
    )
    task = TASKS.get(kind).from_examples(examples, Kind())
    shape = Shape(len(vocabulary), 1, 32, 2, 64, LENGTH)
    torch.manual_seed(1)
    model = TaskModel(new_encoder("bert", shape), task.head(shape.width, 0.0))
    for weight in (
        model.parameters()
    ):  # larger than they begin: answers that do not depend on the text would hide mistakes
        torch.nn.init.normal_(weight, std=0.3)
    save_models(
        folder / "model",
        ModelDescription("bert", shape, task, vocabulary, LENGTH),
        [model],
        {"metric": task.metrics[0]},
    )
    return folder / "model"


def random_run(folder: Path, kind: str, vocabulary: Vocabulary) -> Path:
    """Writes a model as `random_model`, with a recipe beside it that names its training file;
    returns the folder of both.
    """
    random_model(folder, kind, vocabulary)
    train = json.dumps(str(folder / f"train{BY_KIND[kind].suffix}"))
    (folder / "recipe.toml").write_text(
        f"[data]\ntrain = {train}\ndev = {train}\n", encoding="utf-8"
    )
    (folder / "manifest.json").touch()
    return folder
