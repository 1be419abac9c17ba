"""Tables of cross_view.py: scores by the share of labels, and what a student adds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import t

NONE = "none"  # the student of runs with labels alone
COVERAGE = 0.95
Results = Mapping[str, Mapping[str, Mapping[str, Any]]]  # share → student → scores of a run


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its interval (Student's t); NaN of a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan
    error = statistics.stdev(values) / math.sqrt(len(values))
    return mean, float(t.ppf((1 + COVERAGE) / 2, len(values) - 1)) * error


def written(mean: float, half: float, sign: bool = False) -> str:
    """A mean with its interval."""
    number = f"{mean:+.1f}" if sign else f"{mean:.1f}"
    return number if math.isnan(half) else f"{number} ± {half:.1f}"


def score_table(results: Results, students: Sequence[str], split: str) -> list[str]:
    """Rows of Markdown: a line for each share of labels, a column for each student."""
    lines = [f"| labels | examples | {' | '.join(students)} |", "|" + "---|" * (2 + len(students))]
    for share, runs in results.items():
        cells = [_cell(runs.get(student), split) for student in students]
        examples = next((f"{run['train']:,}" for run in runs.values()), "")
        lines.append(f"| {share} % | {examples} | {' | '.join(cells)} |")
    return lines


def _cell(run: Mapping[str, Any] | None, split: str) -> str:
    if run is None or split not in run:
        return ""
    return written(*interval(run[split]))


def gain_table(results: Results, students: Sequence[str], split: str) -> list[str]:
    """What each student adds to labels alone, seed by seed of the same stage 1."""
    others = [student for student in students if student != NONE]
    lines = [f"| labels | {' | '.join(others)} |", "|" + "---|" * (1 + len(others))]
    for share, runs in results.items():
        cells = [_gain(runs, student, split) for student in others]
        lines.append(f"| {share} % | {' | '.join(cells)} |")
    return lines


def _gain(runs: Mapping[str, Mapping[str, Any]], student: str, split: str) -> str:
    alone, run = runs.get(NONE, {}).get(split), runs.get(student, {}).get(split)
    if alone is None or run is None or len(alone) != len(run):
        return ""
    gains = [one - other for one, other in zip(run, alone, strict=True)]
    return written(*interval(gains), sign=True)


def page_of(record: Mapping[str, Any]) -> str:
    """The page of all results, as Markdown."""
    settings = record["settings"]
    students = settings["students"]
    lines = ["# Text without labels", ""]
    lines += [
        "Scores in points by the share of the labels of train, whose other texts are read without "
        f"labels: mean over {settings['seeds']} seeds of stage 2 and its 95 % interval. "
        "All students of a row begin with the same stage 1 and take the same labelled steps.",
        "",
    ]
    for task, results in record["tasks"].items():
        runs = [run for one in results.values() for run in one.values()]
        metric = runs[0]["metric"] if runs else ""
        for split in ("dev", "test"):
            if not any(split in run for run in runs):
                continue
            lines += [f"## {task}, {split}, {metric}", ""]
            lines += [*score_table(results, students, split), ""]
            if NONE in students and len(students) > 1:
                lines += ["Gain over labels alone:", "", *gain_table(results, students, split), ""]
    lines += [f"- No result: {reason}." for reason in record["failed"]]
    command = "python benchmarks/cross_view.py"
    lines += ["", f"Printed by `{command}`; further options: `{settings['extra']}`.", ""]
    return "\n".join(lines)
