"""Rows of CSV, TSV, JSON lines and Parquet files, plain or compressed, streamed, with the line each
row stands on.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tasklm.corpus.streams import COMPRESSED, Source, Watch
from tasklm.errors import DataError
from tasklm.registry import nearest
from tasklm.storage.safe_reading import parse_json

LONGEST_LINE = 64 << 20  # characters; one line is held in memory, so there must be a limit
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
MOST_COLUMNS = 1_000_000
MOST_COMPARED = 1000  # columns that are searched for a mistyped name
SHOWN = 20  # columns that an error lists


@dataclass(frozen=True)
class Row:
    """One row; `line` counts from 1 and is where the row begins (in Parquet: its number)."""

    line: int
    values: dict[str, Any]


def kind_of(path: Path) -> str:
    """The suffix of the file's format, without that of a compression: 'a.CSV.gz' → '.csv'."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def open_text(path: Path, watch: Watch | None = None) -> TextIO:
    """The decompressed file as UTF-8 text, line ends as they are, a byte order mark skipped."""
    return io.TextIOWrapper(
        io.BufferedReader(Source(path, watch), 1 << 17), encoding="utf-8-sig", newline=""
    )


def read_lines(path: Path, watch: Watch | None = None) -> Iterator[str]:
    """Yields the lines with their ends; unreadable text raises a DataError that names the line."""
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
                raise DataError(
                    error.problem, file=path, line=number + 1, remedy=error.remedy
                ) from None
            raise


def _not_utf8(path: Path) -> DataError:
    """The error for the first line that is not UTF-8; the text layer decodes in blocks and does not
    know which.
    """
    remedy = "Save the file as UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW."
    with io.BufferedReader(Source(path, None), 1 << 17) as file:
        number = 0
        while line := file.readline(4 * LONGEST_LINE):
            number += 1
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                problem = (
                    f"byte {line[error.start]:#04x} at position "
                    f"{error.start + 1} of the line is not UTF-8"
                )
                return DataError(problem, file=path, line=number, remedy=remedy)
    return DataError("the text is not UTF-8", file=path, remedy=remedy)


def read_rows(
    path: Path, columns: Sequence[str] | None = None, *, watch: Watch | None = None
) -> Iterator[Row]:
    """Yields the rows in order, with all their columns or only `columns`."""
    kind = kind_of(path)
    rows: Iterator[Row]
    if kind == ".parquet" and path.suffix.lower() == ".parquet":
        from tasklm.corpus.arrow_rows import parquet_values  # here: importing Arrow takes a while

        pick = partial(_pick, path, columns=columns)
        rows = (
            Row(number, values)
            for number, values in enumerate(parquet_values(path, pick, watch), 1)
        )
    elif kind in (".csv", ".tsv"):
        rows = _separated_rows(path, columns, watch, tabs=kind == ".tsv")
    elif kind in (".jsonl", ".ndjson", ".json"):
        rows = _json_rows(path, columns, watch)
    else:
        raise DataError(
            "the format of the table cannot be told from its name",
            file=path,
            remedy=f"Use one of {', '.join(TABLES)}; all but Parquet may end in .gz or .zst.",
        )
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise DataError(
            "the file is empty: it has no rows",
            file=path,
            remedy="Check that it was written completely.",
        )


def missing_column(path: Path, column: str, names: Sequence[str]) -> DataError:
    """The error for a column that a file does not have, which lists those that it has."""
    problem = f"there is no column {column!r}{nearest(column, list(names[:MOST_COMPARED]))}"
    return DataError(
        f"{problem}; the columns are {listed(names)}",
        file=path,
        line=1,
        remedy="Name an existing one with --text-column, --label-column or --corpus-column "
        "(recipe: data.text_column, data.label_column, data.corpus_column).",
    )


def listed(names: Sequence[str]) -> str:
    """Names for an error, in quotes; the first ones if there are very many."""
    text = ", ".join(map(repr, names[:SHOWN]))
    if len(names) > SHOWN:
        text += f" and {len(names) - SHOWN:,} more"
    return text


def places_of(path: Path, header: Sequence[str], columns: Sequence[str] | None) -> dict[str, int]:
    """Maps column → position in the header, for all columns or the wanted ones; a missing one
    raises a DataError.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(header):
        places.setdefault(name, place)
    if columns is None:
        return places
    for column in columns:
        if column not in places:
            raise missing_column(path, column, header)
    return {column: places[column] for column in columns}


def _pick(path: Path, header: Sequence[str], *, columns: Sequence[str] | None) -> list[str]:
    return list(places_of(path, _checked(path, header, 1), columns))


def _checked(path: Path, header: Sequence[str], line: int) -> Sequence[str]:
    """The header; raises a DataError if it has too many columns, or a repeated name."""
    if len(header) > MOST_COLUMNS:
        problem = f"there are {len(header):,} columns, more than {MOST_COLUMNS:,}"
        raise DataError(
            problem, file=path, line=line, remedy="Keep the columns with texts and labels."
        )
    for name, times in Counter(header).most_common(1):
        if times > 1:
            raise DataError(
                f"the column name {name!r} occurs twice",
                file=path,
                line=line,
                remedy="Give each column its own name.",
            )
    return header


def _separated_rows(
    path: Path, columns: Sequence[str] | None, watch: Watch | None, tabs: bool
) -> Iterator[Row]:
    lines = read_lines(path, watch)
    if tabs:
        records = _tab_records(lines)
        remedy = "Write fields without tabs and line breaks, or use JSON lines."
    else:
        records = _csv_records(path, lines)
        remedy = (
            'Put fields that contain commas, quotes or line breaks in "quotes", '
            "and double the quotes inside them."
        )
    header: Sequence[str] | None = None
    for number, fields in records:
        if header is None:
            header = _header(path, fields, number)
            wanted = places_of(path, header, columns)
        elif len(fields) != len(header):
            raise DataError(
                f"the row has {len(fields)} fields, but the header has {len(header)}",
                file=path,
                line=number,
                remedy=remedy,
            )
        else:
            yield Row(number, {name: fields[place] for name, place in wanted.items()})


def _header(path: Path, fields: list[str], line: int) -> Sequence[str]:
    """The names of the columns; one without a name gets its position."""
    names = fields
    if len(fields) <= MOST_COLUMNS:
        names = [name.strip() or f"column {i}" for i, name in enumerate(fields, 1)]
    return _checked(path, names, line)


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
    """Yields line number and fields.

    Quotes in TSV are mostly plain text; only a fully quoted field is unquoted.
    """
    for number, line in enumerate(lines, 1):
        content = line.rstrip("\r\n")
        if content:
            yield number, [_unquoted(field) for field in content.split("\t")]


def _unquoted(field: str) -> str:
    if (
        len(field) >= 2
        and field[0] == field[-1] == '"'
        and '"' not in field[1:-1].replace('""', "")
    ):
        return field[1:-1].replace('""', '"')
    return field


def _json_rows(path: Path, columns: Sequence[str] | None, watch: Watch | None) -> Iterator[Row]:
    unseen, known = set(columns or ()), {}
    number = 0
    for number, line in enumerate(read_lines(path, watch), 1):
        if line.isspace():
            continue
        try:
            values = parse_json(line)
        except ValueError as error:
            raise DataError(
                f"the line is not valid JSON ({error})",
                file=path,
                line=number,
                remedy=("Write one JSON object per line; jq -c '.[]' FILE converts a JSON list."),
            ) from None
        if not isinstance(values, dict):
            raise DataError(
                f"the line is a JSON {type(values).__name__}, not an object",
                file=path,
                line=number,
                remedy="""Write one object per line, such as {"text": "…", "label": "…"}.""",
            )
        if columns is not None:
            unseen -= values.keys()
            known.update(dict.fromkeys(values))
            values = {name: values.get(name) for name in columns}
        yield Row(number, values)
    if unseen and known:
        raise missing_column(path, min(unseen), list(known))
