"""Writes suggestions as a sheet that a person fills in: CSV, or JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tasklm.errors import RecipeError
from tasklm.labelling.choosing import Suggestion
from tasklm.labelling.suggesting import Suggestions
from tasklm.storage.files import write_text
from tasklm.storage.json_lines import json_line
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.sheets import DOUBT, REASON, SheetColumns

SUFFIXES = (".csv", ".jsonl")


def require_format(path: Path | None) -> None:
    """Raises RecipeError for a file whose suffix names neither CSV nor JSON lines, or that exists:
    somebody may have filled in labels.
    """
    if path is None:
        return
    if path.suffix.lower() not in SUFFIXES:
        raise RecipeError([f"--out {path}: name a file that ends in {' or '.join(SUFFIXES)}"])
    if path.exists():
        raise RecipeError([f"--out {path}: the file exists; name another one"])


def write_sheet(suggestions: Suggestions, path: Path) -> None:
    """Writes the file."""
    write_text(path, "".join(lines_of(suggestions, path.suffix.lower())))


def lines_of(sheet: Suggestions, suffix: str) -> Iterator[str]:
    """Yields the lines of a sheet: the columns of train, the label blank, then doubt and reason."""
    rows = [row_of(one, sheet.columns) for one in sheet.suggestions]
    if suffix == ".jsonl":
        yield from (json_line(row, to_file=True) + "\n" for row in rows)
        return
    names = [*sheet.columns.texts, sheet.columns.options, sheet.columns.label, DOUBT, REASON]
    names = [name for name in names if name]
    yield _csv_line(names)
    for row in rows:
        yield _csv_line([_cell(row.get(name)) for name in names])


def row_of(suggestion: Suggestion, columns: SheetColumns) -> dict[str, Any]:
    """The row of a text to label."""
    example = suggestion.example
    row: dict[str, Any] = dict(zip(_names(example, columns), example.texts, strict=False))
    if example.options:
        row[columns.options] = list(example.options)
    return {
        **row,
        columns.label: None,
        DOUBT: suggestion.doubt,
        REASON: suggestion.reason,
    }


def _names(example: Example, columns: SheetColumns) -> Sequence[str]:
    """The columns of an example's texts; of a question without an article, the last one."""
    before = len(example.texts) - len(example.options)
    return columns.texts[-before:]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
