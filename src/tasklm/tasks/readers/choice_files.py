"""Questions with options, from tables and from RACE's files: one JSON object per article, with its
questions, options and answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tasklm.corpus.sources import PLAIN, as_text
from tasklm.corpus.tables import Row, kind_of, read_lines
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.storage.safe_reading import parse_json
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.columns import column_names, named_columns
from tasklm.tasks.readers.folders import table_rows
from tasklm.tasks.readers.sheets import (
    SheetColumns,
    is_blank,
    is_sheet,
    require_filled,
    unfilled,
)

ARTICLES = ("article", "context", "passage", "ctx", "text")
QUESTIONS = ("question",)
OPTIONS = ("options", "choices", "endings")
ANSWERS = ("answer", "label", "labels", "gold", "answerkey", "correct", "answer_index")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# of a question: every example is computed with as many as the largest has
MOST_OPTIONS = 1000
DIGITS = 9  # of the number of an option, at most


@dataclass(frozen=True)
class _Question:
    texts: tuple[str, ...]  # the texts before the options
    options: tuple[str, ...]
    answer: Any  # as the file has it
    file: Path
    line: int
    blank: bool = False  # in a sheet, without an answer yet


def read_choices(path: Path, data: Data, labelled: bool) -> tuple[list[Example], list[str]]:
    """The examples of a table, of a JSON file of RACE's or of a folder of them, and notes."""
    read, note = _read(path, data, labelled)
    questions = [question for question in read if not question.blank]
    blank = [question.line for question in read if question.blank]
    require_filled(path, data.label_column or ANSWERS[0], len(questions), len(blank))
    by_text = labelled and all(
        isinstance(question.answer, str) and question.answer in question.options
        for question in questions
    )
    examples = []
    for question in questions:
        label = _number(question, by_text) if labelled else None
        texts = (*question.texts, *question.options)
        examples.append(
            Example(texts, label, str(question.file), question.line, options=question.options)
        )
    return examples, [note, *unfilled(blank)]


def _read(path: Path, data: Data, labelled: bool) -> tuple[list[_Question], str]:
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if kind_of(file) in (".json", *PLAIN) and not file.name.startswith(".")
        )
        if not files:
            raise DataError(
                "the folder contains no JSON files",
                file=path,
                remedy="Name a folder with one JSON file per article, or a table.",
            )
        questions: list[_Question] = []
        for file in files:
            questions += _asked(_article(file, required=True), file, 1, labelled)
        return (
            questions,
            f"{len(files):,} articles, one file each, with {len(questions):,} questions",
        )
    if kind_of(path) in (".json", *PLAIN):
        article = _article(path, required=kind_of(path) in PLAIN)
        if article:
            return list(_asked(article, path, 1, labelled)), "an article with its questions"
    first = next(table_rows(path))
    if isinstance(first.values.get("questions"), list):
        rows = list(table_rows(path))
        questions = []
        for row in rows:
            questions += _asked(row.values, path, row.line, labelled)
        return questions, f"{len(rows):,} articles with {len(questions):,} questions"
    return _table(path, data, labelled)


def _article(path: Path, required: bool) -> dict[str, Any]:
    """The article in a file; None if it contains, and may contain, something else."""
    try:
        values = parse_json("".join(read_lines(path)))
    except ValueError:
        values = None
    if isinstance(values, dict) and isinstance(values.get("questions"), list):
        return values
    if required:
        remedy = (
            'Write {"article": "…", "questions": ["…"], '
            '"options": [["…", "…"]], "answers": ["A"]}, as RACE has it.'
        )
        raise DataError(
            "the file is not a JSON object with questions", file=path, line=1, remedy=remedy
        )
    return {}


def _asked(article: dict[str, Any], path: Path, line: int, labelled: bool) -> Iterator[_Question]:
    """Yields the questions about an article."""
    wanted = ["questions", "options"]
    if labelled:
        wanted.append("answers")
    lists = [article.get(name) for name in wanted]
    if not all(isinstance(part, list) and len(part) == len(article["questions"]) for part in lists):
        remedy = f"Give the same number of entries in each of {', '.join(wanted)}."
        raise DataError(
            "the lists of the article are not equally long", file=path, line=line, remedy=remedy
        )
    text = as_text(article.get("article"), "article", path, line)
    answers = article["answers"] if labelled else [None] * len(article["questions"])
    for question, options, answer in zip(
        article["questions"], article["options"], answers, strict=True
    ):
        yield _Question(
            (text, as_text(question, "questions", path, line)),
            _options(options, path, line),
            answer,
            path,
            line,
        )


def sheet_of_choices(path: Path, data: Data) -> SheetColumns:
    """The columns of a training table that a sheet of further questions has; the usual names where
    training data are articles in RACE's layout.
    """
    if path.is_dir() or kind_of(path) in PLAIN or "questions" in column_names(path):
        return SheetColumns((ARTICLES[0], QUESTIONS[0]), ANSWERS[0], OPTIONS[0])
    texts, options = _text_columns(path, data)
    (label,) = named_columns(path, data.label_column, [ANSWERS], "label_column")
    return SheetColumns(tuple(texts), label, options)


def _text_columns(path: Path, data: Data) -> tuple[list[str], str]:
    """The columns of the texts before the options, and that of the options."""
    names = {name.lower() for name in column_names(path)}
    usual = [known for known in (ARTICLES, QUESTIONS) if names.intersection(known)] or [QUESTIONS]
    if data.text_column:
        usual = [ARTICLES, QUESTIONS] if "," in data.text_column else [QUESTIONS]
    texts = named_columns(path, data.text_column, usual, "text_column")
    (options,) = named_columns(path, data.options_column, [OPTIONS], "options_column")
    return texts, options


def _table(path: Path, data: Data, labelled: bool) -> tuple[list[_Question], str]:
    texts, options = _text_columns(path, data)
    note = f"text columns {' and '.join(map(repr, texts))}, options column {options!r}"
    wanted = [*texts, options]
    sheet = labelled and is_sheet(column_names(path))
    if labelled:
        (label,) = named_columns(path, data.label_column, [ANSWERS], "label_column")
        note += f", label column {label!r}"
        wanted.append(label)
    questions = []
    for row in table_rows(path, wanted):
        answer = row.values[label] if labelled else None
        blank = sheet and is_blank(answer)
        cell, answer = _unnamed(row.values[options], answer)
        before, listed = _before(row, texts, path), _options(cell, path, row.line)
        questions.append(_Question(before, listed, answer, path, row.line, blank))
    return questions, note


def _before(row: Row, columns: Sequence[str], path: Path) -> tuple[str, ...]:
    return tuple(as_text(row.values[name], name, path, row.line) for name in columns)


def _unnamed(cell: Any, answer: Any) -> tuple[Any, Any]:
    """The options of a cell as AI2's data sets have them, {"text": […], "label": ["A", …]}, and the
    number of the one named.
    """
    if not isinstance(cell, dict) or not isinstance(cell.get("text"), list):
        return cell, answer
    names = cell.get("label")
    if isinstance(names, list) and answer in names:
        answer = names.index(answer)
    return cell["text"], answer


def _options(value: Any, path: Path, line: int) -> tuple[str, ...]:
    """The texts of a list, or of the text of a JSON list."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            value = None
    if not isinstance(value, list) or len(value) < 2:
        remedy = (
            "Give each question a list of two or more options, "
            'in CSV and TSV as JSON: ["one", "other"].'
        )
        raise DataError(
            "the options are not a list of two or more", file=path, line=line, remedy=remedy
        )
    if len(value) > MOST_OPTIONS:
        raise DataError(
            f"there are {len(value):,} options",
            file=path,
            line=line,
            remedy=f"Give at most {MOST_OPTIONS:,}.",
        )
    return tuple(as_text(option, "options", path, line) for option in value)


def _number(question: _Question, by_text: bool) -> int:
    """The number of the right option. If all answers of a file are texts of options they are read
    as such. Otherwise a letter or a number names the option, and other texts must be one of the
    options.
    """
    answer, count, number = question.answer, len(question.options), -1
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    if by_text:
        number = question.options.index(answer)
    elif isinstance(answer, int) and not isinstance(answer, bool):
        number = answer
    elif isinstance(answer, str):
        text = answer.strip()
        if len(text) == 1 and text.upper() in LETTERS:
            number = LETTERS.index(text.upper())
        elif text.isdecimal() and len(text) <= DIGITS:
            number = int(text)
        else:
            stripped = [option.strip() for option in question.options]
            if text in stripped:
                number = stripped.index(text)
    if not 0 <= number < count:
        options = ", ".join(map(repr, islice(question.options, 6)))
        remedy = (
            f"Write the number of the right option, counted from 0, "
            f"its letter from A to {LETTERS[min(count, 26) - 1]}, or its text."
        )
        raise DataError(
            f"the answer {answer!r} is not one of the {count} options {options}",
            file=question.file,
            line=question.line,
            remedy=remedy,
        )
    return number
