"""Labelled files in: which columns hold the text and the label, labels as names, and the three splits."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tasklm.corpus.dedupe import text_key
from tasklm.corpus.sources import PLAIN, as_text, mean_length
from tasklm.corpus.tables import TABLES, Row, kind_of, missing_column, read_lines, read_rows
from tasklm.errors import DataError
from tasklm.recipe import Data
from tasklm.tasks.examples import Example, Splits

LABEL_NAMES = ("label", "labels", "class", "category", "target", "y", "gold_label", "gold", "sentiment", "topic", "intent")
TEXT_NAMES = ("text", "sentence", "content", "document", "passage", "body", "review", "utterance", "tweet", "comment")
_PEEK = 1000  # rows in which columns are looked for
_NAME_THEM = "Name them with --text-column and --label-column (recipe: data.text_column, data.label_column)."


@dataclass(frozen=True)
class Columns:
    """Where text and label were found; `label` is empty where none was asked for."""

    text: str
    label: str


FOLDERS = Columns("(the files)", "(their folders)")


def read_examples(path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], Columns]:
    """Returns the examples of a table, or of a folder with one sub-folder of text files per label, and their columns.

    Rows without text are left out with their label. When no labels are asked for, all rows stay, so that there is one
    prediction for each, and a plain text file gives one example per line.
    """
    examples, columns, _ = _read(path, data, labelled)
    return examples, columns


def read_splits(data: Data) -> Splits:
    """Returns train, dev and test; without a dev file a share of train is held out. Notes say what was found and changed."""
    if not data.train:
        raise DataError("there is no training file", file="data.train", remedy="Name one: tasklm fit TRAIN, or data.train in the recipe.")
    notes: list[str] = []
    train, columns = _split("train", data.train, data, notes)
    same = data if columns == FOLDERS else dataclasses.replace(data, text_column=columns.text, label_column=columns.label)
    dev = _split("dev", data.dev, same, notes)[0] if data.dev else []
    test = _split("test", data.test, same, notes)[0] if data.test else []
    _require_classes(train, data.train)
    if data.leaks == "drop":
        train, dev = _without_leaks(train, dev, test, data, notes)
    if not data.dev:
        train, dev = _held_out(train, data)
        notes.append(f"dev: {len(dev):,} examples held out of train, which keeps {len(train):,}; equal texts stay together")
    _require_known_labels(train, {"dev": dev, "test": test}, data)
    return Splits(train, dev, test, notes)


def _split(name: str, path: str, data: Data, notes: list[str]) -> tuple[list[Example], Columns]:
    examples, columns, dropped = _read(Path(path).expanduser(), data, labelled=True)
    notes.append(f"{name}: text column {columns.text!r}, label column {columns.label!r}")
    notes.append(f"{name}: {len(examples):,} examples, {len({example.label for example in examples}):,} labels")
    if dropped:
        shown = ", ".join(map(str, dropped[:5])) + (" …" if len(dropped) > 5 else "")
        notes.append(
            f"{name}: {len(dropped):,} {'row' if len(dropped) == 1 else 'rows'} without text left out "
            f"({'line' if len(dropped) == 1 else 'lines'} {shown})"
        )
    return examples, columns


def _read(path: Path, data: Data, labelled: bool) -> tuple[list[Example], Columns, list[int]]:
    """Returns examples, columns and the lines that were left out since they have no text."""
    examples: list[Example]
    dropped: list[int]
    if path.is_dir():
        examples, columns, dropped = _read_folder(path, labelled), FOLDERS, []
    elif kind_of(path) in PLAIN and not labelled:
        lines = enumerate(read_lines(path), 1)
        return [Example((line.rstrip("\r\n"),), None, str(path), number) for number, line in lines], Columns("(lines)", ""), []
    elif kind_of(path) in PLAIN:
        raise DataError(
            "a plain text file has no labels",
            file=path,
            line=1,
            remedy=(f"Use a table ({', '.join(TABLES)}) with columns for text and label, or a folder with a sub-folder per label."),
        )
    else:
        rows = list(islice(read_rows(path), _PEEK))
        columns = _find_columns(path, data, rows, labelled)
        examples, dropped = _read_table(path, columns, labelled)
    if not examples:
        raise DataError("no row has a text", file=path, line=1, remedy=f"Is {columns.text!r} the column with the text? {_NAME_THEM}")
    return examples, columns, dropped


def _read_folder(folder: Path, labelled: bool) -> list[Example]:
    places = sorted(path for path in folder.rglob("*") if kind_of(path) in PLAIN and not path.name.startswith("."))
    examples = []
    for path in places:
        if labelled and path.parent.parent != folder:
            raise DataError(
                "a text file stands outside the labels' folders",
                file=path,
                line=1,
                remedy="Put text files into one sub-folder per label: FOLDER/LABEL/FILE.txt.",
            )
        text = "".join(read_lines(path))
        if text.strip() or not labelled:
            examples.append(Example((text,), path.parent.name if labelled else None, str(path), 1))
    if not examples:
        raise DataError(
            "the folder holds no text files", file=folder, remedy="Put .txt files into one sub-folder per label, or name a table."
        )
    return examples


def _read_table(path: Path, columns: Columns, labelled: bool) -> tuple[list[Example], list[int]]:
    examples, dropped = [], []
    wanted = [columns.text, columns.label] if labelled else [columns.text]
    for row in read_rows(path, wanted):
        text = as_text(row.values[columns.text], columns.text, path, row.line)
        if labelled and not text.strip():
            dropped.append(row.line)
            continue
        label = _label(row.values[columns.label], columns.label, path, row.line) if labelled else None
        examples.append(Example((text,), label, str(path), row.line))
    return examples, dropped


def _label(value: Any, column: str, path: Path, line: int) -> str:
    """Returns the label as a name: the whole number 1, the float 1.0 and the text '1.0' are all '1'."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, str) and value.strip() and value.strip().lower() != "nan":
        name = value.strip()
        return name.partition(".")[0] if re.fullmatch(r"[+-]?\d+\.0+", name) else name
    if value is None or isinstance(value, str | float):
        what = "empty" if value is None or not str(value).strip() else f"{value}, not a label"
        raise DataError(
            f"the label in column {column!r} is {what}", file=path, line=line, remedy="Give the row a label, or delete the row."
        )
    raise DataError(
        f"the label in column {column!r} is a {type(value).__name__}",
        file=path,
        line=line,
        remedy="Give each row one label, a text or a number.",
    )


def _find_columns(path: Path, data: Data, rows: Sequence[Row], labelled: bool) -> Columns:
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    for column in (data.text_column, data.label_column if labelled else ""):
        if column and column not in names:
            raise missing_column(path, column, names)
    label = data.label_column or _by_name(LABEL_NAMES, names, {data.text_column})
    text = data.text_column or _by_name(TEXT_NAMES, names, {label}) or _text_by_shape(path, rows, names, label)
    if not labelled:
        return Columns(text, "")
    label = label or _label_by_shape(path, rows, names, text)
    if text == label:
        raise DataError(f"column {text!r} cannot be both text and label", file=path, line=1, remedy=_NAME_THEM)
    return Columns(text, label)


def _by_name(known: Sequence[str], names: Sequence[str], taken: set[str]) -> str:
    by_lower = {name.lower(): name for name in reversed(names) if name not in taken}
    return next((by_lower[name] for name in known if name in by_lower), "")


def _text_by_shape(path: Path, rows: Sequence[Row], names: Sequence[str], label: str) -> str:
    """Returns the column with by far the longest strings."""
    lengths = sorted(((mean_length(rows, name), name) for name in names if name != label), reverse=True)
    lengths = [entry for entry in lengths if entry[0] > 0]
    listed = ", ".join(map(repr, names))
    if not lengths:
        raise DataError(f"no column holds text; the columns are {listed}", file=path, line=1, remedy=_NAME_THEM)
    if len(lengths) > 1 and lengths[1][0] > lengths[0][0] / 2:
        which = f"{lengths[0][1]!r} or {lengths[1][1]!r}"
        raise DataError(
            f"it is not clear which column holds the text, {which}; the columns are {listed}",
            file=path,
            line=1,
            remedy=_NAME_THEM,
        )
    return lengths[0][1]


def _label_by_shape(path: Path, rows: Sequence[Row], names: Sequence[str], text: str) -> str:
    """Returns the one column with few distinct short values."""
    found = []
    for name in names:
        values = [str(row.values.get(name)) for row in rows]
        distinct = len(set(values))
        if name != text and 2 <= distinct <= min(100, max(2, len(values) // 2)) and sum(map(len, values)) <= 60 * len(values):
            found.append(name)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(map(repr, names))
    problem = (
        "no column looks like labels" if not found else (f"it is not clear which column holds the label, {' or '.join(map(repr, found))}")
    )
    header = "The first line must name the columns. " if kind_of(path) in (".csv", ".tsv") else ""
    raise DataError(f"{problem}; the columns are {listed}", file=path, line=1, remedy=header + _NAME_THEM)


def _require_classes(train: Sequence[Example], file: str) -> None:
    labels = {example.label for example in train}
    if len(labels) == 1:
        raise DataError(
            f"all {len(train):,} examples have the same label, {train[0].label!r}",
            file=file,
            line=train[0].line,
            remedy="Add examples of another label, or name another --label-column (recipe: data.label_column).",
        )


def _require_known_labels(train: Sequence[Example], others: dict[str, list[Example]], data: Data) -> None:
    known = {example.label for example in train}
    for split, examples in others.items():
        strange = [example for example in examples if example.label not in known]
        if strange:
            also = "" if data.leaks != "drop" else " (after examples that stand in two splits were left out of train)"
            problem = f"label {strange[0].label!r} occurs in {split} but not in train{also}"
            raise DataError(
                f"{problem}; {len(strange):,} of {len(examples):,} examples have such labels",
                file=strange[0].file,
                line=strange[0].line,
                remedy="Add training examples with this label, correct it, or delete these rows.",
            )


def _without_leaks(
    train: list[Example], dev: list[Example], test: list[Example], data: Data, notes: list[str]
) -> tuple[list[Example], list[Example]]:
    """Returns train and dev without the examples whose text is scored later."""
    test_keys = {text_key(example.text) for example in test}
    dev_left = [example for example in dev if text_key(example.text) not in test_keys]
    later = test_keys | {text_key(example.text) for example in dev}
    train_left = [example for example in train if text_key(example.text) not in later]
    for name, before, after in (("train", train, train_left), ("dev", dev, dev_left)):
        if len(before) > len(after):
            notes.append(
                f"{name}: {len(before) - len(after):,} examples left out, since they also stand in "
                + ("dev or test" if name == "train" else "test")
            )
        if before and not after:
            raise DataError(
                f"every example of {name} also stands in a later split, so that none is left",
                file=before[0].file,
                line=before[0].line,
                remedy='Split the data again, without overlap (or set data.leaks = "keep").',
            )
    _require_classes(train_left, data.train)
    return train_left, dev_left


def _held_out(train: list[Example], data: Data) -> tuple[list[Example], list[Example]]:
    """Returns train and dev: a share of each label, chosen by the hash of the text, so that the order of rows is no matter."""
    groups: dict[int, list[Example]] = defaultdict(list)  # equal texts go to the same side
    for example in train:
        groups[text_key(example.text)].append(example)
    left = Counter(example.label for example in train)
    wanted = {label: max(round(count * data.dev_share), int(count >= 4)) for label, count in left.items()}
    chosen: set[int] = set()
    for key in sorted(groups):
        labels = Counter(example.label for example in groups[key])
        if all(wanted[label] >= count and left[label] > count for label, count in labels.items()):
            chosen.add(key)
            left.subtract(labels)
            for label, count in labels.items():
                wanted[label] -= count
    if not chosen:
        raise DataError(
            f"the {len(train)} examples are too few to hold out a share of {data.dev_share} as dev",
            file=data.train,
            line=train[0].line,
            remedy="Add examples, or give a dev file with --dev (recipe: data.dev).",
        )
    kept: list[Example] = []
    held: list[Example] = []
    for example in train:
        (held if text_key(example.text) in chosen else kept).append(example)
    return kept, held
