from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasklm.corpus.processes import in_order, processes_for
from tasklm.errors import DataError, RunError


def labelled(piece: int) -> tuple[int, int]:
    return piece, os.getpid()


def refusing(piece: int) -> int:
    if piece == 5:
        raise RunError("the fifth is bad")
    return piece


def dying(piece: int) -> int:
    os._exit(1)


def test_results_come_in_order_from_other_processes_and_little_is_read_ahead() -> None:
    read: list[int] = []

    def pieces() -> Iterator[int]:
        for piece in range(40):
            read.append(piece)
            yield piece

    found = []
    for number, (piece, process) in enumerate(in_order(labelled, pieces(), 2)):
        assert len(read) <= number + 6, "pieces pile up"
        found.append(piece)
        assert process != os.getpid()
    assert found == list(range(40))
    assert list(in_order(labelled, range(3), 1)) == [(piece, os.getpid()) for piece in range(3)]


def test_errors_of_the_work_and_of_the_reading_arrive() -> None:
    seen = []
    with pytest.raises(RunError, match="the fifth is bad"):
        for result in in_order(refusing, range(40), 2):
            seen.append(result)
    assert seen == [0, 1, 2, 3, 4]

    def broken() -> Iterator[int]:
        yield 1
        raise DataError("line 2 is damaged", remedy="Copy it again.")

    with pytest.raises(DataError, match="line 2 is damaged"):
        list(in_order(refusing, broken(), 2))


def test_a_process_that_dies_is_told_with_a_remedy() -> None:
    with pytest.raises(RunError, match=r"ended from outside.*memory"):
        list(in_order(dying, range(4), 2))
    assert [piece for piece, _ in in_order(labelled, range(4), 2)] == [0, 1, 2, 3]  # later work has fresh processes


def test_small_work_stays_here_and_large_work_takes_the_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert [processes_for(size, 100) for size in (0, 99, 199, 250, 10_000)] == [1, 1, 1, 2, 4]


def test_a_script_without_a_main_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tasklm.corpus.processes import in_order\nprint('begun')\nprint(list(in_order(abs, range(-3, 0), 2)))\n", encoding="utf-8"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split("\n") == ["begun", "[3, 2, 1]", ""]
