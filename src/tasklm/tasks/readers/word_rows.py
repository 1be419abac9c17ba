"""Shared by kinds of tasks about words: tables with lists of words, text that must be split, and
words as tokens.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tasklm.corpus.sources import PLAIN
from tasklm.corpus.tables import kind_of, read_lines
from tasklm.corpus.words import is_spaceless
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.base import Tokeniser
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.readers.columns import named_columns
from tasklm.tasks.readers.conll import COLUMN_FILES, CONLLU_FILES, FORM, read_columns, read_conllu
from tasklm.tasks.readers.folders import table_rows

WORD_NAMES = ("tokens", "words")
TAG_NAMES = (
    "tags",
    "ner_tags",
    "labels",
    "label",
    "ner",
    "upos",
    "pos_tags",
    "pos",
    "xpos",
    "chunk_tags",
    "chunks",
)
HEAD_NAMES = ("heads", "head")
RELATION_NAMES = ("deprels", "deprel", "relations", "rels")
TEXT_NAMES = (*WORD_NAMES, "text", "sentence", "content")
LONG_WORDS = 100  # words of a sentence that about fill a row of tokens
# share of one-character words above which the words of a data set count as characters
SINGLE = 0.9
MOST_UNKNOWN = 0.01  # share of words of a split with tags that are not in train
SHOWN = 3  # examples of a finding

# what `split_words` finds in text of these characters, far sooner
_ASCII_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9]|(?<=[0-9])[.,](?=[0-9]))*|[^A-Za-z0-9\s]")

Bounds = tuple[int, int]


def word_example(words: Sequence[str], label: Any, path: Path, line: int) -> Example:
    """An example of given words."""
    return Example((" ".join(words),), label, str(path), line, tuple(words))


def list_of(value: Any, column: str, path: Path, line: int) -> list[Any]:
    """The list in a field of a table, or raises a DataError."""
    if isinstance(value, list):
        return value
    what = "empty" if value is None else f"a {type(value).__name__}, not a list"
    raise DataError(
        f"column {column!r} is {what}",
        file=path,
        line=line,
        remedy=(
            "Give each row lists in JSON lines or Parquet, "
            'such as {"tokens": ["A", "word"], "tags": ["O", "O"]}.'
        ),
    )


def _texts(values: list[Any], column: str, path: Path, line: int) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            remedy = "Write every word as a text in quotes."
            raise DataError(
                f"the word {value!r} in column {column!r} is not a text",
                file=path,
                line=line,
                remedy=remedy,
            )
    return values


def read_word_lists(
    path: Path, data: Data, usual: Sequence[Sequence[str]]
) -> tuple[list[str], Iterator[tuple[int, list[str], list[list[Any]]]]]:
    """The columns of a table with lists of words and labels, and its rows: line, words, and a list
    for each column of labels.

    `usual` has the usual names of each column of labels.
    """
    columns = [
        *named_columns(path, data.text_column, [WORD_NAMES], "text_column"),
        *named_columns(path, data.label_column, usual, "label_column"),
    ]

    def rows() -> Iterator[tuple[int, list[str], list[list[Any]]]]:
        for row in table_rows(path, columns):
            words, *labels = (
                list_of(row.values[column], column, path, row.line) for column in columns
            )
            for column, label in zip(columns[1:], labels, strict=True):
                if len(label) != len(words):
                    raise DataError(
                        (
                            f"there are {len(words)} words in "
                            f"{columns[0]!r} and {len(label)} entries in {column!r}"
                        ),
                        file=path,
                        line=row.line,
                        remedy="Give each word one.",
                    )
            yield row.line, _texts(words, columns[0], path, row.line), labels

    return columns, rows()


def read_unlabelled(path: Path, data: Data) -> tuple[list[Example], list[str]]:
    """One example for each sentence, row or line of a file without labels, or with labels that are
    ignored.

    Text that is not yet split into words stays whole: the trained task knows how to split it.
    """
    kind = kind_of(path)
    if kind in CONLLU_FILES:
        examples = [
            word_example(sentence.column(FORM), None, path, sentence.line)
            for sentence in read_conllu(path)
        ]
        return examples, ["words: field FORM"]
    if kind in PLAIN:
        examples = [
            Example((line.rstrip("\r\n"),), None, str(path), number)
            for number, line in enumerate(read_lines(path), 1)
        ]
        return examples, ["each line is read as a text"]
    if kind in COLUMN_FILES:
        examples = [
            word_example(sentence.column(0), None, path, sentence.line)
            for sentence in read_columns(path, labelled=False)
        ]
        return examples, ["words: first column"]
    (column,) = named_columns(path, data.text_column, [TEXT_NAMES], "text_column")
    examples = []
    for row in table_rows(path, [column]):
        value = row.values[column]
        if isinstance(value, list):
            words = _texts(value, column, path, row.line)
            examples.append(word_example(words, None, path, row.line))
        elif isinstance(value, str) or value is None:
            examples.append(Example((value or "",), None, str(path), row.line))
        else:
            remedy = "Give each row a text, or a list of words."
            raise DataError(
                f"column {column!r} is a {type(value).__name__}",
                file=path,
                line=row.line,
                remedy=remedy,
            )
    return examples, [f"texts or words: column {column!r}"]


def are_characters(sentences: Iterable[Sequence[str]]) -> bool:
    """Whether the words of a data set are single characters, as in Chinese data that is not
    segmented.
    """
    lengths = [len(word) for word in chain.from_iterable(sentences)]
    return bool(lengths) and lengths.count(1) >= SINGLE * len(lengths)


@functools.lru_cache(maxsize=1 << 16)
def _joins(character: str) -> bool:
    """Whether neighbours of this sort make one word: letters, digits and combining marks of scripts
    with spaces.
    """
    return unicodedata.category(character)[0] in "LNM" and not is_spaceless(character)


def split_words(text: str, characters: bool = False) -> list[Bounds]:
    """Where the words of a text begin and end: runs of letters and digits, and every other
    character.

    A point or comma between digits belongs to the number. A character of a script without spaces is
    a word; with `characters`, every one.
    """
    if text.isascii() and not characters:
        return [match.span() for match in _ASCII_WORD.finditer(text)]
    bounds: list[Bounds] = []
    begin = 0
    while begin < len(text):
        end = begin + 1
        if _joins(text[begin]) and not characters:
            while end < len(text) and (_joins(text[end]) or _is_in_number(text, end)):
                end += 1
        if not text[begin].isspace():
            bounds.append((begin, end))
        begin = end
    return bounds


def _is_in_number(text: str, at: int) -> bool:
    """Whether a character is a point or comma between digits."""
    return text[at] in ".," and text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit()


def words_of(example: Example, characters: bool) -> tuple[list[str], list[Bounds]]:
    """The words of an example, given or split, and their positions in its text."""
    if not example.words:
        bounds = split_words(example.text, characters)
        return [example.text[begin:end] for begin, end in bounds], bounds
    bounds, begin = [], 0
    for word in example.words:
        bounds.append((begin, begin + len(word)))
        begin += len(word) + 1  # a space
    return list(example.words), bounds


def pieces_of(
    sentences: Sequence[Sequence[str]], tokeniser: Tokeniser, most: int
) -> list[list[list[int]]]:
    """The tokens of each word, cut to `most`; each word is encoded by itself, and the unknown token
    stands for one without any.
    """
    distinct = list(dict.fromkeys(chain.from_iterable(sentences)))
    encoded = {
        word: tokens[:most] or [tokeniser.unk]
        for word, tokens in zip(distinct, tokeniser.encode(distinct), strict=True)
    }
    return [[encoded[word] for word in words] for words in sentences]


def filled(pieces: Sequence[Sequence[int]], most: int) -> list[Bounds]:
    """Consecutive runs of words (first, one after the last) of at most `most` tokens each; (0, 0)
    for no words.
    """
    runs, first, size = [], 0, 0
    for word, tokens in enumerate(pieces):
        if size and size + len(tokens) > most:
            runs.append((first, word))
            first, size = word, 0
        size += len(tokens)
    return [*runs, (first, len(pieces))]


def shown_word(example: Example, place: int, problem: str) -> str:
    """A line of a finding: the position of a word, and its problem."""
    word = f"word {place + 1}, {example.words[place]!r}"
    return f"{example.file}, line {example.line}: {word}: {problem}"


def unknown_names(
    what: str, known: set[str], splits: Splits, names: Callable[[Any], list[str]]
) -> list[Finding]:
    """A finding for each split with words whose tags or relations are not in train.

    The model will always get these words wrong. A few are a warning, because published data has
    some; more are an error, because the file then likely belongs to another data set, or another
    column was read.
    """
    findings = []
    for split, part in splits.named().items():
        words = 0
        strange: list[tuple[Example, int, str]] = []
        for example in part:
            labels = names(example.label)
            words += len(labels)
            strange += [
                (example, place, name) for place, name in enumerate(labels) if name not in known
            ]
        if strange:
            unknown = sorted({name for _, _, name in strange})
            level = "error" if len(strange) > MOST_UNKNOWN * words else "warning"
            message = (
                f"{len(strange):,} of {words:,} words of {split} have {what} "
                "that do not occur in train and cannot be predicted: "
                f"{', '.join(map(repr, unknown[:10]))}. Correct them, "
                "add training sentences with them, or delete these sentences."
            )
            examples = tuple(
                shown_word(example, place, name) for example, place, name in strange[:SHOWN]
            )
            brief = (
                f"{len(strange):,} words of {split} have {what} unknown to train: add examples of "
                "them"
            )
            findings.append(Finding(level, f"unknown {what}", message, examples, brief))
    return findings


def long_sentences(splits: Splits, fate: str) -> list[Finding]:
    """The finding on very long sentences; `fate` says what happens to those that do not
    fit a row.
    """
    everything = chain.from_iterable(splits.named().values())
    long = [example for example in everything if len(example.words) > LONG_WORDS]
    if not long:
        return [Finding("ok", "long sentences", f"no sentence has more than {LONG_WORDS} words.")]
    long.sort(key=lambda example: -len(example.words))
    message = (
        f"{len(long):,} sentences have more than {LONG_WORDS} words. "
        f"Those above tokens.length tokens {fate}: raise it, or split them."
    )
    examples = tuple(
        f"{example.file}, line {example.line}: {len(example.words):,} words"
        for example in long[:SHOWN]
    )
    words = f"{len(long):,} sentences have more than {LONG_WORDS} words"
    brief = f"{words}: raise --tokens.length, or split them"
    return [Finding("warning", "long sentences", message, examples, brief)]


def tag_name(value: Any, column: str, path: Path, line: int) -> str:
    """The name of a tag; a whole number is a name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    remedy = "Give each word a tag: a non-empty text, or a whole number."
    raise DataError(
        f"the tag {value!r} in column {column!r} is not a name", file=path, line=line, remedy=remedy
    )
