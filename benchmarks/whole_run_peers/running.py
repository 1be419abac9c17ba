"""Runs the two sides as processes with as many threads, and reads their time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preparation import cpu_seconds
from tasklm.comparing.processes import SILENT, THREADS
from tasklm.errors import RunError
from tasklm.recipe.toml import load
from tasklm.run_folder import CLOCK, SCORES, SUMMARY, seeds_of, stage1_name
from tasklm.storage.files import read_json

_BENCHMARKS = Path(__file__).resolve().parents[1]
_LOOK = 0.2  # seconds between two looks at the clock of a run


def run_tasklm(recipe: Path, folder: Path, threads: int) -> dict[str, Any]:
    """What `tasklm run` says of itself: its clock, its FLOPs, its scores."""
    cpu = _CpuOfSteps(folder / CLOCK)
    command = [sys.executable, "-m", "tasklm", "run", str(recipe), "--out", str(folder)]
    whole = _run(command, threads, folder.with_suffix(".log"), cpu.look)
    steps = {
        step: {"seconds": float(seconds), "cpu": cpu.steps.get(step, 0.0)}
        for step, seconds in read_json(folder / CLOCK)["steps"].items()
    }
    ours = next(row for row in read_json(folder / SCORES)["rows"] if row["kind"] == "ours")
    return {
        **whole,
        "steps": steps,
        "flops": flops_of(folder),
        "dev": ours["dev"]["mean"],
        "test": ours["test"]["mean"],
        "passages": ours["selected_passages"],
        "text_tokens": ours["selected_tokens"],
    }


def run_peer(recipe: Path, folder: Path, threads: int) -> dict[str, Any]:
    """What the worker of the peer reports."""
    folder.mkdir(parents=True)
    report = folder / "report.json"
    command = [sys.executable, "-m", "whole_run_peers.peer", str(recipe), str(folder), str(threads)]
    whole = _run(command, threads, folder.with_suffix(".log"), lambda: None)
    return {**whole, **json.loads(report.read_text(encoding="utf-8"))}


def flops_of(run: Path) -> dict[str, float]:
    """The FLOPs of both stages, of all seeds, as a run counts them."""
    recipe = load(run / "recipe.toml")
    seeds = seeds_of(run, recipe.train.seeds, recipe.finetune.seeds or 1)
    return {
        "stage 1": float(read_json(run / stage1_name(1) / SUMMARY)["flops"]),
        "stage 2": sum(float(seed.summary()["flops"]) for seed in seeds),
    }


class _CpuOfSteps:
    """The CPU seconds of a command by the steps that its clock names, which has only seconds."""

    def __init__(self, clock: Path) -> None:
        self.clock, self.steps = clock, dict[str, float]()
        self._before, self._noted = cpu_seconds(), dict[str, float]()

    def look(self) -> None:
        """Counts what was used since the last change of the clock as its new step's."""
        try:
            steps = json.loads(self.clock.read_text(encoding="utf-8"))["steps"]
        except (OSError, ValueError, KeyError):
            return
        changed = [step for step, seconds in steps.items() if self._noted.get(step) != seconds]
        if changed:
            added = {step: steps[step] - self._noted.get(step, 0.0) for step in changed}
            used, self._noted = cpu_seconds(), steps
            step = max(changed, key=added.__getitem__)  # short ones beside it count as its own
            self.steps[step] = self.steps.get(step, 0.0) + used - self._before
            self._before = used


def _run(command: list[str], threads: int, log: Path, look: Callable[[], None]) -> dict[str, float]:
    """Runs a command with so many threads; how long it took, and the load when it began."""
    paths = [str(_BENCHMARKS), str(_BENCHMARKS.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **SILENT, **dict.fromkeys(THREADS, str(threads))}
    environment |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }
    load, started, used = os.getloadavg()[0], time.monotonic(), cpu_seconds()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as words:
        process = subprocess.Popen(command, env=environment, stdout=words, stderr=words)
        while process.poll() is None:
            look()
            time.sleep(_LOOK)
    if process.returncode:
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RunError(f"{' '.join(command[1:4])} failed: {''.join(last)[:300]} ({log})")
    seconds = time.monotonic() - started
    return {"wall": seconds, "cpu": cpu_seconds() - used, "load": load}
