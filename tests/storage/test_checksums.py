"""Checksums: what is noted of files, and that any change of them is seen."""

from __future__ import annotations

import errno
import json
import os
import pickle
import zlib
from pathlib import Path

import numpy as np
import pytest

from tasklm.errors import DamagedError, DataError
from tasklm.storage import checksums
from tasklm.storage.checksums import (
    content_of,
    damage_is_clear,
    files_in,
    is_sealed,
    load_array,
    problems_of,
    require_offsets,
    require_whole,
    seal,
    sums_of,
)
from tasklm.storage.files import damaged


def test_the_checksum_of_a_file_is_its_crc32_and_of_a_long_one_that_of_its_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksums, "PIECE", 10)
    monkeypatch.setattr(checksums, "_AT_ONCE", 3)
    contents = {
        "none": b"",
        "short": b"12345",
        "just": b"0123456789",
        "long": b"0123456789abcdefghijXYZ",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    sums = sums_of(tmp_path, files_in(tmp_path))
    pieces = np.array([zlib.crc32(part) for part in (b"0123456789", b"abcdefghij", b"XYZ")], "<u4")
    expected = {name: zlib.crc32(content) for name, content in contents.items()} | {
        "long": zlib.crc32(pieces.tobytes())
    }
    assert sums == {
        name: {"size": len(contents[name]), "crc32": f"{crc:08x}"} for name, crc in expected.items()
    }


def sealed(folder: Path) -> Path:
    (folder / "inside").mkdir(parents=True)
    (folder / "a").write_bytes(b"some bytes")
    (folder / "inside" / "b").write_bytes(b"other bytes")
    record = folder / "artefact.json"
    seal(record, {"key": "x", "seconds": 1.0}, files_in(folder))
    return record


def test_any_flipped_bit_of_files_and_record_is_seen(tmp_path: Path) -> None:
    record = sealed(tmp_path / "thing")
    assert is_sealed(record)
    values = json.loads(record.read_text())
    for path in files_in(tmp_path / "thing"):
        content = path.read_bytes()
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            if is_sealed(record):  # white space in JSON may be other white space
                assert path == record and json.loads(path.read_text()) == values
        path.write_bytes(content)
    assert is_sealed(record)


def test_problems_say_what_is_wrong_with_which_file(tmp_path: Path) -> None:
    record = sealed(tmp_path / "thing")
    files = json.loads(record.read_text())["files"]
    assert problems_of(tmp_path / "thing", files) == []
    (tmp_path / "thing" / "a").write_bytes(b"some bytez")
    (tmp_path / "thing" / "inside" / "b").write_bytes(b"")
    problems = problems_of(tmp_path / "thing", files)
    assert {(problem.file.name, problem.text) for problem in problems} == {
        ("a", "its checksum does not match"),
        ("b", "it has 0 bytes, not 11"),
    }
    (tmp_path / "thing" / "a").unlink()
    assert ("a", "it is missing") in {
        (problem.file.name, problem.text) for problem in problems_of(tmp_path / "thing", files)
    }
    with pytest.raises(
        DamagedError, match=r"Delete .*thing and run the same command again"
    ) as error:
        require_whole(tmp_path / "thing")
    assert error.value.artefact == tmp_path / "thing"


def test_a_file_that_cannot_be_read_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = sealed(tmp_path / "thing")

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    texts = {
        problem.text
        for problem in problems_of(tmp_path / "thing", json.loads(record.read_text())["files"])
    }
    assert texts == {"it cannot be read: Input/output error"}


def test_only_the_smallest_files_are_read_where_that_is_asked(tmp_path: Path) -> None:
    for name, size in (("large", 1000), ("small", 10), ("middle", 100)):
        (tmp_path / name).write_bytes(bytes(size))
    files = sums_of(tmp_path, files_in(tmp_path))
    for name, size in (("large", 1000), ("small", 10), ("middle", 100)):
        (tmp_path / name).write_bytes(b"x" * size)
    for most, seen in (
        (5, set()),
        (10, {"small"}),
        (110, {"small", "middle"}),
        (5000, {"small", "middle", "large"}),
    ):
        assert {problem.file.name for problem in problems_of(tmp_path, files, most=most)} == seen


def test_a_large_file_is_read_once_unless_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    files, reads = sums_of(tmp_path, files_in(tmp_path)), []
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda *arguments: (reads.append(1), read(*arguments))[1])
    assert not problems_of(tmp_path, files)
    once = len(reads)
    assert once and not problems_of(tmp_path, files) and len(reads) == once
    (tmp_path / "large").write_bytes(b"x" * (2 << 20))
    os.utime(tmp_path / "large", (1, 1))
    assert problems_of(tmp_path, files) and len(reads) > once


def test_the_content_of_an_artefact_leaves_times_out(tmp_path: Path) -> None:
    record = sealed(tmp_path / "one")
    before = content_of(tmp_path / "one")
    (tmp_path / "one" / "summary.json").write_text("3 s")
    seal(record, {}, files_in(tmp_path / "one", leave_out=("artefact.json",)))
    assert content_of(tmp_path / "one") == before != ""
    (tmp_path / "one" / "a").write_bytes(b"another")
    seal(record, {}, files_in(tmp_path / "one", leave_out=("artefact.json",)))
    assert content_of(tmp_path / "one") not in ("", before)
    record.write_text("{")
    assert content_of(tmp_path / "one") == content_of(tmp_path / "none") == ""


def test_errors_of_reading_are_damage_unless_they_speak_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    errors = (
        EOFError(),
        ValueError("odd"),
        KeyError("key"),
        OSError("no number"),
        FileNotFoundError(errno.ENOENT, "x"),
    )
    for error in (*errors, DataError("odd", remedy="None.")):
        with (
            pytest.raises(DamagedError, match=r"x\.npy is damaged \(.+\)\. Delete"),
            damage_is_clear(file),
        ):
            raise error
    for other in (
        PermissionError(errno.EACCES, "x"),
        OSError(errno.EMFILE, "x"),
        MemoryError(),
        KeyboardInterrupt(),
    ):
        with pytest.raises(type(other)), damage_is_clear(file):
            raise other


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"nonsense", bytes(200)])
def test_an_array_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    for mapped in (False, True):
        with pytest.raises(DamagedError, match=r"x\.npy is damaged"):
            load_array(path, np.int64, mapped=mapped)
    np.save(path, np.arange(3.0))
    with pytest.raises(DamagedError, match="it has float64 in 1 dimensions"):
        load_array(path, np.int64)


def test_offsets_begin_at_nothing_never_fall_and_end_at_the_end(tmp_path: Path) -> None:
    require_offsets(tmp_path, np.array([0]), 0)
    require_offsets(tmp_path, np.array([0, 2, 2, 5]), 5)
    for offsets, end in (([], 0), ([1, 5], 5), ([0, 5], 6), ([0, 3, 2, 5], 5), ([0, -1, 5], 5)):
        with pytest.raises(DamagedError, match="its offsets are inconsistent"):
            require_offsets(tmp_path, np.array(offsets, np.int64), end)


def test_the_way_out_depends_on_where_the_file_stands(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "first"
    for folder in ("stage1", "stage2/seed-1", "compare/random/tokens", "selected.partial"):
        (run / folder).mkdir(parents=True)
    for folder in (run, run / "compare" / "random"):
        (folder / "recipe.toml").touch()
        (folder / "manifest.json").touch()
    expected = {
        "stage1/model.safetensors": "train",
        "stage2/seed-1/best.safetensors": "finetune",
        "compare/random/tokens/x": "evaluate",
        "selected.partial/x": "select",
        "scores.json": "report",
    }
    for name, verb in expected.items():
        assert damaged(run / name, "torn").remedy == f"Rebuild it: tasklm {verb} {run}"
    assert damaged(run / "selected.partial" / "x", "torn").artefact == run / "selected.partial"
    model, export = tmp_path / "model", tmp_path / "export"
    for folder, record in ((model, "config.json"), (export, "export.json")):
        folder.mkdir()
        (folder / record).touch()
    assert (
        damaged(model / "model.safetensors", "torn").remedy
        == f"Copy {model} again from where it was trained."
    )
    assert (
        damaged(export / "model.onnx", "torn").remedy
        == f"Delete {export} and export the model again."
    )


def test_the_error_comes_whole_from_another_process(tmp_path: Path) -> None:
    error = damaged(tmp_path / "x", "torn")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.file == error.file and copy.artefact is None
