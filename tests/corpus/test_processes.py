from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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
    with pytest.raises(RunError, match=r"was killed.*memory"):
        list(in_order(dying, range(4), 2))
    assert [piece for piece, _ in in_order(labelled, range(4), 2)] == [
        0,
        1,
        2,
        3,
    ]  # later work has fresh processes


def test_small_work_stays_here_and_large_work_takes_the_cores_that_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert [processes_for(size, 100) for size in (0, 99, 199, 250, 10_000)] == [1, 1, 1, 2, 4]


def test_a_script_without_a_main_guard_is_not_run_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        (
            "from tasklm.corpus.processes import "
            "in_order\nprint('begun')\nprint(list(in_order(abs, range(-3, 0), 2)))\n"
        ),
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split("\n") == ["begun", "[3, 2, 1]", ""]


WORKING = """
import os, sys, time
from tasklm.corpus.processes import in_order

def work(piece):
    os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: two processes write at once
    time.sleep(600)

list(in_order(work, range(2), 2))
"""


def test_processes_end_with_a_run_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "working.py").write_text(WORKING, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "working.py")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        try:
            workers = [int(parent.stdout.readline()) for _ in range(2)]
            assert all(map(is_at_work, workers))
        finally:
            parent.kill()
    deadline = time.monotonic() + 60  # they would go on for ten minutes
    while any(map(is_at_work, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = [worker for worker in workers if is_at_work(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert not left


def is_at_work(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
