"""Artefacts of several processes: one builds, the others wait or help."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tasklm.artifacts import Artefacts
from tasklm.device.ranks import Ranks


class Hand(Ranks):
    """One of two threads that do a run together, as processes would; they meet at a barrier in
    place of a connection."""

    def __init__(self, rank: int, barrier: threading.Barrier) -> None:
        super().__init__(rank, 2)
        self._barrier = barrier

    def wait(self) -> None:
        if self.count > 1:
            self._barrier.wait(10)  # an uneven number of waits breaks it and fails the test


def both(work: Callable[[Hand], None]) -> None:
    """Runs the work in two threads, of which the second starts first, and raises what went wrong in
    either."""
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
            # by itself: the other does not come here
            artefacts.build("inner", "a", lambda part: None)
            built.append((hand.first, hand.count))
            (folder / "value").write_text("x")

        seen[hand.first] = (
            (artefacts.build("thing", "a", build) / "value").read_text(),
            artefacts.key("thing"),
        )

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

        assert (
            Artefacts(tmp_path, hand).build("thing", "a", build, together=True) / "value"
        ).read_text() == "x"

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


def test_of_two_runs_that_share_a_folder_one_builds_and_the_other_waits_for_it(
    tmp_path: Path,
) -> None:
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

    first = threading.Thread(
        target=Artefacts(tmp_path, waiting=lambda message: None).build, args=("thing", "a", build)
    )
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
    assert (
        Artefacts(tmp_path, waiting=pytest.fail).build("thing", "a", lambda folder: None).exists()
    )
