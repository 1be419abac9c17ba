"""Tables that are broken, or made to do harm: told in words, in bounded time and memory."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tasklm.corpus import arrow_rows, streams, tables
from tasklm.corpus.arrow_rows import stream_values
from tasklm.corpus.parquet_pages import require_levels
from tasklm.corpus.sources import find_files, read_documents
from tasklm.corpus.tables import places_of, read_rows
from tasklm.errors import DataError

MEGABYTE = 1 << 20
POOLS: list[Any] = []  # what was allocated from a pool may outlive its test


def problem(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        for _ in read_rows(path):
            pass
    assert str(path) in str(caught.value) and caught.value.remedy
    return str(caught.value)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Asserts that Arrow holds at most so many bytes more than before, at any time."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() <= size


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"text": ' + "9" * 5000 + "}", "more than 4,300 digits"),
        ('{"text": ' + "[" * 5000 + "]" * 5000 + "}", "more than 100 deep"),
        ('{"text": ' + "[" * 100_000, "more than 100 deep"),
    ],
)
def test_what_json_cannot_hold_is_told_with_its_line(tmp_path: Path, row: str, words: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "fine"}\n' + row + "\n", encoding="utf-8")
    message = problem(path)
    assert words in message and ", line 2: " in message and len(message) < 1000


def test_half_characters_inside_lists_and_names_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(r'{"options\ud800": ["a\udc00", {"b": "\ud800"}]}' + "\n", encoding="utf-8")
    assert [row.values for row in read_rows(path)] == [
        {"options\ufffd": ["a\ufffd", {"b": "\ufffd"}]}
    ]


@pytest.mark.parametrize(
    "name", ["data.csv", "data.jsonl", "data.parquet", "data.csv.gz", "data.jsonl.zst"]
)
def test_only_regular_files_are_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    message = problem(tmp_path / name)
    assert (
        "it is a named pipe, not a regular file" in message
        and "save its output to a file" in message
    )
    (tmp_path / f"endless{name}").symlink_to("/dev/zero")
    assert "it is a device" in problem(tmp_path / f"endless{name}")
    (tmp_path / f"loop{name}").symlink_to(tmp_path / f"loop{name}")
    assert "symbolic links" in problem(tmp_path / f"loop{name}")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / odd).write_text("a text", encoding="utf-8")
    with pytest.raises(DataError, match=r"caf\\udce9\.txt.*the name is not UTF-8.*Rename"):
        find_files([str(tmp_path)])
    assert "too long" in problem(tmp_path / ("x" * 5000 + ".csv"))
    assert "no file can have this name" in problem(tmp_path / "a\0b.csv")


class Header(list[str]):
    """Names of columns that count how often they are searched from the beginning."""

    searches = 0

    def index(self, *given: Any) -> int:
        self.searches += 1
        return super().index(*given)

    def count(self, name: str) -> int:
        self.searches += 1
        return super().count(name)

    def __contains__(self, name: object) -> bool:
        self.searches += 1
        return super().__contains__(name)


def test_headers_take_as_many_steps_as_they_have_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"name {number}" for number in range(100_000)]
    headers = []

    def noted(path: Path, fields: list[str], line: int) -> Any:
        headers.append(Header(original(path, fields, line)))
        return headers[-1]

    original = tables._header
    monkeypatch.setattr(tables, "_header", noted)
    path = tmp_path / "wide.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n", encoding="utf-8")
    (row,) = read_rows(path)
    assert row.values["name 99999"] == "1"
    (row,) = read_rows(path, ["name 7"])
    assert row.values == {"name 7": "1"}
    assert len(headers) == 2 and not any(header.searches for header in headers)
    searched = Header(names)
    places_of(path, searched, names)
    tables._checked(path, searched, 1)
    assert searched.searches == 0
    with pytest.raises(DataError) as caught:
        list(read_rows(path, ["nme 12"]))
    assert "(did you mean 'name 12'?)" in str(caught.value) and "and 99,980 more" in str(
        caught.value
    )


def test_very_many_columns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_COLUMNS", 3)
    for name, mark in (("wide.csv", ","), ("wide.tsv", "\t")):
        (tmp_path / name).write_text(mark * 3 + "\n" + mark * 3 + "\n", encoding="utf-8")
        assert "line 1: there are 4 columns, more than 3" in problem(tmp_path / name)


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)]
)
def test_a_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "UNPACKED", MEGABYTE)
    path = tmp_path / f"data.txt{suffix}"
    path.write_bytes(pack(b"a line of the same words\n" * 200_000))
    with pytest.raises(
        DataError, match=r"unpacks to more than 250 times its size.*unpack it yourself"
    ):
        for _ in read_documents(path):
            pass
    monkeypatch.setattr(streams, "RATIO", 100_000)
    assert sum(len(document.text) for document in read_documents(path)) == 25 * 200_000


def repeated(rows: int, size: int, **changes: Any) -> pa.Table:
    """A table in which one text of `size` bytes stands in all rows."""
    return pa.table(
        {
            "text": pa.DictionaryArray.from_arrays(
                pa.array([0] * rows, pa.int32()), pa.array(["x" * size])
            ),
            **changes,
        }
    )


def test_a_small_parquet_file_does_not_take_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(repeated(1024, 4 * MEGABYTE), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 2000
    with at_most(600 * MEGABYTE):
        assert "unpacks to more than 250 times its size" in problem(path)
    with pytest.raises(AssertionError), at_most(600 * MEGABYTE):  # what it would take
        pq.ParquetFile(path).read_row_group(0)


def test_long_lists_of_one_text_are_counted_before_they_are_written_out(tmp_path: Path) -> None:
    words = repeated(1 << 16, MEGABYTE)["text"].combine_chunks()
    lists = pa.ListArray.from_arrays(pa.array([0, 3, len(words)], pa.int32()), words)
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"tokens": lists}), path, compression="zstd", store_schema=False)
    with at_most(600 * MEGABYTE):
        assert "line 2: the row has more than 64 million bytes" in problem(path)


def test_pages_that_are_larger_than_the_file_says_are_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "UNPACKED", MEGABYTE)
    path = tmp_path / "data.parquet"
    table = pa.table({"text": ["x" * (3 * MEGABYTE)]})
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    honest = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    with at_most(MEGABYTE):
        assert "unpacks to more than 250 times its size" in problem(path)
    content, number = path.read_bytes(), varint(2 * honest)
    assert content.count(number) == 2  # of the column, and of the row group
    path.write_bytes(content.replace(number, varint(2 << 20)))  # as long, but less
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == MEGABYTE
    with at_most(MEGABYTE):
        assert "unpacks to more than 250 times its size" in problem(path)


def varint(number: int) -> bytes:
    """A number as Thrift's compact protocol writes it."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data_page_version": "2.0"},
        {"use_dictionary": False},
        {"compression": "gzip", "data_page_size": 100},
    ],
)
@pytest.mark.parametrize("at_once", [100, arrow_rows.AT_ONCE])
def test_parquet_files_of_all_sorts_are_read_alike(
    tmp_path: Path, settings: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_rows, "AT_ONCE", at_once + 400)  # of one row at a time, or of all
    rows = [
        {
            "a.b": f"text {number % 7} é",
            "n": number,
            "tokens": ["a", None, "b" * (number % 3)],
            "answers": {"text": ["x"], "start": [1]},
        }
        for number in range(300)
    ]
    rows[5] |= {"a.b": None, "tokens": None, "answers": None}
    path = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=100, **settings)
    assert [row.values for row in read_rows(path)] == rows
    assert [row.values for row in read_rows(path, ["a.b"])] == [{"a.b": row["a.b"]} for row in rows]


def test_texts_that_go_on_from_one_another_are_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_rows, "IN_A_BATCH", 4 * MEGABYTE)
    path = tmp_path / "data.parquet"
    table = pa.table({"text": ["x" * (MEGABYTE // 4) + str(number) for number in range(400)]})
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY"},
    )
    with at_most(20 * MEGABYTE):
        assert sum(len(row.values["text"]) for row in read_rows(path)) > 100 * MEGABYTE
    lists = pa.table({"tokens": [["one", "once"]]})
    pq.write_table(
        lists,
        path,
        use_dictionary=False,
        column_encoding={"tokens.list.element": "DELTA_BYTE_ARRAY"},
    )
    assert "DELTA_BYTE_ARRAY" in problem(path)


def test_streams_of_arrow_with_compressed_or_false_batches_are_refused(tmp_path: Path) -> None:
    def refused(content: bytes) -> str:
        (tmp_path / "data.arrow").write_bytes(content)
        with pytest.raises(DataError) as caught:
            list(stream_values(tmp_path / "data.arrow", list, "Save it again."))
        return str(caught.value)

    def written(table: pa.Table, compression: str | None = None) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
        ) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue())

    plain = pa.table({"text": ["one", "two", "three"]})
    (tmp_path / "good.arrow").write_bytes(written(plain))
    assert list(stream_values(tmp_path / "good.arrow", list, "")) == plain.to_pylist()
    assert "its batches are compressed" in refused(written(plain, "zstd"))
    assert "its batches are compressed" in refused(written(repeated(10, 100), "zstd"))
    offsets = b"\0\0\0\0\x03\0\0\0\x06\0\0\0\x0b\0\0\0"
    assert written(plain).count(offsets) == 1
    assert "cannot be read" in refused(
        written(plain).replace(offsets, b"\0\0\0\0\x03\0\0\0\xff\xff\xff\x7f\xff\xff\xff\x7f")
    )
    os.mkfifo(tmp_path / "pipe.arrow")
    with pytest.raises(DataError, match="a named pipe"):
        list(stream_values(tmp_path / "pipe.arrow", list, ""))


def test_paths_that_lead_nowhere_are_named() -> None:
    for pattern in ("~nobody-of-this-name/texts", "texts/**.txt/*", "**a"):
        with pytest.raises(DataError) as caught:
            find_files([pattern])
        assert pattern in str(caught.value) and caught.value.remedy


def test_a_parquet_file_that_counts_other_levels_than_it_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"text": ["a", None], "tags": [["x"], []]}), path)
    about = pq.read_metadata(path)
    levels = [(leaf.max_repetition_level, leaf.max_definition_level) for leaf in about.schema]
    with path.open("rb") as file:
        require_levels(file, path.stat().st_size, levels)
        for wrong in ([(0, 0), levels[1]], [levels[0], (0, 3)]):
            with pytest.raises(ValueError, match="counts of levels do not match"):
                require_levels(file, path.stat().st_size, wrong)
