"""The page of recipes.py: each arm beside the base, seed by seed of stage 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cross_view_runs.tables import interval
from recipe_runs.arms import BASE

Runs = Mapping[str, Mapping[str, Any]]  # seed of stage 1 → what a run found
SAME = ("content", "objective", "targets")  # of runs whose held-out losses can be compared


def pairs(base: Runs, arm: Runs, what: str) -> list[float]:
    """The differences of an arm to the base, over the seeds of stage 1 that both have."""
    differences = []
    for seed, run in arm.items():
        other = base.get(seed, {})
        if run.get(what) is None or other.get(what) is None:
            continue
        if what == "loss" and any(run[name] != other[name] for name in SAME):
            continue
        differences.append(run[what] - other[what])
    return differences


def number(values: Sequence[float], digits: int, sign: bool = False) -> str:
    """A mean with its interval."""
    if not values:
        return ""
    mean, half = interval(values)
    text = f"{mean:+.{digits}f}" if sign else f"{mean:.{digits}f}"
    return text if math.isnan(half) else f"{text} ± {half:.{digits}f}"


def verdict(differences: Sequence[float], less_is_better: bool) -> str:
    """Whether the interval of the differences leaves out 0, and on which side."""
    if len(differences) < 2:
        return ""
    mean, half = interval(differences)
    if abs(mean) <= half:
        return "open"
    return "better" if (mean < 0) == less_is_better else "worse"


def table(arms: Mapping[str, Runs]) -> list[str]:
    """Rows of Markdown: a line for each arm."""
    heads = ["arm", "seeds", "held-out loss", "difference", "", "dev", "difference", ""]
    lines = [f"| {' | '.join([*heads, 'steps', 'stage 1, s'])} |", "|" + "---|" * (len(heads) + 2)]
    base = arms.get(BASE, {})
    for name, runs in arms.items():
        losses = [run["loss"] for run in runs.values() if run.get("loss") is not None]
        scores = [run["dev"] for run in runs.values() if run.get("dev") is not None]
        of_loss, of_dev = pairs(base, runs, "loss"), pairs(base, runs, "dev")
        cells = [name, str(len(runs)), number(losses, 4), "", "", number(scores, 2), "", ""]
        if name != BASE:
            cells[3:5] = number(of_loss, 4, sign=True), verdict(of_loss, less_is_better=True)
            if losses and base and not of_loss:
                cells[4] = "not comparable"
            cells[6:8] = number(of_dev, 2, sign=True), verdict(of_dev, less_is_better=False)
        steps = sorted({run["steps"] for run in runs.values()})
        seconds = [run["seconds"] for run in runs.values()]
        cells += [", ".join(f"{count:,}" for count in steps), number(seconds, 0)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page_of(record: Mapping[str, Any]) -> str:
    """The page of all results, as Markdown."""
    settings = record["settings"]
    lines = ["# Recipes", ""]
    lines += [
        "Each arm changes the base by its own options alone. Differences are seed by seed of stage 1, "
        "with their mean and its 95 % interval (Student's t); *open*: the interval holds 0. Held-out "
        "loss: of selected text that stage 1 never reads, the lower the better; it is compared where "
        "text, vocabulary and objective are the same. "
        f"Dev: in points, the mean over the fine-tunings of a stage 1 ({settings['tunings']}), with `finetune.soup` the score of their "
        "mean weights. Test is not read. "
        "About one interval in twenty leaves out 0 by chance: confirm what looks better with other seeds.",
        "",
    ]
    for task, about in record["tasks"].items():
        lines += [f"## {task}, {about['metric']}".rstrip(", "), ""]
        if measured := _measured(about["arms"]):
            lines += [measured, ""]
        lines += [*table(about["arms"]), ""]
    lines += ["## Arms", "", "| arm | options |", "|---|---|"]
    for name, options in {BASE: record["base"], **record["arms"]}.items():
        words = ", ".join(f"`{key} = {value}`" for key, value in options.items())
        lines.append(f"| {name} | {words} |")
    lines += ["", *(f"- No result: {reason}." for reason in record["failed"])]
    about = record["about"]
    lines += [
        "",
        f"{about['date']}, {about['device']}, {about['software']}, {about['workers']} runs at once. "
        f"Printed by `python benchmarks/recipes.py`; further options: `{settings['extra']}`.",
        "",
    ]
    return "\n".join(lines)


def _measured(arms: Mapping[str, Runs]) -> str:
    """What the held-out losses of the base are of."""
    for run in arms.get(BASE, {}).values():
        if run.get("loss") is not None:
            return (
                f"Held out: {run['passages']:,} passages; a measurement reads {run['tokens']:,} tokens and "
                f"predicts {run['targets']:,} of them."
            )
    return ""
