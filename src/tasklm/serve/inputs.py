"""What to predict: from the command line, a file, standard input, or a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from tasklm.corpus.sources import PLAIN
from tasklm.corpus.tables import LONGEST_LINE, TABLES, kind_of, read_lines
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.registry import nearest
from tasklm.storage.safe_reading import MemoryFile, is_there, is_whole, parse_json, whole_text
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.conll import COLUMN_FILES, CONLLU_FILES

Read = TypeVar("Read")
MOST_NAMES = 10_000  # of files beside a path that are searched for a mistyped one
# a text, a pair of texts, a row, or an example
Input = str | Sequence[str] | Mapping[str, Any] | Example


def examples_of(what: str, task: Task, data: Data, stdin: BinaryIO) -> Iterator[Example]:
    """Yields the examples of standard input for "-", of a file if there is one, else of a text.

    A text that looks like the path of a missing file raises a DataError: it is more likely a typo
    than a text.
    """
    kind = TASKS.get(task.kind)
    yield from given_by(
        what,
        stdin,
        of_text=lambda text: example_of(text, task, data),
        of_line=task.example_of,
        of_file=lambda path: kind.read(path, data, labelled=False)[0],
    )


def given_by(
    what: str,
    stdin: BinaryIO,
    *,
    of_text: Callable[[str], Read],
    of_line: Callable[[str], Read],
    of_file: Callable[[Path], Iterable[Read]],
) -> Iterator[Read]:
    """Yields what is read from a text or a line of standard input, a line of a text file, or a
    table.
    """
    if what == "-":
        for line in _lines(stdin):
            if line.strip():
                yield of_text(line.rstrip("\r\n"))
    elif not is_file(what):
        if _json_object(what) is None:
            refuse_path(what)
        yield of_text(what)
    elif kind_of(Path(what)) in PLAIN:
        for line in read_lines(Path(what)):
            if line.strip():
                yield of_line(line.rstrip("\r\n"))
    else:
        yield from of_file(Path(what))


def example_of(text: str, task: Task, data: Data) -> Example:
    """The example of a text; a JSON object is a row with the columns of train."""
    text = whole_text(text)
    row = _json_object(text)
    if row is None:
        return task.example_of(text)
    return _of_row(row, task, data)


def example_from(given: Input, task: Task, data: Data) -> Example:
    """The example that a program passes in; a text is never read as JSON."""
    if isinstance(given, Example):
        return given
    if isinstance(given, Mapping):
        return _of_row(given, task, data)
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        return task.example_of(whole_text(str(given)))
    if not task.pairs:
        raise DataError(
            f"kind {task.kind} does not take a pair of texts",
            remedy="Give a text, or a row with the columns of train.",
        )
    if len(given) != 2:
        raise DataError(
            f"a pair has two texts, not {len(given)}",
            remedy="Give pairs such as (one, other), or single texts.",
        )
    return Example((whole_text(str(given[0])), whole_text(str(given[1]))), None)


def _row_file(row: Mapping[str, Any]) -> MemoryFile:
    """A table of JSON lines with one row: each kind knows how to read its rows from a table."""
    try:
        return MemoryFile.of("row.jsonl", json.dumps(dict(row), default=_plain).encode() + b"\n")
    # a list that contains itself, a number with very many digits, odd keys
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"the row cannot be read ({error})",
            remedy="Use only texts, numbers and lists of these.",
        ) from None


def _of_row(row: Mapping[str, Any], task: Task, data: Data) -> Example:
    try:
        examples, _ = TASKS.get(task.kind).read(_row_file(row), data, labelled=False)
    except DataError as error:  # drop the name and line of the virtual file
        raise DataError(error.problem, remedy=error.remedy) from None
    if len(examples) != 1:
        raise DataError(
            f"the row has {len(examples)} questions", remedy="Give one row per question."
        )
    return replace(examples[0], file="row")


def _plain(value: Any) -> Any:
    """Converts NumPy's numbers and arrays to Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise DataError(
        f"a row contains a {type(value).__name__}, {value!r}",
        remedy="Use only texts, numbers and lists of these.",
    )


def _json_object(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        values = parse_json(text)
    except ValueError:  # a text that begins with a brace
        return None
    return values if isinstance(values, dict) else None


def is_file(what: str) -> bool:
    """Whether what is given is the path of a file, not a text."""
    try:
        return Path(what).is_file()
    except (OSError, ValueError):  # a text too long to be a file name
        return False


def refuse_path(what: str) -> None:
    """Raises a DataError for a text that ends like a file name, or has a / and no space."""
    path = Path(what)
    file_like = kind_of(path) in (*PLAIN, *TABLES, *COLUMN_FILES, *CONLLU_FILES)
    path_like = "/" in what and not any(sign.isspace() for sign in what)
    if "\n" in what or not (file_like or path_like):
        return
    by_pipe = "pass it on standard input: echo TEXT | tasklm predict MODEL"
    remedy = f"Correct the path; if it is a text, {by_pipe}"
    if is_there(path):
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise DataError(f"this is {kind}", file=what, remedy=f"Give a file. {remedy}")
    guess = nearest(path.name, _names_beside(path))
    raise DataError(f"there is no such file{guess}", file=what, remedy=remedy)


def _names_beside(path: Path) -> list[str]:
    try:
        names = [entry.name for entry in islice(path.parent.iterdir(), MOST_NAMES)]
        return list(filter(is_whole, names))
    except (OSError, ValueError):
        return []


def _lines(stream: BinaryIO) -> Iterator[str]:
    """Yields the lines of standard input, which must be UTF-8."""
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        problem = ""
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte, position = line[error.start], error.start + 1
            problem = f"byte {byte:#04x} at position {position} of the line is not UTF-8"
        if len(line) > LONGEST_LINE:
            problem = f"the line has more than {LONGEST_LINE:,} bytes"
        if problem:
            convert = "iconv -f WINDOWS-1252 -t UTF-8 FILE | tasklm predict MODEL"
            remedy = f"Convert it to UTF-8 first: {convert}"
            raise DataError(problem, file="standard input", line=number, remedy=remedy)
        yield text
