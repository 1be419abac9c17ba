from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tasklm.corpus import sources
from tasklm.corpus.sources import NoTextColumn, find_files, fingerprint, read_documents
from tasklm.errors import DataError


def jsonl(path: Path, *values: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in values), encoding="utf-8")
    return path


def test_files_folders_and_globs_are_found_sorted_and_once(tmp_path: Path) -> None:
    for name in (
        "b.txt",
        "a.jsonl.zst",
        "deep/er/c.csv.gz",
        ".hidden.txt",
        ".git/d.txt",
        "image.png",
        "deep/e.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x", encoding="utf-8")
    names = [
        str(path.relative_to(tmp_path))
        for path in find_files([str(tmp_path), str(tmp_path / "b.txt")])
    ]
    assert names == ["a.jsonl.zst", "b.txt", "deep/e.md", "deep/er/c.csv.gz"]
    assert [
        path.name for path in find_files([str(tmp_path / "**" / "*.gz"), str(tmp_path / "*.txt")])
    ] == ["b.txt", "c.csv.gz"]


@pytest.mark.parametrize("pattern", ["nothing/*.txt", "nowhere.txt", ""])
def test_what_matches_nothing_is_named(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.txt").write_text("x", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"no text files found there. Name files, folders or globs"
    ) as caught:
        find_files(["there.txt", pattern])
    assert caught.value.file == pattern


def test_a_table_gives_a_document_per_row_with_its_source(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"id": "1", "text": "one", "source": "wiki"},
        {"text": "  "},
        {"text": None},
        {"text": "two"},
    )
    counts: Counter[str] = Counter()
    found = list(read_documents(path, counts=counts))
    assert [(document.text, document.source) for document in found] == [
        ("one", "wiki"),
        ("two", "a.jsonl"),
    ]
    assert counts == {"documents": 4, "empty": 2}


def test_the_text_column_is_named_known_or_the_longest(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"title": "A title that is really much longer than it", "Content": "by name"},
    )
    assert next(read_documents(path)).text == "by name"
    assert next(read_documents(path, "title")).text.startswith("A title")
    path = jsonl(
        tmp_path / "b.jsonl",
        {"url": "http://x.org/1", "prose": "this is a text of several words, found by its length"},
    )
    assert next(read_documents(path)).text.startswith("this is")
    with pytest.raises(DataError, match="there is no column 'prosa'"):
        next(read_documents(path, "prosa"))
    path = jsonl(tmp_path / "c.jsonl", {"key": "k1", "size": 3})
    with pytest.raises(
        NoTextColumn,
        match=r"no column looks like text; the columns are 'key', 'size'.*--corpus-column",
    ):
        next(read_documents(path))
    path = jsonl(tmp_path / "d.jsonl", {"text": ["a", "list"]})
    with pytest.raises(DataError, match="line 1: column 'text' contains a list, not text"):
        next(read_documents(path))


def test_plain_text_is_one_document_in_blocks_of_paragraphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_BLOCK", 40)
    text = "\n\n".join(f"Paragraph {i} has a line\nand another." for i in range(10))
    path = tmp_path / "book.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    counts: Counter[str] = Counter()
    found = [document.text for document in read_documents(path, counts=counts)]
    assert "".join(found) == text
    assert len(found) > 3
    assert all(block.endswith("another.\n\n") for block in found[:-1])
    assert counts == {"documents": 1}


def test_errors_of_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        list(read_documents(path))
    path.write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(DataError, match="line 2: byte 0xef"):
        list(read_documents(path))
    with pytest.raises(DataError, match="the format of the file cannot be told from its name"):
        list(read_documents(tmp_path / "a.pdf"))


def test_fingerprint_changes_with_content_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * 200_000)
    os.utime(path, (1, 1))
    first = fingerprint([path])
    assert first == fingerprint([path])
    seen = {first}
    for content in (b"b" + b"a" * 199_999, b"a" * 199_999 + b"b", b"a" * 200_001):
        path.write_bytes(content)
        os.utime(path, (1, 1))
        seen.add(fingerprint([path]))
    os.utime(path, (2, 2))
    seen.add(fingerprint([path]))
    assert len(seen) == 5
