"""Detects the kind of task of a file or folder by its layout and columns."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tasklm.corpus.sources import PLAIN
from tasklm.corpus.streams import CHECK_THE_PATH
from tasklm.corpus.tables import TABLES, Row, kind_of, open_text, read_lines
from tasklm.errors import DataError
from tasklm.recipe.image import IMAGE
from tasklm.storage.safe_reading import is_link, is_there, parse_json
from tasklm.tasks.readers.choice_files import ANSWERS, ARTICLES, OPTIONS, QUESTIONS
from tasklm.tasks.readers.columns import PEEK
from tasklm.tasks.readers.folders import COLUMNS, split_files, table_rows
from tasklm.tasks.readers.image_files import holds_images
from tasklm.tasks.readers.sheets import own_columns
from tasklm.tasks.readers.squad import (
    ANSWER_NAMES,
    CONTEXT_NAMES,
    QUESTION_NAMES,
    answers_of,
    is_squad,
)
from tasklm.tasks.readers.text_pairs import pair_of
from tasklm.tasks.readers.texts import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES
from tasklm.tasks.readers.word_rows import HEAD_NAMES, RELATION_NAMES, TAG_NAMES, WORD_NAMES

# share of fractional labels above which they are scores to predict, not class names
NOT_WHOLE = 0.02
FEWEST_TEXTS = 20  # rows needed to tell that labels are texts
_RACE = {"article", "questions", "options", "answers"}
_HEAD = 1 << 20  # characters of a file in which RACE's layout is looked for


@dataclass(frozen=True)
class Recognised:
    """The kind of a task, the columns of its parts, and how it was detected."""

    kind: str
    # "text", "label", "options" → column, or columns with commas between them, as in [data];
    # absent: by layout
    columns: dict[str, str]
    why: str
    # of a folder that has several: train, dev, test …
    splits: dict[str, Path] = field(default_factory=dict)


def recognise(path: Path) -> Recognised:
    """The kind of task of a file or folder; a DataError names the file and the remedy
    if none fits.
    """
    if not is_there(path):
        lost = "there is no such file or folder"
        if is_link(path):
            lost = "the symbolic link is broken or circular"
        raise DataError(lost, file=path, remedy=CHECK_THE_PATH)
    if holds_images(path):
        return Recognised(IMAGE, {}, "PNG or JPEG files, or an archive of arrays")
    if path.is_dir():
        return _folder(path)
    kind = kind_of(path)
    if kind == ".conllu":
        return Recognised("parse", {}, "CoNLL-U, by the file's name")
    if kind in COLUMNS:
        return Recognised("tag", {}, "words and tags in columns, by the file's name")
    if is_squad(path):
        return Recognised("span", {}, "SQuAD's layout: paragraphs with questions")
    if kind in (".json", ".jsonl", *PLAIN, "") and _is_race(path):
        return Recognised(
            "choice", {}, "RACE's layout: an article with questions, options and answers"
        )
    if kind in (".tsv", *PLAIN, "") and _in_columns(path):
        return Recognised(
            "tag", {}, "words and tags in columns, with blank lines between sentences"
        )
    if kind in TABLES:
        return _table(path)
    raise DataError(
        "the kind of task cannot be detected from the file's name or layout",
        file=path,
        line=1,
        remedy=(
            f"Use a table ({', '.join(TABLES)}), SQuAD's JSON, .conllu, .conll, "
            "or a folder with a sub-folder of text files per label."
        ),
    )


def _folder(path: Path) -> Recognised:
    if splits := split_files(path):
        if "train" not in splits:
            listed = ", ".join(f"{name} ({file.name})" for name, file in splits.items())
            raise DataError(
                f"the folder has no training set, only {listed}",
                file=path,
                remedy="Name the files: data.train, data.dev …",
            )
        train = splits["train"]
        recognised = _table(path) if train == path else recognise(train)
        why = f"{train.name}: {recognised.why}"
        return dataclasses.replace(recognised, why=why, splits=splits)
    files = sorted(
        file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")
    )
    if files and _is_race(files[0]):
        return Recognised(
            "choice", {}, "files in RACE's layout: an article with questions, options and answers"
        )
    if files and all(file.parent.parent == path and kind_of(file) in PLAIN for file in files):
        return Recognised("classify", {}, "text files in a sub-folder per label")
    if files and all(kind_of(file) == ".conllu" for file in files):
        return Recognised("parse", {}, "CoNLL-U files")
    raise DataError(
        "the kind of task cannot be detected from the folder's files",
        file=path,
        remedy=(
            "Use train, dev and test files, datasets written by save_to_disk, RACE, or a "
            "sub-folder of text files per label."
        ),
    )


def _is_race(path: Path) -> bool:
    """Whether a file is a JSON object as RACE has them: an article with a list of questions."""
    with open_text(path) as file:
        try:
            values = parse_json(file.readline(_HEAD))
        except ValueError:
            return False
    return (
        isinstance(values, dict)
        and values.keys() >= _RACE
        and isinstance(values["questions"], list)
    )


def _in_columns(path: Path) -> bool:
    """Whether all lines but blank ones have equally many fields, two or more, the last one a tag
    such as O or B-PER.
    """
    lines = [
        line.split()
        for line in islice(read_lines(path), PEEK)
        if not line.startswith(("#", "-DOCSTART-"))
    ]
    rows = [fields for fields in lines if fields]
    if len(rows) == len(lines) or len({len(fields) for fields in rows}) != 1 or len(rows[0]) < 2:
        return False
    return all(re.fullmatch(r"O|[BIESLUM]-\S+", fields[-1]) for fields in rows)


def _table(path: Path) -> Recognised:
    rows = list(islice(table_rows(path, left_out=[]), PEEK))
    names: dict[str, str] = {}
    for row in reversed(rows):  # of names that differ only in case, the first counts
        names.update((name.lower(), name) for name in reversed(own_columns(list(row.values))))
    recognised = _by_words(rows, names) or _choice(rows, names) or _span(path, rows, names)
    return recognised or _pair(rows, names) or _texts(path, rows, names)


def _first(known: Sequence[str], names: Mapping[str, str], taken: Sequence[str] = ()) -> str:
    return next((names[name] for name in known if name in names and names[name] not in taken), "")


def _lists(rows: Sequence[Row], column: str) -> bool:
    """Whether a column holds lists; cells may be empty."""
    values = [row.values.get(column) for row in rows]
    held = [value for value in values if value is not None]
    return bool(held) and all(isinstance(value, list) for value in held)


def _by_words(rows: Sequence[Row], names: Mapping[str, str]) -> Recognised | None:
    tokens = _first(WORD_NAMES, names)
    if not tokens or not _lists(rows, tokens):
        return None
    heads, relations = _first(HEAD_NAMES, names), _first(RELATION_NAMES, names)
    if heads and relations:
        columns = {"text": tokens, "label": f"{heads},{relations}"}
        return Recognised(
            "parse",
            columns,
            f"columns {tokens!r} (words), {heads!r} (heads) and {relations!r} (relations)",
        )
    tags = next(
        (names[name] for name in TAG_NAMES if name in names and _lists(rows, names[name])), ""
    )
    if not tags:
        return None
    return Recognised(
        "tag",
        {"text": tokens, "label": tags},
        f"columns {tokens!r} (words) and {tags!r} (a tag for each)",
    )


def _choice(rows: Sequence[Row], names: Mapping[str, str]) -> Recognised | None:
    options, label = _first(OPTIONS, names), _first(ANSWERS, names)
    texts = [name for known in (ARTICLES, QUESTIONS) if (name := _first(known, names))]
    # AI2's data sets have {"text": […], "label": […]} in a row's cell of choices
    if not (options and label and texts):
        return None
    if not all(isinstance(row.values.get(options), list | dict) for row in rows):
        return None
    columns = {"text": ",".join(texts), "options": options, "label": label}
    listed = ", ".join(map(repr, texts))
    why = f"columns {listed}, {options!r} (a list) and {label!r} (the right one)"
    return Recognised("choice", columns, why)


def _span(path: Path, rows: Sequence[Row], names: Mapping[str, str]) -> Recognised | None:
    question, context = _first(QUESTION_NAMES, names), _first(CONTEXT_NAMES, names)
    answers = _first(ANSWER_NAMES, names)
    if not (question and context and answers):
        return None
    try:
        gold = [(row, answers_of(row.values.get(answers), answers, path, row.line)) for row in rows]
    except DataError:
        return None  # yes and no, or a number: classes of pairs of texts
    given = [(str(row.values.get(context)), pairs) for row, pairs in gold if pairs]
    inside = sum(any(text in passage for text, _ in pairs) for passage, pairs in given)
    if 2 * inside <= len(given):
        return None
    columns = {"text": f"{question},{context}", "label": answers}
    return Recognised(
        "span",
        columns,
        f"columns {question!r}, {context!r} and {answers!r}, which occur in {context!r}",
    )


def _pair(rows: Sequence[Row], names: Mapping[str, str]) -> Recognised | None:
    pair = pair_of(rows, names)
    if pair is None:
        return None
    columns = {"text": pair.source, "label": pair.target}
    return Recognised("translate", columns, f"{pair.source!r} with texts {pair.target!r}")


def _texts(path: Path, rows: Sequence[Row], names: Mapping[str, str]) -> Recognised:
    label = _first(LABEL_NAMES, names)
    pair = next(
        (
            [names[name] for name in known]
            for known in PAIR_NAMES
            if all(name in names and names[name] != label for name in known)
        ),
        [],
    )
    one = _first(TEXT_NAMES, names, [label])
    columns = {"text": ",".join(pair) or one, "label": label}
    texts = " and ".join(map(repr, pair or [one]))
    if not pair and not one:
        texts = "one text"
    values = [row.values.get(label) for row in rows] if label else []
    values = [value for value in values if value is not None]
    if label and _are_texts(values):
        raise DataError(
            f"column {label!r} contains texts, not labels: "
            "nearly every row has a different one of several words",
            file=path,
            line=rows[0].line,
            remedy=(
                "Name the column with the labels with --label-column "
                "(recipe: data.label_column); to learn to write the texts, --data.kind translate."
            ),
        )
    kind, about = _label_kind(values)
    return Recognised(
        kind,
        {role: column for role, column in columns.items() if column},
        f"{texts} with {about}" + f" {label!r}" * bool(label),
    )


def _are_texts(values: Sequence[Any]) -> bool:
    texts = [value for value in values if isinstance(value, str)]
    words = sum(len(text.split()) for text in texts)
    return (
        len(texts) >= FEWEST_TEXTS and len(set(texts)) > 0.9 * len(texts) and words > 4 * len(texts)
    )


def _label_kind(values: Sequence[Any]) -> tuple[str, str]:
    """The kind of task that labels suggest, and their description."""
    if values and all(isinstance(value, list) for value in values):
        return "multilabel", "lists of labels"
    numbers = [_number(value) for value in values]
    fractions = sum(number is not None and not number.is_integer() for number in numbers)
    if None not in numbers and fractions > NOT_WHOLE * len(values):
        return "regress", "numbers"
    return "classify", "labels"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):  # not a number, or one too large for a float
        return None
    if not math.isfinite(number):
        return None
    return number
