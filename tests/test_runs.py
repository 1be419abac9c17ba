from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tasklm.errors import RunError
from tasklm.runs import Artefacts, digest, full_disk_is_clear, locked, make_folder, read_json, require_own, write_bytes
from tasklm.train.parallel import Ranks


def test_an_artefact_is_built_once_per_key(tmp_path: Path) -> None:
    calls = []
    artefacts = Artefacts(tmp_path)

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "value").write_text("x")

    for key in ("a", "a", "b"):
        assert (artefacts.build("thing", key, build) / "value").read_text() == "x"
    assert len(calls) == 2 and artefacts.key("thing") == "b"


def test_a_partial_artefact_is_continued_with_the_same_key_and_thrown_away_with_another(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("1")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        artefacts.build("thing", "a", fail)
    assert artefacts.key("thing") is None
    seen = []
    artefacts.build("thing", "a", lambda folder: seen.append((folder / "half").exists()))
    with pytest.raises(RuntimeError):
        artefacts.build("other", "a", fail)
    artefacts.build("other", "b", lambda folder: seen.append((folder / "half").exists()))
    assert seen == [True, False]


def test_what_is_not_of_a_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "mine").write_text("1")
    with pytest.raises(RunError, match=r"thing is in the way, and no part of a run. Move it away, or choose another folder with --out"):
        Artefacts(tmp_path).build("thing", "a", lambda folder: None)
    assert (tmp_path / "thing" / "mine").read_text() == "1"


def test_killed_while_an_old_artefact_goes_away_it_is_done_with_at_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(folder: Path, **_: bool) -> None:
        if folder.exists():
            raise KeyboardInterrupt

    artefacts = Artefacts(tmp_path)
    artefacts.build("thing", "a", lambda folder: None)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tasklm.runs.shutil.rmtree", killed)
        artefacts.build("thing", "b", lambda folder: None)
    assert artefacts.key("thing") == "b"
    artefacts.build("thing", "c", lambda folder: None)
    assert artefacts.key("thing") == "c" and [path.name for path in tmp_path.iterdir()] == ["thing"]


def test_a_run_begins_in_a_folder_of_its_own(tmp_path: Path) -> None:
    for fine in (tmp_path / "none", tmp_path):
        require_own(fine)
    (tmp_path / ".hidden").touch()
    require_own(tmp_path)
    (tmp_path / "recipe.toml").touch()  # a person's own, it may be
    with pytest.raises(RunError, match=r"holds files, but no run. Choose a new or an empty folder with --out"):
        require_own(tmp_path)
    with locked(tmp_path):
        require_own(tmp_path)
    require_own(tmp_path)


def test_a_full_disk_is_told_with_the_way_out_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_bytes(path, b"old")

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunError, match=r"disk is full.*Free some space and run the same command again"):
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
    code = (
        f"from pathlib import Path; from tasklm.runs import locked\nwith locked(Path({str(tmp_path)!r})): print('in', flush=True); input()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
    (tmp_path / "x.json").write_text('{"a":')
    with pytest.raises(RunError, match=r"x\.json is damaged"):
        read_json(tmp_path / "x.json")
    assert json.loads("{}") == {}


class Hand(Ranks):
    """One of two threads that do a run together, as processes would; they meet at a barrier in place of a connection."""

    def __init__(self, rank: int, barrier: threading.Barrier) -> None:
        super().__init__(rank, 2)
        self._barrier = barrier

    def wait(self) -> None:
        if self.count > 1:
            self._barrier.wait(10)  # an uneven number of waits breaks it and fails the test


def both(work: Callable[[Hand], None]) -> None:
    """Runs the work in two threads, of which the second starts first, and raises what went wrong in either."""
    barrier, errors = threading.Barrier(2), []

    def guarded(hand: Hand) -> None:
        try:
            work(hand)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=(Hand(rank, barrier),)) for rank in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    if errors:
        raise errors[0]


def test_of_two_the_first_builds_and_the_second_finds_it_done(tmp_path: Path) -> None:
    built, seen = [], {}

    def work(hand: Hand) -> None:
        artefacts = Artefacts(tmp_path, hand)

        def build(folder: Path) -> None:
            artefacts.build("inner", "a", lambda part: None)  # by itself: the other does not come here
            built.append((hand.first, hand.count))
            (folder / "value").write_text("x")

        seen[hand.first] = (artefacts.build("thing", "a", build) / "value").read_text(), artefacts.key("thing")

    both(work)
    assert built == [(True, 1)]
    assert seen == {True: ("x", "a"), False: ("x", "a")}


def test_together_both_build_in_the_same_folder(tmp_path: Path) -> None:
    built, meeting = {}, threading.Barrier(2)

    def work(hand: Hand) -> None:
        def build(folder: Path) -> None:
            built[hand.first] = folder, (folder / "partial.json").exists(), hand.count
            meeting.wait(10)  # both are inside at the same time
            if hand.first:
                (folder / "value").write_text("x")

        assert (Artefacts(tmp_path, hand).build("thing", "a", build, together=True) / "value").read_text() == "x"

    both(work)
    expected = tmp_path / "thing.partial", True, 2
    assert built == {True: expected, False: expected}
    assert not expected[0].exists() and Artefacts(tmp_path).key("thing") == "a"


@pytest.mark.parametrize("together", [False, True])
def test_of_two_nobody_builds_what_is_there(tmp_path: Path, together: bool) -> None:
    Artefacts(tmp_path).build("thing", "a", lambda folder: None)
    built, found = [], []

    def work(hand: Hand) -> None:
        artefacts = Artefacts(tmp_path, hand)
        found.append(artefacts.build("thing", "a", built.append, together=together))
        artefacts.build("thing", "b", lambda folder: built.append(hand.first), together=together)

    both(work)
    assert found == [tmp_path / "thing"] * 2
    assert sorted(built) == ([False, True] if together else [True])  # only for the other key


def test_of_two_runs_that_share_a_folder_one_builds_and_the_other_waits_for_it(tmp_path: Path) -> None:
    begun, may_end, told = threading.Event(), threading.Event(), []
    calls: list[Path] = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "half").write_text("1")
        begun.set()
        assert may_end.wait(60)
        (folder / "value").write_text("x")

    def tell(message: str) -> None:
        told.append(message)
        may_end.set()

    first = threading.Thread(target=Artefacts(tmp_path, waiting=lambda message: None).build, args=("thing", "a", build))
    first.start()
    assert begun.wait(60)
    there = Artefacts(tmp_path, waiting=tell).build("thing", "a", build)
    first.join(60)
    assert len(calls) == 1 and (there / "value").read_text() == "x" and str(there) in told[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".thing.lock", "thing"]


def test_a_shared_folder_whose_builder_died_is_free_again(tmp_path: Path) -> None:
    def die(folder: Path) -> None:
        raise RuntimeError

    shared = Artefacts(tmp_path, waiting=pytest.fail)
    with pytest.raises(RuntimeError):
        shared.build("thing", "a", die)
    assert Artefacts(tmp_path, waiting=pytest.fail).build("thing", "a", lambda folder: None).exists()


def test_halves_of_characters_have_a_digest_and_no_folder_has_them(tmp_path: Path) -> None:
    assert digest(["\ud800"]) != digest(["\ufffd"])
    with pytest.raises(RunError, match=r"udce9.* is not UTF-8"):
        make_folder(tmp_path / "caf\udce9")


def test_a_record_that_is_no_regular_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "clock.json")
    with pytest.raises(RunError, match=r"clock\.json cannot be read \(it is a named pipe"):
        read_json(tmp_path / "clock.json")
