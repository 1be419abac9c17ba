"""The learning curves of a finished run, read from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasklm.run_folder import CURVE, DEV_OF, ON_TRAIN, Seed, seed_title, trainings_of
from tasklm.storage.files import read_json

NAMES = {"step": "step", "rate": "learning rate", "dev": "dev score", ON_TRAIN: ON_TRAIN}


def curves_of(seeds: Sequence[Seed]) -> list[dict[str, Any]]:
    """The points of all learning curves, under readable names; "seed" tells several apart."""
    trainings = {seed.stage1: seed.training for seed in seeds}
    points = []
    for number, folder in trainings.items():
        of = {"stage": "stage 1"}
        if trainings_of(seeds) > 1:
            of["seed"] = str(number)
        points += _points(folder, of)
    for seed in seeds:
        title = seed_title(seed, seeds).removeprefix("seed ")
        points += _points(seed.folder, {"stage": "stage 2", "seed": title})
    return points


def _points(folder: Path, of: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**of, **_named(point)} for point in read_json(folder / CURVE)]


def _named(point: dict[str, float]) -> dict[str, float]:
    return {_name(name): value for name, value in point.items()}


def _name(name: str) -> str:
    if name.startswith(DEV_OF):
        return f"score of {name.removeprefix(DEV_OF)} on dev"
    return NAMES.get(name, f"loss: {name}")
