"""Checks of a saved task's description: a model folder may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import MOST_JSON

MOST_NAMES = 1_000_000


def of_format(file: Path, version: int, again: str = "Rebuild it.") -> dict[str, Any]:
    """The contents of a JSON file of this format; raises RunError, with the remedy, for another
    format.
    """
    values: dict[str, Any] = read_json(file, MOST_JSON)
    if values.get("format") != version:
        problem = f"{file} has format {values.get('format')!r}, but this version reads {version}"
        raise RunError(f"{problem}. {again}")
    return values


def names_in(values: Mapping[str, Any], key: str) -> list[str]:
    """A list of different names; raises ValueError for anything else."""
    value = values[key]
    if (
        not isinstance(value, list | tuple)
        or not 0 < len(value) <= MOST_NAMES
        or not all(isinstance(name, str) for name in value)
    ):
        raise ValueError(f"{key} of the task is not a list of names")
    if len(set(value)) < len(value):
        raise ValueError(f"{key} of the task repeats a name")
    return list(value)


def whole_in(values: Mapping[str, Any], key: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`; raises ValueError for anything else."""
    value = values[key]
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{key} of the task is not a whole number from {low:,} to {high:,}")
    return value


def number_in(values: Mapping[str, Any], key: str) -> float:
    """A finite number; raises ValueError for anything else."""
    return _finite(values[key], key)


def numbers_in(values: Mapping[str, Any], key: str, count: int) -> list[float]:
    """A list of so many finite numbers; raises ValueError for anything else."""
    value = values[key]
    if not isinstance(value, list | tuple) or len(value) != count:
        raise ValueError(f"{key} of the task is not a list of {count:,} numbers")
    return [_finite(number, key) for number in value]


def text_in(values: Mapping[str, Any], key: str) -> str:
    """A text; raises ValueError for anything else."""
    value = values[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} of the task is not a text")
    return value


def truth_in(values: Mapping[str, Any], key: str) -> bool:
    """A truth value; raises ValueError for anything else."""
    value = values[key]
    if not isinstance(value, bool):
        raise ValueError(f"{key} of the task is neither true nor false")
    return value


def _finite(value: Any, key: str) -> float:
    if type(value) not in (int, float) or not abs(value) < math.inf:
        raise ValueError(f"{key} of the task is not a finite number")
    return float(value)
