"""One text or a pair of texts per example: their columns, the rows of a file, and their tokens.

Shared by classification, regression and multi-label classification.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tasklm.corpus.sources import PLAIN, as_text, mean_length
from tasklm.corpus.streams import Watch
from tasklm.corpus.tables import SHOWN, TABLES, Row, kind_of, listed, missing_column, read_lines
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.base import Label, Tokeniser, Unit
from tasklm.tasks.examples import Example, first_few
from tasklm.tasks.readers.columns import PEEK
from tasklm.tasks.readers.folders import is_dataset, table_rows
from tasklm.tasks.readers.sheets import (
    SheetColumns,
    is_blank,
    is_sheet,
    own_columns,
    require_filled,
    unfilled,
)

LABEL_NAMES = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "target",
    "y",
    "gold",
    "is_duplicate",
    "quality",
    "score",
    "similarity",
    "sentiment",
    "topic",
    "intent",
    "answer",
)
TEXT_NAMES = (
    "text",
    "sentence",
    "content",
    "document",
    "passage",
    "body",
    "review",
    "utterance",
    "tweet",
    "comment",
)
PAIR_NAMES = (
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
    ("sentence_a", "sentence_b"),
    ("question", "passage"),
    ("question", "context"),
)
NAME_THEM = (
    "Name them with --text-column and --label-column (recipe: "
    "data.text_column, data.label_column; two texts: 'ONE,OTHER')."
)


@dataclass(frozen=True)
class TextColumns:
    """The columns of texts and label; `texts` is empty for a file of plain lines, `label` if none
    is needed.
    """

    texts: tuple[str, ...]
    label: str
    sheet: bool = False  # its rows may be without a label yet

    def note(self) -> str:
        """What was detected, for the user."""
        if not self.texts:
            return "one text per line"
        named = " and ".join(map(repr, self.texts))
        note = f"text columns {named}"
        if len(self.texts) == 1:
            note = f"text column {named}"
        if self.label:
            note += f", label column {self.label!r}"
        return note


def find_columns(
    path: Path, data: Data, labelled: bool = True, label_names: Sequence[str] = LABEL_NAMES
) -> TextColumns:
    """The columns of one text or of a pair, and of the label: as named in the recipe, by usual
    names, or by their contents.
    """
    if kind_of(path) in PLAIN:
        if labelled:
            remedy = f"Use a table ({', '.join(TABLES)}) with columns for text and label."
            raise DataError("a plain text file has no labels", file=path, line=1, remedy=remedy)
        return TextColumns((), "")
    rows = list(islice(table_rows(path, left_out=[]), PEEK))
    table_names = list(dict.fromkeys(chain.from_iterable(row.values for row in rows)))
    names = own_columns(table_names)
    texts = _given_texts(path, data.text_column, names)
    if labelled and data.label_column and data.label_column not in names:
        raise missing_column(path, data.label_column, names)
    label = data.label_column or _by_name(label_names, names, set(texts))
    texts = texts or _pair_by_name(names, label)
    if not texts:
        texts = (_by_name(TEXT_NAMES, names, {label}) or _text_by_shape(path, rows, names, label),)
    if not labelled:
        return TextColumns(texts, "")
    label = label or _label_by_shape(path, rows, names, texts)
    if label in texts:
        raise DataError(
            f"column {label!r} cannot be both text and label", file=path, line=1, remedy=NAME_THEM
        )
    return TextColumns(texts, label, is_sheet(table_names))


def read_texts(
    path: Path,
    data: Data,
    labelled: bool = True,
    columns: TextColumns | None = None,
    watch: Watch | None = None,
) -> Iterator[tuple[tuple[str, ...], Any, int]]:
    """Yields texts (one or two), the label as in the file (None if none is needed) and the line of
    every row.
    """
    columns = columns or find_columns(path, data, labelled)
    if not columns.texts:
        for number, line in enumerate(read_lines(path, watch), 1):
            yield (line.rstrip("\r\n"),), None, number
        return
    wanted = list(columns.texts)
    if labelled:
        wanted.append(columns.label)
    for row in table_rows(path, wanted, watch=watch):
        texts = tuple(as_text(row.values[name], name, path, row.line) for name in columns.texts)
        label = row.values[columns.label] if labelled else None
        yield texts, label, row.line


def read_text_examples(
    path: Path,
    data: Data,
    labelled: bool,
    to_label: Callable[[Any, str, Path, int], Label],
    label_names: Sequence[str] = LABEL_NAMES,
) -> tuple[list[Example], list[str]]:
    """The examples of a file and notes; `to_label` gets the cell, its column, the file and the
    line.

    Labelled rows without any text are skipped, and so are rows of a sheet whose label is still
    blank. If no labels are needed all rows stay, so that each
    gets an answer.
    """
    columns = find_columns(path, data, labelled, label_names)
    examples, dropped, blank = [], [], []
    for texts, value, line in read_texts(path, data, labelled, columns):
        if labelled and not any(text.strip() for text in texts):
            dropped.append(line)
            continue
        if labelled and columns.sheet and is_blank(value):
            blank.append(line)
            continue
        label = to_label(value, columns.label, path, line) if labelled else None
        examples.append(Example(texts, label, str(path), line))
    require_filled(path, columns.label, len(examples), len(blank))
    if not examples and not columns.texts:
        raise DataError("the file is empty", file=path, remedy="Put one text on each line.")
    if not examples:
        which = " and ".join(map(repr, columns.texts))
        raise DataError(
            "no row has a text",
            file=path,
            line=1,
            remedy=f"Does {which} contain the text? {NAME_THEM}",
        )
    return examples, [columns.note(), *left_out(dropped), *unfilled(blank)]


def sheet_of_texts(
    path: Path, data: Data, label_names: Sequence[str] = LABEL_NAMES
) -> SheetColumns:
    """The columns of a training file that a sheet of further texts has; the usual names where the
    file is a folder of texts.
    """
    if path.is_dir() and not is_dataset(path):
        return SheetColumns(TEXT_NAMES[:1], LABEL_NAMES[0])
    columns = find_columns(path, data, True, label_names)
    return SheetColumns(columns.texts, columns.label)


def left_out(lines: Sequence[int]) -> list[str]:
    """The note on rows without text, if there are any."""
    if not lines:
        return []
    if len(lines) == 1:
        return [f"1 row without text left out (line {lines[0]})"]
    return [f"{len(lines):,} rows without text left out (lines {first_few(lines, 5)})"]


def label_name(value: Any, column: str, path: Path, line: int) -> str:
    """The label as a name: the whole number 1, the float 1.0 and the text '1.0' are all '1'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, str) and value.strip() and value.strip().lower() != "nan":
        name = value.strip()
        if re.fullmatch(r"[+-]?\d+\.0+", name):
            return name.partition(".")[0]
        return name
    if value is None or isinstance(value, str | float):
        what = "empty" if value is None or not str(value).strip() else f"{value}, not a label"
        remedy = "Give the row a label, or delete the row."
        raise DataError(
            f"the label in column {column!r} is {what}", file=path, line=line, remedy=remedy
        )
    remedy = "Give each row one label, a text or a number."
    raise DataError(
        f"the label in column {column!r} is a {type(value).__name__}",
        file=path,
        line=line,
        remedy=remedy,
    )


def encode_texts(texts: Sequence[str], tokeniser: Tokeniser, length: int) -> Unit:
    """The row [CLS] a [SEP], or [CLS] a [SEP] b [SEP], in at most `length` tokens: the longest part
    is cut first.
    """
    return joined(cut(tokeniser.encode(texts), length - 1 - len(texts)), tokeniser)


def encode_examples(examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
    """A unit without targets for each example; all texts are tokenised in one call."""
    texts = list(chain.from_iterable(example.texts for example in examples))
    encoded = iter(tokeniser.encode(texts))
    units = []
    for number, example in enumerate(examples):
        parts = list(islice(encoded, len(example.texts)))
        unit = joined(cut(parts, length - 1 - len(parts)), tokeniser)
        unit.example = number
        units.append(unit)
    return units


def joined(parts: Sequence[Sequence[int]], tokeniser: Tokeniser) -> Unit:
    """The row [CLS] part [SEP] part [SEP] …, of which the head reads the first token."""
    tokens = [tokeniser.cls]
    for part in parts:
        tokens += [*part, tokeniser.sep]
    second = len(parts[0]) + 2 if len(parts) > 1 else 0
    return Unit(tokens, [0], None, second)


def cut(parts: Sequence[list[int]], budget: int) -> list[list[int]]:
    """The parts cut to `budget` tokens in total, as if the longest part repeatedly lost its last
    token.
    """
    lengths = [len(part) for part in parts]
    if sum(lengths) <= budget:
        return list(parts)
    left, level = max(budget, 0), 0
    for done, size in enumerate(sorted(lengths)):
        # what the parts not shorter than this one can have, each
        level = left // (len(parts) - done)
        if size > level:
            break
        left -= size
    cut_parts = sum(size > level for size in lengths)
    more = left - level * cut_parts  # the first of these have one token more
    shortened = []
    for part in parts:
        extra = len(part) > level and more > 0
        shortened.append(part[: level + extra])
        more -= extra
    return shortened


def _given_texts(path: Path, given: str, names: Sequence[str]) -> tuple[str, ...]:
    if not given:
        return ()
    if given in names:
        return (given,)
    columns = tuple(name.strip() for name in given.split(","))
    for name in columns:
        if name not in names:
            raise missing_column(path, name, names)
    if len(columns) > 2 or len(set(columns)) < len(columns):
        problem = f"data.text_column = {given!r} must name one column, or two different ones"
        raise DataError(problem, file=path, line=1, remedy="Join further texts to one of the two.")
    return columns


def _by_name(known: Sequence[str], names: Sequence[str], taken: set[str]) -> str:
    by_lower = {name.lower(): name for name in reversed(names) if name not in taken}
    return next((by_lower[name] for name in known if name in by_lower), "")


def _pair_by_name(names: Sequence[str], label: str) -> tuple[str, ...]:
    for one, other in PAIR_NAMES:
        pair = (_by_name((one,), names, {label}), _by_name((other,), names, {label}))
        if all(pair):
            return pair
    return ()


def _text_by_shape(path: Path, rows: Sequence[Row], names: Sequence[str], label: str) -> str:
    """The column with by far the longest strings."""
    lengths = sorted(
        ((mean_length(rows, name), name) for name in names if name != label), reverse=True
    )
    lengths = [entry for entry in lengths if entry[0] > 0]
    if not lengths:
        raise DataError(
            f"no column contains text; the columns are {listed(names)}",
            file=path,
            line=1,
            remedy=NAME_THEM,
        )
    if len(lengths) > 1 and lengths[1][0] > lengths[0][0] / 2:
        which = f"{lengths[0][1]!r} or {lengths[1][1]!r}"
        problem = (
            f"it is unclear which column contains the text, {which}; the columns are "
            f"{listed(names)}"
        )
        raise DataError(problem, file=path, line=1, remedy=NAME_THEM)
    return lengths[0][1]


def _label_by_shape(
    path: Path, rows: Sequence[Row], names: Sequence[str], texts: Sequence[str]
) -> str:
    """The one column with few distinct short values."""
    likely = []
    for name in names:
        values = [str(row.values.get(name)) for row in rows]
        few = 2 <= len(set(values)) <= min(100, max(2, len(values) // 2))
        short = sum(map(len, values)) <= 60 * len(values)
        if name not in texts and few and short:
            likely.append(name)
    if len(likely) == 1:
        return likely[0]
    which = " or ".join(map(repr, likely[:SHOWN]))
    problem = "no column looks like labels"
    if likely:
        problem = f"it is unclear which column contains the label, {which}"
    remedy = NAME_THEM
    if kind_of(path) in (".csv", ".tsv"):
        remedy = f"The first line must name the columns. {NAME_THEM}"
    raise DataError(f"{problem}; the columns are {listed(names)}", file=path, line=1, remedy=remedy)
