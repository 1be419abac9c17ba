"""Results by task and objective → one page of Markdown; earlier results beside new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.evaluate.scores import flops_text, metric_name, spread_text, time_text
from tasklm.evaluate.scores import spread as spread_of
from tasklm.objectives.base import OBJECTIVES
from tasklm.storage.files import read_json, require_file

TOLERANCE = 0.02  # stage 1 may miss the FLOPs asked for by this share before the page says so

_ABOUT = """\
# Objectives side by side

Written by `benchmarks/objectives.py`. For each task one selection, one vocabulary, one encoder and one number of training FLOPs; only the
self-supervised objective of stage 1 differs. Every objective is a run of its own in a process of its own (`tasklm evaluate`), from random
weights, with the recipe's defaults but for what is named below; no setting was tuned for an objective here.

- **Scores**: mean ± standard deviation over the seeds of fine-tuning, × 100. They share one stage 1, so this spread has no luck of
  pretraining in it: differences of the size of the spread mean nothing. For test also the bootstrap interval over examples and seeds. The
  best dev score is bold; test chose nothing.
- **FLOPs**: exact training FLOPs of stage 1, generators included, and the task's own batches; the number of steps follows from them, so an
  objective with costly steps does fewer. **6ND**: 6 × weights of the encoder × tokens, the count of *NLP From Scratch Without Large-Scale
  Pretraining* (arXiv 2111.04130), which leaves generators out. **Tokens** are those that the encoder read, padding included; batches of the
  task are read twice (for the task and for the objective). **ρ1**: batches of selected text per batch of the task.
- **Seconds** of stage 1 as its loop counts them.
"""


def markdown(tasks: dict[str, Any]) -> str:
    """The whole page: a section for each task."""
    return "\n".join([_ABOUT, *(_section(name, task) for name, task in tasks.items())])


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The tasks of both; of a task in both, the objectives of both, which must have seen the same
    text and settings.
    """
    found = dict(old)
    for name, task in new.items():
        if name in old:
            _same(name, old[name], task)
            rows = {
                **old[name]["objectives"],
                **{
                    key: row
                    for key, row in task["objectives"].items()
                    if not _worse(old[name], key, row)
                },
            }
            task = {
                **task,
                "baselines": task["baselines"] or old[name]["baselines"],
                "objectives": rows,
            }
        found[name] = task
    return found


def _worse(old: dict[str, Any], objective: str, row: dict[str, Any]) -> bool:
    return "failed" in row and "failed" not in old["objectives"].get(objective, {"failed": ""})


def _same(name: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    for what in ("metric", "settings", "text"):
        if old[what] != new[what]:
            raise RunError(
                f"{name}: the earlier results differ in {what} "
                f"({old[what]}) from this command's ({new[what]}). "
                "Leave them out of --merge, or ask for the same."
            )


def read_results(files: list[Path]) -> dict[str, Any]:
    """What earlier commands wrote, joined."""
    found: dict[str, Any] = {}
    for file in files:
        found = merged(
            found, read_json(require_file(file, "Name another file with --merge."))["tasks"]
        )
    return found


def scored(task: dict[str, Any]) -> list[str]:
    """The objectives of a task that have scores."""
    return [name for name, row in task["objectives"].items() if "failed" not in row]


def _section(name: str, task: dict[str, Any]) -> str:
    text, rows = task["text"], task["objectives"]
    known = [*OBJECTIVES.names(), *sorted(set(rows) - set(OBJECTIVES.names()))]
    best = max((rows[key]["dev"]["mean"] for key in scored(task)), default=None)
    settings = ", ".join(f"`{key}` = {_plain(value)}" for key, value in task["settings"].items())
    lines = [
        f"## {name} ({metric_name(task['metric'])})",
        "",
        f"{text['passages']:,} passages selected, "
        f"{text['tokens']:,} tokens of {text['vocabulary']:,} types; the same for all rows "
        f"(content {text['content']}). Settings that are not the defaults: {settings}.",
        "",
        "| objective | dev | test | FLOPs | 6ND | steps | ρ1 | tokens | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(key, rows[key], best) for key in known if key in rows),
        *(_baseline(key, row) for key, row in task["baselines"].items()),
        "",
        *_notes(task),
    ]
    return "\n".join([*lines, ""])


def _row(name: str, row: dict[str, Any], best: float | None) -> str:
    if "failed" in row:
        return f"| {name} | no result ({row['failed']}) | | | | | | | |"
    dev, stage1 = _score(row["dev"]), row["stage1"]
    cells = [
        name,
        f"**{dev}**" if row["dev"]["mean"] == best else dev,
        _score(row["test"]),
        _flops(stage1["flops"]),
        _flops(stage1["flops_6nd"]),
        f"{stage1['steps']:,}",
        f"{stage1['rho1']}",
        f"{stage1['tokens'] / 1e6:,.1f}M",
        f"{stage1['seconds']:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _baseline(name: str, row: dict[str, Any]) -> str:
    return (
        f"| {name} | {_score(row['dev'])} | {_score(row['test'])} "
        f"| {flops_text(0)} | | | | | {time_text(row['seconds'])} |"
    )


def _flops(flops: float) -> str:
    return f"{flops:.3g}".replace("e+", "e")


def _score(values: dict[str, Any] | None) -> str:
    if values is None:
        return spread_text(None)
    interval = None if values["low"] is None else (values["low"], values["high"])
    return spread_text(spread_of(values["values"], interval))


def _notes(task: dict[str, Any]) -> list[str]:
    """What a reader must know about these rows: where they ran, how many at once, and FLOPs that
    were missed.
    """
    machines: dict[str, list[str]] = {}
    lines = []
    for name in scored(task):
        about, stage1 = task["objectives"][name]["about"], task["objectives"][name]["stage1"]
        at_once = (
            "one run at a time"
            if about["workers"] == 1
            else (
                f"up to {about['workers']} runs at once on one device, "
                f"so that the seconds are no fair comparison of objectives"
            )
        )
        threads = f"{about['threads']} CPU thread{'s' * (about['threads'] != 1)} each"
        machines.setdefault(
            f"{about['date']}; {about['device']}; {about['software']}; {at_once}; {threads}", []
        ).append(name)
        if abs(stage1["of_asked"] - 1) > TOLERANCE:
            lines.append(f"- {name} spent {100 * stage1['of_asked']:.1f} % of the FLOPs asked for.")
        if stage1["skipped_steps"]:
            lines.append(
                f"- {name} skipped {stage1['skipped_steps']} steps whose loss was not finite."
            )
    shown = [
        f"- {', '.join(names)}: {machine}." if len(machines) > 1 else f"- {machine}."
        for machine, names in machines.items()
    ]
    return [*shown, *lines]


def _plain(value: Any) -> str:
    return (
        f"{value:g}"
        if isinstance(value, float)
        else ", ".join(value)
        if isinstance(value, (list, tuple))
        else str(value)
    )
