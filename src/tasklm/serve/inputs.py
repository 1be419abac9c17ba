"""What to predict, from wherever it comes: the command line, a file, standard input, or a program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tasklm.corpus.sources import PLAIN
from tasklm.corpus.tables import kind_of, read_lines
from tasklm.errors import DataError
from tasklm.recipe import Data
from tasklm.safe_reading import MemoryFile
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example

Input = str | Sequence[str] | Mapping[str, Any] | Example  # a text, a pair of texts, a row, or an example


def examples_of(what: str, task: Task, data: Data, stdin: TextIO) -> Iterator[Example]:
    """Yields examples: texts of standard input by the line for "-", those of a file if there is one, else `what` itself."""
    if what == "-":
        for line in stdin:
            if line.strip():
                yield example_of(line.rstrip("\n"), task, data)
    elif not _is_file(what):
        yield example_of(what, task, data)
    elif kind_of(Path(what)) in PLAIN:
        yield from (task.asked(line.rstrip("\r\n")) for line in read_lines(Path(what)) if line.strip())
    else:
        yield from TASKS.get(task.kind).read(Path(what), data, labelled=False)[0]


def example_of(text: str, task: Task, data: Data) -> Example:
    """Returns the example that a text asks about; one that is a JSON object is a row with the columns of the training data."""
    row = _json_object(text)
    return task.asked(text) if row is None else _of_row(row, task, data)


def example_from(given: Input, task: Task, data: Data) -> Example:
    """Returns the example that a program asks about: as a text (which is never read as JSON), a pair, a row or an example."""
    if isinstance(given, Example):
        return given
    if isinstance(given, Mapping):
        return _of_row(given, task, data)
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        return task.asked(str(given))
    if not task.pairs:
        raise DataError(f"a pair of texts asks nothing of kind {task.kind}", remedy="Give a text, or a row with the columns of train.")
    if len(given) != 2:
        raise DataError(f"a pair has two texts, not {len(given)}", remedy="Give pairs such as (one, other), or single texts.")
    return Example((str(given[0]), str(given[1])), None)


def _row_file(row: Mapping[str, Any]) -> MemoryFile:
    """Returns a table of JSON lines that has one row: each kind knows how to read its rows from a table."""
    try:
        return MemoryFile.of("row.jsonl", json.dumps(dict(row), default=_plain).encode() + b"\n")
    except (ValueError, TypeError, RecursionError) as error:  # a list that holds itself, a number of very many digits, odd keys
        raise DataError(f"the row cannot be read ({error})", remedy="Give texts, numbers and lists of these.") from None


def _of_row(row: Mapping[str, Any], task: Task, data: Data) -> Example:
    try:
        examples, _ = TASKS.get(task.kind).read(_row_file(row), data, labelled=False)
    except DataError as error:  # without the name and the line of a file that does not exist
        raise DataError(error.problem, remedy=error.remedy) from None
    if len(examples) != 1:
        raise DataError(f"the row asks {len(examples)} questions", remedy="Give a row for each question.")
    return replace(examples[0], file="row")


def _plain(value: Any) -> Any:
    """Returns numpy's numbers and arrays as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise DataError(f"a row has a {type(value).__name__}, {value!r}", remedy="Give texts, numbers and lists of these.")


def _json_object(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        values = json.loads(text)
    except ValueError:  # a text that begins with a brace
        return None
    return values if isinstance(values, dict) else None


def _is_file(what: str) -> bool:
    try:
        return Path(what).is_file()
    except OSError:  # a text too long to be a file name
        return False
