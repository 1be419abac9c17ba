"""The cells of several tasks at once, each task on cores of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from laptop_runs.cells import Cell, Outcome
from tasklm.comparing.processes import THREADS
from tasklm.errors import RunError

_BENCHMARKS = Path(__file__).resolve().parents[1]
_SOURCE = _BENCHMARKS.parent / "src"
Run = Callable[[Cell, Sequence[int], Path], Outcome]


def in_a_process(cell: Cell, cores: Sequence[int], work: Path) -> Outcome:
    """Runs a cell in a process that is held to some cores; one that dies has failed."""
    name = f"{cell.task}-{cell.column}".replace(" ", "-")
    spec, report = work / "cells" / f"{name}.json", work / "cells" / f"{name}-outcome.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    values = {"cell": dataclasses.asdict(cell), "held": list(cores)}
    spec.write_text(json.dumps(values), encoding="utf-8")
    paths = [str(_BENCHMARKS), str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment |= {variable: str(cell.cores) for variable in THREADS}
    command = [sys.executable, "-m", "laptop_runs.worker", str(spec), str(report)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode or not report.exists():
        words = [line for line in done.stderr.strip().splitlines() if line.strip()]
        failed = words[-1][:300] if words else f"ended with status {done.returncode}"
        return Outcome(cell.task, cell.column, metric=cell.metric, failed=failed)
    return Outcome(**json.loads(report.read_text(encoding="utf-8")))


def sets_of_cores(at_once: int, each: int) -> list[list[int]]:
    """The cores of each of several tasks; empty lists where the system cannot pin processes."""
    if not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(at_once)]
    cores = sorted(os.sched_getaffinity(0))
    if at_once > max(1, len(cores) // each):
        raise RunError(f"--at-once {at_once} needs {each * at_once} cores; here are {len(cores)}.")
    return [cores[each * place : each * (place + 1)] for place in range(at_once)]


def run_tasks(
    tasks: Sequence[Sequence[Cell]],
    at_once: int,
    seconds: float,
    work: Path,
    take: Callable[[Outcome], Any],
    run: Run = in_a_process,
) -> None:
    """Runs the cells of each task in turn, several tasks at once, and hands over each outcome.

    No cell is begun after so many seconds.
    """
    free: queue.Queue[list[int]] = queue.Queue()
    each = max((cell.cores for cells in tasks for cell in cells), default=1)
    for cores in sets_of_cores(at_once, each):
        free.put(cores)
    end, stop = time.monotonic() + seconds, threading.Event()

    def one(cells: Sequence[Cell]) -> None:
        cores = free.get()
        try:
            for cell in cells:
                if time.monotonic() < end and not stop.is_set():
                    take(run(cell, cores, work))
        except BaseException:
            stop.set()
            raise
        finally:
            free.put(cores)

    with ThreadPoolExecutor(at_once) as pool:
        jobs = [pool.submit(one, cells) for cells in tasks]
        try:
            for job in jobs:
                job.result()
        finally:
            stop.set()  # a person who interrupts waits for what runs, not for what would be next
