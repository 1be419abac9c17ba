"""Questions on texts, read from SQuAD's JSON or from tables, with the places of their answers
checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tasklm.corpus.sources import as_text
from tasklm.corpus.tables import kind_of, open_text, read_lines
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.storage.safe_reading import parse_json
from tasklm.tasks.examples import Example, first_few
from tasklm.tasks.readers.columns import named_columns
from tasklm.tasks.readers.folders import table_rows

QUESTION_NAMES = ("question", "query")
CONTEXT_NAMES = ("context", "passage", "paragraph", "document", "article", "text")
ANSWER_NAMES = ("answers", "answer", "answer_text", "label")
MISSING = -1  # start of an answer that is not in its text
_HEAD = 1 << 16  # characters of a file in which SQuAD's layout is looked for
_SHOWN = 5

# answers and the characters where they begin; none: the text does not answer the question
Gold = list[tuple[str, int]]


def is_squad(path: Path) -> bool:
    """Whether a file is in SQuAD's layout: one JSON object with articles, their paragraphs, and
    questions on these.
    """
    if kind_of(path) != ".json":
        return False
    with open_text(path) as file:
        try:
            head = file.read(_HEAD)
        except UnicodeDecodeError:
            return False  # the reader of tables reports where
    return bool(
        head.lstrip()[:1] == "{"
        and re.search(r'"data"\s*:\s*\[', head)
        and re.search(r'"paragraphs"\s*:\s*\[', head)
    )


def read_questions(
    path: Path, data: Data, labelled: bool = True
) -> tuple[list[Example], list[str]]:
    """The questions with their texts and answers, and notes.

    `line` of an example from SQuAD's JSON is the question's number.
    """
    if is_squad(path):
        questions, notes = list(_squad_questions(path, labelled)), ["SQuAD's layout"]
    else:
        questions, notes = _table_questions(path, data, labelled)
    examples = [
        Example((question, context), gold, str(path), line)
        for line, question, context, gold in questions
    ]
    empty = [
        example.line for example in examples if not all(text.strip() for text in example.texts)
    ]
    if labelled and empty:
        examples = [example for example in examples if all(text.strip() for text in example.texts)]
        lines = first_few(empty, _SHOWN)
        notes.append(
            f"{len(empty):,} questions without a question or a text left out (lines {lines})"
        )
    if not examples:
        raise DataError(
            "the file has no questions",
            file=path,
            line=1,
            remedy="Give a file with questions and the texts that answer them.",
        )
    if labelled:
        examples = _checked(examples, path, notes)
    return examples, notes


def first_place(gold: Gold) -> tuple[int, int] | None:
    """The (begin, end) of the first answer that occurs in its text; None if none does."""
    return next(((start, start + len(text)) for text, start in gold if start != MISSING), None)


def place_of(answer: str, start: int, context: str) -> int:
    """Where an answer begins: `start` if it is there, else the nearest occurrence, or MISSING."""
    if start >= 0 and context.startswith(answer, start):
        return start
    start = max(start, 0)
    before, after = context.rfind(answer, 0, start + len(answer) - 1), context.find(answer, start)
    if before == MISSING or after == MISSING:
        return max(before, after)
    if start - before <= after - start:
        return before
    return after


def _checked(examples: list[Example], path: Path, notes: list[str]) -> list[Example]:
    """The examples with answers stripped of white space and located in their texts."""
    moved: list[int] = []
    checked = []
    for example in examples:
        gold: Gold = []
        for text, start in example.label:
            answer = text.strip()
            if not answer:
                continue  # an empty text among the answers means that there is none
            begin = start
            if start >= 0:
                begin += len(text) - len(text.lstrip())
            place = place_of(answer, begin, example.texts[1])
            if start >= 0 and place not in (MISSING, begin):
                moved.append(example.line)
            gold.append((answer, place))
        checked.append(Example(example.texts, gold, example.file, example.line))
    unanswerable = sum(not example.label for example in checked)
    notes.append(f"{len(checked):,} questions, {unanswerable:,} of them without an answer")
    if moved:
        lines = first_few(list(dict.fromkeys(moved)), _SHOWN)
        notes.append(
            f"{len(moved):,} answers were not at their offset "
            f"and were found elsewhere (lines {lines})"
        )
    return checked


def _squad_questions(path: Path, labelled: bool) -> Iterator[tuple[int, str, str, Gold | None]]:
    """Yields number, question, text and answers."""
    content = "".join(read_lines(path))
    try:
        values = parse_json(content)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise DataError(
            f"not valid JSON ({error})",
            file=path,
            line=line,
            remedy="Copy or download the file again.",
        ) from None
    number = 0
    try:
        for article in values["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    number += 1
                    gold = _squad_answers(entry) if labelled else None
                    yield number, _text(entry["question"]), _text(paragraph["context"]), gold
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"question {number or 1} is not in SQuAD's layout ({type(error).__name__}: {error})",
            file=path,
            line=1,
            remedy='Write {"data": [{"paragraphs": [{"context": …, '
            '"qas": [{"question": …, "answers": […]}]}]}]}, answers as '
            '{"text": …, "answer_start": …}.',
        ) from None


def _squad_answers(entry: dict[str, Any]) -> Gold:
    if entry.get("is_impossible"):
        return []
    return [(_text(answer["text"]), int(answer["answer_start"])) for answer in entry["answers"]]


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__} where a text is expected")
    return text


def _table_questions(
    path: Path, data: Data, labelled: bool
) -> tuple[list[tuple[int, str, str, Gold | None]], list[str]]:
    question, context = named_columns(
        path, data.text_column, [QUESTION_NAMES, CONTEXT_NAMES], "text_column"
    )
    notes = [f"columns {question!r} and {context!r}"]
    wanted = [question, context]
    if labelled:
        (answers,) = named_columns(path, data.label_column, [ANSWER_NAMES], "label_column")
        notes[0] += f", answers {answers!r}"
        wanted.append(answers)
    questions: list[tuple[int, str, str, Gold | None]] = []
    for row in table_rows(path, wanted):
        texts = [as_text(row.values[name], name, path, row.line) for name in (question, context)]
        gold = answers_of(row.values[answers], answers, path, row.line) if labelled else None
        questions.append((row.line, texts[0], texts[1], gold))
    return questions, notes


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return [value]


def answers_of(value: Any, column: str, path: Path, line: int) -> Gold:
    """The answers in a cell: {"text": [...], "answer_start": [...]}, a list of such with one answer
    each, texts, or a text.
    """
    if value is None or value == "" or value == []:
        return []
    if isinstance(value, str):
        return [(value, MISSING)]
    if isinstance(value, list):
        parts = [answers_of(part, column, path, line) for part in value]
        return list(chain.from_iterable(parts))
    if isinstance(value, dict) and "text" in value:
        texts = _as_list(value["text"])
        starts = _as_list(value.get("answer_start", [MISSING] * len(texts)))
        if (
            len(starts) == len(texts)
            and all(isinstance(text, str) for text in texts)
            and all(type(start) is int for start in starts)
        ):
            return list(zip(texts, starts, strict=True))
    raise DataError(
        f"column {column!r} does not contain answers: {str(value)[:80]!r}",
        file=path,
        line=line,
        remedy=(
            'Write {"text": ["…"], "answer_start": [number]}, '
            "with one start for each text, or only the answer's text."
        ),
    )
