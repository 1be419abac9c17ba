"""The runs of cross_view.py: one folder for each task and share of labels, where every student in
turn does stage 2 again; all before it stays.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.storage.files import read_json, write_json

_SOURCE = Path(__file__).resolve().parents[2] / "src"
LOWEST_SHARE = 0.01  # per cent


@dataclass(frozen=True)
class Settings:
    """How all runs are trained."""

    work: Path
    data: Path
    corpus: str
    recipe: Path | None
    seeds: int
    extra: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """A task with a share of its labels, in per cent."""

    task: str
    share: float

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.task}-{self.share:g}"


def command(cell: Cell, student: str, settings: Settings) -> list[str]:
    """The words after `tasklm` of a run."""
    words = ["fit", str(settings.data / cell.task)]
    if settings.recipe is not None:
        words += ["--recipe", str(settings.recipe)]
    words += ["--corpus", settings.corpus, "--out", str(settings.work / cell.name)]
    words += ["--hardware.cache", str(settings.work / "cache")]
    words += ["--data.leaks", "drop", "--evaluate.baselines", "false"]
    words += ["--data.share", f"{cell.share / 100:g}", "--finetune.seeds", str(settings.seeds)]
    return [*words, "--finetune.unlabelled", student, *settings.extra]


def result_of(cell: Cell, student: str, work: Path) -> Path:
    """Where the scores of a run are kept."""
    return work / "scores" / f"{cell.name}-{student}.json"


def run_all(
    cells: Sequence[Cell], students: Sequence[str], settings: Settings, at_once: int, seconds: float
) -> list[str]:
    """Runs what is missing, several folders at once; what failed or was not begun."""
    end = time.monotonic() + seconds
    failed: list[str] = []

    def attempt(cell: Cell) -> None:
        for student in students:
            name = f"{cell.name}, {student}"
            if result_of(cell, student, settings.work).exists():
                continue
            if time.monotonic() > end:
                failed.append(f"{name}: not begun: the time was up")
                continue
            try:
                run_one(cell, student, settings)
            except RunError as error:
                failed.append(f"{name}: {error}")

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(attempt, cells))
    return sorted(failed)


def run_one(cell: Cell, student: str, settings: Settings) -> None:
    """Runs one command to its end and keeps its scores."""
    folder, began = settings.work / cell.name, time.monotonic()
    paths = [str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    words = [sys.executable, "-m", "tasklm", *command(cell, student, settings)]
    log = settings.work / f"{cell.name}-{student}.txt"
    with log.open("a", encoding="utf-8") as stream:
        done = subprocess.run(words, env=environment, stdout=stream, stderr=subprocess.STDOUT)
    if done.returncode:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RunError(f"ended with status {done.returncode}, see {log}: {' '.join(last)}")
    keep_scores(cell, student, settings.work, folder)
    print(f"{cell.name}, {student}: {time.monotonic() - began:.0f} s", flush=True)


def keep_scores(cell: Cell, student: str, work: Path, folder: Path) -> None:
    """Copies the scores of all seeds out of a run folder, which the next student writes anew."""
    values = read_json(folder / "scores.json")
    ours = next(row for row in values["rows"] if row["kind"] == "ours")
    seeds: dict[str, Any] = {
        split: [100 * value for value in ours[split]["values"]]
        for split in ("dev", "test")
        if ours[split] is not None
    }
    path = result_of(cell, student, work)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"metric": values["metric"], "train": values["data"]["train"], **seeds})
