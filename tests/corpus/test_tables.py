from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tasklm.corpus import tables
from tasklm.corpus.tables import Row, open_text, read_rows
from tasklm.errors import DataError

ROWS = [{"text": "plain", "label": "a"}, {"text": 'with "quotes", commas\tand é 中', "label": "b"}]


def rows(path: Path, *columns: str) -> list[Row]:
    return list(read_rows(path, columns or None))


def problem(path: Path, *columns: str) -> str:
    with pytest.raises(DataError) as caught:
        rows(path, *columns)
    assert str(path) in str(caught.value)
    assert caught.value.remedy
    return str(caught.value)


def as_csv() -> bytes:
    return 'text,label\nplain,a\n"with ""quotes"", commas\tand é 中",b\n'.encode()


def as_jsonl() -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [("csv", as_csv()), ("jsonl", as_jsonl()), ("json", as_jsonl()), ("ndjson", as_jsonl())],
)
def test_every_format_gives_the_same_rows(
    tmp_path: Path, kind: str, content: bytes, suffix: str
) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".zst": zstandard.ZstdCompressor().compress,
    }
    path = tmp_path / f"data.{kind}{suffix}"
    path.write_bytes(pack[suffix](content))
    found = rows(path)
    assert [row.values for row in found] == ROWS
    assert [row.line for row in found] == ([2, 3] if kind == "csv" else [1, 2])
    assert rows(path, "label")[1].values == {"label": "b"}


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    read: list[bytes] = []
    found = list(read_rows(path, ["label", "text"], watch=lambda block: read.append(bytes(block))))
    assert [row.values for row in found] == ROWS
    assert [row.line for row in found] == [1, 2]
    assert b"".join(read) == path.read_bytes()
    assert "there is no column 'labl' (did you mean 'label'?)" in problem(path, "labl")
    path.write_bytes(path.read_bytes()[:-30])
    assert "not valid Parquet" in problem(path)


def test_concatenated_frames_are_read_to_the_end(tmp_path: Path) -> None:
    for suffix, pack in ((".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)):
        path = tmp_path / f"data.jsonl{suffix}"
        path.write_bytes(pack(as_jsonl()) + pack(as_jsonl()))
        assert [row.values for row in rows(path)] == ROWS + ROWS


def test_tsv_takes_quotes_as_text_unless_they_wrap_a_field(tmp_path: Path) -> None:
    path = tmp_path / "data.tsv"
    path.write_text('text\tlabel\n"Stop" he said\ta\n"so ""it"" is"\tb\n', encoding="utf-8")
    assert [row.values["text"] for row in rows(path)] == ['"Stop" he said', 'so "it" is']
    path.write_text("text\tlabel\none\n", encoding="utf-8")
    assert (
        "line 2: the row has 1 fields, but the header has 2. Write fields without tabs"
        in problem(path)
    )


def test_csv_fields_may_hold_line_breaks_and_rows_name_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes('\ufefftext;label\r\n"two\r\nlines";a\r\n\r\nlast;b\r\n'.encode())
    assert rows(path) == [
        Row(2, {"text": "two\r\nlines", "label": "a"}),
        Row(5, {"text": "last", "label": "b"}),
    ]


def test_csv_errors(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("text,label\na,b\nc,d,e\n", encoding="utf-8")
    assert (
        "line 3: the row has 3 fields, but the header has 2. Put fields that contain commas"
        in problem(path)
    )
    path.write_text('text,label\na,b\n"never closed,d\ne,f\n', encoding="utf-8")
    assert "line 3: the row that begins here is not valid CSV" in problem(path)
    path.write_text("text,text\na,b\n", encoding="utf-8")
    assert "line 1: the column name 'text' occurs twice" in problem(path)
    path.write_text("text,label\na,b\n", encoding="utf-8")
    assert "there is no column 'class'; the columns are 'text', 'label'" in problem(path, "class")


def test_json_errors(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "a"}\n{"text": \n', encoding="utf-8")
    assert "line 2: the line is not valid JSON" in problem(path)
    path.write_text('\n["a"]\n', encoding="utf-8")
    assert "line 2: the line is a JSON list, not an object" in problem(path)
    path.write_text('{"text": "a"}\n{"body": "a"}\n', encoding="utf-8")
    assert rows(path, "body")[0].values == {"body": None}
    assert "there is no column 'label'; the columns are 'text', 'body'" in problem(path, "label")


def test_half_characters_in_json_become_replacement_characters(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(r'{"text": "a\ud83d b \ud83d\ude00 \u00e9"}' + "\n", encoding="utf-8")
    assert rows(path)[0].values["text"] == "a\ufffd b 😀 é"


def test_missing_and_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    assert "there is no such file. Check the path" in problem(path)
    for content in (b"", b"text,label\n"):
        path.write_bytes(content)
        assert "the file is empty: it has no rows" in problem(path)
    for name in ("empty.jsonl", "empty.parquet", "empty.jsonl.gz", "empty.jsonl.zst"):
        (tmp_path / name).write_bytes(b"")
        assert "the file is empty" in problem(tmp_path / name)
    assert "this is a folder" in problem_of_folder(tmp_path / "folder.csv")
    assert "the format of the table cannot be told" in problem(tmp_path / "data.xlsx")


def problem_of_folder(path: Path) -> str:
    path.mkdir()
    return problem(path)


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(
        b'{"text": "fine"}\n' * 20_000 + b'{"text": "caf\xe9"}\n' + b'{"text": "fine"}\n' * 100
    )
    message = problem(path)
    assert "line 20001: byte 0xe9 at position 14 of the line is not UTF-8" in message
    assert "iconv" in message
    path.write_bytes('{"text": "a"}\n'.encode("utf-16"))
    assert "line 1: byte 0xff at position 1" in problem(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_truncated_file_is_noticed(tmp_path: Path, suffix: str) -> None:
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    lines = b"".join(b'{"text": "row %d %d"}\n' % (i, i * 7919 % 10007) for i in range(20_000))
    path = tmp_path / f"data.jsonl{suffix}"
    path.write_bytes(pack(lines)[:-40])
    message = problem(path)
    assert "the compressed file is truncated. Copy or download it again" in message
    assert ", line " in message
    path.write_bytes(b"not compressed at all")
    assert "the compressed file is damaged" in problem(path)


def test_a_line_of_10_mb_is_read_and_one_beyond_the_limit_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "word " * 2_000_000
    (tmp_path / "data.jsonl").write_text(json.dumps({"text": long}) + "\n", encoding="utf-8")
    (tmp_path / "data.csv").write_text(f'text,label\n"{long}",a\n', encoding="utf-8")
    assert rows(tmp_path / "data.jsonl")[0].values["text"] == long
    assert rows(tmp_path / "data.csv")[0].values["text"] == long
    monkeypatch.setattr(tables, "LONGEST_LINE", 1 << 20)
    assert "line 1: the line is longer than 1 million characters. Put one example" in problem(
        tmp_path / "data.jsonl"
    )
    assert "line 2: the line is longer" in problem(tmp_path / "data.csv")


def test_reading_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(as_jsonl() * 50_000)
    read: list[int] = []
    next(iter(read_rows(path, watch=lambda block: read.append(len(block)))))
    assert 0 < sum(read) < path.stat().st_size / 4


def test_open_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress("\ufeffé\nb\n".encode()))
    with open_text(path) as file:
        assert file.read() == "é\nb\n"
