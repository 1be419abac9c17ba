"""tasklm's own commands as processes, several at once, until the time is up."""

from __future__ import annotations

import datetime
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from training_peers.timing import device_name

_SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
_GRACE = 20.0  # seconds in which a process that is told to stop does so


class Failed(Exception):
    """A command ended without a result; the text says with which words."""


class Deadline:
    """The moment after which nothing is started and what runs is stopped."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """The seconds left, or None where there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())


def circumstances(workers: int) -> dict[str, Any]:
    """Returns when, where and beside how many others a run was made, for its record."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device_name(torch.device("cuda" if torch.cuda.is_available() else "cpu")),
        "software": f"torch {torch.__version__}, Python {platform.python_version()}",
        "workers": workers,
    }


def run_verb(verb: str, folder: Path, threads: int | None, deadline: Deadline) -> None:
    """Runs `tasklm VERB FOLDER` to its end, with what it says in output.txt of the folder; raises
    Failed otherwise.
    """
    if deadline.left() == 0.0:
        raise Failed("not started: the time was up")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            filter(None, [str(_SOURCE), os.environ.get("PYTHONPATH", "")])
        ),
    }
    if threads is not None:
        environment |= {
            name: str(threads)
            for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
        }
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "output.txt"
    with said.open("w", encoding="utf-8") as output:
        command = [sys.executable, "-m", "tasklm", verb, str(folder)]
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            status = process.wait(timeout=deadline.left())
        except subprocess.TimeoutExpired:
            raise Failed("stopped: the time was up; the same command continues it") from None
        finally:
            _stop(process)
    if status:
        raise Failed(_last_words(said) or f"ended with status {status}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_words(said: Path) -> str:
    lines = [
        line.strip()
        for line in said.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    errors = [place for place, line in enumerate(lines) if line.startswith("error:")]
    return (" ".join(lines[errors[-1] :]) if errors else lines[-1] if lines else "")[:300]


def each_at_once(
    jobs: Sequence[tuple[str, Callable[[], None]]], workers: int
) -> Iterator[tuple[str, str | None]]:
    """Yields the name of each job as it ends, with what went wrong or None; so many run at once."""
    with ThreadPoolExecutor(workers) as pool:
        names = {pool.submit(job): name for name, job in jobs}
        for future in as_completed(names):
            try:
                future.result()
                yield names[future], None
            except Failed as error:
                yield names[future], str(error)
