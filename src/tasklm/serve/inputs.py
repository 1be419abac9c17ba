"""Texts to predict, from wherever they come: the command line, a file, or standard input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tasklm.corpus.tables import TABLES, kind_of, read_lines
from tasklm.recipe import Data
from tasklm.tasks.reading import read_examples


def texts_of(what: str, text_column: str, stdin: TextIO) -> Iterator[str]:
    """Yields texts: of standard input by the line for "-", of a file if there is one, else `what` itself."""
    if what == "-":
        yield from (line.rstrip("\n") for line in stdin if line.strip())
    elif not _is_file(what):
        yield what
    elif kind_of(Path(what)) not in TABLES:
        yield from (line.rstrip("\r\n") for line in read_lines(Path(what)) if line.strip())
    else:
        examples, _ = read_examples(Path(what), Data(text_column=text_column), labelled=False)
        yield from (example.text for example in examples)


def _is_file(what: str) -> bool:
    try:
        return Path(what).is_file()
    except OSError:  # a text too long to be a file name
        return False
