"""The pile of texts without labels, streamed: it may be larger than memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tasklm.corpus.sources import PLAIN, find_files
from tasklm.corpus.streams import Watch
from tasklm.corpus.tables import kind_of, read_lines
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.storage.safe_reading import MemoryFile, home_path
from tasklm.tasks.base import Task
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.columns import column_names
from tasklm.tasks.readers.folders import is_dataset, table_rows
from tasklm.tasks.readers.sheets import SheetColumns
from tasklm.tasks.readers.texts import find_columns, read_texts

ROWS = 512  # of a table, that are turned into examples at once
LARGEST = 16 << 20  # bytes of a text file in a folder, which is one text


@dataclass(frozen=True)
class Pile:
    """Files and folders of texts, and how the task reads them."""

    paths: tuple[str, ...]
    task: Task
    data: Data
    columns: SheetColumns  # of the training file, which count where a file has them

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(path.stat().st_size for path, _ in self._files() if path.is_file())

    def examples(self, advance: Callable[[int], object] | None = None) -> Iterator[Example]:
        """Yields the texts in the order of the files; `advance` gets the bytes as they are read."""
        for path, whole in self._files():
            watch: Watch | None = None
            if advance is not None:
                watch = _counting(advance)
            for example in self._read(path, whole, watch):
                if example.text.strip():
                    yield self._checked(example, path)

    def _files(self) -> Iterator[tuple[Path, bool]]:
        """The files; a text file in a folder is one text, a named one has a text on each line."""
        for name in self.paths:
            path = home_path(name)
            if path.is_dir() and not is_dataset(path):
                yield from ((file, True) for file in find_files([name]))
            else:
                yield path, False

    def _read(self, path: Path, whole: bool, watch: Watch | None) -> Iterator[Example]:
        if kind_of(path) in PLAIN and whole:
            yield self._of_text(_whole_text(path, watch), path, 1)
        elif kind_of(path) in PLAIN:
            for number, line in enumerate(read_lines(path, watch), 1):
                if line.strip():
                    yield self._of_text(line.rstrip("\r\n"), path, number)
        elif self.task.pairs:
            columns = find_columns(path, self._columns_in(path), labelled=False)
            for texts, _, row in read_texts(path, self.data, False, columns, watch):
                yield Example(texts, None, str(path), row)
        else:
            yield from self._rows(path, watch)

    def _of_text(self, text: str, path: Path, line: int) -> Example:
        try:
            return replace(self.task.example_of(text), file=str(path), line=line)
        except DataError as error:
            raise DataError(error.problem, file=path, line=line, remedy=error.remedy) from None

    def _columns_in(self, path: Path) -> Data:
        """The training file's columns if the file has them; otherwise they are detected."""
        if self.data.text_column or not set(self.columns.texts) <= set(column_names(path)):
            return self.data
        return replace(self.data, text_column=",".join(self.columns.texts))

    def _rows(self, path: Path, watch: Watch | None) -> Iterator[Example]:
        """The examples of a table whose rows are more than texts, some rows at a time."""
        data = self._columns_in(path)
        if self.columns.options in column_names(path):
            data = replace(data, options_column=self.columns.options)
        rows = table_rows(path, watch=watch)
        while block := list(islice(rows, ROWS)):
            lines = (json.dumps(row.values, default=str) for row in block)
            file = MemoryFile.of("rows.jsonl", "\n".join(lines).encode() + b"\n")
            try:
                examples, _ = type(self.task).read(file, data, labelled=False)
            except DataError as error:
                line = block[(error.line or 1) - 1].line
                raise DataError(error.problem, file=path, line=line, remedy=error.remedy) from None
            for example in examples:
                yield replace(example, file=str(path), line=block[example.line - 1].line)

    def _checked(self, example: Example, path: Path) -> Example:
        """Raises a DataError if there are more texts, or fewer, than in a training example."""
        wanted, given = len(self.columns.texts), len(example.texts) - len(example.options)
        if wanted == given or example.options:
            return example
        names = " and ".join(map(repr, self.columns.texts))
        parts = {1: "one text", 2: "a pair of texts"}
        raise DataError(
            f"a row has {parts.get(given, f'{given} texts')}, but the model takes {parts[wanted]}",
            file=path,
            line=example.line,
            remedy=f"Give a table with {names}, or name the columns with --text-column.",
        )


def _counting(advance: Callable[[int], object]) -> Watch:
    return lambda block: advance(len(block))


def _whole_text(path: Path, watch: Watch | None) -> str:
    if path.stat().st_size > LARGEST:
        raise DataError(
            f"the text has more than {LARGEST >> 20} MB",
            file=path,
            remedy="Name the file itself if each of its lines is a text, or leave it out.",
        )
    return "".join(read_lines(path, watch))
