"""Models of several tasks with weights that are nowhere neutral, made without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.models.task_model import ModelDescription, TaskModel, save_models
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump
from tasklm.storage.files import write_json
from tasklm.tasks.baselines.wide_parts import WideParts
from tasklm.tasks.readers.several import JoinedTasks, read_several
from tasklm.tokens.tokenizer import Vocabulary
from tests.encoders.samples import stir
from tests.end_to_end.kind_data import CASES

LENGTH = 32
KINDS = ("classify", "multilabel", "regress", "tag")  # those that share a head
SHAPE = Shape(vocabulary=0, layers=1, width=32, heads=2, feedforward=48, positions=LENGTH)
SPLITS = (("train", 24, 1), ("dev", 12, 2))


def write_tasks(folder: Path, kinds: Sequence[str] = KINDS) -> list[str]:
    """Writes a folder of splits for each kind, called after it, and returns the folders."""
    cases = {case.kind: case for case in CASES}
    for kind in kinds:
        (folder / kind).mkdir(parents=True)
        for split, count, seed in SPLITS:
            path = folder / kind / f"{split}{cases[kind].suffix}"
            cases[kind].write(path, cases[kind].rows(count, seed))
    return [str(folder / kind) for kind in kinds]


def joined_tasks(folder: Path, kinds: Sequence[str] = KINDS) -> tuple[Recipe, JoinedTasks]:
    """Several tasks, read from files that are written here, and their recipe."""
    recipe = Recipe().changed(several={"tasks": write_tasks(folder, kinds)}, data={"leaks": "keep"})
    return recipe, read_several(recipe)


def several_run(
    folder: Path,
    vocabulary: Vocabulary,
    kinds: Sequence[str] = KINDS,
    *,
    encoder: str = "bert",
    wide: bool = True,
    models: int = 1,
    embedding: int = 0,
    names: Sequence[str] = (),
) -> Path:
    """Writes a model of several tasks, called after their kinds, with the recipe of its run.

    `names`: other names of the tasks.
    """
    recipe, read = joined_tasks(folder / "data", kinds)
    if names:
        entries = zip(names, recipe.several.tasks, strict=True)
        recipe = recipe.changed(several={"tasks": [f"{name}={path}" for name, path in entries]})
        read = read_several(recipe)
    task, splits = read.task, read.splits
    torch.manual_seed(3)
    shape = replace(SHAPE, vocabulary=len(vocabulary), embedding=embedding)
    fitted = task.fit_wide(splits.train, splits.dev, "mean") if wide else None
    networks = []
    for _ in range(models):
        body = ENCODERS.get(encoder)(shape)
        head = task.head(shape.width, 0.0, body.normed_heads)
        networks.append(TaskModel(body, head, fitted is not None))
        stir(networks[-1])
    assert fitted is None or isinstance(fitted.wide, WideParts)
    described = ModelDescription(encoder, shape, task, vocabulary, LENGTH)
    about = {"metric": "mean", "dev": 0.5, "seed": 1, "test": None}
    save_models(
        folder / "model", described, networks, about, None if fitted is None else fitted.wide
    )
    (folder / "recipe.toml").write_text(dump(recipe), encoding="utf-8")
    write_json(folder / "manifest.json", {})
    return folder
