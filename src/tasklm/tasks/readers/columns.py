"""The columns of a table: as named in the recipe, or by usual names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

from tasklm.corpus.tables import listed, missing_column
from tasklm.errors import DataError
from tasklm.tasks.readers.folders import table_rows

PEEK = 1000  # rows that are searched for columns


def needs_columns(what: str) -> DataError:
    """The error for a single text if the kind of task needs more."""
    remedy = (
        "Give a file with the columns of the training "
        "data, or a JSON object with them: '{\"question\": …}'."
    )
    return DataError(f"this task needs {what}, not a single text", remedy=remedy)


def column_names(path: Path) -> list[str]:
    """The names of a table's columns, as far as its first rows have them."""
    rows = islice(table_rows(path, left_out=[]), PEEK)
    return list(dict.fromkeys(chain.from_iterable(row.values for row in rows)))


def named_columns(
    path: Path, given: str, usual: Sequence[Sequence[str]], setting: str
) -> list[str]:
    """One column for each list of usual names: those `given`, separated by commas, or the first
    usual name that the table has.

    `setting` is the key of [data] that names them, for the error if they are not found.
    """
    names = column_names(path)
    if given:
        columns = [name.strip() for name in given.split(",")]
        for name in columns:
            if name not in names:
                raise missing_column(path, name, names)
        if len(columns) != len(usual):
            order = ", ".join(known[0] for known in usual)
            raise DataError(
                f"data.{setting} = {given!r} names {len(columns)} columns instead of {len(usual)}",
                file=path,
                line=1,
                remedy=f"Name them separated by commas, in the order {order}.",
            )
        return columns
    lower = {name.lower(): name for name in reversed(names)}
    columns = [next((lower[name] for name in known if name in lower), "") for known in usual]
    for known, name in zip(usual, columns, strict=True):
        if not name:
            raise DataError(
                f"no column is called {' or '.join(map(repr, known))}; "
                f"the columns are {listed(names)}",
                file=path,
                line=1,
                remedy=(
                    f"Name the column with --{setting.replace('_', '-')} (recipe: data.{setting})."
                ),
            )
    return columns
