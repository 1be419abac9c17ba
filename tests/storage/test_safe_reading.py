"""Files and JSON that others wrote."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tasklm.storage.safe_reading import (
    DEEPEST,
    MemoryFile,
    open_regular,
    parse_json,
    read_bytes,
    read_json_file,
    whole_text,
)


def refused(text: str) -> str:
    with pytest.raises(ValueError) as caught:
        parse_json(text)
    return str(caught.value)


def test_half_characters_become_replacement_characters_at_any_depth() -> None:
    values = parse_json(r'{"a\ud800": ["b\udfff", {"c": "\ud83d\ude00 \ude00\ud83d"}], "n": 1}')
    assert values == {"a\ufffd": ["b\ufffd", {"c": "😀 \ufffd\ufffd"}], "n": 1}
    assert whole_text("caf\udce9") == "caf\ufffd" and whole_text("é😀") == "é😀"


def test_numbers_of_very_many_digits_are_refused_in_words() -> None:
    assert parse_json("1" + "0" * 400) == 10**400
    assert refused("9" * 5000) == "it has a number with more than 4,300 digits"


@pytest.mark.parametrize(("one", "other"), [("[", "]"), ('{"a":', "}")])
def test_deep_json_is_refused_in_words(one: str, other: str) -> None:
    for depth in (DEEPEST + 2, 100_000):
        assert "more than 100 deep" in refused(one * depth + "1" + other * depth)
    parse_json(one * DEEPEST + "1" + other * DEEPEST)
    wide = "[" + "[]," * 1000 + "[]]"
    assert len(parse_json(wide)) == 1001


def test_very_many_lists_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasklm.storage.safe_reading.MOST_NESTED", 3)
    assert "more than 3 lists and objects" in refused("[[],[],[]]")


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "endless").symlink_to("/dev/zero")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"
    expected = {
        "pipe": "a named pipe",
        "endless": "a device",
        "socket": "",
        "loop": "symbolic links",
        "x" * 5000: "too long",
        ".": "folder",
    }
    for name, words in expected.items():
        with pytest.raises(OSError) as caught:
            open_regular(tmp_path / name)
        assert words in str(caught.value)
    for name in ("a\0b", "\ud800"):
        with pytest.raises(OSError, match="no file can have this name"):
            open_regular(tmp_path / name)
    server.close()


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert read_bytes(tmp_path / "file", 100) == b"x" * 100
    with pytest.raises(OSError, match="more than 99 bytes"):
        read_bytes(tmp_path / "file", 99)


def test_a_file_in_memory_is_read_as_one_on_disk() -> None:
    assert read_json_file(MemoryFile.of("a.json", b'{"a": 1}')) == {"a": 1}
