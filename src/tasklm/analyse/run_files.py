"""What a finished run left on disk that its pages show: its learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasklm.runs import read_json

NAMES = {"step": "step", "rate": "learning rate", "dev": "dev score"}


def curves_of(stage1: Path, seeds: Sequence[Path]) -> list[dict[str, Any]]:
    """Returns the points of all learning curves, under names that a person reads."""
    points = [{"stage": "stage 1", **_named(point)} for point in read_json(stage1 / "curve.json")]
    for number, seed in enumerate(seeds, start=1):
        points += [{"stage": "stage 2", "seed": number, **_named(point)} for point in read_json(seed / "curve.json")]
    return points


def _named(point: dict[str, float]) -> dict[str, float]:
    return {NAMES.get(name, f"loss: {name}"): value for name, value in point.items()}
