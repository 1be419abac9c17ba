"""Where raw text comes from: files, folders and globs of tables and plain text, one document at a
time.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tasklm.corpus.licences import RowLicences, as_licence, place_of
from tasklm.corpus.streams import COMPRESSED, Watch, open_binary
from tasklm.corpus.tables import TABLES, Row, kind_of, listed, missing_column, read_lines, read_rows
from tasklm.errors import DataError
from tasklm.storage.safe_reading import home_path, is_whole

PLAIN = (".txt", ".text", ".md", ".rst")
TEXT_NAMES = (
    "text",
    "content",
    "document",
    "passage",
    "body",
    "contents",
    "paragraph",
    "article",
    "abstract",
    "raw_content",
    "sentence",
    "maintext",
)
_BLOCK = 1 << 16  # characters of plain text handed on at once
_PEEK = 100  # rows that are searched for the text column


@dataclass(frozen=True)
class Document:
    """A text, where it is from, and the licence that its row states."""

    text: str
    source: str
    licence: str = ""


class NoTextColumn(DataError):
    """A table in which no column looks like text; in a folder it may be an index or a list, not
    part of the corpus.
    """


def find_files(paths: Sequence[str]) -> list[Path]:
    """The files that paths, folders and globs name, each once, sorted by their absolute paths."""
    files: dict[Path, Path] = {}
    for pattern in paths:
        try:
            matches = list(_matches(pattern))
        except (ValueError, NotImplementedError) as error:
            raise DataError(
                f"this is not a valid glob ({error})",
                file=pattern,
                remedy="Write ** between slashes, such as texts/**/*.txt.",
            ) from None
        if not matches:
            raise DataError(
                "no text files found there",
                file=pattern,
                remedy=(
                    f"Name files, folders or globs with {', '.join(PLAIN + TABLES)}, "
                    f"plain or with {' or '.join(COMPRESSED)}."
                ),
            )
        for path in matches:
            require_name(path)
            files.setdefault(path.resolve(), path)
    return sorted(files.values(), key=lambda path: str(place_of(path)))


def require_name(path: Path) -> None:
    """Raises a DataError if a file's name is not UTF-8: no other file could mention it."""
    if not is_whole(str(path)):
        raise DataError(
            "the name is not UTF-8",
            file=ascii(str(path)),
            remedy="Rename the file or its folder.",
        )


def _matches(pattern: str) -> Iterator[Path]:
    path = home_path(pattern)
    if not pattern:
        return  # Path("") would be the folder we are in
    if path.is_dir():
        yield from _inside(path)
    elif path.exists():
        yield path
    elif any(mark in pattern for mark in "*?["):
        root = Path(path.anchor)
        for match in root.glob(str(path.relative_to(root))):
            if match.is_dir():
                yield from _inside(match)
            elif _readable(match):
                yield match


def _inside(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file() and _readable(path):
            yield path


def _readable(path: Path) -> bool:
    return kind_of(path) in PLAIN + TABLES and not path.name.startswith(".")


def read_documents(
    path: Path,
    column: str = "",
    *,
    counts: Counter[str] | None = None,
    watch: Watch | None = None,
    licences: RowLicences | None = None,
) -> Iterator[Document]:
    """Yields the documents of a file; `counts` receives "documents", "empty" rows, which are
    skipped, and rows "left out" for their licences.

    A row of a table is a document. A plain text file is one, too, but is yielded in blocks of whole
    paragraphs, so that a file larger than memory can be read.
    """
    if counts is None:
        counts = Counter()
    kind = kind_of(path)
    if kind in PLAIN:
        blocks = _blocks(path, watch)
        counts["documents"] += 1
        yield from (Document(block, path.name) for block in blocks)
    elif kind in TABLES:
        yield from _table_documents(path, column, counts, watch, licences or RowLicences())
    else:
        raise DataError(
            "the format of the file cannot be told from its name",
            file=path,
            remedy=(
                f"Use one of {', '.join(PLAIN + TABLES)}; "
                f"all but Parquet may end in {' or '.join(COMPRESSED)}."
            ),
        )


def _blocks(path: Path, watch: Watch | None) -> Iterator[str]:
    """Yields pieces of a plain text file that end at a blank line, or at a line end where a
    paragraph is too long.
    """
    held: list[str] = []
    size = 0
    empty = True
    for line in read_lines(path, watch):
        held.append(line)
        size += len(line)
        if (size >= _BLOCK and line.isspace()) or size >= 16 * _BLOCK:
            empty = False
            yield "".join(held)
            held, size = [], 0
    if held:
        yield "".join(held)
    elif empty:
        raise DataError(
            "the file is empty",
            file=path,
            remedy="Check that it was written completely, or leave it out.",
        )


def _table_documents(
    path: Path, column: str, counts: Counter[str], watch: Watch | None, licences: RowLicences
) -> Iterator[Document]:
    rows = list(islice(read_rows(path), _PEEK))
    names = list(dict.fromkeys(chain.from_iterable(row.values for row in rows)))
    text_column = _text_column(path, column, names, rows)
    has_source = "source" in names and text_column != "source"
    columns = [text_column]
    if has_source:
        columns.append("source")
    licence_column = licences.find(path, names, text_column)
    if licence_column and licence_column not in columns:
        columns.append(licence_column)
    for row in read_rows(path, columns, watch=watch):
        licence = as_licence(row.values[licence_column]) if licence_column else ""
        if licences.leaves_out(licence, path, row.line):
            counts["left out"] += 1
            continue
        counts["documents"] += 1
        text = as_text(row.values[text_column], text_column, path, row.line)
        if not text.strip():
            counts["empty"] += 1
            continue
        source = row.values["source"] if has_source else None
        yield Document(text, str(source or path.name), licence)


def as_text(value: Any, column: str, path: Path, line: int) -> str:
    """A cell as text; nothing, or NaN, is the empty text."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    raise DataError(
        f"column {column!r} contains a {type(value).__name__}, not text",
        file=path,
        line=line,
        remedy="Name a column of plain text with --text-column or --corpus-column.",
    )


def _text_column(path: Path, column: str, names: list[str], rows: list[Row]) -> str:
    if column:
        if column not in names:
            raise missing_column(path, column, names)
        return column
    by_lower = {name.lower(): name for name in reversed(names)}
    for name in TEXT_NAMES:
        if name in by_lower:
            return by_lower[name]
    lengths = {name: mean_length(rows, name) for name in names}
    best = max(names, key=lambda name: lengths[name], default="")
    # prose, not names or addresses: a few words at least
    if (
        best
        and lengths[best] >= 20
        and any(len(str(row.values.get(best)).split()) >= 4 for row in rows)
    ):
        return best
    raise NoTextColumn(
        f"no column looks like text; the columns are {listed(names)}",
        file=path,
        line=1,
        remedy=(
            "Name the text column with --corpus-column (recipe: data.corpus_column), or leave "
            "the file out."
        ),
    )


def mean_length(rows: Sequence[Row], name: str) -> float:
    """The mean number of characters of a column's strings over the rows;
    other values count as 0.
    """
    values = [row.values.get(name) for row in rows]
    return sum(len(value) for value in values if isinstance(value, str)) / max(1, len(values))


def fingerprint(files: Sequence[Path]) -> str:
    """A hash of each file's name, size, time of change, first and last 64 KB: corpora are too large
    to hash whole.
    """
    hasher = hashlib.blake2b(digest_size=12)
    for path in files:
        stat = path.stat()
        hasher.update(
            f"{path.name}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode("utf-8", "surrogateescape")
        )
        with open_binary(path) as file:
            hasher.update(file.read(1 << 16) or b"")
            if stat.st_size > 1 << 16:
                file.seek(max(1 << 16, stat.st_size - (1 << 16)))
                hasher.update(file.read(1 << 16) or b"")
    return hasher.hexdigest()
