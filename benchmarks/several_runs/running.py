"""The runs of several_tasks.py as processes, several at once, and the scores that they leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from several_runs.plan import BASE, Planned, Settings, base_recipe, command, levels
from tasklm.cli.options import overrides_of
from tasklm.errors import RunError
from tasklm.recipe.toml import absolute, dump
from tasklm.run_folder import CURVE, DEV_OF, Seed, seeds_of
from tasklm.storage.files import read_json, write_text

_SOURCE = Path(__file__).resolve().parents[2] / "src"
Scores = dict[str, dict[str, Any]]  # task → metric, and the scores of all seeds on dev and test


EACH = "dev, best epoch of each"  # among these scores, of a run of several tasks


class Late(Exception):
    """The time was up before a run began."""


def run_all(runs: Sequence[Planned], settings: Settings, at_once: int, seconds: float) -> list[str]:
    """Runs what is missing; returns what failed or was not begun, with the reason."""
    end = time.monotonic() + seconds
    failed: dict[str, str] = {}

    def attempt(run: Planned) -> None:
        before = [name for name in run.needs if name in failed]
        try:
            if before:
                raise RunError(f"{before[0]} has no result")
            run_one(run, settings, end)
        except (RunError, Late) as error:
            failed[run.name] = str(error)

    for group in levels(runs):
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(attempt, group))
    return [f"{name}: {reason}" for name, reason in failed.items()]


def is_done(run: Planned, work: Path) -> bool:
    """Whether a run has what others or the tables need."""
    last = "stage1/summary.json" if run.name == BASE else "scores.json"
    return (work / run.name / last).is_file()


def run_one(run: Planned, settings: Settings, end: float) -> None:
    """Runs the command of a run to its end, unless it has its result."""
    out = settings.work / run.name
    if is_done(run, settings.work):
        return
    if time.monotonic() > end:
        raise Late("not begun: the time was up")
    out.parent.mkdir(parents=True, exist_ok=True)
    if run.name == BASE and not (out / "recipe.toml").exists():
        recipe = base_recipe(run, settings, overrides_of(list(settings.extra)))
        out.mkdir(exist_ok=True)
        write_text(out / "recipe.toml", dump(absolute(recipe)))
    paths = [str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    words = [sys.executable, "-m", "tasklm", *command(run, settings)]
    log, began = out.with_name(f"{out.name}.txt"), time.monotonic()
    with log.open("a", encoding="utf-8") as stream:
        done = subprocess.run(words, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    if done.returncode or not is_done(run, settings.work):
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RunError(f"ended with status {done.returncode}, see {log}: {' '.join(last)}")
    print(f"{run.name}: {time.monotonic() - began:.0f} s", flush=True)


def scores_of(run: Planned, work: Path) -> Scores:
    """The scores of all seeds of a finished run, by task, in points."""
    values = read_json(work / run.name / "scores.json")
    ours = next(row for row in values["rows"] if row["kind"] == "ours")
    if not ours["tasks"]:
        return {run.tasks[0]: _points(ours, values["metric"])}
    scores = {one["name"]: _points(one, one["metric"]) for one in ours["tasks"]}
    seeds = seeds_of(work / run.name, 1, len(ours["dev"]["values"]))
    for task, own in best_epochs(seeds, list(scores)).items():
        scores[task][EACH] = own
    return scores


def best_epochs(seeds: Sequence[Seed], tasks: Sequence[str]) -> dict[str, list[float]]:
    """The dev scores of all seeds where each task has the epoch that is best for it alone."""
    files = [seed.folder / CURVE for seed in seeds]
    curves = [read_json(file) if file.is_file() else [] for file in files]
    best: dict[str, list[float]] = {}
    for task in tasks:
        name = f"{DEV_OF}{task}"
        of_seeds = [[point[name] for point in curve if name in point] for curve in curves]
        if of_seeds and all(of_seeds):
            best[task] = [round(100 * max(values), 4) for values in of_seeds]
    return best


def _points(row: dict[str, Any], metric: str) -> dict[str, Any]:
    points: dict[str, Any] = {"metric": metric}
    for split in ("dev", "test"):
        if row[split] is not None:
            points[split] = [round(100 * value, 4) for value in row[split]["values"]]
    return points


def minutes_of(run: Planned, work: Path) -> float:
    """What a run took, in all of its processes."""
    clock = work / run.name / "clock.json"
    seconds = float(read_json(clock)["seconds"]) if clock.is_file() else 0.0
    return round(seconds / 60, 2)
