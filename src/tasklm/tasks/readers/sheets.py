"""Sheets of texts to label: tables in the columns of a training file whose labels people fill in.

`tasklm label-next` writes them with two more columns, by which they are recognised: how unsure the
model was, and why the text was chosen. Rows whose label is still blank are left out. In any other
table a blank label is an error, or, where examples have any number of labels, means none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.errors import DataError

DOUBT, REASON = "doubt", "reason"


@dataclass(frozen=True)
class SheetColumns:
    """The columns of a training file that a sheet repeats."""

    texts: tuple[str, ...]
    label: str
    options: str = ""  # of questions with options


def is_sheet(names: Sequence[str]) -> bool:
    """Whether a table with these columns is a sheet of texts to label."""
    return DOUBT in names and REASON in names


def own_columns(names: Sequence[str]) -> list[str]:
    """The columns of a table without those that make it a sheet."""
    if not is_sheet(names):
        return list(names)
    return [name for name in names if name not in (DOUBT, REASON)]


def is_blank(value: Any) -> bool:
    """Whether a cell is empty, or not a number."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and value != value)


def unfilled(lines: Sequence[int]) -> list[str]:
    """The note on rows without a label yet, if there are any."""
    rows = "1 row" if len(lines) == 1 else f"{len(lines):,} rows"
    return [f"{rows} without a label yet left out"] if lines else []


def require_filled(path: Path, label: str, filled: int, blank: int) -> None:
    """Raises a DataError if all labels of a sheet are blank."""
    if blank and not filled:
        raise DataError(
            f"none of the {blank:,} rows has a label yet",
            file=path,
            line=1,
            remedy=f"Fill in the column {label!r}; rows that stay blank are left out.",
        )
