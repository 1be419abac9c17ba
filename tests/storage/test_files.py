from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import SafetensorError

import tasklm
from tasklm.artifacts import Artefacts
from tasklm.errors import DamagedError, RunError
from tasklm.storage.files import (
    digest,
    full_disk_is_clear,
    locked,
    make_folder,
    read_json,
    require_own,
    write_bytes,
    write_json,
    write_record,
)


def test_a_run_begins_in_a_folder_of_its_own(tmp_path: Path) -> None:
    for fine in (tmp_path / "none", tmp_path):
        require_own(fine)
    (tmp_path / ".hidden").touch()
    require_own(tmp_path)
    (tmp_path / "recipe.toml").touch()  # a person's own, it may be
    with pytest.raises(
        RunError, match=r"contains files but no run. Choose a new or an empty folder with --out"
    ):
        require_own(tmp_path)
    with locked(tmp_path):
        require_own(tmp_path)
    require_own(tmp_path)


def test_a_full_disk_is_told_with_the_way_out_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        RunError, match=r"disk is full.*Free some space and run the same command again"
    ):
        Artefacts(tmp_path / "run").build("thing", "a", full)
    with pytest.raises(RunError, match="disk is full"), full_disk_is_clear(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert path.read_bytes() == b"old"


def test_an_unwritable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"not a folder.*--out"):
        Artefacts(tmp_path / "file")
    with pytest.raises(RunError, match=r"cannot be written.*--out"), full_disk_is_clear(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_two_processes_cannot_share_a_run(tmp_path: Path) -> None:
    lines = [
        "from pathlib import Path",
        "from tasklm.storage.files import locked",
        f"with locked(Path({str(tmp_path)!r})): print('in', flush=True); input()",
    ]
    code = "\n".join(lines)
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "in\n"
        with pytest.raises(RunError, match=rf"in use by process {other.pid}"), locked(tmp_path):
            pass
    finally:
        other.kill()
        other.wait()
    with locked(tmp_path):  # the system freed the lock of the killed process
        pass


def test_damaged_json_is_named(tmp_path: Path) -> None:
    for content in (b'{"a":', b"", bytes(20), b"\xff"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(DamagedError, match=r"x\.json is damaged"):
            read_json(tmp_path / "x.json")
    with pytest.raises(DamagedError, match="it is missing"):
        read_json(tmp_path / "none.json")


def test_a_record_knows_its_own_values(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    values = {"b": [1.5, float("-inf")], "a": {"10": "ö", "9": None}, "c": (1, 2)}
    write_record(path, values)
    assert read_json(path) == values | {"c": [1, 2]}
    path.write_text(path.read_text().replace("1.5", "1.6"))
    with pytest.raises(DamagedError, match="its checksum does not match"):
        read_json(path)
    path.write_text(json.dumps({"a": 1}))  # as an earlier version wrote it
    assert read_json(path) == {"a": 1}
    path.write_text(json.dumps({"files": {}, "a": 1}))  # what lists files has a checksum
    with pytest.raises(DamagedError, match="its checksum does not match"):
        read_json(path)


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(number: int) -> None:
        events.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    def noted_replace(path: Path, target: Path) -> Path:
        events.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_bytes(tmp_path / "new" / "file", b"x")
    assert events == [tmp_path.name, f".file.{os.getpid()}.tmp", "rename", "new"]
    events.clear()
    write_json(tmp_path / "new" / "file", [], synced=False)
    assert events == ["rename"]


FULL = {  # what a full disk makes of libraries that write
    "the system": OSError(errno.ENOSPC, "No space left on device"),
    "a quota": OSError(errno.EDQUOT, "Disk quota exceeded"),
    "NumPy": OSError("1000000 requested and 32752 written"),
    "safetensors": SafetensorError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    ),
    "Arrow": OSError(
        errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"
    ),
}


@pytest.mark.parametrize("library", list(FULL))
def test_every_library_that_meets_a_full_disk_is_understood(tmp_path: Path, library: str) -> None:
    with (
        pytest.raises(RunError, match=r"the disk is full while writing .*x\. Free some space"),
        full_disk_is_clear(tmp_path / "x"),
    ):
        raise FULL[library]


def test_other_errors_are_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    others = (
        OSError("odd"),
        SafetensorError("invalid header"),
        ValueError("3 requested and 2 written"),
        OSError(errno.EIO, "x"),
    )
    for error in others:
        with (
            pytest.raises(type(error), match=str(error).replace("[", r"\[")),
            full_disk_is_clear(tmp_path / "x"),
        ):
            raise error


ON_A_SMALL_DISK = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq, torch
from tasklm.errors import DamagedError, RunError
from tasklm.storage.files import full_disk_is_clear, write_bytes
from tasklm.models.weights import save_weights

place = Path(sys.argv[1])

def parquet(path):
    with pq.ParquetWriter(path, pa.schema([("a", pa.int64())]), compression="none") as writer:
        writer.write_table(pa.table({"a": np.random.default_rng(0).integers(0, 2**60, 1_000_000)}))

writers = {
    "bytes": lambda path: write_bytes(path, bytes(1 << 20)),
    "npy": lambda path: np.save(path, np.zeros(1 << 20)),
    "safetensors": lambda path: save_weights(path, {"a": torch.zeros(1 << 20)}),
    "parquet": parquet,
}
for kind, write in writers.items():
    try:
        with full_disk_is_clear(place / kind):
            write(place / kind)
    except RunError as error:
        assert "the disk is full" in str(error), error
        print(kind)
    for path in place.iterdir():
        path.unlink()
"""


def test_a_disk_that_is_really_full_is_told_by_all_writers(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "write.py").write_text(ON_A_SMALL_DISK, encoding="utf-8")
    mount = f"mount -t tmpfs -o size=256k none {tmp_path / 'disk'}"
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", mount]
    if shutil.which("unshare") is None or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    script = f"{mount} && {sys.executable} {tmp_path / 'write.py'} {tmp_path / 'disk'}"
    done = subprocess.run([*words[:-1], script], capture_output=True, text=True)
    assert done.stdout.split() == ["bytes", "npy", "safetensors", "parquet"], done.stderr


def test_halves_of_characters_have_a_digest_and_no_folder_has_them(tmp_path: Path) -> None:
    assert digest(["\ud800"]) != digest(["\ufffd"])
    with pytest.raises(RunError, match=r"udce9.* is not UTF-8"):
        make_folder(tmp_path / "caf\udce9")


def test_a_record_that_is_no_regular_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "clock.json")
    with pytest.raises(RunError, match=r"clock\.json is damaged \(it is a named pipe"):
        read_json(tmp_path / "clock.json")


def test_only_what_may_be_lost_gets_its_name_without_being_on_the_disk() -> None:
    source = Path(tasklm.__file__).parent
    renames = re.compile(r"\b(partial|temporary)\.(replace|rename)\(")
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if renames.search(path.read_text(encoding="utf-8"))
    }
    assert found <= {"storage/files.py", "tracking.py"}  # tracking: progress alone
