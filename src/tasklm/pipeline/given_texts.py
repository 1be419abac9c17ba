"""Training data that a program passes in: files by name, or texts and labels, which are written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.errors import DataError, RecipeError
from tasklm.storage.files import write_text
from tasklm.storage.safe_reading import whole_text


def data_keys(
    train: Any, labels: Any, held_out: Mapping[str, str | Path | None], folder: Path
) -> dict[str, Any]:
    """The recipe keys of labelled data: a file, several by the names of their tasks, or texts.

    `held_out`: the files dev and test, if given. Texts and labels are written to the folder.
    """
    files = {f"data.{split}": str(path) for split, path in held_out.items() if path}
    if not isinstance(train, Mapping):
        return {"data.train": _train_file(train, labels, folder), **files}
    if labels is not None or files:
        problem = "labels, dev and test are for one task"
        raise RecipeError([f"{problem}; give each of several tasks as a folder of its splits"])
    return {"several.tasks": [f"{name}={path}" for name, path in train.items()]}


def _train_file(train: Any, labels: Sequence[Any] | None, folder: Path) -> str:
    """The training file; texts and labels are written to one in a folder."""
    if isinstance(train, (str, Path)) and labels is None:
        return str(train)
    if labels is None:
        raise DataError(
            "there are texts but no labels",
            remedy="Call fit(texts, labels) or fit('train.csv').",
        )
    texts = list(train)
    if len(texts) != len(labels):
        raise DataError(
            f"there are {len(texts)} texts but {len(labels)} labels",
            remedy="Give one label per text.",
        )
    rows = (
        json.dumps(_row(text, label), ensure_ascii=False)
        for text, label in zip(texts, labels, strict=True)
    )
    path = folder / "inputs" / "train.jsonl"
    write_text(path, "\n".join(rows) + "\n")
    return str(path)


def _row(text: Any, label: Any) -> dict[str, Any]:
    """A row of training data: one text or a pair, and one label or several."""
    if isinstance(text, Mapping):
        raise DataError(
            "fit accepts rows with columns only from a file",
            remedy="Write them to a file, such as train.jsonl, and call fit with it.",
        )
    pair = isinstance(text, tuple | list | np.ndarray)
    if pair and len(text) != 2:
        raise DataError(
            f"a pair has two texts, not {len(text)}",
            remedy="Give pairs such as (one, other), or single texts.",
        )
    several = isinstance(label, tuple | list | set | np.ndarray)
    texts = {"text_a": str(text[0]), "text_b": str(text[1])} if pair else {"text": str(text)}
    row = {**texts, "label": sorted(map(str, label)) if several else str(label)}
    return {
        name: [whole_text(part) for part in value] if isinstance(value, list) else whole_text(value)
        for name, value in row.items()
    }
