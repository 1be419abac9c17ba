"""Rows of Arrow's batches as Python values, a bounded number of bytes at a time, and Parquet files
read so.

A few hundred bytes of Parquet can unpack to gigabytes: a text stored once and repeated in a million
rows. So the sizes of pages are read before they are unpacked, lists of texts stay numbers in a
dictionary until it is known how long they are, and a batch has fewer rows the longer its texts may
be.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tasklm.corpus.parquet_pages import Pages, pages_of, require_levels
from tasklm.corpus.streams import OF_A_ROW, Unpacked, Watch, open_binary, size_of
from tasklm.errors import DataError
from tasklm.storage.safe_reading import require_regular

BATCH = 1024  # rows, at most
# bytes of texts that a batch may unpack to, if all its texts have the maximum length
IN_A_BATCH = 256 << 20
_WATCHED = 1 << 20  # bytes that are shown to who watches the reading at once
AT_ONCE = 64 << 20  # bytes that are turned into Python's values at once, and that a row may have

# existing columns → wanted ones; raises DataError if one is missing
Pick = Callable[[Sequence[str]], list[str]]
Values = dict[str, Any]


def values_of(
    batch: pa.RecordBatch, unpacked: Unpacked, first: int, schema: pa.Schema | None = None
) -> Iterator[Values]:
    """Yields the rows of a batch as plain values; `first` is the number of its first row, for the
    error on one that is too large.

    `schema`: what the batch is turned into, where its columns are dictionaries for the time being.
    """
    sizes = np.full(batch.num_rows, OF_A_ROW, np.int64)
    for column in batch.columns:
        sizes += bytes_of(column)
    if len(sizes) and sizes.max() > AT_ONCE:
        problem = f"the row has more than {AT_ONCE >> 20} million bytes"
        remedy = "Put one example or document in a row, or split it."
        raise DataError(
            problem, file=unpacked.path, line=first + int(sizes.argmax()), remedy=remedy
        )
    ends, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + AT_ONCE, "right")))
        unpacked.add(int(ends[end - 1]) - before)
        piece = batch.slice(begin, end - begin)
        if schema is not None:
            piece = piece.cast(schema)
        yield from piece.to_pylist()
        begin = end


def bytes_of(array: Any) -> NDArray[np.int64]:
    """The approximate bytes of each value of an array, when fully unpacked."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        of_entries = np.append(bytes_of(array.dictionary), 0)
        numbers = array.indices.fill_null(len(of_entries) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(of_entries[numbers], np.int64)
    if pa.types.is_struct(kind):
        return sum((bytes_of(part) for part in array.flatten()), np.full(len(array), 8, np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy(zero_copy_only=False)
        inner = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        sums = np.append(0, np.cumsum(8 + bytes_of(inner)))
        return np.asarray(np.diff(sums[offsets - offsets[0]]), np.int64)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inner = array.values.slice(array.offset * size, len(array) * size)
        return np.asarray((8 + bytes_of(inner)).reshape(len(array), size).sum(1), np.int64)
    if _is_text(kind) or pa.types.is_fixed_size_binary(kind):
        return np.asarray(
            pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False), np.int64
        )
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return np.full(len(array), 16, np.int64)
    raise pa.ArrowNotImplementedError(f"values of type {kind} are not supported")


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


def stream_values(path: Path, pick: Pick, again: str) -> Iterator[Values]:
    """Yields the rows of a file with a stream of Arrow's batches, as Hugging Face's datasets have
    them; `again`: how to write it anew.
    """
    try:
        size = require_regular(path).stat().st_size
        unpacked = Unpacked(path, size, again)
        with pa.memory_map(str(path)) as source:
            _require_unpacked(pa.ipc.MessageReader.open_stream(source))
            source.seek(0)
            with pa.ipc.open_stream(source) as reader:
                names, number = pick(reader.schema.names), 0
                for batch in reader:
                    # places in it that lie outside would be read all the same
                    batch.validate(full=True)
                    yield from values_of(batch.select(names), unpacked, number + 1)
                    number += batch.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"the file cannot be read ({error})", file=path, remedy=again) from None


def _require_unpacked(messages: Any) -> None:
    """Raises ValueError if batches are compressed: their size would be known too late."""
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        has_batch = message.type in ("record batch", "dictionary")
        if has_batch and _compressed(message.metadata.to_pybytes(), message.type):
            raise ValueError("its batches are compressed")


def _compressed(metadata: bytes, kind: str) -> bool:
    """Whether a message's flatbuffer has a RecordBatch with the field `compression`
    (arrow/format/Message.fbs)."""

    def field(table: int, number: int) -> int:
        """Where a field of a table stands, 0 where the table has none."""
        fields = table - int(struct.unpack_from("<i", metadata, table)[0])
        size = int(struct.unpack_from("<H", metadata, fields)[0])
        if 4 + 2 * number >= size:
            return 0
        offset = int(struct.unpack_from("<H", metadata, fields + 4 + 2 * number)[0])
        return table + offset if offset else 0

    def table_at(place: int) -> int:
        return place + int(struct.unpack_from("<I", metadata, place)[0])

    try:
        batch = table_at(field(table_at(0), 2))
        if kind == "dictionary":
            batch = table_at(field(batch, 1))
        return field(batch, 3) > 0
    except struct.error:
        raise ValueError("the description of a batch is damaged") from None


def parquet_values(path: Path, pick: Pick, watch: Watch | None) -> Iterator[Values]:
    """Yields the rows of a Parquet file, with the columns that `pick` chooses."""
    with open_binary(path) as file:
        size = size_of(file)
        if size == 0:
            return
        try:
            yield from _parquet_values(path, file, size, pick, watch)
        except (pa.ArrowException, OSError, ValueError) as error:
            problem = f"the file is not valid Parquet ({error})"
            raise DataError(
                problem,
                file=path,
                remedy="Copy or write it again as a plain Parquet file.",
            ) from None


def _parquet_values(
    path: Path, file: Any, size: int, pick: Pick, watch: Watch | None
) -> Iterator[Values]:
    unpacked = Unpacked(path, size, "If you trust it, write it again as JSON lines.")
    plain = pq.ParquetFile(file)
    about, names = plain.metadata, pick(plain.schema_arrow.names)
    schema = pa.schema([plain.schema_arrow.field(name) for name in names])
    leaves = {
        number: leaf for number, leaf in enumerate(about.schema) if _belongs(leaf.path, set(names))
    }
    in_lists = [
        leaf.path
        for leaf in leaves.values()
        if leaf.max_repetition_level and leaf.physical_type == "BYTE_ARRAY"
    ]
    levels = [(leaf.max_repetition_level, leaf.max_definition_level) for leaf in about.schema]
    require_levels(file, size, levels)
    table = pq.ParquetFile(file, metadata=about, read_dictionary=in_lists)
    number = 0
    for group in range(about.num_row_groups):
        parts = about.row_group(group)
        rows = _rows_at_once(
            [(leaf, pages_of(file, parts.column(place))) for place, leaf in leaves.items()],
            unpacked,
        )
        for batch in table.iter_batches(
            batch_size=rows, row_groups=[group], columns=names, use_threads=False
        ):
            yield from values_of(batch.select(names), unpacked, number + 1, schema)
            number += batch.num_rows
        if watch is not None:
            _watch_share(file, watch, size, (group, about.num_row_groups))


def _watch_share(file: Any, watch: Watch, size: int, share: tuple[int, int]) -> None:
    """Shows the bytes of one of several equal shares of a file, whose values are read in another
    order than they stand in."""
    number, of = share
    file.seek(size * number // of)
    left = size * (number + 1) // of - size * number // of
    while left and (block := file.read(min(left, _WATCHED))):
        watch(memoryview(block))
        left -= len(block)


def _belongs(path: str, names: set[str]) -> bool:
    """Whether a leaf, such as tokens.list.element, belongs to one of some columns; names
    may have dots of their own."""
    parts = path.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _rows_at_once(leaves: Sequence[tuple[Any, Pages]], unpacked: Unpacked) -> int:
    """How many rows of a row group may be unpacked at once; raises DataError where the
    group cannot be held at all."""
    held = longest = 0
    for leaf, pages in leaves:
        fixed = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
        held += pages.size + pages.values * max(8, fixed)
        longest += max(pages.shared, fixed)
        if leaf.max_repetition_level and pages.delta:
            problem = "lists of texts that share their beginnings (DELTA_BYTE_ARRAY)"
            raise ValueError(f"column {leaf.path} has {problem}")
    if held > unpacked.most:
        unpacked.add(held)  # raises
    return max(1, min(BATCH, IN_A_BATCH // max(1, longest)))
