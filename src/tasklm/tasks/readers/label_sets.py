"""Cells with any number of labels: a list, or a text with marks between the names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasklm.storage.safe_reading import parse_json
from tasklm.tasks.readers.sheets import is_blank
from tasklm.tasks.readers.texts import label_name


class Joined(str):
    """Names in one text, not yet split: which mark separates them is known
    when the file is read.
    """


def label_set(value: Any, column: str, path: Path, line: int) -> tuple[str, ...]:
    """The names in a cell: of a list, or of a text that is not yet split."""
    if isinstance(value, str) and value.strip().startswith("["):
        with contextlib.suppress(ValueError):  # a name may begin with a bracket
            value = parse_json(value)
    if isinstance(value, list | tuple):
        return tuple(label_name(entry, column, path, line) for entry in value)
    if is_blank(value):
        return ()
    return (Joined(label_name(value, column, path, line)),)


def split_names(names: Sequence[str], mark: str) -> tuple[str, ...]:
    """The sorted names, those in one text split at a mark."""
    parts: list[str] = []
    for name in names:
        if isinstance(name, Joined):
            parts += name.split(mark)
        else:
            parts.append(name)
    return tuple(sorted({part.strip() for part in parts if part.strip()}))
