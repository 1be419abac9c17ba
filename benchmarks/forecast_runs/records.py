"""The recorded tables of the documentation → what tasklm added to linear models: gains.json."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from laptop_runs.cells import Outcome, column_of
from laptop_runs.report import linear_of
from tasklm.errors import RunError
from tasklm.storage.files import read_json

FIRST, LAST = 1.0, 5.0  # minutes of a CPU that are recorded for every task
_KINDS = {  # of docs/benchmarks/kinds.json → the task's folder
    "CoLA": "glue_cola",
    "RTE": "glue_rte",
    "MRPC": "glue_mrpc",
    "SST-2": "glue_sst2",
    "STS-B": "glue_stsb",
    "CoNLL-2003 names": "conll2003_ner",
    "RACE-middle": "race_middle",
}
_OF_GPU = {"SciERC": "scierc_rel", "ChemProt": "chemprot"}  # rows of docs/results.md
_ROW = re.compile(
    r"^\| (SciERC|ChemProt) [^|]+"  # the task
    r"\| ([\d.]+) \| \**([\d.]+) ± [\d.]+\**"  # TF-IDF + linear, tasklm
    r" \| ([\d.e]+) \|",
    re.M,
)
_TABLES = ("laptop", "kinds", "objectives")
_OBJECTIVE = "mlm"  # of docs/benchmarks/objectives.json: what the runs on a GPU trained with
Forms = Callable[[str], str]  # of a task's texts


def gains_of(root: Path, form_of: Forms) -> dict[str, Any]:
    """All of gains.json, from the tables under the root of the repository."""
    pages = root / "docs" / "benchmarks"
    outcomes = [Outcome(**cell) for cell in read_json(pages / "laptop.json")["cells"]]
    recorded = gpu_runs((root / "docs" / "results.md").read_text(encoding="utf-8"))
    kinds = read_json(pages / "kinds.json")["tasks"]
    small = read_json(pages / "objectives.json")["tasks"]
    of_gpu = {
        **kind_gains(kinds, outcomes),
        **{task: run["gain"] for task, run in recorded.items()},
    }
    gpu = []
    for task, gain in of_gpu.items():
        gpu.append({"task": task, "form": form_of(task), "gain": round(gain, 2)})
    return {
        "sources": [*(f"docs/benchmarks/{name}.json" for name in _TABLES), "docs/results.md"],
        "cpu": {
            "name": "two cores, as recorded",
            "doublings": round(math.log2(LAST / FIRST), 4),
            "runs": [{**run, "form": form_of(run["task"])} for run in cpu_runs(outcomes)],
        },
        "gpu": {"name": "one NVIDIA H200", "powers": powers_of(recorded, small), "runs": gpu},
    }


def forms_in(values: dict[str, Any]) -> dict[str, str]:
    """The forms of the texts of tasks that gains.json has."""
    runs = [*values["cpu"]["runs"], *values["gpu"]["runs"]]
    return {run["task"]: run["form"] for run in runs}


def cpu_runs(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """The gains on test of each task at both budgets, in points."""
    runs = []
    for task in dict.fromkeys(outcome.task for outcome in outcomes):
        own = {outcome.column: outcome for outcome in outcomes if outcome.task == task}
        linear = linear_of(list(own.values()))
        both = [own.get(column_of(minutes)) for minutes in (FIRST, LAST)]
        whole = [outcome for outcome in both if outcome is not None and not outcome.failed]
        if linear is None or len(whole) < 2:
            continue
        before, gain = (round(100 * (outcome.test - linear), 2) for outcome in whole)
        runs.append({"task": task, "gain": gain, "before": before})
    return runs


def kind_gains(tasks: dict[str, Any], outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Gains of the runs of kinds.json, in points, on test or, where that has no labels, on dev.

    They had no wide part. With one, a model is as good as its linear model at least, so that a loss
    counts as 0. For tags the linear baseline is younger than these runs: it is that of laptop.json.
    """
    gains = {}
    for name, folder in _KINDS.items():
        rows = tasks[name]["rows"]
        split = "test" if rows[-1]["test"] else "dev"
        (ours,) = (row[split]["mean"] for row in rows if row["kind"] == "ours")
        linear = [row[split]["mean"] for row in rows if row["kind"] == "baseline"][-1]
        if tasks[name]["kind"] == "tag":
            younger = linear_of([outcome for outcome in outcomes if outcome.task == folder])
            if younger is None:
                continue
            linear = younger
        gains[folder] = max(0.0, 100 * (ours - linear))
    return gains


def gpu_runs(text: str) -> dict[str, dict[str, float]]:
    """The rows of the table of a GPU on the page of results: linear and trained scores, gain and FLOPs."""
    runs = {}
    for name, linear, ours, flops in _ROW.findall(text):
        values = {"linear": float(linear), "ours": float(ours), "flops": float(flops)}
        runs[_OF_GPU[name]] = {**values, "gain": values["ours"] - values["linear"]}
    if set(runs) != set(_OF_GPU.values()):
        remedy = "Change forecast_runs/records.py."
        raise RunError(
            f"docs/results.md no longer has the table of a GPU that this reads. {remedy}"
        )
    return runs


def powers_of(recorded: dict[str, dict[str, float]], small: dict[str, Any]) -> dict[str, float]:
    """The power of the FLOPs that gains grow with, from a small and a large run of a task."""
    powers = {}
    for name, task in _OF_GPU.items():
        large = recorded[task]
        less = 100 * small[name]["objectives"][_OBJECTIVE]["test"]["mean"] - large["linear"]
        times = large["flops"] / small[name]["settings"]["budget.flops"]
        powers[task] = round(math.log(large["gain"] / less) / math.log(times), 4)
    return powers
