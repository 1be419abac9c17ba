"""The runs of cross_view.py: a few processes that each train one run after another.

Runs of one folder follow each other in one process; folders are trained at once.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cross_view_runs.data import TaskFiles
from cross_view_runs.plan import Planned, Settings, recipe_of
from tasklm.errors import RunError, TaskLMError
from tasklm.recipe.toml import absolute, dump
from tasklm.run_folder import ON_TRAIN
from tasklm.storage.files import read_json, write_json, write_text

_BENCHMARKS = Path(__file__).resolve().parents[1]
_SOURCE = _BENCHMARKS.parent / "src"
_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
Train = Callable[[Path, Path, Path], str]  # recipe, folder, log → why it failed


class Worker:
    """A process that trains runs; another takes its place when it has died."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._process: subprocess.Popen[str] | None = None

    def train(self, recipe: Path, folder: Path, log: Path) -> str:
        """Trains a run of a recipe; why it failed, or an empty string."""
        if self._process is None or self._process.poll() is not None:
            self._process = self._started()
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        job = {"recipe": str(recipe), "folder": str(folder), "log": str(log)}
        try:
            process.stdin.write(f"{json.dumps(job)}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            return f"the process ended with status {process.wait()}, see {log}"
        return str(json.loads(answer)["failed"])

    def close(self) -> None:
        """Ends the process, which has answered all."""
        if self._process is not None:
            self._process.communicate()

    def _started(self) -> subprocess.Popen[str]:
        paths = [str(_BENCHMARKS), str(_SOURCE), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment |= dict.fromkeys(_THREADS, str(self.threads))
        words = [sys.executable, "-m", "cross_view_runs.worker"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen(words, env=environment, **pipes)


def run_all(
    runs: Sequence[Planned],
    settings: Settings,
    tasks: Mapping[str, TaskFiles],
    at_once: int,
    seconds: float,
) -> list[str]:
    """Trains what is missing, several folders at once; what failed or was not begun."""
    threads = max(1, (os.cpu_count() or 1) // at_once)
    workers: queue.Queue[Worker] = queue.Queue()
    for _ in range(at_once):
        workers.put(Worker(threads))
    everyone = list(workers.queue)
    end, failed = time.monotonic() + seconds, dict[str, str]()

    def attempt(group: Sequence[Planned]) -> None:
        worker = workers.get()
        try:
            for run in group:
                if result_of(run.name, settings.work).exists():
                    continue
                if reason := _reason(run, settings, tasks, worker.train, end):
                    failed[run.name] = reason
        finally:
            workers.put(worker)

    try:
        for groups in (_groups(runs, needing=False), _groups(runs, needing=True)):
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(attempt, groups))
    finally:
        for worker in everyone:
            worker.close()
    return [f"{run.name}: {failed[run.name]}" for run in runs if run.name in failed]


def _groups(runs: Sequence[Planned], needing: bool) -> list[list[Planned]]:
    """The runs of each folder: those that need the model of another, or those that do not."""
    groups: dict[str, list[Planned]] = {}
    for run in runs:
        if bool(run.needs) is needing:
            groups.setdefault(run.folder, []).append(run)
    return list(groups.values())


def _reason(
    run: Planned, settings: Settings, tasks: Mapping[str, TaskFiles], train: Train, end: float
) -> str:
    """Trains a run and keeps its scores; why there are none, or an empty string."""
    work = settings.work
    if time.monotonic() > end:
        return "not begun: the time was up"
    if run.needs and not result_of(run.needs, work).exists():
        return f"{run.needs} has no result"
    began = time.monotonic()
    try:
        recipe = absolute(recipe_of(run, settings, tasks))
    except TaskLMError as error:
        return str(error)
    path = work / "recipes" / f"{run.name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, dump(recipe))
    if reason := train(path, work / run.folder, work / f"{run.name}.txt"):
        return reason
    keep_scores(run, work, (time.monotonic() - began) / 60)
    print(f"{run.name}: {time.monotonic() - began:.0f} s", flush=True)
    return ""


def result_of(name: str, work: Path) -> Path:
    """Where the scores of a run are kept."""
    return work / "scores" / f"{name}.json"


def results_in(work: Path) -> list[dict[str, Any]]:
    """All results of a work folder."""
    return [read_json(path) for path in sorted((work / "scores").glob("*.json"))]


def keep_scores(run: Planned, work: Path, minutes: float) -> None:
    """Copies scores and learning curves out of a run folder, whose next run writes them anew."""
    folder = work / run.folder
    values = read_json(folder / "scores.json")
    ours = next((row for row in values["rows"] if row["kind"] == "ours"), None)
    if ours is None:
        raise RunError(f"{folder} has no scores of the model.")
    scores = {one["name"]: _points(one, one["metric"]) for one in ours["tasks"] or ()}
    result = {
        **run.about(),
        "scores": scores or {run.tasks[0]: _points(ours, values["metric"])},
        "examples": values["data"]["train"],
        "curves": [_curve(path) for path in sorted(folder.glob("stage2/seed-*/curve.json"))],
        "minutes": round(minutes, 2),
    }
    path = result_of(run.name, work)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)


def _points(row: Mapping[str, Any], metric: str) -> dict[str, Any]:
    points: dict[str, Any] = {"metric": metric}
    for split in ("dev", "test"):
        if row[split] is not None:
            points[split] = [round(100 * value, 4) for value in row[split]["values"]]
    return points


def _curve(path: Path) -> list[list[float]]:
    """The scores on train and on dev while a seed learnt, in points."""
    points = [point for point in read_json(path) if ON_TRAIN in point]
    return [[round(100 * point[ON_TRAIN], 2), round(100 * point["dev"], 2)] for point in points]
