"""Files with a word on each line: CoNLL columns, and CoNLL-U
(universaldependencies.org/format.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from tasklm.corpus.tables import read_lines
from tasklm.errors import DataError

COLUMN_FILES = (".conll", ".bio", ".iob", ".iob2", ".tsv", ".txt")
CONLLU_FILES = (".conllu", ".conllx")
FORM, UPOS, HEAD, RELATION, FIELDS = 1, 3, 6, 7, 10  # columns of CoNLL-U
_DOCUMENT = "-DOCSTART-"
_WORD_HEADERS = ("token", "tokens", "word", "words", "form")
_TAG_HEADERS = (
    "tag",
    "tags",
    "label",
    "labels",
    "ner",
    "ner_tag",
    "ner_tags",
    "pos",
    "upos",
    "chunk",
)
# "3-4": a written token of several words; "8.1": a word that is not written
_NOT_A_WORD = re.compile(r"\d+-\d+|\d+\.\d+")

Numbered = tuple[int, str]


@dataclass(frozen=True)
class Sentence:
    """The lines of a sentence's words, split into fields; `line` is that of the first word."""

    line: int
    rows: tuple[tuple[str, ...], ...]

    def column(self, number: int) -> list[str]:
        """One field of each word."""
        return [row[number] for row in self.rows]


def _sentences(path: Path) -> Iterator[list[Numbered]]:
    """Yields the numbered lines between blank lines."""
    numbered = ((number, line.strip("\r\n")) for number, line in enumerate(read_lines(path), 1))
    for blank, lines in groupby(numbered, key=lambda entry: not entry[1].strip()):
        if not blank:
            yield list(lines)


def read_columns(path: Path, labelled: bool = True) -> list[Sentence]:
    """The sentences of a file of columns, separated by tabs or else by spaces: the word first, the
    tag last.

    Document starts and comments (#) are skipped. A line that begins with #, has as many columns as
    the others and ends in one of their tags is a word.
    """
    sentences = list(_sentences(path))
    everything = list(chain.from_iterable(sentences))
    content = (entry for entry in everything if not entry[1].startswith(("#", _DOCUMENT)))
    first_number, first = next(content, (0, ""))
    separator = "\t" if "\t" in first else None
    width = len(first.split(separator))
    if not first:
        raise DataError(
            "the file has no words",
            file=path,
            remedy="Write a word and its tag on each line, a blank line between sentences.",
        )
    if labelled and width < 2:
        raise DataError(
            f"the lines have one column, such as {first!r}: there are no tags",
            file=path,
            line=first_number,
            remedy="Write a word and its tag on each line, separated by a tab or a space.",
        )
    _refuse_header(path, sentences[0][0], separator)
    tags = {line.split(separator)[-1].strip() for _, line in everything if not line.startswith("#")}
    read = []
    for lines in sentences:
        words = [
            (number, tuple(field.strip() for field in line.split(separator)))
            for number, line in lines
            if not line.startswith(_DOCUMENT)
            and not (line.startswith("#") and _comment(line, separator, width, tags))
        ]
        for number, fields in words:
            _check_fields(path, number, fields, width)
        if words:
            read.append(Sentence(words[0][0], tuple(fields for _, fields in words)))
    return read


def _refuse_header(path: Path, first: Numbered, separator: str | None) -> None:
    fields = [field.strip().lower() for field in first[1].split(separator)]
    if len(fields) > 1 and fields[0] in _WORD_HEADERS and fields[-1] in _TAG_HEADERS:
        problem = (
            f"the first line, {first[1]!r}, names columns and would be read as a word with its tag"
        )
        raise DataError(problem, file=path, line=first[0], remedy="Delete it.")


def _comment(line: str, separator: str | None, width: int, tags: set[str]) -> bool:
    fields = line.split(separator)
    return len(fields) != width or (width > 1 and fields[-1].strip() not in tags)


def _check_fields(path: Path, line: int, fields: Sequence[str], width: int) -> None:
    if len(fields) != width:
        raise DataError(
            f"the line has {len(fields)} columns, but the first one has {width}",
            file=path,
            line=line,
            remedy="Give every word the same columns; the last one is its tag.",
        )
    if not fields[0] or not fields[-1]:
        what = "tag" if fields[0] else "word"
        raise DataError(
            f"the {what} is empty", file=path, line=line, remedy="Fill it in, or delete the line."
        )


def read_conllu(path: Path) -> list[Sentence]:
    """The sentences of a CoNLL-U file with only their words: no multi-word tokens, empty nodes or
    comments.
    """
    sentences = []
    for lines in _sentences(path):
        rows: list[tuple[str, ...]] = []
        begin = 0
        for number, line in lines:
            if line.startswith("#"):
                continue
            fields = tuple(line.split("\t"))
            if len(fields) != FIELDS:
                raise DataError(
                    f"the line has {len(fields)} fields instead of CoNLL-U's {FIELDS}",
                    file=path,
                    line=number,
                    remedy=("Separate the fields by single tabs, and write _ for empty ones."),
                )
            if _NOT_A_WORD.fullmatch(fields[0]):
                continue
            if fields[0] != str(len(rows) + 1):
                raise DataError(
                    f"the word has the number {fields[0]!r} instead of {len(rows) + 1}",
                    file=path,
                    line=number,
                    remedy=(
                        "Number the words of each sentence from 1, "
                        "and put a blank line between sentences."
                    ),
                )
            begin = begin or number
            rows.append(fields)
        if rows:
            sentences.append(Sentence(begin, tuple(rows)))
    if not sentences:
        raise DataError(
            "the file has no words",
            file=path,
            remedy="Write CoNLL-U: ten fields, separated by tabs, on a line for each word.",
        )
    return sentences
