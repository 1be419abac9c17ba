from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasklm.storage import scratch
from tasklm.storage.scratch import Scratch, sweep_scratch

WORKING = """
from tasklm.storage.scratch import Scratch

with Scratch() as folder:
    (folder / "inside").mkdir()
    (folder / "inside" / "file").write_text("text")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files, also of processes that are started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def at_work() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that uses a folder until it is killed."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WORKING], text=True, **pipes) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_a_folder_goes_with_its_context_its_object_or_its_process(place: Path) -> None:
    with Scratch() as folder:
        (folder / "file").write_text("text")
        assert folder.parent == place
    assert not list(place.iterdir())
    owner = Scratch()
    (owner.folder / "file").write_text("text")
    del owner
    assert not list(place.iterdir())
    code = "from tasklm.storage.scratch import Scratch\nowner = Scratch(); print(owner.folder)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()).parent == place
    assert not list(place.iterdir())


def test_the_folder_of_a_killed_process_is_swept_and_that_of_a_living_one_is_not(
    place: Path,
) -> None:
    with at_work() as (process, folder), Scratch() as own:
        sweep_scratch()
        assert (folder / "inside" / "file").exists()
        assert own.exists()  # its process is this one
        process.kill()
        process.wait()
        assert folder.exists()
        with Scratch() as other:  # whatever needs one sweeps first
            assert sorted(place.iterdir()) == sorted([own, other])


def test_what_was_cut_off_before_it_was_locked_is_swept_too(place: Path) -> None:
    tempfile.mkdtemp(prefix="tasklm-scratch-")
    sweep_scratch()
    assert not list(place.iterdir())


def test_a_folder_that_another_process_took_before_it_was_locked_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make_and_lose(prefix: str) -> str:
        folder = tempfile_mkdtemp(prefix=prefix)
        made.append(Path(folder))
        if len(made) == 1:
            sweep_scratch()  # as another process may at this very moment
        if len(made) == 2:
            busy.append(os.open(folder, os.O_RDONLY))  # one that is about to delete it
            fcntl.flock(busy[0], fcntl.LOCK_EX)
        return folder

    busy: list[int] = []
    tempfile_mkdtemp = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    with Scratch() as folder:
        assert folder == made[2] and folder.exists()
    os.close(busy[0])
    sweep_scratch()
    assert not list(place.iterdir())


def test_what_is_not_ours_stays(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").write_text("text")
    (place / "tasklm-scratch-linked00").symlink_to(elsewhere)
    (place / "tasklm-scratch-file.txt").write_text("text")
    (place / "tasklm-traceback-x.txt").write_text("text")
    (place / "of-another-program").mkdir()
    before = sorted(place.iterdir())
    sweep_scratch()
    assert sorted(place.iterdir()) == before
    assert (elsewhere / "file").exists()


def test_without_locks_a_folder_is_used_and_never_taken_for_one_left_behind(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int, how: int) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(scratch.fcntl, "flock", refuse)
    with Scratch() as folder:
        sweep_scratch()
        assert folder.exists()
    assert not list(place.iterdir())


def test_a_forked_process_leaves_the_folder_to_its_parent(place: Path) -> None:
    code = (
        "import os\nfrom tasklm.storage.scratch import Scratch, scratch_of_process\n"
        "owner, folder = Scratch(), scratch_of_process().folder\n"
        "child = os.fork()\n"
        "if child:\n"
        "    os.waitpid(child, 0)\n"
        "    assert owner.folder.exists() and folder.exists()\n"
        "    print('there')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("there\n", "")
    assert not list(place.iterdir())
