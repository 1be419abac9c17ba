"""Texts to predict, from wherever they come: the command line, a file, or standard input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tasklm.corpus.sources import PLAIN
from tasklm.corpus.tables import kind_of, read_lines
from tasklm.recipe import Data
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.examples import Example


def examples_of(what: str, task: Task, data: Data, stdin: TextIO) -> Iterator[Example]:
    """Yields examples: texts of standard input by the line for "-", those of a file if there is one, else `what` itself."""
    if what == "-":
        yield from (task.asked(line.rstrip("\n")) for line in stdin if line.strip())
    elif not _is_file(what):
        yield task.asked(what)
    elif kind_of(Path(what)) in PLAIN:
        yield from (task.asked(line.rstrip("\r\n")) for line in read_lines(Path(what)) if line.strip())
    else:
        yield from TASKS.get(task.kind).read(Path(what), data, labelled=False)[0]


def _is_file(what: str) -> bool:
    try:
        return Path(what).is_file()
    except OSError:  # a text too long to be a file name
        return False
