"""Rows of CSV, TSV, JSON lines and Parquet files, plain or compressed, streamed, with the line each row stands on."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from tasklm.errors import DataError
from tasklm.registry import nearest

LONGEST_LINE = 64 << 20  # characters; one line is held in memory, so there must be a limit
CHECK_THE_PATH = "Check the path. Paths in a recipe are relative to the recipe's folder, others to the folder you are in."
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
COMPRESSED = (".gz", ".zst")

Watch = Callable[[int], object]  # is told the number of bytes each time some were read from the disk


@dataclass(frozen=True)
class Row:
    """One row; `line` counts from 1 and is where the row begins (in Parquet: its number)."""

    line: int
    values: dict[str, Any]


def kind_of(path: Path) -> str:
    """Returns the suffix that says what the file holds, that of a compression left out: 'a.CSV.gz' → '.csv'."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


class _Source(io.RawIOBase):
    """The decompressed bytes of a file; damage is told as a DataError."""

    def __init__(self, path: Path, watch: Watch | None) -> None:
        self.path = path
        self._stream: Any
        self._file = _open_binary(path)
        if path.suffix.lower() == ".gz":
            self._stream = gzip.GzipFile(fileobj=io.BufferedReader(_Watched(self._file, watch), 1 << 17))
        elif path.suffix.lower() == ".zst":
            # Arrow's reader notices a file that was cut off; zstandard's stream reader takes it for the end
            self._stream = pa.CompressedInputStream(pa.PythonFile(_Watched(self._file, watch), "r"), "zstd")
        else:
            self._stream = _Watched(self._file, watch)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            block = self._stream.read(len(buffer))
        except EOFError:
            raise self._damaged("the compressed file is cut off") from None
        except (zlib.error, OSError) as error:
            if self.path.suffix.lower() not in COMPRESSED:
                raise DataError(f"the file cannot be read ({error})", file=self.path, remedy="Check its disk.") from None
            what = "cut off" if "truncated" in str(error).lower() else f"damaged ({error})"
            raise self._damaged(f"the compressed file is {what}") from None
        buffer[: len(block)] = block
        return len(block)

    def _damaged(self, problem: str) -> DataError:
        return DataError(problem, file=self.path, remedy="Copy or download it again, or compress the original again.")

    def close(self) -> None:
        self._file.close()
        super().close()


class _Watched(io.RawIOBase):
    def __init__(self, file: io.FileIO, watch: Watch | None) -> None:
        self._file, self._watch = file, watch

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        if self._watch is not None:
            self._watch(count)
        return count


def _open_binary(path: Path) -> io.FileIO:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise DataError("there is no such file", file=path, remedy=CHECK_THE_PATH) from None
    except IsADirectoryError:
        raise DataError("this is a folder, not a file", file=path, remedy="Name a file in it.") from None
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
        raise DataError(problem, file=path, remedy="Check its permissions and its disk.") from None


def open_text(path: Path, watch: Watch | None = None) -> TextIO:
    """Returns the decompressed file as UTF-8 text, line ends as they are, a byte order mark skipped."""
    return io.TextIOWrapper(io.BufferedReader(_Source(path, watch), 1 << 17), encoding="utf-8-sig", newline="")


def read_lines(path: Path, watch: Watch | None = None) -> Iterator[str]:
    """Yields the lines with their ends; what cannot be read raises a DataError that names the line."""
    number = 0
    with open_text(path, watch) as file:
        try:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise DataError(
                        f"the line is longer than {LONGEST_LINE >> 20} million characters",
                        file=path,
                        line=number,
                        remedy="Put one example or document on a line, or split it.",
                    )
                yield line
        except UnicodeDecodeError:
            raise _not_utf8(path) from None
        except DataError as error:
            if error.line is None:
                raise DataError(error.problem, file=path, line=number + 1, remedy=error.remedy) from None
            raise


def _not_utf8(path: Path) -> DataError:
    """Returns the error for the first line that is not UTF-8; the text layer decodes in blocks and cannot tell which."""
    remedy = "Save the file as UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW."
    with io.BufferedReader(_Source(path, None), 1 << 17) as file:
        number = 0
        while line := file.readline(4 * LONGEST_LINE):
            number += 1
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                problem = f"byte {line[error.start]:#04x} at position {error.start + 1} of the line is not UTF-8"
                return DataError(problem, file=path, line=number, remedy=remedy)
    return DataError("the text is not UTF-8", file=path, remedy=remedy)


def read_rows(path: Path, columns: Sequence[str] | None = None, *, watch: Watch | None = None) -> Iterator[Row]:
    """Yields the rows in order, with all their columns or only `columns`."""
    kind = kind_of(path)
    if kind == ".parquet" and path.suffix.lower() == ".parquet":
        rows = _parquet_rows(path, columns, watch)
    elif kind in (".csv", ".tsv"):
        rows = _separated_rows(path, columns, watch, tabs=kind == ".tsv")
    elif kind in (".jsonl", ".ndjson", ".json"):
        rows = _json_rows(path, columns, watch)
    else:
        raise DataError(
            "the kind of table is not known by its name",
            file=path,
            remedy=f"Use one of {', '.join(TABLES)}; all but Parquet may end in .gz or .zst.",
        )
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise DataError("the file is empty: it has no rows", file=path, remedy="Check that it was written to its end.")


def missing_column(path: Path, column: str, found: Sequence[str]) -> DataError:
    """Returns the error for a column that a file does not have, which lists those that it has."""
    columns = ", ".join(map(repr, found))
    return DataError(
        f"there is no column {column!r}{nearest(column, list(found))}; the columns are {columns}",
        file=path,
        line=1,
        remedy="Name one that is there with --text-column, --label-column or --corpus-column "
        "(recipe: data.text_column, data.label_column, data.corpus_column).",
    )


def _pick(path: Path, header: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    for column in columns or ():
        if column not in header:
            raise missing_column(path, column, header)
    return list(header if columns is None else columns)


def _separated_rows(path: Path, columns: Sequence[str] | None, watch: Watch | None, tabs: bool) -> Iterator[Row]:
    lines = read_lines(path, watch)
    records = _tab_records(lines) if tabs else _csv_records(path, lines)
    header: list[str] | None = None
    for number, fields in records:
        if header is None:
            header = [name.strip() or f"column {i}" for i, name in enumerate(fields, 1)]
            if twice := sorted({name for name in header if header.count(name) > 1}):
                raise DataError(
                    f"the column name {twice[0]!r} occurs twice", file=path, line=number, remedy="Give each column its own name."
                )
            wanted = {name: header.index(name) for name in _pick(path, header, columns)}
        elif len(fields) != len(header):
            raise DataError(
                f"the row has {len(fields)} fields, the header has {len(header)}",
                file=path,
                line=number,
                remedy=(
                    "Write fields without tabs and line breaks, or use JSON lines."
                    if tabs
                    else 'Put fields that contain commas, quotes or line breaks in "quotes", and double the quotes inside them.'
                ),
            )
        else:
            yield Row(number, {name: fields[place] for name, place in wanted.items()})


def _csv_records(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST_LINE)
    first = next((line for line in lines), "")
    delimiter = next((mark for mark in ",;\t|" if mark in first), ",")
    reader = csv.reader(_chained(first, lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"the row that begins here is not valid CSV ({error})",
                file=path,
                line=number,
                remedy='Close every quote, and write a quote inside a quoted field as "".',
            ) from None
        if fields:  # not a blank line
            yield number, fields


def _chained(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _tab_records(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields line number and fields. Quotes in TSV are mostly plain text; only a field wholly in quotes is unwrapped."""
    for number, line in enumerate(lines, 1):
        content = line.rstrip("\r\n")
        if content:
            yield number, [_unquoted(field) for field in content.split("\t")]


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field


def _json_rows(path: Path, columns: Sequence[str] | None, watch: Watch | None) -> Iterator[Row]:
    unseen, known = set(columns or ()), {}
    number = 0
    for number, line in enumerate(read_lines(path, watch), 1):
        if line.isspace():
            continue
        try:
            values = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise DataError(
                f"the line is not valid JSON ({error})",
                file=path,
                line=number,
                remedy="Write one JSON object per line; jq -c '.[]' FILE makes that from a JSON list.",
            ) from None
        if not isinstance(values, dict):
            raise DataError(
                f"the line is a JSON {type(values).__name__}, not an object",
                file=path,
                line=number,
                remedy="""Write one object per line, such as {"text": "…", "label": "…"}.""",
            )
        if "\\u" in line:
            values = {name: _without_surrogates(value) for name, value in values.items()}
        if columns is not None:
            unseen -= values.keys()
            known.update(dict.fromkeys(values))
            values = {name: values.get(name) for name in columns}
        yield Row(number, values)
    if unseen and known:
        raise missing_column(path, min(unseen), list(known))


def _without_surrogates(value: Any) -> Any:
    """Returns text that can be written as UTF-8: JSON escapes can spell halves of characters."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def _parquet_rows(path: Path, columns: Sequence[str] | None, watch: Watch | None) -> Iterator[Row]:
    with _open_binary(path) as file:
        if path.stat().st_size == 0:
            return
        try:
            table = pq.ParquetFile(file)
            names = _pick(path, table.schema_arrow.names, columns)
            number = 0
            for group in range(table.num_row_groups):
                for batch in table.iter_batches(batch_size=1024, row_groups=[group], columns=names):
                    for values in batch.to_pylist():
                        number += 1
                        yield Row(number, values)
                if watch is not None:
                    watch(path.stat().st_size // table.num_row_groups)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"the file is not valid Parquet ({error})",
                file=path,
                remedy="Copy or write it again; tasklm reads plain Parquet files.",
            ) from None
