"""Tables of texts and what to write for them: their columns, and the rows of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tasklm.corpus.sources import PLAIN, as_text
from tasklm.corpus.tables import TABLES, Row, kind_of, listed, missing_column, read_lines
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.columns import PEEK
from tasklm.tasks.readers.folders import table_rows
from tasklm.tasks.readers.sheets import own_columns
from tasklm.tasks.readers.texts import TEXT_NAMES, left_out

SOURCE_NAMES = ("source", "src", "input", "source_text", "input_text")
TARGET_NAMES = (
    "target",
    "tgt",
    "translation",
    "output",
    "target_text",
    "output_text",
    "summary",
    "reference",
)
REFERENCES = "references"  # a column with several right texts, which scores count
FEWEST_ROWS = 10  # by which texts are told from names of classes
NAME_THEM = (
    "Name them with --text-column and --label-column (recipe: data.text_column, "
    "data.label_column): the text to read, and the text to write."
)


@dataclass(frozen=True)
class PairColumns:
    """The columns of the text to read and of the text to write, "" where none is needed."""

    source: str
    target: str
    references: bool = False


def are_texts(values: Sequence[Any]) -> bool:
    """Whether values are texts, not names of classes: nearly all differ, and most are long."""
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    if len(texts) < FEWEST_ROWS or len(texts) < 0.9 * len(values):
        return False
    long = sum(len(text.split()) > 2 or len(text) > 20 for text in texts)
    return len(set(texts)) > 0.7 * len(texts) and 2 * long > len(texts)


def pair_of(rows: Sequence[Row], names: Mapping[str, str]) -> PairColumns | None:
    """The columns of texts to read and to write, by usual names or as the only two; None where a
    table has none. `names`: lower case → as in the table.
    """

    def texts(name: str) -> bool:
        return are_texts([row.values.get(name) for row in rows])

    source = next((names[name] for name in SOURCE_NAMES if name in names), "")
    target = next((names[name] for name in TARGET_NAMES if name in names), "")
    if source and target:
        # a few rows cannot tell; the names do
        few = len(rows) < FEWEST_ROWS and all(
            isinstance(row.values.get(target), str) for row in rows
        )
        if few or texts(target):
            return PairColumns(source, target, REFERENCES in names)
        return None
    both = [name for name in rows[0].values if name in names.values()] if rows else []
    if len(both) == 2 and all(texts(name) for name in both):
        return PairColumns(both[0], both[1])
    return None


def find_pair(path: Path, data: Data, labelled: bool) -> PairColumns:
    """The columns as named in the recipe, by usual names, or the only two of a table."""
    rows = list(islice(table_rows(path, left_out=[]), PEEK))
    names = own_columns(list(dict.fromkeys(chain.from_iterable(row.values for row in rows))))
    for given in (data.text_column, data.label_column * labelled):
        if given and given not in names:
            raise missing_column(path, given, names)
    source, target, lower = data.text_column, data.label_column, {n.lower(): n for n in names}
    source = source or next((lower[n] for n in SOURCE_NAMES if n in lower), "")
    target = target or next((lower[n] for n in TARGET_NAMES if n in lower), "")
    if not labelled:
        source = source or next((lower[n] for n in TEXT_NAMES if n in lower), "")
    others = [name for name in names if name not in (source, target)]
    sides = 1 + (not target and labelled)
    if not source and len(others) == sides and all(_has_texts(rows, name) for name in others):
        source = others.pop(0)
    if not target and len(others) == 1:
        target = others.pop(0)
    if not source or (labelled and (not target or target == source)):
        what = "the text to read" if not source else "the text to write"
        problem = f"no column is known as that of {what}; the columns are {listed(names)}"
        raise DataError(problem, file=path, line=1, remedy=NAME_THEM)
    return PairColumns(source, target * labelled, labelled and REFERENCES in names)


def _has_texts(rows: Sequence[Row], name: str) -> bool:
    return any(isinstance(row.values.get(name), str) for row in rows)


def read_pairs(path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
    """The examples of a table, or of a file of plain lines where no texts to write are needed.

    A labelled example has both texts, and as its label all right ones. Rows without a text on
    either side are left out.
    """
    if kind_of(path) in PLAIN:
        if labelled:
            remedy = f"Use a table ({', '.join(TABLES)}) with a column for each side."
            problem = "a plain text file has no texts to write"
            raise DataError(problem, file=path, line=1, remedy=remedy)
        lines = enumerate(read_lines(path), 1)
        return [Example((text.rstrip("\r\n"),), None, str(path), line) for line, text in lines], []
    columns = find_pair(path, data, labelled)
    wanted = [name for name in (columns.source, columns.target) if name]
    wanted += [REFERENCES] * columns.references
    examples, empty = [], []
    for row in table_rows(path, wanted):
        source = as_text(row.values[columns.source], columns.source, path, row.line)
        if not labelled:
            examples.append(Example((source,), None, str(path), row.line))
            continue
        target = as_text(row.values[columns.target], columns.target, path, row.line)
        if source.strip() and target.strip():
            right = _right(target, row.values.get(REFERENCES), path, row.line)
            examples.append(Example((source, target), right, str(path), row.line))
        else:
            empty.append(row.line)
    if not examples:
        problem = "no row has a text on both sides" if labelled else "no row has a text"
        raise DataError(problem, file=path, line=1, remedy=NAME_THEM)
    note = f"text to read: column {columns.source!r}"
    if labelled:
        note += f", text to write: column {columns.target!r}"
    return examples, [note, *left_out(empty)]


def _right(target: str, references: Any, path: Path, line: int) -> tuple[str, ...]:
    """All right texts of a row, the one to learn first."""
    if references is None:
        return (target,)
    if not isinstance(references, list) or not all(isinstance(one, str) for one in references):
        remedy = "Give a list of texts, or delete the column."
        problem = f"{REFERENCES!r} is not a list of texts"
        raise DataError(problem, file=path, line=line, remedy=remedy)
    return tuple(dict.fromkeys([target, *(one for one in references if one.strip())]))
